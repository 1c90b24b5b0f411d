"""The paper's tables of data sets (study ``stats``) and of ten methods (study ``main``)."""

from __future__ import annotations

from cgmvae.data import catalog, load_dataset
from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS, PROTOCOLS
from cgmvae.methods.registry import REGISTRY
from cgmvae.studies.published import published_value
from cgmvae.studies.results import (
    Results,
    Rows,
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
    data_choice,
    data_title,
    is_available,
    method_title,
    why_missing,
)
from cgmvae.studies.tables import Table, number

_data = data_choice((*PAPER_DATA, *STAND_INS), quick=("yeast", "scene"))


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
        cells = [why_missing(name)]
        if is_available(name):
            found = load_dataset(name, download=False).describe()
            values = [getattr(found, field) for field in STATISTICS]
            cells = [f"{each:,.2f}" if each != int(each) else f"{int(each):,}" for each in values]
        rows.append([name, *cells])
        reported = catalog.find_entry(name).paper
        if reported is not None:
            rows.append(["— the paper", *(f"{getattr(reported, field):,}" for field in STATISTICS)])
    return [Table("The data sets", ["data", *STATISTICS.values()], rows)]


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


def _main_tables(results: Results) -> list[Table]:
    """Return the ranks, and a table for each data set and protocol."""
    data = _data(results.scope)
    each = [_data_table(results, name, protocol) for protocol in PROTOCOLS for name in data]
    return [rank_table(results, data, _specs), *each]


MAIN = Study(
    "main",
    "Ten methods on the paper's data sets, beside its numbers",
    main_runs,
    _main_tables,
    lambda results: rank_figures(results, _data(results.scope), _specs, "main", list(PROTOCOLS)),
)
