"""Names of labels, features and methods as text: one line, never markup, never one over another."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.errors import InputError

#: Names longer than this are shortened in pictures; pages show them whole.
LONGEST = 28

#: What text takes beyond its font size, from one line to the next.
LINE_HEIGHT = 1.25

#: Directions in which a name may lie from its point, the best first.
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))

#: A plane is named evenly by parts, so many in each direction.
_PARTS = 8

#: Names that are tried for each that may be written; the rest would hardly find room.
_TRIES = 5

#: Points between a mark and its name.
_GAP = 5.0


def names_for(names: Sequence[str] | None, n: int, kind: str = "label") -> tuple[str, ...]:
    """Return n names, ``label_0 …`` where none are given."""
    if names is None:
        return tuple(f"{kind}_{i}" for i in range(n))
    if len(names) != n:
        raise InputError(
            f"There are {len(names):,} {kind} names for {n:,} {kind}s; give one for each."
        )
    return tuple(str(name) for name in names)


def place_of(label: str, names: Sequence[str]) -> int:
    """Return where a label is among those of a figure."""
    if label not in names:
        raise InputError(f"There is no label {label!r}; see label_names.")
    return list(names).index(label)


def one_line(name: str, longest: int = LONGEST) -> str:
    """Return a name without line breaks and control characters, shortened in the middle.

    Examples
    --------
    >>> one_line("a very long name indeed", longest=11)
    'a ver…ndeed'
    """
    text = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    if len(text) <= longest:
        return text
    end = (longest - 1) // 2
    return f"{text[: longest - 1 - end]}…{text[-end:]}"


def escaped(names: Iterable[str]) -> list[str]:
    """Return names as plotly shows them as they are: neither markup nor formulas.

    Examples
    --------
    >>> escaped(["<b>x</b>", "$a$"])
    ['&lt;b&gt;x&lt;/b&gt;', '&#36;a&#36;']
    """
    return [html.escape(name, quote=False).replace("$", "&#36;") for name in names]


def plain_legend(legend: Any) -> None:
    """Show the texts of a legend as they are."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def write_ticks(ax: Any, axis: str, names: Sequence[str], *, size: float, every: int = 1) -> None:
    """Name every k-th place (0, 1, …) of the ``"x"`` or ``"y"`` axis; none where ``every`` is 0."""
    places = range(0, len(names), every) if every else range(0)
    texts = [one_line(names[i]) for i in places]
    turned = {"rotation": 90} if axis == "x" else {}
    set_ticks = getattr(ax, f"set_{axis}ticks")
    set_ticks(list(places), texts, fontsize=size, parse_math=False, **turned)


def spacing(n: int, length: float, size: float, most: int) -> int:
    """Return of which k every k-th of n names has room on a length in points; 0 beyond ``most``."""
    every = max(1, int(np.ceil(n * size * LINE_HEIGHT / max(length, 1.0))))
    return every if every <= most else 0


def length_in_points(ax: Any, axis: str) -> float:
    """Return how long an axis is once the figure is laid out."""
    lay_out(ax)
    box = ax.get_window_extent()
    pixels = box.width if axis == "x" else box.height
    return float(pixels * 72 / ax.figure.dpi)


def lay_out(ax: Any) -> None:
    """Let the whole figure find the places of its axes."""
    ax.figure.canvas.figure.draw_without_rendering()


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
    """Write names beside their points where there is room; return whose names were written.

    Parameters
    ----------
    ax : matplotlib Axes
        With its data and scales in place.
    points : array, (n, 2)
        In data coordinates.
    names : sequence of str
        One a point.
    order : iterable of int, optional
        The points to name, those that matter most first; all of them by default.
    most : int
        Names to write at most.
    size : float
        Font size in points.
    avoid_points : bool
        Whether a name may not cover another point.
    """
    lay_out(ax)
    frame, pixel = ax.get_window_extent(), ax.figure.dpi / 72
    centres = ax.transData.transform(points)
    radius = _GAP / 2 * pixel if avoid_points else 0.0
    taken = np.hstack([centres - radius, centres + radius]) if avoid_points else np.empty((0, 4))
    written: list[int] = []
    wanted = range(len(points)) if order is None else order
    for i in itertools.islice(wanted, _TRIES * most):
        if len(written) == most:
            break
        text = _name_at(ax, points[i], one_line(names[i]), size)
        box = text.get_window_extent()
        place = _free_place(centres[i], (box.width, box.height), taken, frame, _GAP * pixel)
        if place is None:
            text.remove()
            continue
        (dx, dy), occupied = place
        text.set(
            position=(dx * _GAP, dy * _GAP),
            ha=("right", "center", "left")[dx + 1],
            va=("top", "center", "bottom")[dy + 1],
        )
        taken = np.vstack([taken, occupied])
        written.append(i)
    return written


def spread_order(
    points: NDArray[np.floating], weight: NDArray[np.floating] | None = None
) -> list[int]:
    """Return an order in which to name points: the weightiest of each part of the plane first.

    Parameters
    ----------
    points : array, (n, 2)
    weight : array, (n,), optional
        How much each point matters; of equal ones the first goes first.
    """
    weight = np.zeros(len(points)) if weight is None else weight
    extent = np.ptp(points, axis=0)
    cells = (points - points.min(axis=0)) / np.where(extent > 0, extent, 1) * _PARTS
    x, y = cells.clip(0, _PARTS - 1).astype(int).T
    turn, seen = np.empty(len(points)), np.zeros((_PARTS, _PARTS))
    falling = np.argsort(-weight, kind="stable")
    for i in falling:
        turn[i] = seen[x[i], y[i]]
        seen[x[i], y[i]] += 1
    return falling[np.argsort(turn[falling], kind="stable")].tolist()


def _name_at(ax: Any, point: NDArray[np.floating], name: str, size: float) -> Any:
    from matplotlib.patheffects import withStroke

    return ax.annotate(
        name,
        point,
        xytext=(0, 0),
        textcoords="offset points",
        fontsize=size,
        parse_math=False,
        in_layout=False,
        path_effects=[withStroke(linewidth=2, foreground="white")],
    )


def _free_place(
    centre: NDArray[np.float64],
    extent: tuple[float, float],
    taken: NDArray[np.float64],
    frame: Any,
    gap: float,
) -> tuple[tuple[int, int], NDArray[np.float64]] | None:
    """Return the first side on which a text lies within the frame and on nothing, with its box."""
    width, height = extent
    for dx, dy in _SIDES:
        left = centre[0] + dx * gap - width * (1 - dx) / 2
        low = centre[1] + dy * gap - height * (1 - dy) / 2
        box = np.array([left, low, left + width, low + height])
        inside = left >= frame.x0 and low >= frame.y0 and box[2] <= frame.x1 and box[3] <= frame.y1
        if inside and not _overlaps(box, taken):
            return (dx, dy), box
    return None


def _overlaps(box: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    apart = (
        (others[:, 0] >= box[2])
        | (others[:, 2] <= box[0])
        | (others[:, 1] >= box[3])
        | (others[:, 3] <= box[1])
    )
    return not bool(apart.all())
