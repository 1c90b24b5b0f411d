"""Which words speak for a label: how much less likely it is once a word is taken out of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logit

from cgmvae.report.figures.label_map import label_frequency
from cgmvae.report.figures.names import one_line, place_of
from cgmvae.report.figures.style import GREY, Display

Values = NDArray[np.float64]

#: Words that are tried for each label, and rows that each of them is taken out of.
_TRIED, _ROWS_A_WORD = 12, 25

#: The least fall of log-odds that a word is named for.
_LEAST = 0.1

#: Probabilities are held away from 0 and 1 before their odds are taken.
_NEAR = 1e-6


class LabelWordsDisplay(Display):
    """The words that speak most for each label.

    Parameters
    ----------
    effects : array, (n_tried, n_labels)
        How much the log-odds of a label fall, on average over rows that have a word, once the word
        is taken out.
    words : sequence of str
        (n_tried,)
    label_names : sequence of str
    """

    def __init__(
        self, effects: Values, *, words: Sequence[str], label_names: Sequence[str]
    ) -> None:
        self.effects, self.words, self.label_names = effects, words, label_names

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: sp.csr_array,
        Y: Any,
        *,
        words: Mapping[int, str],
        max_labels: int = 12,
        max_rows: int = 1000,
        random_state: int = 0,
    ) -> LabelWordsDisplay:
        """Take words out of the texts that have them, and predict again.

        For each of the commonest labels those words are tried that go most with its probability.

        Parameters
        ----------
        model : fitted estimator
            Of features that are words, among others.
        X, Y : CSR array and labels in any accepted form
        words : mapping of int to str
            The features that are words, by place.
        max_labels, max_rows : int
            Labels to show; of more rows a seeded sample is taken.
        random_state : int
        """
        rng, names = np.random.default_rng(random_state), model.label_names_
        shown = np.argsort(-label_frequency(Y, names), kind="stable")[:max_labels]
        table = sp.csr_array(X[rng.permutation(X.shape[0])[:max_rows]])
        odds = _log_odds(model, table)[:, shown]
        places = _candidates(table, odds, np.array(list(words)))
        return cls(
            _effects(model, table, odds, places, shown),
            words=[words[place] for place in places.tolist()],
            label_names=[names[label] for label in shown],
        )

    def top(self, label: str, n: int = 5) -> list[tuple[str, float]]:
        """Return the words that speak most for a label, and how strongly."""
        own = self.effects[:, place_of(label, self.label_names)]
        best = np.argsort(-own, kind="stable")[:n]
        return [(self.words[i], float(own[i])) for i in best if own[i] >= _LEAST]

    def plot(self, ax: Any = None, *, n_words: int = 5) -> LabelWordsDisplay:
        """Write for each label its words, the strongest first."""
        n_labels = len(self.label_names)
        ax = self._start(ax, (7.5, 0.6 + 0.32 * n_labels))
        for place, label in enumerate(self.label_names):
            top = self.top(label, n_words)
            found = [f"{one_line(word, 20)} {effect:.1f}" for word, effect in top]
            text, colour = ("    ".join(found), "black") if found else ("none", GREY)
            ax.text(0.0, place, text, va="center", fontsize=9, color=colour, parse_math=False)
        names = [one_line(label) for label in self.label_names]
        ax.set_yticks(range(n_labels), names, parse_math=False)
        ax.set_ylim(n_labels - 0.5, -0.5)
        ax.set_xticks([])
        ax.tick_params(left=False)
        ax.spines[:].set_visible(False)
        return self


def _log_odds(model: Any, table: sp.csr_array) -> Values:
    scores = model.predict_proba(table).astype(np.float64)
    return logit(np.clip(scores, _NEAR, 1 - _NEAR))


def _candidates(table: sp.csr_array, odds: Values, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of the words that go most with the log-odds of some label, (n_tried,)."""
    together = (table.T @ (odds - odds.mean(axis=0)))[places].T  # (n_labels, n_words)
    return places[np.unique(np.argsort(-together, axis=1, kind="stable")[:, :_TRIED])]


def _effects(
    model: Any, table: sp.csr_array, odds: Values, places: NDArray[np.int64], shown: Any
) -> Values:
    """Return how much the log-odds fall without each word, (n_words, n_labels)."""
    effects = np.zeros((len(places), len(shown)))
    by_column = sp.csc_array(table)
    for i, place in enumerate(places):
        rows = by_column.indices[by_column.indptr[place] : by_column.indptr[place + 1]]
        rows = rows[:_ROWS_A_WORD]
        if len(rows):
            without = sp.csr_array(table[rows])
            without.data[without.indices == place] = 0.0
            effects[i] = (odds[rows] - _log_odds(model, without)[:, shown]).mean(axis=0)
    return effects
