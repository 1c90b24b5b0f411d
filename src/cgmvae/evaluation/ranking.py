"""Metrics of rankings: how well the scores order the labels of a row, or the rows of a label.

All of them follow from one :class:`Ranking` whose lines are the rows, the labels, or a single line
of all cells. The metrics of label sets are in :mod:`cgmvae.evaluation.metrics`.

Every function takes the true labels ``Y`` (array or CSR array of 0 and 1, (n_samples, n_labels)),
``scores`` (array of the same shape, higher means more likely) and the mask ``unknown``. Unknown
cells are never ranked. What cannot be measured is left out, and where nothing can the metric is
NaN.

Ties: the metrics at k take, of equal scores, the label of the lower column. All others do not
depend on the order of the columns: coverage, ranking loss and average precision place a label after
all those of the same score, the area under the curve counts a tied pair one half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import as_bool, as_scores, known_cells

Labels: TypeAlias = ArrayLike | Matrix
Values: TypeAlias = NDArray[np.float64]


def best_first(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the columns of each row, (n_rows, n_columns), from the highest score to the lowest.

    Of equal scores, the lower column comes first.
    """
    return np.argsort(-scores, axis=1, kind="stable")


@dataclass(frozen=True, eq=False)
class Ranking:
    """Cells ranked by score within each line.

    The methods return one value a line, (n_lines,), and NaN where the line does not define it.

    Attributes
    ----------
    true, known : array of bool, (n_lines, n_cells)
        Cells that are true, and known; no unknown cell is true.
    scores : array of float, (n_lines, n_cells)
        Minus infinity in the unknown cells, and in no other where there are any.
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
        """Known cells of each line, (n_lines,)."""
        return self.known.sum(1)

    @cached_property
    def n_true(self) -> NDArray[np.int64]:
        """True cells of each line, (n_lines,)."""
        return self.true.sum(1)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Cells from the highest score to the lowest; of equal ones, the lower index first."""
        return best_first(self.scores)

    @cached_property
    def _last_of_tie(self) -> NDArray[np.int64]:
        """For each place in the order, the last place with the same score."""
        ordered = np.take_along_axis(self.scores, self.order, 1)
        is_last = np.ones(ordered.shape, bool)
        is_last[:, :-1] = ordered[:, :-1] != ordered[:, 1:]
        places = np.where(is_last, np.arange(ordered.shape[1]), ordered.shape[1])
        return np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1]

    def _ordered(self, cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.take_along_axis(cells, self.order, 1)

    def _reaching(self, cells: NDArray[np.bool_]) -> NDArray[np.int64]:
        """For each place in the order, how many of these cells score as much or more."""
        return np.take_along_axis(self._ordered(cells).cumsum(1), self._last_of_tie, 1)

    def _pairs(self, above: NDArray[np.bool_], below: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the pairs in which the ``above`` cell scores as much as the ``below``, or more."""
        return np.where(self._ordered(below), self._reaching(above), 0).sum(1)

    def hits(self, k: int) -> NDArray[np.bool_]:
        """Return whether each of the k best cells is true, best first, (n_lines, k)."""
        if not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, not {k!r}.")
        if k == 1 and self.scores.shape[1]:
            best = self.scores.argmax(1)[:, None]
        else:
            best = self.order[:, :k]
        return np.take_along_axis(self.true, best, 1)

    def precision_at_k(self, k: int) -> Values:
        """Share of the k best known cells that are true."""
        return _quotient(self.hits(k).sum(1), np.minimum(k, self.n_known))

    def recall_at_k(self, k: int) -> Values:
        """Share of the true cells that are among the k best."""
        return _quotient(self.hits(k).sum(1), self.n_true)

    def ndcg_at_k(self, k: int) -> Values:
        """Discounted gain of the k best cells, divided by the highest that the line allows."""
        hits = self.hits(k)
        discount = 1 / np.log2(np.arange(hits.shape[1]) + 2)
        ideal = np.concatenate([[0.0], discount.cumsum()])
        return _quotient(hits @ discount, ideal[np.minimum(self.n_true, hits.shape[1])])

    def coverage(self) -> Values:
        """Depth at which the last true cell is reached; 0 without a true cell."""
        depth = np.where(self._ordered(self.true), self._reaching(self.known), 0)
        return np.where(self.n_known > 0, depth.max(1, initial=0), np.nan)

    def ranking_loss(self) -> Values:
        """Share of the pairs in which the false cell is not below; 0 without such a pair."""
        false = self.known & ~self.true
        loss = _quotient(self._pairs(false, self.true), self.n_true * false.sum(1))
        return np.where(self.n_known > 0, np.nan_to_num(loss), np.nan)

    def average_precision(self) -> Values:
        """Mean over the true cells of the precision at their depth."""
        precision = _quotient(self._reaching(self.true), self._reaching(self.known))
        return _quotient(np.where(self._ordered(self.true), precision, 0).sum(1), self.n_true)

    def auc(self) -> Values:
        """Share of the pairs in which the true cell is above the false one, a tie for one half."""
        false = self.known & ~self.true
        advantage = self._pairs(self.true, false) - self._pairs(false, self.true)
        return (1 + _quotient(advantage, self.n_true * false.sum(1))) / 2


def rank(Y: Labels, scores: ArrayLike, unknown: Matrix | None = None) -> Ranking:
    """Rank the labels of each row."""
    true, scores = as_bool(Y), as_scores(scores)
    known = known_cells(true, scores, unknown, "scores")
    if unknown is not None:
        scores = np.where(known, scores.clip(np.finfo(scores.dtype).min), -np.inf)
    return Ranking(true & known, known, scores)


def _quotient(part: NDArray[Any], whole: NDArray[Any]) -> Values:
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


def precision_at_k(
    Y: Labels, scores: ArrayLike, k: int = 1, *, unknown: Matrix | None = None
) -> float:
    """Mean over rows of the share of the k highest-scored known labels that are true.

    A row with fewer than k known labels divides by their number; a row without any is left out.

    Examples
    --------
    >>> precision_at_k([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.7], [0.1, 0.6, 0.3]], 2)
    0.5
    """
    return _mean(rank(Y, scores, unknown).precision_at_k(k))


def recall_at_k(
    Y: Labels, scores: ArrayLike, k: int = 1, *, unknown: Matrix | None = None
) -> float:
    """Mean over rows with a true label of the share of them among the k highest-scored.

    Examples
    --------
    >>> recall_at_k([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.7], [0.1, 0.6, 0.3]], 2)
    0.75
    """
    return _mean(rank(Y, scores, unknown).recall_at_k(k))


def ndcg_at_k(Y: Labels, scores: ArrayLike, k: int = 1, *, unknown: Matrix | None = None) -> float:
    """Mean over rows with a true label of the normalised discounted cumulative gain at k.

    A true label gains 1 / log2(1 + place).

    Examples
    --------
    >>> round(ndcg_at_k([[1, 0, 1]], [[0.9, 0.8, 0.7]], 3), 4)
    0.9197
    """
    return _mean(rank(Y, scores, unknown).ndcg_at_k(k))


def one_error(Y: Labels, scores: ArrayLike, *, unknown: Matrix | None = None) -> float:
    """Share of the rows whose highest-scored known label is not true, 1 − precision@1.

    Examples
    --------
    >>> one_error([[1, 0], [0, 1]], [[0.9, 0.8], [0.6, 0.1]])
    0.5
    """
    return 1 - precision_at_k(Y, scores, 1, unknown=unknown)


def coverage(Y: Labels, scores: ArrayLike, *, unknown: Matrix | None = None) -> float:
    """Mean over rows of how many labels one must take, best first, to have all the true ones.

    As in scikit-learn, the best value is the mean number of true labels, and a row without a true
    label counts 0.

    Examples
    --------
    >>> coverage([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.7], [0.1, 0.6, 0.3]])
    2.0
    """
    return _mean(rank(Y, scores, unknown).coverage())


def ranking_loss(Y: Labels, scores: ArrayLike, *, unknown: Matrix | None = None) -> float:
    """Mean over rows of the share of (true, false) pairs of labels that are ordered wrongly.

    As in scikit-learn, a tie is wrong, and a row whose labels are all true or all false counts 0.

    Examples
    --------
    >>> ranking_loss([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.7], [0.1, 0.6, 0.3]])
    0.25
    """
    return _mean(rank(Y, scores, unknown).ranking_loss())


def label_ranking_average_precision(
    Y: Labels, scores: ArrayLike, *, unknown: Matrix | None = None
) -> float:
    """Mean over rows, and their true labels, of the share of true ones among those ranked no lower.

    As in scikit-learn, a row whose labels are all true or all false counts 1.

    Examples
    --------
    >>> label_ranking_average_precision([[1, 0, 0], [0, 0, 1]], [[0.7, 0.5, 1], [0.9, 0.2, 0.1]])
    0.41666666666666663
    """
    return _label_ranking_average_precision(rank(Y, scores, unknown))


def macro_auc(Y: Labels, scores: ArrayLike, *, unknown: Matrix | None = None) -> float:
    """Mean over labels of the area under the ROC curve.

    Labels without both a true and a false row are left out.

    Examples
    --------
    >>> macro_auc([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.2], [0.4, 0.3]])
    0.5
    """
    return _mean(rank(Y, scores, unknown).by_label().auc())


def micro_auc(Y: Labels, scores: ArrayLike, *, unknown: Matrix | None = None) -> float:
    """Area under the ROC curve of all cells; NaN unless there are true and false ones.

    Examples
    --------
    >>> micro_auc([[1, 0], [0, 1]], [[0.9, 0.1], [0.5, 0.2]])
    0.75
    """
    return _mean(rank(Y, scores, unknown).as_one_line().auc())


def macro_average_precision(
    Y: Labels, scores: ArrayLike, *, unknown: Matrix | None = None
) -> float:
    """Mean over labels of the average precision, the mean average precision (mAP).

    Labels without both a true and a false row are left out.

    Examples
    --------
    >>> macro_average_precision([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.2], [0.4, 0.3]])
    0.8333333333333333
    """
    return _macro_average_precision(rank(Y, scores, unknown).by_label())


def micro_average_precision(
    Y: Labels, scores: ArrayLike, *, unknown: Matrix | None = None
) -> float:
    """Average precision of all cells; NaN unless there are true and false ones.

    Examples
    --------
    >>> micro_average_precision([[1, 0], [0, 1]], [[0.9, 0.1], [0.5, 0.2]])
    0.8333333333333333
    """
    return _macro_average_precision(rank(Y, scores, unknown).as_one_line())


def score_report(
    Y: Labels, scores: ArrayLike, *, unknown: Matrix | None = None, ks: Sequence[int] = (1, 3, 5)
) -> dict[str, float]:
    """Return every metric of this module, by name; the three at k for each of ``ks``.

    Parameters
    ----------
    Y : array or CSR array, (n_samples, n_labels)
        True labels, 0 or 1.
    scores : array, (n_samples, n_labels)
        Higher means more likely.
    unknown : array or CSR array of bool, (n_samples, n_labels), optional
        Cells to leave out.
    ks : sequence of int
        How many labels the metrics at k look at.

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
