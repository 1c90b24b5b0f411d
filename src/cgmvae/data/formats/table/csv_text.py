"""The text of a CSV file: the names in its first line, and its cells as an Arrow table of text."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from typing import Any

from cgmvae.data import files
from cgmvae.data.formats.table.arrow import first_line, load_pyarrow
from cgmvae.errors import InputError

#: Bytes that are parsed at a time; a row must fit into one block.
_BLOCK = 64 * 2**20


def read_names(path: str | os.PathLike[str], delimiter: str) -> list[str]:
    """Read the names of the columns from the first line, which may go on inside quotes."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise InputError(f"The delimiter {delimiter!r} must be one character, such as ',' or ';'.")
    try:
        with files.open_text(path, newline="") as text:
            names = next(csv.reader(text, delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise InputError(f"The first line of {path} does not name columns ({error}).") from error
    if not names:
        raise InputError(f"The first line of {path} is empty; it must name the columns.")
    refuse_nul(names)
    return names


def read_cells(path: str | os.PathLike[str], n_columns: int, delimiter: str) -> Any:
    """Read every cell below the header as text, into columns ``f0``, ``f1`` and on."""
    pa = load_pyarrow()
    wrong_rows: list[Any] = []

    def note_wrong_row(row: Any) -> str:
        wrong_rows.append(row)
        return "error"

    # Only a reader without threads knows the number of a wrong row.
    read = pa.csv.ReadOptions(
        use_threads=False,
        block_size=_BLOCK,
        autogenerate_column_names=True,
        skip_rows_after_names=1,
    )
    parse = pa.csv.ParseOptions(
        delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note_wrong_row
    )
    text = pa.csv.ConvertOptions(column_types={f"f{i}": pa.string() for i in range(n_columns)})
    try:
        with files.open_binary(path) as file:
            table = pa.csv.read_csv(file, read, parse, text)
    except pa.ArrowInvalid as error:
        raise _csv_error(path, error, wrong_rows) from error
    if table.num_rows == 0:
        raise InputError(f"{path} has a header and no rows; check how it was written.")
    _refuse_open_quote(path, table, delimiter)
    return table


def _csv_error(path: str | os.PathLike[str], error: Exception, wrong_rows: list[Any]) -> InputError:
    if wrong_rows:
        row = wrong_rows[0]
        return InputError(
            f"Row {row.number} of {path} has {row.actual_columns} cells and the header "
            f"{row.expected_columns} (the header is row 1); repair the row, or check the delimiter."
        )
    if "UTF8" in str(error):
        try:
            with files.open_text(path) as text:
                while text.read(_BLOCK):
                    pass
        except InputError as clearer:
            return clearer
    return InputError(f"{path} is not a readable CSV file ({first_line(error)}).")


def _refuse_open_quote(path: str | os.PathLike[str], table: Any, delimiter: str) -> None:
    """Refuse a file that ends inside a quote, where Arrow takes the rest for one long cell."""
    last = table.column(table.num_columns - 1)[-1].as_py()
    if "\n" not in last and "\r" not in last:
        return
    try:
        with files.open_text(path, newline="") as text:
            for _ in csv.reader(text, delimiter=delimiter, strict=True):
                pass
    except csv.Error as error:
        raise InputError(f"{path} has a quote that is not closed ({error}); repair it.") from error


def refuse_nul(names: Iterable[str]) -> None:
    """Refuse the character NUL in a header, which Arrow takes for an escape when it skips it."""
    if any("\0" in name for name in names):
        raise InputError("The name of a column holds the character NUL; rename the column.")
