"""Bootstrap confidence intervals of metrics, over rows or groups of rows.

The metrics of the paper's tables are means of ratios of sums over rows. A resample weights each row
by how often it was drawn, so all resamples together are one matrix product of weights and per-row
contributions. Any other metric is a function that is computed again for each resample.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cgmvae.data.dataset import Matrix, row_values
from cgmvae.data.splits import group_numbers
from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import (
    SET_METRICS,
    Absent,
    Labels,
    Mask,
    as_bool,
    as_scores,
    known_cells,
)
from cgmvae.evaluation.ranking import rank

#: With fewer rows, or groups of rows, resamples hardly differ from each other, and an interval
#: would be far too narrow: there is none.
MIN_UNITS = 10

#: Weights in memory at a time; 32 MiB as float64.
BLOCK_CELLS = 2**22

#: A name in ``NAMED_METRICS``, or a function of labels and outputs (and ``unknown=`` if given).
Metric = str | Callable[..., float]

#: Metrics that are resampled by matrix products. They take predicted labels, except
#: ``precision_at_1``, which takes scores.
NAMED_METRICS = (*SET_METRICS, "precision_at_1")


class Interval(NamedTuple):
    """A metric on the given rows, and the bounds of its bootstrap interval, or NaN."""

    value: float
    low: float
    high: float


class _Terms(NamedTuple):
    """A metric as the mean over columns of sum(numerators) / sum(denominators) over rows."""

    numerators: NDArray[np.floating]  # (n_rows, n_columns)
    denominators: NDArray[np.floating]  # (n_rows, n_columns), whole numbers
    undefined: float = 0.0  # the value of 0/0
    occurs: NDArray[np.floating] | None = None  # (n_rows, n_columns); average where its sum is > 0

    def of_units(self, members: Any) -> _Terms:
        """Return the sums over the rows of each unit, for membership (n_units, n_rows)."""
        occurs = None if self.occurs is None else members @ self.occurs
        parts, wholes = members @ self.numerators, members @ self.denominators
        return _Terms(parts, wholes, self.undefined, occurs)

    def weighted(self, weights: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the metric for each set of weights, (n_sets, n_rows) -> (n_sets,)."""
        weights = weights.astype(self.numerators.dtype)
        parts = (weights @ self.numerators).astype(np.float64)
        wholes = (weights @ self.denominators).astype(np.float64)
        values = np.where(wholes > 0, parts / wholes.clip(1), self.undefined)
        if self.occurs is None:
            return values.mean(1)
        occur = weights @ self.occurs > 0
        return (values * occur).sum(1) / occur.sum(1).clip(1)


def bootstrap_interval(
    metric: Metric,
    Y: Labels,
    outputs: ArrayLike,
    *,
    unknown: Mask = None,
    groups: ArrayLike | None = None,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    absent: Absent = "skip",
) -> Interval:
    """Compute a metric and its bootstrap interval.

    The bounds are the percentiles of the resampled values, shifted so that their median is the
    metric: F1 of rare labels tends to be lower in resamples, which miss some of their few rows.
    With fewer than ten rows (or groups), the bounds are NaN.

    Parameters
    ----------
    metric : str or callable
        One of ``PAPER_METRICS`` or ``subset_accuracy``, or a function such as :func:`macro_auc`,
        called as ``metric(Y, outputs)``, with ``unknown=`` if a mask is given.
    Y : array or CSR array, (n_samples, n_labels)
        True labels, 0 or 1.
    outputs : array, (n_samples, n_labels)
        Input of the metric: predicted labels, or scores for ``precision_at_1``.
    unknown : array or CSR array of bool, (n_samples, n_labels), optional
        Cells to ignore.
    groups : array, (n_samples,), optional
        Rows of the same group are drawn together; use it if they are not independent.
    n_resamples : int
        Number of resamples; each draws as many rows (or groups) as there are, with replacement.
    confidence : float
        Fraction of the resampled values between the bounds; NaN values are ignored.
    seed : int
        Seed of the resampling.
    absent : {"skip", 0}
        Score in ``macro_f1`` of labels without a true row, as in
        :func:`~cgmvae.evaluation.macro_f1`. In a resample, too, labels that do not occur are left
        out.

    Examples
    --------
    >>> Y = [[1, 0], [0, 1], [1, 1], [1, 0]] * 5
    >>> bootstrap_interval("subset_accuracy", Y, [[1, 0], [0, 1], [1, 0], [1, 0]] * 5)
    Interval(value=0.75, low=0.55, high=0.95)
    """
    draws = _Draws(Y, groups, n_resamples, seed)
    value, resampled = _resample(metric, Y, outputs, unknown, draws, absent)
    low, high = draws.bounds(value, resampled, confidence)
    if not callable(metric):
        low, high = np.maximum(low, 0.0), np.minimum(high, 1.0)
    return Interval(value, float(low), float(high))


def label_skills(
    Y: Labels,
    scores: ArrayLike,
    *,
    unknown: Mask = None,
    groups: ArrayLike | None = None,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Interval]:
    """Compute how much better probabilities of each label are than its frequency on these rows.

    The skill is 1 − Σ(p − y)² / Σ(f − y)², where f is the share of rows with the label: 1 if the
    probabilities are those of an oracle, 0 if they say no more than f, and below 0 if they say
    less. It is NaN for a label that does not vary. Parameters as in :func:`bootstrap_interval`.

    Examples
    --------
    >>> Y, scores = [[1, 0], [0, 0]] * 5, [[0.9, 0.1], [0.1, 0.1]] * 5
    >>> owl, hawk = label_skills(Y, scores)
    >>> round(owl.value, 2), hawk.value
    (0.96, nan)
    """
    true, scores = as_bool(Y), as_scores(scores)
    known = known_cells(true, scores, unknown, "scores")
    true = true & known
    error = np.where(known, (scores - true) ** 2, 0.0)

    def skill(error: Any, true: Any, known: Any) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore", divide="ignore"):
            skill = 1 - error / (true * (known - true) / known)
        return np.where((true > 0) & (true < known), skill, np.nan)

    return _by_label(skill, (error, true, known), _Draws(Y, groups, n_resamples, seed), confidence)


def gains_over_always(
    Y: Labels,
    predicted: ArrayLike,
    *,
    unknown: Mask = None,
    groups: ArrayLike | None = None,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Interval]:
    """Compute the F1 of each label minus the F1 of predicting it for every row.

    NaN for a label without a true row. Parameters as in :func:`bootstrap_interval`.

    Examples
    --------
    >>> [owl] = gains_over_always([[1], [1], [0]], [[1], [1], [0]])
    >>> round(owl.value, 2)
    0.2
    """
    true, guess = as_bool(Y), as_bool(predicted, "predictions")
    known = known_cells(true, guess, unknown, "predictions")
    true, guess = true & known, guess & known

    def gain(both: Any, true: Any, guess: Any, known: Any) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore", divide="ignore"):
            gain = 2 * both / (true + guess) - 2 * true / (true + known)
        return np.where(true > 0, gain, np.nan)

    sums = (true & guess, true, guess, known)
    return _by_label(gain, sums, _Draws(Y, groups, n_resamples, seed), confidence)


def _by_label(
    metric: Callable[..., NDArray[np.float64]],
    cells: Sequence[NDArray[Any]],
    draws: _Draws,
    confidence: float,
) -> list[Interval]:
    """Return the interval of each label, for a metric of the sums over rows of these cells.

    The cells are (n_rows, n_labels) each.
    """
    rows = np.arange(len(draws.unit_of_row))
    members = sp.csr_array((np.ones(len(rows), np.float32), (draws.unit_of_row, rows)))
    units = [members @ each.astype(np.float32) for each in cells]

    def weighted(weights: NDArray[np.int64]) -> NDArray[np.float64]:
        w = weights.astype(np.float32)
        return metric(*((w @ each).astype(np.float64) for each in units))

    value = metric(*(each.sum(0, dtype=np.float64) for each in cells))
    low, high = draws.bounds(value, np.concatenate([*map(weighted, draws.blocks())]), confidence)
    limits = zip(value.tolist(), low.tolist(), np.minimum(high, 1.0).tolist(), strict=True)
    return [Interval(*each) for each in limits]


def paired_difference(
    metric: Metric,
    Y: Labels,
    first: ArrayLike,
    second: ArrayLike,
    *,
    unknown: Mask = None,
    groups: ArrayLike | None = None,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Compute the difference of a metric between two outputs, on the same resamples.

    Parameters as in :func:`bootstrap_interval`. If the interval contains 0, the two do not differ
    significantly on these rows.

    Examples
    --------
    >>> paired_difference("micro_f1", [[1, 0], [0, 1]], [[1, 0], [0, 1]], [[1, 0], [0, 0]]).value
    0.33333333333333337
    """
    draws = _Draws(Y, groups, n_resamples, seed)
    value, resampled = _resample(metric, Y, first, unknown, draws)
    other_value, other_resampled = _resample(metric, Y, second, unknown, draws)
    gain = value - other_value
    low, high = draws.bounds(gain, resampled - other_resampled, confidence)
    return Interval(gain, float(low), float(high))


class _Draws:
    """The resamples, as weights of units; a unit is a row or a group of rows."""

    def __init__(self, Y: Any, groups: ArrayLike | None, n_resamples: int, seed: int) -> None:
        n_rows = _by_rows(Y).shape[0]
        if n_resamples < 1:
            raise InputError(f"n_resamples must be at least 1, not {n_resamples}.")
        if n_rows == 0:
            raise InputError("There are no rows to resample; give at least one.")
        names = np.arange(n_rows) if groups is None else row_values(groups, "groups", n_rows)
        self.n_units, self.unit_of_row = group_numbers(names)  # the latter is (n_rows,)
        self.n_resamples, self.seed = n_resamples, seed

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        """Yield how often each unit is drawn, (n_block, n_units), identically on every call."""
        rng = np.random.default_rng(self.seed)
        n_units, step = self.n_units, max(1, BLOCK_CELLS // self.n_units)
        for start in range(0, self.n_resamples, step):
            size = min(step, self.n_resamples - start)
            drawn = rng.integers(n_units, size=(size, n_units))
            drawn += np.arange(size)[:, None] * n_units
            yield np.bincount(drawn.ravel(), minlength=size * n_units).reshape(size, n_units)

    def bounds(self, value: Any, resampled: NDArray[np.float64], confidence: float) -> Any:
        """Return the bounds of the central values, shifted so that their median is the value.

        The value is a number or (n,), the resampled ones have one axis more. Bounds that would say
        nothing are NaN.
        """
        if not 0 < confidence < 1:
            raise InputError(f"confidence must be between 0 and 1, such as 0.95, not {confidence}.")
        if self.n_units < MIN_UNITS:
            return np.full((2, *np.shape(value)), np.nan)
        tail = (1 - confidence) / 2
        with warnings.catch_warnings():  # of values that no resample defines
            warnings.simplefilter("ignore", RuntimeWarning)
            low, median, high = np.nanquantile(resampled, [tail, 0.5, 1 - tail], axis=0)
        return low - median + value, high - median + value


def _resample(
    metric: Metric, Y: Any, outputs: Any, unknown: Any, draws: _Draws, absent: Absent = "skip"
) -> tuple[float, NDArray[np.float64]]:
    """Return the metric on all rows and on each resample, (n_resamples,)."""
    rows = np.arange(len(draws.unit_of_row))
    if not callable(metric):
        terms = _terms(metric, Y, outputs, unknown, absent)
        ones = np.ones(len(rows), terms.numerators.dtype)
        members = sp.csr_array((ones, (draws.unit_of_row, rows)))  # (n_units, n_rows)
        units = terms.of_units(members)
        whole = units.weighted(np.ones((1, draws.n_units), np.int64))
        return float(whole[0]), np.concatenate([units.weighted(w) for w in draws.blocks()])
    Y, outputs = _by_rows(Y), _by_rows(outputs)
    masks = {} if unknown is None else {"unknown": _by_rows(unknown)}

    def value(rows: NDArray[np.int64]) -> float:
        return metric(Y[rows], outputs[rows], **{name: mask[rows] for name, mask in masks.items()})

    drawn = (np.repeat(rows, w[draws.unit_of_row]) for block in draws.blocks() for w in block)
    return float(value(rows)), np.array([value(chosen) for chosen in drawn], dtype=np.float64)


def _terms(metric: str, Y: Any, outputs: Any, unknown: Any, absent: Absent) -> _Terms:
    if metric not in NAMED_METRICS:
        raise InputError(
            f"There is no metric {metric!r} to resample by name; "
            f"choose one of {', '.join(NAMED_METRICS)}, or pass a function."
        )
    if metric == "precision_at_1":
        precision = rank(Y, outputs, unknown).precision_at_k(1)
        return _columns(np.nan_to_num(precision), ~np.isnan(precision), np.nan)
    true, guess = as_bool(Y), as_bool(outputs, "predictions")
    known = known_cells(true, guess, unknown, "predictions")
    true, guess = true & known, guess & known
    if metric == "macro_f1":  # float32 is exact: no sum reaches 2**24 below eight million rows
        total = np.add(true, guess, dtype=np.float32)
        both = 2 * (true & guess).astype(np.float32)
        return _Terms(both, total, occurs=true.astype(np.float32) if absent == "skip" else None)
    both, total = 2 * (true & guess).sum(1), true.sum(1) + guess.sum(1)
    counted = known.sum(1) > 0
    if metric == "micro_f1":
        return _columns(both, total)
    if metric == "example_f1":
        return _columns(np.where(total == 0, counted, both / total.clip(1)), counted)
    if metric == "hamming_accuracy":
        return _columns(known.sum(1) - (total - both), known.sum(1))
    return _columns((total == both) & counted, counted)


def _columns(
    numerators: NDArray[Any], denominators: NDArray[Any], undefined: float = 0.0
) -> _Terms:
    """Return the terms of a metric that is a single ratio, from per-row contributions."""
    parts, wholes = (x.astype(np.float64)[:, None] for x in (numerators, denominators))
    return _Terms(parts, wholes, undefined)


def _by_rows(table: ArrayLike | Matrix) -> Any:
    return sp.csr_array(table) if sp.issparse(table) else np.asarray(table)
