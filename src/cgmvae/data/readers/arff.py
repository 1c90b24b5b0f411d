"""ARFF files of Mulan (label names in an XML file) and MEKA (``-C`` in the relation's name).

liac-arff parses them. What is added here is how Mulan and MEKA say which attributes are labels, and
what nominal attributes become.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import TEST, TRAIN, Matrix, MultiLabelDataset, split_unknown
from cgmvae.data.files import data_name, open_binary, open_text
from cgmvae.data.mapped import dense, vstack
from cgmvae.data.readers.conventions import labels_as_stored, reject_beyond_float32
from cgmvae.data.readers.options import ReadingOptions, as_list
from cgmvae.errors import InputError, one_line

#: MEKA's options in the name of a relation.
_OPTION = re.compile(r"(?<!\S)-(c|split-number)\s+([-+]?[0-9]{1,9})(?!\S)", re.IGNORECASE)

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_BOOLEANS = ({"yes", "no"}, {"true", "false"}, {"y", "n"}, {"t", "f"})
_TRUE = {"yes", "true", "y", "t"}

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")

_PART_OF_SPLIT = re.compile(r"-(train|test)$", re.IGNORECASE)

#: Cells that liac-arff returns, as Python objects, before they become arrays.
_BATCH_CELLS = 2**20


def read(
    path: str | os.PathLike[str], options: ReadingOptions, *, name: str | None = None
) -> MultiLabelDataset:
    """Read an ARFF file with dense or sparse rows.

    Numeric attributes, nominal ones whose values are all numbers, and the pairs yes/no,
    true/false, y/n and t/f (as 1/0) become one column. Any other nominal feature becomes one 0/1
    column per value, named ``attribute=value``. A value that a sparse row leaves out is 0, or the
    first value of a nominal attribute. ``?`` is NaN in a feature (in each of its columns) and
    unknown in a label.

    The labels are those of the given option (at most one); otherwise of ``-C n`` in the relation's
    name; otherwise of an XML file in the same folder: with the same name, or that name without
    ``-train`` or ``-test``. They keep the order of the attributes.

    X is float64, and CSR if the rows of the file are sparse; Y is dense, or CSR if X is and there
    are more than :data:`~cgmvae.data.readers.conventions.DENSE_LABELS_LIMIT` labels.
    ``-split-number k`` in the relation's name makes the first k rows the official training rows and
    the others the test rows.
    """
    path = Path(path)
    with open_text(path) as text:
        relation, attributes, rows = _open(text, path)
        stated = {option.lower(): int(value) for option, value in _OPTION.findall(relation)}
        labels = _label_columns(attributes, stated.get("c"), path, options)
        values = vstack(list(rows))
    reject_beyond_float32(values.data if sp.issparse(values) else values, path)
    features = sorted(set(range(len(attributes))).difference(labels))
    Y, unknown = split_unknown(values[:, labels])
    return MultiLabelDataset(
        _features_of(values, attributes, features),
        labels_as_stored(Y) if sp.issparse(Y) else Y,
        label_names=[attributes[column].name for column in labels],
        feature_names=[name for column in features for name in attributes[column].feature_names],
        unknown=unknown,
        official_split=_official_split(stated.get("split-number"), values.shape[0], path),
        name=name or data_name(path),
    )


@dataclass(frozen=True)
class _Attribute:
    """A declared column."""

    name: str
    values: tuple[str, ...] = ()
    """The values of a nominal attribute, in the order of declaration; none if it is numeric."""

    @cached_property
    def numbers(self) -> NDArray[np.float64] | None:
        """The number of each nominal value; None if the attribute is numeric, or a category."""
        words = [value.lower() for value in self.values]
        if self.values and all(map(_NUMBER.fullmatch, words)):
            return np.array(words, np.float64)
        if set(words) in _BOOLEANS and len(words) == 2:
            return np.array([word in _TRUE for word in words], np.float64)
        return None

    @property
    def is_category(self) -> bool:
        """Whether the values are neither numbers nor booleans, and become one column each."""
        return bool(self.values) and self.numbers is None

    @property
    def feature_names(self) -> list[str]:
        """Names of the features that it becomes."""
        own = [f"{self.name}={value}" for value in self.values]
        return own if self.is_category else [self.name]


def _open(text: IO[str], path: Path) -> tuple[str, list[_Attribute], Iterator[Matrix]]:
    """Return the name of the relation, the attributes, and blocks of rows, (n_rows, n_attributes).

    The blocks hold numbers, codes of categories, and NaN where a value is missing.
    """
    try:
        import arff  # type: ignore[import-untyped]
    except ImportError as error:
        raise InputError(
            'ARFF needs liac-arff; install it with pip install "cgmvae[tables]".'
        ) from error
    n_lines = 0

    def lines() -> Iterator[str]:
        nonlocal n_lines
        for line in text:
            n_lines += 1
            yield line

    def decode(found: Iterable[str], kind: int) -> dict[str, Any]:
        try:
            return arff.ArffDecoder().decode(iter(found), encode_nominal=True, return_type=kind)
        except InputError:
            raise
        except (arff.ArffException, ValueError, TypeError, LookupError) as error:
            raise _error_at(path, n_lines, error) from error

    header: list[str] = []

    def header_lines() -> Iterator[str]:
        for line in lines():
            header.append(line.replace("\t", " "))  # liac-arff looks for a blank after a keyword
            yield header[-1]
            if line.lstrip().lower().startswith("@data"):
                return
        raise InputError(f"{path} ends before @data; it is truncated or not ARFF: fetch it again.")

    declared = decode(header_lines(), arff.DENSE_GEN)
    attributes = [_attribute(name, kind) for name, kind in declared["attributes"]]
    filled = (line for line in lines() if line.strip() and not line.lstrip().startswith("%"))
    if (first := next(filled, None)) is None:
        raise InputError(f"{path} has no rows after @data; it is truncated: fetch it again.")
    is_sparse = first.lstrip().startswith("{")
    kind = arff.LOD_GEN if is_sparse else arff.DENSE_GEN
    n_given: deque[int] = deque()
    """Values of each sparse row as it is written"""

    def counted(rows: Iterable[str]) -> Iterator[str]:
        for row in rows:
            if is_sparse and row.strip() and not row.lstrip().startswith("%"):
                written = _QUOTED.sub("", row).strip(" \t\r\n{}")
                n_given.append(written.count(",") + 1 if written else 0)
            yield row

    def checked(rows: Iterable[Any]) -> Iterator[Any]:
        for row in rows:
            if is_sparse and len(row) != n_given.popleft():  # liac-arff keeps the last value
                raise ValueError("an index is repeated")
            yield row

    found = checked(decode(chain(header, counted(chain([first], lines()))), kind)["data"])

    def blocks() -> Iterator[Matrix]:
        n_rows = max(1, _BATCH_CELLS // len(attributes))
        try:
            while rows := list(islice(found, n_rows)):
                yield (_sparse_block if is_sparse else _dense_block)(rows, attributes)
        except InputError:
            raise
        except (arff.ArffException, ValueError, TypeError, LookupError, OverflowError) as error:
            raise _error_at(path, n_lines, error) from error

    return declared["relation"], attributes, blocks()


def _error_at(path: Path, line: int, error: Exception) -> InputError:
    message = re.sub(r",? (at|in) line -?\d+", "", one_line(error)).rstrip(".")
    return InputError(
        f"{path}, line {line:,}: {message or 'it is not ARFF'}; correct it: a row has a value for "
        "each attribute, or is sparse ({index value, …}), with ? for a missing value."
    )


def _attribute(name: str, kind: Any) -> _Attribute:
    if isinstance(kind, list):
        return _Attribute(name, tuple(kind))
    if kind == "STRING":
        raise InputError(f"{name!r} is of type string; drop it, or encode it as numbers.")
    return _Attribute(name)


def _dense_block(rows: Sequence[Any], attributes: Sequence[_Attribute]) -> Matrix:
    values = np.array(rows, np.float64)
    for column, attribute in enumerate(attributes):
        if _needs_lookup(attribute):
            known = ~np.isnan(values[:, column])
            values[known, column] = _looked_up(attribute, values[known, column])
    return values


def _sparse_block(rows: Sequence[dict[int, Any]], attributes: Sequence[_Attribute]) -> Matrix:
    shape = (len(rows), len(attributes))
    if (highest := max(chain.from_iterable(rows), default=0)) >= len(attributes):
        raise ValueError(f"the index {one_line(highest)} is beyond the last attribute")
    values = np.array([value for row in rows for value in row.values()], np.float64)
    columns = np.fromiter(chain.from_iterable(rows), np.int64)
    given = sp.csr_array((values, columns, np.cumsum([0, *map(len, rows)])), shape=shape).tocsc()
    for column, attribute in enumerate(attributes):
        if _needs_lookup(attribute):
            cells = given.data[given.indptr[column] : given.indptr[column + 1]]
            known = ~np.isnan(cells)
            cells[known] = _looked_up(attribute, cells[known])
    parts = [given]
    for column, attribute in enumerate(attributes):  # what is left out is not always 0
        if attribute.numbers is not None and (omitted := attribute.numbers[0]):
            present = given.indices[given.indptr[column] : given.indptr[column + 1]]
            absent = np.setdiff1d(np.arange(len(rows)), present)
            cells = np.full(len(absent), omitted), (absent, np.full(len(absent), column))
            parts.append(sp.csc_array(cells, shape=shape))
    block = sp.csr_array(sum(parts[1:], start=parts[0]))
    block.eliminate_zeros()
    return block


def _needs_lookup(attribute: _Attribute) -> bool:
    """Return whether the codes of nominal values are not yet their numbers."""
    numbers = attribute.numbers
    return numbers is not None and not np.array_equal(numbers, np.arange(len(numbers)))


def _looked_up(attribute: _Attribute, codes: NDArray[np.float64]) -> NDArray[np.float64]:
    assert attribute.numbers is not None
    return attribute.numbers[codes.astype(np.int64)]


def _features_of(
    values: Matrix, attributes: Sequence[_Attribute], features: Sequence[int]
) -> Matrix:
    """Return X, (n_samples, n_features), with categories as 0/1 columns."""
    if not any(attributes[column].is_category for column in features):
        return values[:, features]
    blocks = []
    for column in features:
        cells = dense(values[:, [column]])
        if attributes[column].is_category:
            codes = np.arange(len(attributes[column].values))
            cells = np.where(np.isnan(cells), cells, cells == codes)
        blocks.append(sp.csr_array(cells) if sp.issparse(values) else cells)
    return sp.hstack(blocks, format="csr") if sp.issparse(values) else np.hstack(blocks)


def _official_split(n_train: int | None, n_samples: int, path: Path) -> NDArray[np.uint8] | None:
    """Return the split that ``-split-number`` of the relation states; None if it does not."""
    if n_train is None:
        return None
    if not 1 <= n_train <= n_samples:
        raise InputError(
            f"{path} states -split-number {n_train} but has {n_samples:,} rows; "
            "fetch it again, or remove that option from the relation's name."
        )
    return np.where(np.arange(n_samples) < n_train, TRAIN, TEST).astype(np.uint8)


# Labels


def _label_columns(
    attributes: Sequence[_Attribute], stated: int | None, path: Path, options: ReadingOptions
) -> list[int]:
    """Return the indices of the label attributes, in increasing order."""
    labels, label_count, xml = options.labels, options.label_count, options.xml
    if sum(option is not None for option in (labels, label_count, xml)) > 1:
        raise InputError("Give only one of labels, label_count and xml: each names the labels.")
    chosen = _chosen_columns(attributes, stated, path, options)
    for label in (attributes[column] for column in chosen):
        if label.is_category:
            raise InputError(
                f"The label {label.name!r} of {path} has the values "
                f"{', '.join(label.values[:5])}; a label must be 0 or 1."
            )
    return chosen


def _chosen_columns(
    attributes: Sequence[_Attribute], stated: int | None, path: Path, options: ReadingOptions
) -> list[int]:
    if options.labels is not None:
        return _columns_of(as_list(options.labels), attributes, "labels", path)
    n, xml = len(attributes), options.xml
    count = stated if options.label_count is None and xml is None else options.label_count
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
    return _columns_of(read_label_names(Path(xml)), attributes, str(xml), path)


def _columns_of(
    names: Iterable[str], attributes: Sequence[_Attribute], source: str, path: Path
) -> list[int]:
    index = {attribute.name: column for column, attribute in enumerate(attributes)}
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
