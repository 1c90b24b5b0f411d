"""Thresholds where rows are few: learnt on all of them, each scored by a model that did not see it.

A tenth of a hundred rows says little about where a threshold should be; all of them, scored out of
fold, say more (``docs/results/small_data.md``). :class:`~cgmvae.methods.base.MultiLabelClassifier`
turns to this below :data:`FEW_ROWS` rows.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.mapped import MappedRows
from cgmvae.data.splits import positive_cells, stratify
from cgmvae.methods.inputs import Rows

if TYPE_CHECKING:
    from cgmvae.methods.base import MultiLabelClassifier

#: Rows, for training and validation together, below which thresholds are learnt out of fold.
FEW_ROWS = 200

#: Parts that the rows are divided into; a model that did not see a part scores it.
N_FOLDS = 5


class FewRowsWarning(UserWarning):
    """There are few rows to learn from."""


def warn_of_few_rows(*parts: Rows) -> None:
    """Warn in one sentence where there are few rows to learn from."""
    n_rows = _n_rows(parts)
    if n_rows < FEW_ROWS:
        warnings.warn(
            f"There are only {n_rows:,} rows to learn from: another {n_rows:,} could give quite "
            "another model; thresholds are chosen on all of them, out of fold.",
            FewRowsWarning,
            stacklevel=3,
        )


def score_out_of_fold(
    model: MultiLabelClassifier, train: Rows, validation: Rows, seed: int
) -> tuple[Rows, NDArray[np.floating]] | None:
    """Return all rows, and the scores that models of the other folds give each of them.

    None where there are enough rows.

    Parameters
    ----------
    model : MultiLabelClassifier
        Whose parameters the models have; it is not changed.
    train, validation : Rows
        Scaled.
    seed : int
        Of the folds, and of the models.
    """
    if _n_rows((train, validation)) >= FEW_ROWS:
        return None
    rows = _joined(train, validation)
    fold = _folds(rows, seed)
    inside = [np.flatnonzero(fold == k) for k in range(fold.max() + 1)]
    outside = [np.flatnonzero(fold != k) for k in range(fold.max() + 1)]
    parts = [(rows.take(o), rows.take(i)) for o, i in zip(outside, inside, strict=True)]
    scores = np.empty(rows.labels.shape)
    for k, fitted in enumerate(model._fit_folds(parts, seed)):
        scores[inside[k]] = fitted._score_rows(parts[k][1].features)
    return rows, scores


def _n_rows(parts: tuple[Rows, ...]) -> int:
    return sum(part.labels.shape[0] for part in parts)


def _joined(train: Rows, validation: Rows) -> Rows:
    """Return the rows of both; validation rows that have no groups are groups of their own."""
    both = (train, validation)
    unknown = weights = groups = None
    if any(part.unknown is not None for part in both):
        unknown = _stacked([_mask(part) for part in both])
    if any(part.weights is not None for part in both):
        weights = np.concatenate([part.row_weights() for part in both])
    if train.groups is not None:
        groups = _joined_groups(train.groups, validation)
    features = _stacked([_in_memory(part.features) for part in both])
    return Rows(features, _stacked([part.labels for part in both]), unknown, weights, groups)


def _joined_groups(groups: NDArray[Any], validation: Rows) -> NDArray[Any]:
    if validation.groups is not None:
        return np.concatenate([groups, validation.groups])
    _, numbers = np.unique(groups, return_inverse=True)
    return np.concatenate([numbers, len(groups) + np.arange(validation.labels.shape[0])])


def _in_memory(features: Any) -> Any:
    mapped = isinstance(features, MappedRows)
    return features.gather(np.arange(len(features))) if mapped else features


def _mask(rows: Rows) -> Any:
    return np.zeros(rows.labels.shape, bool) if rows.unknown is None else rows.unknown


def _stacked(parts: list[Any]) -> Any:
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))
    return np.concatenate(parts)


def _folds(rows: Rows, seed: int) -> NDArray[np.int64]:
    """Return the fold of each row: whole groups where there are groups, else stratified."""
    rng = np.random.default_rng(seed)
    if rows.groups is not None:
        names, group = np.unique(rows.groups, return_inverse=True)
        return rng.permutation(len(names))[group] % min(N_FOLDS, len(names))
    n_rows = rows.labels.shape[0]
    sizes = [len(part) for part in np.array_split(np.arange(n_rows), min(N_FOLDS, n_rows))]
    return stratify(positive_cells(rows.labels), sizes, rng)
