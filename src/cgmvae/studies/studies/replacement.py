"""The contrastive module against what it replaces: a network of labels, a covariance matrix."""

from __future__ import annotations

from cgmvae.studies.measured import Measured
from cgmvae.studies.published import published
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.study import Scope, Study, is_here, paper_data, paper_row, why_missing
from cgmvae.studies.tables import Cell, Table, marked, number
from cgmvae.studies.variants import (
    MIXTURE_ONLY,
    PARTS_DATA,
    QUICK_DATA,
    Variant,
    difference_table,
    spread_cell,
    spread_reading,
    variant_runs,
)

CONTRASTIVE = Variant("contrastive")
NO_MODULE = Variant("no module", MIXTURE_ONLY.settings)
COVARIANCE = Variant(
    "covariance", {"contrastive_weight": 0.0, "settings": {"correlation": "covariance"}}
)
GRAPH = Variant("GNN", {"contrastive_weight": 0.0, "settings": {"correlation": "graph"}})
VARIANTS = (NO_MODULE, COVARIANCE, GRAPH, CONTRASTIVE)

METRIC = "micro_f1"


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data(PARTS_DATA, QUICK_DATA)


def runs(scope: Scope) -> list[RunSpec]:
    """Return the mixture model with each module, and with none."""
    return variant_runs(scope, _data(scope), VARIANTS)


def tables(scope: Scope, results: Results) -> list[Table]:
    """Return micro-F1 by data set and module under both protocols, and the differences."""
    measured = Measured(scope, results)
    return [
        *(_module_table(measured, protocol) for protocol in ("validation", "test-oracle")),
        difference_table(
            measured,
            _data(scope),
            [(CONTRASTIVE, other) for other in (COVARIANCE, GRAPH, NO_MODULE)],
            title="What the contrastive module adds",
            metrics=[METRIC],
        ),
    ]


def _module_table(measured: Measured, protocol: str) -> Table:
    """Return a row for each data set and, under the paper's kind of thresholds, the paper's."""
    rows: list[list[Cell | str]] = []
    for data in _data(measured.scope):
        rows.append(_row(measured, data, protocol))
        printed = [_printed(data, variant) for variant in VARIANTS]
        if protocol == "test-oracle" and any(printed):
            rows.append([paper_row(data), *map(number, printed)])
    columns = ["data", *(variant.title for variant in VARIANTS), "runs"]
    notes = [spread_reading("data set")]
    return Table(f"micro-F1 by module, thresholds: {protocol}", columns, rows, notes)


def _row(measured: Measured, data: str, protocol: str) -> list[Cell | str]:
    if not is_here(data):
        return [data, why_missing(data)]
    specs = [variant.spec(measured.scope, data) for variant in VARIANTS]
    found = [measured.spreads(spec, protocol=protocol)[METRIC] for spec in specs]
    marks = marked([own.mean for own in found])
    cells = [
        spread_cell(mean, own) if own.n_runs else Cell(measured.why_empty(spec))
        for spec, mean, own in zip(specs, marks, found, strict=True)
    ]
    return [data, *cells, measured.run_count(min(own.n_runs for own in found))]


def _printed(data: str, variant: Variant) -> float | None:
    return published()["replacement"].get(variant.title.lower(), {}).get(paper_data(data))


STUDY = Study("replacement", "The contrastive module against GNN and covariance", runs, tables)
