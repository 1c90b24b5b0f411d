"""The study of regimes: its runs, and tables from made-up runs with known numbers."""

from typing import Any

import numpy as np

from cgmvae.studies import regimes
from cgmvae.studies.paper_tables import main_runs
from cgmvae.studies.regimes import EVERYTHING, REGIMES, STUDY, rare_labels
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, Scope
from cgmvae.studies.statistics import Difference
from cgmvae.studies.tables import Table, render

YEAST = Scope(data=("yeast",))


def tables(made_up: Any, scope: Scope = YEAST) -> dict[str, Table]:
    return {table.title: table for table in STUDY.tables(Results(scope, made_up.store))}


def is_plain(spec: RunSpec) -> bool:
    return spec.settings.get("kl_weight") == 0


def test_both_settings_are_run_in_every_regime(available: Any) -> None:
    available(*regimes.DATA)
    specs = STUDY.runs(Scope())
    assert len({spec.key for spec in specs}) == len(specs) == 6 * len(REGIMES) * 2 * 5
    assert {spec.train_fraction for spec in specs} == {0.05, 0.1, 0.25, 1.0}
    assert {spec.hidden_labels for spec in specs} == {0.0, 0.25, 0.5, 0.75}
    assert sum(map(is_plain, specs)) == len(specs) / 2
    shared = set(STUDY.runs(YEAST)) & set(main_runs(YEAST))
    assert {(spec.method, spec.split, spec.seed) for spec in shared} == {
        ("cgmvae", split, 0) for split in (0, 1, 2)
    }


def label_report(rare_f1: float, other_f1: float) -> dict[str, Any]:
    """Return a report of yeast's 14 labels, the first four of which are rarest."""
    return {"label_f1": [rare_f1] * 4 + [other_f1] * 10, "train_positives": [5] * 4 + [50] * 10}


def keep_all(made_up: Any, scope: Scope = YEAST) -> None:
    """Store runs in which C-GMVAE gains about .1 with few rows on all splits."""
    for spec in STUDY.runs(scope):
        gain = 0.1 if spec.train_fraction < 1 else -0.1 if spec.hidden_labels else 0.0
        noise = 0.01 * (spec.split - 2)
        ours = 0 if is_plain(spec) else gain + noise
        labels = label_report(0.2 if is_plain(spec) else 0.3 + noise, 0.6)
        made_up.keep(spec, 0.5 + ours, **labels)


def test_a_data_sets_table_has_level_and_difference(made_up: Any) -> None:
    keep_all(made_up)
    table = tables(made_up)["yeast"]
    # Noise of -.02 ... .02: deviation .0158, error .00707, times t(4) = 2.776 gives .0196.
    assert [row[1] for row in table.rows] == [
        *["0.600 (+0.100 [+0.080, +0.120])"] * 3,
        "0.500 (+0.000 [-0.020, +0.020])",
        *["0.400 (-0.100 [-0.120, -0.080])"] * 3,
    ]
    assert {row[-1] for row in table.rows} == {"5"}


def test_the_summary_says_where_the_terms_help(made_up: Any) -> None:
    keep_all(made_up)
    table = tables(made_up)["C-GMVAE minus plain cross-entropy, over the data sets"]
    assert table.rows[0][1] == "+0.100; 1 above, 0 below of 1"
    assert table.rows[-1][1] == "-0.100; 0 above, 1 below of 1"
    said = dict(note.split(": ", 1) for note in table.notes[1:])
    assert said["5% of the rows"].startswith(
        "mixture prior and contrastive term help: higher in 5, lower in 0, within noise in 0 of 5"
    )
    assert "stay within noise: higher in 0" in said[EVERYTHING]
    assert "term hurt: higher in 0, lower in 5" in said["75% of the labels unknown"]


def test_a_few_cells_beside_0_are_chance() -> None:
    noise, above = Difference(0.0, -0.1, 0.1, 5), Difference(0.2, 0.1, 0.3, 5)
    below = Difference(-0.2, -0.3, -0.1, 5)
    assert "stay within noise" in regimes._verdict("here", [above] * 2 + [noise] * 28)
    assert "term help:" in regimes._verdict("here", [above] * 3 + [noise] * 27)
    assert "term hurt:" in regimes._verdict("here", [above] + [below] * 3 + [noise] * 26)
    assert "help on some" in regimes._verdict("here", [above] * 3 + [below] * 3 + [noise] * 24)
    unknown = Difference(0.1, np.nan, np.nan, 1)
    assert "lack of a second split" in regimes._verdict("here", [unknown])


def test_rare_labels_are_those_of_the_training_rows(made_up: Any) -> None:
    keep_all(made_up)
    table = tables(made_up)["F1 of the rarest third of the labels"]
    assert table.rows == [
        ["yeast", "0.300", "0.200", "+0.100 [+0.080, +0.120]", "+0.000 [+0.000, +0.000]", "0.0"]
    ]
    assert "found on 1 of 1 data sets (yeast)" in table.notes[1]
    assert "found on 1 of 1 data sets (yeast)" in table.notes[2]


def test_labels_that_no_test_row_has_are_left_out(made_up: Any, monkeypatch: Any) -> None:
    scope = Scope(data=("yeast",), splits=(0, 1))
    for spec in STUDY.runs(scope):
        labels = label_report(0.4, 0.6)
        labels["label_f1"][0] = 0.0  # predicted, though no test row has it
        labels["label_f1"][5] = np.nan
        made_up.keep(spec, 0.5, **labels)
    absent = np.isin(np.arange(14), (0, 5), invert=True)
    monkeypatch.setattr(regimes, "_tested_labels", lambda *_: absent)
    (row,) = tables(made_up, scope)["F1 of the rarest third of the labels"].rows
    assert row[1] == "0.400"
    assert row[-1] == "1.0"


def test_the_rarest_third_is_rounded_down_but_not_to_nothing() -> None:
    assert rare_labels([3, 1]).tolist() == [False, True]


def test_missing_runs_have_a_reason(made_up: Any) -> None:
    empty = tables(made_up)
    assert [row[1] for row in empty["yeast"].rows] == ["not run"] * len(REGIMES)
    assert all("no runs yet" in note for note in empty[next(iter(empty))].notes[1:])
    first = STUDY.runs(YEAST)[0]
    made_up.keep(first, 0.5, **label_report(0.1, 0.1))
    assert tables(made_up)["yeast"].rows[0][1] == "not run"  # half a pair
    made_up.store.write_error(next(filter(is_plain, STUDY.runs(YEAST))), "no memory")
    assert tables(made_up)["yeast"].rows[0][1] == "no memory"
    assert render(tables(made_up).values(), "md")
