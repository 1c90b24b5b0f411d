"""The contrastive module against what it replaces: a network of labels, a covariance matrix."""

from __future__ import annotations

from cgmvae.studies.ablation import (
    MIXTURE_ONLY,
    Variant,
    difference_table,
    parts_data,
    variant_runs,
)
from cgmvae.studies.published import published
from cgmvae.studies.results import Results, Rows, spread_cell, spread_note
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    Study,
    is_available,
    paper_data,
    paper_row,
    why_missing,
)
from cgmvae.studies.tables import Cell, Table, marked, number

CONTRASTIVE = Variant("contrastive")
NO_MODULE = Variant("no module", MIXTURE_ONLY.settings)
COVARIANCE = Variant(
    "covariance", {"contrastive_weight": 0.0, "settings": {"correlation": "covariance"}}
)
GRAPH = Variant("GNN", {"contrastive_weight": 0.0, "settings": {"correlation": "graph"}})
VARIANTS = (NO_MODULE, COVARIANCE, GRAPH, CONTRASTIVE)

METRIC = "micro_f1"


def runs(scope: Scope) -> list[RunSpec]:
    """Return the mixture model with each module, and with none."""
    return variant_runs(scope, parts_data(scope), VARIANTS)


def tables(results: Results) -> list[Table]:
    """Return micro-F1 by data set and module under both protocols, and the differences."""
    return [
        *(_module_table(results, protocol) for protocol in ("validation", "test-oracle")),
        difference_table(
            results,
            parts_data(results.scope),
            [(CONTRASTIVE, other) for other in (COVARIANCE, GRAPH, NO_MODULE)],
            title="What the contrastive module adds",
            metrics=[METRIC],
        ),
    ]


def _module_table(results: Results, protocol: str) -> Table:
    """Return a row for each data set and, under the paper's protocol, one for the paper."""
    rows: Rows = []
    for data in parts_data(results.scope):
        if is_available(data):
            specs = [variant.spec(results.scope, data) for variant in VARIANTS]
            found = [results.spreads(spec, protocol=protocol)[METRIC] for spec in specs]
            marks = marked([own.mean for own in found])
            scores = [
                spread_cell(mean, own) if own.n_runs else Cell(results.why_empty(spec))
                for spec, mean, own in zip(specs, marks, found, strict=True)
            ]
            n_runs = min(own.n_runs for own in found)
            rows.append([data, *scores, results.run_count(specs[0], n_runs)])
        else:
            rows.append([data, why_missing(data)])
        cells = [published()["replacement"].get(each.title.lower(), {}) for each in VARIANTS]
        reported = [own.get(paper_data(data)) for own in cells]
        if protocol == "test-oracle" and any(reported):
            rows.append([paper_row(data), *map(number, reported)])
    columns = ["data", *(variant.title for variant in VARIANTS), "runs"]
    notes = [spread_note("data set")]
    return Table(f"micro-F1 by module, thresholds: {protocol}", columns, rows, notes)


STUDY = Study("replacement", "The contrastive module against GNN and covariance", runs, tables)
