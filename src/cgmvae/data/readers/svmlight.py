"""svmlight (libsvm) files with lists of labels, parsed by scikit-learn.

The lines are passed to :func:`sklearn.datasets.load_svmlight_file` in batches. What is added here
is the header of the extreme-classification repository, the line in error messages, and limits.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.data.files import atomic_path, create_binary, data_name, open_binary
from cgmvae.data.mapped import vstack
from cgmvae.data.readers.conventions import (
    COLUMNS_LIMIT,
    labels_as_stored,
    number_texts,
    reject_columns,
)
from cgmvae.errors import InputError, one_line

#: Bytes per batch of lines that is parsed, and rows per batch that is written.
_READ_BATCH, _WRITE_BATCH = 1 << 22, 1024

#: scikit-learn reads label ids as float64, which holds integers exactly up to this one.
_HIGHEST_LABEL = 2**53

_HEADER = re.compile(rb"([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]+([0-9]{1,18})\s*")


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
    missing value. A first line of three integers, ``n_samples n_features n_labels``, is the header
    of the extreme-classification repository; with it an empty line is a row, without it empty lines
    are skipped.

    Label ids are integers (``3`` or ``3.0``). The labels are the ids that occur, in sorted order,
    and id j is named ``label_j``. With ``n_labels`` or a header, the labels are the ids from 0 to
    ``n_labels - 1``, whether they occur or not.

    Parameters
    ----------
    path : path
        The file, possibly compressed with gzip or bzip2.
    n_features, n_labels : int, optional
        Number of columns of X and Y, for files in which the last ones do not occur.
    zero_based : bool or "auto"
        Whether feature indices start at 0. ``"auto"`` assumes that they start at 1 if the index 0
        does not occur, as scikit-learn does; with a header, only if the index ``n_features``
        occurs, because that repository starts at 0.
    name : str, optional
        Name of the data set; by default that of the file.

    Returns
    -------
    MultiLabelDataset
        X as CSR float64. Y dense, or CSR for more than
        :data:`~cgmvae.data.readers.conventions.DENSE_LABELS_LIMIT` labels.
    """
    if zero_based not in ("auto", True, False):
        raise InputError(f"zero_based must be 'auto', True or False, not {zero_based!r}.")
    lines = _Lines(Path(path), n_features, n_labels)
    with open_binary(path) as file:
        batches = list(lines.batches(file))
    if zero_based == "auto":
        zero_based = lines.is_zero_based()
    first = 0 if zero_based else 1
    n_columns = lines.n_columns("features", lines.highest - first + 1)
    X = vstack([lines.features(X, n_columns, first) for X, _ in batches])
    Y, label_names = lines.labels([labels for _, batch in batches for labels in batch])
    return MultiLabelDataset(X, Y, label_names=label_names, name=name or data_name(path))


def read_parts(
    file: IO[bytes],
    path: Path,
    *,
    n_features: int,
    zero_based: bool | Literal["auto"] = "auto",
) -> Iterator[sp.csr_array]:
    """Yield the features that :func:`read` gives, some rows at a time, whatever the labels are.

    The file must be at its beginning. With ``zero_based="auto"``, all of it is scanned first.
    """
    if zero_based == "auto":
        zero_based = is_zero_based(path, n_features)
    lines = _Lines(path, n_features, None)
    for X, _ in lines.batches(file):
        yield lines.features(X, n_features, 0 if zero_based else 1)


def is_zero_based(path: str | os.PathLike[str], n_features: int | None = None) -> bool:
    """Return whether ``zero_based="auto"`` numbers the features of a file from 0."""
    lines = _Lines(Path(path), n_features, None)
    with open_binary(path) as file:
        for _ in lines.batches(file):
            pass
    return lines.is_zero_based()


def write(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set with feature indices from 1 and label ids from 0.

    Names, groups and the official split are not written, nor are zeros, except that a row without
    labels and features is written as ``1:0``, since readers skip empty lines. Read it back with the
    ``n_features`` and ``n_labels`` of the data set. Unknown labels are rejected.
    """
    reject_columns(dataset, "svmlight")
    if dataset.unknown is not None:
        raise InputError("svmlight cannot hold unknown labels; write npz or arff instead.")
    if dataset.n_features == 0:
        raise InputError("svmlight cannot hold rows without features; write npz or arff instead.")
    with atomic_path(path) as temporary, create_binary(temporary) as file:
        for start in range(0, dataset.n_samples, _WRITE_BATCH):
            part = slice(start, start + _WRITE_BATCH)
            file.writelines(map(str.encode, _row_texts(dataset.X[part], dataset.Y[part])))


def check_columns(path: object, kind: str, n: int) -> int:
    """Return the number of columns, rejecting more than are accepted."""
    if n > COLUMNS_LIMIT:
        raise InputError(
            f"{path} would have {n:,} {kind}, more than the {COLUMNS_LIMIT:,} that are accepted; "
            "number them without gaps."
        )
    return n


class _Lines:
    """The lines of a file: parsed in batches, with the range of the feature indices so far."""

    def __init__(self, path: Path, n_features: int | None, n_labels: int | None) -> None:
        self.path = path
        self._given = {"features": n_features, "labels": n_labels}
        self._stated: tuple[int, ...] | None = None  # rows, features and labels of the header
        self._n_rows = 0
        self.lowest, self.highest = np.iinfo(np.int64).max, -1

    def batches(self, file: IO[bytes]) -> Iterator[tuple[sp.csr_array, list[tuple[float, ...]]]]:
        """Yield features with indices as they are in the file, and the label ids of each row."""
        number = 1
        while lines := file.readlines(_READ_BATCH):
            numbered = list(enumerate(lines, number))
            number += len(lines)
            if numbered[0][0] == 1 and (header := _HEADER.fullmatch(lines[0])):
                self._stated = tuple(map(int, header.groups()))
                numbered = numbered[1:]
            X, labels = self._parse(self._rows(numbered))
            self._n_rows += len(labels)
            if X.nnz:
                self.lowest = min(self.lowest, int(X.indices.min()))
                self.highest = max(self.highest, int(X.indices.max()))
            if labels:
                yield X, labels
        if not self._n_rows:
            raise InputError(f"{self.path} has no rows; fetch it again.")
        if self._stated and self._stated[0] != self._n_rows:
            raise InputError(
                f"{self.path} states {self._stated[0]:,} rows and has {self._n_rows:,}; "
                "it may be truncated: fetch it again."
            )

    def _rows(self, numbered: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return the rows without comments, with their line numbers."""
        rows: list[tuple[int, bytes]] = []
        for number, line in numbered:
            content = line.partition(b"#")[0].strip()
            is_comment = not content and line.strip()
            n_so_far = self._n_rows + len(rows)
            if content or (self._stated and not is_comment and n_so_far < self._stated[0]):
                rows.append((number, content))
        return rows

    def _parse(self, rows: list[tuple[int, bytes]]) -> tuple[sp.csr_array, list[tuple[float, ...]]]:
        from sklearn.datasets import load_svmlight_file

        def parse(lines: list[bytes]) -> tuple[Any, list[tuple[float, ...]]]:
            # scikit-learn skips empty lines, so an empty row is parsed as one with the label 0.
            content = io.BytesIO(b"\n".join(line or b"0" for line in lines))
            X, labels = load_svmlight_file(content, multilabel=True, zero_based=True)
            labels = [ids if line else () for ids, line in zip(labels, lines, strict=True)]
            for label in chain.from_iterable(labels):
                if not float(label).is_integer():
                    raise ValueError(f"the label {label:g} is not an integer")
                if abs(label) > _HIGHEST_LABEL:
                    raise ValueError(f"the label {label:g} is too large")
            return sp.csr_array(X), labels

        try:
            return parse([line for _, line in rows])
        except (ValueError, OverflowError, TypeError, MemoryError):
            for number, line in rows:  # to find the line
                try:
                    parse([line])
                except (ValueError, OverflowError, TypeError, MemoryError) as error:
                    raise InputError(
                        f"{self.path}, line {number:,}: {one_line(error).rstrip('.')}; a row must "
                        "look like 1,3,7 12:0.5 40:1, with increasing indices."
                    ) from error
            raise

    def n_columns(self, kind: str, found: int) -> int:
        """Return the number of columns: as given, otherwise as stated, otherwise as found."""
        n = self._given[kind]
        if n is None:
            n = found if self._stated is None else self._stated[1 if kind == "features" else 2]
        return check_columns(self.path, kind, n)

    def is_zero_based(self) -> bool:
        """Return whether feature indices start at 0, judging by all that occur."""
        if self._stated is not None:
            return self.highest != self.n_columns("features", 0)
        return self.lowest == 0 or self.highest < 0

    def features(self, X: sp.csr_array, n: int, first: int) -> sp.csr_array:
        """Return X as float64 with ``n`` columns, whose indices start at ``first`` in the file."""
        indices: NDArray[Any] = X.indices - first
        outside = (indices < 0) | (indices >= n)
        if outside.any():
            odd = X.indices[np.argmax(outside)]
            raise InputError(
                f"{self.path} holds the feature index {odd}, which is out of range for {n:,} "
                f"features from {first}; check n_features and zero_based."
            )
        values = X.data.astype(np.float64, copy=False)
        beyond = np.abs(values) > np.finfo(np.float32).max
        if beyond.any():
            odd = values[np.argmax(beyond)]
            raise InputError(
                f"{self.path} holds the value {odd:g}, which does not fit 32 bits; rescale the "
                "feature, or write nan where the value is missing."
            )
        return sp.csr_array((values, indices, X.indptr), shape=(X.shape[0], n))

    def labels(self, rows: list[tuple[float, ...]]) -> tuple[Matrix, list[str]]:
        """Return Y, (n_samples, n_labels), and names unless the number of labels is known."""
        starts = np.cumsum([0, *map(len, rows)])
        ids = np.array([label for row in rows for label in row], dtype=np.int64)
        names: list[str] = []
        if self._given["labels"] is None and self._stated is None:
            found, ids = np.unique(ids, return_inverse=True)
            names, n = [f"label_{label}" for label in found], len(found)
        else:
            n = self.n_columns("labels", 0)
        if n == 0:
            raise InputError(f"{self.path} has no labels; give n_labels, or check the format.")
        if ids.size and not 0 <= ids.min() <= ids.max() < n:
            odd = ids[(ids < 0) | (ids >= n)][0]
            raise InputError(
                f"{self.path} holds the label {odd}, which is out of range for {n:,} labels from "
                "0; check n_labels."
            )
        Y = sp.csr_array((np.ones(len(ids), np.int64), ids, starts), shape=(len(rows), n))
        Y.sum_duplicates()
        Y.data = np.ones(Y.nnz, np.uint8)  # a label that a row repeats was summed
        return labels_as_stored(Y), names


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
