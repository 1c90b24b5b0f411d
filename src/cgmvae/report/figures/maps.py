"""Maps of the labels in two dimensions: of their similarity, and of their latent Gaussians."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import count
from cgmvae.methods.inputs import as_targets
from cgmvae.report.figures.similarity import as_similarity, learned_similarity
from cgmvae.report.figures.style import (
    BLUE,
    SEQUENTIAL,
    Display,
    names_for,
    place_names,
    spread_order,
    tidy,
)

Projection = Literal["mds", "pca"]

_TITLES = {
    "mds": "classical scaling of the distance √(2 − 2·similarity)",
    "pca": "principal components of the embeddings",
}

#: Up to this many labels, maps are small, markers large, and names do not cover points.
_FEW_LABELS = 60

#: Size in inches of a map of few labels, and of many.
_SMALL_MAP, _LARGE_MAP = (8.0, 6.5), (11.0, 9.0)

#: Minimum of the shorter side, and margin around the labels, relative to the longer side.
_NARROWEST, _MARGIN = 0.5, 0.08


class Plane(NamedTuple):
    """Points projected on a plane."""

    coordinates: NDArray[np.float64]
    """(n, 2)."""
    shares: NDArray[np.float64]
    """Share of the total variance along each axis, (2,)."""
    axes: NDArray[np.float64] | None = None
    """Directions of the axes in the original space, (dimension, 2)."""


def principal_plane(points: ArrayLike) -> Plane:
    """Project points, (n, dimension), on their first two principal components."""
    centerd = np.asarray(points, np.float64)
    centerd = centerd - centerd.mean(axis=0)
    _, sizes, directions = np.linalg.svd(centerd, full_matrices=False)
    axes = np.zeros((centerd.shape[1], 2))
    axes[:, : len(directions[:2])] = directions[:2].T
    axes *= _signs(centerd @ axes)
    return Plane(centerd @ axes, _shares(sizes**2), axes)


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


def _signs(coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sign of each axis for which its farthest point is on the positive side."""
    farthest = np.abs(coordinates).argmax(axis=0)
    return np.where(coordinates[farthest, range(coordinates.shape[1])] < 0, -1.0, 1.0)


def _shares(variances: NDArray[np.float64]) -> NDArray[np.float64]:
    first = np.zeros(2)
    first[: len(variances[:2])] = variances[:2]
    total = variances.sum()
    return first / total if total > 0 else first


def has_few(plane: Plane) -> bool:
    """Return whether there are few enough labels to draw each one large and with its name."""
    return len(plane.coordinates) <= _FEW_LABELS


def map_size(plane: Plane) -> tuple[float, float]:
    """Return width and height of a map in inches."""
    return _SMALL_MAP if has_few(plane) else _LARGE_MAP


def map_axes(
    ax: Any, plane: Plane, title: str, *, radius: NDArray[np.float64] | float = 0.0
) -> None:
    """Set an equal aspect ratio, with a margin around the points and circles of these radii."""
    reach = np.broadcast_to(radius, len(plane.coordinates))[:, None]
    low, high = (plane.coordinates - reach).min(0), (plane.coordinates + reach).max(0)
    longest = (high - low).max() or 1.0
    half = np.maximum(high - low, _NARROWEST * longest) / 2 + _MARGIN * longest
    middle = (low + high) / 2
    (left, bottom), (right, top) = middle - half, middle + half
    first, second = plane.shares
    ax.set(xlabel=f"first axis ({first:.0%})", xlim=(left, right))
    ax.set(ylabel=f"second axis ({second:.0%})", ylim=(bottom, top))
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
    """Draw the names that fit, the most important of each part first; the title counts them."""
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
        title = f"{ax.get_title()}; {len(named):,} of {n_labels:,} labels named"
        ax.set_title(title, fontsize=10)


class LabelMapDisplay(Display):
    """Labels in a plane; nearby labels are similar.

    Parameters
    ----------
    plane : Plane
        Coordinates of each label.
    label_names : sequence of str
    method : {"mds", "pca"}
        How the plane was found.
    frequency : array, (n_labels,), optional
        Number of rows with each label, which sets its color and the priority of its name.

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

    def __init__(
        self,
        plane: Plane,
        label_names: Sequence[str],
        *,
        method: Projection,
        frequency: NDArray[np.float64] | None = None,
    ) -> None:
        self.plane, self.label_names = plane, label_names
        self.method, self.frequency = method, frequency
        self.coordinates = plane.coordinates

    @classmethod
    def from_estimator(
        cls, model: Any, Y: Any = None, *, method: Projection = "mds"
    ) -> LabelMapDisplay:
        """Map the labels of a fitted model.

        Parameters
        ----------
        model : estimator
            With ``label_similarity`` for ``"mds"``, with ``label_embeddings_`` for ``"pca"``.
        Y : labels in any accepted form, optional
            Colors the labels by the number of rows that have them.
        method : {"mds", "pca"}
            Classical scaling of the similarity, or principal components of the concatenated
            embeddings of all members.
        """
        names = model.label_names_
        frequency = None if Y is None else label_frequency(Y, names)
        if method == "pca":
            if not hasattr(model, "label_embeddings_"):
                raise InputError(f"{type(model).__name__} has no label embeddings; use 'mds'.")
            return cls.from_embeddings(model.label_embeddings_, names, frequency=frequency)
        if method not in get_args(Projection):
            raise InputError(f"There is no method {method!r}; choose mds or pca.")
        return cls.from_similarity(learned_similarity(model), names, frequency=frequency)

    @classmethod
    def from_similarity(
        cls,
        similarity: ArrayLike,
        label_names: Sequence[str] | None = None,
        *,
        frequency: ArrayLike | None = None,
    ) -> LabelMapDisplay:
        """Map labels by classical scaling of a matrix, (n_labels, n_labels)."""
        similarity = as_similarity(similarity)
        names = names_for(label_names, len(similarity))
        return cls(scaled_plane(similarity), names, method="mds", frequency=_numbers(frequency))

    @classmethod
    def from_embeddings(
        cls,
        embeddings: ArrayLike,
        label_names: Sequence[str] | None = None,
        *,
        frequency: ArrayLike | None = None,
    ) -> LabelMapDisplay:
        """Map labels by principal components of their embeddings, (n_labels, dimension)."""
        plane = principal_plane(embeddings)
        names = names_for(label_names, len(plane.coordinates))
        return cls(plane, names, method="pca", frequency=_numbers(frequency))

    def plot(self, ax: Any = None, *, most_names: int = 80) -> LabelMapDisplay:
        """Draw the map; names that would overlap are omitted, those of rare labels first.

        Names are distributed evenly over the parts of the map.
        """
        ax = self._start(ax, map_size(self.plane), equal=True)
        looks = {"color": BLUE} if self.frequency is None else self._colored()
        size = 36 if has_few(self.plane) else 12
        marks = ax.scatter(*self.coordinates.T, s=size, linewidths=0, **looks)
        if self.frequency is not None:
            ax.figure.colorbar(marks, ax=ax, label="rows with the label", shrink=0.7)
        map_axes(ax, self.plane, _TITLES[self.method])
        name_labels(ax, self.plane, self.label_names, most=most_names, weight=self.frequency)
        return self

    def _colored(self) -> dict[str, Any]:
        from matplotlib.colors import LogNorm

        assert self.frequency is not None
        rows = np.maximum(self.frequency, 1)
        scale = LogNorm(rows.min(), max(rows.max(), rows.min() + 1))
        return {"c": rows, "cmap": SEQUENTIAL, "norm": scale}


def label_frequency(Y: Any, names: Sequence[str]) -> NDArray[np.float64]:
    """Return the number of rows that are known to have each label, (n_labels,)."""
    targets = as_targets(Y, names)
    return count(targets.labels, targets.labels, targets.unknown).label_true.astype(np.float64)


def _numbers(values: ArrayLike | None) -> NDArray[np.float64] | None:
    return None if values is None else np.asarray(values, np.float64)


class LatentMapDisplay(Display):
    """The labels' Gaussians in latent space, projected on the principal plane of their means.

    Parameters
    ----------
    plane : Plane
        The projected means.
    covariances : array, (n_labels, 2, 2)
        Covariances of the Gaussians in that plane.
    label_names : sequence of str

    Examples
    --------
    >>> display = LatentMapDisplay.from_gaussians([[0.0, 0.0], [4.0, 0.0]], [[1.0, 4.0]] * 2)
    >>> width, height, angle = display.ellipses()
    >>> width.tolist(), height.tolist()
    ([4.0, 4.0], [2.0, 2.0])
    """

    def __init__(
        self, plane: Plane, covariances: NDArray[np.float64], label_names: Sequence[str]
    ) -> None:
        self.plane, self.covariances, self.label_names = plane, covariances, label_names
        self.means = plane.coordinates

    @classmethod
    def from_estimator(cls, model: Any, *, member: int | None = 0) -> LatentMapDisplay:
        """Show the Gaussians of a fitted C-GMVAE.

        Parameters
        ----------
        model : CGMVAEClassifier
        member : int, optional
            Each member has its own latent space; None concatenates the spaces of all members.
        """
        mean, variance = _gaussians(model)
        if member is not None:
            if not 0 <= member < len(mean):
                raise InputError(
                    f"There is no member {member}; choose one of 0 to {len(mean) - 1}."
                )
            mean, variance = mean[[member]], variance[[member]]
        return cls.from_gaussians(_concatenated(mean), _concatenated(variance), model.label_names_)

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
        return cls(plane, covariances, names_for(label_names, len(variances)))

    def plot(self, ax: Any = None, *, most_names: int = 60) -> LatentMapDisplay:
        """Draw each Gaussian as an ellipse of one standard deviation around its mean."""
        from matplotlib.collections import EllipseCollection

        ax = self._start(ax, map_size(self.plane), equal=True)
        few = has_few(self.plane)
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
        map_axes(ax, self.plane, "latent Gaussians, one standard deviation", radius=widths / 2)
        name_labels(ax, self.plane, self.label_names, most=most_names)
        return self

    def ellipses(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return width, height and angle in degrees of the ellipses, (n_labels,) each."""
        values, vectors = np.linalg.eigh(self.covariances)
        axes = 2 * np.sqrt(values.clip(0))
        angles = np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))
        return axes[:, 1], axes[:, 0], angles


def _gaussians(model: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and variance of the labels' Gaussians, (n_members, n_labels, d) each."""
    network: Any = getattr(model, "network_", None)
    if not hasattr(network, "label_gaussians"):
        raise InputError(f"{type(model).__name__} has no Gaussian per label; use a fitted C-GMVAE.")
    gaussians = network.label_gaussians()
    n_labels = len(model.label_names_)  # the last Gaussian is that of rows without labels
    mean, log_variance = (
        values[:, :n_labels].detach().cpu().numpy().astype(np.float64)
        for values in (gaussians.mean, gaussians.log_variance)
    )
    return mean, np.exp(log_variance)


def _concatenated(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn (n_members, n_labels, d) into (n_labels, n_members · d)."""
    return values.transpose(1, 0, 2).reshape(values.shape[1], -1)
