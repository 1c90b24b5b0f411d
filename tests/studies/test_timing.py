"""The study of costs: its runs, and tables from made-up runs with known seconds."""

from typing import Any

import numpy as np
import pytest

from cgmvae.methods.registry import PAPER_METHODS
from cgmvae.studies import timing
from cgmvae.studies.commands import run_study
from cgmvae.studies.paper import MAIN
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, Scope, is_network, make_jobs
from cgmvae.studies.store import Store
from cgmvae.studies.tables import Table
from cgmvae.studies.timing import STUDY

YEAST = Scope(data=("yeast",))
MACHINE = {"device": "a card", "torch": "2", "commit": "abc", "pack": ["one"]}

#: Seconds per epoch of each network in these tests.
EPOCH = {"cgmvae": 0.2, "c2ae": 0.4, "lamp": 0.3, "mpvae": 0.5, "asl": 0.1, "rbcc": 2.0}


def keep(made_up: Any, spec: RunSpec, **changes: Any) -> None:
    """Store a run whose fit takes 3 s plus its epochs, and 9 s more for the warm-up."""
    epochs = spec.settings.get("epochs", 0)
    fit = 3.0 + EPOCH.get(spec.method, 0.0) * epochs + (9.0 if epochs == 1 else 0.0)
    seconds = {"fit": fit, "predict": 0.01 * len(spec.method)}
    more = {"seconds": seconds} | ({"epochs": epochs} if epochs else {})
    made_up.keep(spec, 0.5, **more, environment=MACHINE | changes)


def table_of(made_up: Any, scope: Scope = YEAST) -> Table:
    (table,) = STUDY.tables(Results(scope, made_up.store))
    return table


def row_of(table: Table, title: str) -> list[Any]:
    return next(list(row) for row in table.rows if row[0] == title)


def test_networks_are_fitted_three_times_and_alone(available: Any) -> None:
    available(*timing.DATA)
    specs = STUDY.runs(Scope())
    too_many_labels = 2 * 3  # RBCC on the survey and on delicious
    assert len({spec.key for spec in specs}) == len(specs) == 6 * (6 * 3 + 4) - too_many_labels
    assert {spec.method for spec in specs} == set(PAPER_METHODS)
    assert all(len(job) == 1 for job in make_jobs(specs))
    networks = [spec for spec in specs if is_network(spec.method)]
    assert [spec.settings["epochs"] for spec in networks[:3]] == [1, 5, 25]  # the warm-up first
    assert {spec.settings["n_members"] for spec in networks} == {1}


def test_a_run_is_trained_alone_and_not_taken_from_the_main_study() -> None:
    several = Scope(data=("yeast",), splits=(4, 5), seeds=(7, 8))
    assert {(spec.split, spec.seed) for spec in STUDY.runs(several)} == {(4, 7)}
    for scope in (YEAST, Scope(quick=True, data=("yeast",))):
        assert not set(STUDY.runs(scope)) & set(MAIN.runs(scope))


def test_table_has_seconds_and_ratios_and_judges_the_claim(made_up: Any, monkeypatch: Any) -> None:
    for spec in STUDY.runs(YEAST):
        keep(made_up, spec)
    table = table_of(made_up)
    assert len(table.columns) == 6
    assert row_of(table, "C-GMVAE")[1:] == ["0.200", "1.00", "3.00", "0.060", "1.00"]
    assert row_of(table, "MPVAE")[1:] == ["0.500", "2.50", "3.00", "0.050", "0.83"]
    assert row_of(table, "ML-kNN")[1:] == ["–", "–", "3.00", "0.050", "0.83"]
    assert not any("compared" in note or "together" in note for note in table.notes)
    trained, tested = table.notes[1:]
    assert trained == (
        "C-GMVAE is the cheapest network to train: not found; ASL cost less (6 networks timed)."
    )
    assert "at test: not found" in tested
    monkeypatch.setitem(EPOCH, "cgmvae", 0.05)
    for spec in STUDY.runs(YEAST):
        keep(made_up, spec)
    assert table_of(made_up).notes[1] == "C-GMVAE is the cheapest network to train: found, of 6."


def test_the_papers_seconds_stand_beside_those_of_a_stand_in(made_up: Any, available: Any) -> None:
    available("bbs_2003_2009")
    scope = Scope(data=("bbs_2003_2009",))
    for spec in STUDY.runs(scope):
        keep(made_up, spec)
    table = table_of(made_up, scope)
    assert "in place of ebird" in table.title
    assert row_of(table, "MPVAE")[-4:] == ["43.000", "1.95", "97.000", "4.04"]
    assert row_of(table, "SLEEC")[-4:] == ["–"] * 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"device": "another"}, "cannot be compared"), ({"pack": ["one", "two"]}, "trained together")],
)
def test_doubtful_times_have_a_note(made_up: Any, changes: Any, said: str) -> None:
    first, *others = STUDY.runs(YEAST)
    keep(made_up, first, **changes)
    for spec in others:
        keep(made_up, spec)
    assert sum(said in note for note in table_of(made_up).notes) == 1


def test_disturbed_times_are_not_compared(made_up: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(EPOCH, "lamp", -0.1)
    for spec in STUDY.runs(YEAST):
        keep(made_up, spec)
    table = table_of(made_up)
    assert "for LaMP:" in table.notes[-1]
    assert "(5 networks timed)" in table.notes[1]
    few, more = ({"epochs": n, "seconds": {"fit": 2.0 * n, "predict": 1}} for n in (5, 25))
    more["seconds"]["fit"] += 1  # less than no time is left for the overhead
    assert timing.cost_of([None, few, more]).is_disturbed


def test_missing_and_failed_fits_are_named(made_up: Any) -> None:
    for spec in STUDY.runs(YEAST):
        if spec.method == "rbcc":
            made_up.store.write_error(spec, "too many labels")
        elif spec.method == "cgmvae" and spec.settings["epochs"] != 25:
            keep(made_up, spec)
    table = table_of(made_up)
    assert row_of(table, "RBCC")[1] == "too many labels"
    assert [row[0] for row in table.rows] == ["RBCC"]
    assert "not known" in table.notes[1]


def test_a_method_that_does_not_take_the_data_is_not_timed(made_up: Any, available: Any) -> None:
    available("delicious")
    scope = Scope(data=("delicious",))
    assert "rbcc" not in {spec.method for spec in STUDY.runs(scope)}
    for spec in STUDY.runs(scope):
        keep(made_up, spec)
    assert row_of(table_of(made_up, scope), "RBCC")[1] == "takes at most 100 labels"


def test_real_fits_are_timed(tmp_path: Any) -> None:
    scope = Scope(quick=True, data=("yeast",), methods=("asl", "mlknn"))
    store = Store(tmp_path)
    assert run_study(STUDY, scope, store, device="cpu") == []
    (table,) = STUDY.tables(Results(scope, store))
    for title in ("ASL", "ML-kNN"):
        # The overhead of a network is a difference of times, and may be of any sign.
        assert np.isfinite(float(row_of(table, title)[3]))
        assert float(row_of(table, title)[4]) > 0
