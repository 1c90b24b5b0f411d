"""Text tables: CSV as R, Excel, LibreOffice and pandas write it, in any locale.

What the caller does not say about a file is found out from its first rows: the delimiter, the
decimal mark, and UTF-16 with a byte order mark. Every cell is read as text.
"""

from __future__ import annotations

import codecs
import csv
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any

from cgmvae.data import files
from cgmvae.data.readers.table.cells import load_pyarrow, with_decimal_points
from cgmvae.errors import InputError, Setting, first_line

#: Bytes per block that is parsed, of which Arrow holds several; and where a row does not fit.
_SMALL_BLOCK, _BLOCK = 2**21, 64 * 2**20

#: Characters of the longest cell that :mod:`csv` accepts.
_LONGEST_CELL = 64 * 2**20

#: Lines that the delimiter and the decimal mark are found from, unless they have more characters.
_SAMPLE_LINES, _SAMPLE_CHARACTERS = 100, 2**20

#: Delimiters that are tried; a space, which ``write.table`` of R writes, only after all of them.
_DELIMITERS = (",", ";", "\t", "|")

#: Delimiters of files in which the header may lack the name of the row names, as R writes it.
_R_DELIMITERS = " \t"

#: Numbers with a decimal point, with a decimal comma, and those where it separates thousands.
_POINT = re.compile(r"\s*[-+]?[0-9]*\.[0-9]+([eE][-+]?[0-9]+)?\s*")
_COMMA = re.compile(r"\s*[-+]?[0-9]*,[0-9]+([eE][-+]?[0-9]+)?\s*")
_THOUSANDS = re.compile(r"\s*[-+]?[1-9][0-9]{0,2},[0-9]{3}\s*")

#: Arrow's message about a row with too many or too few cells. Its callback for such rows cannot be
#: used, because it fails on rows that are not UTF-8.
_WRONG_ROW = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")


class DelimitedFile:
    """A text table whose first line names the columns.

    Parameters
    ----------
    path : path
        The file, possibly compressed with gzip or bzip2.
    delimiter : str, optional
        Separator of the cells: one character. By default that of ``,``, ``;``, tab, ``|`` and blank
        which divides the first rows alike; a tab in ``.tsv`` and ``.tab`` files.
    decimal : {".", ","}, optional
        Decimal mark. By default a comma if the first rows have numbers with it, and none with a
        point; ``1,234`` is such a number only between semicolons, elsewhere it may be thousands.
    encoding : str, optional
        One of Python's encodings, such as ``cp1252``. By default UTF-8, or UTF-16 if the file
        begins with its byte order mark.

    Attributes
    ----------
    names : list of str
        The column names. The name of R's row names, which ``write.table`` leaves out, is empty.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        delimiter: str | None = None,
        decimal: str | None = None,
        encoding: str | None = None,
    ) -> None:
        if decimal not in (None, ".", ","):
            raise InputError(f"decimal must be '.' or ',', not {decimal!r}.")
        if delimiter is None:
            delimiter = suffix_delimiter(path)
        if delimiter is not None and (
            len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'
        ):
            raise InputError(
                f"The delimiter {delimiter!r} must be one character, such as ',' or ';'."
            )
        self.path = path
        self.encoding = _find_encoding(path, encoding)
        lines, is_whole = self._sample()
        self.delimiter = delimiter or _find_delimiter(lines, is_whole)
        self.decimal = decimal or _find_decimal(lines, self.delimiter)
        self.names = self._read_names()

    def tables(
        self,
        open_file: Callable[[], IO[bytes]] | None = None,
        *,
        verbatim: Collection[str | None] = (),
    ) -> Iterator[Any]:
        """Yield the cells as Arrow tables of text, some rows at a time, with decimal points.

        ``open_file`` is called again if a row is too long for small blocks; the rows that have been
        read are skipped then. The columns ``verbatim`` hold no numbers, and keep their commas.
        """
        pa = load_pyarrow()
        names = [f"f{i}" for i in range(len(self.names))]
        with_commas = [
            i for i, name in enumerate(self.names) if self.decimal == "," and name not in verbatim
        ]
        parse = pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
        text = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        n_rows, table = 0, None
        for block in (_SMALL_BLOCK, _BLOCK):
            # Only a reader without threads reports the number of a wrong row.
            read = pa.csv.ReadOptions(
                use_threads=False,
                block_size=block,
                column_names=names,
                skip_rows_after_names=1,
                encoding="utf8" if self.encoding == "utf-8-sig" else self.encoding,
            )
            n_skipped = n_rows
            try:
                with (open_file or partial(files.open_binary, self.path))() as file:
                    for batch in pa.csv.open_csv(file, read, parse, text):
                        rest = batch.slice(min(n_skipped, batch.num_rows))
                        n_skipped -= batch.num_rows - rest.num_rows
                        if rest.num_rows:
                            table = pa.Table.from_batches([rest]).rename_columns(self.names)
                            n_rows += rest.num_rows
                            yield with_decimal_points(table, with_commas)
                break
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                if _WRONG_ROW.search(str(error)) or block == _BLOCK:
                    raise self._error(error) from error
        if table is None:
            raise InputError(f"{self.path} has a header and no rows; check how it was written.")
        self._reject_open_quote(table)

    def _text(self) -> Any:
        return files.open_text(
            self.path,
            newline="",
            encoding=self.encoding,
            advice=(
                "save it as UTF-8, or give its encoding, such as ",
                Setting("encoding", "cp1252"),
                " (Windows)",
            ),
        )

    def _sample(self) -> tuple[list[str], bool]:
        """Return the first lines, and whether these are all."""
        lines: list[str] = []
        n_characters = 0
        with self._text() as text:
            for line in text:
                is_enough = n_characters > _SAMPLE_CHARACTERS and len(lines) > 1
                if is_enough or len(lines) == _SAMPLE_LINES:
                    return lines, False
                lines.append(line)
                n_characters += len(line)
        return lines, True

    def _read_names(self) -> list[str]:
        """Read the column names from the first line, which may continue inside quotes."""
        first: list[str] = []
        try:
            with self._text() as text, _long_cells():
                rows = csv.reader(text, delimiter=self.delimiter, strict=True)
                names = next(rows, [])
                if self.delimiter in _R_DELIMITERS:
                    first = next(rows, [])
        except csv.Error as error:
            raise InputError(
                f"The first line of {self.path} does not name the columns ({error})."
            ) from error
        if not names:
            raise InputError(f"The first line of {self.path} is empty; it must name the columns.")
        if any("\0" in name for name in names):  # which Arrow mistakes for an escape character
            raise InputError("A column name holds the character NUL; rename the column.")
        return ["", *names] if len(first) == len(names) + 1 else names

    def _error(self, error: Exception) -> InputError:
        if wrong_row := _WRONG_ROW.search(str(error)):
            number, expected, found = wrong_row.groups()
            return InputError(
                f"Row {number} of {self.path} has {found} cells and the header {expected} (the "
                "header is row 1); correct the row, or check the delimiter."
            )
        if "UTF8" in str(error) or isinstance(error, UnicodeDecodeError):
            try:
                with self._text() as text:
                    while text.read(_BLOCK):
                        pass
            except InputError as clearer:
                return clearer
        return InputError(
            f"{self.path} is not a readable CSV file ({first_line(error)}); check it."
        )

    def _reject_open_quote(self, table: Any) -> None:
        """Reject a file that ends inside a quote, of which Arrow makes one long cell."""
        last = table.column(table.num_columns - 1)[-1].as_py()
        if "\n" not in last and "\r" not in last:
            return
        try:
            with self._text() as text, _long_cells():
                for _ in csv.reader(text, delimiter=self.delimiter, strict=True):
                    pass
        except csv.Error as error:
            raise InputError(
                f"{self.path} has a quote that is not closed ({error}); close it."
            ) from error


def suffix_delimiter(path: str | os.PathLike[str]) -> str | None:
    """Return the delimiter that the suffix of a file tells; None if it tells none."""
    return "\t" if files.data_suffix(path) in (".tsv", ".tab") else None


def _find_encoding(path: str | os.PathLike[str], given: str | None) -> str:
    if given is None:
        with files.open_binary(path) as file:
            mark = file.read(2)
        if b"\0" in mark:
            likely = "utf-16-be" if mark[0] == 0 else "utf-16-le"
            raise InputError(
                f"{path} seems to be UTF-16 text; give ", Setting("encoding", likely), "."
            )
        return "utf-16" if mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    try:
        "".encode(given)
    except LookupError as error:
        raise InputError(
            f"There is no encoding {given!r}; give one such as 'cp1252', 'latin-1' or 'utf-16'."
        ) from error
    return "utf-8-sig" if codecs.lookup(given).name == "utf-8" else given


def _find_delimiter(lines: list[str], is_whole: bool) -> str:
    """Return the delimiter that divides all rows alike, into the most cells."""

    def quality(delimiter: str) -> tuple[bool, int]:
        with _long_cells():
            widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
        if not is_whole and len(widths) > 2:
            widths.pop()  # the row may go on in the next line
        header, others = widths[0] if widths else 0, set(widths[1:])
        is_of_r = delimiter in _R_DELIMITERS and others == {header + 1}
        return header > 1 and (is_of_r or others <= {header}), header

    best = max(_DELIMITERS, key=quality)
    return " " if quality(best)[1] < 2 and quality(" ")[0] else best


def _find_decimal(lines: list[str], delimiter: str) -> str:
    """Return the decimal mark of the cells below the header."""
    with _long_cells():
        cells = [cell for row in list(csv.reader(lines, delimiter=delimiter))[1:] for cell in row]
    commas = [cell for cell in cells if _COMMA.fullmatch(cell)]
    if delimiter != ";":
        commas = [cell for cell in commas if not _THOUSANDS.fullmatch(cell)]
    return "," if commas and not any(map(_POINT.fullmatch, cells)) else "."


@contextmanager
def _long_cells() -> Iterator[None]:
    """Let :mod:`csv` accept cells as long as those of Arrow."""
    usual_limit = csv.field_size_limit(_LONGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(usual_limit)
