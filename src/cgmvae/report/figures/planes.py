"""Planes to lay labels out in: how they are found, and how a map on one is drawn.

:mod:`~cgmvae.report.figures.label_map` and :mod:`~cgmvae.report.figures.latent_map` use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.report.figures.names import place_names, spread_order
from cgmvae.report.figures.style import tidy

#: Up to so many labels a map is small, its marks are large, and names keep clear of all points.
_FEW_LABELS = 60

#: Inches of a map of few labels, and of many.
_SMALL_MAP, _LARGE_MAP = (8.0, 6.5), (11.0, 9.0)

#: Of the longer side of a map, the least length of the other and the room around the labels.
_NARROWEST, _MARGIN = 0.5, 0.08


class Plane(NamedTuple):
    """Places in a plane, and how much of the spread it shows."""

    coordinates: NDArray[np.float64]
    """(n, 2)."""
    shares: NDArray[np.float64]
    """Share of the whole variance that each axis shows, (2,)."""
    axes: NDArray[np.float64] | None = None
    """Directions of the plane in the space that was projected, (dimension, 2)."""


def principal_plane(points: ArrayLike) -> Plane:
    """Project points, (n, dimension), on their first two principal components."""
    centred = np.asarray(points, np.float64)
    centred = centred - centred.mean(axis=0)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    axes = np.zeros((centred.shape[1], 2))
    axes[:, : len(directions[:2])] = directions[:2].T
    axes *= _signs(centred @ axes)
    return Plane(centred @ axes, _shares(sizes**2), axes)


def scaled_plane(similarity: ArrayLike) -> Plane:
    """Place labels so that their distances are near √(2 − 2·similarity): classical scaling.

    For a mean of cosines these are distances in a Euclidean space, so nothing is lost but by the
    projection on the first two axes.
    """
    alike = np.asarray(similarity, np.float64)
    alike = np.nan_to_num((alike + alike.T) / 2)
    inner = alike - alike.mean(0) - alike.mean(1)[:, None] + alike.mean()
    values, vectors = np.linalg.eigh(inner)
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    coordinates = np.zeros((len(alike), 2))
    kept = vectors[:, :2] * np.sqrt(values[:2])
    coordinates[:, : kept.shape[1]] = kept
    return Plane(coordinates * _signs(coordinates), _shares(values))


def _signs(coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ±1 for each axis, such that its farthest point lies on the positive side."""
    farthest = np.abs(coordinates).argmax(axis=0)
    return np.where(coordinates[farthest, range(coordinates.shape[1])] < 0, -1.0, 1.0)


def _shares(variances: NDArray[np.float64]) -> NDArray[np.float64]:
    first = np.zeros(2)
    first[: len(variances[:2])] = variances[:2]
    total = variances.sum()
    return first / total if total > 0 else first


def has_few(plane: Plane) -> bool:
    """Return whether there are so few labels that each can be large and named."""
    return len(plane.coordinates) <= _FEW_LABELS


def map_size(plane: Plane) -> tuple[float, float]:
    """Return width and height of a map in inches."""
    return _SMALL_MAP if has_few(plane) else _LARGE_MAP


def axis_titles(plane: Plane) -> dict[str, str]:
    """Return the titles of the axes by name, with how much each shows."""
    first, second = plane.shares
    return {"x": f"first axis ({first:.0%})", "y": f"second axis ({second:.0%})"}


def map_axes(
    ax: Any, plane: Plane, title: str, *, radius: NDArray[np.float64] | float = 0.0
) -> None:
    """Give both axes one scale, with room around the points and circles of these radii."""
    reach = np.broadcast_to(radius, len(plane.coordinates))[:, None]
    low, high = (plane.coordinates - reach).min(0), (plane.coordinates + reach).max(0)
    longest = (high - low).max() or 1.0
    half = np.maximum(high - low, _NARROWEST * longest) / 2 + _MARGIN * longest
    middle = (low + high) / 2
    (left, bottom), (right, top) = middle - half, middle + half
    titles = axis_titles(plane)
    ax.set(xlabel=titles["x"], ylabel=titles["y"], xlim=(left, right), ylim=(bottom, top))
    ax.set_aspect("equal")
    ax.set_title(title, fontsize=10)
    tidy(ax)


def name_labels(
    ax: Any,
    plane: Plane,
    names: Sequence[str],
    *,
    most: int,
    weight: NDArray[np.float64] | None = None,
) -> None:
    """Name the labels that have room, the weightiest of each part first; the title counts them."""
    n_labels, few = len(names), has_few(plane)
    named = place_names(
        ax,
        plane.coordinates,
        names,
        order=spread_order(plane.coordinates, weight),
        most=most,
        size=9 if few else 7,
        avoid_points=few,
    )
    if len(named) < n_labels:
        said = f"{ax.get_title()}; {len(named):,} of {n_labels:,} labels named"
        ax.set_title(said, fontsize=10)
