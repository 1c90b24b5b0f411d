"""HARAM: a hierarchy of fuzzy categories bound to label sets (Benites, Sapozhnikova 2015).

The lower level is ML-ARAM: fuzzy ART categories of rows, each of which accepts rows of a single
label set and counts its labels. The upper level clusters these
categories by the same rule with its own vigilance, so that prediction searches the most active
clusters instead of every category. The label counts of the most active categories are then
averaged, weighted by activation.

Fuzzy ART (Carpenter, Grossberg, Rosen 1991) learns box-shaped categories row by row. A row a of d
features in [0, 1] is complement coded, A = (a, 1 − a), and the weights of a category,
w = (u, 1 − v), represent the box [u, v]. With |·| the sum of the entries and ∧ the elementwise
minimum,

- choice: the category with the largest |A ∧ w| / (α + |w|) is tried first,
- vigilance: it accepts the row if |A ∧ w| / |A| is at least ρ; otherwise the next category is
  tried, and if none accepts the row, it becomes a new category,
- learning: w ← β (A ∧ w) + (1 − β) w, so that with β = 1 the box grows until it contains the row.

The complement is never stored: |A ∧ w| = (|A| + |w| − ‖A − w‖) / 2, and the city-block distance ‖A
− w‖ is ‖a − u‖ + ‖a − v‖. So sparse rows stay sparse, and compiled distance functions do the work.
Only differences matter, so features may have any origin as long as their range has width 1.

The vigilance of the label side is 1, so the label part of ARAM's choice function is equal for all
categories that may accept a row, and label sets can be learned one after the other. There is no
match tracking.

Where the papers leave a choice open, and where this implementation differs:

- Clusters are searched in order of activation until they contain ``searched_fraction`` of the
  categories.
- The counts of the voting categories are divided by their numbers of rows, which changes no ranking
  and yields scores between 0 and 1; ``predict`` applies the learned threshold rule to them. The
  papers' own rule is :meth:`HARAM.predict_by_largest_difference`.
- An unknown label matches either value. A score is a fraction of the rows whose label is known; if
  no voting category has such a row, all training rows are used. Rows without any known label are
  ignored.
- Often every voting category has several labels, which then tie at the top: the more frequent label
  in the training rows ranks higher.
- Sample weights apply to the label counts.
- A constant feature always matches; features outside the range of the training rows are clipped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from cgmvae.data.dataset import Matrix, with_short_indices
from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Rows
from cgmvae.methods.model_file import matrix_arrays, read_matrix, with_prefix
from cgmvae.preparation.scaling import ScalingName

#: Rows whose overlap with all categories is computed at a time, and the entries they may have.
_BLOCK_ROWS, _BLOCK_CELLS = 128, 2**20


#: Entries of the largest array that prediction allocates at a time.
_CELLS = 2**22

#: Weight of a label's frequency in its score, which decides ties and keeps scores off 0 and 1: a
#: few rows without a label do not prove that no row has it.
_MARGIN = 1e-6

#: Rounding error of a count that should be 0, as a fraction of the total.
_ROUNDING = 1e-9


@dataclass(kw_only=True, eq=False, repr=False)
class HARAM(MultiLabelClassifier):
    """Hierarchical ARAM: fuzzy categories of rows, searched through clusters of categories.

    Parameters
    ----------
    vigilance : float in [0, 1]
        Required similarity of the rows of a category; 1 requires equal rows, 0 yields one category
        per label set.
    cluster_vigilance : float in [0, 1]
        Required similarity of the categories of a cluster.
    searched_fraction : float in (0, 1]
        Clusters are searched until they contain this fraction of the categories; 1 disables the
        upper level, which is ML-ARAM. Like ``vote_threshold`` it may be changed after fitting.
    vote_threshold : float in [0, 1]
        A category votes if its activation T is close to the largest, (max − T) / max ≤
        ``vote_threshold`` · (max − min); with 0 only the most active category votes.
    choice : float > 0
        The constant α in |A ∧ w| / (α + |w|).
    learning_rate : float in (0, 1]
        How far a category moves toward its row; 1 is fast learning.
    n_voters : int
        Number of networks, trained on different orders of the rows and averaged. The first one uses
        the given order.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`. Whatever the scaling, features are
        rescaled to a range of width 1.

    Attributes
    ----------
    voters_ : list of HARAMNetwork
        Categories, label counts and clusters. A coordinate is a feature's distance from the point
        of its range nearest to 0, in units of the range; so zeros stay zero.
    minimum_, maximum_ : array, (n_features,)
        Range of each feature in the training rows; values outside are clipped.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(300, 5, 6, seed=1)
    >>> HARAM(random_state=0).fit(data.X, data.Y).predict_proba(data.X).shape
    (300, 6)
    """

    scaling: ScalingName = "none"
    vigilance: float = 0.85
    cluster_vigilance: float = 0.7
    searched_fraction: float = 0.2
    vote_threshold: float = 0.03
    choice: float = 1e-3
    learning_rate: float = 1.0
    n_voters: int = 3

    def predict_by_largest_difference(self, X: Any) -> NDArray[np.int64]:
        """Return the labels ranked above the largest drop in score, (n_samples, n_labels).

        This is the rule of the ARAM papers. Every row gets at least one label and, with several
        labels, never all of them. A single label is predicted from a score of 0.5.
        """
        return above_largest_difference(self.predict_proba(X)).astype(np.int64)

    def _fit_rows(self, train: Rows, validation: Rows, seed: int) -> None:
        self._check_parameters()
        self.minimum_, self.maximum_ = (
            dense(extreme).astype(np.float64).ravel()
            for extreme in (train.features.min(axis=0), train.features.max(axis=0))
        )
        inputs = self._inputs(train.features)
        n, rng = len(inputs), np.random.default_rng(seed)
        orders = [np.arange(n), *(rng.permutation(n) for _ in range(self.n_voters - 1))]
        rule = Rule(float(self.vigilance), float(self.choice), float(self.learning_rate))
        cluster_rule = replace(rule, vigilance=float(self.cluster_vigilance))
        self.voters_ = [
            train_network(inputs.take(order), train.take(order), rule, cluster_rule)
            for order in orders
        ]

    def _check_parameters(self) -> None:
        for name in ("vigilance", "cluster_vigilance", "vote_threshold"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise InputError(f"{name} is {value}; it must be between 0 and 1.")
        for name in ("searched_fraction", "learning_rate"):
            if not 0 < (value := getattr(self, name)) <= 1:
                raise InputError(f"{name} is {value}; it must be above 0 and at most 1.")
        if not self.choice > 0:
            raise InputError(f"choice is {self.choice}; it must be above 0.")

    def _inputs(self, features: Matrix) -> Boxes:
        """Return features as points, rescaled to ranges of width 1; see ``voters_``."""
        minimum, maximum = self.minimum_, self.maximum_
        origin = np.clip(0.0, minimum, maximum)
        width = np.where(maximum > minimum, maximum - minimum, 1.0)
        if sp.issparse(features):
            points = sp.csr_array(features, dtype=np.float64, copy=True)
            column = points.indices
            points.data = np.clip(points.data, minimum[column], maximum[column]) - origin[column]
            points.data /= width[column]
            points.eliminate_zeros()
        else:
            points = (np.clip(features.astype(np.float64), minimum, maximum) - origin) / width
        return Boxes.between(points, points)

    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        widest = max(len(voter.categories) for voter in self.voters_)
        step = max(1, _CELLS // max(widest, features.shape[1]))
        is_sparse = sp.issparse(self.voters_[0].categories.lower)
        blocks = []
        for start in range(0, features.shape[0], step):
            inputs, parts = self._inputs(features[start : start + step]), []
            inputs = inputs.sparse() if is_sparse else inputs.dense()
            for voter in self.voters_:
                found = voter.activations(inputs, self.choice, self.searched_fraction)
                parts.append(voter.scores(vote_weights(found, self.vote_threshold)))
            blocks.append(np.mean(parts, axis=0))
        # All voters were trained on the same rows.
        prior = np.clip(self.voters_[0].frequencies(), _MARGIN, 1 - _MARGIN)
        return (1 - _MARGIN) * np.concatenate(blocks) + _MARGIN * prior

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays: dict[str, Any] = {"minimum": self.minimum_, "maximum": self.maximum_}
        for k, voter in enumerate(self.voters_):
            arrays |= {f"{k}.rows": voter.rows, f"{k}.cluster_of": voter.cluster_of}
            matrices = {
                "lower": voter.categories.lower,
                "upper": voter.categories.upper,
                "clusters.lower": voter.clusters.lower,
                "clusters.upper": voter.clusters.upper,
                "positives": voter.positives,
                "unknown": voter.unknown,
            }
            for name, matrix in matrices.items():
                arrays |= matrix_arrays(f"{k}.{name}", matrix)
        return arrays, {"n_voters": len(self.voters_)}

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        self.minimum_, self.maximum_ = arrays["minimum"], arrays["maximum"]
        shape = (self.pipeline_.n_columns,)
        if self.minimum_.shape != shape or self.maximum_.shape != shape:
            raise ValueError("its ranges do not match its features")
        self.voters_ = [
            network_of(with_prefix(arrays, f"{k}."), self.pipeline_.n_columns, self.n_labels_)
            for k in range(description["n_voters"])
        ]
        if not self.voters_:
            raise ValueError("it has no voters")


@dataclass(frozen=True)
class HARAMNetwork:
    """Categories and clusters learned from one order of the rows."""

    categories: Boxes
    """The lower level, n_categories boxes."""
    rows: NDArray[np.float64]
    """Total weight of the rows in each category, (n_categories,)."""
    positives: sp.csr_array
    """Weight of the rows that have a label, (n_categories, n_labels)."""
    unknown: sp.csr_array | None
    """Weight of the rows for which a label is unknown; None if all labels are known."""
    clusters: Boxes
    """The upper level, n_clusters boxes."""
    cluster_of: NDArray[np.int64]
    """The cluster of each category, in increasing order, (n_categories,)."""

    def activations(
        self, inputs: Boxes, choice: float, searched_fraction: float
    ) -> NDArray[np.float64]:
        """Return the activation of each category, −∞ if not searched, (n_inputs, n_categories)."""
        if searched_fraction == 1:
            return activation(inputs, self.categories, choice)
        found = np.full((len(inputs), len(self.categories)), -np.inf)
        order = np.argsort(-activation(inputs, self.clusters, choice), axis=1, kind="stable")
        sizes = np.bincount(self.cluster_of, minlength=len(self.clusters))[order]
        # A cluster is searched if those before it contain too few categories.
        too_few = np.cumsum(sizes, axis=1) - sizes < searched_fraction * len(self.categories)
        opened = np.empty(order.shape, bool)
        np.put_along_axis(opened, order, too_few, axis=1)
        starts = np.searchsorted(self.cluster_of, np.arange(len(self.clusters) + 1))
        for cluster in np.flatnonzero(opened.any(axis=0)):
            rows = np.flatnonzero(opened[:, cluster])
            members = slice(starts[cluster], starts[cluster + 1])
            found[rows, members] = activation(
                inputs.take(rows), self.categories.take(members), choice
            )
        return found

    def scores(self, votes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted fraction of rows that have each label, (n_inputs, n_labels).

        ``votes``, (n_inputs, n_categories), are the :func:`vote_weights`.
        """
        weights = sp.csr_array(votes)
        positives = (weights @ self.positives).toarray()
        total = (weights @ self.rows)[:, None]
        if self.unknown is None:
            return np.minimum(positives / total, 1.0)
        known = total - (weights @ self.unknown).toarray()
        return _share(positives, known, _ROUNDING * total, otherwise=self.frequencies())

    def frequencies(self) -> NDArray[np.float64]:
        """Return the fraction of the training rows that have each label, (n_labels,)."""
        positives = self.positives.sum(axis=0)
        known = np.full(len(positives), self.rows.sum())
        if self.unknown is not None:
            known = known - self.unknown.sum(axis=0)
        return _share(positives, known, _ROUNDING * self.rows.sum(), otherwise=0.0)


def train_network(inputs: Boxes, rows: Rows, rule: Rule, cluster_rule: Rule) -> HARAMNetwork:
    """Learn both levels from rows, in their order; ``inputs`` are their scaled features."""
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
    # Norms are recomputed, as after loading: a saved network must not differ by rounding.
    categories, clusters = (
        Boxes.between(each.lower, each.upper) for each in (categories, clusters)
    )
    return HARAMNetwork(
        categories, taken.sum(axis=1), positives, unknown, clusters, cluster_of[order]
    )


def learn_bound_categories(
    inputs: Boxes, labels: Matrix, unknown: Matrix | None, rule: Rule
) -> tuple[Boxes, NDArray[np.int64]]:
    """Learn categories with one label set each; return them and the category of each row.

    Categories are numbered in the order of their first rows. An unknown label matches either value,
    and the value that other rows of the category have.
    """
    if unknown is not None:
        known = 1 - dense(unknown).astype(np.int8)
        return learn_categories(inputs, rule, (2 * dense(labels).astype(np.int8) - 1) * known)
    # Rows of other label sets can neither join a category nor change it.
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
    """Return the activations of the voting categories, and 0 for all others.

    A category votes if (max − T) / max ≤ threshold · (max − min) over the input's searched
    categories. If all activations are 0, the searched categories have equal weight.
    """
    searched = np.isfinite(activations)
    largest = activations.max(axis=1, keepdims=True)
    smallest = np.where(searched, activations, np.inf).min(axis=1, keepdims=True)
    votes = largest - activations <= threshold * (largest - smallest) * largest
    return np.where(votes, np.where(largest > 0, activations, 1.0), 0.0)


def above_largest_difference(scores: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which labels rank above the largest drop in score, (n_samples, n_labels)."""
    if scores.shape[1] == 1:
        return scores >= 0.5
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    n_taken = np.argmax(ranked[:, :-1] - ranked[:, 1:], axis=1) + 1
    taken = np.empty(scores.shape, bool)
    np.put_along_axis(taken, order, np.arange(scores.shape[1]) < n_taken[:, None], axis=1)
    return taken


def network_of(arrays: dict[str, NDArray[Any]], n_features: int, n_labels: int) -> HARAMNetwork:
    """Restore a network from arrays; raise ValueError if they are inconsistent."""
    rows, cluster_of = arrays["rows"], arrays["cluster_of"]
    whole = cluster_of.dtype.kind == "i"
    in_order = whole and cluster_of.min() == 0 and (np.diff(cluster_of) >= 0).all()
    if rows.ndim != 1 or rows.shape != cluster_of.shape or not in_order:
        raise ValueError("its categories do not match their clusters")
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
    """Return positives / known, or ``otherwise`` where no more than ``least`` is known."""
    enough = known > least
    shares = np.divide(positives, known, where=enough, out=np.zeros_like(known))
    return np.minimum(np.where(enough, shares, otherwise), 1.0)


def _label_sets(labels: Matrix) -> list[NDArray[np.int64]]:
    """Return the row indices of each distinct label set, in order of first occurrence."""
    labels = sp.csr_array(labels, copy=True)
    labels.eliminate_zeros()
    labels.sort_indices()
    groups = defaultdict(list)
    for i, (start, stop) in enumerate(zip(labels.indptr[:-1], labels.indptr[1:], strict=True)):
        groups[labels.indices[start:stop].tobytes()].append(i)
    return [np.array(rows) for rows in groups.values()]


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
        return self._with(dense, self.norms)

    def sparse(self) -> Boxes:
        """Return the boxes with CSR corners."""
        return self._with(sp.csr_array, self.norms)

    def _with(self, change: Callable[[Matrix], Matrix], norms: NDArray[np.float64]) -> Boxes:
        lower = change(self.lower)
        upper = lower if self.upper is self.lower else change(self.upper)
        return Boxes(lower, upper, norms, self.binary)

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
    agreed = np.zeros_like(labels)  # labels of each category, 0 if unknown
    winners = np.empty(len(inputs), np.int64)
    boxes = inputs.take(slice(0))
    step = max(1, min(_BLOCK_ROWS, _BLOCK_CELLS // inputs.lower.shape[1]))
    for start in range(0, len(inputs), step):
        block, n = inputs.take(slice(start, start + step)), len(boxes)
        # Overlaps with the categories are computed for the whole block at once and, after each
        # input, updated for the one category that changed.
        overlaps = np.empty((len(block), n + len(block)))
        overlaps[:, :n] = overlap(block, boxes)
        norms = np.concatenate([boxes.norms, np.empty(len(block))])
        block, changed = block.dense(), dict[int, Boxes]()
        for i, own in enumerate(labels[start : start + step]):
            found = np.flatnonzero(overlaps[i, :n] >= rule.vigilance * block.norms[i])
            found = found[(agreed[found] * own >= 0).all(axis=1)]
            winner = n  # a new category, if none accepts the input
            if len(found):
                winner = int(found[np.argmax(overlaps[i, found] / (rule.choice + norms[found]))])
            winners[start + i] = winner
            agreed[winner] = np.where(agreed[winner] == 0, own, agreed[winner])
            if winner == n:
                n, box = n + 1, block.take([i])
            elif overlaps[i, winner] >= norms[winner]:
                continue  # the box already contains the input
            else:
                box = changed[winner] if winner in changed else boxes.take([winner]).dense()
                box = box.grown(block.take([i]), rule.rate)
            changed[winner], norms[winner] = box, box.norms[0]
            overlaps[i + 1 :, winner] = overlap(block.take(slice(i + 1, None)), box)[:, 0]
        boxes = _replaced(boxes, changed)
    return boxes, winners


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
