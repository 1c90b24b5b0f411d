"""The cells of an Arrow table as the arrays of a data set.

What each column means was decided in :mod:`cgmvae.data.formats.table.columns`;
:mod:`cgmvae.data.formats.table` reads and writes the files. Nothing here loops over cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.data.formats.conventions import labels_as_stored
from cgmvae.data.formats.table.columns import ColumnRoles, Counts, TableOptions, listed
from cgmvae.errors import InputError

#: How a missing number is spelled in text.
MISSING = ("", "NA", "NaN", "nan", "?")


def dataset_of(
    table: Any, roles: ColumnRoles, options: TableOptions, *, name: str, text_is_parsed: bool
) -> MultiLabelDataset:
    """Turn an Arrow table into a data set.

    Parameters
    ----------
    table : pyarrow.Table
        One row a sample.
    roles : ColumnRoles
        What :func:`choose_roles` made of its columns.
    options : TableOptions
        What the caller said about them.
    name : str
        Name of the data set.
    text_is_parsed : bool
        Whether text in the feature columns is to be read as numbers, as in CSV.
    """
    features = _features(table, roles.features, text_is_parsed)
    labels: Sequence[str] = roles.labels
    Y: Matrix
    unknown: Matrix | None
    if options.label_sets is None:
        Y, unknown = _label_columns(table, labels, options)
    else:
        Y, unknown, labels = _label_sets(table, options.label_sets, options)
    return MultiLabelDataset(
        features,
        Y,
        label_names=labels,
        feature_names=roles.features,
        unknown=unknown,
        groups=None if options.groups is None else _groups(table, options.groups),
        name=name,
    )


def _features(table: Any, names: Sequence[str], text_is_parsed: bool) -> NDArray[np.float32]:
    """Fill the features column by column, (n_samples, n_features)."""
    features = np.empty((table.num_rows, len(names)), dtype=np.float32)
    others = []
    for j, name in enumerate(names):
        values = _numbers(table.column(name), np.float32, text_is_parsed)
        if values is None:
            others.append(name)
        elif np.isinf(values).any():
            raise InputError(
                f"The feature column {name!r} holds a number that is infinite or beyond float32; "
                "rescale it, or leave the cell blank where the value is missing."
            )
        else:
            features[:, j] = values
    if others:
        raise InputError(
            f"Not numeric: {listed(others)}; drop these columns, or encode them as numbers."
        )
    return features


def _numbers(column: Any, dtype: Any, text_is_parsed: bool) -> NDArray[Any] | None:
    """Return a column as floats with NaN for missing cells, or None where it is not numeric."""
    import pyarrow as pa

    column = _plain(column)
    types = pa.types
    if types.is_large_string(column.type):
        column = _parsed(column, pa.from_numpy_dtype(dtype)) if text_is_parsed else None
    elif types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif types.is_decimal(column.type) or types.is_null(column.type):
        column = column.cast(pa.float64())
    elif not (types.is_integer(column.type) or types.is_floating(column.type)):
        column = None
    if column is None:
        return None
    with np.errstate(over="ignore"):
        return column.to_numpy().astype(dtype, copy=False)


def _plain(column: Any) -> Any:
    """Decode categories, and give all text the same type."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.large_string()) if pa.types.is_string(column.type) else column


def _parsed(column: Any, number: Any) -> Any | None:
    """Parse a column of text as numbers or as true and false; None where it is neither."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(column, value_set=pa.array(MISSING, column.type))
    column = pc.if_else(missing, pa.scalar(None, column.type), column)
    try:
        return column.cast(number)
    except pa.ArrowInvalid:
        column = pc.utf8_lower(column)
    truths = pa.array(["true", "false"], column.type)
    if not pc.all(pc.is_in(column.drop_null(), value_set=truths)).as_py():
        return None
    return pc.equal(column, truths[0]).cast(pa.uint8())


def _label_columns(
    table: Any, names: Sequence[str], options: TableOptions
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the labels and the mask of the unknown ones, both (n_samples, n_labels)."""
    shape = (table.num_rows, len(names))
    labels, unknown = np.zeros(shape, dtype=np.uint8), np.zeros(shape, dtype=bool)
    for j, name in enumerate(names):
        values = _numbers(table.column(name), np.float64, text_is_parsed=True)
        if values is None:
            found = ", ".join(repr(value) for value in table.column(name).unique()[:3].to_pylist())
            raise InputError(
                f"The label column {name!r} holds {found}; labels must be 0 and 1, or true and "
                "false, so convert or drop it."
            )
        blank = np.isnan(values)
        if blank.any():
            unknown[:, j] = blank & _blank_is_unknown(name, options)
        labels[:, j] = _presence(np.where(blank, 0, values), name, options.counts)
    return labels, unknown


def _presence(values: NDArray[np.float64], name: str, counts: Counts) -> NDArray[np.bool_]:
    if (values < 0).any():
        raise InputError(
            f"The label column {name!r} holds {values.min():g}, which is neither a label nor a "
            "count; convert it to 0 and 1, and leave unknown labels blank."
        )
    odd = values[(values != 0) & (values != 1)]
    if odd.size and counts == "refuse":
        raise InputError(
            f"The label column {name!r} holds {odd[0]:g}; labels must be 0 or 1, so give "
            "counts='presence' to take everything above 0 as 1."
        )
    return values > 0


def _blank_is_unknown(name: str, options: TableOptions) -> bool:
    if options.blank_labels is None:
        raise InputError(
            f"The label column {name!r} has blank cells; say with blank_labels='absent' or "
            "blank_labels='unknown' what they mean."
        )
    return options.blank_labels == "unknown"


def _label_sets(
    table: Any, name: str, options: TableOptions
) -> tuple[Matrix, sp.csr_array | None, list[str]]:
    """Return labels and unknown labels, (n_samples, n_labels), and the names, sorted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _plain(table.column(name))
    if not pa.types.is_large_string(column.type):
        raise InputError(f"The column {name!r} of label sets is not text; name its labels instead.")
    sets = pc.split_pattern(pc.fill_null(column.combine_chunks(), ""), options.separator)
    parts, rows = pc.utf8_trim_whitespace(sets.flatten()), pc.list_parent_indices(sets)
    filled = pc.not_equal(parts, "")
    parts, rows = parts.filter(filled), rows.filter(filled).to_numpy()
    labels = sorted(parts.unique().to_pylist())
    if not labels:
        raise InputError(f"The column {name!r} of label sets holds no label; check its name.")
    codes = pc.index_in(parts, value_set=pa.array(labels, parts.type)).to_numpy()
    shape = (table.num_rows, len(labels))
    Y = sp.csr_array((np.ones(len(codes), dtype=np.int64), (rows, codes)), shape=shape)
    Y.data = np.ones(Y.nnz, dtype=np.uint8)  # a label that a set names twice was summed
    blank = np.diff(Y.indptr) == 0
    if blank.any() and _blank_is_unknown(name, options):
        return labels_as_stored(Y), _full_rows(blank, len(labels)), labels
    return labels_as_stored(Y), None, labels


def _full_rows(chosen: NDArray[np.bool_], n_columns: int) -> sp.csr_array:
    """Return a mask that is true in every cell of the chosen rows, (n_rows, n_columns)."""
    indptr = np.concatenate([[0], np.cumsum(chosen * n_columns)])
    indices = np.tile(np.arange(n_columns), chosen.sum())
    cells = (np.ones(len(indices), dtype=bool), indices, indptr)
    return sp.csr_array(cells, shape=(len(chosen), n_columns))


def _groups(table: Any, name: str) -> NDArray[Any]:
    """Return the groups, (n_samples,): integers as they are, everything else as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _plain(table.column(name))
    if pa.types.is_integer(column.type) and not column.null_count:
        return column.to_numpy()
    try:
        column = column.cast(pa.large_string())
    except pa.ArrowException as error:
        raise InputError(f"The groups of column {name!r} are neither text nor numbers.") from error
    blank = pc.equal(pc.utf8_trim_whitespace(pc.fill_null(column, "")), "")
    if pc.any(blank).as_py():
        raise InputError(
            f"The group column {name!r} has blank cells; give every row a group, or drop it."
        )
    return column.to_numpy().astype(np.str_)
