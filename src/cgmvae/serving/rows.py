"""What a client sends, as rows that the model takes: JSON by name or in order, or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from email.message import Message
from types import NoneType
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.columns import ColumnType, typed_column
from cgmvae.errors import InputError, listed
from cgmvae.serving.refusals import Refusal, shown
from cgmvae.serving.served import Features, ServedModel

#: Values of a column, in the order of the rows.
Values = Sequence[Any]

#: What a cell in JSON can be, by the kind of its column, and in words.
_TAKEN: dict[ColumnType, tuple[set[type], str]] = {
    "number": ({int, float, bool, NoneType}, "numbers"),
    "category": ({str, int, float, NoneType}, "the name of a category"),
    "date": ({str, NoneType}, "dates such as '2024-05-31'"),
    "text": ({str, NoneType}, "text"),
}


class SentRows(NamedTuple):
    """Rows as the model takes them."""

    features: Features
    ignored: list[str]
    """Columns that the model does not know."""


def read_rows(body: bytes, content_type: str, model: ServedModel, most: int) -> SentRows:
    """Read the rows of a request.

    Parameters
    ----------
    body : bytes
    content_type : str
        JSON or CSV, in UTF-8.
    model : ServedModel
        Says which columns there must be.
    most : int
        How many rows there may be.
    """
    kind = _media_type(content_type)
    text = _decoded(body)
    if kind == "text/csv":
        return _from_csv(text, model, most)
    return _from_json(text, model, most)


def _media_type(content_type: str) -> str:
    header = Message()
    header["Content-Type"] = content_type or "none/none"
    kind, charset = header.get_content_type(), header.get_content_charset("utf-8")
    if kind not in ("application/json", "text/csv") or charset not in ("utf-8", "us-ascii"):
        raise Refusal(
            415, "The body must be application/json or text/csv, in UTF-8; say so in Content-Type."
        )
    return kind


def _decoded(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"The body is not UTF-8 (byte {error.start:,}); encode it so.") from error


def _from_json(text: str, model: ServedModel, most: int) -> SentRows:
    rows = _json_rows(text)
    _check_count(len(rows), most)
    if all(isinstance(row, dict) for row in rows):
        columns, ignored = _by_name(rows, model)
    elif all(isinstance(row, list) for row in rows):
        columns, ignored = _by_place(rows, model), []
    else:
        raise InputError("The rows must be all objects, by name, or all lists, in order.")
    return SentRows(model.joined(columns, _json_column), ignored)


def _json_rows(text: str) -> list[Any]:
    try:
        sent = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise InputError("The body nests lists too deeply; send a list of rows.") from error
    except InputError:
        raise
    except ValueError as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "too long a number"
        raise InputError(f"The body is not JSON ({reason}); repair it.") from error
    if not isinstance(sent, dict) or sent.keys() != {"rows"} or not isinstance(sent["rows"], list):
        raise InputError('The body must be an object with a list of rows: {"rows": [...]}.')
    return sent["rows"]


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"{name} is no number in JSON; write null where a value is missing.")


def _check_count(n_rows: int, most: int) -> None:
    if n_rows == 0:
        raise InputError("There are no rows; send at least one.")
    if n_rows > most:
        raise Refusal(
            413, f"There are {n_rows:,} rows, and a request may have {most:,}; send several."
        )


def _by_name(rows: list[dict[str, Any]], model: ServedModel) -> tuple[list[Values], list[str]]:
    """Return the values of each of the model's columns, and the names of the others."""
    if model.column_names is None:
        raise InputError(
            f"The model does not know the names of its {model.n_columns:,} columns; send each row "
            "as a list of values in its order."
        )
    wanted = dict.fromkeys(model.column_names)
    for number, row in enumerate(rows, 1):
        if missing := [name for name in wanted if name not in row]:
            raise InputError(
                f"Row {number:,} lacks {listed(missing)}; send every column, and null where a "
                "value is missing."
            )
    found = dict.fromkeys(name for row in rows for name in row)
    ignored = [name for name in found if name not in wanted]
    return [[row[name] for row in rows] for name in wanted], ignored


def _by_place(rows: list[list[Any]], model: ServedModel) -> list[Values]:
    for number, row in enumerate(rows, 1):
        if len(row) != model.n_columns:
            raise InputError(
                f"Row {number:,} has {len(row):,} values, and the model takes {model.n_columns:,}; "
                "send them all, in its order."
            )
    return list(zip(*rows, strict=True))


def _json_column(values: Values, title: str, kind: ColumnType) -> NDArray[Any]:
    """Return a column's values as its kind keeps them, once all have a type that it takes."""
    taken, words = _TAKEN[kind]
    if not set(map(type, values)) <= taken:
        row = next(i for i, value in enumerate(values) if type(value) not in taken)
        raise InputError(
            f"Row {row + 1:,} has {shown(values[row])} in the column {title!r}, which takes "
            f"{words}; send that, or null where it is missing."
        )
    if kind != "number":
        return typed_column(title, np.array(values, dtype=object), kind)[0]
    try:
        return _as_read(np.array(values, np.float64), title)
    except OverflowError:  # an integer that no float can hold
        return _as_read(np.array([np.inf]), title)


def _csv_column(values: Sequence[str], title: str, kind: ColumnType) -> NDArray[Any]:
    typed = typed_column(title, np.array(values, dtype=object), kind)[0]
    return _as_read(typed, title) if kind == "number" else typed


def _as_read(numbers: NDArray[np.float64], title: str) -> NDArray[np.float32]:
    """Return numbers as files are read: float32, with NaN for what is missing."""
    with np.errstate(over="ignore"):
        rounded = numbers.astype(np.float32)
    if np.isinf(rounded).any():
        raise InputError(
            f"The column {title!r} holds a number beyond float32; rescale it, or send nothing "
            "where it is missing."
        )
    return rounded


def _from_csv(text: str, model: ServedModel, most: int) -> SentRows:
    header, rows = _csv_rows(text)
    _check_count(len(rows), most)
    wanted = dict.fromkeys(header if model.column_names is None else model.column_names)
    there = set(header)
    if missing := [name for name in wanted if name not in there]:
        raise InputError(f"The header lacks {listed(missing)}; add these columns.")
    if len(wanted) != model.n_columns:
        raise InputError(
            f"There are {len(header):,} columns, and the model takes {model.n_columns:,}, whose "
            "names it does not know; send those that it was fitted with."
        )
    found = dict(zip(header, zip(*rows, strict=True), strict=True))
    ignored = [name for name in header if name not in wanted]
    columns = [found[name] for name in wanted]
    return SentRows(model.joined(columns, _csv_column), ignored)


def _csv_rows(text: str) -> tuple[list[str], list[list[str]]]:
    try:
        lines = [row for row in csv.reader(io.StringIO(text, ""), strict=True) if row]
    except csv.Error as error:
        raise InputError(f"The body is not CSV ({error}); repair it, or send JSON.") from error
    if not lines:
        raise InputError("The body is not CSV with a header and rows; repair it.")
    header, *rows = lines
    if repeated := [name for name, count in Counter(header).items() if count > 1]:
        raise InputError(f"{listed(repeated)} names more than one column; rename them.")
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise InputError(
                f"Row {number:,} has {len(row):,} cells and the header {len(header):,}; repair it."
            )
    return header, rows
