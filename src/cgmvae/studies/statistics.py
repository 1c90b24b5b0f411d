"""Are the methods really different? Ranks, Friedman's test, Nemenyi's critical difference."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats


class RankTest(NamedTuple):
    """Methods ranked on several problems, 1 the best."""

    mean_ranks: NDArray[np.float64]
    """(n_methods,)"""
    n_problems: int
    p_value: float
    """Of Friedman's test that all methods are alike; NaN below three methods or two problems, and
    where all methods tie everywhere."""
    critical_difference: float
    """See :func:`critical_difference`; NaN below two methods or two problems."""


def rank_methods(scores: NDArray[np.float64], *, level: float = 0.05) -> RankTest:
    """Rank methods over the problems on which all of them have a score.

    Parameters
    ----------
    scores : array, (n_problems, n_methods)
        Higher is better; NaN where a method has none. Ties share their ranks.
    level : float
        Of Nemenyi's test (Demšar 2006).

    Examples
    --------
    >>> test = rank_methods(np.array([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.5, 0.4, 0.3]]))
    >>> test.mean_ranks
    array([1., 2., 3.])
    >>> round(test.critical_difference, 2)
    1.91
    """
    complete = scores[~np.isnan(scores).any(axis=1)]
    n_problems, n_methods = complete.shape
    if n_problems == 0:
        return RankTest(np.full(n_methods, np.nan), 0, np.nan, np.nan)
    ranks = stats.rankdata(-complete, axis=1)
    p_value = critical = np.nan
    if n_problems > 1 and n_methods > 1:
        critical = critical_difference(n_methods, n_problems, level=level)
        differ = np.ptp(ranks, axis=1).any()
        if n_methods > 2 and differ:
            p_value = float(stats.friedmanchisquare(*complete.T).pvalue)
    return RankTest(ranks.mean(axis=0), n_problems, p_value, critical)


def critical_difference(n_methods: int, n_problems: int, *, level: float = 0.05) -> float:
    """Return Nemenyi's critical difference: mean ranks closer than this do not differ at the level.

    Examples
    --------
    >>> round(critical_difference(4, 14, level=0.05), 2)  # an example of Demšar's
    1.25
    """
    quantile = stats.studentized_range.ppf(1 - level, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_problems)))
