"""From scores to labels: threshold rules, and how they are learned from validation rows.

A score equal to the threshold is positive. Thresholds are compared in the precision of the scores.
:func:`sweep` counts true and predicted labels for all thresholds in one pass over the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import Counts, Empty, Labels, Mask, as_bool, as_scores, known_cells
from cgmvae.evaluation.ranking import best_first

#: The thresholds that the released code of the paper tries.
NINE_THRESHOLDS = np.arange(1, 10) / 10

#: The thresholds that a learned rule may take.
FINE_THRESHOLDS = np.arange(1, 100) / 100

#: Number of positive rows at which a label's own and the global threshold have equal weight.
SHRINKAGE = 20.0

RuleName = Literal["global", "per-label", "top-k"]


@dataclass(frozen=True)
class GlobalThreshold:
    """One threshold for all labels."""

    threshold: float

    def apply(self, scores: NDArray[np.floating]) -> NDArray[np.uint8]:
        """Return the labels whose score is at least the threshold, (n_samples, n_labels)."""
        scores = as_scores(scores)
        return (scores >= scores.dtype.type(self.threshold)).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class LabelThresholds:
    """One threshold per label, (n_labels,)."""

    thresholds: NDArray[np.float64]

    def apply(self, scores: NDArray[np.floating]) -> NDArray[np.uint8]:
        """Return the labels whose score is at least their threshold, (n_samples, n_labels)."""
        scores = as_scores(scores)
        return (scores >= self.thresholds.astype(scores.dtype)).astype(np.uint8)


@dataclass(frozen=True)
class TopK:
    """The k labels with the highest scores per row; among equal scores, the first."""

    k: int

    def apply(self, scores: NDArray[np.floating]) -> NDArray[np.uint8]:
        """Return the k best labels of each row, (n_samples, n_labels)."""
        scores = as_scores(scores)
        predicted = np.zeros(scores.shape, np.uint8)
        np.put_along_axis(predicted, best_first(scores)[:, : self.k], 1, axis=1)
        return predicted


ThresholdRule = GlobalThreshold | LabelThresholds | TopK


def describe_rule(rule: ThresholdRule) -> dict[str, Any]:
    """Return a rule for JSON: its name with its threshold, its thresholds or its k.

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
    Y: Labels, scores: ArrayLike, thresholds: ArrayLike = NINE_THRESHOLDS, *, unknown: Mask = None
) -> Counts:
    """Count true and predicted labels at every threshold.

    Parameters
    ----------
    Y : array or CSR array, (n_samples, n_labels)
        True labels.
    scores : array, (n_samples, n_labels)
        Higher means more likely.
    thresholds : array, (n_thresholds,)
        In increasing order.
    unknown : array or CSR array of bool, optional
        Cells to ignore.

    Returns
    -------
    Counts
        With a leading axis of length n_thresholds.

    Examples
    --------
    >>> sweep([[1, 0]], np.array([[0.9, 0.4]]), [0.3, 0.5]).micro_f1().round(3).tolist()
    [0.667, 1.0]
    """
    grid = np.asarray(thresholds, dtype=np.float64)
    if grid.ndim != 1 or grid.size == 0 or not (np.diff(grid) >= 0).all():
        raise InputError(
            "The thresholds must be at least one number in increasing order; sort them."
        )
    true, scores = as_bool(Y), as_scores(scores)
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
        row_known=known.sum(1),
    )


def _at_least(
    lines: NDArray[np.int64], bins: NDArray[np.int64], n_lines: int, n_bins: int
) -> NDArray[np.int64]:
    """Count the cells at or above each threshold in each line (a row or a label)."""
    table = np.bincount((lines * n_bins + bins).ravel(), minlength=n_lines * n_bins)
    table = table.reshape(n_lines, n_bins)
    return table[:, ::-1].cumsum(1)[:, ::-1][:, 1:].T  # (n_bins - 1, n_lines)


def learn_rule(
    Y: Labels,
    scores: ArrayLike,
    *,
    rule: RuleName = "global",
    metric: str = "micro_f1",
    thresholds: ArrayLike = FINE_THRESHOLDS,
    unknown: Mask = None,
    empty: Empty = 1,
) -> ThresholdRule:
    """Learn the threshold rule that maximizes a metric on these rows.

    Parameters
    ----------
    Y : array or CSR array, (n_samples, n_labels)
        True labels of the validation rows.
    scores : array, (n_samples, n_labels)
        Their scores; higher means more likely.
    rule : {"global", "per-label", "top-k"}
        ``per-label`` shrinks each label's own best threshold toward the global one, halfway at
        ``SHRINKAGE`` positive rows.
    metric : str
        The metric to maximize, one of ``SET_METRICS``.
    thresholds : array, (n_thresholds,)
        Candidate thresholds, in increasing order.
    unknown : array or CSR array of bool, (n_samples, n_labels), optional
        Cells to ignore.
    empty : {"skip", 0, 1}
        Score of 0/0 rows in ``example_f1``, as in :func:`~cgmvae.evaluation.example_f1`.
    """
    scores, grid = as_scores(scores), np.asarray(thresholds, dtype=np.float64)
    if rule == "top-k":  # a threshold on the rank of each label: n_labels for the best, 1 the worst
        n_labels = scores.shape[1]
        ranks = np.empty(scores.shape)
        np.put_along_axis(ranks, best_first(scores), np.arange(n_labels, 0.0, -1)[None], axis=1)
        counts = sweep(Y, ranks, np.arange(1.0, n_labels + 1), unknown=unknown)
        return TopK(n_labels - int(_middle_best(counts.value(metric, empty))))
    if rule not in ("global", "per-label"):
        raise InputError(f"There is no rule {rule!r}; choose global, per-label or top-k.")
    counts = sweep(Y, scores, grid, unknown=unknown)
    values = counts.value(metric, empty)
    shared = float(grid[_middle_best(values)])
    if rule == "global":
        return GlobalThreshold(shared)
    # Macro-F1 and Hamming accuracy are sums over labels. Micro-F1 is a ratio; at its optimum F, a
    # label contributes by 2·both − F·(true + predicted). Per-row metrics are not sums over labels
    # and use the same expression.
    both, total = 2 * counts.label_both, counts.label_true + counts.label_predicted
    if metric == "macro_f1":
        gains = both / total.clip(1)
    else:
        gains = both - (1 if metric == "hamming_accuracy" else values.max()) * total
    own = grid[_middle_best(gains, axis=0)]
    weight = counts.label_true / (counts.label_true + SHRINKAGE)
    return LabelThresholds(shared + weight * (own - shared))


def _middle_best(values: NDArray[np.float64], axis: int = -1) -> NDArray[np.int64]:
    """Return the index of the best value; among equal values, the middle one."""
    rank = (values == values.max(axis, keepdims=True)).cumsum(axis)
    middle = (rank.max(axis, keepdims=True) + 1) // 2
    return (rank >= middle).argmax(axis)


def certain_limits(
    truth: Labels, scores: NDArray[np.floating], precision: float, *, unknown: Mask = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the scores up to which each label is surely absent, and from which on surely present.

    Sure means that of the known rows on that side at least the share ``precision`` is right,
    counting a further row that is wrong, and that at most the share 1 − ``precision`` of all rows
    that would be wrong there is among them: otherwise all rows would be sure to lack a rare label.

    Parameters
    ----------
    truth : array or sparse matrix, (n_samples, n_labels)
    scores : array, (n_samples, n_labels)
    precision : float
        Between .5 and 1.
    unknown : array or sparse matrix of bool, (n_samples, n_labels), optional

    Returns
    -------
    absent, present : array, (n_labels,)
        −∞ and ∞ where too few rows say so: one needs precision / (1 − precision) of them.

    Examples
    --------
    >>> scores = np.linspace(0, 1, 11)[:, None]
    >>> certain_limits(scores > 0.45, scores, 0.8)
    (array([0.4]), array([0.5]))
    """
    labels, scores = as_bool(truth), as_scores(scores).astype(np.float64)
    known = known_cells(labels, scores, unknown, "scores")
    columns = [(labels[own, i], scores[own, i]) for i, own in enumerate(known.T)]
    absent = [-_least_sure(~found, -own, precision) for found, own in columns]
    present = [_least_sure(found, own, precision) for found, own in columns]
    return np.array(absent), np.array(present)


def _least_sure(right: NDArray[np.bool_], scores: NDArray[np.float64], precision: float) -> float:
    """Return the least score such that rows from there on are right often enough; ∞ if none is."""
    order = np.argsort(-scores, kind="stable")
    right, scores = right[order], scores[order]
    n_right, n_rows = np.cumsum(right), np.arange(1, len(right) + 1)
    is_precise = n_right >= precision * (n_rows + 1)
    leaves_most = n_rows - n_right <= (1 - precision) * (~right).sum()
    # Rows of equal scores are on the same side.
    is_last = np.diff(scores, append=-np.inf) < 0
    sure = scores[is_precise & leaves_most & is_last]
    return float(sure[-1]) if len(sure) else np.inf
