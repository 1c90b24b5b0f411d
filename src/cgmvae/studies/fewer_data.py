"""How much is lost with 50% and 10% of the training rows; the neural methods against C2AE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cgmvae.evaluation import METRIC_TITLES
from cgmvae.studies.ablation import PARTS_DATA
from cgmvae.studies.published import published
from cgmvae.studies.results import Results, Rows, mean_cell, score_rows
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    Study,
    StudyFigure,
    is_available,
    method_title,
    paper_data,
    paper_row,
    why_missing,
)
from cgmvae.studies.statistics import (
    DIFFERENCE_NOTE,
    Difference,
    Spread,
    difference_text,
    finding,
    listed,
    paired_difference,
    spread,
)
from cgmvae.studies.tables import Cell, Table, marked, number

QUICK_DATA = ("yeast",)
METHODS = ("cgmvae", "mpvae", "lamp", "c2ae", "asl", "rbcc")
FRACTIONS = (0.1, 0.5, 1.0)

#: The method that the others are compared with.
BASE = "c2ae"

#: The metrics of the paper's plots and table, in the order of the table.
METRICS = ("hamming_accuracy", "example_f1", "micro_f1", "macro_f1")


class Entry(NamedTuple):
    """A method trained on a fraction of the training rows."""

    method: str
    fraction: float

    @property
    def title(self) -> str:
        """As in the paper's table."""
        return f"{method_title(self.method)} ({self.fraction:.0%})"

    def spec(self, scope: Scope, data: str) -> RunSpec:
        """Return the run, for any split and seed."""
        settings = scope.settings(self.method)
        return RunSpec(data, self.method, train_fraction=self.fraction, settings=settings)


#: C-GMVAE with half the rows against MPVAE with all of them.
HALF, WHOLE = Entry("cgmvae", 0.5), Entry("mpvae", 1.0)


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data(PARTS_DATA, QUICK_DATA)


def runs(scope: Scope) -> list[RunSpec]:
    """Return every neural method with every fraction of the training rows."""
    return scope.runs(
        [
            Entry(method, fraction).spec(scope, data)
            for data in _data(scope)
            for fraction in FRACTIONS
            for method in scope.chosen_methods(METHODS)
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
    rows: Rows = []
    for data in _data(results.scope):
        if is_available(data):
            specs = {entry.title: entry.spec(results.scope, data) for entry in (WHOLE, HALF)}
            scores = score_rows(results, specs, protocol=protocol, metrics=METRICS, cell=mean_cell)
            rows += [[data, *row] for row in scores]
        else:
            rows.append([data, why_missing(data)])
        if protocol == "test-oracle":
            reported = published()["half"].get(paper_data(data), {})
            rows += [[paper_row(data), title, *map(number, own)] for title, own in reported.items()]
    columns = ["data", "method (rows)", *(METRIC_TITLES[metric] for metric in METRICS), "runs"]
    title = f"C-GMVAE with half the rows, MPVAE with all, thresholds: {protocol}"
    return Table(title, columns, rows, ["The best and the second of each data set are marked."])


def _half_differences(results: Results) -> Table:
    """Return the differences, and whether half the rows are enough."""
    found = {
        data: results.differences(*(entry.spec(results.scope, data) for entry in (HALF, WHOLE)))
        for data in _data(results.scope)
        if is_available(data)
    }
    rows = [
        [data, *(difference_text(own[metric]) for metric in METRICS)] for data, own in found.items()
    ]
    notes = [DIFFERENCE_NOTE]
    notes += [
        _match({data: own[metric] for data, own in found.items()}, METRIC_TITLES[metric])
        for metric in METRICS
    ]
    columns = ["data", *(METRIC_TITLES[metric] for metric in METRICS)]
    return Table(f"{HALF.title} − {WHOLE.title}", columns, rows, notes)


def _match(by_data: Mapping[str, Difference], metric: str) -> str:
    """Return a sentence that says on which data sets half the rows fall short."""
    claim = f"“Half the rows match MPVAE with all of them”, {metric}"
    known = {data: each for data, each in by_data.items() if each.verdict != "not known"}
    if not known:
        return f"{claim}: not known yet, for lack of runs on two splits."
    parts = []
    for words, verdict in _MATCHES.items():
        names = [data for data, each in known.items() if each.verdict == verdict]
        parts.append(f"{words} on {len(names)}{listed(names)}")
    return f"{claim}: {', '.join(parts)} of {len(known)} data sets."


#: How C-GMVAE with half the rows compares, and the corresponding verdict on its being better.
_MATCHES = {"below": "not found", "indistinguishable": "within noise", "above": "found"}


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
        entries = [Entry(method, fraction) for method in methods]
        specs = [entry.spec(results.scope, data) for entry in entries]
        means = marked([spread(results.metric(spec, metric)).mean for spec in specs])
        gains = [_gain(results, data, metric, entry).mean for entry in entries]
        columns.append(
            [
                Cell(f"{mean.text} ({'–' if np.isnan(gain) else f'{gain:+.1f}%'})", mean.mark)
                if mean.text != number(None)
                else Cell(results.why_empty(spec))
                for spec, mean, gain in zip(specs, means, gains, strict=True)
            ]
        )
    return [
        [data, method_title(method), *cells]
        for method, *cells in zip(methods, *columns, strict=True)
    ]


def _gain(results: Results, data: str, metric: str, entry: Entry) -> Spread:
    """Return the gain over the base in %, by split, over the seeds that both have.

    Splits on which the base scores 0 are left out.
    """
    own, base = np.broadcast_arrays(
        *(
            results.metric(each.spec(results.scope, data), metric)
            for each in (entry, entry._replace(method=BASE))
        )
    )
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
        values = {
            method: results.metric(Entry(method, fraction).spec(results.scope, data), metric)
            for method in results.scope.chosen_methods(METHODS)
        }
        own = values.pop("cgmvae", None)
        known = [each for each in values.values() if spread(each).n_runs]
        if own is not None and known:
            best = max(known, key=lambda each: spread(each).mean)
            by_data[data] = paired_difference(own, best)
    return finding(f"C-GMVAE above the best of the others at {fraction:.0%} of the rows", by_data)


def figures(results: Results) -> list[StudyFigure]:
    """Return for each data set and metric the gain over C2AE by fraction of the rows."""
    methods = [method for method in results.scope.chosen_methods(METHODS) if method != BASE]
    found = []
    for data in filter(is_available, _data(results.scope)):
        for metric in METRICS:
            spreads = [
                [_gain(results, data, metric, Entry(method, each)) for each in FRACTIONS]
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
