"""Fuzzy ART (Carpenter, Grossberg, Rosen 1991): box-shaped categories, learned row by row.

A row a of d features in [0, 1] is complement coded, A = (a, 1 − a), and the weights of a category,
w = (u, 1 − v), represent the box [u, v]. With |·| the sum of the entries and ∧ the elementwise
minimum,

- choice: the category with the largest |A ∧ w| / (α + |w|) is tried first,
- vigilance: it accepts the row if |A ∧ w| / |A| is at least ρ; otherwise the next category is
  tried, and if none accepts the row, it becomes a new category,
- learning: w ← β (A ∧ w) + (1 − β) w, so that with β = 1 the box grows until it contains the row.

The complement is never stored: |A ∧ w| = (|A| + |w| − ‖A − w‖) / 2, and the city-block distance ‖A
− w‖ is ‖a − u‖ + ‖a − v‖. So sparse rows stay sparse, and compiled distance functions do the work.
Only differences matter, so features may have any origin as long as their range has width 1.

:mod:`cgmvae.methods.haram` builds both of its levels from such categories.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from cgmvae.data.dataset import Matrix, with_short_indices
from cgmvae.data.mapped import dense

#: Rows whose overlap with all categories is computed at a time, and the entries they may have.
_BLOCK_ROWS, _BLOCK_CELLS = 128, 2**20


@dataclass(frozen=True)
class Boxes:
    """Boxes [lower, upper], one per row; a row of features is a box without extent."""

    lower: Matrix
    """Lower corner, array or CSR array, (n_boxes, n_features)."""
    upper: Matrix
    """Upper corner; the same object as ``lower`` for boxes without extent."""
    norms: NDArray[np.float64]
    """Norms of the complement-coded weights, |w| = d − |v − u|, (n_boxes,)."""
    binary: bool
    """Whether the corners contain only 0 and 1."""

    @classmethod
    def between(cls, lower: Matrix, upper: Matrix) -> Boxes:
        """Return the boxes with these corners."""
        norms = np.full(lower.shape[0], float(lower.shape[1]))
        if upper is lower:
            return cls(lower, lower, norms, _is_binary(lower))
        norms += np.asarray((lower - upper).sum(axis=1))
        return cls(lower, upper, norms, _is_binary(lower) and _is_binary(upper))

    def __len__(self) -> int:
        return len(self.norms)

    def take(self, rows: Any) -> Boxes:
        """Return the boxes at these indices, in this order."""
        return self._with(lambda corner: corner[rows], self.norms[rows])

    def dense(self) -> Boxes:
        """Return the boxes with dense corners."""
        return self._with(dense)

    def sparse(self) -> Boxes:
        """Return the boxes with CSR corners."""
        return self._with(sp.csr_array)

    def _with(
        self, change: Callable[[Matrix], Matrix], norms: NDArray[np.float64] | None = None
    ) -> Boxes:
        lower = change(self.lower)
        upper = lower if self.upper is self.lower else change(self.upper)
        return Boxes(lower, upper, self.norms if norms is None else norms, self.binary)

    def grown(self, other: Boxes, rate: float) -> Boxes:
        """Return the boxes, dense, after one learning step toward other boxes."""
        lower = np.minimum(self.lower, other.lower)
        upper = np.maximum(self.upper, other.upper)
        if rate < 1:
            lower = rate * lower + (1 - rate) * self.lower
            upper = rate * upper + (1 - rate) * self.upper
        return Boxes.between(lower, upper)


@dataclass(frozen=True)
class Rule:
    """Hyperparameters of learning."""

    vigilance: float
    """ρ: the minimum match between a row and the category that accepts it."""
    choice: float
    """α: among boxes that contain a row, larger values favor smaller boxes."""
    rate: float
    """β: the learning rate, 1 for fast learning."""


def stacked(parts: list[Boxes]) -> Boxes:
    """Concatenate boxes."""

    def joined(corners: list[Matrix]) -> Matrix:
        is_sparse = sp.issparse(corners[0])
        return sp.vstack(corners, format="csr") if is_sparse else np.concatenate(corners)

    lower = joined([part.lower for part in parts])
    upper = joined([part.upper for part in parts])
    norms = np.concatenate([part.norms for part in parts])
    return Boxes(lower, upper, norms, all(part.binary for part in parts))


def overlap(inputs: Boxes, boxes: Boxes) -> NDArray[np.float64]:
    """Return |A ∧ w| of all pairs, (n_inputs, n_boxes)."""
    distance = _cityblock(inputs, boxes, "lower") + _cityblock(inputs, boxes, "upper")
    return (inputs.norms[:, None] + boxes.norms - distance) / 2


def activation(inputs: Boxes, boxes: Boxes, choice: float) -> NDArray[np.float64]:
    """Return the choice function |A ∧ w| / (α + |w|) of all pairs, (n_inputs, n_boxes)."""
    return overlap(inputs, boxes) / (choice + boxes.norms)


def learn_categories(
    inputs: Boxes, rule: Rule, labels: NDArray[np.int8] | None = None
) -> tuple[Boxes, NDArray[np.int64]]:
    """Present the inputs in order; return the categories and the category of each input.

    ``labels``, (n_inputs, n_labels), are 1 if positive, −1 if negative, 0 if unknown: a category
    only accepts inputs that contradict none of its previous inputs.
    """
    labels = np.zeros((len(inputs), 0), np.int8) if labels is None else labels
    layer = _Layer(inputs.take(slice(0)), rule, labels)
    step = max(1, min(_BLOCK_ROWS, _BLOCK_CELLS // inputs.lower.shape[1]))
    starts = range(0, len(inputs), step)
    winners = [layer.learn(inputs.take(slice(i, i + step)), i) for i in starts]
    return layer.boxes, np.concatenate([np.empty(0, np.int64), *winners])


class _Layer:
    """Categories during learning, a block of inputs at a time."""

    def __init__(self, boxes: Boxes, rule: Rule, labels: NDArray[np.int8]) -> None:
        self.boxes, self._rule, self._labels = boxes, rule, labels
        self._agreed = np.zeros_like(labels)  # labels of each category, 0 if unknown

    def learn(self, block: Boxes, first: int) -> NDArray[np.int64]:
        """Return the categories of the inputs from index ``first`` on.

        Overlaps with the categories are computed for the whole block at once and, after each input,
        updated for the one category that changed.
        """
        n = n_old = len(self.boxes)
        overlaps = np.empty((len(block), n_old + len(block)))
        overlaps[:, :n_old] = overlap(block, self.boxes)
        block = block.dense()
        norms = np.concatenate([self.boxes.norms, np.empty(len(block))])
        changed: dict[int, Boxes] = {}
        winners = np.empty(len(block), np.int64)
        for i in range(len(block)):
            winner = self._resonant(overlaps[i, :n], norms[:n], block.norms[i], first + i)
            winners[i] = winner
            if winner == n:
                n, box = n + 1, block.take([i])
            elif overlaps[i, winner] >= norms[winner]:
                continue  # the box already contains the input
            else:
                box = changed[winner] if winner in changed else self.boxes.take([winner]).dense()
                box = box.grown(block.take([i]), self._rule.rate)
            changed[winner], norms[winner] = box, box.norms[0]
            overlaps[i + 1 :, winner] = overlap(block.take(slice(i + 1, None)), box)[:, 0]
        self.boxes = _replaced(self.boxes, changed)
        return winners

    def _resonant(
        self,
        overlaps: NDArray[np.float64],
        norms: NDArray[np.float64],
        input_norm: float,
        index: int,
    ) -> int:
        """Return the category that accepts an input; ``len(norms)`` for a new category."""
        found = np.flatnonzero(overlaps >= self._rule.vigilance * input_norm)
        found = found[(self._agreed[found] * self._labels[index] >= 0).all(axis=1)]
        winner = len(norms)
        if len(found):
            winner = int(found[np.argmax(overlaps[found] / (self._rule.choice + norms[found]))])
        unset = self._agreed[winner] == 0
        self._agreed[winner, unset] = self._labels[index, unset]
        return winner


def _replaced(boxes: Boxes, changed: dict[int, Boxes]) -> Boxes:
    """Return the boxes with changed and new ones replaced, by index."""
    kept = np.setdiff1d(np.arange(len(boxes)), list(changed))
    parts = [boxes.take(kept)]
    if changed:
        new = stacked(list(changed.values()))
        parts.append(new.sparse() if sp.issparse(boxes.lower) else new)
    order = np.argsort(np.concatenate([kept, list(changed)]))
    return stacked(parts).take(order)


def _cityblock(inputs: Boxes, boxes: Boxes, corner: str) -> NDArray[np.float64]:
    """Return the city-block distances between corners of boxes, (n_inputs, n_boxes)."""
    a, b = getattr(inputs, corner), getattr(boxes, corner)
    if 0 in (a.shape[0], b.shape[0]):
        return np.zeros((a.shape[0], b.shape[0]))
    if inputs.binary and boxes.binary:  # exact, because all sums are integers
        return a.sum(axis=1)[:, None] + b.sum(axis=1) - 2 * dense(a @ b.T)
    if sp.issparse(a):
        return manhattan_distances(with_short_indices(a), with_short_indices(b))
    return cdist(a, b, "cityblock")


def _is_binary(matrix: Matrix) -> bool:
    values = matrix.data if sp.issparse(matrix) else matrix
    return bool(((values == 0) | (values == 1)).all())
