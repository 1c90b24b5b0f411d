"""Calibration: whether labels predicted with probability 0.8 are true in 80% of the cases.

Every known cell of the label matrix counts once. How well scores rank the labels, regardless of
their values, is measured in :mod:`cgmvae.evaluation.ranking`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import Labels, Mask, as_bool, as_scores, known_cells


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
