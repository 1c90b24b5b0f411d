"""Map of the labels' Gaussians in latent space, with their ellipses.

The plane is found in :mod:`~cgmvae.report.figures.planes`; the map of the labels' embeddings is
:mod:`~cgmvae.report.figures.label_map`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.errors import InputError
from cgmvae.report.figures.names import names_for
from cgmvae.report.figures.planes import (
    Plane,
    has_few,
    map_axes,
    map_size,
    name_labels,
    principal_plane,
)
from cgmvae.report.figures.style import BLUE, Display


class LatentMapDisplay(Display):
    """The labels' Gaussians in latent space, projected on the plane in which their means differ.

    Parameters
    ----------
    plane : Plane
        Of the means.
    covariances : array, (n_labels, 2, 2)
        Of the Gaussians in that plane.
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
        """Take the Gaussians of a fitted C-GMVAE.

        Parameters
        ----------
        model : CGMVAEClassifier
        member : int, optional
            Each member has a latent space of its own; None takes the spaces of all side by side.
        """
        mean, variance = _gaussians(model)
        if member is not None:
            if not 0 <= member < len(mean):
                raise InputError(f"There is no member {member}; there are {len(mean)}, from 0.")
            mean, variance = mean[[member]], variance[[member]]
        return cls.from_gaussians(_side_by_side(mean), _side_by_side(variance), model.label_names_)

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
        """Draw each Gaussian as an ellipse of one standard deviation about its mean."""
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
    """Return mean and variance of every label's Gaussian, (n_members, n_labels, d) each."""
    network: Any = getattr(model, "network_", None)
    if not hasattr(network, "label_gaussians"):
        raise InputError(f"{type(model).__name__} has no Gaussian a label; take a fitted C-GMVAE.")
    gaussians = network.label_gaussians()
    n_labels = len(model.label_names_)  # the last Gaussian is the background's
    mean, log_variance = (
        values[:, :n_labels].detach().cpu().numpy().astype(np.float64)
        for values in (gaussians.mean, gaussians.log_variance)
    )
    return mean, np.exp(log_variance)


def _side_by_side(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn (n_members, n_labels, d) into (n_labels, n_members · d)."""
    return values.transpose(1, 0, 2).reshape(values.shape[1], -1)
