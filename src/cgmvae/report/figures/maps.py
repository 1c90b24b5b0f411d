"""Maps of the labels in two dimensions: of their similarity, and of their latent Gaussians."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cgmvae.data.dataset import column_names
from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import count
from cgmvae.methods.inputs import as_targets
from cgmvae.report.figures.similarity import as_similarity, learned_similarity
from cgmvae.report.figures.style import (
    BLUE,
    FEW_LABELS,
    SEQUENTIAL,
    Display,
    Values,
    place_names,
    spread_order,
    tidy,
)

_TITLE = "classical scaling of the distance √(2 − 2·similarity)"

#: Size in inches of a map of few labels, and of many.
_SMALL_MAP, _LARGE_MAP = (8.0, 6.5), (11.0, 9.0)

#: Minimum of the shorter side, and margin around the labels, relative to the longer side.
_NARROWEST, _MARGIN = 0.5, 0.08


class Plane(NamedTuple):
    """Points projected on a plane."""

    coordinates: Values
    """(n, 2)."""
    shares: Values
    """Share of the total variance along each axis, (2,)."""
    axes: Values | None = None
    """Directions of the axes in the original space, (dimension, 2)."""


def principal_plane(points: ArrayLike) -> Plane:
    """Project points, (n, dimension), on their first two principal components."""
    centered = np.asarray(points, np.float64)
    centered = centered - centered.mean(axis=0)
    _, sizes, directions = np.linalg.svd(centered, full_matrices=False)
    axes = np.zeros((centered.shape[1], 2))
    axes[:, : len(directions[:2])] = directions[:2].T
    axes *= _signs(centered @ axes)
    return Plane(centered @ axes, _shares(sizes**2), axes)


def scaled_plane(similarity: ArrayLike) -> Plane:
    """Classical multidimensional scaling of the distances √(2 − 2·similarity).

    For a mean of cosines these are Euclidean distances, so only the projection on the first two
    axes loses information.
    """
    cosines = np.asarray(similarity, np.float64)
    cosines = np.nan_to_num((cosines + cosines.T) / 2)
    inner = cosines - cosines.mean(0) - cosines.mean(1)[:, None] + cosines.mean()
    values, vectors = np.linalg.eigh(inner)
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    coordinates = np.zeros((len(cosines), 2))
    kept = vectors[:, :2] * np.sqrt(values[:2])
    coordinates[:, : kept.shape[1]] = kept
    return Plane(coordinates * _signs(coordinates), _shares(values))


def _signs(coordinates: Values) -> Values:
    """Return the sign of each axis for which its farthest point is on the positive side."""
    farthest = np.abs(coordinates).argmax(axis=0)
    return np.where(coordinates[farthest, range(coordinates.shape[1])] < 0, -1.0, 1.0)


def _shares(variances: Values) -> Values:
    first = np.zeros(2)
    first[: len(variances[:2])] = variances[:2]
    total = variances.sum()
    return first / total if total > 0 else first


def draw_map(
    ax: Any,
    plane: Plane,
    title: str,
    names: Sequence[str],
    *,
    most: int,
    weight: Values | None = None,
    radius: Values | float = 0.0,
) -> None:
    """Set equal axes around points and circles of these radii, and draw the names that fit.

    At most ``most`` names are drawn, in each part of the map those with the largest weight, (n,),
    first. If not all labels are named, the title is followed by how many are.
    """
    reach = np.broadcast_to(radius, len(names))[:, None]
    low, high = (plane.coordinates - reach).min(0), (plane.coordinates + reach).max(0)
    longest = (high - low).max() or 1.0
    half = np.maximum(high - low, _NARROWEST * longest) / 2 + _MARGIN * longest
    (left, bottom), (right, top) = (low + high) / 2 - half, (low + high) / 2 + half
    first, second = plane.shares
    ax.set(xlabel=f"first axis ({first:.0%})", xlim=(left, right), aspect="equal")
    ax.set(ylabel=f"second axis ({second:.0%})", ylim=(bottom, top))
    ax.set_title(title, fontsize=10)
    tidy(ax)
    few = len(names) <= FEW_LABELS
    named = place_names(
        ax,
        plane.coordinates,
        names,
        order=spread_order(plane.coordinates, weight),
        most=most,
        size=9 if few else 8,
        avoid_points=few,
    )
    if len(named) < len(names):
        ax.set_title(f"{title}; {len(named):,} of {len(names):,} labels named", fontsize=10)


@dataclass(eq=False, repr=False)
class LabelMapDisplay(Display):
    """Labels in a plane; nearby labels are similar.

    Attributes
    ----------
    coordinates : array, (n_labels, 2)

    Examples
    --------
    >>> similarity = [[1.0, 0.0, 0.9], [0.0, 1.0, 0.0], [0.9, 0.0, 1.0]]
    >>> display = LabelMapDisplay.from_similarity(similarity, ["owl", "gull", "hawk"])
    >>> display.coordinates.shape
    (3, 2)
    """

    plane: Plane
    """Coordinates of each label."""
    label_names: Sequence[str]
    _: KW_ONLY
    frequency: Values | None = None
    """Rows with each label, (n_labels,), which set its color and the priority of its name."""

    def __post_init__(self) -> None:
        self.coordinates = self.plane.coordinates
        if self.frequency is not None:
            self.frequency = np.asarray(self.frequency, np.float64)

    @classmethod
    def from_estimator(cls, model: Any, Y: Any = None) -> LabelMapDisplay:
        """Map the labels of a fitted model, colored by the number of rows of Y that have them."""
        names = model.label_names_
        frequency = None if Y is None else label_frequency(Y, names)
        return cls.from_similarity(learned_similarity(model), names, frequency=frequency)

    @classmethod
    def from_similarity(
        cls,
        similarity: ArrayLike,
        label_names: Sequence[str] | None = None,
        *,
        frequency: Values | None = None,
    ) -> LabelMapDisplay:
        """Map labels by classical scaling of a matrix, (n_labels, n_labels)."""
        similarity = as_similarity(similarity)
        names = column_names(label_names, "label", len(similarity))
        return cls(scaled_plane(similarity), names, frequency=frequency)

    def plot(self, ax: Any = None, *, max_names: int = 80) -> LabelMapDisplay:
        """Draw the map; names that would overlap are omitted, those of rare labels first.

        Names are distributed evenly over the parts of the map.
        """
        from matplotlib.colors import LogNorm

        few = len(self.label_names) <= FEW_LABELS
        ax = self._start(ax, _SMALL_MAP if few else _LARGE_MAP, equal=True)
        marks = ax.scatter(*self.coordinates.T, s=36 if few else 12, linewidths=0, color=BLUE)
        if self.frequency is not None:
            rows = np.maximum(self.frequency, 1)
            scale = LogNorm(rows.min(), max(rows.max(), rows.min() + 1))
            marks.set(array=rows, cmap=SEQUENTIAL, norm=scale)
            ax.figure.colorbar(marks, ax=ax, label="rows with the label", shrink=0.7)
        names = self.label_names
        draw_map(ax, self.plane, _TITLE, names, most=max_names, weight=self.frequency)
        return self


def label_frequency(Y: Any, names: Sequence[str]) -> Values:
    """Return the number of rows that are known to have each label, (n_labels,)."""
    targets = as_targets(Y, names)
    return count(targets.labels, targets.labels, targets.unknown).label_true.astype(np.float64)


@dataclass(eq=False, repr=False)
class LatentMapDisplay(Display):
    """The labels' Gaussians in latent space, projected on the principal plane of their means.

    Examples
    --------
    >>> display = LatentMapDisplay.from_gaussians([[0.0, 0.0], [4.0, 0.0]], [[1.0, 4.0]] * 2)
    >>> width, height, angle = display.ellipses()
    >>> width.tolist(), height.tolist()
    ([4.0, 4.0], [2.0, 2.0])
    """

    plane: Plane
    """The projected means."""
    covariances: Values
    """Of the Gaussians in that plane, (n_labels, 2, 2)."""
    label_names: Sequence[str]

    def __post_init__(self) -> None:
        self.means = self.plane.coordinates

    @classmethod
    def from_estimator(
        cls, model: Any, *, member: int = 0, labels: ArrayLike | None = None
    ) -> LatentMapDisplay:
        """Show the Gaussians of a fitted C-GMVAE, of all labels or of those with these indices.

        Each member has its own latent space.
        """
        network: Any = getattr(model, "network_", None)
        if not hasattr(network, "label_gaussians"):
            raise InputError(
                f"{type(model).__name__} has no Gaussian per label; use a fitted C-GMVAE."
            )
        gaussians, n_labels = network.label_gaussians(), len(model.label_names_)
        n_members = len(gaussians.mean)
        if not 0 <= member < n_members:
            raise InputError(f"There is no member {member}; choose one of 0 to {n_members - 1}.")
        # The last Gaussian is that of rows without labels.
        mean, log_variance = (
            each[member, :n_labels].double().numpy(force=True)
            for each in (gaussians.mean, gaussians.log_variance)
        )
        shown = np.arange(n_labels) if labels is None else np.asarray(labels)
        names = [model.label_names_[label] for label in shown.tolist()]
        return cls.from_gaussians(mean[shown], np.exp(log_variance[shown]), names)

    @classmethod
    def from_gaussians(
        cls, means: ArrayLike, variances: ArrayLike, label_names: Sequence[str] | None = None
    ) -> LatentMapDisplay:
        """Project diagonal Gaussians, means and variances (n_labels, dimension) each."""
        plane = principal_plane(means)
        assert plane.axes is not None
        variances = np.asarray(variances, np.float64)
        # The covariance of Aᵀz for the axes A: Aᵀ diag(variance) A.
        covariances = np.einsum("da,ld,db->lab", plane.axes, variances, plane.axes)
        return cls(plane, covariances, column_names(label_names, "label", len(variances)))

    def plot(self, ax: Any = None, *, max_names: int = 60) -> LatentMapDisplay:
        """Draw each Gaussian as an ellipse of one standard deviation around its mean."""
        from matplotlib.collections import EllipseCollection

        few = len(self.label_names) <= FEW_LABELS
        ax = self._start(ax, _SMALL_MAP if few else _LARGE_MAP, equal=True)
        widths, heights, angles = self.ellipses()
        ellipses = EllipseCollection(
            widths,
            heights,
            angles,
            units="xy",
            offsets=self.means,
            offset_transform=ax.transData,
            facecolor="none",
            edgecolor=BLUE,
            alpha=0.6 if few else 0.2,
            linewidth=1 if few else 0.6,
        )
        ax.add_collection(ellipses)
        ax.scatter(*self.means.T, s=20 if few else 6, color="black", linewidths=0, zorder=3)
        title, names = "Gaussians, one standard deviation", self.label_names
        draw_map(ax, self.plane, title, names, most=max_names, radius=widths / 2)
        return self

    def ellipses(self) -> tuple[Values, Values, Values]:
        """Return width, height and angle in degrees of the ellipses, (n_labels,) each."""
        values, vectors = np.linalg.eigh(self.covariances)
        axes = 2 * np.sqrt(values.clip(0))
        angles = np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))
        return axes[:, 1], axes[:, 0], angles
