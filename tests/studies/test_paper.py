"""The main study from runs with known numbers, and the statistics of the data sets."""

from tiny_study import texts

from cgmvae.studies.paper import MAIN, MAIN_TUNED, STATS
from cgmvae.studies.results import Results
from cgmvae.studies.spec import Scope, is_network
from cgmvae.studies.statistics import critical_difference

YEAST = Scope(data=("yeast",), methods=("cgmvae", "mlknn", "mlp"))


def test_deterministic_methods_have_one_seed_and_unsupported_data_no_runs(available):
    available("yeast", "delicious")
    seeds = {(run.method, run.data): set() for run in MAIN.runs(Scope())}
    for run in MAIN.runs(Scope()):
        seeds[run.method, run.data].add(run.seed)
    assert seeds["cgmvae", "delicious"] == {0, 1, 2}
    assert seeds["mlknn", "yeast"] == {0}
    assert ("rbcc", "yeast") in seeds
    assert ("rbcc", "delicious") not in seeds


def test_scores_are_marked_and_beside_the_paper_s(made_up):
    for run in MAIN.runs(YEAST):
        score = {"cgmvae": 0.6, "mlknn": 0.5, "mlp": 0.4}[run.method] + 0.01 * run.split
        if (run.method, run.split) != ("mlp", 2):
            made_up.keep(run, score, oracle=score + 0.1)
    tables = {table.title: table for table in MAIN.tables(Results(YEAST, made_up.store))}
    validation = tables["yeast, thresholds: validation"]
    assert [row[1] for row in texts(validation)] == [
        "0.610 ± 0.000 ± 0.010",
        "0.510 ± – ± 0.010",
        "0.405 ± 0.000 ± 0.007",
    ]
    assert [row[1].mark for row in validation.rows] == ["best", "second", None]
    assert [row[-1] for row in validation.rows] == ["9", "3", "6 of 9"]
    oracle = texts(tables["yeast, thresholds: test-oracle"])
    assert [row[0] for row in oracle[:4]] == ["C-GMVAE", "— the paper", "ML-kNN", "— the paper"]
    assert oracle[1][1:3] == ["0.656", "0.665"]
    assert [row[1] for row in tables["Mean ranks, 1 is best"].rows] == ["1.00", "2.00", "3.00"]
    (figure, *_) = MAIN.figures(Results(YEAST, made_up.store))
    assert figure.kind == "critical-difference"


def test_ranks_are_counted_from_data_sets(made_up, available):
    """Splits and metrics of a data set are averaged first: they are no further evidence."""
    available("yeast", "scene")
    scope = Scope(data=("yeast", "scene"), methods=("cgmvae", "mlknn", "mlp"))
    for run in MAIN.runs(scope):
        ahead = run.method == ("cgmvae" if run.data == "yeast" else "mlknn")
        made_up.keep(run, 0.6 + 0.01 * run.split + 0.1 * ahead - 0.1 * (run.method == "mlp"))
    results = Results(scope, made_up.store)
    table = MAIN.tables(results)[0]
    assert [row[1] for row in table.rows] == ["1.50", "1.50", "3.00"]
    expected = f"{critical_difference(3, 2):.2f}"
    assert table.notes[1].startswith("validation: 2 data sets;")
    assert table.notes[1].endswith(f"critical difference (.05) {expected}.")
    assert MAIN.figures(results)[0].contents["critical_difference"] == critical_difference(3, 2)


def test_what_was_not_run_is_left_out(made_up, available):
    available("yeast", "scene")
    runs = MAIN.runs(Scope(data=("yeast",), methods=("mlknn", "asl"), splits=(0,), seeds=(0,)))
    for run in runs:
        made_up.keep(run, 0.5)
    results = Results(Scope(), made_up.store)
    ranks, yeast, scene, *_ = MAIN.tables(results)
    assert [row[0] for row in ranks.rows] == ["ML-kNN", "ASL"]
    assert [row[0] for row in yeast.rows] == ["ML-kNN", "ASL"]
    assert scene.rows == []
    names = MAIN.figures(results)[0].contents["names"]
    assert names == ["ML-kNN", "ASL"]


def test_a_peer_is_left_out_of_data_that_is_too_large(made_up, available):
    available("delicious")
    scope = Scope(data=("delicious",), methods=("random-forest", "mlp"))
    for run in MAIN.runs(scope):
        made_up.keep(run, 0.5)
    tables = {table.title: table for table in MAIN.tables(Results(scope, made_up.store))}
    rows = {str(row[0]): row for row in tables["delicious, thresholds: validation"].rows}
    assert rows["random forest"][1] == "left out: 15,831,215 rows × labels, more than 5,000,000"
    assert rows["multi-layer perceptron"][-1] == "9"


def test_every_network_is_tuned_with_the_same_budget(made_up, available):
    available("yeast")
    scope = Scope(data=("yeast",))
    runs = MAIN_TUNED.runs(scope)
    assert {run.tuning for run in runs if is_network(run.method)} == {"random"}
    assert {run.tuning for run in runs if not is_network(run.method)} == {""}
    assert {run.split for run in runs} == set(range(1, 11))
    for run in runs:
        made_up.keep(run, 0.5)
    table = {table.title: table for table in MAIN_TUNED.tables(Results(scope, made_up.store))}
    titles = [row[0] for row in texts(table["yeast, thresholds: test-oracle"])]
    assert {"C-GMVAE, network paper", "MPVAE, its authors' settings"} < set(titles)
    assert titles[titles.index("C-GMVAE, network tuned") + 1] == "— the paper"
    assert titles.count("— the paper") == 10


def test_statistics_are_beside_the_paper_s(made_up):
    (table,) = STATS.tables(Results(YEAST, made_up.store))
    ours, paper = table.rows
    assert ours[:4] == ["yeast", "2,417", "14", "4.24"]
    assert paper[:4] == ["— the paper", "2,417", "14", "4.24"]
    assert paper[-1] == "0.50"  # the share of Mulan's training rows, 1,500 of 2,417
