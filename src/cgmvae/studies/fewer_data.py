"""How much is lost with 50% and 10% of the training rows; the neural methods against C2AE."""

from __future__ import annotations

import numpy as np

from cgmvae.evaluation import METRIC_TITLES
from cgmvae.studies.published import published
from cgmvae.studies.results import Results, Rows, data_rows
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    Study,
    StudyFigure,
    data_choice,
    is_available,
    method_title,
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

#: Data sets on which the paper compares shares of the rows, with stand-ins for eBird and mirflickr,
#: and others that we add.
DATA = ("bbs_2003_2009", "mirflickr_tags", "nus_vec", "yeast", "scene", "sider", "delicious")
_data = data_choice(DATA, quick=("yeast",))
METHODS = ("cgmvae", "mpvae", "lamp", "c2ae", "asl", "rbcc")
FRACTIONS = (0.1, 0.5, 1.0)

#: The method that the others are compared with.
BASE = "c2ae"

#: The metrics of the paper's plots and table, in the order of the table.
METRICS = ("hamming_accuracy", "example_f1", "micro_f1", "macro_f1")

#: C-GMVAE with half the rows against MPVAE with all of them.
HALF, WHOLE = ("cgmvae", 0.5), ("mpvae", 1.0)


def entry(scope: Scope, data: str, method: str, fraction: float) -> RunSpec:
    """Return a method trained on a fraction of the training rows, for any split and seed."""
    return RunSpec(data, method, train_fraction=fraction, settings=scope.settings(method))


def _title(method: str, fraction: float) -> str:
    """Return a method and its rows as the paper's table has them."""
    return f"{method_title(method)} ({fraction:.0%})"


def runs(scope: Scope) -> list[RunSpec]:
    """Return every neural method with every fraction of the training rows."""
    methods = scope.chosen_methods(METHODS)
    return scope.runs(
        [
            entry(scope, data, method, fraction)
            for data in _data(scope)
            for fraction in FRACTIONS
            for method in methods
        ]
    )


def tables(results: Results) -> list[Table]:
    """Return half the rows against all of them, then every method by fraction of the rows."""
    return [
        *(_half_table(results, protocol) for protocol in ("validation", "test-oracle")),
        _half_differences(results),
        *(_gain_table(results, metric) for metric in METRICS),
    ]


def _half_table(results: Results, protocol: str) -> Table:
    rows = data_rows(
        results,
        _data(results.scope),
        lambda data: {_title(*own): entry(results.scope, data, *own) for own in (WHOLE, HALF)},
        lambda data: published()["half"].get(data, {}),
        protocol=protocol,
        metrics=METRICS,
        cell=lambda mean, _: mean,
    )
    columns = ["data", "method (rows)", *(METRIC_TITLES[metric] for metric in METRICS), "runs"]
    title = f"C-GMVAE with half the rows, MPVAE with all, thresholds: {protocol}"
    return Table(title, columns, rows, ["The best and the second of each data set are marked."])


def _half_differences(results: Results) -> Table:
    """Return the differences, and on which data sets half the rows fall short."""
    found: dict[str, dict[str, Difference]] = {}
    for data in filter(is_available, _data(results.scope)):
        half, whole = (entry(results.scope, data, *own) for own in (HALF, WHOLE))
        differences = {metric: results.difference(half, whole, metric) for metric in METRICS}
        if differences[METRICS[0]].n_splits:
            found[data] = differences
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
    return Table(f"{_title(*HALF)} − {_title(*WHOLE)}", columns, rows, notes)


#: How C-GMVAE with half the rows compares, and the corresponding verdict on its being better.
_MATCHES = {"below": "not found", "indistinguishable": "within noise", "above": "found"}
_NOT_KNOWN = "not known yet, for lack of runs on two splits"


def _gain_table(results: Results, metric: str) -> Table:
    """Return one metric of every method by fraction of the rows, with the gain over C2AE."""
    rows: Rows = []
    for data in filter(is_available, _data(results.scope)):
        rows += _gain_rows(results, data, metric)
    columns = ["data", "method", *(f"{fraction:.0%} of the rows" for fraction in FRACTIONS)]
    notes = [
        "Mean, thresholds: validation, and in brackets the relative gain over "
        f"{method_title(BASE)} with the same rows; the best and the second of each data set are "
        "marked. The best of the others is chosen by its mean on the same test rows, which favors "
        "the others.",
        *filter(None, (_lead(results, metric, fraction) for fraction in FRACTIONS)),
    ]
    return Table(f"{METRIC_TITLES[metric]} with fewer rows", columns, rows, notes)


def _gain_rows(results: Results, data: str, metric: str) -> Rows:
    """Return a row for each method that was run, a dash for a fraction that was not."""
    methods = results.scope.chosen_methods(METHODS)
    by_fraction = []
    for fraction in FRACTIONS:
        specs = [entry(results.scope, data, method, fraction) for method in methods]
        means = marked([spread(results.metric(spec, metric)).mean for spec in specs])
        cells: list[Cell | str] = []
        for spec, mean in zip(specs, means, strict=True):
            gain = _gain(results, spec, metric).mean
            text = mean.text if np.isnan(gain) else f"{mean.text} ({gain:+.1f}%)"
            known = mean.text != number(None)
            cells.append(Cell(text, mean.mark) if known else results.error(spec) or number(None))
        by_fraction.append(cells)
    rows = zip(map(method_title, methods), *by_fraction, strict=True)
    return [[data, *row] for row in rows if set(row[1:]) != {number(None)}]


def _gain(results: Results, spec: RunSpec, metric: str) -> Spread:
    """Return the gain over the base in %, by split, over the seeds that both have.

    Splits on which the base scores 0 are left out.
    """
    base_spec = entry(results.scope, spec.data, BASE, spec.train_fraction)
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
    """Return a sentence on C-GMVAE against the best other method; nothing without their runs."""
    by_data: dict[str, Difference] = {}
    for data in filter(is_available, _data(results.scope)):
        methods = results.scope.chosen_methods(METHODS)
        specs = {method: entry(results.scope, data, method, fraction) for method in methods}
        own = specs.pop("cgmvae", None)
        best = results.best(list(specs.values()), metric) if specs else None
        if own is not None and best is not None:
            by_data[data] = results.difference(own, best, metric)
    if not any(found.n_splits for found in by_data.values()):
        return ""
    return finding(f"C-GMVAE above the best of the others at {fraction:.0%} of the rows", by_data)


def figures(results: Results) -> list[StudyFigure]:
    """Return for each data set and metric the gain over C2AE by fraction of the rows.

    Where C2AE was not run, it is the metric itself.
    """
    methods = [method for method in results.scope.chosen_methods(METHODS) if method != BASE]
    found = []
    for data in filter(is_available, _data(results.scope)):
        for metric in METRICS:
            specs = [
                [entry(results.scope, data, method, each) for each in FRACTIONS]
                for method in methods
            ]
            title = f"{METRIC_TITLES[metric]}, gain over {method_title(BASE)} in %"
            spreads = [[_gain(results, spec, metric) for spec in line] for line in specs]
            if np.isnan([[each.mean for each in line] for line in spreads]).all():
                title = METRIC_TITLES[metric]
                spreads = [
                    [spread(results.metric(spec, metric)) for spec in line] for line in specs
                ]
            means = np.array([[each.mean for each in line] for line in spreads])
            contents = {
                "fractions": FRACTIONS,
                "methods": [method_title(method) for method in methods],
                "values": means,
                "deviations": np.array([[each.over_splits for each in line] for line in spreads]),
                "metric": title,
                "data": data,
            }
            if not np.isnan(means).all():
                name = f"fewer_data_{data}_{metric}"
                found.append(StudyFigure(name, "fewer-data", contents))
    return found


STUDY = Study("fewer-data", runs, tables, figures, _data)
