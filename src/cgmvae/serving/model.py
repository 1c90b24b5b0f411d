"""The served model: how a request becomes its features, and its scores become predictions.

Rows are JSON, as objects by column name or as lists in the model's column order, or CSV with a
header. The rows of a JSON request are counted before it is parsed, and cells that are lists or
objects, which only an unused column may hold, are never parsed; they count as rows. Cells are
checked per column, which costs a fraction of validating each.
"""

from __future__ import annotations

import codecs
import copy
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.message import Message
from functools import cached_property, lru_cache
from itertools import islice
from types import NoneType
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from cgmvae.data.columns import Columns, ColumnType, as_float64, typed_column
from cgmvae.errors import InputError, listed
from cgmvae.evaluation.thresholds import describe_rule
from cgmvae.methods.base import most_similar
from cgmvae.methods.communities import with_known_labels
from cgmvae.serving.responses import RequestError, quoted

#: Rows in the form that the model takes.
Features = NDArray[np.float64] | Columns

#: Text in JSON.
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)

_MAX_NUMBER = np.finfo(np.float32).max

#: Maximum number of columns that the OpenAPI description lists by name.
_MAX_DESCRIBED_COLUMNS = 500


class _Cell(NamedTuple):
    """What a JSON cell of a column may be."""

    types: set[type]
    words: str
    schema: dict[str, Any]


_CELLS: dict[ColumnType, _Cell] = {
    "number": _Cell(
        {int, float, bool, NoneType},
        "numbers",
        {"type": ["number", "boolean", "null"], "minimum": -3.4e38, "maximum": 3.4e38},
    ),
    "category": _Cell(
        {str, int, float, NoneType},
        "the name of a category",
        {"type": ["string", "number", "null"]},
    ),
    "date": _Cell({str, NoneType}, "dates such as '2024-05-31'", {"type": ["string", "null"]}),
    "text": _Cell({str, NoneType}, "text", {"type": ["string", "null"]}),
}


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a prediction request in JSON, with rows that are not parsed yet."""

    rows: list[msgspec.Raw]
    known: list[dict[str, bool | float | None] | list[str] | None] | None = None


_ENVELOPE = msgspec.json.Decoder(PredictRequest)

_Scalar = bool | int | float | str | None

_SCALAR = msgspec.json.Decoder(_Scalar)
_ROW = msgspec.json.Decoder(list[_Scalar] | dict[str, _Scalar])
_UNPARSED_ROW = msgspec.json.Decoder(list[msgspec.Raw] | dict[str, msgspec.Raw])


class _Unparsed(str):
    """A cell that is no scalar, as it was sent: parsed, it would take many times the memory."""

    __repr__ = str.__str__


class Parsed(NamedTuple):
    """A parsed request."""

    features: Features
    known: NDArray[np.float32] | None
    """1, 0, or NaN where a label is not known, (n_rows, n_labels)"""
    ignored: list[str]
    """Names of the columns that the model does not use"""


def n_bytes(parsed: Parsed) -> int:
    """Return the size of a parsed request in memory."""
    features = parsed.features
    parts = features.values if isinstance(features, Columns) else (features,)
    return sum(part.nbytes for part in parts) + (0 if parsed.known is None else parsed.known.nbytes)


class ServedModel:
    """A fitted estimator as the server uses it; the estimator itself is not changed.

    ``column_names`` are the input columns in the model's order, None if it does not know them;
    ``label_names`` have the order of the probabilities, and ``method`` is the estimator's class.
    """

    def __init__(self, model: Any) -> None:
        self._model, self.method = copy.copy(model), type(model).__name__
        self.n_columns = int(model.n_features_in_)
        types: dict[str, ColumnType] | None = model.input_kinds()
        self.column_names = None if types is None else tuple(types)
        unnamed: list[ColumnType] = ["number"] * self.n_columns
        self.column_types = tuple(unnamed if types is None else types.values())
        self._takes_array = model.pipeline_.columns is None
        # Columns are matched by name here; scikit-learn would warn about arrays without names.
        self._model.__dict__.pop("feature_names_in_", None)
        self.label_names = list(model.label_names_)
        length = msgspec.Meta(min_length=self.n_columns, max_length=self.n_columns)
        self._numbers = msgspec.json.Decoder(Annotated[list[float | bool | None], length])

    # --- Requests ---------------------------------------------------------------------------------

    def parse(self, body: bytes, content_type: str, max_rows: int) -> Parsed:
        """Parse the body of a request, JSON or CSV in UTF-8, with at most ``max_rows`` rows."""
        body = body.removeprefix(codecs.BOM_UTF8)
        try:
            if _media_type(content_type) == "text/csv":
                return self._parse_csv(body.decode(), max_rows)
            return self._parse_json(body, max_rows)
        except UnicodeDecodeError:
            raise _not_utf_8(body) from None

    def _parse_csv(self, text: str, max_rows: int) -> Parsed:
        header, rows = _csv_rows(text, max_rows)
        _check_number(len(rows), max_rows)
        columns, ignored = self._columns_by_header(header, rows)
        return Parsed(self._features(columns, _csv_column), None, ignored)

    def _parse_json(self, body: bytes, max_rows: int) -> Parsed:
        of_row = 2 if b'"known"' in body else 1  # lists and objects of a row
        if body.count(b"[") + body.count(b"{") > of_row * max_rows:  # perhaps in text: slow to tell
            n_containers = _n_containers(body, of_row * max_rows + 3) - 1 - of_row
            _check_number(max(1, -(-n_containers // of_row)), max_rows)
        content = _json_content(body)
        unparsed = content.rows
        _check_number(len(unparsed), max_rows)
        known = None if content.known is None else self._known(content.known, len(unparsed))
        if self._takes_array:
            # Most requests are lists of numbers; the checks below say what is wrong with others.
            with suppress(msgspec.ValidationError):
                numbers = np.array(list(map(self._numbers.decode, unparsed)), np.float64)
                if not (np.abs(numbers) > _MAX_NUMBER).any():
                    return Parsed(numbers, known, [])
        rows = list(map(_parsed_row, unparsed))
        if all(isinstance(row, dict) for row in rows):
            columns, ignored = self._columns_by_name(rows)
        elif all(isinstance(row, list) for row in rows):
            for number, row in enumerate(rows, 1):
                if len(row) != self.n_columns:
                    raise InputError(
                        f"Row {number:,} has {len(row):,} values, and the model takes "
                        f"{self.n_columns:,}; send all of them, in the model's order."
                    )
            columns, ignored = list(map(list, zip(*rows, strict=True))), []
        else:
            raise InputError("The rows must be all objects, by name, or all lists, in order.")
        return Parsed(self._features(columns, _json_column), known, ignored)

    def _known(self, given: Sequence[Any], n_rows: int) -> NDArray[np.float32]:
        """Return the known labels of the rows, each given as an object, as names, or as null."""
        if not getattr(self._model, "conditional", False):
            raise InputError(
                f"This {self.method} has not learned what known labels say about the others; "
                'leave out "known".'
            )
        if len(given) != n_rows:
            raise InputError(
                f'There are {n_rows:,} rows, and "known" has {len(given):,} entries; send one for '
                "each row, and null where nothing is known."
            )
        index = {name: i for i, name in enumerate(self.label_names)}
        known = np.full((n_rows, len(index)), np.nan, np.float32)
        for number, (row, labels) in enumerate(zip(known, given, strict=True), 1):
            values = labels if isinstance(labels, dict) else dict.fromkeys(labels or (), 1)
            for name, value in values.items():
                if name not in index:
                    raise InputError(
                        f'There is no label {quoted(name)}, which is "known" of row {number:,}; '
                        "GET /labels lists them."
                    )
                if value not in (0, 1, None):
                    raise InputError(
                        f"The label {quoted(name)} of row {number:,} is known as {value:g}; send "
                        "1, 0, or null where it is not known."
                    )
                row[index[name]] = np.nan if value is None else value
        return known

    def _features(self, columns: Any, convert: Callable[..., NDArray[Any]]) -> Features:
        names = self.column_names or tuple(str(i + 1) for i in range(self.n_columns))
        values = tuple(map(convert, columns, names, self.column_types))
        if self._takes_array:
            return np.column_stack(values)
        return Columns(names, values, self.column_types)

    def _columns_by_name(self, rows: list[dict[str, Any]]) -> tuple[list[list[Any]], list[str]]:
        """Return the values of each of the model's columns, and the names of all others."""
        if self.column_names is None:
            raise InputError(
                f"The model does not know the names of its {self.n_columns:,} columns; send each "
                "row as a list of values in the model's order."
            )
        required = dict.fromkeys(self.column_names)
        for number, row in enumerate(rows, 1):
            if missing := [name for name in required if name not in row]:
                raise InputError(
                    f"Row {number:,} lacks {listed(missing)}; send every column, and null where a "
                    "value is missing."
                )
        sent = dict.fromkeys(name for row in rows for name in row)
        ignored = [name for name in sent if name not in required]
        return [[row[name] for row in rows] for name in required], ignored

    def _columns_by_header(self, header: list[str], rows: Any) -> tuple[list[Any], list[str]]:
        required = dict.fromkeys(header if self.column_names is None else self.column_names)
        sent = set(header)
        if missing := [name for name in required if name not in sent]:
            raise InputError(f"The header lacks {listed(missing)}; add these columns.")
        if len(required) != self.n_columns:
            raise InputError(
                f"There are {len(header):,} columns, and the model takes {self.n_columns:,}, whose "
                "names it does not know; send those that it was fitted with."
            )
        values = dict(zip(header, zip(*rows, strict=True), strict=True))
        ignored = [name for name in header if name not in required]
        return [values[name] for name in required], ignored

    def request_schema(self, max_rows: int) -> dict[str, Any]:
        """Return the OpenAPI description of the request body."""
        n_columns, names = self.n_columns, self.column_names
        by_order: dict[str, Any] = {"type": "array", "minItems": n_columns, "maxItems": n_columns}
        by_name: dict[str, Any] = {"type": "object"}
        if n_columns <= _MAX_DESCRIBED_COLUMNS:
            cells = [_CELLS[each].schema for each in self.column_types]
            by_order["prefixItems"] = cells
            by_name["properties"] = dict(zip(names or (), cells, strict=False))
            by_name["required"] = list(names or ())
        row = {"anyOf": [by_order] if names is None else [by_name, by_order]}
        rows = {"type": "array", "minItems": 1, "maxItems": max_rows, "items": row}
        properties = {"rows": rows}
        if getattr(self._model, "conditional", False):
            cell = {"enum": [0, 1, True, False, None]}
            by_label = {"type": "object", "additionalProperties": cell}
            names_of_labels = {"type": "array", "items": {"type": "string"}}
            entry = {"anyOf": [by_label, names_of_labels, {"type": "null"}]}
            properties["known"] = {"type": "array", "maxItems": max_rows, "items": entry}
        schema = {
            "type": "object",
            "properties": properties,
            "required": ["rows"],
            "additionalProperties": False,
        }
        table = {"type": "string", "description": "A header with the column names, then the rows."}
        content = {"application/json": {"schema": schema}, "text/csv": {"schema": table}}
        return {"requestBody": {"required": True, "content": content}}

    # --- Scores and responses ---------------------------------------------------------------------

    def score(self, parts: Sequence[Any]) -> NDArray[np.floating]:
        """Return the probabilities of the rows of several requests, (n_rows, n_labels)."""
        rows: Any = parts[0]
        if len(parts) > 1 and isinstance(rows, Columns):
            values = zip(*(part.values for part in parts), strict=True)
            rows = Columns(rows.names, tuple(map(np.concatenate, values)), rows.kinds)
        elif len(parts) > 1:
            rows = np.concatenate(parts)
        return self._model.predict_proba(rows)

    def given_known(
        self, scores: NDArray[np.floating], known: NDArray[np.float32] | None
    ) -> NDArray[np.floating]:
        """Return the probabilities given the known labels of a request, if there are any."""
        return scores if known is None else with_known_labels(self._model, scores, known)

    def predictions(
        self, scores: NDArray[np.floating], *, probabilities: bool = False, top: int | None = None
    ) -> list[dict[str, Any]]:
        """Return one :class:`~cgmvae.serving.responses.Prediction` per row, as a dict.

        It includes the probability of every label on request, written so that it can be read back
        exactly, and the ``top`` most probable labels, above the threshold or not.
        """
        names = np.array(self.label_names, dtype=object)
        predicted = self._model.threshold_rule_.apply(scores).astype(bool)
        found: list[dict[str, Any]] = [{"labels": names[row].tolist()} for row in predicted]
        if top is not None:
            best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
            for prediction, indices, row in zip(found, best, scores, strict=True):
                prediction["top"] = [
                    {"label": self.label_names[i], "probability": float(row[i])} for i in indices
                ]
        if probabilities:
            for prediction, values in zip(found, scores.tolist(), strict=True):
                prediction["probabilities"] = dict(zip(self.label_names, values, strict=True))
        return found

    def thresholds(self) -> dict[str, Any]:
        """Return the model's threshold rule."""
        rule = describe_rule(self._model.threshold_rule_)
        if "thresholds" in rule:
            rule["thresholds"] = dict(zip(self.label_names, rule["thresholds"], strict=True))
        return rule

    def labels(self) -> list[dict[str, Any]]:
        """Return each label with its threshold, None if the rule has no threshold."""
        rule = self.thresholds()
        per_label = rule.get("thresholds", {})
        return [
            {"name": name, "threshold": per_label.get(name, rule.get("threshold"))}
            for name in self.label_names
        ]

    @cached_property
    def _similarity(self) -> NDArray[np.floating]:
        """Computed by the first request, in the one thread that calls :meth:`similar`."""
        return self._model.label_similarity()

    def similar(self, label: str, k: int) -> dict[str, Any]:
        """Return the k labels that are most similar to this one, in descending order."""
        if self._model.similarity_is is None:
            raise RequestError(
                404,
                f"{self.method} does not learn which labels are similar; serve C-GMVAE or MPVAE.",
            )
        if label not in self.label_names:
            raise RequestError(404, f"There is no label {quoted(label)}; GET /labels lists them.")
        own = self.label_names.index(label)
        similarity = self._similarity[own]
        return {
            "label": label,
            "similarity_is": self._model.similarity_is,
            "similar": [
                {"label": self.label_names[i], "similarity": float(similarity[i])}
                for i in most_similar(similarity, own, k)
            ],
        }


@lru_cache(maxsize=64)
def _media_type(content_type: str) -> str:
    header = Message()
    header["Content-Type"] = content_type or "none/none"
    media_type, charset = header.get_content_type(), header.get_content_charset("utf-8")
    if media_type not in ("application/json", "text/csv") or charset not in ("utf-8", "us-ascii"):
        raise RequestError(
            415,
            "The body must be application/json or text/csv, in UTF-8; set Content-Type to one of "
            "them.",
        )
    return media_type


def _check_number(n_rows: int, max_rows: int) -> None:
    if n_rows == 0:
        raise InputError("There are no rows; send at least one.")
    if n_rows > max_rows:
        message = f"There are more rows than the {max_rows:,} that a request may have"
        raise RequestError(413, f"{message}; send several requests.")


def _n_containers(body: bytes, limit: int) -> int:
    """Return the number of lists and objects in JSON; stop counting beyond the limit.

    Python counts in many short steps, between which other threads run; a parser would not let them
    run until it is done.
    """
    count = position = 0
    for text in _TEXT.finditer(body):
        for mark in (b"[", b"{"):
            count += body.count(mark, position, text.start())
        position = text.end()
        if count > limit:
            return count
    return count + body.count(b"[", position) + body.count(b"{", position)


def _json_content(body: bytes) -> PredictRequest:
    try:
        return _ENVELOPE.decode(body)
    except msgspec.ValidationError as error:
        if "$.known" in str(error):
            raise InputError(
                'The known labels of a row are an object, such as {"owl": 1, "hawk": 0}, a list of '
                "names, or null."
            ) from None
        raise InputError(
            'The body must be an object with a list of rows: {"rows": [...]}.'
        ) from None
    except msgspec.DecodeError as error:
        raise _not_json(body, error) from None
    except RecursionError:
        raise InputError("The body nests lists too deeply; send a list of rows.") from None


def _parsed_row(row: msgspec.Raw) -> Any:
    """Parse a row, except cells that are lists, objects or too large a number."""
    try:
        return _ROW.decode(row)
    except msgspec.ValidationError:
        try:
            cells = _UNPARSED_ROW.decode(row)
        except msgspec.ValidationError:
            return None  # neither a list nor an object
    except msgspec.DecodeError as error:
        raise _not_json(bytes(row), error) from None
    if isinstance(cells, dict):
        return {name: _parsed_cell(cell) for name, cell in cells.items()}
    return list(map(_parsed_cell, cells))


def _parsed_cell(cell: msgspec.Raw) -> Any:
    try:
        return _SCALAR.decode(cell)
    except msgspec.ValidationError:
        return _Unparsed(bytes(cell).decode())


def _not_json(body: bytes, error: Exception) -> InputError:
    if found := re.search(rb"NaN|-?Infinity", body):
        name = found[0].decode()
        return InputError(f"{name} is not a number in JSON; send null where a value is missing.")
    try:
        body.decode()
    except UnicodeDecodeError:
        return _not_utf_8(body)
    return InputError(f"The body is not JSON ({error}); correct it.")


def _not_utf_8(body: bytes) -> InputError:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return InputError(f"The body is not UTF-8 (byte {error.start:,}); encode it as UTF-8.")
    raise AssertionError("The body is UTF-8.")


def _csv_rows(text: str, max_rows: int) -> tuple[list[str], list[Any]]:
    """Return the header and the rows, at most one more than a request may have."""
    try:
        lines = (row for row in csv.reader(io.StringIO(text, ""), strict=True) if row)
        header, *rows = islice(lines, max_rows + 2)
    except csv.Error as error:
        raise InputError(f"The body is not CSV ({error}); correct it, or send JSON.") from None
    except ValueError:
        raise InputError("The body is not CSV with a header and rows; correct it.") from None
    if repeated := [name for name, count in Counter(header).items() if count > 1]:
        raise InputError(f"{listed(repeated)} names more than one column; rename them.")
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise InputError(
                f"Row {number:,} has {len(row):,} cells and the header {len(header):,}; correct it."
            )
    return header, rows


def _json_column(values: Sequence[Any], name: str, kind: ColumnType) -> NDArray[Any]:
    """Convert a column after checking the types of all its cells at once."""
    allowed = _CELLS[kind]
    if not set(map(type, values)) <= allowed.types:
        row = next(i for i, value in enumerate(values) if type(value) not in allowed.types)
        raise InputError(
            f"Row {row + 1:,} has {quoted(values[row])} in the column {name!r}, which takes "
            f"{allowed.words}; send that, or null where it is missing."
        )
    if kind != "number":
        return typed_column(name, np.array(values, dtype=object), kind)[0]
    try:
        return as_float64(np.array(values, np.float64), name)
    except OverflowError:  # an integer beyond float64
        return as_float64(np.array([np.inf]), name)


def _csv_column(values: Sequence[str], name: str, kind: ColumnType) -> NDArray[Any]:
    typed = typed_column(name, np.array(values, dtype=object), kind)[0]
    return as_float64(typed, name) if kind == "number" else typed
