"""Which columns of a table may be labels, and long tables, with one row per occurrence of a label.

What is said here about a table whose labels nobody named, or which looks like a long one, comes
from its first rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.columns import MISSING, as_texts, guess_type
from cgmvae.data.readers.table.cells import (
    SEPARATOR_SHARE,
    SEPARATORS,
    has_blanks,
    numbers_of,
    objects_of,
    plain_column,
)
from cgmvae.errors import InputError, Sentence, Setting

#: Rows and columns that are looked at.
_ROWS, _COLUMNS = 10_000, 100

#: In a long table, a row of the pivoted one takes at least this many rows on average.
_ROWS_EACH = 1.5

#: Distinct cells of a column that a summary quotes, and their greatest length.
_QUOTED, _LENGTH = 3, 24


class UnnamedLabelsError(InputError):
    """Nobody said which columns of a table are labels; the message makes a proposal."""

    def __init__(self, path: object, table: Any, *, text_is_parsed: bool) -> None:
        proposal = next(_proposals(table.slice(0, _ROWS)), None)
        super().__init__(
            f"{path} does not say which of its columns are labels; ",
            *(proposal or ("name them, or the column that holds all labels of a row.",)),
            parameter=None if proposal else "label_columns",
        )
        self._table, self._text_is_parsed = table, text_is_parsed

    @property
    def n_rows(self) -> int:
        """Number of rows of the table."""
        return int(self._table.num_rows)

    def summary(self) -> list[dict[str, Any]]:
        """Return the type, missing and distinct cells and first values of each column."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = []
        for name in self._table.column_names:
            column = plain_column(self._table.column(name))
            numbers = numbers_of(column, np.float64, self._text_is_parsed)
            try:
                kind = "number" if numbers is not None else _type(name, column)
            except InputError:
                kind = "unclear"
            try:
                texts = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
            except pa.ArrowException:  # lists and records
                cells = column.to_pylist()
                texts = pa.array([None if cell is None else str(cell) for cell in cells])
            present = texts.filter(
                pc.invert(pc.is_in(texts, pa.array([None, *MISSING], texts.type)))
            )
            distinct = present.unique()
            values = [text[:_LENGTH] for text in distinct[:_QUOTED].to_pylist()]
            rows.append(
                {
                    "column": name,
                    "type": kind,
                    "missing": len(texts) - len(present),
                    "distinct": len(distinct),
                    "values": ", ".join(values),
                }
            )
        return rows


def _type(name: str, column: Any) -> str:
    import pyarrow as pa

    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return "list"
    if pa.types.is_temporal(column.type):
        return "date"
    return guess_type(name, as_texts(name, objects_of(column)))


def _proposals(table: Any) -> Iterator[Sentence]:
    """Yield sentences that say which columns may be labels, the most likely first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {name: plain_column(table.column(name)) for name in table.column_names}
    is_binary = [_is_binary(column) for column in columns.values()]
    n = len(is_binary)
    last, first = (run.index(False) if False in run else 0 for run in (is_binary[::-1], is_binary))
    for count, where in ((-last, "last"), (first, "first")):
        if count:
            which = f"{abs(count)} columns hold" if abs(count) > 1 else "column holds"
            yield f"its {where} {which} only 0 and 1: give ", Setting("label_count", count), "."
    if 0 < sum(is_binary) < n:
        name = next(name for name, found in zip(columns, is_binary, strict=True) if found)
        advice = f"{sum(is_binary)} columns hold only 0 and 1: give "
        yield advice, Setting("labels", [name]), " and so on."
    texts = {}
    for name, column in columns.items():
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            yield f"the column {name!r} holds lists: give ", Setting("label_sets", name), "."
        elif pa.types.is_large_string(column.type):
            texts[name] = column
    for name, column in texts.items():
        for separator in SEPARATORS[:2]:
            found = pc.sum(pc.match_substring(column, separator)).as_py() or 0
            if found >= SEPARATOR_SHARE * len(column):
                advice = f"the column {name!r} may hold several labels: give "
                usual = separator == SEPARATORS[0]
                more = () if usual else (" and ", Setting("separator", separator))
                yield advice, Setting("label_sets", name), *more, "."
    for name, column in list(texts.items())[:_COLUMNS]:
        is_label = numbers_of(column, np.float64, True) is None
        if is_label and (row := find_row_column(table, name, table.column_names)) is not None:
            advice = f"it has one row per {row!r} and {name!r}: give "
            yield advice, Setting("long", f"{row},{name}"), "."


def _is_binary(column: Any) -> bool:
    values = numbers_of(column, np.float64, text_is_parsed=True)
    return values is not None and bool(np.isin(values, (0, 1)).all())


def find_row_column(table: Any, label: str, names: Sequence[str]) -> str | None:
    """Return the column that names the rows of a long table; None if it does not look like one.

    Several rows share its value, each with another label, and most of the other columns are the
    same in all of these rows.
    """
    table = table.slice(0, _ROWS)
    chosen = [name for name in names if name != label][:_COLUMNS]
    codes = {name: _codes(table.column(name)) for name in (label, *chosen)}

    def n_distinct(*names: str) -> int:
        """Return the number of distinct combinations of cells."""
        return len(np.unique(np.column_stack([codes[name] for name in names]), axis=0))

    n_labels = n_distinct(label)
    if not 1 < n_labels <= table.num_rows / _ROWS_EACH:
        return None
    for name in chosen:
        numbers = numbers_of(table.column(name), np.float64, text_is_parsed=True)
        if numbers is not None and (np.nan_to_num(numbers) % 1).any():  # a measurement
            continue
        n_rows = n_distinct(name)
        if not 1 < n_rows <= table.num_rows / _ROWS_EACH:
            continue
        if n_distinct(name, label) < table.num_rows:
            continue
        others = [other for other in chosen if other != name]
        n_constant = sum(n_distinct(name, other) == n_rows for other in others)
        if len(others) < 2 or 2 * n_constant >= len(others):
            return name
    return None


def pivot(table: Any, row: str, label: str) -> Any:
    """Turn one row per occurrence into one row per value of ``row``, with a list of its labels.

    The rows are in the order of their first occurrence. Every other column must be the same in all
    occurrences of a row.
    """
    import pyarrow as pa

    if has_blanks(plain_column(table.column(row))):
        raise InputError(f"The column {row!r} of a long table has blank cells; fill them.")
    groups = _codes(table.column(row))
    _, first = np.unique(groups, return_index=True)
    for name in table.column_names:
        codes = _codes(table.column(name))
        varies = codes != codes[first][groups]
        if name != label and varies.any():
            where = table.column(row)[int(varies.argmax())].as_py()
            raise InputError(
                f"The column {name!r} differs between the rows of {row} {where!r}, of which a long "
                "table makes one; drop it (",
                Setting("drop", [name]),
                ").",
            )
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum([0, *np.bincount(groups)])
    cells = plain_column(table.column(label)).combine_chunks().take(order)
    sets = pa.LargeListArray.from_arrays(ends, cells)
    return table.take(first).set_column(table.column_names.index(label), label, sets)


def _codes(column: Any) -> NDArray[np.int64]:
    """Return a number per cell, equal for equal cells, in the order of their first occurrence."""
    codes: dict[Any, int] = {}
    cells = plain_column(column).to_pylist()
    keys = (cell if isinstance(cell, Hashable) else repr(cell) for cell in cells)
    return np.array([codes.setdefault(key, len(codes)) for key in keys], np.int64)
