"""The study of peers: its runs, and tables from made-up runs with known numbers."""

from pathlib import Path
from typing import Any

import pytest
from joblib import parallel_config

from cgmvae.studies import peers
from cgmvae.studies.commands import run_study
from cgmvae.studies.paper import PEER_DATA
from cgmvae.studies.paper import PEER_STUDY as STUDY
from cgmvae.studies.peers import PEERS
from cgmvae.studies.results import Results
from cgmvae.studies.spec import Scope
from cgmvae.studies.store import Store
from cgmvae.studies.tables import Table

YEAST = Scope(data=("yeast",))

#: Scores of the methods in these tests.
SCORES = {
    "cgmvae": 0.60,
    "random-forest": 0.62,
    "extra-trees": 0.61,
    "lightgbm": 0.55,
    "catboost": 0.54,
    "logistic-regression": 0.50,
    "linear-svm": 0.49,
    "classifier-chains": 0.51,
    "mlp": 0.52,
    "tabm": 0.53,
}


def keep_all(made_up: Any, scope: Scope = YEAST) -> None:
    for spec in STUDY.runs(scope):
        score = SCORES[spec.method] + 0.01 * spec.split
        made_up.keep(spec, score, oracle=score + 0.1)


def tables(made_up: Any, scope: Scope = YEAST) -> dict[str, Table]:
    return {table.title: table for table in STUDY.tables(Results(scope, made_up.store))}


def test_runs_are_counted_and_distinct(available: Any) -> None:
    available(*PEER_DATA)
    specs = STUDY.runs(Scope())
    counts = {name: sum(spec.method == name for spec in specs) for name in ("cgmvae", *PEERS)}
    assert (counts["cgmvae"], counts["logistic-regression"]) == (7 * 9, 7 * 3)  # one seed
    assert (counts["lightgbm"], counts["catboost"]) == (6 * 3, 4 * 9)  # not on the largest data
    assert len({spec.key for spec in specs}) == len(specs)
    assert all(spec.cross_validated for spec in specs)


def test_a_peer_is_left_out_of_data_that_is_too_large(made_up: Any, available: Any) -> None:
    available("delicious")
    scope = Scope(data=("delicious",))
    keep_all(made_up, scope)
    rows = {
        str(row[0]): row for row in tables(made_up, scope)["delicious, thresholds: validation"].rows
    }
    assert rows["random forest"][1] == "left out: 15,831,215 rows × labels, more than 5,000,000"
    assert rows["multi-layer perceptron"][-1] == "9"


def test_cgmvae_is_compared_with_the_best_peer_on_the_same_splits(made_up: Any) -> None:
    keep_all(made_up)
    table = tables(made_up)["C-GMVAE minus the best peer"]
    assert table.rows[0][1] == "-0.020 [-0.020, -0.020] (random forest)"
    assert "not found, but the opposite, on 1 (yeast)" in table.notes[1]


def test_a_peer_without_seeds_is_compared_with_all_seeds(made_up: Any) -> None:
    scope = Scope(data=("yeast",), methods=("logistic-regression",))
    keep_all(made_up, scope)
    table = tables(made_up, scope)["C-GMVAE minus the best peer"]
    assert table.rows[0][1] == "+0.100 [+0.100, +0.100] (logistic regression)"
    assert "found on 1 of 1 data sets (yeast)" in table.notes[1]


def test_ranks_are_over_data_on_which_all_were_run(made_up: Any, available: Any) -> None:
    available("yeast", "scene", "delicious")
    scope = Scope(data=("yeast", "scene", "delicious"))
    keep_all(made_up, scope)
    table = tables(made_up, scope)["Mean ranks, 1 is best"]
    assert [row[1] for row in table.rows] == [
        f"{rank}.00" for rank in (3, 1, 2, 4, 5, 9, 10, 8, 7, 6)
    ]
    assert "validation: 2 data sets" in table.notes[1]
    (figure,) = STUDY.figures(Results(scope, made_up.store))
    assert figure.kind == "critical-difference"
    assert figure.contents["names"][:2] == ["C-GMVAE", "random forest"]


def test_without_runs_and_with_methods_of_another_study(made_up: Any) -> None:
    assert tables(made_up)["C-GMVAE minus the best peer"].rows == []
    assert STUDY.figures(Results(YEAST, made_up.store)) == []
    scope = Scope(data=("yeast",), methods=("mlknn",))
    assert {spec.method for spec in STUDY.runs(scope)} == {"cgmvae"}
    assert tables(made_up, scope)


def test_real_peers_run_in_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "N_TREES", 5)
    monkeypatch.setattr(peers, "C_VALUES", (0.1,))
    monkeypatch.setattr(peers, "MAX_EPOCHS", 2)
    monkeypatch.setattr(peers, "N_CHAINS", 1)
    chosen = ("random-forest", "logistic-regression", "mlp")
    scope = Scope(data=("yeast",), methods=chosen, splits=(0,), seeds=(0,))
    study = STUDY.__class__("peers", lambda s: STUDY.runs(s)[1:], STUDY.tables)
    with parallel_config("sequential"):
        assert run_study(study, scope, Store(tmp_path), device="cpu") == []
    table = STUDY.tables(Results(scope, Store(tmp_path)))[2]
    assert [row[-1] for row in table.rows] == ["1"] * 3
