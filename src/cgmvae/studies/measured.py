"""The runs of one scope as numbers: what the studies' tables are computed from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.evaluation import PAPER_METRICS
from cgmvae.studies.results import Difference, Results, Spread, paired_difference, spread
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.study import Scope, refusal

#: What a table says of runs that nobody made.
NOT_RUN = "not run"


@dataclass(frozen=True)
class Measured:
    """Scores of runs over all splits and seeds of a scope, as far as they are stored.

    A spec stands here for its runs with every split and seed; missing runs are NaN.
    """

    scope: Scope
    results: Results
    _reports: dict[RunSpec, list[list[dict[str, Any] | None]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def _grid(self, spec: RunSpec) -> list[list[dict[str, Any] | None]]:
        """Return the reports by split and seed, each file being read once."""
        if spec not in self._reports:
            self._reports[spec] = self.results.grid(
                spec, self.scope.chosen_splits(), self.scope.chosen_seeds()
            )
        return self._reports[spec]

    def _values(self, spec: RunSpec, *path: str) -> NDArray[np.float64]:
        """Return one number of every report, (n_splits, n_seeds); NaN where it is missing."""

        def find(report: Any) -> float:
            for name in path:
                report = (report or {}).get(name)
            return np.nan if report is None else report

        return np.array([[find(report) for report in line] for line in self._grid(spec)])

    def metric(
        self, spec: RunSpec, name: str, *, protocol: str = "validation"
    ) -> NDArray[np.float64]:
        """Return one of the five metrics, (n_splits, n_seeds)."""
        return self._values(spec, "metrics", protocol, name)

    def diagnostic(self, spec: RunSpec, name: str) -> NDArray[np.float64]:
        """Return one of C-GMVAE's diagnostics, (n_splits, n_seeds)."""
        return self._values(spec, "diagnostics", name)

    def spreads(self, spec: RunSpec, *, protocol: str = "validation") -> dict[str, Spread]:
        """Return mean and deviations by metric."""
        return {name: spread(self.metric(spec, name, protocol=protocol)) for name in PAPER_METRICS}

    def differences(self, first: RunSpec, second: RunSpec) -> dict[str, Difference]:
        """Return by metric how much higher the first scores, thresholds: validation."""
        return {
            name: paired_difference(self.metric(first, name), self.metric(second, name))
            for name in PAPER_METRICS
        }

    def gains(
        self, pairs: Iterable[tuple[RunSpec, RunSpec]], metric: str, *, protocol: str
    ) -> NDArray[np.float64]:
        """Return how much higher the first of each pair scores on average, in % of the second.

        Splits that one of the two lacks count for neither. Pairs that have none in common, and
        those whose second scores 0, are left out.
        """
        gains = []
        for pair in pairs:
            scores = np.array([self.metric(spec, metric, protocol=protocol) for spec in pair])
            in_common = ~np.isnan(scores).all(axis=2).any(axis=0)
            first, second = (spread(own[in_common]).mean for own in scores)
            if second > 0:  # and not NaN
                gains.append(100 * (first / second - 1))
        return np.array(gains, np.float64)

    def why_empty(self, spec: RunSpec) -> str:
        """Say why there is no run: the first error, or that nobody made one."""
        if (reason := refusal(spec.data, spec.method)) is not None:
            return reason
        errors = (self.results.store.error(run) for run in self.scope.runs([spec]))
        return next((error for error in errors if error is not None), NOT_RUN)

    def run_count(self, done: int) -> str:
        """Write how many runs there are, and of how many where some are missing."""
        asked = len(self.scope.chosen_splits()) * len(self.scope.chosen_seeds())
        return str(done) if done == asked else f"{done} of {asked}"
