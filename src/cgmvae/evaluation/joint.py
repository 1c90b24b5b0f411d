"""How good predictions of whole label sets are: the measures of Norberg et al. (2019).

They compare species distribution models by what these say of single labels, of the number of labels
of a row (richness), and of how unlike the label sets of two rows are (dissimilarity). The last two
are computed from draws of whole label sets, so that labels that come together count.

Probabilities and labels are (n_samples, n_labels), draws (n_draws, n_samples, n_labels).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr

Labels = NDArray[np.bool_]
Values = NDArray[np.float64]

#: Bins of equal size, by predicted probability, in which a label's calibration is measured.
N_BINS = 10

#: Names of the dissimilarities, in the order of :func:`dissimilarities`.
DISSIMILARITIES = ("Sørensen", "Simpson", "nestedness")


class Quality(NamedTuple):
    """What the benchmark says of a quantity that is predicted; of all but one, less is better."""

    accuracy: float
    """Error: the mean absolute difference for labels, the root mean square for numbers."""
    discrimination: float
    """Area under the curve for labels, Spearman's correlation for numbers; more is better."""
    calibration: float
    """Distance of predicted from observed sums, or of the share of values within quartiles from .5.
    """
    precision: float
    """Mean predicted standard deviation, whether it is right or not."""


def label_quality(labels: Labels, scores: NDArray[np.floating]) -> Quality:
    """Measure the probabilities of single labels.

    A label that all rows have, or none, counts as perfectly discriminated. Calibration is the sum
    over ten bins of |expected − observed positives|, a mean over labels.

    Examples
    --------
    >>> labels = np.array([[True], [False]])
    >>> label_quality(labels, np.array([[0.9], [0.2]])).discrimination
    1.0
    """
    p = np.asarray(scores, np.float64)
    y = np.asarray(labels, bool)
    n, positives = len(y), y.sum(0)
    ranks = rankdata(p, axis=0)
    pairs = positives * (n - positives)
    wins = np.where(y, ranks, 0).sum(0) - positives * (positives + 1) / 2
    areas = np.where(pairs > 0, wins / np.maximum(1, pairs), 1.0)
    order = np.argsort(p, axis=0, kind="stable")
    excess = np.take_along_axis(p - y, order, axis=0)
    errors = sum(np.abs(part.sum(0)) for part in np.array_split(excess, N_BINS))
    return Quality(
        float(np.abs(p - y).mean()),
        float(areas.mean()),
        float(np.mean(errors)),
        float(np.sqrt(p * (1 - p)).mean()),
    )


def draw_quality(observed: NDArray[np.number], draws: NDArray[np.number]) -> Quality:
    """Measure draws of numbers, (n_draws, n), against what was observed, (n,).

    The prediction is the mean of the draws. Calibration is how far the share of observed values
    within the quartiles of their draws is from one half.

    Examples
    --------
    >>> draw_quality(np.array([1, 2]), np.array([[1, 2], [3, 4]])).accuracy
    1.0
    """
    values = np.asarray(observed, np.float64)
    mean = draws.mean(0)
    low, high = np.quantile(draws, (0.25, 0.75), axis=0)
    within = (values >= low) & (values <= high)
    varies = np.ptp(mean) > 0 and np.ptp(values) > 0
    return Quality(
        float(np.sqrt(np.mean((mean - values) ** 2))),
        float(spearmanr(mean, values).statistic) if varies else 0.0,
        float(abs(within.mean() - 0.5)),
        float(draws.std(0).mean()),
    )


def dissimilarities(first: Labels, second: Labels) -> Values:
    """Return how unlike label sets are, (3, …): Sørensen, Simpson, and nestedness (Baselga 2010).

    Sørensen's is the sum of the others: of turnover, and of one set being part of the other. What
    would be 0/0 is 0.

    Examples
    --------
    >>> own, more = np.array([True, False, False]), np.array([True, True, True])
    >>> dissimilarities(own, more).tolist()
    [0.5, 0.0, 0.5]
    """
    shared = (first & second).sum(-1)
    only_first, only_second = (first & ~second).sum(-1), (second & ~first).sum(-1)
    fewer = np.minimum(only_first, only_second)
    unshared = only_first + only_second
    sorensen = unshared / np.maximum(1, 2 * shared + unshared)
    simpson = fewer / np.maximum(1, shared + fewer)
    return np.stack([sorensen, simpson, sorensen - simpson])


class CommunityQuality(NamedTuple):
    """All measures of one prediction."""

    species: Quality
    richness: Quality
    dissimilarity: tuple[Quality, Quality, Quality]
    """Of Sørensen's, Simpson's and nestedness."""

    def values(self) -> Values:
        """Return the twenty numbers in the order of the benchmark, (20,).

        Those of labels and richness, and each property of the three dissimilarities in turn.
        """
        by_property = np.array(self.dissimilarity).T.ravel()
        return np.concatenate([self.species, self.richness, by_property])


def community_quality(
    labels: Labels,
    scores: NDArray[np.floating],
    draws: Labels,
    *,
    n_pairs: int = 300,
    seed: int = 0,
) -> CommunityQuality:
    """Measure probabilities, and draws of whole label sets, on rows with these labels.

    Parameters
    ----------
    labels, scores : array, (n_samples, n_labels)
    draws : array of bool, (n_draws, n_samples, n_labels)
    n_pairs, seed : int
        Random pairs of rows whose dissimilarity is measured.
    """
    labels, draws = np.asarray(labels, bool), np.asarray(draws, bool)
    rng = np.random.default_rng(seed)
    one = rng.integers(len(labels), size=n_pairs)
    other = (one + rng.integers(1, len(labels), size=n_pairs)) % len(labels)
    observed = dissimilarities(labels[one], labels[other])
    drawn = np.stack([dissimilarities(each[one], each[other]) for each in draws], axis=1)
    unlike = [draw_quality(*own) for own in zip(observed, drawn, strict=True)]
    return CommunityQuality(
        label_quality(labels, scores),
        draw_quality(labels.sum(1), draws.sum(2)),
        (unlike[0], unlike[1], unlike[2]),
    )
