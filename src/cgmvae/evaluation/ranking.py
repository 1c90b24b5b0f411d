"""Ranking metrics: how well scores order the labels of a row, or the rows of a label.

All of them are computed from a :class:`Ranking` whose lines are the rows, the labels, or a single
line of all cells. The metrics of predicted labels are in :mod:`cgmvae.evaluation.metrics`.

Every function takes the true labels ``Y`` (array or CSR array of 0 and 1, (n_samples, n_labels)),
``scores`` (array of the same shape, higher means more likely) and the mask ``unknown``. Unknown
cells are never ranked. Lines for which a metric is undefined are skipped; if it is undefined for
all of them, the result is NaN.

Ties: among equal scores, the metrics at k take the label with the lower column index. All other
metrics are independent of the order of the columns: coverage, ranking loss and average precision
rank a label after all labels with the same score, and the area under the curve counts a tied pair
as one half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import Labels, Mask, as_bool, as_scores, known_cells

Values: TypeAlias = NDArray[np.float64]


def best_first(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the columns of each row by descending score, (n_rows, n_columns).

    Among equal scores, the lower column comes first.
    """
    return np.argsort(-scores, axis=1, kind="stable")


@dataclass(frozen=True, eq=False)
class Ranking:
    """Cells ranked by score within each line.

    The methods return one value per line, (n_lines,), and NaN where it is undefined.

    Attributes
    ----------
    true, known : array of bool, (n_lines, n_cells)
        Cells that are true, and known; no unknown cell is true.
    scores : array of float, (n_lines, n_cells)
        Minus infinity in the unknown cells; if there are any, finite in all others.
    """

    true: NDArray[np.bool_]
    known: NDArray[np.bool_]
    scores: NDArray[np.floating]

    def by_label(self) -> Ranking:
        """Return the ranking whose lines are the labels."""
        return Ranking(self.true.T, self.known.T, self.scores.T)

    def as_one_line(self) -> Ranking:
        """Return the ranking of all cells together."""
        true, known, scores = self.true, self.known, self.scores
        return Ranking(true.reshape(1, -1), known.reshape(1, -1), scores.reshape(1, -1))

    @cached_property
    def n_known(self) -> NDArray[np.int64]:
        """Number of known cells per line, (n_lines,)."""
        return self.known.sum(1)

    @cached_property
    def n_true(self) -> NDArray[np.int64]:
        """Number of true cells per line, (n_lines,)."""
        return self.true.sum(1)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Cells by descending score; among equal scores, the lower index first."""
        return best_first(self.scores)

    @cached_property
    def _last_of_tie(self) -> NDArray[np.int64]:
        """For each rank, the last rank with the same score."""
        ordered = np.take_along_axis(self.scores, self.order, 1)
        is_last = np.ones(ordered.shape, bool)
        is_last[:, :-1] = ordered[:, :-1] != ordered[:, 1:]
        ranks = np.where(is_last, np.arange(ordered.shape[1]), ordered.shape[1])
        return np.minimum.accumulate(ranks[:, ::-1], axis=1)[:, ::-1]

    def _ordered(self, cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.take_along_axis(cells, self.order, 1)

    def _reaching(self, cells: NDArray[np.bool_]) -> NDArray[np.int64]:
        """For each rank, the number of these cells with at least the same score."""
        return np.take_along_axis(self._ordered(cells).cumsum(1), self._last_of_tie, 1)

    def _pairs(self, above: NDArray[np.bool_], below: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the pairs in which the ``above`` cell scores at least as high as the ``below``."""
        return np.where(self._ordered(below), self._reaching(above), 0).sum(1)

    def hits(self, k: int) -> NDArray[np.bool_]:
        """Return whether each of the k best cells is true, best first, (n_lines, k)."""
        if not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k must be an integer of at least 1, not {k!r}.")
        if k == 1 and self.scores.shape[1]:
            best = self.scores.argmax(1)[:, None]
        else:
            best = self.order[:, :k]
        return np.take_along_axis(self.true, best, 1)

    def precision_at_k(self, k: int) -> Values:
        """Fraction of the k best known cells that are true."""
        return _ratio(self.hits(k).sum(1), np.minimum(k, self.n_known))

    def recall_at_k(self, k: int) -> Values:
        """Fraction of the true cells that are among the k best."""
        return _ratio(self.hits(k).sum(1), self.n_true)

    def ndcg_at_k(self, k: int) -> Values:
        """Discounted cumulative gain of the k best cells, relative to the best possible ranking."""
        hits = self.hits(k)
        discount = 1 / np.log2(np.arange(hits.shape[1]) + 2)
        ideal = np.concatenate([[0.0], discount.cumsum()])
        return _ratio(hits @ discount, ideal[np.minimum(self.n_true, hits.shape[1])])

    def coverage(self) -> Values:
        """Rank of the last true cell; 0 without a true cell."""
        depth = np.where(self._ordered(self.true), self._reaching(self.known), 0)
        return np.where(self.n_known > 0, depth.max(1, initial=0), np.nan)

    def ranking_loss(self) -> Values:
        """Fraction of the pairs in which the false cell is not ranked lower; 0 without a pair."""
        false = self.known & ~self.true
        loss = _ratio(self._pairs(false, self.true), self.n_true * false.sum(1))
        return np.where(self.n_known > 0, np.nan_to_num(loss), np.nan)

    def average_precision(self) -> Values:
        """Mean over the true cells of the precision at their rank."""
        precision = _ratio(self._reaching(self.true), self._reaching(self.known))
        return _ratio(np.where(self._ordered(self.true), precision, 0).sum(1), self.n_true)

    def auc(self) -> Values:
        """Fraction of the pairs in which the true cell is ranked higher; a tie counts one half."""
        false = self.known & ~self.true
        advantage = self._pairs(self.true, false) - self._pairs(false, self.true)
        return (1 + _ratio(advantage, self.n_true * false.sum(1))) / 2


def rank(Y: Labels, scores: ArrayLike, unknown: Mask = None) -> Ranking:
    """Rank the labels of each row."""
    true, scores = as_bool(Y), as_scores(scores)
    known = known_cells(true, scores, unknown, "scores")
    if unknown is not None:
        scores = np.where(known, scores.clip(np.finfo(scores.dtype).min), -np.inf)
    return Ranking(true & known, known, scores)


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Values:
    return np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


def _mean(values: Values, keep: NDArray[np.bool_] | None = None) -> float:
    values = values[~np.isnan(values) if keep is None else keep]
    return float(values.mean()) if values.size else float("nan")


def _macro_average_precision(ranking: Ranking) -> float:
    mixed = (ranking.n_true > 0) & (ranking.n_true < ranking.n_known)
    return _mean(ranking.average_precision(), mixed)


def _label_ranking_average_precision(ranking: Ranking) -> float:
    trivial = (ranking.n_true == 0) & (ranking.n_known > 0)
    return _mean(np.where(trivial, 1.0, ranking.average_precision()))


def precision_at_k(Y: Labels, scores: ArrayLike, k: int = 1, *, unknown: Mask = None) -> float:
    """Mean over rows of the fraction of the k highest-scored known labels that are true.

    A row with fewer than k known labels divides by their number; a row without any is skipped.

    Examples
    --------
    >>> precision_at_k([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.7], [0.1, 0.6, 0.3]], 2)
    0.5
    """
    return _mean(rank(Y, scores, unknown).precision_at_k(k))


def recall_at_k(Y: Labels, scores: ArrayLike, k: int = 1, *, unknown: Mask = None) -> float:
    """Mean over rows with true labels of the fraction of them among the k highest-scored."""
    return _mean(rank(Y, scores, unknown).recall_at_k(k))


def ndcg_at_k(Y: Labels, scores: ArrayLike, k: int = 1, *, unknown: Mask = None) -> float:
    """Mean over rows with a true label of the normalized discounted cumulative gain at k.

    A true label at rank r gains 1 / log2(1 + r).
    """
    return _mean(rank(Y, scores, unknown).ndcg_at_k(k))


def one_error(Y: Labels, scores: ArrayLike, *, unknown: Mask = None) -> float:
    """Fraction of the rows whose highest-scored known label is not true, 1 − precision@1."""
    return 1 - precision_at_k(Y, scores, 1, unknown=unknown)


def coverage(Y: Labels, scores: ArrayLike, *, unknown: Mask = None) -> float:
    """Mean over rows of how many top-ranked labels include all the true ones.

    As in scikit-learn, the best value is the mean number of true labels, and a row without a true
    label counts 0.
    """
    return _mean(rank(Y, scores, unknown).coverage())


def ranking_loss(Y: Labels, scores: ArrayLike, *, unknown: Mask = None) -> float:
    """Mean over rows of the fraction of (true, false) label pairs in the wrong order.

    As in scikit-learn, a tie is wrong, and a row whose labels are all true or all false counts 0.
    """
    return _mean(rank(Y, scores, unknown).ranking_loss())


def label_ranking_average_precision(Y: Labels, scores: ArrayLike, *, unknown: Mask = None) -> float:
    """Mean over rows and true labels of the fraction of true labels among those ranked no lower.

    As in scikit-learn, a row whose labels are all true or all false counts 1.
    """
    return _label_ranking_average_precision(rank(Y, scores, unknown))


def macro_auc(Y: Labels, scores: ArrayLike, *, unknown: Mask = None) -> float:
    """Mean over labels of the area under the ROC curve.

    Labels without both a true and a false row are skipped.
    """
    return _mean(rank(Y, scores, unknown).by_label().auc())


def micro_auc(Y: Labels, scores: ArrayLike, *, unknown: Mask = None) -> float:
    """Area under the ROC curve of all cells; NaN unless there are true and false ones."""
    return _mean(rank(Y, scores, unknown).as_one_line().auc())


def macro_average_precision(Y: Labels, scores: ArrayLike, *, unknown: Mask = None) -> float:
    """Mean over labels of the average precision, the mean average precision (mAP).

    Labels without both a true and a false row are skipped.
    """
    return _macro_average_precision(rank(Y, scores, unknown).by_label())


def micro_average_precision(Y: Labels, scores: ArrayLike, *, unknown: Mask = None) -> float:
    """Average precision of all cells; NaN unless there are true and false ones."""
    return _macro_average_precision(rank(Y, scores, unknown).as_one_line())


def score_report(
    Y: Labels, scores: ArrayLike, *, unknown: Mask = None, ks: Sequence[int] = (1, 3, 5)
) -> dict[str, float]:
    """Return every metric of this module by name; the metrics at k for each of ``ks``.

    Examples
    --------
    >>> report = score_report([[1, 0], [0, 1]], [[0.9, 0.1], [0.5, 0.2]], ks=[1])
    >>> report["precision_at_1"], report["micro_auc"]
    (0.5, 0.75)
    """
    rows = rank(Y, scores, unknown)
    labels, cells = rows.by_label(), rows.as_one_line()
    names = ("precision_at_k", "recall_at_k", "ndcg_at_k")
    at_k = {f"{name[:-1]}{k}": _mean(getattr(rows, name)(k)) for name in names for k in ks}
    return at_k | {
        "one_error": 1 - _mean(rows.precision_at_k(1)),
        "coverage": _mean(rows.coverage()),
        "ranking_loss": _mean(rows.ranking_loss()),
        "label_ranking_average_precision": _label_ranking_average_precision(rows),
        "macro_auc": _mean(labels.auc()),
        "micro_auc": _mean(cells.auc()),
        "macro_average_precision": _macro_average_precision(labels),
        "micro_average_precision": _macro_average_precision(cells),
    }
