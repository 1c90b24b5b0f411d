"""The rows of an ARFF file, dense, sparse or mixed, as one matrix of numbers.

Text is read in batches, and a batch takes one of two ways. Lines of plain numbers are checked and
converted as a whole. Any other batch (quotes, words, comments within a line, mistakes) is read
token by token; every error message about a row comes from there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.data.readers.arff.header import (
    BLANKS,
    Attribute,
    Header,
    Token,
    error_at,
    tokens,
)
from cgmvae.data.readers.conventions import FLOAT32_LIMIT, NUMBER, is_number, not_rising
from cgmvae.data.stacked import stacked
from cgmvae.errors import InputError

#: Characters of text that are held and converted at once.
_BATCH = 1 << 22

_PLAIN_BYTES = b"0123456789+-.eE?, \t\n"
_EMPTY_VALUE = re.compile(r"(?:^|,)[ \t]*,", re.MULTILINE)
_PLAIN_SPARSE = re.compile(
    rf"\{{[ \t]*(?:[0-9]{{1,18}}[ \t]+(?:\?|{NUMBER})[ \t]*(?:,[ \t]*|(?=\}})))*\}}"
)
_INDEX = re.compile(r"[0-9]{1,18}")
_OPEN, _CLOSE, _COMMA = Token("mark", "{"), Token("mark", "}"), Token("mark", ",")
_MISSING = Token("word", "?")


@dataclass(frozen=True)
class Rows:
    """The rows as numbers, and where they came from."""

    values: Matrix
    """Array or, when any row is sparse, CSR array of float32, (n_samples, n_attributes): numbers,
    codes of nominal values, NaN where a value is missing."""
    lines: NDArray[np.int64]
    """The line of each row, (n_samples,)."""


class _Coding:
    """What the attributes demand of a whole batch of numbers."""

    def __init__(self, attributes: Sequence[Attribute]) -> None:
        self.attributes = attributes
        self.n = len(attributes)
        self.plain = all(attribute.is_numeric for attribute in attributes)
        self.omitted = np.array([attribute.omitted for attribute in attributes])
        self.filled = np.flatnonzero(self.omitted)
        sets: dict[tuple[float, ...], list[int]] = {}
        for column, attribute in enumerate(attributes):
            if attribute.values:
                sets.setdefault(tuple(attribute.codes.values()), []).append(column)
        self.sets = [(np.array(columns), values) for values, columns in sets.items()]

    def accepts(self, columns: NDArray[np.int64], values: NDArray[np.float64]) -> bool:
        """Tell whether the cells fit float32 and the values that their attributes declare."""
        if (np.abs(values) >= FLOAT32_LIMIT).any():
            return False
        for members, allowed in self.sets:
            belongs = np.zeros(self.n, dtype=bool)
            belongs[members] = True
            cells = values[belongs[columns]]
            if not (np.isin(cells, allowed) | np.isnan(cells)).all():
                return False
        return True


def read_rows(text: IO[str], header: Header, path: object) -> Rows:
    """Read the lines that follow ``@data``.

    Parameters
    ----------
    text : text file
        Opened, with the header read from it.
    header : Header
    path : path
        The file's name for messages.
    """
    parts = list(rows_in_parts(text, header, path))
    lines = np.concatenate([part.lines for part in parts])
    return Rows(stacked([part.values for part in parts]), lines)


def rows_in_parts(text: IO[str], header: Header, path: object) -> Iterator[Rows]:
    """Yield what :func:`read_rows` reads, some rows at a time."""
    coding = _Coding(header.attributes)
    n_lines, is_empty = header.n_lines, True
    while batch := text.readlines(_BATCH):
        stripped = [line.strip(BLANKS) for line in batch]
        kept = [
            (n, line) for n, line in enumerate(stripped, n_lines + 1) if line[:1] not in ("", "%")
        ]
        n_lines += len(batch)
        blocks: list[Any] = []
        for is_sparse, run in groupby(kept, key=lambda item: item[1][0] == "{"):
            numbers, lines = zip(*run, strict=True)
            read_block = _sparse_block if is_sparse else _dense_block
            blocks.append(read_block(lines, numbers, coding, path))
        if blocks:
            is_empty = False
            yield Rows(stacked(blocks), np.array([n for n, _ in kept], dtype=np.int64))
    if is_empty:
        raise InputError(f"{path} has no rows after @data; it is cut short: fetch it again.")


def _dense_block(
    lines: Sequence[str], numbers: Sequence[int], coding: _Coding, path: object
) -> NDArray[np.float32]:
    values = _plain_dense(lines, coding) if coding.plain else None
    if values is None:
        values = np.array(
            [_dense_row(line, n, coding, path) for line, n in zip(lines, numbers, strict=True)]
        )
    return _float32(values)


def _plain_dense(lines: Sequence[str], coding: _Coding) -> NDArray[np.float64] | None:
    """Return the numbers of plain lines, None where a line needs a closer look."""
    text = "\n".join(lines)
    if text.encode().translate(None, _PLAIN_BYTES) or _EMPTY_VALUE.search(text):
        return None
    rows = [line.replace(",", " ").split() for line in lines]
    if any(len(row) != coding.n for row in rows):
        return None
    if "?" in text:
        rows = [["nan" if cell == "?" else cell for cell in row] for row in rows]
    try:
        values = np.array(rows, dtype=np.float64)
    except ValueError:
        return None
    columns = np.broadcast_to(np.arange(coding.n), values.shape)
    return values if coding.accepts(columns, values) else None


def _sparse_block(
    lines: Sequence[str], numbers: Sequence[int], coding: _Coding, path: object
) -> sp.csr_array:
    cells = _plain_sparse(lines, coding) if coding.plain else None
    if cells is None:
        rows = [_sparse_row(line, n, coding, path) for line, n in zip(lines, numbers, strict=True)]
        starts = np.cumsum([0, *map(len, rows)])
        pairs = np.array([pair for row in rows for pair in row.items()]).reshape(-1, 2)
        cells = starts, pairs[:, 0].astype(np.int64), pairs[:, 1]
    starts, columns, values = cells
    shape = (len(lines), coding.n)
    block: Any = sp.csr_array((_float32(values), columns, starts), shape=shape)
    if coding.filled.size:
        given = sp.csr_array((np.ones(len(columns), dtype=bool), columns, starts), shape=shape)
        rows_of, places = np.nonzero(~given[:, coding.filled].toarray())
        omitted = coding.filled[places]
        block += sp.csr_array((_float32(coding.omitted[omitted]), (rows_of, omitted)), shape=shape)
    block.eliminate_zeros()
    return block


def _plain_sparse(
    lines: Sequence[str], coding: _Coding
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]] | None:
    """Return where rows start, columns and values; None where a line needs a closer look."""
    if not all(map(_PLAIN_SPARSE.fullmatch, lines)):
        return None
    rows = [line[1:-1].replace(",", " ").split() for line in lines]
    starts = np.cumsum([0, *(len(row) // 2 for row in rows)])
    flat = [cell for row in rows for cell in row]
    columns = np.array(flat[0::2], dtype=np.int64)
    values = np.array(["nan" if cell == "?" else cell for cell in flat[1::2]], dtype=np.float64)
    fits = not (not_rising(columns, starts).any() or (columns >= coding.n).any())
    if not fits or not coding.accepts(columns, values):
        return None
    return starts, columns, values


def _dense_row(line: str, number: int, coding: _Coding, path: object) -> list[float]:
    parts = tokens(line, path, number)
    if _OPEN in parts:
        raise _weight(path, number)
    before = [_COMMA, *parts]
    if any(part == last == _COMMA for part, last in zip(parts, before, strict=False)):
        raise error_at(path, number, "a value is empty; write ? where it is missing.")
    cells = [part for part in parts if part != _COMMA]
    if len(cells) != coding.n:
        raise error_at(
            path,
            number,
            f"the row has {len(cells):,} values for {coding.n:,} attributes; "
            "the file may be cut short: correct or fetch it again.",
        )
    pairs = zip(cells, coding.attributes, strict=True)
    return [_value(cell, attribute, path, number) for cell, attribute in pairs]


def _sparse_row(line: str, number: int, coding: _Coding, path: object) -> dict[int, float]:
    parts = tokens(line, path, number)
    if _CLOSE not in parts:
        raise error_at(path, number, "the sparse row has no closing brace; it may be cut short.")
    end = parts.index(_CLOSE)
    if end + 1 < len(parts):
        raise _weight(path, number)
    row: dict[int, float] = {}
    last = -1
    for pair in _between_commas(parts[1:end]):
        if len(pair) != 2 or _OPEN in pair or not _is_index(pair[0]):
            raise error_at(path, number, "a sparse row is {index value, …}; correct it.")
        place = int(pair[0].text)
        _check_index(place, last, coding.n, path, number)
        row[place] = _value(pair[1], coding.attributes[place], path, number)
        last = place
    return row


def _between_commas(parts: Sequence[Token]) -> list[list[Token]]:
    """Divide tokens at the commas; nothing needs to follow the last one."""
    groups: list[list[Token]] = [[]]
    for part in parts:
        if part == _COMMA:
            groups.append([])
        else:
            groups[-1].append(part)
    return groups if groups[-1] else groups[:-1]


def _is_index(token: Token) -> bool:
    return token.kind == "word" and _INDEX.fullmatch(token.text) is not None


def _check_index(place: int, last: int, n: int, path: object, number: int) -> None:
    if place >= n:
        raise error_at(
            path, number, f"the index {place} is out of range: there are {n:,} attributes, from 0."
        )
    if place == last:
        raise error_at(path, number, f"the index {place} is repeated; give each value once.")
    if place < last:
        raise error_at(path, number, f"the index {place} follows {last}; indices must increase.")


def _value(token: Token, attribute: Attribute, path: object, number: int) -> float:
    if token == _MISSING:
        return math.nan
    text = token.text
    value = float(text) if attribute.is_numeric and is_number(text) else None
    if attribute.kind == "nominal":
        codes = attribute.codes
        if text in codes:
            return codes[text]
        if value is None or value not in codes.values():
            some = ", ".join(attribute.values[:5]) + (", …" if len(attribute.values) > 5 else "")
            raise error_at(
                path,
                number,
                f"{text!r} is not a value of {attribute.name!r} ({some}); correct one of them.",
            )
    elif value is None or abs(value) >= FLOAT32_LIMIT:
        raise error_at(
            path,
            number,
            f"{text!r} in {attribute.name!r} is not a number that fits 32 bits; "
            "correct it, or write ? where it is missing.",
        )
    return value


def _weight(path: object, number: int) -> InputError:
    return error_at(
        path, number, "the row has an instance weight {…}, which is not supported; remove weights."
    )


def _float32(values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # a nominal value may be huge; the data set refuses infinity
        return values.astype(np.float32)
