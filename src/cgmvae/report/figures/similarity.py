"""Similarity of labels: as a heat map, and compared with how often labels occur together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr

from cgmvae.data.dataset import Matrix, column_names
from cgmvae.errors import InputError
from cgmvae.methods.inputs import as_targets
from cgmvae.report.figures.style import (
    BELOW,
    BLUE,
    DIVERGING,
    LINE_HEIGHT,
    ORANGE,
    Display,
    Values,
    one_line,
    place_names,
    tidy,
)

Order = Literal["clusters", "given"]

#: If fewer than one in this many names fits, none is drawn.
_SPARSEST_NAMES = 15

#: Default and minimum font size of the names in points.
_FONT, _SMALL_FONT = 9.0, 7.0

#: Quantile of the absolute similarity at which the color scale ends.
_COLOR_QUANTILE = 0.995

#: Up to this many pairs each is drawn as a point, beyond it as counts per hexagon.
_MAX_POINTS = 3000


@dataclass(eq=False, repr=False)
class LabelSimilarityDisplay(Display):
    """Heat map of the similarity of each pair of labels.

    Attributes
    ----------
    shown : array, (n_labels, n_labels)
        The similarity in the given order, NaN on the diagonal.

    Examples
    --------
    >>> similarity = [[1.0, -0.2, 0.9], [-0.2, 1.0, 0.1], [0.9, 0.1, 1.0]]
    >>> display = LabelSimilarityDisplay.from_similarity(similarity, ["owl", "gull", "hawk"])
    >>> [display.label_names[i] for i in display.order]
    ['gull', 'hawk', 'owl']
    """

    similarity: NDArray[np.floating]
    """(n_labels, n_labels); the diagonal is not shown."""
    label_names: Sequence[str]
    _: KW_ONLY
    order: NDArray[np.int64]
    """Labels from top to bottom, and from left to right, (n_labels,)."""
    groups: Sequence[str] | None = None
    """The group of each label, (n_labels,); groups are contiguous in ``order``."""

    def __post_init__(self) -> None:
        self.shown = np.array(self.similarity, np.float64)[np.ix_(self.order, self.order)]
        np.fill_diagonal(self.shown, np.nan)

    @classmethod
    def from_estimator(
        cls, model: Any, *, order: Order = "clusters", groups: Sequence[str] | None = None
    ) -> LabelSimilarityDisplay:
        """Show the similarity that a fitted model learned; see :meth:`from_similarity`."""
        similarity = learned_similarity(model)
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
        """Order the labels of a matrix, (n_labels, n_labels).

        The order is similar labels side by side (``"clusters"``: average linkage with optimal leaf
        order), or as given. If each label has a group, such as ``[family[name] for name
        in names]``, groups keep the order in which they first appear, and the order applies
        within each.
        """
        from scipy.cluster.hierarchy import leaves_list, linkage

        similarity = as_similarity(similarity)
        names = column_names(label_names, "label", len(similarity))
        if order not in get_args(Order):
            raise InputError(f"There is no order {order!r}; choose clusters or given.")
        if groups is not None and len(groups) != len(names):
            raise InputError(
                f"There are {len(groups):,} groups for {len(names):,} labels; pass one per label."
            )
        group_of = np.array([""] * len(names) if groups is None else [str(each) for each in groups])
        ordered = []
        for group in dict.fromkeys(group_of.tolist()):
            own = np.flatnonzero(group_of == group)
            if order == "clusters" and len(own) > 2:
                distances = label_distances(similarity[np.ix_(own, own)])
                own = own[leaves_list(linkage(distances, "average", optimal_ordering=True))]
            ordered.append(own)
        return cls(similarity, names, order=np.concatenate(ordered), groups=groups)

    def plot(self, ax: Any = None, *, limit: float | None = None) -> LabelSimilarityDisplay:
        """Draw the heat map; its colors end at ``limit``, by default a value few pairs exceed."""
        side = float(np.clip(0.16 * len(self.order) + 3, 5, 13))
        ax = self._start(ax, (side + 1, side), equal=True)
        sizes = np.abs(self.shown[np.isfinite(self.shown)])
        if limit is None:
            limit = (float(np.quantile(sizes, _COLOR_QUANTILE)) if sizes.size else 0.0) or 1.0
        image = ax.imshow(self.shown, cmap=DIVERGING, vmin=-limit, vmax=limit)
        ax.set_facecolor("lightgray")
        if self.groups is not None:
            self._mark_groups(ax)
        beyond = "both" if sizes.max(initial=0) > limit else "neither"
        ax.figure.colorbar(image, ax=ax, label="similarity", shrink=0.7, extend=beyond)
        self._write_names(ax)
        return self

    def _write_names(self, ax: Any) -> None:
        """Write every k-th name, the smallest k for which they fit."""
        n_labels, every = len(self.order), 1
        # Names shrink the map, so that fewer of them may fit than at first.
        for _ in range(2):
            room = _height_in_points(ax) / n_labels
            size = float(np.clip(room / LINE_HEIGHT, _SMALL_FONT, _FONT))
            every = max(every, int(np.ceil(size * LINE_HEIGHT / room)))
            if every > _SPARSEST_NAMES:
                text = f"{n_labels:,} labels"
                ax.set(xticks=[], yticks=[], xlabel=text, ylabel=text)
                return
            ticks = range(0, n_labels, every)
            names = [one_line(self.label_names[self.order[i]]) for i in ticks]
            ax.set_xticks(ticks, names, fontsize=size, parse_math=False, rotation=90)
            ax.set_yticks(ticks, names, fontsize=size, parse_math=False)

    def _mark_groups(self, ax: Any) -> None:
        """Draw lines between groups, and on the right the names that fit."""
        assert self.groups is not None
        in_order = [str(self.groups[i]) for i in self.order]
        room = _height_in_points(ax) / len(in_order)
        middles, texts, start = [], [], 0
        for group, members in groupby(in_order):
            n = len(list(members))
            middles.append(start + (n - 1) / 2)
            texts.append(one_line(group) if n * room > _FONT * LINE_HEIGHT else "")
            if start > 0:
                ax.axhline(start - 0.5, color="black", linewidth=0.8)
                ax.axvline(start - 0.5, color="black", linewidth=0.8)
            start += n
        right = ax.secondary_yaxis("right")
        right.set_yticks(middles, texts, fontsize=_FONT, parse_math=False)
        right.tick_params(length=0)


def _height_in_points(ax: Any) -> float:
    ax.figure.canvas.figure.draw_without_rendering()  # computes the layout
    return max(float(ax.get_window_extent().height * 72 / ax.figure.dpi), 1.0)


def learned_similarity(model: Any) -> NDArray[np.floating]:
    """Return ``model.label_similarity()``, or raise an error that names models that have one."""
    if not hasattr(model, "label_similarity"):
        raise InputError(
            f"{type(model).__name__} does not learn which labels are similar; use C-GMVAE or MPVAE."
        )
    return as_similarity(model.label_similarity())


def as_similarity(similarity: ArrayLike) -> NDArray[np.floating]:
    """Return the similarity as a square float64 array with at least one label."""
    table = np.asarray(similarity, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or table.shape[0] == 0:
        raise InputError(
            f"The similarity has shape {table.shape}; it must have a row and a column for each "
            "label."
        )
    return table


def label_distances(similarity: NDArray[np.floating]) -> Values:
    """Return condensed distances for scipy's clustering, 0 for the most similar, (n_pairs,).

    NaN counts as a similarity of 0.
    """
    from scipy.spatial.distance import squareform

    symmetric = np.nan_to_num((similarity + similarity.T) / 2, nan=0.0)
    distance = symmetric.max() - symmetric
    np.fill_diagonal(distance, 0.0)
    return squareform(distance, checks=False)


class PairCounts(NamedTuple):
    """Counts per pair of labels over the rows that know both, (n_labels, n_labels) each."""

    both: Values
    first: Values
    """Rows with the first label, with or without the second."""
    known: Values


def pair_counts(labels: Matrix, unknown: Matrix | None = None) -> PairCounts:
    """Count how often labels, (n_samples, n_labels) like their mask, occur alone and together."""
    Y = sp.csr_array(labels, dtype=np.float64)
    both = (Y.T @ Y).toarray()
    mask = sp.csr_array(Y.shape if unknown is None else unknown, dtype=np.float64)
    alone = np.asarray(mask.sum(axis=0)).ravel()
    first = np.diag(both)[:, None] - (Y.T @ mask).toarray()
    known = Y.shape[0] - alone[:, None] - alone[None, :] + (mask.T @ mask).toarray()
    return PairCounts(both, first, known)


def association(counts: PairCounts) -> Values:
    """Return the correlation of the columns of each pair of labels (φ), (n_labels, n_labels).

    It is NaN unless both labels vary.

    Examples
    --------
    >>> counts = pair_counts(np.array([[1, 1], [1, 1], [0, 0], [0, 0]]))
    >>> association(counts).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    both, first, known = counts
    second = first.T
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(first * (known - first) * second * (known - second))
        return np.where(spread > 0, (known * both - first * second) / spread, np.nan)


@dataclass(eq=False, repr=False)
class SimilarityCooccurrenceDisplay(Display):
    """Learned similarity against co-occurrence, one point per pair of labels.

    Attributes
    ----------
    disagreement : array, (n_pairs,)
        Standardized similarity minus standardized association: above 0, the labels are more
        similar to the model than their co-occurrence suggests.
    rank_correlation : float
        Spearman correlation of similarity and association; NaN with fewer than three pairs.
    """

    pairs: NDArray[np.int64]
    """Indices of the labels of each pair whose association is defined, (n_pairs, 2)."""
    similarity: Values
    association: Values
    """(n_pairs,) each."""
    _: KW_ONLY
    together: Values
    """Rows with both labels, (n_pairs,)."""
    label_names: Sequence[str]

    def __post_init__(self) -> None:
        first, second = self.similarity, self.association
        self.disagreement = np.zeros(len(first))
        if len(first):
            for sign, values in ((1, first), (-1, second)):
                self.disagreement += sign * (values - values.mean()) / (values.std() or 1.0)
        self.rank_correlation = float("nan")
        if len(first) >= 3 and np.ptp(first) > 0 and np.ptp(second) > 0:
            self.rank_correlation = float(spearmanr(first, second).statistic)

    @classmethod
    def from_similarity(
        cls,
        similarity: ArrayLike,
        Y: Any,
        *,
        label_names: Sequence[str] | None = None,
    ) -> SimilarityCooccurrenceDisplay:
        """Compare a matrix, (n_labels, n_labels), with labels, (n_samples, n_labels)."""
        similarity, targets = as_similarity(similarity), as_targets(Y, label_names)
        if len(similarity) != len(targets.names):
            raise InputError(
                f"The similarity is of {len(similarity):,} labels and Y of {len(targets.names):,}; "
                "they must have the same labels."
            )
        counts = pair_counts(targets.labels, targets.unknown)
        strength = association(counts)
        first, second = np.triu_indices(len(similarity), 1)
        usable = np.isfinite(strength[first, second]) & np.isfinite(similarity[first, second])
        first, second = first[usable], second[usable]
        return cls(
            np.column_stack([first, second]),
            similarity[first, second],
            strength[first, second],
            together=counts.both[first, second],
            label_names=targets.names,
        )

    def most_disagreeing(self, k: int = 8) -> NDArray[np.int64]:
        """Return the indices in ``pairs`` of the k largest disagreements, in descending order.

        If possible, half of them are more similar than their co-occurrence suggests, half less.
        """
        falling = np.argsort(-self.disagreement, kind="stable")
        above = falling[self.disagreement[falling] > 0]
        below = falling[::-1][self.disagreement[falling[::-1]] < 0]
        n_above = max(k - k // 2, k - len(below))
        chosen = np.concatenate([above[:n_above], below[: max(k - min(n_above, len(above)), 0)]])
        return chosen[np.argsort(-np.abs(self.disagreement[chosen]), kind="stable")]

    def describe(self, pair: int) -> str:
        """Return the names and the numbers of one of the ``pairs``."""
        first, second = (one_line(self.label_names[i]) for i in self.pairs[pair])
        numbers = (f"{x[pair]:z.2f}".replace("-", "−") for x in (self.similarity, self.association))
        similarity, association = numbers
        rows = "1 row" if self.together[pair] == 1 else f"{self.together[pair]:,.0f} rows"
        return f"{first} – {second}   (similarity {similarity}, correlation {association}, {rows})"

    def plot(
        self, ax: Any = None, *, n_named: int = 8, listed: bool = True
    ) -> SimilarityCooccurrenceDisplay:
        """Draw all pairs, and number those with the largest disagreement, ``listed`` below.

        More than 3,000 pairs are drawn as counts per hexagon.
        """
        from matplotlib.colors import LinearSegmentedColormap, to_rgba

        chosen = self.most_disagreeing(n_named)
        ax = self._start(ax, (7.5, 6 + 0.18 * len(chosen)))
        if len(self.pairs) > _MAX_POINTS:
            fading = LinearSegmentedColormap.from_list(
                "fading", [to_rgba(BLUE, 0.1), to_rgba(BLUE, 1)]
            )
            cells = ax.hexbin(
                self.association, self.similarity, gridsize=50, bins="log", cmap=fading, mincnt=1
            )
            ax.figure.colorbar(cells, ax=ax, label="pairs of labels", shrink=0.7)
        else:
            ax.scatter(self.association, self.similarity, s=14, color=BLUE, alpha=0.5, linewidths=0)
        ax.set(xlabel="correlation of the labels' columns", ylabel="learned similarity")
        title = f"{len(self.pairs):,} pairs of labels"
        if not np.isnan(self.rank_correlation):
            title += f", rank correlation {self.rank_correlation:.2f}"
        ax.set_title(title, fontsize=10)
        tidy(ax)
        if len(chosen):
            self._name(ax, chosen, listed)
        return self

    def _name(self, ax: Any, chosen: NDArray[np.int64], listed: bool) -> None:
        points = np.column_stack([self.association, self.similarity])[chosen]
        for above, mark in ((True, "^"), (False, "v")):
            own = points[(self.disagreement[chosen] > 0) == above]
            text = "more similar than together" if above else "more together than similar"
            if len(own):
                ax.scatter(*own.T, s=40, marker=mark, color=ORANGE, edgecolor="white", label=text)
        ax.legend(fontsize=8, framealpha=0.9)
        lines = [f"{number}  {self.describe(pair)}" for number, pair in enumerate(chosen, 1)]
        ax.annotate(
            "\n".join(lines if listed else []),
            (0, 0),
            xycoords="axes fraction",
            xytext=(0, -BELOW),
            textcoords="offset points",
            va="top",
            fontsize=8,
            parse_math=False,
        )
        numbers = [str(i + 1) for i in range(len(chosen))]
        place_names(ax, points, numbers, size=9, avoid_points=False)
