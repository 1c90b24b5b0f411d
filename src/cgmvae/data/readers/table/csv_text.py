"""The text of a CSV file: the names in its first line, and its cells as an Arrow table of text."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from cgmvae.data import files
from cgmvae.data.readers.table.arrow import load_pyarrow
from cgmvae.errors import InputError, first_line

#: Bytes that are parsed at a time; a row must fit into one block.
_BLOCK = 64 * 2**20

#: Bytes that are parsed at a time where a file is read in parts: Arrow holds several such blocks.
_SMALL_BLOCK = 2**21

#: What Arrow says of a row with too many or too few cells. It would also hand the row over, but not
#: one that is no UTF-8.
_WRONG_ROW = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")


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
    try:
        with files.open_binary(path) as file:
            table = pa.csv.read_csv(file, *_options(n_columns, delimiter, _BLOCK))
    except pa.ArrowInvalid as error:
        raise _csv_error(path, error) from error
    if table.num_rows == 0:
        raise _no_rows(path)
    _refuse_open_quote(path, table, delimiter)
    return table


def iterate_cells(
    path: str | os.PathLike[str],
    n_columns: int,
    delimiter: str,
    open_file: Callable[[], IO[bytes]],
) -> Iterator[Any]:
    """Yield what :func:`read_cells` reads as tables of some rows each, in their order.

    Parameters
    ----------
    path : path
        The file, for messages.
    n_columns : int
        How many columns the header names.
    delimiter : str
        What separates the cells.
    open_file : callable
        Opens the file for reading bytes. Called again where a row is too long for small blocks;
        the rows that were read are passed over then.
    """
    pa = load_pyarrow()
    n_rows, table = 0, None
    for block in (_SMALL_BLOCK, _BLOCK):
        options = _options(n_columns, delimiter, block)
        try:
            with open_file() as file:
                for table in _tables_after(n_rows, pa.csv.open_csv(file, *options)):
                    n_rows += table.num_rows
                    yield table
            break
        except pa.ArrowInvalid as error:
            if _WRONG_ROW.search(str(error)) or block == _BLOCK:
                raise _csv_error(path, error) from error
    if table is None:
        raise _no_rows(path)
    _refuse_open_quote(path, table, delimiter)


def _tables_after(n_rows: int, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches as tables, without the first rows."""
    pa = load_pyarrow()
    for batch in batches:
        rest = batch.slice(min(n_rows, batch.num_rows))
        n_rows -= batch.num_rows - rest.num_rows
        if rest.num_rows:
            yield pa.Table.from_batches([rest])


def _options(n_columns: int, delimiter: str, block: int) -> tuple[Any, Any, Any]:
    """Return how Arrow reads, parses and converts."""
    pa = load_pyarrow()
    # Only a reader without threads knows the number of a wrong row.
    read = pa.csv.ReadOptions(
        use_threads=False,
        block_size=block,
        autogenerate_column_names=True,
        skip_rows_after_names=1,
    )
    parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    text = pa.csv.ConvertOptions(column_types={f"f{i}": pa.string() for i in range(n_columns)})
    return read, parse, text


def _no_rows(path: str | os.PathLike[str]) -> InputError:
    return InputError(f"{path} has a header and no rows; check how it was written.")


def _csv_error(path: str | os.PathLike[str], error: Exception) -> InputError:
    if wrong_row := _WRONG_ROW.search(str(error)):
        number, expected, found = wrong_row.groups()
        return InputError(
            f"Row {number} of {path} has {found} cells and the header {expected} (the header is "
            "row 1); repair the row, or check the delimiter."
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
    usual_limit = csv.field_size_limit(_BLOCK)
    try:
        with files.open_text(path, newline="") as text:
            for _ in csv.reader(text, delimiter=delimiter, strict=True):
                pass
    except csv.Error as error:
        raise InputError(f"{path} has a quote that is not closed ({error}); repair it.") from error
    finally:
        csv.field_size_limit(usual_limit)


def refuse_nul(names: Iterable[str]) -> None:
    """Refuse the character NUL in a header, which Arrow takes for an escape when it skips it."""
    if any("\0" in name for name in names):
        raise InputError("The name of a column holds the character NUL; rename the column.")
