"""Do methods and settings really differ? Spreads, paired differences, rank tests, and verdicts.

Scores of a method come as arrays of shape (n_splits, n_seeds), with NaN for missing runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

#: Test rows by training rows of a random split into 80, 10 and 10%.
TEST_SHARE = 1 / 8

SHARED_ROWS = (
    "Splits of one data set share rows: intervals are widened as Nadeau and Bengio (2003) propose."
)

DIFFERENCE_NOTE = (
    "Differences are paired over splits and seeds, thresholds: validation; in brackets the 95% "
    f"interval over splits. {SHARED_ROWS} One in twenty misses 0 by chance."
)


class Spread(NamedTuple):
    """A mean and its standard deviations; NaN where there are too few values."""

    mean: float
    over_seeds: float
    """Standard deviation over seeds on one split, root mean square over the splits."""
    over_splits: float
    """Standard deviation over splits of the means over seeds."""
    n_runs: int


def spread(values: NDArray[np.float64]) -> Spread:
    """Return mean and standard deviations of one metric, (n_splits, n_seeds)."""
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
    """Bounds of the mean's confidence interval; NaN with fewer than two values."""
    n_splits: int
    """Number of splits with runs of both."""

    @property
    def verdict(self) -> str:
        """What follows for the claim that the first setting is better."""
        if np.isnan(self.low):
            return "not known"
        if self.low > 0:
            return "found"
        return "not found" if self.high < 0 else "within noise"

    def decision(self, bound: float) -> str:
        """Return what follows for the claim that the first setting is better by at least a bound.

        "not found" if the interval lies below the bound, and so excludes such a gain; otherwise
        "found" if it lies above 0, and "undecided" if not.
        """
        if np.isnan(self.low):
            return "not known"
        if self.high < bound:
            return "not found"
        return "found" if self.low > 0 else "undecided"


def paired_difference(
    first: NDArray[np.float64], second: NDArray[np.float64], *, test_share: float
) -> Difference:
    """Return how much higher the first scores are, with a 95% interval over the splits.

    Differences are taken run by run where both exist, and averaged over the seeds of each split;
    scores that do not depend on the seed may have a single column. Student's interval is widened
    for splits that share rows as Nadeau and Bengio (2003) propose: ``test_share`` is the ratio of
    test to training rows, 0 if the test rows are always the same.
    """
    gaps = first - second
    known = ~np.isnan(gaps)
    means = np.array([row[ok].mean() for row, ok in zip(gaps, known, strict=True) if ok.any()])
    n = len(means)
    mean = float(means.mean()) if n else np.nan
    if n < 2:
        return Difference(mean, np.nan, np.nan, n)
    error = float(means.std(ddof=1)) * np.sqrt(1 / n + test_share)
    reach = float(stats.t.ppf(0.975, n - 1)) * error
    return Difference(mean, mean - reach, mean + reach, n)


def difference_text(difference: Difference) -> str:
    """Format a difference with its interval.

    Examples
    --------
    >>> difference_text(Difference(0.012, -0.001, 0.025, 3))
    '+0.012 [-0.001, +0.025]'
    """
    mean, low, high = map(signed, difference[:3])
    return mean if np.isnan(difference.low) else f"{mean} [{low}, {high}]"


def signed(value: float) -> str:
    """Format a number with its sign, or a dash for NaN."""
    return "–" if np.isnan(value) else f"{value:+.3f}"


_OTHER_VERDICTS = {
    "within noise": "within noise on",
    "not found": "not found, but the opposite, on",
    "not known": "not known, for lack of a second split, on",
}


def finding(claim: str, by_data: Mapping[str, Difference]) -> str:
    """Return a sentence that says on which data sets a claim was reproduced.

    ``by_data`` has the difference on each data set, which is above 0 according to the claim.

    Examples
    --------
    >>> found, noise = Difference(0.2, 0.1, 0.3, 3), Difference(0.1, -0.1, 0.3, 3)
    >>> finding("A above B", {"yeast": found, "scene": noise})
    'A above B: found on 1 of 2 data sets (yeast), within noise on 1 (scene); mean +0.150.'
    """
    known = {name: each for name, each in by_data.items() if each.n_splits > 0}
    if not known:
        return f"{claim}: no runs yet."
    names = {
        verdict: [name for name, each in known.items() if each.verdict == verdict]
        for verdict in ("found", *_OTHER_VERDICTS)
    }
    parts = [f"found on {len(names['found'])} of {len(known)} data sets{listed(names['found'])}"]
    parts += [
        f"{words} {len(names[verdict])}{listed(names[verdict])}"
        for verdict, words in _OTHER_VERDICTS.items()
        if names[verdict]
    ]
    mean = float(np.mean([each.mean for each in known.values()]))
    return f"{claim}: {', '.join(parts)}; mean {signed(mean)}."


def listed(names: Sequence[str]) -> str:
    """Return names in brackets, to follow a number, or nothing."""
    return f" ({', '.join(names)})" if names else ""


class RankTest(NamedTuple):
    """Ranks of methods over several data sets, 1 is best."""

    mean_ranks: NDArray[np.float64]
    """(n_methods,)"""
    n_data: int
    p_value: float
    """Of Friedman's test that all methods are alike; NaN with fewer than three methods or two data
    sets, and if all methods tie everywhere."""
    critical_difference: float
    """See :func:`critical_difference`; NaN with fewer than two methods or two data sets."""


def rank_methods(scores: NDArray[np.float64]) -> RankTest:
    """Rank methods over the data sets on which all of them have a score.

    Scores, (n_data, n_methods), are higher for better methods and NaN where they are missing: one
    number per data set, since splits and metrics of a data set are not independent. Ties share
    their ranks.
    """
    complete = scores[~np.isnan(scores).any(axis=1)]
    n_data, n_methods = complete.shape
    if n_data == 0:
        return RankTest(np.full(n_methods, np.nan), 0, np.nan, np.nan)
    ranks = stats.rankdata(-complete, axis=1)
    p_value = critical = np.nan
    if n_data > 1 and n_methods > 1:
        critical = critical_difference(n_methods, n_data)
        if n_methods > 2 and np.ptp(ranks, axis=1).any():
            p_value = float(stats.friedmanchisquare(*complete.T).pvalue)
    return RankTest(ranks.mean(axis=0), n_data, p_value, critical)


def critical_difference(n_methods: int, n_data: int) -> float:
    """Return Nemenyi's critical difference: mean ranks closer than this do not differ at .05.

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)  # an example of Demšar's (2006)
    1.25
    """
    quantile = stats.studentized_range.ppf(0.95, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_data)))
