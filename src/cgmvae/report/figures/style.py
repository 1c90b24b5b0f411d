"""What all figures share: colors, axes, titles, the base class of displays, and text.

Names of labels, features and methods are drawn as plain text on one line, never interpreted as a
formula, and placed so that they do not overlap.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import METRIC_TITLES

#: A palette for color-blind readers (Okabe and Ito).
BLUE, ORANGE, GRAY = "#0072B2", "#D55E00", "#999999"
GREEN, PURPLE, SKY, AMBER, BLACK = "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"

#: Colors of several series in one plot, the most different first.
SERIES = (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY, BLACK)

#: Markers that distinguish series once the colors are used up, and in print.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

#: For similarities: blue is negative, red is positive.
DIVERGING = "RdBu_r"

#: For counts: perceptually uniform, and never as light as the background.
SEQUENTIAL = "viridis_r"

#: Distance in points from an axis to the end of its tick labels and title.
BELOW = 40.0

#: Inches that a column of a legend takes.
LEGEND_COLUMN = 2.0

#: Longer names are shortened in figures.
MAX_NAME_LENGTH = 28

#: Up to this many labels, maps are small, markers large, and names do not cover points.
FEW_LABELS = 60

#: Line height in units of the font size.
LINE_HEIGHT = 1.25

#: Directions from a point in which its name may be placed, in order of preference.
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))

#: A plane is divided into this many parts per direction, which are named evenly.
_PARTS = 8

#: Names that are tried for each that may be drawn; more would hardly fit.
_TRIES = 5

#: Distance between a marker and its name in points.
_GAP = 5.0

Values = NDArray[np.float64]

TITLES = METRIC_TITLES | {
    "hamming_accuracy": "Hamming accuracy",
    "precision_at_1": "precision@1",
    "f1": "F1",
    "kl": "KL",
    "cross_entropy": "cross-entropy",
    "validation": "validation metric",
}


def title_of(name: str) -> str:
    """Return the title of a metric or of a loss term in a figure."""
    return TITLES.get(name, name.replace("_", " "))


def series_style(index: int) -> dict[str, Any]:
    """Return color, marker and line style of the series with this index."""
    turn, color = divmod(index, len(SERIES))
    return {
        "color": SERIES[color],
        "marker": MARKERS[(color + turn) % len(MARKERS)],
        "linestyle": ("-", "--", ":")[turn % 3],
    }


class Display:
    """Base class of figures: arrays that are computed once, and ``plot`` to draw them.

    Attributes
    ----------
    size : tuple of float, optional
        Width and height of new figures in inches; by default they suit the display.
    figure_ : matplotlib Figure
        Set by ``plot``.
    ax_ : matplotlib Axes, or array of them if there are several panels
        Set by ``plot``.
    """

    size: tuple[float, float] | None = None
    figure_: Any
    ax_: Any

    def plot(self, ax: Any = None) -> Any:
        """Draw on the given axes or on those of a new figure; return the display."""
        raise NotImplementedError

    def _start(self, ax: Any, size: tuple[float, float], *, equal: bool = False) -> Any:
        """Return the given axes, or those of a new figure of this size in inches.

        With an equal aspect ratio (``equal``), another layout keeps text from being cut off.
        """
        from matplotlib.figure import Figure

        if ax is None:
            layout: Any = "compressed" if equal else "constrained"
            ax = Figure(self.size or size, layout=layout).subplots()
        self.figure_, self.ax_ = ax.figure, ax
        return ax

    def _start_panels(self, ax: Any, n: int, size: tuple[float, float], **grid: Any) -> Any:
        """Return n axes, (n,): the given ones, or those of a new figure with this ``grid``."""
        from matplotlib.figure import Figure

        if ax is None:
            ax = Figure(self.size or size, layout="constrained").subplots(**grid, squeeze=False)
        panels = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
        if len(panels) < n:
            raise InputError(f"This figure has {n} panels; pass as many axes, or none.")
        for spare in panels[n:]:
            spare.set_visible(False)
        self.figure_, self.ax_ = panels[0].figure, panels[:n]
        return self.ax_


def tidy(ax: Any, *, grid: str | None = "both") -> None:
    """Remove the spines without ticks, and draw a light grid behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    if grid is not None:
        ax.grid(axis=grid, alpha=0.25, linewidth=0.6)


def legend_below(ax: Any, *, n_columns: int = 3) -> None:
    """Put the legend below the axes, where it hides no data."""
    from matplotlib.transforms import ScaledTranslation

    n_columns = min(n_columns, max(int(ax.figure.get_figwidth() // LEGEND_COLUMN), 1))
    lower = ax.transAxes + ScaledTranslation(0, -BELOW / 72, ax.figure.dpi_scale_trans)
    legend = ax.legend(ncols=n_columns, frameon=False, fontsize=9, loc="upper center")
    legend.set_bbox_to_anchor((0.5, 0), lower)


def index_of(label: str, names: Sequence[str]) -> int:
    """Return the index of a label."""
    if label not in names:
        raise InputError(f"There is no label {label!r}; see label_names.")
    return list(names).index(label)


def one_line(name: str, max_length: int = MAX_NAME_LENGTH) -> str:
    """Return a name without line breaks and control characters, shortened in the middle if long.

    Examples
    --------
    >>> one_line("a very long name indeed", max_length=11)
    'a ver…ndeed'
    """
    text = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    if len(text) <= max_length:
        return text
    end = (max_length - 1) // 2
    return f"{text[: max_length - 1 - end]}…{text[-end:]}"


def place_names(
    ax: Any,
    points: NDArray[np.floating],
    names: Sequence[str],
    *,
    order: Iterable[int] | None = None,
    most: int = 80,
    size: float = 8.0,
    avoid_points: bool = True,
) -> list[int]:
    """Draw names next to their points if they fit; return the indices of the drawn names.

    Data and limits of the axes must be set; points, (n, 2), are in data coordinates. At most
    ``most`` of the names in ``order`` are drawn, the most important first (by default all names may
    be), at a font size in points. They may cover other points unless ``avoid_points``.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    ax.figure.canvas.figure.draw_without_rendering()  # computes the layout
    frame = ax.get_window_extent()
    radius = _GAP / 2 * ax.figure.dpi / 72
    centers = ax.transData.transform(points) if avoid_points else ()
    taken = [Bbox([center - radius, center + radius]) for center in centers]
    written: list[int] = []
    wanted = range(len(points)) if order is None else order
    for i in itertools.islice(wanted, _TRIES * most):
        if len(written) == most:
            break
        text = ax.annotate(
            one_line(names[i]),
            points[i],
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=size,
            parse_math=False,
            in_layout=False,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )
        for dx, dy in _SIDES:
            text.set(
                position=(dx * _GAP, dy * _GAP),
                ha=("right", "center", "left")[dx + 1],
                va=("top", "center", "bottom")[dy + 1],
            )
            box = text.get_window_extent()
            inside = (box.min >= frame.min).all() and (box.max <= frame.max).all()
            if inside and not (taken and box.count_overlaps(taken)):
                taken.append(box)
                written.append(i)
                break
        else:
            text.remove()
    return written


def spread_order(
    points: NDArray[np.floating], weight: NDArray[np.floating] | None = None
) -> list[int]:
    """Return an order in which to name points: the most important of each part of the plane first.

    Points are (n, 2), their importance (n,); ties keep their order.
    """
    weight = np.zeros(len(points)) if weight is None else weight
    extent = np.ptp(points, axis=0)
    cells = (points - points.min(axis=0)) / np.where(extent > 0, extent, 1) * _PARTS
    part_of = [tuple(cell) for cell in cells.clip(0, _PARTS - 1).astype(int).tolist()]
    turns, seen = {}, Counter[tuple[int, ...]]()
    for i in np.argsort(-weight, kind="stable").tolist():
        turns[i] = seen[part_of[i]]
        seen[part_of[i]] += 1
    return sorted(turns, key=turns.__getitem__)
