"""Quality of predictions: F1 per label, metrics against the threshold, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cgmvae.errors import InputError
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
    FEW_LABELS,
    GRAY,
    ORANGE,
    SKY,
    Display,
    Values,
    legend_below,
    place_names,
    series_style,
    tidy,
    title_of,
)

#: From this ratio of the largest to the smallest share on, only powers of ten are ticks.
_WIDE = 1000

#: Central share of the per-label thresholds that is drawn as a band.
_BAND = 0.9

#: Bins of the probabilities in a calibration curve.
_N_BINS = 15


@dataclass(eq=False, repr=False)
class LabelF1Display(Display):
    """F1 of each label against the share of rows that have it.

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

    share: Values
    """Share of rows with the label among those where it is known, (n_labels,)."""
    f1: Values
    """(n_labels,); NaN for a label that is neither true nor predicted."""
    _: KW_ONLY
    true: Values
    """Number of rows that have the label, (n_labels,)."""
    predicted: Values
    """Number of rows that are predicted to have it, (n_labels,)."""
    label_names: Sequence[str]

    def __post_init__(self) -> None:
        self.never_predicted = (self.predicted == 0) & (self.true > 0)

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

    def plot(self, ax: Any = None, *, max_names: int = 60) -> LabelF1Display:
        """Draw one point per label; the gray line is the F1 of always predicting the label.

        Labels that do not occur cannot be drawn on the logarithmic axis; the title counts them.
        """
        from matplotlib.ticker import LogLocator, NullFormatter

        ax = self._start(ax, (8, 6))
        shown = np.flatnonzero(self.true > 0)
        few = len(shown) <= FEW_LABELS
        missed = self.never_predicted[shown]
        points = np.column_stack([100 * self.share, self.f1])
        for own, color, marker, name in (
            (shown[~missed], BLUE, "o", "label"),
            (shown[missed], ORANGE, "X", f"never predicted ({missed.sum():,})"),
        ):
            if len(own):
                size = 30 if few else 14
                ax.scatter(*points[own].T, s=size, c=color, marker=marker, lw=0, label=name)
        lowest = self.share[self.share > 0].min(initial=1.0) / 1.5
        share = np.geomspace(lowest, 1, 100)
        ax.plot(100 * share, _f1_if_always(share), color=GRAY, lw=1.2, label="always predicted")
        ax.set_xscale("log")
        low, high = ax.get_xlim()
        subs = (1, 2, 5) if high / low < _WIDE else (1,)
        ax.xaxis.set_major_locator(LogLocator(subs=subs))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}%")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set(xlabel="rows with the label", ylabel="F1", ylim=(-0.05, 1.05))
        legend_below(ax)
        tidy(ax)
        absent = len(self.f1) - len(shown)
        verb = "is" if absent == 1 else "are"
        note = f"; {absent:,} without a row {verb} not shown" if absent else ""
        ax.set_title(f"{len(self.f1):,} labels{note}", fontsize=10)
        # The most unusual labels are named first: those far from the line.
        surprise = np.abs(self.f1[shown] - _f1_if_always(self.share[shown]))
        place_names(
            ax,
            points[shown],
            [self.label_names[i] for i in shown.tolist()],
            order=np.argsort(-surprise, kind="stable").tolist(),
            most=max_names,
            size=8,
            avoid_points=few,
        )
        return self


def _f1_if_always(share: Values) -> Values:
    """Return the F1 of predicting a label for every row, given the share of rows that have it."""
    return 2 * share / (1 + share)


@dataclass(eq=False, repr=False)
class ThresholdCurveDisplay(Display):
    """Metrics against the threshold: curves, the paper's nine thresholds, and the chosen one.

    Use rows that the model was not trained on, as :meth:`from_fit` does; a threshold chosen on test
    rows flatters the model.

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

    thresholds: Values
    """(n_thresholds,)."""
    values: dict[str, Values]
    """Each metric at each threshold, (n_thresholds,)."""
    _: KW_ONLY
    grid: Values
    """Thresholds that are drawn as points, (n_grid,)."""
    grid_values: dict[str, Values]
    """Each metric at each of them, (n_grid,)."""
    rule: ThresholdRule | None = None
    """The threshold rule of the model."""

    def __post_init__(self) -> None:
        best = {name: self.thresholds[curve.argmax()] for name, curve in self.values.items()}
        self.best = {name: float(threshold) for name, threshold in best.items()}
        chosen = getattr(self.rule, "threshold", getattr(self.rule, "thresholds", ()))
        self.chosen = np.atleast_1d(np.asarray(chosen, np.float64))

    @classmethod
    def from_fit(cls, model: Any) -> ThresholdCurveDisplay:
        """Show the curves that ``fit`` kept, of the rows on which it learned the rule."""
        curve = getattr(model, "threshold_curve_", None)
        if curve is None:
            raise InputError("The model keeps no threshold curves; fit it again.")
        grid = np.searchsorted(FINE_THRESHOLDS, NINE_THRESHOLDS - 1e-9)
        return cls(
            FINE_THRESHOLDS,
            curve.values,
            grid=NINE_THRESHOLDS,
            grid_values={name: values[grid] for name, values in curve.values.items()},
            rule=model.threshold_rule_,
        )

    @classmethod
    def from_predictions(
        cls,
        Y: Any,
        scores: ArrayLike,
        *,
        label_names: Sequence[str] | None = None,
        rule: ThresholdRule | None = None,
    ) -> ThresholdCurveDisplay:
        """Sweep all thresholds over scores, (n_samples, n_labels).

        Labels are in any accepted form, NaN where unknown, and have the expected names if they
        have names; the threshold rule of the model is marked.
        """
        targets = as_targets(Y, label_names)

        def curves(grid: ArrayLike) -> dict[str, Values]:
            counts = sweep(targets.labels, scores, grid, unknown=targets.unknown)
            return {name: np.asarray(counts.value(name), np.float64) for name in SET_METRICS}

        return cls(
            FINE_THRESHOLDS,
            curves(FINE_THRESHOLDS),
            grid=NINE_THRESHOLDS,
            grid_values=curves(NINE_THRESHOLDS),
            rule=rule,
        )

    def plot(self, ax: Any = None) -> ThresholdCurveDisplay:
        """Draw one curve per metric, its maximum as a star, and the chosen threshold."""
        ax = self._start(ax, (8, 5.5))
        if len(self.chosen) > 1:
            low, high = np.quantile(self.chosen, [(1 - _BAND) / 2, (1 + _BAND) / 2])
            ax.axvspan(low, high, color="black", alpha=0.08, lw=0, label=f"{_BAND:.0%} of labels")
        if len(self.chosen):
            at, kind = np.median(self.chosen), "median " if len(self.chosen) > 1 else ""
            ax.axvline(at, color="black", lw=1.2, ls="--", label=f"chosen, {kind}{at:.2f}")
        for index, (name, curve) in enumerate(self.values.items()):
            color = series_style(index)["color"]
            ax.plot(self.thresholds, curve, color=color, lw=1.8, label=title_of(name))
            ax.scatter(self.grid, self.grid_values[name], s=14, color=color, zorder=3)
            ax.plot(self.best[name], curve.max(), "*", color=color, ms=13, mec="white", zorder=4)
        ax.plot([], [], "*", color="gray", ms=11, label="best")
        ax.plot([], [], "o", color="gray", ms=4, label="the paper's thresholds")
        ax.set(xlabel="threshold", ylabel="metric", xlim=(0, 1))
        ax.set_ylim(bottom=0)
        legend_below(ax, n_columns=4)
        tidy(ax)
        return self


@dataclass(eq=False, repr=False)
class CalibrationDisplay(Display):
    """Observed share of true labels against the predicted probability, and the size of each bin.

    Examples
    --------
    >>> display = CalibrationDisplay.from_predictions([[1, 0]], [[0.9, 0.1]])
    >>> round(display.error, 3), int(display.curve.count.sum())
    (0.1, 2)
    """

    curve: CalibrationCurve
    """Means and counts per bin, (n_bins,) each."""
    error: float
    """Expected calibration error; NaN if no label is known."""

    @classmethod
    def from_predictions(
        cls,
        Y: Any,
        probabilities: ArrayLike,
        *,
        label_names: Sequence[str] | None = None,
    ) -> CalibrationDisplay:
        """Compare labels in any accepted form (NaN is unknown) with probabilities."""
        targets = as_targets(Y, label_names)
        labels, unknown = targets.labels, targets.unknown
        curve = calibration_curve(labels, probabilities, n_bins=_N_BINS, unknown=unknown)
        error = expected_calibration_error(labels, probabilities, n_bins=_N_BINS, unknown=unknown)
        return cls(curve, error)

    def plot(self, ax: Any = None) -> CalibrationDisplay:
        """Draw the curve and the counts below it; ``ax`` may be two axes."""
        upper, lower = self._start_panels(
            ax, 2, (6, 6.5), nrows=2, ncols=1, sharex=True, height_ratios=(3, 1)
        )
        count = self.curve.count
        observed, predicted = self.curve.observed[count > 0], self.curve.predicted[count > 0]
        upper.plot([0, 1], [0, 1], color=GRAY, lw=1.2, ls="--", label="perfect")
        upper.plot(predicted, observed, "o-", color=BLUE, ms=5, label="model")
        error = "no known label" if np.isnan(self.error) else f"{self.error:.3f}"
        upper.set_title(f"expected calibration error: {error}", fontsize=10)
        upper.set(ylabel="share of true labels", xlim=(0, 1), ylim=(-0.02, 1.02))
        upper.legend(loc="upper left", frameon=False, fontsize=9)
        middles = (np.arange(len(count)) + 0.5) / len(count)
        lower.bar(middles, count, width=0.9 / len(count), color=SKY)
        if count.any():
            lower.set_yscale("log")
            lower.set_ylim(bottom=0.8)  # bars of one cell stay visible
        lower.set(xlabel="predicted probability", ylabel="cells", xlim=(0, 1))
        for panel in (upper, lower):
            tidy(panel)
        return self
