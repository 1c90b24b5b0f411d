"""Similarity of labels against how often they occur together, and where the two disagree.

The similarity is what :mod:`~cgmvae.report.figures.similarity` shows; how often labels occur
together is counted in :mod:`~cgmvae.report.figures.association`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr

from cgmvae.errors import InputError
from cgmvae.methods.inputs import Targets, as_targets
from cgmvae.report.figures.association import Measure, association, pair_counts
from cgmvae.report.figures.interactive import page_figure
from cgmvae.report.figures.names import escaped, one_line, place_names
from cgmvae.report.figures.similarity import as_similarity, learnt_similarity
from cgmvae.report.figures.style import BELOW, BLUE, GREY, ORANGE, Display, tidy

#: Beyond so many pairs a picture shows how many lie in a cell, not each pair.
_SINGLE_PAIRS = 3000

#: Beyond so many pairs a page shows a sample of those that agree.
_PAIRS_ON_A_PAGE = 3000

_TITLES = {
    "correlation": "correlation of the labels' columns",
    "lift": "log₂ lift, how much oftener together than by chance",
}


class SimilarityCooccurrenceDisplay(Display):
    """A point a pair of labels: how alike the model finds them, how often they occur together.

    Parameters
    ----------
    pairs : array of int, (n_pairs, 2)
        Labels of each pair that can be measured.
    similarity, association : array, (n_pairs,)
    together : array, (n_pairs,)
        Rows with both labels.
    label_names : sequence of str
    measure : {"correlation", "lift"}
        What ``association`` is.

    Attributes
    ----------
    disagreement : array, (n_pairs,)
        Similarity less association, each in its standard deviations: above 0 the model finds the
        labels more alike than their rows say.
    rank_correlation : float
        Spearman's, of similarity and association; NaN with fewer than three pairs.
    """

    def __init__(
        self,
        pairs: NDArray[np.int64],
        similarity: NDArray[np.float64],
        association: NDArray[np.float64],
        *,
        together: NDArray[np.float64],
        label_names: Sequence[str],
        measure: Measure,
    ) -> None:
        self.pairs, self.similarity, self.association = pairs, similarity, association
        self.together, self.label_names, self.measure = together, label_names, measure
        self.disagreement = _standardised(similarity) - _standardised(association)
        self.rank_correlation = _rank_correlation(similarity, association)

    @classmethod
    def from_estimator(
        cls, model: Any, Y: Any, *, measure: Measure = "correlation"
    ) -> SimilarityCooccurrenceDisplay:
        """Compare the similarity that a fitted model learnt with labels in any accepted form."""
        targets = as_targets(Y, model.label_names_)
        return cls._from_targets(learnt_similarity(model), targets, measure)

    @classmethod
    def from_similarity(
        cls,
        similarity: ArrayLike,
        Y: Any,
        *,
        label_names: Sequence[str] | None = None,
        measure: Measure = "correlation",
    ) -> SimilarityCooccurrenceDisplay:
        """Compare a matrix, (n_labels, n_labels), with labels, (n_samples, n_labels)."""
        return cls._from_targets(as_similarity(similarity), as_targets(Y, label_names), measure)

    @classmethod
    def _from_targets(
        cls, similarity: NDArray[np.floating], targets: Targets, measure: Measure
    ) -> SimilarityCooccurrenceDisplay:
        if len(similarity) != len(targets.names):
            raise InputError(
                f"The similarity is of {len(similarity):,} labels and Y of {len(targets.names):,}; "
                "they must be the same."
            )
        counts = pair_counts(targets.labels, targets.unknown)
        strength = association(counts, measure)
        first, second = np.triu_indices(len(similarity), 1)
        usable = np.isfinite(strength[first, second]) & np.isfinite(similarity[first, second])
        first, second = first[usable], second[usable]
        return cls(
            np.column_stack([first, second]),
            similarity[first, second],
            strength[first, second],
            together=counts.both[first, second],
            label_names=targets.names,
            measure=measure,
        )

    def most_disagreeing(self, k: int = 8) -> NDArray[np.int64]:
        """Return the k pairs that disagree most, as places in ``pairs``, the worst first.

        Half of them are more alike than they occur together, half less, as far as there are any.
        """
        falling = np.argsort(-self.disagreement, kind="stable")
        above = falling[self.disagreement[falling] > 0]
        below = falling[::-1][self.disagreement[falling[::-1]] < 0]
        n_above = max(k - k // 2, k - len(below))
        chosen = np.concatenate([above[:n_above], below[: max(k - min(n_above, len(above)), 0)]])
        return chosen[np.argsort(-np.abs(self.disagreement[chosen]), kind="stable")]

    def plot(self, ax: Any = None, *, n_named: int = 8) -> SimilarityCooccurrenceDisplay:
        """Draw all pairs, with the ones that disagree most numbered and named below.

        Beyond 3,000 pairs the ground shows how many lie in each cell.
        """
        chosen = self.most_disagreeing(n_named)
        ax = self._start(ax, (7.5, 6 + 0.18 * len(chosen)))
        if len(self.pairs) > _SINGLE_PAIRS:
            cells = ax.hexbin(
                self.association, self.similarity, gridsize=50, bins="log", cmap="Greys", mincnt=1
            )
            ax.figure.colorbar(cells, ax=ax, label="pairs of labels", shrink=0.7)
        else:
            ax.scatter(self.association, self.similarity, s=14, color=BLUE, alpha=0.5, linewidths=0)
        ax.set(xlabel=_TITLES[self.measure], ylabel="similarity learnt")
        ax.set_title(self._heading(), fontsize=10)
        tidy(ax)
        self._name(ax, chosen)
        return self

    def _heading(self) -> str:
        found = f"{len(self.pairs):,} pairs of labels"
        if np.isnan(self.rank_correlation):
            return found
        return f"{found}, rank correlation {self.rank_correlation:.2f}"

    def _name(self, ax: Any, chosen: NDArray[np.int64]) -> None:
        points = np.column_stack([self.association, self.similarity])[chosen]
        for above, mark in ((True, "^"), (False, "v")):
            own = points[(self.disagreement[chosen] > 0) == above]
            said = "more alike than together" if above else "more together than alike"
            if len(own):
                ax.scatter(*own.T, s=40, marker=mark, color=ORANGE, edgecolor="white", label=said)
        if not len(chosen):
            return
        ax.legend(fontsize=8, framealpha=0.9)
        lines = [f"{i + 1}  {self._pair_name(pair)}" for i, pair in enumerate(chosen)]
        ax.annotate(
            "\n".join(lines),
            (0, 0),
            xycoords="axes fraction",
            xytext=(0, -BELOW),
            textcoords="offset points",
            va="top",
            fontsize=8,
            parse_math=False,
        )
        place_names(
            ax, points, [str(i + 1) for i in range(len(chosen))], size=9, avoid_points=False
        )

    def _pair_name(self, pair: int) -> str:
        first, second = (one_line(self.label_names[i]) for i in self.pairs[pair])
        return (
            f"{first} – {second}   (similarity {self.similarity[pair]:.2f}, "
            f"{self.measure} {self.association[pair]:.2f}, {self.together[pair]:,.0f} rows)"
        )

    def to_plotly(self, *, n_named: int = 8, random_state: int = 0) -> Any:
        """Return the pairs as a plotly figure with names on hovering.

        Of more than 3,000 pairs a seeded sample is shown, with the most disagreeing ones in it.
        """
        chosen = self.most_disagreeing(n_named)
        others = np.setdiff1d(np.arange(len(self.pairs)), chosen)
        if len(others) > _PAIRS_ON_A_PAGE:
            rng = np.random.default_rng(random_state)
            others = np.sort(rng.choice(others, _PAIRS_ON_A_PAGE, replace=False))
        figure = page_figure(
            x=_TITLES[self.measure], y="similarity learnt", note=self._heading(), showlegend=True
        )
        for places, colour, name in ((others, GREY, "pairs"), (chosen, ORANGE, "disagree most")):
            self._add_points(figure, places, colour, name)
        return figure

    def _add_points(self, figure: Any, places: NDArray[np.int64], colour: str, name: str) -> None:
        names = escaped(self.label_names)
        figure.add_scatter(
            x=self.association[places],
            y=self.similarity[places],
            customdata=[
                [names[i], names[j], int(self.together[place])]
                for place, (i, j) in zip(places, self.pairs[places], strict=True)
            ],
            mode="markers",
            marker={"color": colour, "size": 8 if colour == ORANGE else 5, "opacity": 0.7},
            name=name,
            hovertemplate=(
                "%{customdata[0]}<br>%{customdata[1]}<br>similarity %{y:.2f}<br>"
                f"{self.measure} %{{x:.2f}}<br>%{{customdata[2]:,}} rows with both<extra></extra>"
            ),
        )


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    spread = values.std() if len(values) else 0.0
    return (values - values.mean()) / spread if spread > 0 else np.zeros_like(values)


def _rank_correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(spearmanr(first, second).statistic)
