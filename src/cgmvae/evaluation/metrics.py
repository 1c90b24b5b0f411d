"""Metrics of predicted labels: the paper's F1 scores and Hamming accuracy, and subset accuracy.

All of them are functions of how many labels are true, predicted, and both, counted per label and
per row: :class:`Counts`. The formulas keep leading axes (thresholds, members) and use arithmetic
only, so that the same code serves NumPy arrays here and torch tensors during training. Ranking
metrics, such as precision@1, are in :mod:`cgmvae.evaluation.ranking`.

Unknown labels are ignored: a masked cell is neither true nor predicted nor known, and a row without
a known label does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError

#: The five metrics of every table, in the paper's order.
METRIC_TITLES = {
    "example_f1": "example-F1",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "hamming_accuracy": "Hamming acc.",
    "precision_at_1": "P@1",
}

PAPER_METRICS = tuple(METRIC_TITLES)

#: Those that need a threshold: all but P@1.
THRESHOLDED_METRICS = PAPER_METRICS[:4]

#: Metrics computed from counts, which depend on a threshold.
SET_METRICS = (*THRESHOLDED_METRICS, "subset_accuracy")

#: True labels, 0 or 1, and the mask of the unknown ones, both (n_samples, n_labels).
Labels: TypeAlias = ArrayLike | Matrix
Mask: TypeAlias = Matrix | None

#: Score of a row with neither true nor predicted labels (0/0): skipped, 0 or 1. By default 1, since
#: predicting no label is right there.
Empty = Literal["skip", 0, 1]

#: Score in macro-F1 of a label without a true row: left out, since nothing on these rows can raise
#: its F1 above 0; or 0, the rule of the paper's tables.
Absent = Literal["skip", 0]


@dataclass(frozen=True)
class Counts:
    """How many labels are true, predicted, and both.

    Attributes
    ----------
    label_both, label_predicted, label_true : array or tensor, (..., n_labels)
        Rows in which the label is true and predicted, predicted, true.
    row_both, row_predicted, row_true : array or tensor, (..., n_samples)
        Labels of the row that are true and predicted, predicted, true.
    row_known : array or tensor, (..., n_samples)
        Labels of the row that are known.
    """

    label_both: Any
    label_predicted: Any
    label_true: Any
    row_both: Any
    row_predicted: Any
    row_true: Any
    row_known: Any

    def example_f1(self, empty: Empty = 1) -> Any:
        """Mean over rows of 2·both / (true + predicted); 0 if no row is left."""
        total, n_rows = self.row_sums("example_f1", empty)
        return total / n_rows.clip(1)

    def row_sums(self, metric: str, empty: Empty = 1) -> tuple[Any, Any]:
        """Return the sum over rows of ``example_f1`` or ``subset_accuracy``, and how many count."""
        total, counted = self.row_true + self.row_predicted, self.row_known > 0
        if metric == "subset_accuracy":
            counted = self.row_known.clip(0, 1)  # in the dtype of the counts, for the quotient
            return ((total == 2 * self.row_both) * counted).sum(-1), counted.sum(-1)
        # Deviation D2: the paper does not say what a row without labels scores.
        if empty not in ("skip", 0, 1):
            raise InputError(f"empty must be 'skip', 0 or 1, not {empty!r}.")
        if empty == "skip":
            empty, counted = 0, total > 0
        score = 2 * self.row_both / total.clip(1) + empty * ((total == 0) & counted)
        return score.sum(-1), counted.sum(-1)

    def micro_f1(self) -> Any:
        """2·both / (true + predicted) over all cells; 0 if nothing is true or predicted."""
        # Deviation D1: the paper prints the formula without the factor 2.
        total = (self.label_true + self.label_predicted).sum(-1)
        return 2 * self.label_both.sum(-1) / total.clip(1)

    def macro_f1(self, absent: Absent = "skip") -> Any:
        """Mean of the label's F1 over the labels that occur, or over all; 0 if none occurs."""
        if absent not in ("skip", 0):
            raise InputError(f"absent must be 'skip' or 0, not {absent!r}.")
        score = 2 * self.label_both / (self.label_true + self.label_predicted).clip(1)
        if absent == 0:  # Deviation D20: the paper's tables average over such labels, too.
            return score.sum(-1) / score.shape[-1]
        return score.sum(-1) / self.n_occurring().clip(1)

    def n_occurring(self) -> Any:
        """Return the number of labels with a true row."""
        return (self.label_true > 0).sum(-1)

    def hamming_accuracy(self) -> Any:
        """Fraction of the known cells that are predicted correctly; 0 if none is known."""
        wrong = (self.label_true + self.label_predicted - 2 * self.label_both).sum(-1)
        n_known = self.row_known.sum(-1)
        return (n_known - wrong) / n_known.clip(1)

    def subset_accuracy(self) -> Any:
        """Fraction of the rows whose known labels are all predicted correctly."""
        right, n_rows = self.row_sums("subset_accuracy")
        return right / n_rows.clip(1)

    def value(self, metric: str, empty: Empty = 1, absent: Absent = "skip") -> Any:
        """Return a metric by its name in ``SET_METRICS``."""
        if metric not in SET_METRICS:
            known = ", ".join(SET_METRICS)
            raise InputError(f"There is no metric {metric!r}; choose one of {known}.")
        if metric == "example_f1":
            return self.example_f1(empty)
        return self.macro_f1(absent) if metric == "macro_f1" else getattr(self, metric)()


def count(Y: Labels, predicted: ArrayLike, unknown: Mask = None) -> Counts:
    """Count true and predicted labels.

    Parameters
    ----------
    Y : array or CSR array, (n_samples, n_labels)
        True labels, 0 or 1.
    predicted : array or CSR array, (n_samples, n_labels)
        Predicted labels, 0 or 1.
    unknown : array or CSR array of bool, (n_samples, n_labels), optional
        Cells to ignore.
    """
    true, guess = as_bool(Y), as_bool(predicted, "predictions")
    known = known_cells(true, guess, unknown, "predictions")
    true, guess = true & known, guess & known
    both = true & guess
    return Counts(
        label_both=both.sum(0),
        label_predicted=guess.sum(0),
        label_true=true.sum(0),
        row_both=both.sum(1),
        row_predicted=guess.sum(1),
        row_true=true.sum(1),
        row_known=known.sum(1),
    )


def as_bool(matrix: ArrayLike | Matrix, what: str = "labels") -> NDArray[np.bool_]:
    """Return a dense boolean copy; the scores are dense, too, and eight times as large."""
    table: Any = sp.csr_array(matrix) if sp.issparse(matrix) else np.asarray(matrix)
    if table.ndim != 2:
        raise InputError(
            f"The {what} must be a two-dimensional array, not {table.ndim}-dimensional."
        )
    values = table.data if sp.issparse(table) else table
    if not ((values == 0) | (values == 1)).all():
        raise InputError(
            f"The {what} must be 0 or 1 in every cell; "
            "apply a threshold to scores, and pass unknown labels as a mask."
        )
    return table.astype(bool).toarray() if sp.issparse(table) else table.astype(bool)


def as_scores(scores: ArrayLike) -> NDArray[np.floating]:
    """Return scores as a dense floating-point array that keeps its precision."""
    scores = np.asarray(scores)
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    if scores.ndim != 2:
        raise InputError(
            f"The scores must be a two-dimensional array, not {scores.ndim}-dimensional."
        )
    if np.isnan(scores).any():
        raise InputError("The scores contain NaN; give a number for every label.")
    return scores


def known_cells(
    true: NDArray[np.bool_], given: NDArray[Any], unknown: Mask, what: str
) -> NDArray[np.bool_]:
    """Return the mask of the known cells, after checking that the shapes agree."""
    if true.shape != given.shape:
        raise InputError(
            f"The labels have shape {true.shape} and the {what} {given.shape}; they must agree."
        )
    if unknown is None:
        return np.ones(true.shape, bool)
    mask = as_bool(unknown, "cells of the mask of unknown labels")
    if mask.shape != true.shape:
        raise InputError(
            f"The mask of unknown labels has shape {mask.shape} and the labels {true.shape}; "
            "they must agree."
        )
    return ~mask


def example_f1(
    Y: ArrayLike, predicted: ArrayLike, *, unknown: Mask = None, empty: Empty = 1
) -> float:
    """Mean over rows of the row's F1.

    ``empty`` is the score of a row with neither true nor predicted labels: 1 counts it as correct;
    0 is scikit-learn's choice; ``"skip"`` ignores the row, like the paper's released code.

    Examples
    --------
    >>> example_f1([[1, 0], [0, 0]], [[1, 0], [0, 0]])
    1.0
    >>> example_f1([[1, 0], [0, 0]], [[1, 0], [0, 0]], empty=0)
    0.5
    """
    return float(count(Y, predicted, unknown).example_f1(empty))


def micro_f1(Y: ArrayLike, predicted: ArrayLike, *, unknown: Mask = None) -> float:
    """F1 over all known cells."""
    return float(count(Y, predicted, unknown).micro_f1())


def macro_f1(
    Y: ArrayLike, predicted: ArrayLike, *, unknown: Mask = None, absent: Absent = "skip"
) -> float:
    """Mean of the label's F1 over the labels that occur; 0 if none occurs.

    A label without a true row has an F1 of 0 whatever is predicted. ``absent=0`` averages over it,
    too, like the paper's tables and scikit-learn.

    Examples
    --------
    >>> macro_f1([[1, 0], [1, 0]], [[1, 0], [1, 0]])
    1.0
    >>> macro_f1([[1, 0], [1, 0]], [[1, 0], [1, 0]], absent=0)
    0.5
    """
    return float(count(Y, predicted, unknown).macro_f1(absent))


def hamming_accuracy(Y: ArrayLike, predicted: ArrayLike, *, unknown: Mask = None) -> float:
    """Fraction of the known cells that are predicted correctly, 1 − Hamming loss."""
    return float(count(Y, predicted, unknown).hamming_accuracy())


def subset_accuracy(Y: ArrayLike, predicted: ArrayLike, *, unknown: Mask = None) -> float:
    """Fraction of the rows whose known labels are all predicted correctly."""
    return float(count(Y, predicted, unknown).subset_accuracy())


def label_table(
    Y: ArrayLike, predicted: ArrayLike, *, unknown: Mask = None
) -> dict[str, NDArray[np.float64]]:
    """Return precision, recall, F1 and counts per label, as columns of length n_labels.

    A ratio 0/0 (a label that is never predicted, or never true) is NaN.
    """
    counts = count(Y, predicted, unknown)
    both = counts.label_both.astype(float)
    with np.errstate(invalid="ignore"):
        return {
            "true": counts.label_true.astype(float),
            "predicted": counts.label_predicted.astype(float),
            "precision": both / counts.label_predicted,
            "recall": both / counts.label_true,
            "f1": 2 * both / (counts.label_true + counts.label_predicted),
        }
