"""Stored runs as numbers, and the tables that several studies share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.evaluation import PAPER_METRICS, PROTOCOLS
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    StudyFigure,
    is_available,
    method_title,
    why_unsupported,
)
from cgmvae.studies.statistics import (
    Difference,
    RankTest,
    Spread,
    paired_difference,
    rank_methods,
    spread,
)
from cgmvae.studies.store import Store
from cgmvae.studies.tables import Cell, Table, marked, number

#: What a table says about runs that do not exist.
NOT_RUN = "not run"

#: Rows of a table; short ones are padded.
Rows = list[Sequence[Cell | str]]


@dataclass(frozen=True)
class Results:
    """Scores of stored runs over all splits and seeds of a scope; NaN for missing runs.

    A spec stands for its runs with every split and seed. The array of a method that does not depend
    on its seed has a single column.
    """

    scope: Scope
    store: Store
    _reports: dict[RunSpec, list[list[dict[str, Any] | None]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def reports(self, spec: RunSpec) -> list[list[dict[str, Any] | None]]:
        """Return the reports of a run by split and seed; each file is read once."""
        if spec not in self._reports:
            self._reports[spec] = [
                [
                    self.store.report(
                        replace(spec, split=split, seed=seed, official=self.scope.official)
                    )
                    for seed in self.scope.seeds_of(spec.method)
                ]
                for split in self.scope.chosen_splits()
            ]
        return self._reports[spec]

    def _values(self, spec: RunSpec, *path: str) -> NDArray[np.float64]:
        """Return one number of every report, (n_splits, n_seeds)."""

        def find(report: Any) -> float:
            for name in path:
                report = (report or {}).get(name)
            return np.nan if report is None else report

        return np.array(
            [[find(report) for report in line] for line in self.reports(spec)], np.float64
        )

    def metric(
        self, spec: RunSpec, name: str, *, protocol: str = "validation"
    ) -> NDArray[np.float64]:
        """Return one of the five metrics, (n_splits, n_seeds)."""
        return self._values(spec, "metrics", protocol, name)

    def diagnostic(self, spec: RunSpec, name: str) -> NDArray[np.float64]:
        """Return one of C-GMVAE's diagnostics, (n_splits, n_seeds)."""
        return self._values(spec, "diagnostics", name)

    def tuned(self, spec: RunSpec) -> dict[str, Any] | None:
        """Return the record of the search of a tuned run, or None if there is none yet."""
        found = (report for line in self.reports(spec) for report in line if report is not None)
        return next((report.get("tuned") for report in found), None)

    def spreads(self, spec: RunSpec, *, protocol: str = "validation") -> dict[str, Spread]:
        """Return mean and deviations by metric."""
        return {name: spread(self.metric(spec, name, protocol=protocol)) for name in PAPER_METRICS}

    def differences(self, first: RunSpec, second: RunSpec) -> dict[str, Difference]:
        """Return by metric how much higher the first scores, thresholds: validation."""
        return {name: self.difference(first, second, name) for name in PAPER_METRICS}

    def difference(self, first: RunSpec, second: RunSpec, metric: str) -> Difference:
        """Return the difference in one metric."""
        return paired_difference(self.metric(first, metric), self.metric(second, metric))

    def best(self, specs: Sequence[RunSpec], metric: str) -> RunSpec | None:
        """Return the spec with the highest mean, or None without any run."""
        means = [spread(self.metric(spec, metric)).mean for spec in specs]
        return None if np.isnan(means).all() else specs[int(np.nanargmax(means))]

    def gains(
        self, pairs: Iterable[tuple[RunSpec, RunSpec]], metric: str, *, protocol: str
    ) -> NDArray[np.float64]:
        """Return how much higher the first of each pair scores on average, in % of the second.

        Only splits with runs of both count. Pairs that have none in common, and those whose second
        scores 0, are left out.
        """
        gains = []
        for pair in pairs:
            scores = [self.metric(spec, metric, protocol=protocol) for spec in pair]
            in_common = ~np.any([np.isnan(own).all(axis=1) for own in scores], axis=0)
            first, second = (spread(own[in_common]).mean for own in scores)
            if second > 0:  # and not NaN
                gains.append(100 * (first / second - 1))
        return np.array(gains, np.float64)

    def why_empty(self, *specs: RunSpec) -> str:
        """Return why there are no runs: the first error, or that none were made."""
        reasons = (why_unsupported(spec.data, spec.method) for spec in specs)
        errors = (self.store.error(run) for run in self.scope.runs(specs))
        return next((why for why in chain(reasons, errors) if why is not None), NOT_RUN)

    def run_count(self, spec: RunSpec, done: int) -> str:
        """Return the number of runs, and of how many if some are missing."""
        total = len(self.scope.chosen_splits()) * len(self.scope.seeds_of(spec.method))
        return str(done) if done == total else f"{done} of {total}"


def spread_cell(mean: Cell, own: Spread) -> Cell:
    """Return a mean, already marked, with its deviations."""
    return Cell(f"{mean.text} ± {number(own.over_seeds)} ± {number(own.over_splits)}", mean.mark)


#: Said below the scores: the paper's protocol, and not what ``fit`` does by default.
DROPPED_ROWS = "Rows without a positive label are left out, as in the paper."


def spread_note(marked_within: str) -> str:
    """Explain a table of :func:`spread_cell`, and what the best are marked within."""
    return (
        "Mean ± deviation over seeds ± deviation over splits; the best and the second of each "
        f"{marked_within} are marked. {DROPPED_ROWS}"
    )


def score_rows(
    results: Results,
    specs: Mapping[str, RunSpec],
    *,
    protocol: str,
    metrics: Sequence[str] = PAPER_METRICS,
    cell: Callable[[Cell, Spread], Cell] = spread_cell,
) -> list[list[Cell | str]]:
    """Return one row per run: title, marked scores, number of runs; or why there are none.

    ``cell`` makes a cell from a marked mean and its deviations.
    """
    found = [results.spreads(spec, protocol=protocol) for spec in specs.values()]
    marks = {metric: marked([own[metric].mean for own in found]) for metric in metrics}
    rows: list[list[Cell | str]] = []
    for i, (title, spec) in enumerate(specs.items()):
        n_runs = found[i][metrics[0]].n_runs
        if n_runs == 0:
            rows.append([title, results.why_empty(spec)])
            continue
        cells = [cell(marks[metric][i], found[i][metric]) for metric in metrics]
        rows.append([title, *cells, results.run_count(spec, n_runs)])
    return rows


#: Returns the runs to rank on a data set, by method; the methods must be the same on all.
Specs = Callable[[Scope, str], Mapping[str, RunSpec]]


def _rank(results: Results, data: Sequence[str], specs: Specs, protocol: str) -> RankTest:
    """Rank methods by their mean scores, over pairs of available data set and metric."""
    n_methods = len(specs(results.scope, data[0]))
    means = [
        [[own.mean for own in results.spreads(spec, protocol=protocol).values()] for spec in line]
        for line in (specs(results.scope, name).values() for name in filter(is_available, data))
    ]
    scores = np.reshape(means, (-1, n_methods, len(PAPER_METRICS))).swapaxes(1, 2)
    return rank_methods(scores.reshape(-1, n_methods))


def rank_table(results: Results, data: Sequence[str], specs: Specs) -> Table:
    """Return the mean ranks of methods under each protocol, with the results of the tests."""
    tests = {protocol: _rank(results, data, specs, protocol) for protocol in PROTOCOLS}
    rows = [
        [method_title(method), *(number(test.mean_ranks[i], 2) for test in tests.values())]
        for i, method in enumerate(specs(results.scope, data[0]))
    ]
    notes = []
    for protocol, test in tests.items():
        p_value = "–" if math.isnan(test.p_value) else f"{test.p_value:.2g}"
        notes.append(
            f"{protocol}: over {test.n_problems} pairs of data set and metric on which every "
            f"method has a score; Friedman p = {p_value}, Nemenyi's critical difference (.05) "
            f"{number(test.critical_difference, 2)}. Metrics of one data set are not independent, "
            "so the test is overconfident."
        )
    return Table("Mean ranks, 1 is best", ["method", *tests], rows, notes)


def rank_figures(
    results: Results, data: Sequence[str], specs: Specs, study: str, protocols: Sequence[str]
) -> list[StudyFigure]:
    """Return the critical-difference plot of each protocol that has one."""
    found = []
    for protocol in protocols:
        test = _rank(results, data, specs, protocol)
        contents = {
            "names": [method_title(method) for method in specs(results.scope, data[0])],
            "mean_ranks": test.mean_ranks,
            "critical_difference": test.critical_difference,
        }
        if not math.isnan(test.critical_difference):
            found.append(StudyFigure(f"{study}_{protocol}", "critical-difference", contents))
    return found
