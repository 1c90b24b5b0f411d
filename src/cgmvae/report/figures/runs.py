"""Figures of runs: training histories, and comparisons of methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.errors import InputError
from cgmvae.report.figures.similarity import LabelSimilarityDisplay
from cgmvae.report.figures.style import (
    BLUE,
    ORANGE,
    SKY,
    Display,
    Values,
    one_line,
    series_style,
    tidy,
    title_of,
)

#: Margin beyond the first and the last tick, relative to their distance.
_MARGIN = 0.06

#: Maximum shift of overlapping error bars, relative to x.
_DODGE = 0.012


@dataclass(eq=False, repr=False)
class TrainingHistoryDisplay(Display):
    """One panel per loss term: members as thin lines, their mean, and their best epochs.

    Attributes
    ----------
    mean : dict of str to array (n_epochs,)
        Mean over the members that are still training.

    Examples
    --------
    >>> history = {"kl": [[2.0, 4.0], [1.0, float("nan")]]}
    >>> TrainingHistoryDisplay(history, [2, 1]).mean["kl"].tolist()
    [3.0, 1.0]
    """

    history: Mapping[str, Values]
    """(n_epochs, n_members) for each term; NaN after a member stopped."""
    best_epoch: NDArray[np.int64] | None = None
    """The epoch whose weights each member keeps, counted from 1, (n_members,)."""

    def __post_init__(self) -> None:
        if not self.history:
            raise InputError("The history is empty; train the model for at least one epoch.")
        self.history = {name: np.asarray(each, np.float64) for name, each in self.history.items()}
        if self.best_epoch is not None:
            self.best_epoch = np.asarray(self.best_epoch, np.int64)
        self.mean = {
            name: np.ma.masked_invalid(series).mean(axis=1).filled(np.nan)
            for name, series in self.history.items()
        }

    @classmethod
    def from_estimator(cls, model: Any) -> TrainingHistoryDisplay:
        """Show the history of a fitted network."""
        if not hasattr(model, "history_"):
            raise InputError(
                f"{type(model).__name__} has no training history; only fitted networks have one."
            )
        return cls(model.history_, model.best_epoch_)

    def plot(self, ax: Any = None) -> TrainingHistoryDisplay:
        """Draw the panels; if axes are given, there must be one per term."""
        n = len(self.history)
        n_columns = min(n, 2 if n == 4 or self.size else 3)
        n_rows = -(-n // n_columns)
        size = (4 * n_columns, 3 * n_rows + 0.4)
        panels = self._start_panels(ax, n, size, nrows=n_rows, ncols=n_columns)
        for panel, name in zip(panels, self.history, strict=True):
            self._draw_term(panel, name)
        if ax is None:
            _legend_below_panels(self.figure_, panels[-1:])
        else:
            panels[-1].legend(fontsize=8)
        return self

    def _draw_term(self, ax: Any, name: str) -> None:
        series, mean = self.history[name], self.mean[name]
        epochs = np.arange(1, len(series) + 1)
        for i, line in enumerate(series.T):
            ax.plot(epochs, line, color=SKY, lw=0.8, alpha=0.8, label="" if i else "member")
        ax.plot(epochs, mean, color=BLUE, lw=2.2, label="mean")
        if self.best_epoch is not None:
            members = np.flatnonzero((self.best_epoch > 0) & (self.best_epoch <= len(series)))
            best = self.best_epoch[members]
            values, looks = series[best - 1, members], {"s": 28, "color": ORANGE, "zorder": 3}
            ax.scatter(best, values, edgecolor="white", label="best epoch, kept", **looks)
        ax.set_title(title_of(name), fontsize=10)
        ax.set_xlabel("epoch")
        ax.xaxis.get_major_locator().set_params(integer=True)
        tidy(ax)


def _legend_below_panels(figure: Any, panels: Iterable[Any]) -> None:
    """Draw one legend for all panels, each name once."""
    handles: dict[str, Any] = {}
    for panel in panels:
        found, names = panel.get_legend_handles_labels()
        handles |= dict(zip(names, found, strict=True))
    look = {"ncols": 3, "frameon": False, "fontsize": 9}
    figure.legend(handles.values(), handles, loc="outside lower center", **look)


@dataclass(eq=False, repr=False)
class FewerDataDisplay(Display):
    """A metric against the share of the training rows, one line per method.

    Examples
    --------
    >>> mean, deviation = [[0.5, 0.7]], [[0.14, 0.0]]
    >>> display = FewerDataDisplay([0.5, 1.0], mean, deviation, methods=["a"], metric="micro_f1")
    >>> display.plot().ax_.get_ylabel()
    'micro-F1'
    """

    fractions: Values
    """Share of the training rows, between 0 and 1, (n_fractions,)."""
    mean: Values
    std: Values
    """Over runs, (n_methods, n_fractions) each; NaN if there is none."""
    _: KW_ONLY
    methods: Sequence[str]
    metric: str
    title: str = ""

    def __post_init__(self) -> None:
        self.fractions = np.asarray(self.fractions, np.float64)
        self.mean, self.std = np.asarray(self.mean, np.float64), np.asarray(self.std, np.float64)
        shape = (len(self.methods), len(self.fractions))
        if self.mean.shape != shape or self.std.shape != shape:
            raise InputError(
                f"Mean and standard deviation must have shape {shape}, one row per method and one "
                f"column per fraction, but have {self.mean.shape} and {self.std.shape}."
            )

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
        margin = _MARGIN * (np.ptp(ticks) or ticks.max())
        ax.set_xlim(ticks.min() - margin, ticks.max() + margin)
        ax.set_xticks(ticks, [f"{tick:g}%" for tick in ticks])
        ax.set(xlabel="training rows", ylabel=title_of(self.metric))
        legend = ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9)
        for text in legend.get_texts():
            text.set_parse_math(False)
        ax.set_title(self.title, parse_math=False)
        tidy(ax)
        return self


@dataclass(eq=False, repr=False)
class CriticalDifferenceDisplay(Display):
    """Average ranks of methods; those joined by a bar do not differ significantly.

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

    ranks: Values
    """Average ranks over data sets, 1 the best, (n_methods,)."""
    methods: Sequence[str]
    critical_difference: float
    """Smaller differences of ranks are not significant (Nemenyi); NaN on a single data set."""

    def __post_init__(self) -> None:
        self.ranks = np.asarray(self.ranks, np.float64)
        if self.ranks.shape != (len(self.methods),) or not np.isfinite(self.ranks).all():
            raise InputError("The ranks are not one finite number per method; pass one for each.")
        known = not np.isnan(self.critical_difference)
        self.cliques = _cliques(self.ranks, self.critical_difference) if known else []

    def plot(self, ax: Any = None) -> CriticalDifferenceDisplay:
        """Draw the scale of ranks with the best on the left, the methods, and the bars."""
        n = len(self.methods)
        ax = self._start(ax, (8, 1.3 + 0.22 * n + 0.12 * len(self.cliques)))
        low, high = 1, max(n, 2, int(np.ceil(self.ranks.max())))
        first_name = 1.0 + 0.45 * len(self.cliques)
        ax.plot([low, high], [0, 0], "k", lw=1)
        for tick in range(low, high + 1):
            ax.plot([tick, tick], [0, 0.2], "k", lw=1)
            ax.text(tick, 0.3, str(tick), ha="center", va="bottom", fontsize=9)
        text = "one data set: no test"
        if not np.isnan(self.critical_difference):
            end = min(low + self.critical_difference, high)
            ax.plot([low, end], [1.5, 1.5], "k", lw=1.5, marker="|", ms=8)
            text = f"critical difference {self.critical_difference:.2f}"
        ax.text(low, 1.75, text, va="bottom", fontsize=9)
        for height, clique in enumerate(self.cliques):
            ends = self.ranks[[clique[0], clique[-1]]]
            y = -0.5 - 0.45 * height
            ax.plot([ends[0] - 0.03, ends[1] + 0.03], [y, y], "k", lw=4, solid_capstyle="round")
        self._draw_names(ax, low, high, first_name)
        ax.set(xlim=(low, high), ylim=(-first_name - (n + 1) // 2 + 0.3, 2.2))
        ax.axis("off")
        return self

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


def _cliques(ranks: Values, critical_difference: float) -> list[list[int]]:
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


def display_of(kind: str, contents: Mapping[str, Any]) -> Display:
    """Return the display of a figure of a study, from its kind and contents."""
    if kind == "critical-difference":
        return CriticalDifferenceDisplay(
            contents["mean_ranks"], contents["names"], contents["critical_difference"]
        )
    if kind == "fewer-data":
        return FewerDataDisplay(
            contents["fractions"],
            contents["values"],
            contents["deviations"],
            methods=contents["methods"],
            metric=contents["metric"],
            title=contents["data"],
        )
    if kind == "similarity":  # in the order of the study, which groups the labels
        return LabelSimilarityDisplay.from_similarity(
            contents["matrix"], contents["names"], order="given", groups=contents.get("groups")
        )
    raise InputError(f"There is no figure of the kind {kind!r}.")
