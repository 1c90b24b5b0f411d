"""The text of an svmlight file: its lines as cells, before it is known how many columns there are.

:mod:`cgmvae.data.readers.svmlight` turns the cells into features and labels.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.readers.conventions import COLUMNS_LIMIT, NUMBER
from cgmvae.errors import InputError

_LABELS = r"[-+]?[0-9]{1,18}(?:\.0*)?(?:,[-+]?[0-9]{1,18}(?:\.0*)?)*"
_FEATURE = rf"[0-9]{{1,18}}:(?:[nN][aA][nN]|{NUMBER})"
_LINE = re.compile(
    rf"(?:(?P<labels>{_LABELS})(?=[ \t]|$))?[ \t]*"
    rf"(?P<features>(?:{_FEATURE}(?:[ \t]+|$))*)"
)
_HEADER = re.compile(r"([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]+([0-9]{1,18})")


@dataclass
class Cells:
    """The cells of a growing sparse table, row after row."""

    starts: array[int] = field(default_factory=lambda: array("q", [0]))
    columns: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def matrix(self, columns: NDArray[np.int64], values: NDArray[Any], n: int) -> sp.csr_array:
        """Return the table with ``n`` columns and what was made of its columns and values."""
        shape = (len(self.starts) - 1, n)
        return sp.csr_array((values, columns, np.array(self.starts)), shape=shape)

    def row_of(self, cell: int) -> int:
        """Return the row that a cell is in."""
        return int(np.searchsorted(np.array(self.starts), cell, side="right")) - 1


@dataclass
class ParsedRows:
    """Rows that follow each other in a file."""

    path: Path
    stated: tuple[int, int, int] | None = None
    """Rows, features and labels by the header of the file, where it has one."""
    n_before: int = 0
    """Rows of the file before these."""
    lines: array[int] = field(default_factory=lambda: array("q"))
    """The line of each row."""
    features: Cells = field(default_factory=Cells)
    labels: Cells = field(default_factory=Cells)

    @property
    def n_so_far(self) -> int:
        """Rows of the file up to the last of these."""
        return self.n_before + len(self.lines)

    @property
    def size(self) -> int:
        """Cells of features and labels, and one more a row."""
        return len(self.features.columns) + len(self.labels.columns) + len(self.lines)

    def following(self) -> ParsedRows:
        """Return the place for the rows after these."""
        return ParsedRows(self.path, self.stated, self.n_so_far)

    def add(self, number: int, line: str) -> None:
        """Parse a line."""
        if not self.n_so_far and self.stated is None and (header := _HEADER.fullmatch(line)):
            n_samples, n_features, n_labels = map(int, header.groups())
            self.stated = n_samples, n_features, n_labels
            return
        if not line and (self.stated is None or self.n_so_far == self.stated[0]):
            return
        match = _LINE.fullmatch(line)
        if match is None:
            raise self.error(number, _complaint(line))
        self.lines.append(number)
        ids = match["labels"].split(",") if match["labels"] else []
        self.labels.columns.extend(int(label.partition(".")[0]) for label in ids)
        self.labels.starts.append(len(self.labels.columns))
        cells = match["features"].replace(":", " ").split()
        self.features.columns.extend(map(int, cells[0::2]))
        self.features.values.extend(map(float, cells[1::2]))
        self.features.starts.append(len(self.features.columns))

    def error(self, number: int, message: str) -> InputError:
        """Return the error that names the file and the line."""
        return InputError(f"{self.path}, line {number:,}: {message}")

    def error_in(self, cells: Cells, cell: int, message: str) -> InputError:
        """Return the error that names the file and the line of a cell."""
        return self.error(self.lines[cells.row_of(cell)], message)

    def n_columns(self, kind: str, given: int | None, found: int) -> int:
        """Return how many columns there are: as given, else as stated, else as found."""
        stated = None if self.stated is None else self.stated[1 if kind == "features" else 2]
        n = given if given is not None else stated if stated is not None else found
        if n > COLUMNS_LIMIT:
            raise InputError(
                f"{self.path} would have {n:,} {kind}, more than the {COLUMNS_LIMIT:,} that are "
                "accepted; number them without gaps."
            )
        return n


def parse_rows(text: IO[str], path: Path, max_cells: int | None = None) -> Iterator[ParsedRows]:
    """Parse the lines of a file, and yield its rows: all at once, or some at a time.

    Parameters
    ----------
    text : text file
        Opened, at its beginning.
    path : Path
        The file's name for messages.
    max_cells : int, optional
        Rows are yielded as soon as they have this many cells, and one more a row.
    """
    rows = ParsedRows(path)
    for number, line in _content(text):
        if max_cells and rows.size >= max_cells:
            yield rows
            rows = rows.following()
        rows.add(number, line)
    if not rows.n_so_far:
        raise InputError(f"{path} has no rows; fetch it again.")
    if rows.stated and rows.stated[0] != rows.n_so_far:
        raise InputError(
            f"{path} states {rows.stated[0]:,} rows and has {rows.n_so_far:,}; "
            "it may be cut short: fetch it again."
        )
    if rows.lines:
        yield rows


def _content(text: IO[str]) -> Iterator[tuple[int, str]]:
    """Yield numbered lines without comments; lines that are nothing else are left out."""
    for number, line in enumerate(text, start=1):
        content, mark, _ = line.partition("#")
        content = content.strip(" \t\r\n")
        if content or not mark:
            yield number, content


def _complaint(line: str) -> str:
    parts = re.split(r"[ \t]+", line)
    labels = "" if ":" in parts[0] else parts.pop(0)
    if labels and not re.fullmatch(_LABELS, labels):
        return f"{labels!r} is not a list of labels such as 1,3,7 (whole numbers); correct it."
    bad = next(part for part in parts if not re.fullmatch(_FEATURE, part))
    if bad.startswith("qid:"):
        return "query ids (qid) are not supported; remove them."
    return f"{bad!r} is not a feature such as 12:0.5 (index:value); correct it."
