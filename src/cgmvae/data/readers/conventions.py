"""What the file formats agree on: numbers, the storage of labels, how many columns there may be.

The formats of this folder use it; nothing outside does.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.columns import Columns
from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.errors import InputError

#: Labels of a sparse file are kept as a dense array up to this many columns, beyond it as CSR.
DENSE_LABELS_LIMIT = 256

#: The most columns that a sparse file may state: a name is kept for each of them.
COLUMNS_LIMIT = 2**24

#: The text of a finite decimal number, for :func:`re.fullmatch` or inside a larger pattern.
NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"

#: The least magnitude that becomes infinite as a float32.
FLOAT32_LIMIT = float.fromhex("0x1.ffffffp127")

_NUMBER = re.compile(NUMBER)


def labels_as_stored(Y: Any) -> Matrix:
    """Return sparse labels as they are kept: dense up to :data:`DENSE_LABELS_LIMIT` columns."""
    return Y.toarray() if Y.shape[1] <= DENSE_LABELS_LIMIT else Y


def refuse_columns(dataset: MultiLabelDataset, format_: str) -> None:
    """Refuse features that are no numbers, for a format that has no place for others."""
    if isinstance(dataset.X, Columns):
        name, kind = next(pair for pair in dataset.X.by_name().items() if pair[1] != "number")
        raise InputError(
            f"{format_} holds numbers only, and the column {name!r} is of the kind {kind}; write "
            "csv or parquet, or drop the column."
        )


def not_rising(columns: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which cells of sparse rows are not to the right of the cell before them in the row.

    Parameters
    ----------
    columns : array, (n_cells,)
        The column of each cell, row after row.
    starts : array, (n_rows + 1,)
        Where each row's cells begin, and where the last row's end.
    """
    steps = np.diff(columns, prepend=-1)
    steps[starts[:-1][np.diff(starts) > 0]] = 1
    return steps <= 0


def is_number(text: str) -> bool:
    """Tell whether a text is a decimal number; ``nan``, ``inf`` and ``1_000`` are not."""
    return _NUMBER.fullmatch(text) is not None


def number_texts(values: NDArray[Any], missing: str) -> NDArray[Any]:
    """Return the shortest texts that read back as the same values, ``missing`` for NaN."""
    return np.where(np.isnan(values), missing, values.astype(str))
