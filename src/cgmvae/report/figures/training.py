"""Figures of the training history of a model, and of the effects of a search's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.errors import InputError
from cgmvae.report.figures.style import BLUE, GREY, ORANGE, SKY, Display, tidy, title_of

if TYPE_CHECKING:
    from cgmvae.search import SearchResult


class TrainingHistoryDisplay(Display):
    """One panel per loss term: members as thin lines, their mean, and their best epochs.

    Parameters
    ----------
    history : mapping of str to array (n_epochs, n_members)
        NaN after a member stopped.
    best_epoch : array of int, (n_members,), optional
        The epoch whose weights each member keeps, counted from 1.

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

    def __init__(
        self, history: Mapping[str, ArrayLike], best_epoch: ArrayLike | None = None
    ) -> None:
        self.history = {name: np.asarray(series, np.float64) for name, series in history.items()}
        if not self.history:
            raise InputError("The history is empty; train the model for at least one epoch.")
        self.best_epoch = None if best_epoch is None else np.asarray(best_epoch, np.int64)
        self.mean = {name: _mean(series) for name, series in self.history.items()}

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
        n_columns = 2 if n == 4 else min(n, 3)
        n_rows = -(-n // n_columns)
        size = (4 * n_columns, 3 * n_rows + 0.4)
        panels = self._start_panels(ax, n, size, nrows=n_rows, ncols=n_columns)
        for panel, name in zip(panels, self.history, strict=True):
            self._draw_term(panel, name)
        last = panels[-1]
        if ax is None:
            handles, labels = last.get_legend_handles_labels()
            self.figure_.legend(
                handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9
            )
        else:
            last.legend(fontsize=8)
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
            ax.scatter(
                best,
                series[best - 1, members],
                s=28,
                color=ORANGE,
                edgecolor="white",
                zorder=3,
                label="best epoch, kept",
            )
        ax.set_title(title_of(name), fontsize=10)
        ax.set_xlabel("epoch")
        ax.xaxis.get_major_locator().set_params(integer=True)
        tidy(ax)


def _mean(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over members with a finite value, NaN if there is none, (n_epochs,)."""
    known = np.isfinite(series)
    total = np.where(known, series, 0).sum(axis=1)
    return np.divide(total, known.sum(axis=1), out=np.full(len(series), np.nan), where=known.any(1))


def plot_effects(results: Sequence[SearchResult], *, metric: str = "validation metric") -> Any:
    """Draw the effect of each searched parameter on the metric, one panel each.

    Each point is a setting; grey ones were stopped early by the search. The line joins the medians
    of the settings that were trained to the end.

    Returns
    -------
    matplotlib Figure
    """
    from matplotlib.figure import Figure

    varied = [
        name
        for name in results[0].setting
        if len({repr(result.setting[name]) for result in results}) > 1
    ] or list(results[0].setting)[:1]
    n_columns = min(3, len(varied))
    n_rows = -(-len(varied) // n_columns)
    figure = Figure(figsize=(4 * n_columns, 3.2 * n_rows), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True)
    for i, axes in enumerate(panels.flat):
        if i < len(varied):
            _draw_effect(axes, results, varied[i])
        else:
            axes.set_visible(False)
    for row in panels:
        row[0].set_ylabel(metric)
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        found, names = axes.get_legend_handles_labels()
        handles |= dict(zip(names, found, strict=True))
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9
    )
    return figure


def _draw_effect(axes: Any, results: Sequence[SearchResult], name: str) -> None:
    choices = _ordered({repr(r.setting[name]): r.setting[name] for r in results}.values())
    positions = {repr(choice): i for i, choice in enumerate(choices)}
    jitter = np.random.default_rng(0).uniform(-0.15, 0.15, len(results))
    for finished, color, label in (
        (False, GREY, "stopped early"),
        (True, BLUE, "trained to the end"),
    ):
        chosen = [i for i, result in enumerate(results) if result.finished == finished]
        x = [positions[repr(results[i].setting[name])] + jitter[i] for i in chosen]
        y = [results[i].value for i in chosen]
        if chosen:
            axes.scatter(x, y, s=14, color=color, alpha=0.7, linewidths=0, label=label)
    medians = [
        (position, np.median(own))
        for key, position in positions.items()
        if (own := [r.value for r in results if repr(r.setting[name]) == key and r.finished])
    ]
    axes.plot(*zip(*medians, strict=True), color=ORANGE, linewidth=1.5, label="median")
    step = -(-len(choices) // 8)
    axes.set_xticks(range(0, len(choices), step), [_short(c) for c in choices[::step]], rotation=45)
    axes.set_title(name.replace("_", " "), fontsize=10)
    tidy(axes, grid="y")


def _ordered(choices: Any) -> list[Any]:
    choices = list(choices)
    try:
        return sorted(choices)
    except TypeError:
        return sorted(choices, key=str)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
