"""Map of the labels in two dimensions: near ones are alike.

The similarity behind it is that of :mod:`~cgmvae.report.figures.similarity`, the plane is found in
:mod:`~cgmvae.report.figures.planes`; the latent Gaussians have a map of their own,
:mod:`~cgmvae.report.figures.latent_map`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import count
from cgmvae.methods.inputs import as_targets
from cgmvae.report.figures.interactive import page_figure
from cgmvae.report.figures.names import escaped, names_for
from cgmvae.report.figures.planes import (
    Plane,
    axis_titles,
    has_few,
    map_axes,
    map_size,
    name_labels,
    principal_plane,
    scaled_plane,
)
from cgmvae.report.figures.similarity import as_similarity, learnt_similarity
from cgmvae.report.figures.style import BLUE, SEQUENTIAL, Display

Projection = Literal["mds", "pca"]

_TITLES = {
    "mds": "classical scaling of the chord distance √(2 − 2·similarity)",
    "pca": "principal components of the embeddings",
}


class LabelMapDisplay(Display):
    """Labels in a plane: near ones are alike.

    Parameters
    ----------
    plane : Plane
        A place for each label.
    label_names : sequence of str
    method : {"mds", "pca"}
        How the plane was found.
    frequency : array, (n_labels,), optional
        Rows with each label, for the colours and for which names matter most.

    Attributes
    ----------
    coordinates : array, (n_labels, 2)

    Examples
    --------
    >>> alike = [[1.0, 0.0, 0.9], [0.0, 1.0, 0.0], [0.9, 0.0, 1.0]]
    >>> display = LabelMapDisplay.from_similarity(alike, ["owl", "gull", "hawk"])
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
            To colour the labels by how many rows have them.
        method : {"mds", "pca"}
            Classical scaling of the distances that the similarity gives, or principal components of
            the embeddings of all members side by side.
        """
        names = model.label_names_
        frequency = None if Y is None else label_frequency(Y, names)
        if method == "pca":
            if not hasattr(model, "label_embeddings_"):
                raise InputError(f"{type(model).__name__} has no label embeddings; take 'mds'.")
            return cls.from_embeddings(model.label_embeddings_, names, frequency=frequency)
        if method not in get_args(Projection):
            raise InputError(f"There is no method {method!r}; choose mds or pca.")
        return cls.from_similarity(learnt_similarity(model), names, frequency=frequency)

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
        """Draw the map; names that would lie over others are left away, those of rare labels first.

        Every part of the map gets its share of the names.
        """
        ax = self._start(ax, map_size(self.plane), equal=True)
        looks = {"color": BLUE} if self.frequency is None else self._coloured()
        size = 36 if has_few(self.plane) else 12
        marks = ax.scatter(*self.coordinates.T, s=size, linewidths=0, **looks)
        if self.frequency is not None:
            ax.figure.colorbar(marks, ax=ax, label="rows with the label", shrink=0.7)
        map_axes(ax, self.plane, _TITLES[self.method])
        name_labels(ax, self.plane, self.label_names, most=most_names, weight=self.frequency)
        return self

    def _coloured(self) -> dict[str, Any]:
        from matplotlib.colors import LogNorm

        assert self.frequency is not None
        rows = np.maximum(self.frequency, 1)
        scale = LogNorm(rows.min(), max(rows.max(), rows.min() + 1))
        return {"c": rows, "cmap": SEQUENTIAL, "norm": scale}

    def to_plotly(self) -> Any:
        """Return the map as a plotly figure with names on hovering."""
        figure = page_figure(**axis_titles(self.plane), note=_TITLES[self.method])
        marker: dict[str, Any] = {"color": BLUE, "size": 8}
        template = "%{text}<extra></extra>"
        if self.frequency is not None:
            marker |= {"color": np.log10(np.maximum(self.frequency, 1)), "colorscale": SEQUENTIAL}
            marker |= {"colorbar": {"title": "rows", "tickprefix": "10<sup>", "dtick": 1}}
            marker["colorbar"]["ticksuffix"] = "</sup>"
            template = "%{text}<br>%{customdata:,} rows<extra></extra>"
        figure.add_scatter(
            x=self.coordinates[:, 0],
            y=self.coordinates[:, 1],
            text=escaped(self.label_names),
            customdata=self.frequency,
            mode="markers",
            marker=marker,
            hovertemplate=template,
        )
        return figure


def label_frequency(Y: Any, names: Sequence[str]) -> NDArray[np.float64]:
    """Return how many rows are known to have each label, (n_labels,)."""
    targets = as_targets(Y, names)
    return count(targets.labels, targets.labels, targets.unknown).label_true.astype(np.float64)


def _numbers(values: ArrayLike | None) -> NDArray[np.float64] | None:
    return None if values is None else np.asarray(values, np.float64)
