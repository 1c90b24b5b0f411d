"""From scores to labels: threshold rules, and how they are learned from validation rows.

A score equal to the threshold is positive. Thresholds are compared in the precision of the scores.
:func:`sweep` counts true and predicted labels for all thresholds in one pass over the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import (
    SET_METRICS,
    Counts,
    Empty,
    Labels,
    Mask,
    as_bool,
    as_scores,
    known_cells,
)
from cgmvae.evaluation.ranking import best_first

#: The thresholds that the released code of the paper tries.
NINE_THRESHOLDS = np.arange(1, 10) / 10

#: The thresholds that a learned rule may take.
FINE_THRESHOLDS = np.arange(1, 100) / 100

#: Number of positive rows at which a label's own and the global threshold have equal weight.
SHRINKAGE = 20.0

#: Metrics that are means over rows, and the counts of rows.
_BY_ROW = ("example_f1", "subset_accuracy")
_OF_ROWS = ("row_both", "row_predicted", "row_true", "row_known")

#: Rows that are counted at all thresholds at a time.
_ROWS_AT_A_TIME = 2**12

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


def _values(
    metrics: Sequence[str],
    Y: Labels,
    scores: NDArray[np.floating],
    grid: NDArray[np.float64],
    unknown: Mask,
    empty: Empty = 1,
) -> tuple[Counts, dict[str, NDArray[np.float64]]]:
    """Return metrics at every threshold by name, and counts in which all rows are one.

    Rows are counted in blocks: counts of every row at every threshold would take far more memory
    than the scores.
    """
    true = as_bool(Y)
    known = known_cells(true, scores, unknown, "scores")
    by_row = [name for name in metrics if name in _BY_ROW]
    parts, sums = [], []
    for start in range(0, len(true), _ROWS_AT_A_TIME):
        rows = slice(start, start + _ROWS_AT_A_TIME)
        counts = sweep(true[rows], scores[rows], grid, unknown=~known[rows])
        sums.append([counts.row_sums(name, empty) for name in by_row])
        of_rows = {n: getattr(counts, n).sum(-1, keepdims=True) for n in _OF_ROWS}
        parts.append(replace(counts, **of_rows))
    names = [each.name for each in fields(Counts)]
    total = Counts(*(reduce(np.add, [getattr(part, name) for part in parts]) for name in names))
    values = {name: total.value(name) for name in metrics if name not in _BY_ROW}
    for name, of_blocks in zip(by_row, zip(*sums, strict=True), strict=True):
        score, n_rows = (reduce(np.add, each) for each in zip(*of_blocks, strict=True))
        values[name] = score / n_rows.clip(1)
    return total, {name: np.asarray(values[name], np.float64) for name in metrics}


def check_choice(rule: str, metric: str) -> None:
    """Raise if there is no such threshold rule, or no metric that one can maximize."""
    if rule not in get_args(RuleName):
        raise InputError(f"There is no rule {rule!r}; choose global, per-label or top-k.")
    if metric not in SET_METRICS:
        raise InputError(f"There is no metric {metric!r}; choose one of {', '.join(SET_METRICS)}.")


@dataclass(frozen=True, eq=False)
class ThresholdCurve:
    """Each metric against the threshold, on rows that the model was not trained on."""

    values: dict[str, NDArray[np.float64]]
    """By metric, at each of ``FINE_THRESHOLDS``."""
    n_rows: int
    out_of_fold: bool
    """Whether each row was scored by models that did not see it; otherwise these are validation
    rows, which may also have chosen the epoch of a network."""


def threshold_curve(
    Y: Labels, scores: ArrayLike, *, unknown: Mask = None, out_of_fold: bool
) -> ThresholdCurve:
    """Return the curves of all metrics of ``SET_METRICS``."""
    scores = as_scores(scores)
    _, values = _values(SET_METRICS, Y, scores, FINE_THRESHOLDS, unknown)
    return ThresholdCurve(values, len(scores), out_of_fold)


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
    check_choice(rule, metric)
    scores, grid = as_scores(scores), np.asarray(thresholds, dtype=np.float64)
    if rule == "top-k":  # a threshold on the rank of each label: n_labels for the best, 1 the worst
        n_labels = scores.shape[1]
        ranks = np.empty(scores.shape)
        np.put_along_axis(ranks, best_first(scores), np.arange(n_labels, 0.0, -1)[None], axis=1)
        grid = np.arange(1.0, n_labels + 1)
        _, found = _values([metric], Y, ranks, grid, unknown, empty)
        return TopK(n_labels - int(_middle_best(found[metric])))
    counts, found = _values([metric], Y, scores, grid, unknown, empty)
    values = found[metric]
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
