"""The paper's main tables: ten methods on its nine data sets and the stand-ins, five metrics."""

from __future__ import annotations

import numpy as np

from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS, PROTOCOLS
from cgmvae.methods import REGISTRY
from cgmvae.studies.measured import Measured
from cgmvae.studies.published import published_value
from cgmvae.studies.rank_table import rank_figures, rank_table
from cgmvae.studies.results import Results, Spread, spread
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.statistics import RankTest, rank_methods
from cgmvae.studies.study import (
    PAPER_DATA,
    STAND_INS,
    Scope,
    Study,
    StudyFigure,
    data_title,
    is_here,
    method_title,
    why_missing,
)
from cgmvae.studies.tables import Cell, Table, marked, number
from cgmvae.studies.variants import spread_cell, spread_reading

QUICK_DATA = ("yeast", "scene")

#: Methods that come out the same whatever their seed: they are run with one.
SEEDLESS = ("binary-relevance", "mlknn")


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data((*PAPER_DATA, *STAND_INS), QUICK_DATA)


def _spec(scope: Scope, data: str, method: str) -> RunSpec:
    return RunSpec(data, method, settings=scope.settings(method))


def _seeds(scope: Scope, method: str) -> tuple[int, ...]:
    seeds = scope.chosen_seeds()
    return seeds[:1] if method in SEEDLESS else seeds


def runs(scope: Scope) -> list[RunSpec]:
    """Return every method on every data set that is here."""
    methods = scope.chosen_methods(tuple(REGISTRY))
    specs = [_spec(scope, data, method) for data in _data(scope) for method in methods]
    return [run for run in scope.runs(specs) if run.seed in _seeds(scope, run.method)]


def _spreads(scope: Scope, results: Results, data: str, protocol: str) -> dict[str, list[Spread]]:
    """Return mean and deviations of each metric, by method."""
    found = {}
    for method in scope.chosen_methods(tuple(REGISTRY)):
        values = results.metrics(
            _spec(scope, data, method),
            scope.chosen_splits(),
            _seeds(scope, method),
            protocol=protocol,
        )
        found[method] = [spread(values[:, :, i]) for i in range(len(PAPER_METRICS))]
    return found


def _data_table(scope: Scope, results: Results, data: str, protocol: str) -> Table:
    title = f"{data_title(data)}, thresholds: {protocol}"
    if not is_here(data):
        return Table(title, ["data"], [[why_missing(data)]])
    beside_paper = protocol == "test-oracle" and data in PAPER_DATA
    found = _spreads(scope, results, data, protocol)
    columns = zip(*found.values(), strict=True)
    marks = [marked([own.mean for own in column]) for column in columns]
    rows: list[list[Cell | str]] = []
    for place, (method, spreads) in enumerate(found.items()):
        if spreads[0].n_runs == 0:
            rows.append(
                [
                    method_title(method),
                    Measured(scope, results).why_empty(_spec(scope, data, method)),
                ]
            )
            continue
        cells = [spread_cell(marks[i][place], own) for i, own in enumerate(spreads)]
        rows.append([method_title(method), *cells, str(spreads[0].n_runs)])
        if beside_paper and method in REGISTRY:
            published = [published_value(m, REGISTRY[method].row, data) for m in PAPER_METRICS]
            rows.append(["— the paper", *map(number, published), ""])
    notes = [spread_reading("column")]
    return Table(title, ["method", *METRIC_TITLES.values(), "runs"], rows, notes)


def _ranks(scope: Scope, results: Results, protocol: str) -> RankTest:
    """Rank methods over data sets and metrics, by their means."""
    rows = [
        [spreads[i].mean for spreads in found.values()]
        for data in _data(scope)
        if is_here(data)
        for found in [_spreads(scope, results, data, protocol)]
        for i in range(len(PAPER_METRICS))
    ]
    methods = scope.chosen_methods(tuple(REGISTRY))
    scores = np.array(rows, np.float64).reshape(-1, len(methods))
    return rank_methods(scores)


def _titles(scope: Scope) -> list[str]:
    return [method_title(method) for method in scope.chosen_methods(tuple(REGISTRY))]


def tables(scope: Scope, results: Results) -> list[Table]:
    """Return a table for each data set and protocol, and the ranks."""
    each = [
        _data_table(scope, results, data, protocol)
        for protocol in PROTOCOLS
        for data in _data(scope)
    ]
    tests = {protocol: _ranks(scope, results, protocol) for protocol in PROTOCOLS}
    return [rank_table(_titles(scope), tests), *each]


def figures(scope: Scope, results: Results) -> list[StudyFigure]:
    """Return the critical-difference plot of each protocol that has one."""
    return [
        figure
        for protocol in PROTOCOLS
        for figure in rank_figures(
            f"main_{protocol}", _titles(scope), _ranks(scope, results, protocol)
        )
    ]


STUDY = Study(
    "main", "Ten methods on the paper's data sets, beside its numbers", runs, tables, figures
)
