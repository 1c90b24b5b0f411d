"""A data set as an Arrow table, which is what gets written; and how pyarrow is loaded."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.columns import Columns
from cgmvae.data.dataset import Features, Matrix, MultiLabelDataset
from cgmvae.errors import InputError

#: The name of the column that the groups are written to.
GROUP_COLUMN = "group"

#: The most bytes that a sparse data set may take as the dense table that is written.
DENSE_LIMIT = 2 * 2**30

_SURROGATE = re.compile("[\ud800-\udfff]")


def load_pyarrow() -> Any:
    """Import pyarrow with the parts that are used, or say how to install it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            'CSV and Parquet need pyarrow; install it with pip install "cgmvae[tables]".'
        ) from error
    return pyarrow


def table_of(dataset: MultiLabelDataset) -> Any:
    """Build the Arrow table of a data set: feature columns, label columns, group column."""
    pa = load_pyarrow()
    names = _column_names(dataset)
    Y, unknown = _dense(dataset.Y), _dense(dataset.unknown)
    columns = _features(dataset.X)
    for j in range(dataset.n_labels):
        columns.append(pa.array(Y[:, j], mask=None if unknown is None else unknown[:, j]))
    if dataset.groups is not None:
        columns.append(pa.array(_written_groups(dataset.groups)))
    return pa.table(columns, names=names)


def _features(X: Features) -> list[Any]:
    pa = load_pyarrow()
    if not isinstance(X, Columns):
        X = _dense(X)
        return [pa.array(X[:, j], from_pandas=True) for j in range(X.shape[1])]
    texts = {text for values in X.values if values.dtype == object for text in values}
    _refuse_surrogates([text for text in texts if text is not None])
    return [pa.array(_shortest(values), from_pandas=True) for values in X.values]


def _shortest(values: NDArray[Any]) -> NDArray[Any]:
    """Return dates as days where none has a time, and everything else as it is."""
    if values.dtype.kind != "M":
        return values
    days = values.astype("datetime64[D]")
    return days if ((days == values) | np.isnat(values)).all() else values


def _column_names(dataset: MultiLabelDataset) -> list[str]:
    names = [*dataset.feature_names, *dataset.label_names]
    if dataset.groups is not None:
        names.append(GROUP_COLUMN)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"The name {twice[0]!r} would be given to two columns among the features, the labels "
            f"and {GROUP_COLUMN!r}; rename one, or write npz."
        )
    if "" in names:
        raise InputError("A feature or label has an empty name; rename it, or write npz.")
    _refuse_surrogates(names)
    return names


def _written_groups(groups: NDArray[Any]) -> NDArray[Any]:
    if groups.dtype.kind in "iu":
        return groups
    groups = groups.astype(np.str_)
    if (np.char.strip(groups) == "").any():
        raise InputError("A row has a blank group, which no table can keep; name it, or write npz.")
    _refuse_surrogates(np.unique(groups).tolist())
    return groups


def _refuse_surrogates(names: list[str]) -> None:
    """Refuse names with half of a surrogate pair, which has no place in UTF-8."""
    for name in names:
        if _SURROGATE.search(name):
            raise InputError(
                f"The name {name!r} holds half of a surrogate pair, which no table can keep; "
                "rename it, or write npz."
            )


def _dense(matrix: Matrix | None) -> Any:
    if matrix is None or not sp.issparse(matrix):
        return matrix
    n_bytes = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
    if n_bytes > DENSE_LIMIT:
        raise InputError(
            f"The sparse data would take {n_bytes:,} bytes as a table, more than the "
            f"{DENSE_LIMIT:,} that are written; write npz or svmlight instead."
        )
    return matrix.toarray()
