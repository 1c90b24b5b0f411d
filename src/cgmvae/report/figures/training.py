"""How training went: every term of the loss and the validation metric, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.errors import InputError
from cgmvae.report.figures.style import BLUE, ORANGE, SKY, Display, tidy, title_of


class TrainingHistoryDisplay(Display):
    """A panel a term: members as thin lines, their mean as a thick one, best epochs as marks.

    Parameters
    ----------
    history : mapping of str to array (n_epochs, n_members)
        NaN where a member had stopped.
    best_epoch : array of int, (n_members,), optional
        The epoch that each member keeps, counted from 1.

    Attributes
    ----------
    mean : dict of str to array (n_epochs,)
        Mean over the members that were still training.

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
            raise InputError("The history is empty; nothing was trained.")
        self.best_epoch = None if best_epoch is None else np.asarray(best_epoch, np.int64)
        self.mean = {name: _mean(series) for name, series in self.history.items()}

    @classmethod
    def from_estimator(cls, model: Any) -> TrainingHistoryDisplay:
        """Take the history of a fitted method that is trained by epochs."""
        if not hasattr(model, "history_"):
            raise InputError(
                f"{type(model).__name__} has no history; only fitted networks have one."
            )
        return cls(model.history_, model.best_epoch_)

    def plot(self, ax: Any = None) -> TrainingHistoryDisplay:
        """Draw the panels, on as many axes as there are terms where axes are given."""
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
    """Return the mean over members that have a number, NaN where none has, (n_epochs,)."""
    known = np.isfinite(series)
    total = np.where(known, series, 0).sum(axis=1)
    return np.divide(total, known.sum(axis=1), out=np.full(len(series), np.nan), where=known.any(1))
