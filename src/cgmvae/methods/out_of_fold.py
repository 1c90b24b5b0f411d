"""Scores of training rows by models that did not see them.

Neural methods hold out one fold per member, so every row has such scores for free
(:mod:`cgmvae.methods.neural`). The other methods learn their thresholds on
held-out validation rows, and below :data:`FEW_ROWS` rows, where a tenth of them says little, on all
rows, each scored by a model of the other folds (``docs/notebook/benchmarks.md``).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.columns import Columns
from cgmvae.data.mapped import vstack
from cgmvae.data.splits import positive_cells, stratify
from cgmvae.errors import InputError, warn
from cgmvae.methods.inputs import Fit, Rows

if TYPE_CHECKING:
    from cgmvae.methods.base import MultiLabelClassifier

#: Number of rows below which fits warn, and thresholds are learned out of fold by every method.
FEW_ROWS = 200

#: Folds of a method that is not trained in members.
N_FOLDS = 5

#: Rows from which on folds are random: each then has about the same share of every label.
_MANY_ROWS = 50_000


class FewRowsWarning(UserWarning):
    """There are few rows to learn from."""


def warn_of_few_rows(fit: Fit) -> None:
    """Warn in one sentence if there are few rows to learn from."""
    n_rows = sum(part.labels.shape[0] for part in fit[:2] if part is not None)
    if n_rows < FEW_ROWS:
        warn(
            f"Only {n_rows:,} training rows: the model may vary strongly between samples.",
            category=FewRowsWarning,
        )


def assign_folds(rows: Rows, n_folds: int, seed: int) -> NDArray[np.int64]:
    """Return the fold of each row, (n_rows,): whole groups if there are any, else stratified.

    There are at most as many folds as rows or groups.
    """
    rng = np.random.default_rng(seed)
    if rows.groups is not None:
        names, group = np.unique(rows.groups, return_inverse=True)
        if len(names) < 2:
            raise InputError(
                "All rows are in one group; give at least two groups, one to hold out."
            )
        return rng.permutation(len(names))[group] % n_folds
    n_rows = rows.labels.shape[0]
    if n_rows >= _MANY_ROWS:
        return rng.permutation(n_rows) % n_folds
    sizes = [len(part) for part in np.array_split(np.arange(n_rows), n_folds)]
    return stratify(positive_cells(rows.labels), sizes, rng)


def score_out_of_fold(
    model: MultiLabelClassifier, train: Rows, validation: Rows, seed: int
) -> tuple[Rows, NDArray[np.floating]]:
    """Return all rows, and the scores of each by a model of the other folds.

    Parameters
    ----------
    model : MultiLabelClassifier
        Defines the parameters; it is not changed.
    train, validation : Rows
        Scaled.
    seed : int
        Seed of the folds and of the models.
    """
    rows = join_rows(train, validation)
    return rows, score_folds(model, rows, seed)


def score_folds(model: MultiLabelClassifier, rows: Rows, seed: int) -> NDArray[np.floating]:
    """Return the scores of scaled rows, each by a model of the other folds.

    ``model`` has learned how to scale features; it is not changed.
    """
    fold = assign_folds(rows, N_FOLDS, seed)
    scores = np.zeros(rows.labels.shape)
    for k in range(fold.max() + 1):
        inside, outside = np.flatnonzero(fold == k), np.flatnonzero(fold != k)
        fitted, held = copy.copy(model), rows.take(inside)
        fitted._fit_rows(rows.take(outside), held, seed)
        scores[inside] = fitted._score_rows(held.features)
    return scores


def join_rows(train: Rows, validation: Rows) -> Rows:
    """Return the rows of both; validation rows without groups are groups of their own."""
    both = (train, validation)
    unknown = weights = groups = None
    if any(part.unknown is not None for part in both):
        unknown = vstack([_mask(part) for part in both])
    if any(part.weights is not None for part in both):
        weights = np.concatenate([part.row_weights() for part in both])
    if train.groups is not None:
        _, groups = np.unique(train.groups, return_inverse=True)
        own = len(groups) + np.arange(validation.labels.shape[0])
        if validation.groups is not None:
            groups, own = train.groups, validation.groups
        groups = np.concatenate([groups, own])
    features: Any
    if isinstance(train.features, Columns):
        features = train.features.append(validation.features)
    else:
        features = vstack([part.features for part in both])
    return Rows(features, vstack([part.labels for part in both]), unknown, weights, groups)


def _mask(rows: Rows) -> Any:
    return np.zeros(rows.labels.shape, bool) if rows.unknown is None else rows.unknown
