"""The cells of an Arrow table as the arrays of a data set.

What each column means was decided in :mod:`cgmvae.data.readers.table.columns`;
:mod:`cgmvae.data.readers.table` reads and writes the files. Only where a column is no numbers are
its cells looped over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.column_values import as_texts, typed_column
from cgmvae.data.columns import Columns
from cgmvae.data.dataset import Features, Matrix, MultiLabelDataset
from cgmvae.data.kinds import Kind, parsed_numbers
from cgmvae.data.readers.table.columns import ColumnRoles, TableOptions
from cgmvae.data.readers.table.labels import label_columns, label_sets
from cgmvae.data.readers.table.numbers import numbers_of, plain_column
from cgmvae.errors import InputError


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
    features = columns_of(
        table,
        roles.features,
        kinds={**(options.kinds or {}), **dict(options.named_kinds)},
        text_is_parsed=text_is_parsed,
        guess=options.kinds is None,
    )
    labels: Sequence[str] = roles.labels
    Y: Matrix
    unknown: Matrix | None
    if options.label_sets is None:
        Y, unknown = label_columns(table, labels, options)
    else:
        Y, unknown, labels = label_sets(table, options.label_sets, options)
    return MultiLabelDataset(
        features,
        Y,
        label_names=labels,
        feature_names=roles.features,
        unknown=unknown,
        groups=None if options.groups is None else _groups(table, options.groups),
        name=name,
    )


def columns_of(
    table: Any,
    names: Sequence[str],
    *,
    kinds: Mapping[str, Kind] | None,
    text_is_parsed: bool,
    guess: bool = True,
) -> Features:
    """Return the feature columns of an Arrow table: an array of float32 where all are numbers.

    Parameters
    ----------
    table : pyarrow.Table
        One row a sample.
    names : sequence of str
        The feature columns, in the order that is wanted.
    kinds : mapping of str to {"number", "category", "date", "text"}, optional
        What columns hold, by name; the others are guessed. Names that are not asked for do not
        count. Where rows are read in parts, all kinds must be given.
    text_is_parsed : bool
        Whether text may be numbers, as in CSV.
    guess : bool
        Whether it is guessed what other columns hold; if not, what is no number is text.

    Returns
    -------
    array of float32, (n_samples, n_features), or Columns
    """
    told = kinds or {}
    features = np.empty((table.num_rows, len(names)), dtype=np.float32)
    others: dict[int, tuple[NDArray[Any], Kind]] = {}
    for j, name in enumerate(names):
        column = table.column(name)
        kind = told.get(name, _typed(column))
        values, kind = _values(name, column, kind, text_is_parsed=text_is_parsed, guess=guess)
        if kind == "number":
            features[:, j] = _finite(name, values)
        else:
            others[j] = values, kind
    if not others:
        return features
    found = [others.get(j, (features[:, j], "number")) for j in range(len(names))]
    return Columns(tuple(names), tuple(f[0] for f in found), tuple(f[1] for f in found))


def _values(
    name: str, column: Any, kind: Kind | None, *, text_is_parsed: bool, guess: bool
) -> tuple[NDArray[Any], Kind]:
    """Return what a column holds, (n_samples,), and its kind."""
    if kind in (None, "number"):
        values = numbers_of(column, np.float32, text_is_parsed)
        if values is not None:
            return values, "number"
        if kind == "number":
            return _numbers(name, column, text_is_parsed), kind
    kind = kind or (None if guess else "text")
    return typed_column(name, _objects(column), kind, text_is_parsed=text_is_parsed)


def _numbers(name: str, column: Any, text_is_parsed: bool) -> NDArray[Any]:
    """Return numbers that Arrow does not read, those in the digits of other scripts; or no numbers.

    The latter where the text is blank in every row.
    """
    texts = as_texts(name, _objects(column))
    present = [text for text in texts if text is not None]
    if not present or (text_is_parsed and parsed_numbers(present) is not None):
        return typed_column(name, texts, "number")[0]
    odd = next((text for text in present if parsed_numbers([text]) is None), present[0])
    raise InputError(
        f"Not numeric: {name!r}, which must hold numbers and holds {odd!r}; correct it, or leave "
        "the cell blank where the value is missing."
    )


def _typed(column: Any) -> Kind | None:
    """Return the kind that the type of an Arrow column says; None for text, which may be any."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return "category"
    return "date" if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type) else None


def _objects(column: Any) -> NDArray[Any]:
    """Return a column that is not taken as numbers as an array of objects or dates."""
    import pyarrow as pa

    column = plain_column(column)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"), safe=False)
    return column.to_numpy()


def _finite(name: str, values: NDArray[np.floating]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32, copy=False)
    if np.isinf(numbers).any():
        raise InputError(
            f"The feature column {name!r} holds a number that is infinite or beyond float32; "
            "rescale it, or leave the cell blank where the value is missing."
        )
    return numbers


def _groups(table: Any, name: str) -> NDArray[Any]:
    """Return the groups, (n_samples,): integers as they are, everything else as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain_column(table.column(name))
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
