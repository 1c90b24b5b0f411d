"""How much is lost with 50% and 10% of the training rows; the neural methods against C2AE."""

from __future__ import annotations

import numpy as np

from cgmvae.evaluation import METRIC_TITLES
from cgmvae.studies.ablation import (
    PARTS_DATA,
    Variant,
    differences_by_data,
    variant_rows,
    variant_runs,
)
from cgmvae.studies.published import published
from cgmvae.studies.results import Results, Rows
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    Study,
    StudyFigure,
    data_choice,
    is_available,
    method_title,
    why_missing,
)
from cgmvae.studies.statistics import (
    DIFFERENCE_NOTE,
    Difference,
    Spread,
    difference_text,
    finding,
    listed,
    spread,
)
from cgmvae.studies.tables import Cell, Table, marked, number

_data = data_choice(PARTS_DATA, quick=("yeast",))
METHODS = ("cgmvae", "mpvae", "lamp", "c2ae", "asl", "rbcc")
FRACTIONS = (0.1, 0.5, 1.0)

#: The method that the others are compared with.
BASE = "c2ae"

#: The metrics of the paper's plots and table, in the order of the table.
METRICS = ("hamming_accuracy", "example_f1", "micro_f1", "macro_f1")


def entry(method: str, fraction: float) -> Variant:
    """Return a method trained on a fraction of the training rows, titled as in the paper."""
    title = f"{method_title(method)} ({fraction:.0%})"
    return Variant(title, method=method, train_fraction=fraction)


#: C-GMVAE with half the rows against MPVAE with all of them.
HALF, WHOLE = entry("cgmvae", 0.5), entry("mpvae", 1.0)


def runs(scope: Scope) -> list[RunSpec]:
    """Return every neural method with every fraction of the training rows."""
    methods = scope.chosen_methods(METHODS)
    entries = [entry(method, fraction) for fraction in FRACTIONS for method in methods]
    return variant_runs(scope, _data(scope), entries)


def tables(results: Results) -> list[Table]:
    """Return half the rows against all of them, then every method by fraction of the rows."""
    return [
        *(_half_table(results, protocol) for protocol in ("validation", "test-oracle")),
        _half_differences(results),
        *(_gain_table(results, metric) for metric in METRICS),
    ]


def _half_table(results: Results, protocol: str) -> Table:
    rows = variant_rows(
        results,
        _data(results.scope),
        (WHOLE, HALF),
        protocol=protocol,
        reported=published()["half"],
        metrics=METRICS,
        cell=lambda mean, _: mean,
    )
    columns = ["data", "method (rows)", *(METRIC_TITLES[metric] for metric in METRICS), "runs"]
    title = f"C-GMVAE with half the rows, MPVAE with all, thresholds: {protocol}"
    return Table(title, columns, rows, ["The best and the second of each data set are marked."])


def _half_differences(results: Results) -> Table:
    """Return the differences, and on which data sets half the rows fall short."""
    found = differences_by_data(results, _data(results.scope), HALF, WHOLE)
    rows = [
        [data, *(difference_text(own[metric]) for metric in METRICS)] for data, own in found.items()
    ]
    notes = [DIFFERENCE_NOTE]
    for metric in METRICS:
        claim = f"“Half the rows match MPVAE with all of them”, {METRIC_TITLES[metric]}"
        verdicts = {data: own[metric].verdict for data, own in found.items()}
        known = {data: verdict for data, verdict in verdicts.items() if verdict != "not known"}
        parts = []
        for words, verdict in _MATCHES.items():
            names = [data for data, own in known.items() if own == verdict]
            parts.append(f"{words} on {len(names)}{listed(names)}")
        said = f"{', '.join(parts)} of {len(known)} data sets"
        notes.append(f"{claim}: {said if known else _NOT_KNOWN}.")
    columns = ["data", *(METRIC_TITLES[metric] for metric in METRICS)]
    return Table(f"{HALF.title} − {WHOLE.title}", columns, rows, notes)


#: How C-GMVAE with half the rows compares, and the corresponding verdict on its being better.
_MATCHES = {"below": "not found", "indistinguishable": "within noise", "above": "found"}
_NOT_KNOWN = "not known yet, for lack of runs on two splits"


def _gain_table(results: Results, metric: str) -> Table:
    """Return one metric of every method by fraction of the rows, with the gain over C2AE."""
    rows: Rows = []
    for data in _data(results.scope):
        available = is_available(data)
        rows += _gain_rows(results, data, metric) if available else [[data, why_missing(data)]]
    columns = ["data", "method", *(f"{fraction:.0%} of the rows" for fraction in FRACTIONS)]
    notes = [
        "Mean, thresholds: validation, and in brackets the relative gain over "
        f"{method_title(BASE)} with the same rows; the best and the second of each data set are "
        "marked. The best of the others is chosen by its mean on the same test rows, which favors "
        "the others.",
        *(_lead(results, metric, fraction) for fraction in FRACTIONS),
    ]
    return Table(f"{METRIC_TITLES[metric]} with fewer rows", columns, rows, notes)


def _gain_rows(results: Results, data: str, metric: str) -> list[list[Cell | str]]:
    methods = results.scope.chosen_methods(METHODS)
    columns = []
    for fraction in FRACTIONS:
        specs = [entry(method, fraction).spec(results.scope, data) for method in methods]
        means = marked([spread(results.metric(spec, metric)).mean for spec in specs])
        cells = []
        for spec, mean in zip(specs, means, strict=True):
            gain = _gain(results, spec, metric).mean
            text = f"{mean.text} ({'–' if np.isnan(gain) else f'{gain:+.1f}%'})"
            is_known = mean.text != number(None)
            cells.append(Cell(text, mean.mark) if is_known else Cell(results.why_empty(spec)))
        columns.append(cells)
    titles = map(method_title, methods)
    return [[data, title, *cells] for title, *cells in zip(titles, *columns, strict=True)]


def _gain(results: Results, spec: RunSpec, metric: str) -> Spread:
    """Return the gain over the base in %, by split, over the seeds that both have.

    Splits on which the base scores 0 are left out.
    """
    base_spec = entry(BASE, spec.train_fraction).spec(results.scope, spec.data)
    pair = (results.metric(each, metric) for each in (spec, base_spec))
    own, base = np.broadcast_arrays(*pair)
    both = ~np.isnan(own + base)
    by_split = [
        100 * (own[i, seeds].mean() / base[i, seeds].mean() - 1)
        for i, seeds in enumerate(both)
        if base[i, seeds].any()
    ]
    return spread(np.array(by_split, np.float64)[:, None])


def _lead(results: Results, metric: str, fraction: float) -> str:
    """Return a sentence on C-GMVAE against the other method with the highest mean."""
    by_data: dict[str, Difference] = {}
    for data in filter(is_available, _data(results.scope)):
        methods = results.scope.chosen_methods(METHODS)
        specs = {method: entry(method, fraction).spec(results.scope, data) for method in methods}
        own = specs.pop("cgmvae", None)
        best = results.best(list(specs.values()), metric)
        if own is not None and best is not None:
            by_data[data] = results.difference(own, best, metric)
    return finding(f"C-GMVAE above the best of the others at {fraction:.0%} of the rows", by_data)


def figures(results: Results) -> list[StudyFigure]:
    """Return for each data set and metric the gain over C2AE by fraction of the rows."""
    methods = [method for method in results.scope.chosen_methods(METHODS) if method != BASE]
    found = []
    for data in filter(is_available, _data(results.scope)):
        for metric in METRICS:
            spreads = [
                [
                    _gain(results, entry(method, each).spec(results.scope, data), metric)
                    for each in FRACTIONS
                ]
                for method in methods
            ]
            means = np.array([[each.mean for each in line] for line in spreads])
            contents = {
                "fractions": FRACTIONS,
                "methods": [method_title(method) for method in methods],
                "values": means,
                "deviations": np.array([[each.over_splits for each in line] for line in spreads]),
                "metric": f"{METRIC_TITLES[metric]}, gain over {method_title(BASE)} in %",
                "data": data,
            }
            if not np.isnan(means).all():
                name = f"fewer_data_{data}_{metric}"
                found.append(StudyFigure(name, "fewer-data", contents))
    return found


STUDY = Study(
    "fewer-data", "10%, 50% and 100% of the training rows, neural methods", runs, tables, figures
)
