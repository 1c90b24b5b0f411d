"""What the file formats share: storage of labels, limits, refusal of text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.columns import Columns
from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.errors import InputError

#: Labels of a sparse file become a dense array up to this many columns, and CSR beyond.
DENSE_LABELS_LIMIT = 256

#: Upper limit of the columns that a sparse file may state: each of them gets a name.
COLUMNS_LIMIT = 2**24


def labels_as_stored(Y: Any) -> Matrix:
    """Return sparse labels as dense ones up to :data:`DENSE_LABELS_LIMIT` columns."""
    return Y.toarray() if Y.shape[1] <= DENSE_LABELS_LIMIT else Y


def reject_beyond_float32(values: NDArray[np.float64], path: object) -> None:
    """Reject numbers that are finite in float64 alone."""
    if (beyond := np.abs(values) > np.finfo(np.float32).max).any():
        raise InputError(
            f"{path} holds the value {values[beyond][0]:g}, which does not fit 32 bits; rescale "
            "the feature, or leave the value out where it is missing."
        )


def reject_columns(dataset: MultiLabelDataset, format_: str) -> None:
    """Reject features that are not numbers, for a format that holds only numbers."""
    if isinstance(dataset.X, Columns):
        name, kind = next(pair for pair in dataset.X.by_name().items() if pair[1] != "number")
        raise InputError(
            f"{format_} holds only numbers, but the column {name!r} is of type {kind}; write csv "
            "or parquet, or drop the column."
        )
