"""From scores to label sets: threshold rules, and how they are learnt from validation rows.

A score equal to the threshold counts as positive. Thresholds are compared in the scores' own
precision. :func:`sweep` counts all thresholds in one pass over the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import Counts, Empty, as_bool, as_scores, known_cells
from cgmvae.evaluation.ranking import best_first

#: The thresholds that the released code of the paper tries.
NINE_THRESHOLDS = np.arange(1, 10) / 10

#: The thresholds that a learnt rule may take.
FINE_THRESHOLDS = np.arange(1, 100) / 100

#: Positive rows at which a label's own threshold weighs as much as the global one.
SHRINKAGE = 20.0

RuleName = Literal["global", "per-label", "top-k"]


@dataclass(frozen=True)
class GlobalThreshold:
    """One threshold for all labels."""

    threshold: float

    def apply(self, scores: NDArray[np.floating]) -> NDArray[np.uint8]:
        """Return the labels whose score reaches the threshold, (n_samples, n_labels)."""
        scores = as_scores(scores)
        return (scores >= scores.dtype.type(self.threshold)).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class LabelThresholds:
    """A threshold for each label, (n_labels,)."""

    thresholds: NDArray[np.float64]

    def apply(self, scores: NDArray[np.floating]) -> NDArray[np.uint8]:
        """Return the labels whose score reaches their threshold, (n_samples, n_labels)."""
        scores = as_scores(scores)
        return (scores >= self.thresholds.astype(scores.dtype)).astype(np.uint8)


@dataclass(frozen=True)
class TopK:
    """The k labels with the highest scores of each row; of equal scores, the first."""

    k: int

    def apply(self, scores: NDArray[np.floating]) -> NDArray[np.uint8]:
        """Return the k best labels of each row, (n_samples, n_labels)."""
        scores = as_scores(scores)
        best = best_first(scores)[:, : self.k]
        predicted = np.zeros(scores.shape, np.uint8)
        np.put_along_axis(predicted, best, 1, axis=1)
        return predicted


ThresholdRule = GlobalThreshold | LabelThresholds | TopK


def describe_rule(rule: ThresholdRule) -> dict[str, Any]:
    """Return a rule as JSON can hold it: its name with its threshold, its thresholds or its k.

    Examples
    --------
    >>> describe_rule(GlobalThreshold(0.4)), describe_rule(TopK(3))
    ({'rule': 'global', 'threshold': 0.4}, {'rule': 'top-k', 'k': 3})
    """
    if isinstance(rule, GlobalThreshold):
        return {"rule": "global", "threshold": rule.threshold}
    if isinstance(rule, TopK):
        return {"rule": "top-k", "k": rule.k}
    return {"rule": "per-label", "thresholds": rule.thresholds.tolist()}


def sweep(
    Y: ArrayLike | Matrix,
    scores: ArrayLike,
    thresholds: ArrayLike = NINE_THRESHOLDS,
    *,
    unknown: Matrix | None = None,
) -> Counts:
    """Count true and predicted labels at every threshold.

    Parameters
    ----------
    Y : array or CSR array, (n_samples, n_labels)
        True labels.
    scores : array, (n_samples, n_labels)
        Higher means more likely.
    thresholds : array, (n_thresholds,)
        Increasing.
    unknown : array or CSR array of bool, optional
        Cells to leave out.

    Returns
    -------
    Counts
        With a leading axis of length n_thresholds.

    Examples
    --------
    >>> sweep([[1, 0]], np.array([[0.9, 0.4]]), [0.3, 0.5]).micro_f1().round(3).tolist()
    [0.667, 1.0]
    """
    scores, grid = as_scores(scores), _increasing(thresholds)
    true = as_bool(Y)
    known = known_cells(true, scores, unknown, "scores")
    passed = np.searchsorted(grid.astype(scores.dtype), scores, side="right")
    (n_rows, n_labels), n_bins = true.shape, len(grid) + 1
    passed, true = np.where(known, passed, 0), true & known
    every_row, every_label = np.arange(n_rows)[:, None], np.arange(n_labels)
    rows, labels = np.nonzero(true)
    hit = passed[rows, labels]
    return Counts(
        label_both=_at_least(labels, hit, n_labels, n_bins),
        label_predicted=_at_least(every_label, passed, n_labels, n_bins),
        label_true=true.sum(0),
        row_both=_at_least(rows, hit, n_rows, n_bins),
        row_predicted=_at_least(every_row, passed, n_rows, n_bins),
        row_true=true.sum(1),
        n_known=int(known.sum()),
    )


def _increasing(thresholds: ArrayLike) -> NDArray[np.float64]:
    grid = np.asarray(thresholds, dtype=np.float64)
    if grid.ndim != 1 or grid.size == 0 or not (np.diff(grid) >= 0).all():
        raise InputError("The thresholds must be a list of at least one number; sort it upwards.")
    return grid


def _at_least(
    places: NDArray[np.int64], bins: NDArray[np.int64], n_places: int, n_bins: int
) -> NDArray[np.int64]:
    """Count, for each threshold and place, the cells of the place that pass the threshold."""
    table = np.bincount((places * n_bins + bins).ravel(), minlength=n_places * n_bins)
    table = table.reshape(n_places, n_bins)
    return table[:, ::-1].cumsum(1)[:, ::-1][:, 1:].T  # (n_bins - 1, n_places)


def learn_rule(
    Y: ArrayLike | Matrix,
    scores: ArrayLike,
    *,
    rule: RuleName = "global",
    metric: str = "micro_f1",
    thresholds: ArrayLike = FINE_THRESHOLDS,
    unknown: Matrix | None = None,
    empty: Empty = "skip",
) -> ThresholdRule:
    """Learn the threshold rule that is best on these rows for one metric.

    Parameters
    ----------
    Y : array or CSR array, (n_samples, n_labels)
        True labels of the validation rows.
    scores : array, (n_samples, n_labels)
        Their scores; higher means more likely.
    rule : {"global", "per-label", "top-k"}
        ``per-label`` starts from each label's own best threshold and draws it towards the global
        one, half-way at ``SHRINKAGE`` positive rows.
    metric : str
        The metric to be best in, one of ``SET_METRICS``.
    thresholds : array, (n_thresholds,)
        What a threshold may be, increasing.
    unknown : array or CSR array of bool, (n_samples, n_labels), optional
        Cells to leave out.
    empty : {"skip", 0, 1}
        What 0/0 rows score in ``example_f1``.
    """
    scores, grid = as_scores(scores), _increasing(thresholds)
    if rule == "top-k":
        return _learn_top_k(Y, scores, metric, unknown, empty)
    if rule not in ("global", "per-label"):
        raise InputError(f"There is no rule {rule!r}; choose global, per-label or top-k.")
    counts = sweep(Y, scores, grid, unknown=unknown)
    values = counts.value(metric, empty)
    shared = float(grid[_middle_best(values)])
    if rule == "global":
        return GlobalThreshold(shared)
    own = grid[_middle_best(_label_gains(counts, metric, float(values.max())), axis=0)]
    weight = counts.label_true / (counts.label_true + SHRINKAGE)
    return LabelThresholds(shared + weight * (own - shared))


def _label_gains(counts: Counts, metric: str, best: float) -> NDArray[np.float64]:
    """Return what each label contributes at each threshold, (n_thresholds, n_labels).

    Macro-F1 and Hamming accuracy are sums over labels. Micro-F1 is a quotient; at its optimum F a
    label gains by what raises 2·both − F·(true + predicted). The metrics of rows do not divide
    into labels and take the same.
    """
    total = counts.label_true + counts.label_predicted
    if metric == "macro_f1":
        return 2 * counts.label_both / total.clip(1)
    if metric == "hamming_accuracy":
        return 2 * counts.label_both - total
    return 2 * counts.label_both - best * total


def _middle_best(values: NDArray[np.float64], axis: int = -1) -> NDArray[np.int64]:
    """Return the index of the best value; of equally good ones, the middle one."""
    rank = (values == values.max(axis, keepdims=True)).cumsum(axis)
    middle = (rank.max(axis, keepdims=True) + 1) // 2
    return (rank >= middle).argmax(axis)


def _learn_top_k(
    Y: ArrayLike | Matrix,
    scores: NDArray[np.floating],
    metric: str,
    unknown: Matrix | None,
    empty: Empty,
) -> TopK:
    n_labels = scores.shape[1]
    ranks = np.empty(scores.shape)
    falling = np.arange(n_labels, 0.0, -1)[None, :]
    np.put_along_axis(ranks, best_first(scores), falling, axis=1)
    counts = sweep(Y, ranks, np.arange(1.0, n_labels + 1), unknown=unknown)
    best = int(_middle_best(counts.value(metric, empty)))
    return TopK(n_labels - best)
