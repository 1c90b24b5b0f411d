"""What all figures share: colours, axes, titles of metrics and terms, and the base of displays.

How names are written is in :mod:`~cgmvae.report.figures.names`; what pages share is in
:mod:`~cgmvae.report.figures.interactive`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from cgmvae.errors import InputError

#: Colours that a colour-blind person can tell apart (Okabe and Ito).
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"
GREEN, PURPLE, SKY, AMBER, BLACK = "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"

#: Colours of several series in one plot, the most different first.
SERIES = (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY, BLACK)

#: Marks that tell series apart once the colours are used up, and in print.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

#: From unlike over neither to alike; red and blue differ for every kind of colour vision.
DIVERGING = "RdBu_r"

#: From few to many, evenly in lightness, and never as light as the paper.
SEQUENTIAL = "viridis_r"

#: Points below an axis at which the titles of its scale end.
BELOW = 40.0

_Layout = Literal["constrained", "compressed"]

TITLES = {
    "example_f1": "example-F1",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "hamming_accuracy": "Hamming accuracy",
    "subset_accuracy": "subset accuracy",
    "precision_at_1": "precision@1",
    "average_precision": "average precision",
    "f1": "F1",
    "kl": "KL",
    "cross_entropy": "cross-entropy",
    "validation": "validation metric",
}


def title_of(name: str) -> str:
    """Return how a metric or a term of the loss is called in a figure."""
    return TITLES.get(name, name.replace("_", " "))


def series_style(place: int) -> dict[str, Any]:
    """Return colour, mark and dash of the series at this place, (0, 1, …)."""
    turn, colour = divmod(place, len(SERIES))
    return {
        "color": SERIES[colour],
        "marker": MARKERS[(colour + turn) % len(MARKERS)],
        "linestyle": ("-", "--", ":")[turn % 3],
    }


class Display:
    """Base of the figures: arrays that were computed once, and ``plot`` to draw them.

    Attributes
    ----------
    figure_ : matplotlib Figure
        Set by ``plot``.
    ax_ : matplotlib Axes, or array of them where there are several panels
        Set by ``plot``.
    """

    figure_: Any
    ax_: Any

    def _start(self, ax: Any, size: tuple[float, float], *, equal: bool = False) -> Any:
        """Return the axes to draw on, those given or new ones of this size in inches.

        Where both axes have one scale (``equal``), another layout keeps text from being cut.
        """
        if ax is None:
            ax = _new_figure(size, "compressed" if equal else "constrained").subplots()
        self.figure_, self.ax_ = ax.figure, ax
        return ax

    def _start_panels(self, ax: Any, n: int, size: tuple[float, float], **grid: Any) -> Any:
        """Return n axes, (n,): those given, or those of a new figure with this ``grid``."""
        if ax is None:
            ax = _new_figure(size).subplots(**grid, squeeze=False)
        panels = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
        if len(panels) < n:
            raise InputError(f"This figure has {n} panels; give as many axes, or none.")
        for spare in panels[n:]:
            spare.set_visible(False)
        self.ax_ = panels[:n]
        self.figure_ = panels[0].figure
        return self.ax_


def _new_figure(size: tuple[float, float], layout: _Layout = "constrained") -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout=layout)


def tidy(ax: Any, *, grid: str | None = "both") -> None:
    """Leave of the frame what carries a scale, and draw a faint grid behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    if grid is not None:
        ax.grid(axis=grid, alpha=0.25, linewidth=0.6)


def legend_below(ax: Any, *, n_columns: int = 3, **options: Any) -> Any:
    """Put the legend under the scale of the axes, where it hides no data; return it."""
    from matplotlib.transforms import ScaledTranslation

    lower = ScaledTranslation(0, -BELOW / 72, ax.figure.dpi_scale_trans)
    return ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=ax.transAxes + lower,
        ncols=n_columns,
        frameon=False,
        fontsize=9,
        **options,
    )
