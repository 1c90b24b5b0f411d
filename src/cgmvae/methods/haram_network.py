"""The two levels of HARAM: categories bound to label sets, and clusters of categories.

:mod:`cgmvae.methods.fuzzy_art` learns both levels; :mod:`cgmvae.methods.haram` is the estimator.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense
from cgmvae.methods.fuzzy_art import Boxes, Rule, activation, learn_categories, stacked
from cgmvae.methods.inputs import Rows
from cgmvae.methods.stored_arrays import matrix_arrays, read_matrix

#: What rounding can leave of a count that should be 0, as a share of the whole.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class HARAMNetwork:
    """What one order of the rows gave."""

    categories: Boxes
    """The lower level, n_categories."""
    rows: NDArray[np.float64]
    """Weight of the rows that each category took, (n_categories,)."""
    positives: sp.csr_array
    """Weight of those that have a label, (n_categories, n_labels)."""
    unknown: sp.csr_array | None
    """Weight of those that do not know a label; None where every label is known."""
    clusters: Boxes
    """The upper level, n_clusters."""
    cluster_of: NDArray[np.int64]
    """The cluster of each category, in increasing order, (n_categories,)."""

    def activations(
        self, inputs: Boxes, choice: float, searched_fraction: float
    ) -> NDArray[np.float64]:
        """Return how active the categories are, −∞ where not searched, (n_inputs, n_categories)."""
        if searched_fraction == 1:
            return activation(inputs, self.categories, choice)
        found = np.full((len(inputs), len(self.categories)), -np.inf)
        opened = self._opened(inputs, choice, searched_fraction)
        starts = np.searchsorted(self.cluster_of, np.arange(len(self.clusters) + 1))
        for cluster in np.flatnonzero(opened.any(axis=0)):
            rows = np.flatnonzero(opened[:, cluster])
            members = slice(starts[cluster], starts[cluster + 1])
            found[rows, members] = activation(
                inputs.take(rows), self.categories.take(members), choice
            )
        return found

    def _opened(self, inputs: Boxes, choice: float, searched_fraction: float) -> NDArray[np.bool_]:
        """Return which clusters are searched for each input, (n_inputs, n_clusters)."""
        order = np.argsort(-activation(inputs, self.clusters, choice), axis=1, kind="stable")
        sizes = np.bincount(self.cluster_of, minlength=len(self.clusters))[order]
        found_before = np.cumsum(sizes, axis=1) - sizes
        opened = np.empty(order.shape, bool)
        np.put_along_axis(
            opened, order, found_before < searched_fraction * len(self.categories), axis=1
        )
        return opened

    def scores(self, votes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return each label's share of the rows that the votes weigh, (n_inputs, n_labels).

        Parameters
        ----------
        votes : array, (n_inputs, n_categories)
            How much each category counts; see :func:`vote_weights`.
        """
        weights = sp.csr_array(votes)
        positives = (weights @ self.positives).toarray()
        total = (weights @ self.rows)[:, None]
        if self.unknown is None:
            return np.minimum(positives / total, 1.0)
        known = total - (weights @ self.unknown).toarray()
        frequencies = _share(
            self.positives.sum(axis=0),
            self.rows.sum() - self.unknown.sum(axis=0),
            _ROUNDING * self.rows.sum(),
            otherwise=0.0,
        )
        return _share(positives, known, _ROUNDING * total, otherwise=frequencies)


def train_network(inputs: Boxes, rows: Rows, rule: Rule, cluster_rule: Rule) -> HARAMNetwork:
    """Learn both levels from rows, in their order.

    Parameters
    ----------
    inputs : Boxes of n_samples
        The rows' features with ranges of width 1.
    rows : Rows
        Their labels, unknown labels and weights.
    rule, cluster_rule : Rule
        How categories are learnt, and how clusters of them.
    """
    categories, winners = learn_bound_categories(inputs, rows.labels, rows.unknown, rule)
    clusters, cluster_of = learn_categories(categories, cluster_rule)
    order = np.argsort(cluster_of, kind="stable")
    categories, winners = categories.take(order), np.argsort(order)[winners]
    n = len(inputs)
    taken = sp.csr_array((rows.row_weights(), (winners, np.arange(n))), shape=(len(categories), n))
    positives = taken @ sp.csr_array(rows.labels, dtype=np.float64)
    unknown = None
    if rows.unknown is not None:
        unknown = taken @ sp.csr_array(rows.unknown, dtype=np.float64)
    # Sums are taken anew, as they are from a file: a saved network must not differ by a rounding.
    categories, clusters = (
        Boxes.between(each.lower, each.upper) for each in (categories, clusters)
    )
    return HARAMNetwork(
        categories, taken.sum(axis=1), positives, unknown, clusters, cluster_of[order]
    )


def learn_bound_categories(
    inputs: Boxes, labels: Matrix, unknown: Matrix | None, rule: Rule
) -> tuple[Boxes, NDArray[np.int64]]:
    """Learn categories that take rows of one label set; return which one took each row.

    Categories are numbered in the order of their first rows. An unknown label agrees with either
    value, and with what a category's other rows say about it.
    """
    if unknown is not None:
        known = 1 - dense(unknown).astype(np.int8)
        return learn_categories(inputs, rule, (2 * dense(labels).astype(np.int8) - 1) * known)
    # Rows of other label sets could neither join a category nor change it.
    sets = _label_sets(labels)
    alone = np.array([rows[0] for rows in sets if len(rows) == 1], np.int64)
    parts = [inputs.take(alone)]
    winners = np.empty(len(inputs), np.int64)
    winners[alone] = np.arange(len(alone))
    n = len(alone)
    for rows in (rows for rows in sets if len(rows) > 1):
        boxes, taken_by = learn_categories(inputs.take(rows), rule)
        winners[rows] = n + taken_by
        n += len(boxes)
        parts.append(boxes)
    _, first_rows, winners = np.unique(winners, return_index=True, return_inverse=True)
    order = np.argsort(first_rows)
    return stacked(parts).take(order), np.argsort(order)[winners]


def vote_weights(activations: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Return the activations of the categories that vote and 0 for all others.

    A category votes if (max − T) / max ≤ threshold · (max − min) over the input's searched
    categories. Where none of them is active at all, they count alike.
    """
    searched = np.isfinite(activations)
    largest = activations.max(axis=1, keepdims=True)
    smallest = np.where(searched, activations, np.inf).min(axis=1, keepdims=True)
    votes = largest - activations <= threshold * (largest - smallest) * largest
    return np.where(votes, np.where(largest > 0, activations, 1.0), 0.0)


def above_largest_difference(scores: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which labels rank before the largest drop of the scores, (n_samples, n_labels)."""
    if scores.shape[1] == 1:
        return scores >= 0.5
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    n_taken = np.argmax(ranked[:, :-1] - ranked[:, 1:], axis=1) + 1
    taken = np.empty(scores.shape, bool)
    np.put_along_axis(taken, order, np.arange(scores.shape[1]) < n_taken[:, None], axis=1)
    return taken


def arrays_of(network: HARAMNetwork) -> dict[str, NDArray[Any]]:
    """Return a network as arrays by name, from which :func:`network_of` makes it again."""
    arrays = {"rows": network.rows, "cluster_of": network.cluster_of}
    matrices = {
        "lower": network.categories.lower,
        "upper": network.categories.upper,
        "clusters.lower": network.clusters.lower,
        "clusters.upper": network.clusters.upper,
        "positives": network.positives,
        "unknown": network.unknown,
    }
    for name, matrix in matrices.items():
        arrays |= matrix_arrays(name, matrix)
    return arrays


def network_of(arrays: dict[str, NDArray[Any]], n_features: int, n_labels: int) -> HARAMNetwork:
    """Return the network of these arrays; those that do not fit together cause a ValueError."""
    rows, cluster_of = arrays["rows"], arrays["cluster_of"]
    whole = cluster_of.dtype.kind == "i"
    in_order = whole and cluster_of.min() == 0 and (np.diff(cluster_of) >= 0).all()
    if rows.ndim != 1 or rows.shape != cluster_of.shape or not in_order:
        raise ValueError("its categories do not fit their clusters")
    n, n_clusters = len(rows), int(cluster_of.max()) + 1

    def read(name: str, shape: tuple[int, int], *, optional: bool = False) -> Matrix:
        return read_matrix(arrays, name, shape, np.float64, optional=optional)

    def boxes(prefix: str, n_boxes: int) -> Boxes:
        corners = (read(f"{prefix}{name}", (n_boxes, n_features)) for name in ("lower", "upper"))
        return Boxes.between(*corners)

    return HARAMNetwork(
        boxes("", n),
        rows,
        read("positives", (n, n_labels)),
        read("unknown", (n, n_labels), optional=True),
        boxes("clusters.", n_clusters),
        cluster_of,
    )


def _share(
    positives: NDArray[Any], known: NDArray[Any], least: Any, *, otherwise: Any
) -> NDArray[np.float64]:
    """Return positives / known, and something else where not even ``least`` is known."""
    told = known > least
    shares = np.divide(positives, known, where=told, out=np.zeros_like(known))
    return np.minimum(np.where(told, shares, otherwise), 1.0)


def _label_sets(labels: Matrix) -> list[NDArray[np.int64]]:
    """Return the rows of each distinct label set, in order."""
    labels = sp.csr_array(labels, copy=True)
    labels.eliminate_zeros()
    labels.sort_indices()
    groups = defaultdict(list)
    for i, (start, stop) in enumerate(zip(labels.indptr[:-1], labels.indptr[1:], strict=True)):
        groups[labels.indices[start:stop].tobytes()].append(i)
    return [np.array(rows) for rows in groups.values()]
