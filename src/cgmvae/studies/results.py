"""Stored runs as arrays, and what studies compute from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cgmvae.evaluation import PAPER_METRICS
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.store import Store


class Spread(NamedTuple):
    """A mean, and where its noise comes from; NaN where there is nothing to take it from."""

    mean: float
    over_seeds: float
    """Standard deviation over seeds on one split, root mean square over the splits."""
    over_splits: float
    """Standard deviation over splits of the means over seeds."""
    n_runs: int


def spread(values: NDArray[np.float64]) -> Spread:
    """Return mean and deviations of one metric over splits and seeds, (n_splits, n_seeds).

    Missing runs are NaN. A deviation of fewer than two values is NaN.

    Examples
    --------
    >>> spread(np.array([[1.0, 3.0], [5.0, 7.0]]))
    Spread(mean=4.0, over_seeds=1.4142135623730951, over_splits=2.8284271247461903, n_runs=4)
    """
    known = ~np.isnan(values)
    if not known.any():
        return Spread(np.nan, np.nan, np.nan, 0)
    rows = [row[ok] for row, ok in zip(values, known, strict=True) if ok.any()]
    within = [row.var(ddof=1) for row in rows if len(row) > 1]
    means = np.array([row.mean() for row in rows])
    return Spread(
        float(means.mean()),
        float(np.sqrt(np.mean(within))) if within else np.nan,
        float(means.std(ddof=1)) if len(means) > 1 else np.nan,
        int(known.sum()),
    )


class Difference(NamedTuple):
    """How much higher one setting scores than another on the same splits and seeds."""

    mean: float
    low: float
    high: float
    """Bounds of the mean's interval; NaN with fewer than two values."""
    n_splits: int
    """Splits on which both were run; where means of data sets are compared, data sets."""

    @property
    def verdict(self) -> str:
        """What becomes of the claim that the first setting is better."""
        if np.isnan(self.low):
            return "not known"
        if self.low > 0:
            return "found"
        return "not found" if self.high < 0 else "within noise"


def paired_difference(
    first: NDArray[np.float64], second: NDArray[np.float64], *, confidence: float = 0.95
) -> Difference:
    """Return how much higher the first values are, with Student's interval over the splits.

    Both are (n_splits, n_seeds), NaN where a run is missing. Differences are taken run by run where
    both are there, and averaged over the seeds of each split: splits are what varies. They are
    taken to be independent; splits that share rows are not, so their interval is too narrow.

    Examples
    --------
    >>> first = np.array([[0.7, 0.8], [0.6, 0.7]])
    >>> difference = paired_difference(first, first - [[0.2], [0.3]])
    >>> round(difference.mean, 3), difference.verdict
    (0.25, 'within noise')
    """
    gaps = first - second
    known = ~np.isnan(gaps)
    means = np.array([row[ok].mean() for row, ok in zip(gaps, known, strict=True) if ok.any()])
    return interval_of_mean(means, confidence=confidence)


def interval_of_mean(values: NDArray[np.float64], *, confidence: float = 0.95) -> Difference:
    """Return the mean of some differences, (n,), with Student's interval.

    Examples
    --------
    >>> interval_of_mean(np.array([1.0, 1.0])).verdict, interval_of_mean(np.array([1.0])).verdict
    ('found', 'not known')
    """
    if len(values) < 2:
        mean = float(values[0]) if len(values) else np.nan
        return Difference(mean, np.nan, np.nan, len(values))
    mean, error = float(values.mean()), float(stats.sem(values))
    reach = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return Difference(mean, mean - reach, mean + reach, len(values))


@dataclass(frozen=True)
class Results:
    """The runs of a study as far as they are there."""

    store: Store

    def report(self, spec: RunSpec) -> dict[str, Any] | None:
        """Return the report of a run, or None."""
        return self.store.report(spec)

    def grid(
        self, spec: RunSpec, splits: Sequence[int], seeds: Sequence[int]
    ) -> list[list[dict[str, Any] | None]]:
        """Return the reports of a run with each split and seed."""
        return [
            [self.report(replace(spec, split=split, seed=seed)) for seed in seeds]
            for split in splits
        ]

    def metrics(
        self, spec: RunSpec, splits: Sequence[int], seeds: Sequence[int], *, protocol: str
    ) -> NDArray[np.float64]:
        """Return the five metrics, (n_splits, n_seeds, 5); NaN where a run is missing."""
        nothing = [np.nan] * len(PAPER_METRICS)
        rows = [
            [
                nothing
                if report is None
                else [report["metrics"][protocol][name] for name in PAPER_METRICS]
                for report in line
            ]
            for line in self.grid(spec, splits, seeds)
        ]
        return np.array(rows, np.float64)
