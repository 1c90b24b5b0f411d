"""Comparison of methods: with smaller training sets, and by their average ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.errors import InputError
from cgmvae.report.figures.style import (
    Display,
    one_line,
    series_style,
    tidy,
    title_of,
)

#: Margin beyond the first and the last tick, relative to their distance.
_MARGIN = 0.06

#: Maximum shift of overlapping error bars, relative to x.
_DODGE = 0.012


class FewerDataDisplay(Display):
    """A metric against the share of the training rows, one line per method.

    Parameters
    ----------
    fractions : array, (n_fractions,)
        Share of the training rows, between 0 and 1.
    mean, std : array, (n_methods, n_fractions)
        Over runs; NaN if there is none.
    methods : sequence of str
    metric : str
    title : str, optional

    Examples
    --------
    >>> runs = {"a": [[0.4, 0.6], [0.7, 0.7]]}
    >>> display = FewerDataDisplay.from_runs([0.5, 1.0], runs, metric="micro_f1")
    >>> display.mean.tolist(), display.std.round(2).tolist()
    ([[0.5, 0.7]], [[0.14, 0.0]])
    """

    def __init__(
        self,
        fractions: ArrayLike,
        mean: ArrayLike,
        std: ArrayLike,
        *,
        methods: Sequence[str],
        metric: str,
        title: str = "",
    ) -> None:
        self.fractions = np.asarray(fractions, np.float64)
        self.mean, self.std = np.asarray(mean, np.float64), np.asarray(std, np.float64)
        self.methods, self.metric, self.title = list(methods), metric, title
        shape = (len(self.methods), len(self.fractions))
        if self.mean.shape != shape or self.std.shape != shape:
            raise InputError(
                f"Mean and standard deviation must have shape {shape}, one row per method and one "
                f"column per fraction, but have {self.mean.shape} and {self.std.shape}."
            )

    @classmethod
    def from_runs(
        cls, fractions: ArrayLike, runs: Mapping[str, ArrayLike], *, metric: str
    ) -> FewerDataDisplay:
        """Compute mean and sample standard deviation of each method's runs, (n_fractions, n_runs).

        The standard deviation of a single run is 0.
        """
        tables = [np.asarray(values, np.float64) for values in runs.values()]
        mean = [table.mean(axis=1) for table in tables]
        std = [table.std(axis=1, ddof=min(1, table.shape[1] - 1)) for table in tables]
        return cls(fractions, mean, std, methods=list(runs), metric=metric)

    def plot(self, ax: Any = None) -> FewerDataDisplay:
        """Draw one line per method, with error bars of one standard deviation.

        The legend is sorted by the value at the largest fraction; methods without runs are omitted.
        """
        ax = self._start(ax, (8, 4.5))
        order = np.argsort(-np.nan_to_num(self.mean[:, self.fractions.argmax()], nan=-np.inf))
        middle = (len(order) - 1) / 2
        for method in (each for each in order if not np.isnan(self.mean[each]).all()):
            shifted = 100 * self.fractions * (1 + _DODGE * (method - middle) / max(middle, 1))
            ax.errorbar(
                shifted,
                self.mean[method],
                self.std[method],
                capsize=2,
                ms=5,
                lw=1.5,
                elinewidth=0.8,
                label=one_line(self.methods[method]),
                **series_style(int(method)),
            )
        ticks = 100 * self.fractions
        ax.set_xlim(*_widened(ticks))
        ax.set_xticks(ticks, [f"{tick:g} %" for tick in ticks])
        ax.set(xlabel="training rows", ylabel=title_of(self.metric))
        legend = ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9)
        for text in legend.get_texts():
            text.set_parse_math(False)
        ax.set_title(self.title, parse_math=False)
        tidy(ax)
        return self


def _widened(ticks: NDArray[np.float64]) -> tuple[float, float]:
    """Return the limits of an axis with all ticks and a margin."""
    margin = _MARGIN * (np.ptp(ticks) or ticks.max())
    return float(ticks.min() - margin), float(ticks.max() + margin)


class CriticalDifferenceDisplay(Display):
    """Average ranks of methods; those joined by a bar do not differ significantly.

    Parameters
    ----------
    ranks : array, (n_methods,)
        Average ranks over data sets, 1 the best.
    methods : sequence of str
    critical_difference : float
        Smaller differences of ranks are not significant (Nemenyi).

    Attributes
    ----------
    cliques : list of list of int
        Methods joined by a bar, the best first; bars within other bars are omitted.

    Examples
    --------
    >>> display = CriticalDifferenceDisplay([1.2, 3.0, 1.8], ["a", "b", "c"], 1.0)
    >>> display.cliques
    [[0, 2]]
    """

    def __init__(
        self, ranks: ArrayLike, methods: Sequence[str], critical_difference: float
    ) -> None:
        self.ranks, self.methods = np.asarray(ranks, np.float64), list(methods)
        self.critical_difference = float(critical_difference)
        if self.ranks.shape != (len(self.methods),) or not np.isfinite(self.ranks).all():
            raise InputError("The ranks are not one finite number per method; pass one for each.")
        self.cliques = _cliques(self.ranks, self.critical_difference)

    def plot(self, ax: Any = None) -> CriticalDifferenceDisplay:
        """Draw the scale of ranks with the best on the left, the methods, and the bars."""
        n = len(self.methods)
        ax = self._start(ax, (8, 1.3 + 0.22 * n + 0.12 * len(self.cliques)))
        low, high = 1, max(n, 2, int(np.ceil(self.ranks.max())))
        first_name = 1.0 + 0.45 * len(self.cliques)
        self._draw_scale(ax, low, high)
        for height, clique in enumerate(self.cliques):
            ends = self.ranks[[clique[0], clique[-1]]]
            y = -0.5 - 0.45 * height
            ax.plot([ends[0] - 0.03, ends[1] + 0.03], [y, y], "k", lw=4, solid_capstyle="round")
        self._draw_names(ax, low, high, first_name)
        ax.set(xlim=(low, high), ylim=(-first_name - (n + 1) // 2 + 0.3, 2.2))
        ax.axis("off")
        return self

    def _draw_scale(self, ax: Any, low: int, high: int) -> None:
        ax.plot([low, high], [0, 0], "k", lw=1)
        for tick in range(low, high + 1):
            ax.plot([tick, tick], [0, 0.2], "k", lw=1)
            ax.text(tick, 0.3, str(tick), ha="center", va="bottom", fontsize=9)
        end = min(low + self.critical_difference, high)
        ax.plot([low, end], [1.5, 1.5], "k", lw=1.5, marker="|", ms=8)
        text = f"critical difference {self.critical_difference:.2f}"
        ax.text(low, 1.75, text, va="bottom", fontsize=9)

    def _draw_names(self, ax: Any, low: int, high: int, first: float) -> None:
        """Draw the better half of the methods on the left, the others on the right."""
        order = np.argsort(self.ranks, kind="stable")
        half = (len(order) + 1) // 2
        for position, method in enumerate(order):
            left = position < half
            y = -first - (position if left else len(order) - 1 - position)
            end = low - 0.05 if left else high + 0.05
            rank = self.ranks[method]
            ax.plot([rank, rank, end], [0, y, y], color="black", lw=0.8, clip_on=False)
            name = one_line(self.methods[method])
            text = f"{name}  {rank:.2f}" if left else f"{rank:.2f}  {name}"
            side = "right" if left else "left"
            ax.text(end, y, f" {text} ", ha=side, va="center", fontsize=9, parse_math=False)


def _cliques(ranks: NDArray[np.float64], critical_difference: float) -> list[list[int]]:
    order = np.argsort(ranks, kind="stable")
    found: list[list[int]] = []
    reached = 0
    for start in range(len(order)):
        near = ranks[order] - ranks[order[start]] <= critical_difference
        end = int(np.flatnonzero(near).max()) + 1
        if end - start > 1 and end > reached:
            found.append(order[start:end].tolist())
        reached = max(reached, end)
    return found
