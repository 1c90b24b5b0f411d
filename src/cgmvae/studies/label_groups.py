"""Labels in groups, and how well a similarity keeps the groups together.

:mod:`~cgmvae.studies.studies.interpret` applies it to what methods learnt.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class GroupedLabels(NamedTuple):
    """Some labels of a data set."""

    names: list[str]
    groups: list[str]
    """The group of each."""
    columns: list[int]
    """Where each is among all labels."""

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of the labels, by their places."""
        return list(combinations(range(len(self.names)), 2))

    def within(self, pair: tuple[int, int]) -> bool:
        """Tell whether two labels are of one group."""
        return self.groups[pair[0]] == self.groups[pair[1]]


class GroupOrder(NamedTuple):
    """How well a similarity keeps groups together; NaN where there are no such pairs."""

    intra: float
    """Mean similarity of two labels of one group."""
    inter: float
    """Mean similarity of two labels of different groups."""
    right: float
    """Chance that a pair within a group is more alike than a pair between groups."""


def order_of(similarity: NDArray[np.float64], labels: GroupedLabels) -> GroupOrder:
    """Return how well groups are kept together.

    Parameters
    ----------
    similarity : array, (n_labels, n_labels)
        Symmetric, of these labels alone; its diagonal is not looked at.
    labels : GroupedLabels

    Examples
    --------
    >>> birds = GroupedLabels(["gull", "heron", "owl"], ["water", "water", "forest"], [4, 7, 2])
    >>> order_of(np.array([[0, 5, 1], [5, 0, 3], [1, 3, 0]]), birds)
    GroupOrder(intra=5.0, inter=2.0, right=1.0)
    """
    values = np.array([similarity[pair] for pair in labels.pairs], np.float64)
    within = np.array([labels.within(pair) for pair in labels.pairs], bool)
    intra, inter = values[within], values[~within]
    if len(intra) == 0 or len(inter) == 0:
        return GroupOrder(np.nan, np.nan, np.nan)
    gaps = intra[:, None] - inter[None, :]
    right = np.where(np.isnan(gaps), np.nan, (np.sign(gaps) + 1) / 2)  # a tie counts one half
    return GroupOrder(float(intra.mean()), float(inter.mean()), float(right.mean()))


class Break(NamedTuple):
    """A pair of different groups that is no less alike than a pair within one of their groups."""

    pair: tuple[str, str]
    similarity: float
    weakest: tuple[str, str]
    """The least alike pair of the two groups."""
    weakest_similarity: float


def find_breaks(similarity: NDArray[np.float64], labels: GroupedLabels) -> list[Break]:
    """Return the pairs that break "intra-group always stronger than inter-group".

    Each pair of different groups is held against the weakest pair within either group; the
    strongest comes first. Parameters as in :func:`order_of`.
    """
    weakest = _weakest_pairs(similarity, labels)
    breaks = []
    for pair in labels.pairs:
        own = [weakest[labels.groups[i]] for i in pair if labels.groups[i] in weakest]
        if labels.within(pair) or not own:
            continue
        low = min(own, key=lambda each: similarity[each])
        if similarity[pair] >= similarity[low]:
            breaks.append(
                Break(
                    _names(labels, pair),
                    float(similarity[pair]),
                    _names(labels, low),
                    float(similarity[low]),
                )
            )
    return sorted(breaks, key=lambda each: -each.similarity)


def _weakest_pairs(
    similarity: NDArray[np.float64], labels: GroupedLabels
) -> dict[str, tuple[int, int]]:
    """Return the least alike pair of each group that has one."""
    weakest: dict[str, tuple[int, int]] = {}
    for pair in filter(labels.within, labels.pairs):
        group = labels.groups[pair[0]]
        weakest[group] = min(weakest.get(group, pair), pair, key=lambda each: similarity[each])
    return weakest


def _names(labels: GroupedLabels, pair: tuple[int, int]) -> tuple[str, str]:
    return labels.names[pair[0]], labels.names[pair[1]]
