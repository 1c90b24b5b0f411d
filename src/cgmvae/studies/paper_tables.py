"""The paper's tables of data sets (study ``stats``) and of ten methods (study ``main``)."""

from __future__ import annotations

from cgmvae.data import catalog, load_dataset
from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS, PROTOCOLS
from cgmvae.methods.registry import REGISTRY
from cgmvae.studies.published import published_value
from cgmvae.studies.results import (
    Results,
    Rows,
    rank_by_means,
    rank_figures,
    rank_table,
    score_rows,
    spread_note,
)
from cgmvae.studies.spec import (
    PAPER_DATA,
    STAND_INS,
    RunSpec,
    Scope,
    Study,
    StudyFigure,
    data_title,
    is_available,
    method_title,
    why_missing,
)
from cgmvae.studies.statistics import RankTest
from cgmvae.studies.tables import Table, number

QUICK_DATA = ("yeast", "scene")


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data((*PAPER_DATA, *STAND_INS), QUICK_DATA)


STATISTICS = {
    "samples": "samples",
    "labels": "labels",
    "mean_labels_per_sample": "mean labels per sample",
    "median_labels_per_sample": "median",
    "max_labels_per_sample": "maximum",
    "mean_samples_per_label": "mean samples per label",
}


def _statistics_tables(results: Results) -> list[Table]:
    """Return one table: a row for our copy of each data set, and one for the paper's."""
    rows = []
    for name in _data(results.scope):
        rows.append([name, *_statistics(name)])
        reported = catalog.find_entry(name).paper
        if reported is not None:
            cells = (f"{getattr(reported, field):,}" for field in STATISTICS)
            rows.append(["— the paper", *cells])
    return [Table("The data sets", ["data", *STATISTICS.values()], rows)]


def _statistics(name: str) -> list[str]:
    if not is_available(name):
        return [why_missing(name)]
    found = load_dataset(name, download=False).describe()
    values = [getattr(found, field) for field in STATISTICS]
    return [f"{value:,.2f}" if value != int(value) else f"{int(value):,}" for value in values]


STATS = Study("stats", "The data sets, beside the paper's table", lambda _: [], _statistics_tables)


def _specs(scope: Scope, data: str) -> dict[str, RunSpec]:
    """Return the runs on a data set by method; any split and seed."""
    methods = scope.chosen_methods(tuple(REGISTRY))
    return {name: RunSpec(data, name, settings=scope.settings(name)) for name in methods}


def main_runs(scope: Scope) -> list[RunSpec]:
    """Return every method on every available data set."""
    return scope.runs([spec for data in _data(scope) for spec in _specs(scope, data).values()])


def _data_table(results: Results, data: str, protocol: str) -> Table:
    title = f"{data_title(data)}, thresholds: {protocol}"
    if not is_available(data):
        return Table(title, ["data"], [[why_missing(data)]])
    with_paper = protocol == "test-oracle" and data in PAPER_DATA
    rows: Rows = []
    specs = _specs(results.scope, data)
    for method, *cells in score_rows(results, specs, protocol=protocol):
        rows.append([method_title(str(method)), *cells])
        if with_paper and method in REGISTRY and len(cells) > 1:
            row = REGISTRY[str(method)].row
            reported = [published_value(metric, row, data) for metric in PAPER_METRICS]
            rows.append(["— the paper", *map(number, reported), ""])
    columns = ["method", *METRIC_TITLES.values(), "runs"]
    return Table(title, columns, rows, [spread_note("column")])


def _ranks(results: Results, protocol: str) -> RankTest:
    scope = results.scope
    return rank_by_means(results, _data(scope), lambda data: _specs(scope, data), protocol=protocol)


def _titles(scope: Scope) -> list[str]:
    return [method_title(method) for method in scope.chosen_methods(tuple(REGISTRY))]


def _main_tables(results: Results) -> list[Table]:
    """Return the ranks, and a table for each data set and protocol."""
    each = [
        _data_table(results, data, protocol)
        for protocol in PROTOCOLS
        for data in _data(results.scope)
    ]
    tests = {protocol: _ranks(results, protocol) for protocol in PROTOCOLS}
    return [rank_table(_titles(results.scope), tests), *each]


def _main_figures(results: Results) -> list[StudyFigure]:
    """Return the critical-difference plot of each protocol that has one."""
    titles = _titles(results.scope)
    return [
        figure
        for protocol in PROTOCOLS
        for figure in rank_figures(f"main_{protocol}", titles, _ranks(results, protocol))
    ]


MAIN = Study(
    "main",
    "Ten methods on the paper's data sets, beside its numbers",
    main_runs,
    _main_tables,
    _main_figures,
)
