"""What the file formats share: number syntax, storage of labels, the limit on columns."""

from __future__ import annotations

import re
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

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def labels_as_stored(Y: Any) -> Matrix:
    """Return sparse labels as dense ones up to :data:`DENSE_LABELS_LIMIT` columns."""
    return Y.toarray() if Y.shape[1] <= DENSE_LABELS_LIMIT else Y


def reject_columns(dataset: MultiLabelDataset, format_: str) -> None:
    """Reject features that are not numbers, for a format that holds only numbers."""
    if isinstance(dataset.X, Columns):
        name, kind = next(pair for pair in dataset.X.by_name().items() if pair[1] != "number")
        raise InputError(
            f"{format_} holds only numbers, but the column {name!r} is of type {kind}; write csv "
            "or parquet, or drop the column."
        )


def is_number(text: str) -> bool:
    """Return whether a text is a decimal number; ``nan``, ``inf`` and ``1_000`` are not."""
    return _NUMBER.fullmatch(text) is not None


def number_texts(values: NDArray[Any], missing: str) -> NDArray[Any]:
    """Return the shortest texts that read back as the same values; ``missing`` for NaN.

    They are read as float64: fewer digits would do to tell one float32 from another, but not to
    give its value.
    """
    return np.where(np.isnan(values), missing, values.astype(np.float64).astype(str))
