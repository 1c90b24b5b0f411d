"""F1 of each label against how many rows have it: which labels the model misses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.evaluation.metrics import as_bool, known_cells, label_table
from cgmvae.methods.inputs import as_targets
from cgmvae.report.figures.interactive import page_figure
from cgmvae.report.figures.names import escaped, place_names
from cgmvae.report.figures.style import BLUE, GREY, ORANGE, Display, legend_below, tidy

#: Up to so many labels, names keep clear of all points.
_FEW_LABELS = 60

#: Shares in percent that are written on a page.
_PAGE_TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)

#: From this quotient of the largest and the smallest share on, only powers of ten are written.
_WIDE = 1000


class LabelF1Display(Display):
    """F1 of each label, by the share of rows that have it.

    Parameters
    ----------
    share : array, (n_labels,)
        Of the rows that know the label, those that have it.
    f1 : array, (n_labels,)
        NaN for a label neither true nor predicted.
    true, predicted : array, (n_labels,)
        Rows that have the label, and that are predicted to.
    label_names : sequence of str

    Attributes
    ----------
    never_predicted : array of bool, (n_labels,)
        Labels that some rows have and none is predicted to.

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
        """Predict rows with the model's own thresholds and compare with labels in any form."""
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
        """Draw a point a label; grey is what predicting the label everywhere would score.

        Labels without a true row have no place on the logarithmic axis; the title counts them.
        """
        ax = self._start(ax, (8, 6))
        shown = np.flatnonzero(self.true > 0)
        few = len(shown) <= _FEW_LABELS
        missed = self.never_predicted[shown]
        x, y = 100 * self.share, self.f1
        for own, colour, mark, name in (
            (shown[~missed], BLUE, "o", "label"),
            (shown[missed], ORANGE, "X", f"never predicted ({missed.sum():,})"),
        ):
            if len(own):
                ax.scatter(
                    x[own], y[own], s=30 if few else 14, c=colour, marker=mark, lw=0, label=name
                )
        self._draw_guess(ax)
        ax.set_title(self._heading(), fontsize=10)
        self._name(ax, shown, most_names, few=few)
        return self

    def _draw_guess(self, ax: Any) -> None:
        """Draw the F1 of predicting a label in every row, 2p / (1 + p), and set the axes."""
        occurring = self.share[self.share > 0]
        lowest = occurring.min() / 1.5 if len(occurring) else 0.01
        share = np.geomspace(lowest, 1, 100)
        ax.plot(
            100 * share, 2 * share / (1 + share), color=GREY, lw=1.2, label="predicted everywhere"
        )
        ax.set_xscale("log")
        _percent_ticks(ax)
        ax.set(xlabel="rows with the label", ylabel="F1", ylim=(-0.05, 1.05))
        legend_below(ax)
        tidy(ax)

    def _heading(self) -> str:
        absent = int((self.true == 0).sum())
        text = f"{len(self.f1):,} labels"
        return f"{text}; {absent:,} that no row has are not shown" if absent else text

    def _name(self, ax: Any, shown: NDArray[np.int64], most: int, *, few: bool) -> None:
        """Name what stands out first: labels far from what their frequency would give."""
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

    def to_plotly(self) -> Any:
        """Return the points as a plotly figure with names and counts on hovering."""
        figure = page_figure(x="rows with the label (%)", y="F1", showlegend=True)
        figure.update_xaxes(type="log", tickvals=_PAGE_TICKS, ticktext=[*map(str, _PAGE_TICKS)])
        figure.update_yaxes(range=[-0.05, 1.05])
        names = escaped(self.label_names)
        shown = self.true > 0
        for own, colour, symbol, name in (
            (shown & ~self.never_predicted, BLUE, "circle", "label"),
            (self.never_predicted, ORANGE, "x", "never predicted"),
        ):
            places = np.flatnonzero(own)
            figure.add_scatter(
                x=100 * self.share[places],
                y=self.f1[places],
                text=[names[i] for i in places],
                customdata=np.column_stack([self.true, self.predicted])[places],
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 8},
                name=name,
                hovertemplate=(
                    "%{text}<br>F1 %{y:.2f}<br>%{customdata[0]:,} rows have it, "
                    "%{customdata[1]:,} predicted<extra></extra>"
                ),
            )
        return figure


def _percent_ticks(ax: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = ax.get_xlim()
    subs = (1, 2, 5) if high / low < _WIDE else (1,)
    ax.xaxis.set_major_locator(LogLocator(subs=subs))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    ax.xaxis.set_minor_formatter(NullFormatter())
