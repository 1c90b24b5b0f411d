"""Columns of an Arrow table as floats, for features and labels alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.kinds import MISSING


def numbers_of(column: Any, dtype: Any, text_is_parsed: bool) -> NDArray[Any] | None:
    """Return a column as floats with NaN for missing cells, or None where it is not numeric."""
    import pyarrow as pa

    column = plain_column(column)
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


def plain_column(column: Any) -> Any:
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
