"""svmlight (libsvm) files with several labels a row, and the extreme-classification variant.

The lines are parsed in :mod:`cgmvae.data.readers.svmlight_text`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Literal

import numpy as np
import scipy.sparse as sp

from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.data.files import atomic_path, create_binary, data_name, open_text
from cgmvae.data.readers.conventions import (
    FLOAT32_LIMIT,
    labels_as_stored,
    not_rising,
    number_texts,
    refuse_columns,
)
from cgmvae.data.readers.svmlight_text import ParsedRows, parse_rows
from cgmvae.errors import InputError

#: Rows that are turned into text at once.
_BATCH = 1024

#: Cells that are held at once where a file is read in parts.
_PART_CELLS = 1 << 18


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
        :data:`~cgmvae.data.readers.conventions.DENSE_LABELS_LIMIT` labels.
    """
    if zero_based not in ("auto", True, False):
        raise InputError(f"zero_based must be 'auto', True or False, not {zero_based!r}.")
    with open_text(path) as text:
        (rows,) = parse_rows(text, Path(path))
    if zero_based == "auto":
        zero_based = _is_zero_based([rows], n_features)
    X = _features(rows, n_features, zero_based)
    Y, label_names = _labels(rows, n_labels)
    return MultiLabelDataset(X, Y, label_names=label_names, name=name or data_name(path))


def read_parts(
    text: IO[str],
    path: Path,
    *,
    n_features: int,
    n_labels: int,
    zero_based: bool | Literal["auto"] = "auto",
) -> Iterator[sp.csr_array]:
    """Yield the features that :func:`read` gives, some rows at a time; labels are only checked.

    Where ``zero_based`` is not said, the whole file is looked through first.

    Parameters
    ----------
    text : text file
        Opened, at its beginning.
    path : Path
        The same file, for messages and the first look.
    n_features, n_labels, zero_based
        As in :func:`read`.
    """
    if zero_based == "auto":
        with open_text(path) as first_look:
            zero_based = _is_zero_based(parse_rows(first_look, path, _PART_CELLS), n_features)
    for rows in parse_rows(text, path, _PART_CELLS):
        _labels(rows, n_labels)
        yield _features(rows, n_features, zero_based)


def write(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set with features counted from 1 and labels counted from 0.

    Names, groups and the official split are left out; zeros too, except that a row without labels
    and features gets the cell ``1:0``, since readers skip empty lines. Read it back with the
    ``n_features`` and ``n_labels`` of the data set. Unknown labels are refused.
    """
    refuse_columns(dataset, "svmlight")
    if dataset.unknown is not None:
        raise InputError("svmlight cannot hold unknown labels; write npz or arff instead.")
    if dataset.n_features == 0:
        raise InputError("svmlight cannot hold rows without features; write npz or arff instead.")
    with atomic_path(path) as temporary, create_binary(temporary) as file:
        for start in range(0, dataset.n_samples, _BATCH):
            part = slice(start, start + _BATCH)
            file.writelines(map(str.encode, _row_texts(dataset.X[part], dataset.Y[part])))


def _features(rows: ParsedRows, n_features: int | None, zero_based: bool) -> sp.csr_array:
    """Return X, (n_samples, n_features)."""
    cells, first = rows.features, 0 if zero_based else 1
    columns, values = np.array(cells.columns, dtype=np.int64), np.array(cells.values)
    for wrong, message in (
        (not_rising(columns, np.array(cells.starts)), "must increase within a row"),
        (np.abs(values) >= FLOAT32_LIMIT, "has a value that does not fit 32 bits"),
    ):
        if wrong.any():
            at = int(np.argmax(wrong))
            raise rows.error_in(cells, at, f"the index {columns[at]} {message}; correct the row.")
    n = rows.n_columns("features", n_features, int(columns.max(initial=first - 1)) - first + 1)
    outside = (columns < first) | (columns >= n + first)
    if outside.any():
        at = int(np.argmax(outside))
        raise rows.error_in(
            cells,
            at,
            f"the index {columns[at]} is out of range for {n:,} features counted from {first}; "
            "check n_features and zero_based.",
        )
    return cells.matrix(columns - first, values.astype(np.float32), n)


def _is_zero_based(parts: Iterable[ParsedRows], n_features: int | None) -> bool:
    """Tell from all the indices of a file whether features are counted from 0."""
    none = np.iinfo(np.int64).max
    lowest, highest, n_stated = none, -1, None
    for rows in parts:
        columns = np.array(rows.features.columns, dtype=np.int64)
        lowest, highest = columns.min(initial=lowest), columns.max(initial=highest)
        n_stated = rows.n_columns("features", n_features, 0) if rows.stated else None
    return lowest in (0, none) or (n_stated is not None and highest != n_stated)


def _labels(rows: ParsedRows, n_labels: int | None) -> tuple[Matrix, list[str]]:
    """Return Y, (n_samples, n_labels), and names where the ids are not 0 … n_labels - 1."""
    cells = rows.labels
    ids = np.array(cells.columns, dtype=np.int64)
    names: list[str] = []
    if n_labels is None and ids.min(initial=0) < 0:
        found, ids = np.unique(ids, return_inverse=True)
        names, n = [f"label_{label}" for label in found], len(found)
    else:
        n = rows.n_columns("labels", n_labels, int(ids.max(initial=-1)) + 1)
    if n == 0:
        raise InputError(f"{rows.path} has no labels; give n_labels, or check the format.")
    outside = (ids < 0) | (ids >= n)
    if outside.any():
        at = int(np.argmax(outside))
        raise rows.error_in(
            cells, at, f"the label {ids[at]} is out of range for {n:,} labels counted from 0."
        )
    Y = cells.matrix(ids, np.ones(len(ids), dtype=np.int64), n)
    Y.sum_duplicates()
    if (Y.data > 1).any():
        row = int(np.searchsorted(Y.indptr, np.argmax(Y.data > 1), side="right")) - 1
        raise rows.error(rows.lines[row], "a label is repeated; give each label once.")
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
