"""Reliability curve: whether labels given a probability of 0.8 are true eight times in ten.

The numbers are those of :mod:`cgmvae.evaluation.calibration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cgmvae.evaluation import (
    CalibrationCurve,
    calibration_curve,
    expected_calibration_error,
)
from cgmvae.methods.inputs import as_targets
from cgmvae.report.figures.style import BLUE, GREY, SKY, Display, tidy


class CalibrationDisplay(Display):
    """Observed share of true labels by predicted probability, with how many cells each bin has.

    Parameters
    ----------
    curve : CalibrationCurve
        Means and counts of the bins, (n_bins,) each.
    error : float
        Expected calibration error; NaN where no cell is known.

    Examples
    --------
    >>> display = CalibrationDisplay.from_predictions([[1, 0]], [[0.9, 0.1]], n_bins=2)
    >>> round(display.error, 3), display.curve.count.tolist()
    (0.1, [1, 1])
    """

    def __init__(self, curve: CalibrationCurve, error: float) -> None:
        self.curve, self.error = curve, error

    @classmethod
    def from_estimator(cls, model: Any, X: Any, Y: Any, *, n_bins: int = 15) -> CalibrationDisplay:
        """Score rows with a fitted model; see :meth:`from_predictions`."""
        names = model.label_names_
        return cls.from_predictions(Y, model.predict_proba(X), label_names=names, n_bins=n_bins)

    @classmethod
    def from_predictions(
        cls,
        Y: Any,
        probabilities: ArrayLike,
        *,
        label_names: Sequence[str] | None = None,
        n_bins: int = 15,
    ) -> CalibrationDisplay:
        """Compare labels in any accepted form (NaN is unknown) with probabilities."""
        targets = as_targets(Y, label_names)
        labels, unknown = targets.labels, targets.unknown
        curve = calibration_curve(labels, probabilities, n_bins=n_bins, unknown=unknown)
        error = expected_calibration_error(labels, probabilities, n_bins=n_bins, unknown=unknown)
        return cls(curve, error)

    def plot(self, ax: Any = None) -> CalibrationDisplay:
        """Draw the curve and, below, the counts; ``ax`` may be two axes for the two."""
        upper, lower = self._start_panels(
            ax, 2, (6, 6.5), nrows=2, ncols=1, sharex=True, height_ratios=(3, 1)
        )
        filled = self.curve.count > 0
        upper.plot([0, 1], [0, 1], color=GREY, lw=1.2, ls="--", label="perfect")
        upper.plot(
            self.curve.predicted[filled],
            self.curve.observed[filled],
            "o-",
            color=BLUE,
            ms=5,
            label="model",
        )
        said = "no known label" if np.isnan(self.error) else f"{self.error:.3f}"
        upper.set_title(f"expected calibration error: {said}", fontsize=10)
        upper.set(ylabel="share of true labels", xlim=(0, 1), ylim=(-0.02, 1.02))
        upper.legend(loc="upper left", frameon=False, fontsize=9)
        self._draw_counts(lower)
        for panel in (upper, lower):
            tidy(panel)
        return self

    def _draw_counts(self, ax: Any) -> None:
        n_bins = len(self.curve.count)
        middles = (np.arange(n_bins) + 0.5) / n_bins
        ax.bar(middles, self.curve.count, width=0.9 / n_bins, color=SKY)
        if self.curve.count.any():
            ax.set_yscale("log")
            ax.set_ylim(bottom=0.8)  # a bar of one cell is seen
        ax.set(xlabel="predicted probability", ylabel="cells", xlim=(0, 1))
