"""Calibration: whether labels predicted with probability 0.8 are true in 80% of the cases.

Every known cell of the label matrix counts once. How well scores rank the labels, regardless of
their values, is measured in :mod:`cgmvae.evaluation.ranking`. :func:`learn_calibration` corrects
probabilities that are too bold, too timid, or too high or low for a label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import Labels, Mask, as_bool, as_scores, known_cells

#: Bound of the log-odds of scores.
MAX_LOG_ODDS = 15.0

#: To learn a calibration, log-odds are counted in bins of this width; their centers, (n_bins,)
_BIN_WIDTH = 0.25
_CENTERS = np.arange(-MAX_LOG_ODDS, MAX_LOG_ODDS + _BIN_WIDTH, _BIN_WIDTH)

#: Weight of the squared shifts: a rare label with this many positive rows is shifted by half of
#: what they say.
_SHRINKAGE = 20.0

#: The highest temperature, which leaves hardly any difference between rows; its inverse is the
#: lowest.
_MAX_TEMPERATURE = 20.0


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """One point per bin, each (n_bins,); an empty bin has count 0 and NaN for both means."""

    predicted: NDArray[np.float64]
    """Mean predicted probability of the cells in the bin."""
    observed: NDArray[np.float64]
    """Fraction of the cells in the bin that are true."""
    count: NDArray[np.int64]
    """Number of known cells in the bin."""


def calibration_curve(
    Y: Labels, probabilities: ArrayLike, *, n_bins: int = 15, unknown: Mask = None
) -> CalibrationCurve:
    """Compare predicted probabilities with observed frequencies, in bins of equal width.

    Parameters
    ----------
    Y : array or CSR array, (n_samples, n_labels)
        True labels, 0 or 1.
    probabilities : array, (n_samples, n_labels)
        Between 0 and 1. A probability on the boundary of two bins belongs to the upper one.
    n_bins : int
        Number of bins between 0 and 1.
    unknown : array or CSR array of bool, (n_samples, n_labels), optional
        Cells to ignore.

    Examples
    --------
    >>> curve = calibration_curve([[1, 0], [1, 1]], [[0.9, 0.1], [0.7, 0.3]], n_bins=2)
    >>> curve.predicted.round(3).tolist(), curve.observed.tolist(), curve.count.tolist()
    ([0.2, 0.8], [0.5, 1.0], [2, 2])
    """
    if not isinstance(n_bins, int | np.integer) or n_bins < 1:
        raise InputError(f"n_bins must be an integer of at least 1, not {n_bins!r}.")
    true, given = _cells(Y, probabilities, unknown)
    edges = (np.arange(1, n_bins) / n_bins).astype(given.dtype)
    bins = np.searchsorted(edges, given, side="right")
    count = np.bincount(bins, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        return CalibrationCurve(
            predicted=np.bincount(bins, given, n_bins) / count,
            observed=np.bincount(bins, true, n_bins) / count,
            count=count,
        )


def expected_calibration_error(
    Y: Labels, probabilities: ArrayLike, *, n_bins: int = 15, unknown: Mask = None
) -> float:
    """Mean over known cells of the gap between predicted and observed in their bin.

    Parameters as in :func:`calibration_curve`; NaN if no cell is known.

    Examples
    --------
    >>> round(expected_calibration_error([[1, 0], [1, 1]], [[0.9, 0.1], [0.7, 0.3]], n_bins=2), 3)
    0.25
    """
    curve = calibration_curve(Y, probabilities, n_bins=n_bins, unknown=unknown)
    gaps, n_known = np.nan_to_num(np.abs(curve.predicted - curve.observed)), curve.count.sum()
    return float(gaps @ curve.count / n_known) if n_known else float("nan")


def brier_score(Y: Labels, probabilities: ArrayLike, *, unknown: Mask = None) -> float:
    """Mean over known cells of the squared difference between probability and label.

    Parameters as in :func:`calibration_curve`; NaN if no cell is known.

    Examples
    --------
    >>> brier_score([[1, 0]], [[0.5, 0.0]])
    0.125
    """
    true, given = _cells(Y, probabilities, unknown)
    return float(np.mean((given.astype(np.float64) - true) ** 2)) if given.size else float("nan")


@dataclass(frozen=True)
class Calibration:
    """A map of log-odds, increasing for every label: the order of the rows stays as it is."""

    temperature: float
    """The log-odds are divided by it; above 0."""
    shifts: tuple[float, ...]
    """Added to the log-odds of each label after that, (n_labels,)."""

    def apply(self, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the calibrated probabilities, (n_samples, n_labels)."""
        return expit(self.of_log_odds(log_odds(scores))).astype(scores.dtype)

    def of_log_odds(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the calibrated log-odds; the last axis is that of the labels."""
        return values / self.temperature + np.array(self.shifts)


def learn_calibration(
    Y: Labels, scores: ArrayLike, folds: ArrayLike, *, unknown: Mask = None, share: float = 1.0
) -> tuple[Calibration | None, NDArray[np.floating]]:
    """Learn one temperature and a shift per label from out-of-fold probabilities.

    They minimize the log-loss, with shifts that are shrunk toward 0. The temperature gathers or
    spreads the log-odds of a label around their center, so that alone it hardly changes the label's
    mean probability.

    Parameters
    ----------
    Y : array or CSR array, (n_samples, n_labels)
        True labels.
    scores : array, (n_samples, n_labels)
        Probabilities by models that were not trained on the row's fold.
    folds : array of int, (n_samples,)
        The fold of each row.
    unknown : array or CSR array of bool, (n_samples, n_labels), optional
        Cells to ignore.
    share : float
        Power of the temperature that is applied. The mean of several models is less confident than
        the models; if the scores are theirs, it needs less of it.

    Returns
    -------
    calibration : Calibration or None
        Learned on all rows; None if there is one fold, or if calibrating each fold by the others
        does not lower the log-loss.
    scores : array, (n_samples, n_labels)
        The scores, each fold calibrated by the others if that does lower it.
    """
    true, scores = as_bool(Y), as_scores(scores)
    known = known_cells(true, scores, unknown, "scores")
    parts = [np.flatnonzero(np.asarray(folds) == fold) for fold in np.unique(folds)]
    if len(parts) < 2:
        return None, scores
    counts = [_count(true[part], scores[part], known[part]) for part in parts]
    total = np.sum(counts, axis=0)
    of_others = [_fit(total - own, share) for own in counts]
    after = sum(
        _log_loss(found.of_log_odds(_CENTERS[:, None]).T, own)
        for found, own in zip(of_others, counts, strict=True)
    )
    if after >= _log_loss(_CENTERS, total):
        return None, scores
    calibrated = scores.copy()
    for part, found in zip(parts, of_others, strict=True):
        calibrated[part] = found.apply(scores[part])
    return _fit(total, share), calibrated


def log_odds(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the log-odds of probabilities, within bounds."""
    return np.clip(logit(scores.astype(np.float64)), -MAX_LOG_ODDS, MAX_LOG_ODDS)


def _count(
    true: NDArray[np.bool_], scores: NDArray[np.floating], known: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Count negative and positive cells by label and log-odds, (2, n_labels, n_bins)."""
    n_labels, n_bins = true.shape[1], len(_CENTERS)
    bins = np.rint((log_odds(scores) + MAX_LOG_ODDS) / _BIN_WIDTH).astype(np.int64)
    places = (true * n_labels + np.arange(n_labels)) * n_bins + bins
    counts = np.bincount(places[known], minlength=2 * n_labels * n_bins)
    return counts.reshape(2, n_labels, n_bins).astype(np.float32)  # of many labels, large


def _log_loss(odds: NDArray[np.float64], counts: NDArray[np.float32]) -> float:
    """Return the log-loss of counted cells, in total; counts are (2, n_labels, n_bins)."""
    negative, positive = counts
    return float((negative * np.logaddexp(0, odds) + positive * np.logaddexp(0, -odds)).sum())


def _fit(counts: NDArray[np.float32], share: float) -> Calibration:
    """Return the calibration with the lowest penalized log-loss of counted cells."""
    from scipy.optimize import minimize  # slow to import, and describing a model needs none

    positive, n_cells = counts[1], counts.sum(0)
    # Around these centers a temperature changes no mean probability, to first order.
    weight = n_cells * expit(_CENTERS) * expit(-_CENTERS)
    centers = weight @ _CENTERS / weight.sum(1).clip(np.finfo(np.float32).tiny)
    spread = _CENTERS - centers[:, None]

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slope, shifts = parameters[0], parameters[1:]
        odds = slope * spread + (centers + shifts)[:, None]
        excess = n_cells * expit(odds) - positive
        value = _log_loss(odds, counts) + _SHRINKAGE / 2 * float(shifts @ shifts)
        return value, np.append((excess * spread).sum(), excess.sum(1) + _SHRINKAGE * shifts)

    n_labels = len(centers)
    bounds = [(1 / _MAX_TEMPERATURE, _MAX_TEMPERATURE)] + [(None, None)] * n_labels
    start = np.append(1.0, np.zeros(n_labels))
    slope, *shifts = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    slope = float(slope) ** share
    return Calibration(1 / slope, tuple((shifts + (1 - slope) * centers).tolist()))


def _cells(
    Y: Labels, probabilities: ArrayLike, unknown: Mask
) -> tuple[NDArray[np.bool_], NDArray[np.floating]]:
    """Return labels and probabilities of the known cells, each (n_known,)."""
    true, given = as_bool(Y), as_scores(probabilities)
    known = known_cells(true, given, unknown, "probabilities")
    true, given = true[known], given[known]
    if ((given < 0) | (given > 1)).any():
        raise InputError(
            "The probabilities must be between 0 and 1; "
            "convert scores to probabilities first, for example logits with a sigmoid."
        )
    return true, given
