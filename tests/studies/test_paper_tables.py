"""The main study from runs with known numbers, and the statistics of the data sets."""

from tiny_study import texts

from cgmvae.studies.paper_tables import MAIN, STATS, main_runs
from cgmvae.studies.results import Results
from cgmvae.studies.spec import Scope

YEAST = Scope(data=("yeast",), methods=("cgmvae", "mlknn", "mlp"))


def test_deterministic_methods_have_one_seed_and_unsupported_data_no_runs(available):
    available("yeast", "delicious")
    seeds = {(run.method, run.data): set() for run in main_runs(Scope())}
    for run in main_runs(Scope()):
        seeds[run.method, run.data].add(run.seed)
    assert seeds["cgmvae", "delicious"] == {0, 1, 2}
    assert seeds["mlknn", "yeast"] == {0}
    assert ("rbcc", "yeast") in seeds
    assert ("rbcc", "delicious") not in seeds


def test_scores_are_marked_and_beside_the_paper_s(made_up):
    for run in main_runs(YEAST):
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


def test_statistics_are_beside_the_paper_s(made_up):
    (table,) = STATS.tables(Results(YEAST, made_up.store))
    ours, paper = table.rows
    assert ours[:4] == ["yeast", "2,417", "14", "4.24"]
    assert paper[:4] == ["— the paper", "2,417", "14", "4.24"]
    assert paper[-1] == "0.50"  # the share of Mulan's training rows, 1,500 of 2,417
