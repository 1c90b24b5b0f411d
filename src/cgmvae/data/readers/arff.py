"""ARFF files of Mulan (label names in an XML file) and MEKA (``-C`` in the relation's name).

liac-arff parses the rows. The header is parsed here, because liac-arff keeps the escapes of quoted
names and rejects comments and value ranges in declarations; so are Mulan's and MEKA's ways of
saying which attributes are labels.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import IO, NamedTuple
from xml.parsers import expat

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import TEST, TRAIN, Matrix, MultiLabelDataset, split_unknown
from cgmvae.data.files import data_name, open_binary, open_text
from cgmvae.data.mapped import dense, vstack
from cgmvae.data.readers.conventions import labels_as_stored
from cgmvae.data.readers.options import ReadingOptions, as_list
from cgmvae.errors import InputError, one_line

#: Whitespace of Weka; other Unicode spaces belong to words.
_BLANKS = "".join(map(chr, range(33)))

_TOKEN = re.compile(
    r"""
      (?P<blank>   [\x00-\x20]+ )
    | (?P<comment> % .* )
    | (?P<quoted>  '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<mark>    [{},] )
    | (?P<word>    [^\x00-\x20,{}%'"][^\x00-\x20,{}%]* )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_BARE = re.compile(r"[\w.][\w.-]*")
_OPTION = re.compile(r"(?<!\S)-(c|split-number)\s+([-+]?[0-9]{1,9})(?!\S)", re.IGNORECASE)

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NUMERIC_TYPES = {"numeric", "real", "integer"}
_OTHER_TYPES = {"string", "date", "relational"}
_BOOLEANS = ({"yes", "no"}, {"true", "false"}, {"y", "n"}, {"t", "f"})
_TRUE = {"yes", "true", "y", "t"}

_PART_OF_SPLIT = re.compile(r"-(train|test)$", re.IGNORECASE)

#: Characters per batch of text that is parsed: liac-arff takes many times their memory.
_BATCH = 1 << 22


def read(
    path: str | os.PathLike[str], options: ReadingOptions, *, name: str | None = None
) -> MultiLabelDataset:
    """Read an ARFF file with dense, sparse or mixed rows.

    Numeric attributes, nominal ones whose values are all numbers, and the pairs yes/no,
    true/false, y/n and t/f (as 1/0) become one column. Any other nominal feature becomes one 0/1
    column per value, named ``attribute=value``. A value that a sparse row leaves out is 0, or the
    first value of a nominal attribute. ``?`` is NaN in a feature (in each of its columns) and
    unknown in a label.

    The labels are those of the given option (at most one); otherwise of ``-C n`` in the relation's
    name; otherwise of an XML file in the same folder: with the same name, or that name without
    ``-train`` or ``-test``. They keep the order of the attributes.

    X is float64, and CSR if any row of the file is sparse; Y is dense, or CSR if X is and there are
    more than :data:`~cgmvae.data.readers.conventions.DENSE_LABELS_LIMIT` labels. ``-split-number
    k`` in the relation's name makes the first k rows the official training rows and the others the
    test rows.
    """
    path = Path(path)
    with open_text(path) as text:
        source = _Source(text, path, options)
        parts = list(source.parts())
    Y, unknown = split_unknown(vstack([Y for _, Y in parts]))
    return MultiLabelDataset(
        vstack([X for X, _ in parts]),
        Y,
        label_names=source.label_names,
        feature_names=source.feature_names,
        unknown=unknown,
        official_split=source.official_split(Y.shape[0]),
        name=name or data_name(path),
    )


# Header


class _Token(NamedTuple):
    """A piece of a line: ``kind`` is word, quoted or mark (a brace or a comma)."""

    kind: str
    text: str


_OPEN, _CLOSE = _Token("mark", "{"), _Token("mark", "}")


@dataclass(frozen=True)
class _Attribute:
    """A declared column."""

    name: str
    values: tuple[str, ...] = ()
    """The values of a nominal attribute, in the order of declaration; none if it is numeric."""

    @cached_property
    def is_numeric(self) -> bool:
        """Whether every value is a number, by declaration or because the nominal values are."""
        return all(map(_NUMBER.fullmatch, self.values))

    @cached_property
    def is_boolean(self) -> bool:
        """Whether the values are yes and no or the like, in any order."""
        return {value.lower() for value in self.values} in _BOOLEANS and len(self.values) == 2

    @cached_property
    def is_category(self) -> bool:
        """Whether the values are neither numbers nor booleans, and become one column each."""
        return not self.is_numeric and not self.is_boolean

    @property
    def omitted(self) -> float:
        """The number for what a sparse row leaves out: 0, or that of the first nominal value."""
        if not self.values or self.is_category:
            return 0.0
        return float(self.values[0]) if self.is_numeric else float(self.values[0].lower() in _TRUE)


@dataclass(frozen=True)
class _Header:
    relation: str
    attributes: tuple[_Attribute, ...]
    n_lines: int
    """Number of lines up to and including ``@data``."""

    def option(self, name: str) -> int | None:
        """Return MEKA's option ``c`` or ``split-number`` of the relation; None if absent."""
        found = {option.lower(): int(value) for option, value in _OPTION.findall(self.relation)}
        return found.get(name)


def _error_at(path: object, line: int, message: str) -> InputError:
    return InputError(f"{path}, line {line:,}: {message}")


def _tokens(line: str) -> list[_Token]:
    r"""Split a line into words, quoted strings (without quotes), braces and commas.

    A quote opens a string only at the beginning of a token, so ``m\'usica`` is a plain word.
    """
    found, end = [], 0
    while end < len(line):
        match = _TOKEN.match(line, end)
        if match is None:
            raise InputError("a quote is opened and not closed; close it.")
        end, kind, text = match.end(), str(match.lastgroup), match.group()
        if kind == "quoted":
            text = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), text[1:-1])
        if kind not in ("blank", "comment"):
            found.append(_Token(kind, text))
    return found


def _quoted(name: str) -> str:
    """Quote a nominal value so that liac-arff reads it unchanged."""
    if _BARE.fullmatch(name):
        return name
    for plain, escaped in (
        ("\\", "\\\\"),
        ("'", "\\'"),
        *((v, f"\\{k}") for k, v in _ESCAPED.items()),
    ):
        name = name.replace(plain, escaped)
    return f"'{name}'"


def _read_header(lines: Iterable[str], path: object) -> _Header:
    """Read lines up to and including ``@data``; what follows is left unread."""
    relation, attributes = "", dict[str, _Attribute]()
    for number, line in enumerate(lines, start=1):
        try:
            parts = _tokens(line.strip(_BLANKS))
            keyword = parts[0].text.lower() if parts and parts[0].kind == "word" else ""
            if keyword == "@data":
                if not attributes:
                    raise InputError("@data comes before any @attribute; declare them.")
                return _Header(relation, tuple(attributes.values()), number)
            if keyword == "@relation":
                relation = " ".join(part.text for part in parts[1:])
            elif keyword == "@attribute":
                attribute = _attribute(parts[1:])
                if attribute.name in attributes:
                    name = repr(attribute.name)
                    raise InputError(f"the attribute {name} is declared twice; rename one.")
                attributes[attribute.name] = attribute
            elif parts:
                raise InputError("expected @relation, @attribute or @data; correct it.")
        except InputError as error:
            raise _error_at(path, number, str(error)) from None
    raise InputError(f"{path} ends before @data; it is truncated or not ARFF: fetch it again.")


def _attribute(parts: Sequence[_Token]) -> _Attribute:
    if len(parts) < 2 or parts[0].kind == "mark":
        raise InputError("@attribute needs a name and a type; complete it.")
    name, kind, rest = parts[0].text, parts[1].text.lower(), parts[2:]
    if parts[1] == _OPEN:
        if _CLOSE not in rest:
            raise InputError(f"the values of {name!r} have no closing brace; add it.")
        if rest[-1] != _CLOSE or _OPEN in rest:
            raise InputError(f"text after the values of {name!r}; remove it.")
        values = tuple(part.text for part in rest if part.kind != "mark")
        if not values or len(set(values)) != len(values):
            raise InputError(f"{name!r} has no values, or one of them twice; fix it.")
        return _Attribute(name, values)
    if kind in _OTHER_TYPES:
        raise InputError(f"{name!r} is of type {kind}; drop it, or encode it as numbers.")
    if kind not in _NUMERIC_TYPES:
        raise InputError(
            f"the attribute {name!r} has the unknown type {parts[1].text!r}; "
            "use numeric or a list of values in braces."
        )
    if rest and not rest[0].text.startswith("["):  # numeric [0, 1] is an old way to state a range
        raise InputError(f"{rest[0].text!r} after the type is not ARFF; remove it.")
    return _Attribute(name)


# Rows


class _Source:
    """An opened ARFF file whose header has been read, and which of its attributes are labels."""

    def __init__(self, text: IO[str], path: Path, options: ReadingOptions) -> None:
        self._text, self.path = text, path
        self.header = _read_header(text, path)
        self.attributes = self.header.attributes
        self._labels = _label_columns(self.header, path, options)
        self._features = sorted(set(range(len(self.attributes))).difference(self._labels))
        for label in (self.attributes[column] for column in self._labels):
            if label.is_category:
                raise InputError(
                    f"The label {label.name!r} of {self.path} has the values "
                    f"{', '.join(label.values[:5])}; a label must be 0 or 1."
                )
        self._omitted = np.array([a.omitted for a in self.attributes])
        self._is_flipped = np.array([a.is_boolean and a.omitted == 1 for a in self.attributes])
        self._allowed: dict[tuple[str, ...], list[int]] = {}
        for column, attribute in enumerate(self.attributes):
            if attribute.values and attribute.is_numeric:
                self._allowed.setdefault(attribute.values, []).append(column)

    @property
    def label_names(self) -> list[str]:
        """Names of the labels, in the order of the attributes."""
        return [self.attributes[column].name for column in self._labels]

    @property
    def feature_names(self) -> list[str]:
        """Names of the features; one per value of a category."""
        chosen = (self.attributes[column] for column in self._features)
        groups = (
            [f"{a.name}={v}" for v in a.values] if a.is_category else [a.name] for a in chosen
        )
        return [name for group in groups for name in group]

    def parts(self) -> Iterator[tuple[Matrix, Matrix]]:
        """Yield X and Y, with NaN where unknown, of the rows after ``@data``, some at a time.

        They are CSR if any row of the part is sparse; Y only if it has many columns.
        """
        n_lines, is_empty = self.header.n_lines, True
        while batch := self._text.readlines(_BATCH):
            rows = enumerate((_normalized(line.strip(_BLANKS)) for line in batch), n_lines + 1)
            kept = [(number, line) for number, line in rows if line]
            n_lines += len(batch)
            blocks = []
            for is_sparse, run in groupby(kept, key=lambda item: item[1][0] == "{"):
                numbers, lines = zip(*run, strict=True)
                blocks.append(self._parse(lines, numbers, is_sparse=is_sparse))
            if blocks:
                is_empty = False
                values = vstack(blocks)
                yield self._features_of(values), self._labels_of(values, [n for n, _ in kept])
        if is_empty:
            raise InputError(
                f"{self.path} has no rows after @data; it is truncated: fetch it again."
            )

    def official_split(self, n_samples: int) -> NDArray[np.uint8] | None:
        """Return the split that ``-split-number`` of the relation states; None if it does not."""
        n_train = self.header.option("split-number")
        if n_train is None:
            return None
        if not 1 <= n_train <= n_samples:
            raise InputError(
                f"{self.path} states -split-number {n_train} but has {n_samples:,} rows; "
                "fetch it again, or remove that option from the relation's name."
            )
        return np.where(np.arange(n_samples) < n_train, TRAIN, TEST).astype(np.uint8)

    def _parse(self, lines: Sequence[str], numbers: Sequence[int], *, is_sparse: bool) -> Matrix:
        """Return rows as float64, (n_rows, n_attributes): numbers and codes, NaN where missing."""
        rows, columns, values = self._decode(lines, numbers, is_sparse=is_sparse)
        flipped = self._is_flipped[columns]  # booleans whose first value is true
        values[flipped] = 1 - values[flipped]

        def reject(odd: NDArray[np.bool_], complaint: str) -> None:
            if odd.any():
                at = int(np.argmax(odd))
                attribute = self.attributes[columns[at]]
                more = ", …" if len(attribute.values) > 5 else ""
                some = ", ".join(attribute.values[:5]) + more
                message = complaint.format(name=repr(attribute.name), some=some)
                raise _error_at(self.path, numbers[rows[at]], f"{values[at]:g} {message}")

        for allowed, members in self._allowed.items():
            belongs = np.isin(np.arange(len(self.attributes)), members)[columns]
            odd = belongs & ~np.isin(values, np.array(allowed, np.float64)) & ~np.isnan(values)
            reject(odd, "is not a value of {name} ({some}); correct one of them.")
        reject(
            np.abs(values) > np.finfo(np.float32).max,
            "in {name} does not fit 32 bits; rescale it, or write ? where the value is missing.",
        )
        shape = (len(lines), len(self.attributes))
        if not is_sparse:
            return values.reshape(shape)
        block = sp.csr_array((values, (rows, columns)), shape=shape)
        if (filled := np.flatnonzero(self._omitted)).size:  # what is left out is not always 0
            given = sp.csr_array((np.ones(len(values), bool), (rows, columns)), shape=shape)
            rows, positions = np.nonzero(~given[:, filled].toarray())
            columns = filled[positions]
            values = self._omitted[columns].astype(np.float64)
            block = sp.csr_array(block + sp.csr_array((values, (rows, columns)), shape=shape))
        block.eliminate_zeros()
        return block

    def _decode(
        self, lines: Sequence[str], numbers: Sequence[int], *, is_sparse: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return row, column and value of every cell that liac-arff finds."""
        try:
            import arff  # type: ignore[import-untyped]
        except ImportError as error:
            raise InputError(
                'ARFF needs liac-arff; install it with pip install "cgmvae[tables]".'
            ) from error
        # liac-arff sees plain names; nominal values that are numbers are checked later, as numbers.
        types = (
            "NUMERIC" if a.is_numeric else f"{{{','.join(map(_quoted, a.values))}}}"
            for a in self.attributes
        )
        declared = [f"@ATTRIBUTE a{i} {kind}" for i, kind in enumerate(types)]
        header = ["@RELATION r", *declared, "@DATA"]
        decoder = arff.ArffDecoder()
        kind = arff.COO if is_sparse else arff.DENSE
        try:
            found = decoder.decode([*header, *lines], encode_nominal=True, return_type=kind)["data"]
            values = np.array(found[0] if is_sparse else found, np.float64)
        except (arff.ArffException, ValueError, TypeError, OverflowError, csv.Error) as error:
            at = min(max(0, decoder._current_line - len(header) - 1), len(lines) - 1)
            message = re.sub(r",? (at|in) line \d+", "", one_line(error)).rstrip(".")
            raise _error_at(
                self.path,
                numbers[at],
                f"{message}; the row must have {len(self.attributes):,} values, or be sparse "
                "({index value, …}), with ? for a missing value.",
            ) from error
        if not is_sparse:
            rows, columns = np.indices(values.shape).reshape(2, -1)
            return rows, columns, values.ravel()
        # liac-arff accepts any index with a missing value.
        if (highest := max(found[2], default=0)) >= len(self.attributes):
            raise _error_at(
                self.path,
                numbers[found[1][found[2].index(highest)]],
                f"the index {one_line(highest)} is beyond the last of {len(self.attributes):,} "
                "attributes; indices count from 0.",
            )
        rows, columns = (np.array(part, np.int64) for part in found[1:])
        # Of an index that a row repeats, liac-arff keeps the last value.
        n_given = [0 if _has_quotes(line) else line.count(",") + 1 for line in lines]
        repeated = np.array(n_given) > np.maximum(1, np.bincount(rows, minlength=len(lines)))
        if repeated.any():
            number = numbers[int(np.argmax(repeated))]
            raise _error_at(self.path, number, "an index is repeated; give each value once.")
        return rows, columns, values

    def _features_of(self, values: Matrix) -> Matrix:
        """Return X, (n_samples, n_features), with categories as 0/1 columns."""
        if not any(self.attributes[column].is_category for column in self._features):
            return values[:, self._features]
        blocks = []
        for column in self._features:
            cells = dense(values[:, [column]])
            if self.attributes[column].is_category:
                codes = np.arange(len(self.attributes[column].values))
                cells = np.where(np.isnan(cells), cells, cells == codes)
            blocks.append(sp.csr_array(cells) if sp.issparse(values) else cells)
        return sp.hstack(blocks, format="csr") if sp.issparse(values) else np.hstack(blocks)

    def _labels_of(self, values: Matrix, numbers: Sequence[int]) -> Matrix:
        """Return Y, (n_samples, n_labels): 0, 1, or NaN where unknown."""
        Y = values[:, self._labels]
        cells = sp.coo_array(Y)
        odd = np.flatnonzero((cells.data != 1) & ~np.isnan(cells.data))
        if odd.size:
            at = odd[np.argmin(cells.coords[0][odd])]
            label = self.attributes[self._labels[cells.coords[1][at]]].name
            raise _error_at(
                self.path,
                numbers[cells.coords[0][at]],
                f"the label {label!r} is {cells.data[at]:g}, but a label must be 0, 1 or ?; "
                "check which attributes are labels.",
            )
        return labels_as_stored(Y) if sp.issparse(Y) else Y


def _has_quotes(line: str) -> bool:
    return "'" in line or '"' in line


def _normalized(line: str) -> str:
    """Return a row as liac-arff expects it: values between commas, without a comment."""
    if _has_quotes(line):  # a value may hold any of these characters
        return line
    line = line.partition("%")[0].rstrip(_BLANKS + ",")
    if line[:1] == "{":
        return line[:-1].rstrip(_BLANKS + ",") + line[-1]
    return line if "," in line else ",".join(line.split())


# Labels


def _label_columns(header: _Header, path: Path, options: ReadingOptions) -> list[int]:
    """Return the indices of the label attributes, in increasing order."""
    labels, label_count, xml = options.labels, options.label_count, options.xml
    if sum(option is not None for option in (labels, label_count, xml)) > 1:
        raise InputError("Give only one of labels, label_count and xml: each names the labels.")
    if labels is not None:
        return _columns_of(as_list(labels), header, "labels", path)
    n = len(header.attributes)
    count = header.option("c") if label_count is None and xml is None else label_count
    if count is not None:
        if count == 0 or abs(count) > n:
            raise InputError(
                f"A label count of {count} does not fit the {n:,} attributes of {path}; "
                "give label_count: n for the first n attributes, -n for the last n."
            )
        return list(range(n)[:count] if count > 0 else range(n)[count:])
    if xml is None:  # with the same name, or that of the whole of which this file is a part
        stem = data_name(path)
        beside = (path.with_name(f"{n}.xml") for n in (stem, _PART_OF_SPLIT.sub("", stem)))
        xml = next((candidate for candidate in beside if candidate.is_file()), None)
    if xml is None:
        raise InputError(
            f"{path} does not say which attributes are labels: give xml (Mulan's file of label "
            "names), label_count (n first attributes, or -n last ones) or labels (their names)."
        )
    return _columns_of(read_label_names(Path(xml)), header, str(xml), path)


def _columns_of(names: Iterable[str], header: _Header, source: str, path: Path) -> list[int]:
    index = {attribute.name: column for column, attribute in enumerate(header.attributes)}
    chosen = set()
    for name in names:
        if name not in index:
            raise InputError(
                f"The label {name!r} (from {source}) is not an attribute of {path}; "
                "check that the names and the file belong together."
            )
        chosen.add(index[name])
    return sorted(chosen)


def read_label_names(path: Path) -> list[str]:
    """Return the names of all ``<label>`` elements, including nested ones, in their order."""
    names: list[str | None] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag.rpartition("}")[2] == "label":
            names.append(attributes.get("name"))

    def reject(*_: object) -> None:  # because it could define entities
        raise InputError(f"{path} holds a DOCTYPE, which is not accepted; remove it.")

    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = reject
    with open_binary(path) as file:
        text = file.read()
    try:
        parser.Parse(text, True)
    except InputError:
        raise
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise InputError(f"{path} is not well-formed XML ({error}); correct it.") from error
    known = [name for name in names if name is not None]
    if not known or len(known) != len(names):
        raise InputError(f'{path} has no <label name="…">, or one without a name; correct it.')
    return known
