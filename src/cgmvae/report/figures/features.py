"""Which features and which words matter to a label, by changing them and predicting again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from cgmvae.data.dataset import Matrix, column_names
from cgmvae.evaluation.ranking import rank
from cgmvae.methods.inputs import as_targets
from cgmvae.report.figures.maps import label_frequency
from cgmvae.report.figures.style import (
    BLUE,
    GRAY,
    Display,
    Values,
    index_of,
    one_line,
    tidy,
)

#: Candidate words per label, and rows per word from which it is removed.
_CANDIDATES, _ROWS_PER_WORD = 12, 25

#: Minimum drop of the log-odds at which a word is shown.
_MIN_EFFECT = 0.1

#: Probabilities are clipped by this before the logit.
_EPSILON = 1e-6


@dataclass(eq=False, repr=False)
class FeatureImportanceDisplay(Display):
    """Permutation importance of features for each label."""

    drops: Values
    """The metric on the original rows minus the metric with the feature shuffled, (n_tried,
    n_repeats, n_labels); NaN if the metric of a label is undefined."""
    baseline: Values
    """The metric on the original rows, (n_labels,)."""
    _: KW_ONLY
    feature_names: Sequence[str]
    """Names of the features, or columns, that were shuffled, (n_tried,)."""
    label_names: Sequence[str]
    n_features: int
    """Number of candidates, shuffled or not."""
    n_rows: int
    """Number of rows that were predicted again."""

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        Y: Any,
        *,
        feature_names: Sequence[str] | None = None,
        candidates: Mapping[str, Sequence[int]] | None = None,
        labels: ArrayLike | None = None,
        n_repeats: int = 5,
        max_features: int = 200,
        max_rows: int = 2000,
        random_state: int = 0,
    ) -> FeatureImportanceDisplay:
        """Shuffle one feature at a time, ``n_repeats`` times, and predict all labels again.

        X, (n_samples, n_features), is an array or a CSR array of rows that were not used for
        training. Its features have the names that the model was fitted with unless
        others are given. The ``candidates`` are the features to shuffle, by default each on its
        own: names, and the indices of the features that are shuffled together under that name, as
        those of one column are. The metric is the average precision of each label, or of those
        with the indices ``labels``, (n_labels,).
        More than ``max_rows`` rows or ``max_features`` candidates are subsampled with the seed; of
        sparse features the most frequent ones are taken.
        """
        rng = np.random.default_rng(random_state)
        targets = as_targets(Y, model.label_names_)
        table: Any = sp.csr_array(X) if sp.issparse(X) else np.asarray(X)
        if feature_names is None:
            feature_names = getattr(model, "input_names_", None)
        names = column_names(feature_names, "feature", table.shape[1])
        rows = _sample(table.shape[0], max_rows, rng)
        shown = np.arange(len(targets.names)) if labels is None else np.asarray(labels)
        table, Y = table[rows], targets.labels[rows][:, shown]
        unknown = None if targets.unknown is None else targets.unknown[rows][:, shown]

        def measure(features: Any) -> Values:
            """Return the metric per label, (n_labels,)."""
            scores = model.predict_proba(features)[:, shown]
            return rank(Y, scores, unknown).by_label().average_precision()

        if candidates is None:
            candidates = {name: [i] for i, name in enumerate(names)}
        blocks = list(candidates.items())
        if sp.issparse(table) and len(blocks) > max_features:
            # Shuffling rare features would change nothing.
            counts = np.bincount(table.indices, minlength=table.shape[1])
            n_rows = np.array([counts[list(block)].sum() for _, block in blocks])
            tried = np.sort(np.argsort(-n_rows, kind="stable")[:max_features])
        else:
            tried = _sample(len(blocks), max_features, rng)
        baseline = measure(table)
        drops = [
            [baseline - measure(_shuffled(table, blocks[i][1], rng)) for _ in range(n_repeats)]
            for i in tried
        ]
        return cls(
            np.array(drops),
            baseline,
            feature_names=[blocks[i][0] for i in tried],
            label_names=[targets.names[label] for label in shown.tolist()],
            n_features=len(blocks),
            n_rows=len(rows),
        )

    def importance(self, label: str | None = None) -> tuple[Values, Values]:
        """Return mean and standard deviation of the drop over shuffles, (n_tried,) each.

        Of one label, or of the mean over all labels whose metric is defined.
        """
        measured = np.isfinite(self.baseline)
        if label is not None:
            drops = self.drops[..., index_of(label, self.label_names)]
        else:
            drops = self.drops[..., measured if measured.any() else [0]].mean(axis=-1)
        return drops.mean(axis=1), drops.std(axis=1)

    def plot(
        self, ax: Any = None, *, label: str | None = None, n_shown: int = 12
    ) -> FeatureImportanceDisplay:
        """Draw the most important features of a label, or of all labels on average."""
        mean, spread = self.importance(label)
        best = np.argsort(-np.nan_to_num(mean, nan=-np.inf), kind="stable")[:n_shown]
        ax = self._start(ax, (7.5, 1.4 + 0.3 * len(best)))
        positions = np.arange(len(best))
        if np.isfinite(mean[best]).all():
            ax.barh(positions, mean[best], xerr=spread[best], color=BLUE, ecolor=GRAY, height=0.7)
        else:
            ax.text(0.5, 0.5, "not defined on these rows", ha="center", transform=ax.transAxes)
        texts = [one_line(self.feature_names[i]) for i in best]
        ax.set_yticks(positions, texts, parse_math=False)
        ax.invert_yaxis()
        ax.axvline(0, color="black", lw=0.8)
        ax.set_xlabel("drop of average precision")
        title = "mean of all labels" if label is None else one_line(label, 50)
        n_tried = len(self.feature_names)
        if n_tried < self.n_features:
            title += f" ({n_tried:,} of {self.n_features:,} features shuffled)"
        ax.set_title(title, fontsize=10, parse_math=False)
        ax.locator_params(axis="x", nbins=6)
        tidy(ax, grid="x")
        return self


def _sample(n: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def _shuffled(table: Matrix, columns: Sequence[int], rng: np.random.Generator) -> Matrix:
    """Return a copy of the features with some columns shuffled, all in the same order."""
    order = rng.permutation(table.shape[0])
    if not sp.issparse(table):
        shuffled = table.copy()
        shuffled[:, columns] = table[order][:, columns]
        return shuffled
    by_column = sp.csc_array(table, copy=True)
    for column in columns:
        own = slice(by_column.indptr[column], by_column.indptr[column + 1])
        by_column.indices[own] = order[by_column.indices[own]]
    by_column.has_sorted_indices = False
    return sp.csr_array(by_column)


@dataclass(eq=False, repr=False)
class LabelWordsDisplay(Display):
    """The words that raise the probability of each label most."""

    effects: Values
    """Mean drop of the log-odds of a label when a word is removed, over rows with the word,
    (n_tried, n_labels)."""
    _: KW_ONLY
    words: Sequence[str]
    """(n_tried,)."""
    label_names: Sequence[str]

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: sp.csr_array,
        Y: Any,
        *,
        words: Mapping[int, str],
        labels: ArrayLike | None = None,
        max_labels: int = 12,
        max_rows: int = 1000,
        random_state: int = 0,
    ) -> LabelWordsDisplay:
        """Remove words from the texts that contain them, and predict again.

        For each of the most frequent labels, the candidates are the words that covary most with
        its log-odds.

        ``words`` are given by feature index. ``max_labels`` labels are shown, of all or of those
        with the indices ``labels``; more than ``max_rows`` rows are subsampled with the seed.
        """
        rng, names = np.random.default_rng(random_state), model.label_names_
        frequency = label_frequency(Y, names)
        shown = np.arange(len(names)) if labels is None else np.asarray(labels)
        shown = shown[np.argsort(-frequency[shown], kind="stable")[:max_labels]]
        table = sp.csr_array(X[rng.permutation(X.shape[0])[:max_rows]])

        def log_odds(rows: sp.csr_array) -> Values:
            scores = model.predict_proba(rows)[:, shown].astype(np.float64)
            return logit(np.clip(scores, _EPSILON, 1 - _EPSILON))

        odds, indices = log_odds(table), np.array(list(words))
        covariance = (table.T @ (odds - odds.mean(axis=0)))[indices].T  # (n_labels, n_words)
        best = np.argsort(-covariance, axis=1, kind="stable")[:, :_CANDIDATES]
        candidates = indices[np.unique(best)]
        effects = np.zeros((len(candidates), len(shown)))
        by_column = sp.csc_array(table)
        for i, word in enumerate(candidates):
            rows = by_column.indices[by_column.indptr[word] : by_column.indptr[word + 1]]
            rows = rows[:_ROWS_PER_WORD]
            if len(rows):
                without = sp.csr_array(table[rows])
                without.data[without.indices == word] = 0.0
                effects[i] = (odds[rows] - log_odds(without)).mean(axis=0)
        return cls(
            effects,
            words=[words[index] for index in candidates.tolist()],
            label_names=[names[label] for label in shown],
        )

    def top(self, label: str, n: int = 5) -> list[tuple[str, float]]:
        """Return the words with the largest effect on a label, and their effects."""
        own = self.effects[:, index_of(label, self.label_names)]
        best = np.argsort(-own, kind="stable")[:n]
        return [(self.words[i], float(own[i])) for i in best if own[i] >= _MIN_EFFECT]

    def plot(self, ax: Any = None, *, n_words: int = 5) -> LabelWordsDisplay:
        """List the words of each label by decreasing effect."""
        n_labels = len(self.label_names)
        ax = self._start(ax, (7.5, 0.6 + 0.32 * n_labels))
        for row, label in enumerate(self.label_names):
            top = self.top(label, n_words)
            found = [f"{one_line(word, 20)} {effect:.1f}" for word, effect in top]
            text, color = ("    ".join(found), "black") if found else ("none", GRAY)
            ax.text(0.0, row, text, va="center", fontsize=9, color=color, parse_math=False)
        names = [one_line(label) for label in self.label_names]
        ax.set_yticks(range(n_labels), names, parse_math=False)
        ax.set_ylim(n_labels - 0.5, -0.5)
        ax.set_xticks([])
        ax.tick_params(left=False)
        ax.spines[:].set_visible(False)
        return self
