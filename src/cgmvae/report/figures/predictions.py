"""Quality of predictions: F1 per label, metrics against the threshold, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.evaluation import (
    CalibrationCurve,
    ThresholdRule,
    calibration_curve,
    expected_calibration_error,
    sweep,
)
from cgmvae.evaluation.metrics import SET_METRICS, as_bool, known_cells, label_table
from cgmvae.evaluation.thresholds import FINE_THRESHOLDS, NINE_THRESHOLDS
from cgmvae.methods.inputs import as_targets
from cgmvae.report.figures.style import (
    BLUE,
    GREY,
    ORANGE,
    SKY,
    Display,
    legend_below,
    place_names,
    series_style,
    tidy,
    title_of,
)

#: Up to this many labels, names do not cover points.
_FEW_LABELS = 60


#: From this ratio of the largest to the smallest share on, only powers of ten are ticks.
_WIDE = 1000

#: Central share of the per-label thresholds that is drawn as a band.
_BAND = 0.9


class LabelF1Display(Display):
    """F1 of each label against the share of rows that have it.

    Parameters
    ----------
    share : array, (n_labels,)
        Share of rows with the label among those where it is known.
    f1 : array, (n_labels,)
        NaN for a label that is neither true nor predicted.
    true, predicted : array, (n_labels,)
        Number of rows that have the label, and that are predicted to have it.
    label_names : sequence of str

    Attributes
    ----------
    never_predicted : array of bool, (n_labels,)
        Labels that occur but are never predicted.

    Examples
    --------
    >>> display = LabelF1Display.from_predictions([[1, 0], [1, 1]], [[1, 0], [1, 0]])
    >>> display.f1.tolist(), display.share.tolist(), display.never_predicted.tolist()
    ([1.0, 0.0], [1.0, 0.5], [False, True])
    """

    def __init__(
        self,
        share: NDArray[np.float64],
        f1: NDArray[np.float64],
        *,
        true: NDArray[np.float64],
        predicted: NDArray[np.float64],
        label_names: Sequence[str],
    ) -> None:
        self.share, self.f1, self.label_names = share, f1, label_names
        self.true, self.predicted = true, predicted
        self.never_predicted = (predicted == 0) & (true > 0)

    @classmethod
    def from_estimator(cls, model: Any, X: Any, Y: Any) -> LabelF1Display:
        """Predict rows with the model's own thresholds; see :meth:`from_predictions`."""
        return cls.from_predictions(Y, model.predict(X), label_names=model.label_names_)

    @classmethod
    def from_predictions(
        cls, Y: Any, predicted: Any, *, label_names: Sequence[str] | None = None
    ) -> LabelF1Display:
        """Compare true and predicted labels, (n_samples, n_labels) each; NaN in Y is unknown."""
        targets = as_targets(Y, label_names)
        table = label_table(targets.labels, predicted, unknown=targets.unknown)
        true = as_bool(targets.labels)
        known = known_cells(true, true, targets.unknown, "labels").sum(0)
        return cls(
            table["true"] / np.maximum(known, 1),
            table["f1"],
            true=table["true"],
            predicted=table["predicted"],
            label_names=targets.names,
        )

    def plot(self, ax: Any = None, *, most_names: int = 60) -> LabelF1Display:
        """Draw one point per label; the grey line is the F1 of always predicting the label.

        Labels that do not occur cannot be drawn on the logarithmic axis; the title counts them.
        """
        ax = self._start(ax, (8, 6))
        shown = np.flatnonzero(self.true > 0)
        few = len(shown) <= _FEW_LABELS
        missed = self.never_predicted[shown]
        x, y = 100 * self.share, self.f1
        for own, color, marker, name in (
            (shown[~missed], BLUE, "o", "label"),
            (shown[missed], ORANGE, "X", f"never predicted ({missed.sum():,})"),
        ):
            if len(own):
                ax.scatter(
                    x[own], y[own], s=30 if few else 14, c=color, marker=marker, lw=0, label=name
                )
        self._draw_guess(ax)
        ax.set_title(self._heading(), fontsize=10)
        self._name(ax, shown, most_names, few=few)
        return self

    def _draw_guess(self, ax: Any) -> None:
        """Draw the F1 of predicting a label for every row, 2p / (1 + p), and set the axes."""
        occurring = self.share[self.share > 0]
        lowest = occurring.min() / 1.5 if len(occurring) else 0.01
        share = np.geomspace(lowest, 1, 100)
        ax.plot(100 * share, 2 * share / (1 + share), color=GREY, lw=1.2, label="always predicted")
        ax.set_xscale("log")
        _percent_ticks(ax)
        ax.set(xlabel="rows with the label", ylabel="F1", ylim=(-0.05, 1.05))
        legend_below(ax)
        tidy(ax)

    def _heading(self) -> str:
        absent = int((self.true == 0).sum())
        text = f"{len(self.f1):,} labels"
        return f"{text}; {absent:,} without a row are not shown" if absent else text

    def _name(self, ax: Any, shown: NDArray[np.int64], most: int, *, few: bool) -> None:
        """Name the most unusual labels first: those far from the line."""
        share = self.share[shown]
        surprise = np.abs(self.f1[shown] - 2 * share / (1 + share))
        points = np.column_stack([100 * self.share, self.f1])[shown]
        place_names(
            ax,
            points,
            [self.label_names[i] for i in shown],
            order=np.argsort(-surprise, kind="stable").tolist(),
            most=most,
            size=8 if few else 6.5,
            avoid_points=few,
        )


def _percent_ticks(ax: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = ax.get_xlim()
    subs = (1, 2, 5) if high / low < _WIDE else (1,)
    ax.xaxis.set_major_locator(LogLocator(subs=subs))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    ax.xaxis.set_minor_formatter(NullFormatter())


class ThresholdCurveDisplay(Display):
    """Metrics against the threshold: curves, the paper's nine thresholds, and the chosen one.

    Use validation rows: a threshold chosen on test rows flatters the model.

    Parameters
    ----------
    thresholds : array, (n_thresholds,)
    values : mapping of str to array (n_thresholds,)
        Each metric at each threshold.
    grid : array, (n_grid,)
        Thresholds that are drawn as points.
    grid_values : mapping of str to array (n_grid,)
    rule : ThresholdRule, optional
        The threshold rule of the model.

    Attributes
    ----------
    best : dict of str to float
        The lowest of ``thresholds`` at which each metric is best.
    chosen : array, (n_chosen,)
        The thresholds of ``rule``: one, one per label, or none.

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
        chosen = getattr(rule, "threshold", getattr(rule, "thresholds", ()))
        self.chosen = np.atleast_1d(np.asarray(chosen, np.float64))

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
            Expected names of the columns of ``Y``, if it has names.
        metrics : sequence of str
            Of ``cgmvae.evaluation.metrics.SET_METRICS``.
        thresholds : array, (n_thresholds,)
            Increasing.
        rule : ThresholdRule, optional
            The threshold rule of the model, to be marked.
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
        """Draw one curve per metric, its maximum as a star, and the chosen threshold."""
        ax = self._start(ax, (8, 5.5))
        self._mark_chosen(ax)
        for index, (name, curve) in enumerate(self.values.items()):
            color = series_style(index)["color"]
            ax.plot(self.thresholds, curve, color=color, lw=1.8, label=title_of(name))
            ax.scatter(self.grid, self.grid_values[name], s=14, color=color, zorder=3)
            ax.plot(self.best[name], curve.max(), "*", color=color, ms=13, mec="white", zorder=4)
        ax.plot([], [], "*", color="grey", ms=11, label="best")
        ax.plot([], [], "o", color="grey", ms=4, label="the paper's thresholds")
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


class CalibrationDisplay(Display):
    """Observed share of true labels against the predicted probability, and the size of each bin.

    Parameters
    ----------
    curve : CalibrationCurve
        Means and counts per bin, (n_bins,) each.
    error : float
        Expected calibration error; NaN if no label is known.

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
        """Draw the curve and the counts below it; ``ax`` may be two axes."""
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
        error = "no known label" if np.isnan(self.error) else f"{self.error:.3f}"
        upper.set_title(f"expected calibration error: {error}", fontsize=10)
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
            ax.set_ylim(bottom=0.8)  # bars of one cell stay visible
        ax.set(xlabel="predicted probability", ylabel="cells", xlim=(0, 1))
