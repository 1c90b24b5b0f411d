"""Stored runs as numbers, and the tables that several studies share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.evaluation import PAPER_METRICS, PROTOCOLS
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    StudyFigure,
    is_available,
    paper_data,
    paper_row,
    why_unsupported,
)
from cgmvae.studies.statistics import (
    TEST_SHARE,
    Difference,
    RankTest,
    Spread,
    paired_difference,
    rank_methods,
    spread,
)
from cgmvae.studies.store import Store
from cgmvae.studies.tables import Cell, Table, marked, number

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

    @property
    def test_share(self) -> float:
        """Test rows by training rows of splits that share rows; 0 for the publishers' splits."""
        return 0.0 if self.scope.official else TEST_SHARE

    def difference(
        self, first: RunSpec, second: RunSpec, metric: str, *, protocol: str = "validation"
    ) -> Difference:
        """Return how much higher the first scores in one metric."""
        pair = (self.metric(spec, metric, protocol=protocol) for spec in (first, second))
        return paired_difference(*pair, test_share=self.test_share)

    def best(self, specs: Sequence[RunSpec], metric: str) -> RunSpec | None:
        """Return the spec with the highest mean, or None without any run."""
        means = [spread(self.metric(spec, metric)).mean for spec in specs]
        return None if np.isnan(means).all() else specs[int(np.nanargmax(means))]

    def error(self, spec: RunSpec) -> str | None:
        """Return why the first of the runs that failed did."""
        errors = map(self.store.error, self.scope.runs([spec]))
        return next(filter(None, errors), None)

    def run_count(self, spec: RunSpec, done: int) -> str:
        """Return the number of runs, and of how many if some are missing."""
        total = len(self.scope.chosen_splits()) * len(self.scope.seeds_of(spec.method))
        return str(done) if done == total else f"{done} of {total}"


def spread_cell(mean: Cell, own: Spread) -> Cell:
    """Return a mean, already marked, with its deviations where there are any."""
    if np.isnan([own.over_seeds, own.over_splits]).all():
        return mean
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
) -> dict[str, list[Cell | str]]:
    """Return one row per run by title: title, marked scores, number of runs; or why there are none.

    What was not run has no row. ``cell`` makes a cell from a marked mean and its deviations.
    """
    found = {
        title: own
        for title, spec in specs.items()
        if (own := results.spreads(spec, protocol=protocol))[metrics[0]].n_runs
    }
    marks = {
        metric: dict(zip(found, marked([own[metric].mean for own in found.values()]), strict=True))
        for metric in metrics
    }
    rows: dict[str, list[Cell | str]] = {}
    for title, spec in specs.items():
        if title in found:
            own = found[title]
            cells = [cell(marks[metric][title], own[metric]) for metric in metrics]
            rows[title] = [title, *cells, results.run_count(spec, own[metrics[0]].n_runs)]
        elif why := results.error(spec) or (found and why_unsupported(spec.data, spec.method)):
            rows[title] = [title, why]
    return rows


def data_rows(
    results: Results,
    data: Iterable[str],
    specs: Callable[[str], Mapping[str, RunSpec]],
    reported: Callable[[str], Mapping[str, Sequence[float | None]]],
    *,
    protocol: str,
    metrics: Sequence[str],
    cell: Callable[[Cell, Spread], Cell] = spread_cell,
) -> Rows:
    """Return the rows of :func:`score_rows` on each data set, the paper's numbers below them.

    ``reported`` returns these by title, for the paper's name of a data set. They appear under the
    protocol that they were computed with.
    """
    rows: Rows = []
    for name in filter(is_available, data):
        own = score_rows(results, specs(name), protocol=protocol, metrics=metrics, cell=cell)
        rows += [[name, *row] for row in own.values()]
        if own and protocol == "test-oracle":
            for title, values in reported(paper_data(name)).items():
                rows.append([paper_row(name), title, *map(number, values)])
    return rows


def settings_table(
    results: Results,
    title: str,
    data: Iterable[str],
    specs: Callable[[str], Mapping[str, RunSpec]],
) -> Table:
    """Return what was chosen for each tuned run, from how many settings, in which time."""
    rows: Rows = []
    for name in filter(is_available, data):
        for own, spec in specs(name).items():
            if record := results.tuned(spec):
                best = ", ".join(f"{name} {value}" for name, value in record["best"].items())
                counted = [str(record["n_settings"]), number(record["value"])]
                seconds = number(record.get("seconds"), 1)
                rows.append([name, own, best or "as it is", *counted, seconds])
    columns = ["data", "run", "chosen", "of settings", "mean of five on validation rows", "s"]
    note = (
        "Every search draws as many settings; it tries fewer where its time ends before. The first "
        "are the method as it is."
    )
    return Table(title, columns, rows, [note])


#: Returns the runs to compare on a data set by title; the titles must be the same on all.
Specs = Callable[[Scope, str], Mapping[str, RunSpec]]


def _rank(
    results: Results, data: Sequence[str], specs: Specs, protocol: str
) -> tuple[list[str], RankTest]:
    """Rank what was run over data sets, by the mean over metrics and runs on each."""
    means = [
        {
            title: np.mean([own.mean for own in results.spreads(spec, protocol=protocol).values()])
            for title, spec in specs(results.scope, name).items()
        }
        for name in filter(is_available, data)
    ]
    titles = [
        title
        for title in (means[0] if means else ())
        if not np.isnan([own[title] for own in means]).all()
    ]
    scores = np.array([[own[title] for title in titles] for own in means], np.float64)
    return titles, rank_methods(scores.reshape(len(means), len(titles)))


def rank_table(results: Results, data: Sequence[str], specs: Specs) -> Table:
    """Return the mean ranks under each protocol, with the results of the tests."""
    titles, _ = _rank(results, data, specs, PROTOCOLS[0])
    tests = {protocol: _rank(results, data, specs, protocol)[1] for protocol in PROTOCOLS}
    rows = [
        [title, *(number(test.mean_ranks[i], 2) for test in tests.values())]
        for i, title in enumerate(titles)
        if tests[PROTOCOLS[0]].n_data
    ]
    notes = [
        "Methods are ranked on each data set on which all of them were run, by the mean of the "
        "five metrics over splits and seeds."
    ]
    for protocol, test in tests.items():
        if math.isnan(test.critical_difference):
            continue
        p_value = "–" if math.isnan(test.p_value) else f"{test.p_value:.2g}"
        notes.append(
            f"{protocol}: {test.n_data} data sets; Friedman p = {p_value}, Nemenyi's critical "
            f"difference (.05) {number(test.critical_difference, 2)}."
        )
    return Table("Mean ranks, 1 is best", ["method", *tests], rows, notes)


def rank_figures(
    results: Results, data: Sequence[str], specs: Specs, study: str, protocols: Sequence[str]
) -> list[StudyFigure]:
    """Return a plot of the mean ranks under each protocol, if two methods or more have them."""
    found = []
    for protocol in protocols:
        titles, test = _rank(results, data, specs, protocol)
        contents = {
            "names": titles,
            "mean_ranks": test.mean_ranks,
            "critical_difference": test.critical_difference,
        }
        if len(titles) > 1 and test.n_data:
            found.append(StudyFigure(f"{study}_{protocol}", "critical-difference", contents))
    return found
