"""How every metric depends on the threshold, and where the chosen one lies.

The curves are those of :func:`cgmvae.evaluation.sweep`. Give validation rows: a threshold chosen on
test rows flatters the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.evaluation import GlobalThreshold, LabelThresholds, ThresholdRule, sweep
from cgmvae.evaluation.metrics import SET_METRICS
from cgmvae.evaluation.thresholds import FINE_THRESHOLDS, NINE_THRESHOLDS
from cgmvae.methods.inputs import as_targets
from cgmvae.report.figures.style import Display, legend_below, series_style, tidy, title_of

#: Of the thresholds of single labels, the band that holds this share of them is drawn.
_BAND = 0.9


class ThresholdCurveDisplay(Display):
    """Metrics by threshold: fine curves, the paper's nine thresholds as points, the chosen one.

    Parameters
    ----------
    thresholds : array, (n_thresholds,)
    values : mapping of str to array (n_thresholds,)
        Each metric at each of them.
    grid : array, (n_grid,)
        The thresholds that are drawn as points.
    grid_values : mapping of str to array (n_grid,)
    rule : ThresholdRule, optional
        The rule that the model uses.

    Attributes
    ----------
    best : dict of str to float
        The threshold of ``thresholds`` at which each metric is best; of several, the lowest.
    chosen : array, (n_chosen,)
        The thresholds of ``rule``: one, one a label, or none where it has no threshold.

    Examples
    --------
    >>> display = ThresholdCurveDisplay.from_predictions([[1, 0]], [[0.9, 0.4]])
    >>> display.best["micro_f1"], display.grid_values["micro_f1"].round(2).tolist()[:5]
    (0.41, [0.67, 0.67, 0.67, 0.67, 1.0])
    """

    def __init__(
        self,
        thresholds: NDArray[np.float64],
        values: dict[str, NDArray[np.float64]],
        *,
        grid: NDArray[np.float64],
        grid_values: dict[str, NDArray[np.float64]],
        rule: ThresholdRule | None = None,
    ) -> None:
        self.thresholds, self.values = thresholds, values
        self.grid, self.grid_values, self.rule = grid, grid_values, rule
        self.best = {name: float(thresholds[curve.argmax()]) for name, curve in values.items()}
        self.chosen = _thresholds_of(rule)

    @classmethod
    def from_estimator(
        cls, model: Any, X: Any, Y: Any, *, metrics: Sequence[str] = SET_METRICS
    ) -> ThresholdCurveDisplay:
        """Score (validation) rows with a fitted model; see :meth:`from_predictions`."""
        return cls.from_predictions(
            Y,
            model.predict_proba(X),
            label_names=model.label_names_,
            metrics=metrics,
            rule=model.threshold_rule_,
        )

    @classmethod
    def from_predictions(
        cls,
        Y: Any,
        scores: ArrayLike,
        *,
        label_names: Sequence[str] | None = None,
        metrics: Sequence[str] = SET_METRICS,
        thresholds: ArrayLike = FINE_THRESHOLDS,
        rule: ThresholdRule | None = None,
    ) -> ThresholdCurveDisplay:
        """Sweep the thresholds.

        Parameters
        ----------
        Y : labels in any accepted form, (n_samples, n_labels)
            NaN is unknown.
        scores : array, (n_samples, n_labels)
        label_names : sequence of str, optional
            Names that the columns of ``Y`` must have, where it has names.
        metrics : sequence of str
            Of ``cgmvae.evaluation.metrics.SET_METRICS``.
        thresholds : array, (n_thresholds,)
            Increasing.
        rule : ThresholdRule, optional
            The rule that the model uses, to be marked.
        """
        targets = as_targets(Y, label_names)

        def curves(grid: ArrayLike) -> dict[str, NDArray[np.float64]]:
            counts = sweep(targets.labels, scores, grid, unknown=targets.unknown)
            return {name: np.asarray(counts.value(name), np.float64) for name in metrics}

        return cls(
            np.asarray(thresholds, np.float64),
            curves(thresholds),
            grid=NINE_THRESHOLDS,
            grid_values=curves(NINE_THRESHOLDS),
            rule=rule,
        )

    def plot(self, ax: Any = None) -> ThresholdCurveDisplay:
        """Draw a curve a metric, its best point as a star, and the chosen threshold."""
        ax = self._start(ax, (8, 5.5))
        self._mark_chosen(ax)
        for place, (name, curve) in enumerate(self.values.items()):
            colour = series_style(place)["color"]
            ax.plot(self.thresholds, curve, color=colour, lw=1.8, label=title_of(name))
            ax.scatter(self.grid, self.grid_values[name], s=14, color=colour, zorder=3)
            ax.plot(self.best[name], curve.max(), "*", color=colour, ms=13, mec="white", zorder=4)
        ax.plot([], [], "*", color="grey", ms=11, label="best")
        ax.plot([], [], "o", color="grey", ms=4, label="the nine thresholds")
        ax.set(xlabel="threshold", ylabel="metric", xlim=(0, 1))
        ax.set_ylim(bottom=0)
        legend_below(ax, n_columns=4)
        tidy(ax)
        return self

    def _mark_chosen(self, ax: Any) -> None:
        if len(self.chosen) == 1:
            at = self.chosen[0]
            ax.axvline(at, color="black", lw=1.2, ls="--", label=f"chosen, {at:.2f}")
        elif len(self.chosen) > 1:
            low, middle, high = np.quantile(self.chosen, [(1 - _BAND) / 2, 0.5, (1 + _BAND) / 2])
            ax.axvspan(low, high, color="black", alpha=0.08, lw=0, label=f"{_BAND:.0%} of labels")
            ax.axvline(middle, color="black", lw=1.2, ls="--", label=f"chosen, median {middle:.2f}")


def _thresholds_of(rule: ThresholdRule | None) -> NDArray[np.float64]:
    if isinstance(rule, GlobalThreshold):
        return np.array([rule.threshold])
    if isinstance(rule, LabelThresholds):
        return np.asarray(rule.thresholds, np.float64)
    return np.empty(0)
