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
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.data.files import atomic_path, create_binary, data_name, open_binary
from cgmvae.data.mapped import vstack
from cgmvae.data.readers.conventions import (
    COLUMNS_LIMIT,
    labels_as_stored,
    reject_beyond_float32,
    reject_columns,
)
from cgmvae.data.readers.options import ReadingOptions
from cgmvae.errors import InputError, one_line

#: Bytes per batch of lines that is parsed, and rows per batch that is written.
_READ_BATCH, _WRITE_BATCH = 1 << 22, 1024

#: scikit-learn reads label ids as float64, which holds integers exactly up to this one.
_HIGHEST_LABEL = 2**53

_HEADER = re.compile(rb"([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]+([0-9]{1,18})\s*")


def read(
    path: str | os.PathLike[str], options: ReadingOptions, *, name: str | None = None
) -> MultiLabelDataset:
    """Read lines such as ``1,3,7 12:0.5 40:1 # comment``.

    The list of labels may be empty, the indices of the features must increase, and ``nan`` is a
    missing value. A first line of three integers, ``n_samples n_features n_labels``, is the header
    of the extreme-classification repository; with it an empty line is a row, without it empty lines
    are skipped.

    Label ids are integers (``3`` or ``3.0``). The labels are the ids that occur, in sorted order,
    and id j is named ``label_j``. With ``n_labels`` or a header, the labels are the ids from 0 to
    ``n_labels - 1``, whether they occur or not.

    X is CSR float64; Y is dense, or CSR for more than
    :data:`~cgmvae.data.readers.conventions.DENSE_LABELS_LIMIT` labels.
    """
    lines = _Lines(Path(path), options)
    X = lines.features(options.zero_based)
    Y, label_names = lines.labels()
    return MultiLabelDataset(X, Y, label_names=label_names, name=name or data_name(path))


def read_features(path: str | os.PathLike[str], options: ReadingOptions) -> sp.csr_array:
    """Read the features alone, (n_samples, n_features), whatever the labels are."""
    return _Lines(Path(path), options).features(options.zero_based)


def is_zero_based(path: str | os.PathLike[str]) -> bool:
    """Return whether ``zero_based="auto"`` numbers the features of a file from 0."""
    return _Lines(Path(path), ReadingOptions()).is_zero_based


def write(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set with feature indices from 1 and label ids from 0.

    Names, groups and the official split are not written, nor are zeros, except that a row without
    labels and features is written as ``1:0``, since readers skip empty lines. Read it back with the
    ``n_features`` and ``n_labels`` of the data set. Unknown labels are rejected.
    """
    reject_columns(dataset, "svmlight")
    if dataset.unknown is not None:
        raise InputError("svmlight cannot hold unknown labels; write npz instead.")
    if dataset.n_features == 0:
        raise InputError("svmlight cannot hold rows without features; write npz instead.")
    with atomic_path(path) as temporary, create_binary(temporary) as file:
        for start in range(0, dataset.n_samples, _WRITE_BATCH):
            part = slice(start, start + _WRITE_BATCH)
            file.writelines(map(str.encode, _row_texts(dataset.X[part], dataset.Y[part])))


class _Lines:
    """The parsed lines of a file, with indices and label ids as they are in it."""

    def __init__(self, path: Path, options: ReadingOptions) -> None:
        self.path = path
        self._given = {"features": options.n_features, "labels": options.n_labels}
        self._stated: tuple[int, ...] | None = None  # rows, features and labels of the header
        self._labels: list[tuple[float, ...]] = []
        batches, number = [], 1
        with open_binary(path) as file:
            while lines := file.readlines(_READ_BATCH):
                numbered = list(enumerate(lines, number))
                number += len(lines)
                if numbered[0][0] == 1 and (header := _HEADER.fullmatch(lines[0])):
                    self._stated = tuple(map(int, header.groups()))
                    numbered = numbered[1:]
                X, labels = self._parse(self._rows(numbered))
                batches.append(X)
                self._labels += labels
        if not self._labels:
            raise InputError(f"{path} has no rows; fetch it again.")
        if self._stated and self._stated[0] != len(self._labels):
            raise InputError(
                f"{path} states {self._stated[0]:,} rows and has {len(self._labels):,}; "
                "it may be truncated: fetch it again."
            )
        n = max(X.shape[1] for X in batches)
        self._X = vstack(
            [sp.csr_array((X.data, X.indices, X.indptr), (X.shape[0], n)) for X in batches]
        )

    @property
    def is_zero_based(self) -> bool:
        """Whether feature indices start at 0, judging by all that occur."""
        indices = self._X.indices
        if self._stated is not None:
            return indices.max(initial=-1) != self._n_columns("features", 0)
        return indices.size == 0 or indices.min() == 0

    def _rows(self, numbered: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return the rows without comments, with their line numbers."""
        rows: list[tuple[int, bytes]] = []
        for number, line in numbered:
            content = line.partition(b"#")[0].strip()
            is_comment = not content and line.strip()
            n_so_far = len(self._labels) + len(rows)
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

    def _n_columns(self, kind: str, found: int) -> int:
        """Return the number of columns: as given, otherwise as stated, otherwise as found."""
        n = self._given[kind]
        if n is None:
            n = found if self._stated is None else self._stated[1 if kind == "features" else 2]
        if n > COLUMNS_LIMIT:
            raise InputError(
                f"{self.path} would have {n:,} {kind}, more than the {COLUMNS_LIMIT:,} that are "
                "accepted; number them without gaps."
            )
        return n

    def features(self, zero_based: bool | Literal["auto"]) -> sp.csr_array:
        """Return X, (n_samples, n_features), as float64 with indices from 0."""
        if zero_based not in ("auto", True, False):
            raise InputError(f"zero_based must be 'auto', True or False, not {zero_based!r}.")
        first = int(not (self.is_zero_based if zero_based == "auto" else zero_based))
        values, found = self._X.data, self._X.indices
        n = self._n_columns("features", int(found.max(initial=-1)) - first + 1)
        outside = (found < first) | (found >= n + first)
        if outside.any():
            raise InputError(
                f"{self.path} holds the feature index {found[np.argmax(outside)]}, which is out of "
                f"range for {n:,} features from {first}; check n_features and zero_based."
            )
        reject_beyond_float32(values, self.path)
        return sp.csr_array((values, found - first, self._X.indptr), (self._X.shape[0], n))

    def labels(self) -> tuple[Matrix, list[str]]:
        """Return Y, (n_samples, n_labels), and names unless the number of labels is known."""
        rows = self._labels
        starts = np.cumsum([0, *map(len, rows)])
        ids = np.array([label for row in rows for label in row], dtype=np.int64)
        names: list[str] = []
        if self._given["labels"] is None and self._stated is None:
            found, ids = np.unique(ids, return_inverse=True)
            names, n = [f"label_{label}" for label in found], len(found)
        else:
            n = self._n_columns("labels", 0)
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
    # As float64: fewer digits would tell one float32 from another, but not give its value.
    texts = features.data.astype(np.float64).astype(str).tolist()
    cells = [f"{i}:{v}" for i, v in zip((features.indices + 1).tolist(), texts, strict=True)]
    ids = labels.indices.astype(str).tolist()
    starts = zip(pairwise(labels.indptr.tolist()), pairwise(features.indptr.tolist()), strict=True)
    for label_part, cell_part in starts:
        line = f"{','.join(ids[slice(*label_part)])} {' '.join(cells[slice(*cell_part)])}"
        yield f"{line.rstrip() or ' 1:0'}\n"
