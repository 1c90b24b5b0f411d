"""Heat map of how alike the labels are.

Whether that agrees with the labels' rows is shown by :mod:`~cgmvae.report.figures.cooccurrence`;
the same similarity as a map is in :mod:`~cgmvae.report.figures.label_map`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.errors import InputError
from cgmvae.report.figures.interactive import page_figure
from cgmvae.report.figures.names import (
    LINE_HEIGHT,
    escaped,
    length_in_points,
    names_for,
    one_line,
    spacing,
    write_ticks,
)
from cgmvae.report.figures.style import DIVERGING, Display

Order = Literal["clusters", "names", "given"]

#: With fewer than every so-many-th name shown, names say nothing and are left away.
_SPARSEST_NAMES = 15

#: Font sizes of the names, in points: where there is room, and at the least.
_FONT, _SMALL_FONT = 9.0, 7.0

#: The darkest colours are for the pairs beyond this share of all.
_COLOURED_SHARE = 0.995


class LabelSimilarityDisplay(Display):
    """How alike each pair of labels is, as a heat map in a telling order.

    Parameters
    ----------
    similarity : array, (n_labels, n_labels)
        Any diagonal: it is not shown.
    label_names : sequence of str
    order : array of int, (n_labels,)
        Labels from the top row (and the left column) on.
    groups : sequence of str, optional
        The group of each label, (n_labels,); groups lie together in ``order``.

    Attributes
    ----------
    shown : array, (n_labels, n_labels)
        The similarity in that order, NaN on the diagonal.

    Examples
    --------
    >>> alike = [[1.0, -0.2, 0.9], [-0.2, 1.0, 0.1], [0.9, 0.1, 1.0]]
    >>> display = LabelSimilarityDisplay.from_similarity(alike, ["owl", "gull", "hawk"])
    >>> [display.label_names[i] for i in display.order]
    ['gull', 'hawk', 'owl']
    """

    def __init__(
        self,
        similarity: NDArray[np.floating],
        label_names: Sequence[str],
        *,
        order: NDArray[np.int64],
        groups: Sequence[str] | None = None,
    ) -> None:
        self.similarity, self.label_names = similarity, label_names
        self.order, self.groups = order, groups
        self.shown = np.array(similarity, np.float64)[np.ix_(order, order)]
        np.fill_diagonal(self.shown, np.nan)

    @classmethod
    def from_estimator(
        cls, model: Any, *, order: Order = "clusters", groups: Sequence[str] | None = None
    ) -> LabelSimilarityDisplay:
        """Take the similarity that a fitted model learnt; see :meth:`from_similarity`."""
        similarity = learnt_similarity(model)
        return cls.from_similarity(similarity, model.label_names_, order=order, groups=groups)

    @classmethod
    def from_similarity(
        cls,
        similarity: ArrayLike,
        label_names: Sequence[str] | None = None,
        *,
        order: Order = "clusters",
        groups: Sequence[str] | None = None,
    ) -> LabelSimilarityDisplay:
        """Order the labels of a matrix.

        Parameters
        ----------
        similarity : array, (n_labels, n_labels)
        label_names : sequence of str, optional
        order : {"clusters", "names", "given"}
            Like labels side by side (average linkage, leaves in the best order), by name, or as
            they are.
        groups : sequence of str, optional
            The group of each label, (n_labels,), such as ``[family[name] for name in names]``.
            Groups come in the order in which they first appear; ``order`` rules within each.
        """
        similarity = as_similarity(similarity)
        names = names_for(label_names, len(similarity))
        if order not in get_args(Order):
            raise InputError(f"There is no order {order!r}; choose clusters, names or given.")
        if groups is not None and len(groups) != len(names):
            raise InputError(
                f"There are {len(groups):,} groups for {len(names):,} labels; name one a label."
            )
        members = _members(groups, len(names))
        sorted_members = [_sorted(own, similarity, names, order) for own in members]
        return cls(similarity, names, order=np.concatenate(sorted_members), groups=groups)

    def plot(self, ax: Any = None, *, limit: float | None = None) -> LabelSimilarityDisplay:
        """Draw the heat map.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        limit : float, optional
            The similarity of the darkest colours; by default one that few pairs exceed.
        """
        n_labels = len(self.order)
        side = float(np.clip(0.16 * n_labels + 3, 5, 13))
        ax = self._start(ax, (side + 1, side), equal=True)
        limit = self._limit() if limit is None else limit
        image = ax.imshow(self.shown, cmap=DIVERGING, vmin=-limit, vmax=limit)
        ax.set_facecolor("lightgrey")
        if self.groups is not None:
            self._mark_groups(ax)
        beyond = "both" if np.nanmax(np.abs(self.shown), initial=0) > limit else "neither"
        ax.figure.colorbar(image, ax=ax, label="similarity", shrink=0.7, extend=beyond)
        self._write_names(ax)
        return self

    def _limit(self) -> float:
        sizes = np.abs(self.shown[np.isfinite(self.shown)])
        limit = float(np.quantile(sizes, _COLOURED_SHARE)) if sizes.size else 0.0
        return limit if limit > 0 else 1.0

    def _write_names(self, ax: Any) -> None:
        names, n_labels = [self.label_names[i] for i in self.order], len(self.order)
        every = 1
        # Names take room from the map, so that fewer of them may fit than it seemed before.
        for _ in range(2):
            length = length_in_points(ax, "y")
            size = float(np.clip(length / n_labels / LINE_HEIGHT, _SMALL_FONT, _FONT))
            every = max(every, spacing(n_labels, length, size, n_labels))
            every = 0 if every > _SPARSEST_NAMES else every
            for axis in ("x", "y"):
                write_ticks(ax, axis, names, size=size, every=every)
            if every == 0:
                ax.set(xlabel=f"{n_labels:,} labels", ylabel=f"{n_labels:,} labels")
                return

    def _mark_groups(self, ax: Any) -> None:
        """Draw lines between groups, and name on the right those that have room."""
        assert self.groups is not None
        in_order = [str(self.groups[i]) for i in self.order]
        starts = [i for i, group in enumerate(in_order) if i == 0 or group != in_order[i - 1]]
        for start in starts[1:]:
            ax.axhline(start - 0.5, color="black", linewidth=0.8)
            ax.axvline(start - 0.5, color="black", linewidth=0.8)
        ends = [*starts[1:], len(in_order)]
        room = length_in_points(ax, "y") / len(in_order)
        texts = [
            one_line(in_order[start]) if (end - start) * room > _FONT * LINE_HEIGHT else ""
            for start, end in zip(starts, ends, strict=True)
        ]
        middles = [(start + end - 1) / 2 for start, end in zip(starts, ends, strict=True)]
        right = ax.secondary_yaxis("right")
        right.set_yticks(middles, texts, fontsize=_FONT, parse_math=False)
        right.tick_params(length=0)

    def to_plotly(self) -> Any:
        """Return the heat map as a plotly figure, with names on hovering."""
        names = escaped(self.label_names[i] for i in self.order)
        figure = page_figure()
        limit = self._limit()
        figure.add_heatmap(
            z=self.shown.astype(np.float32),
            x=names,
            y=names,
            zmin=-limit,
            zmax=limit,
            colorscale=DIVERGING,
            colorbar={"title": "similarity"},
            hovertemplate="%{y}<br>%{x}<br>similarity %{z:.2f}<extra></extra>",
        )
        figure.update_xaxes(type="category", showgrid=False, tickangle=-90)
        figure.update_yaxes(type="category", showgrid=False, autorange="reversed")
        return figure


def learnt_similarity(model: Any) -> NDArray[np.floating]:
    """Return ``model.label_similarity()``, or say which models have one."""
    if not hasattr(model, "label_similarity"):
        raise InputError(
            f"{type(model).__name__} does not learn which labels are alike; take C-GMVAE or MPVAE."
        )
    return as_similarity(model.label_similarity())


def as_similarity(similarity: ArrayLike) -> NDArray[np.floating]:
    """Return a square array of at least one label."""
    table = np.asarray(similarity, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or table.shape[0] == 0:
        raise InputError(
            f"The similarity has shape {table.shape}; it must have a row and a column for each "
            "label."
        )
    return table


def _members(groups: Sequence[str] | None, n_labels: int) -> list[NDArray[np.int64]]:
    """Return the labels of each group, or all of them as one."""
    if groups is None:
        return [np.arange(n_labels)]
    own: dict[str, list[int]] = {}
    for label, group in enumerate(groups):
        own.setdefault(str(group), []).append(label)
    return [np.array(labels) for labels in own.values()]


def _sorted(
    labels: NDArray[np.int64], similarity: NDArray[np.floating], names: Sequence[str], order: Order
) -> NDArray[np.int64]:
    if order == "names":
        return np.array(sorted(labels, key=lambda label: (names[label].casefold(), names[label])))
    if order == "given" or len(labels) < 3:
        return labels
    return labels[_leaves(similarity[np.ix_(labels, labels)])]


def _leaves(similarity: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the leaves of a clustering, neighbours as alike as they can be."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    tree = linkage(label_distances(similarity), "average", optimal_ordering=True)
    return leaves_list(tree).astype(np.int64)


def label_distances(similarity: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return how far labels are apart, 0 for the most alike, as scipy clusters it, (n_pairs,).

    A similarity that is no number counts as 0.
    """
    from scipy.spatial.distance import squareform

    alike = np.nan_to_num((similarity + similarity.T) / 2, nan=0.0)
    distance = alike.max() - alike
    np.fill_diagonal(distance, 0.0)
    return squareform(distance, checks=False)
