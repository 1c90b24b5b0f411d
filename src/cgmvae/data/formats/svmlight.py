"""svmlight (libsvm) files with several labels a row, and the extreme-classification variant."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.data.files import atomic_path, create_binary, data_name, open_text
from cgmvae.data.formats.conventions import (
    COLUMNS_LIMIT,
    FLOAT32_LIMIT,
    NUMBER,
    labels_as_stored,
    number_texts,
)
from cgmvae.errors import InputError

#: Rows that are turned into text at once.
_BATCH = 1024

_LABELS = r"[-+]?[0-9]{1,18}(?:\.0*)?(?:,[-+]?[0-9]{1,18}(?:\.0*)?)*"
_FEATURE = rf"[0-9]{{1,18}}:(?:[nN][aA][nN]|{NUMBER})"
_LINE = re.compile(
    rf"(?:(?P<labels>{_LABELS})(?=[ \t]|$))?[ \t]*"
    rf"(?P<features>(?:{_FEATURE}(?:[ \t]+|$))*)"
)
_HEADER = re.compile(r"([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]+([0-9]{1,18})")


@dataclass
class _Cells:
    """The cells of a growing sparse table, row after row."""

    starts: array[int] = field(default_factory=lambda: array("q", [0]))
    columns: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def matrix(self, columns: NDArray[np.int64], values: NDArray[Any], n: int) -> sp.csr_array:
        shape = (len(self.starts) - 1, n)
        return sp.csr_array((values, columns, np.array(self.starts)), shape=shape)

    def row_of(self, cell: int) -> int:
        return int(np.searchsorted(np.array(self.starts), cell, side="right")) - 1


class _File:
    """The parsed text of a file, before it is known how many columns there are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.features, self.labels = _Cells(), _Cells()
        self.lines = array("q")
        self.stated: tuple[int, int, int] | None = None
        with open_text(path) as text:
            for number, line in _content(text):
                self._add(number, line)
        if not self.lines:
            raise InputError(f"{path} has no rows; fetch it again.")
        if self.stated and self.stated[0] != len(self.lines):
            raise InputError(
                f"{path} states {self.stated[0]:,} rows and has {len(self.lines):,}; "
                "it may be cut short: fetch it again."
            )

    def _add(self, number: int, line: str) -> None:
        if not self.lines and self.stated is None and (header := _HEADER.fullmatch(line)):
            n_samples, n_features, n_labels = map(int, header.groups())
            self.stated = n_samples, n_features, n_labels
            return
        if not line and (self.stated is None or len(self.lines) == self.stated[0]):
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
        return InputError(f"{self.path}, line {number:,}: {message}")

    def error_in(self, cells: _Cells, cell: int, message: str) -> InputError:
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


def read(
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    name: str | None = None,
) -> MultiLabelDataset:
    """Read lines such as ``1,3,7 12:0.5 40:1 # comment``.

    The list of labels may be empty, the indices of the features must increase, and ``nan`` is a
    missing value. A first line of three whole numbers, ``n_samples n_features n_labels``, is the
    header of the extreme-classification repository; with it an empty line is a row, without it
    empty lines are skipped.

    Label ids are whole numbers (``3`` or ``3.0``), and id j is column j: there are ``n_labels``
    columns, else as many as the header states, else the largest id + 1. Where an id is negative
    and ``n_labels`` is not given, the ids that occur, sorted, are the columns instead, and are
    named by them.

    Parameters
    ----------
    path : path
        The file, possibly compressed with gzip or bzip2.
    n_features, n_labels : int, optional
        Columns of X and Y, for files in which the last ones do not occur.
    zero_based : bool or "auto"
        Whether features are counted from 0. ``"auto"`` takes them as counted from 1 when the
        index 0 does not occur, as scikit-learn does; with a header, only when the index
        ``n_features`` occurs, because that repository counts from 0.
    name : str, optional
        The data set's name; by default the file's.

    Returns
    -------
    MultiLabelDataset
        X as CSR float32. Y dense, or CSR beyond
        :data:`~cgmvae.data.formats.conventions.DENSE_LABELS_LIMIT` labels.
    """
    if zero_based not in ("auto", True, False):
        raise InputError(f"zero_based must be 'auto', True or False, not {zero_based!r}.")
    file = _File(Path(path))
    X = _features(file, n_features, zero_based)
    Y, label_names = _labels(file, n_labels)
    return MultiLabelDataset(X, Y, label_names=label_names, name=name or data_name(path))


def write(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set with features counted from 1 and labels counted from 0.

    Names, groups and the official split are left out; zeros too, except that a row without labels
    and features gets the cell ``1:0``, since readers skip empty lines. Read it back with the
    ``n_features`` and ``n_labels`` of the data set. Unknown labels are refused.
    """
    if dataset.unknown is not None:
        raise InputError("svmlight cannot hold unknown labels; write npz or arff instead.")
    if dataset.n_features == 0:
        raise InputError("svmlight cannot hold rows without features; write npz or arff instead.")
    with atomic_path(path) as temporary, create_binary(temporary) as file:
        for start in range(0, dataset.n_samples, _BATCH):
            part = slice(start, start + _BATCH)
            file.writelines(map(str.encode, _row_texts(dataset.X[part], dataset.Y[part])))


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


def _features(file: _File, n_features: int | None, zero_based: bool | str) -> sp.csr_array:
    """Return X, (n_samples, n_features)."""
    cells = file.features
    columns, values = np.array(cells.columns, dtype=np.int64), np.array(cells.values)
    steps = np.diff(columns, prepend=-1)
    starts = np.array(cells.starts)
    steps[starts[:-1][np.diff(starts) > 0]] = 1
    for wrong, message in (
        (steps <= 0, "must increase within a row"),
        (np.abs(values) >= FLOAT32_LIMIT, "has a value that does not fit 32 bits"),
    ):
        if wrong.any():
            at = int(np.argmax(wrong))
            raise file.error_in(cells, at, f"the index {columns[at]} {message}; correct the row.")
    first = _first_index(file, columns, n_features, zero_based)
    n = file.n_columns("features", n_features, int(columns.max(initial=first - 1)) - first + 1)
    outside = (columns < first) | (columns >= n + first)
    if outside.any():
        at = int(np.argmax(outside))
        raise file.error_in(
            cells,
            at,
            f"the index {columns[at]} is out of range for {n:,} features counted from {first}; "
            "check n_features and zero_based.",
        )
    return cells.matrix(columns - first, values.astype(np.float32), n)


def _first_index(
    file: _File, columns: NDArray[np.int64], n_features: int | None, zero_based: bool | str
) -> int:
    if zero_based != "auto":
        return 0 if zero_based else 1
    if columns.size == 0 or columns.min() == 0:
        return 0
    if file.stated is None:
        return 1
    return int(columns.max() == file.n_columns("features", n_features, 0))


def _labels(file: _File, n_labels: int | None) -> tuple[Matrix, list[str]]:
    """Return Y, (n_samples, n_labels), and names where the ids are not 0 … n_labels - 1."""
    cells = file.labels
    ids = np.array(cells.columns, dtype=np.int64)
    names: list[str] = []
    if n_labels is None and ids.min(initial=0) < 0:
        found, ids = np.unique(ids, return_inverse=True)
        names, n = [f"label_{label}" for label in found], len(found)
    else:
        n = file.n_columns("labels", n_labels, int(ids.max(initial=-1)) + 1)
    if n == 0:
        raise InputError(f"{file.path} has no labels; give n_labels, or check the format.")
    outside = (ids < 0) | (ids >= n)
    if outside.any():
        at = int(np.argmax(outside))
        raise file.error_in(
            cells, at, f"the label {ids[at]} is out of range for {n:,} labels counted from 0."
        )
    Y = cells.matrix(ids, np.ones(len(ids), dtype=np.int64), n)
    Y.sum_duplicates()
    if (Y.data > 1).any():
        row = int(np.searchsorted(Y.indptr, np.argmax(Y.data > 1), side="right")) - 1
        raise file.error(file.lines[row], "a label is repeated; give each label once.")
    return labels_as_stored(Y.astype(np.uint8)), names


def _row_texts(X: Matrix, Y: Matrix) -> Iterator[str]:
    features, labels = sp.csr_array(X), sp.csr_array(Y)
    features.eliminate_zeros()
    texts = number_texts(features.data, "nan").tolist()
    cells = [f"{i}:{v}" for i, v in zip((features.indices + 1).tolist(), texts, strict=True)]
    ids = labels.indices.astype(str).tolist()
    starts = zip(pairwise(labels.indptr.tolist()), pairwise(features.indptr.tolist()), strict=True)
    for label_part, cell_part in starts:
        line = f"{','.join(ids[slice(*label_part)])} {' '.join(cells[slice(*cell_part)])}"
        yield f"{line.rstrip() or ' 1:0'}\n"
