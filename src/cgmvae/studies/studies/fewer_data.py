"""How much is lost with 50% and 10% of the training rows; the neural methods against C2AE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.evaluation import METRIC_TITLES
from cgmvae.studies.measured import Measured
from cgmvae.studies.published import published
from cgmvae.studies.results import Difference, Results, Spread, paired_difference, spread
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.study import (
    Scope,
    Study,
    StudyFigure,
    is_here,
    method_title,
    paper_data,
    paper_row,
    why_missing,
)
from cgmvae.studies.tables import Cell, Table, marked, number
from cgmvae.studies.variants import PARTS_DATA
from cgmvae.studies.verdicts import DIFFERENCE_READING, difference_text, finding, listed

QUICK_DATA = ("yeast",)
METHODS = ("cgmvae", "mpvae", "lamp", "c2ae", "asl", "rbcc")
FRACTIONS = (0.1, 0.5, 1.0)

#: The method that the others are measured by.
BASE = "c2ae"

#: The metrics of the paper's plots and of its table, in the order of the table.
METRICS = ("hamming_accuracy", "example_f1", "micro_f1", "macro_f1")


class Share(NamedTuple):
    """A method with a share of the training rows."""

    method: str
    fraction: float

    @property
    def title(self) -> str:
        """As the paper's table has it."""
        return f"{method_title(self.method)} ({self.fraction:.0%})"

    def spec(self, scope: Scope, data: str) -> RunSpec:
        """Return the run, for any split and seed."""
        settings = scope.settings(self.method)
        return RunSpec(data, self.method, train_fraction=self.fraction, settings=settings)


#: C-GMVAE with half the rows against MPVAE with all of them.
HALF, WHOLE = Share("cgmvae", 0.5), Share("mpvae", 1.0)


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data(PARTS_DATA, QUICK_DATA)


def runs(scope: Scope) -> list[RunSpec]:
    """Return every neural method with every share of the training rows."""
    return scope.runs(
        [
            Share(method, fraction).spec(scope, data)
            for data in _data(scope)
            for fraction in FRACTIONS
            for method in scope.chosen_methods(METHODS)
        ]
    )


def tables(scope: Scope, results: Results) -> list[Table]:
    """Return half the rows against all of them, then every method by share of the rows."""
    measured = Measured(scope, results)
    return [
        *(_half_table(measured, protocol) for protocol in ("validation", "test-oracle")),
        _half_differences(measured),
        *(_gain_table(measured, metric) for metric in METRICS),
    ]


def _half_table(measured: Measured, protocol: str) -> Table:
    rows: list[Sequence[Cell | str]] = []
    for data in _data(measured.scope):
        rows += _half_rows(measured, data, protocol)
        if protocol == "test-oracle":
            printed = published()["half"].get(paper_data(data), {})
            rows += [
                [paper_row(data), title, *map(number, values)] for title, values in printed.items()
            ]
    columns = ["data", "method (rows)", *(METRIC_TITLES[metric] for metric in METRICS), "runs"]
    title = f"C-GMVAE with half the rows, MPVAE with all, thresholds: {protocol}"
    return Table(title, columns, rows, ["The best and the second of each data set are marked."])


def _half_rows(measured: Measured, data: str, protocol: str) -> list[list[Cell | str]]:
    if not is_here(data):
        return [[data, why_missing(data)]]
    specs = [share.spec(measured.scope, data) for share in (WHOLE, HALF)]
    found = [measured.spreads(spec, protocol=protocol) for spec in specs]
    marks = [marked([own[metric].mean for own in found]) for metric in METRICS]
    rows: list[list[Cell | str]] = []
    for place, share in enumerate((WHOLE, HALF)):
        n_runs = found[place][METRICS[0]].n_runs
        cells = [column[place] for column in marks]
        if n_runs == 0:
            rows.append([data, share.title, measured.why_empty(specs[place])])
        else:
            rows.append([data, share.title, *cells, measured.run_count(n_runs)])
    return rows


def _half_differences(measured: Measured) -> Table:
    """Return what separates the two, and whether half the rows are enough."""
    found = {
        data: measured.differences(*(each.spec(measured.scope, data) for each in (HALF, WHOLE)))
        for data in _data(measured.scope)
        if is_here(data)
    }
    rows = [
        [data, *(difference_text(own[metric]) for metric in METRICS)] for data, own in found.items()
    ]
    notes = [DIFFERENCE_READING]
    notes += [
        _match({data: own[metric] for data, own in found.items()}, METRIC_TITLES[metric])
        for metric in METRICS
    ]
    columns = ["data", *(METRIC_TITLES[metric] for metric in METRICS)]
    return Table(f"{HALF.title} − {WHOLE.title}", columns, rows, notes)


def _match(by_data: Mapping[str, Difference], metric: str) -> str:
    """Say on which data sets half the rows fall short, as far as the splits can tell."""
    claim = f"“Half the rows match MPVAE with all of them”, {metric}"
    known = {data: each for data, each in by_data.items() if each.verdict != "not known"}
    if not known:
        return f"{claim}: not known yet, for want of runs on two splits."
    parts = []
    for words, verdict in _MATCHES.items():
        names = [data for data, each in known.items() if each.verdict == verdict]
        parts.append(f"{words} on {len(names)}{listed(names)}")
    return f"{claim}: {', '.join(parts)} of {len(known)} data sets."


#: How C-GMVAE with half the rows compares, by the verdict on its being above.
_MATCHES = {"below": "not found", "not told apart": "within noise", "above": "found"}


def _gain_table(measured: Measured, metric: str) -> Table:
    """Return one metric of every method by share of the rows, with the gain over C2AE."""
    rows: list[Sequence[Cell | str]] = []
    for data in _data(measured.scope):
        here = is_here(data)
        rows += _gain_rows(measured, data, metric) if here else [[data, why_missing(data)]]
    columns = ["data", "method", *(f"{fraction:.0%} of the rows" for fraction in FRACTIONS)]
    notes = [
        "Mean, thresholds: validation, and in brackets the relative gain over "
        f"{method_title(BASE)} with the same rows; the best and the second of each data set are "
        "marked. The best of the others is chosen by its mean on the same test rows, which favours "
        "the others.",
        *(_lead(measured, metric, fraction) for fraction in FRACTIONS),
    ]
    return Table(f"{METRIC_TITLES[metric]} with fewer rows", columns, rows, notes)


def _gain_rows(measured: Measured, data: str, metric: str) -> list[list[Cell | str]]:
    methods = measured.scope.chosen_methods(METHODS)
    columns = []
    for fraction in FRACTIONS:
        specs = [Share(method, fraction).spec(measured.scope, data) for method in methods]
        means = marked([spread(measured.metric(spec, metric)).mean for spec in specs])
        gains = [_gain(measured, data, metric, Share(method, fraction)) for method in methods]
        columns.append(
            [
                Cell(f"{mean.text} ({_percent(gain.mean)})", mean.mark)
                if mean.text != number(None)
                else Cell(measured.why_empty(spec))
                for spec, mean, gain in zip(specs, means, gains, strict=True)
            ]
        )
    return [
        [data, method_title(method), *cells]
        for method, *cells in zip(methods, *columns, strict=True)
    ]


def _gain(measured: Measured, data: str, metric: str, share: Share) -> Spread:
    """Return the gain over the base in %, split by split, over the seeds that both have.

    A split on which the base scores 0 is left out.
    """
    own, base = (
        measured.metric(each.spec(measured.scope, data), metric)
        for each in (share, share._replace(method=BASE))
    )
    both = ~np.isnan(own + base)
    by_split = [
        100 * (own[i, seeds].mean() / base[i, seeds].mean() - 1)
        for i, seeds in enumerate(both)
        if base[i, seeds].any()
    ]
    return spread(np.array(by_split, np.float64)[:, None])


def _percent(gain: float) -> str:
    return number(gain) if np.isnan(gain) else f"{gain:+.1f}%"


def _lead(measured: Measured, metric: str, fraction: float) -> str:
    """Say where C-GMVAE is above the best of the others, which is picked by its mean."""
    by_data: dict[str, Difference] = {}
    for data in filter(is_here, _data(measured.scope)):
        values = {
            method: measured.metric(Share(method, fraction).spec(measured.scope, data), metric)
            for method in measured.scope.chosen_methods(METHODS)
        }
        own = values.pop("cgmvae", None)
        known = [each for each in values.values() if spread(each).n_runs]
        if own is not None and known:
            best = max(known, key=lambda each: spread(each).mean)
            by_data[data] = paired_difference(own, best)
    return finding(f"C-GMVAE above the best of the others at {fraction:.0%} of the rows", by_data)


def figures(scope: Scope, results: Results) -> list[StudyFigure]:
    """Return for each data set and metric the gain over C2AE by share of the rows."""
    measured = Measured(scope, results)
    methods = [method for method in scope.chosen_methods(METHODS) if method != BASE]
    found = []
    for data in filter(is_here, _data(scope)):
        for metric in METRICS:
            gains = _gains(measured, data, metric, methods)
            if not np.isnan(gains).all():
                found.append(_figure(data, metric, methods, gains))
    return found


def _gains(
    measured: Measured, data: str, metric: str, methods: Sequence[str]
) -> NDArray[np.float64]:
    """Return mean gain and its deviation over splits, (n_methods, n_fractions, 2), in %."""
    shares = [[Share(method, fraction) for fraction in FRACTIONS] for method in methods]
    spreads = [[_gain(measured, data, metric, share) for share in line] for line in shares]
    return np.array([[(each.mean, each.over_splits) for each in line] for line in spreads])


def _figure(
    data: str, metric: str, methods: Sequence[str], gains: NDArray[np.float64]
) -> StudyFigure:
    contents = {
        "fractions": FRACTIONS,
        "methods": [method_title(method) for method in methods],
        "values": gains[..., 0],
        "deviations": gains[..., 1],
        "metric": f"{METRIC_TITLES[metric]}, gain over {method_title(BASE)} in %",
        "data": data,
    }
    return StudyFigure(f"fewer_data_{data}_{metric}", "fewer-data", contents)


STUDY = Study(
    "fewer-data", "10%, 50% and 100% of the training rows, neural methods", runs, tables, figures
)
