"""The ``.npy`` matrices released by the authors of MPVAE and C-GMVAE, with their index files."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.dataset import TEST, TRAIN, VALIDATION, MultiLabelDataset, split_unknown
from cgmvae.data.files import data_name, open_binary
from cgmvae.data.readers.npz import read_array
from cgmvae.data.readers.options import ReadingOptions
from cgmvae.errors import InputError, Setting, first_line, warn

#: The parts of the official split: their codes, and the suffixes of their index files.
_PARTS = {
    "train": (TRAIN, "_train_idx.npy"),
    "validation": (VALIDATION, "_val_idx.npy"),
    "test": (TEST, "_test_idx.npy"),
}

#: The code of a row that is in no part yet.
_NO_PART = 255


def read(
    path: str | os.PathLike[str], options: ReadingOptions, *, name: str | None = None
) -> MultiLabelDataset:
    """Read a matrix of shape (n_samples, meta_offset + n_labels + n_features).

    Labels are 0, 1, or NaN for unknown. X is float32, and X and Y are dense; ``_data`` at the end
    of the file's name is not part of the name of the data set. The files beside
    ``mirflickr_data.npy`` (or ``mirflickr.npy``) that are called ``mirflickr_train_idx.npy``,
    ``mirflickr_val_idx.npy`` and ``mirflickr_test_idx.npy`` hold the row indices of the official
    split. Rows that are in none of them are left out; without any, there is no official split.

    Warns
    -----
    UserWarning
        If rows are in none of the indices.
    """
    if options.n_labels is None:
        raise InputError(Setting("n_labels"), " is required for released files; add it.")
    n_labels, meta_offset = options.n_labels, options.meta_offset
    path = Path(path)
    table = _load(path)
    first = meta_offset + n_labels
    if table.ndim != 2 or table.shape[0] == 0:
        raise InputError(
            f"{path} has the shape {table.shape}; it must have two dimensions and at least one row."
        )
    if n_labels < 1 or meta_offset < 0 or first >= table.shape[1]:
        raise InputError(
            f"{meta_offset} skipped columns and {n_labels} labels do not fit the "
            f"{table.shape[1]:,} columns of {path}; check meta_offset and n_labels."
        )
    labels = table[:, meta_offset:first]
    fits = (labels == 0) | (labels == 1) | (labels != labels)  # NaN differs from itself
    if not fits.all():
        row, column = np.argwhere(~fits)[0]
        raise InputError(
            f"Label column {column} of {path} holds {labels[row, column]:g} in row {row}, which is "
            "not 0 or 1; check meta_offset and n_labels."
        )
    Y, unknown = split_unknown(labels)
    with np.errstate(over="ignore"):  # the data set rejects infinite values
        X = table[:, first:].astype(np.float32)
    split = _official_split(path, len(table))
    dataset = MultiLabelDataset(
        X,
        Y,
        unknown=unknown,
        name=name or data_name(path).removesuffix("_data"),
    )
    if split is None:
        return dataset
    rows = np.flatnonzero(split != _NO_PART)
    if n_left_out := len(split) - len(rows):
        warn(
            f"{n_left_out:,} of the {len(split):,} rows of {path} are in none of its train, "
            "validation and test indices, and are left out.",
        )
    return replace(dataset.rows(rows), official_split=split[rows])


def _load(path: Path) -> NDArray[Any]:
    """Load an array of numbers."""
    with open_binary(path) as opened:
        content = opened.read()
    try:
        array = read_array(io.BytesIO(content), len(content), str(path))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not an .npy file ({first_line(error)}); check it.") from error
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"{path} holds {array.dtype} values, not numbers; save it as a float array."
        )
    return array


def _official_split(path: Path, n_samples: int) -> NDArray[np.uint8] | None:
    """Return the split of the index files beside a matrix; None if there are none."""
    split = np.full(n_samples, _NO_PART, dtype=np.uint8)
    found = False
    for part, (code, suffix) in _PARTS.items():
        stem = data_name(path)
        beside = (path.with_name(n + suffix) for n in (stem.removesuffix("_data"), stem))
        index = next((candidate for candidate in beside if candidate.is_file()), None)
        if index is None:
            continue
        what, rows = f"The {part} index {index}", _load(index)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise InputError(f"{what} must be a flat list of integer row indices.")
        outside = (rows < 0) | (rows >= n_samples)
        if outside.any():
            raise InputError(
                f"{what} holds the row {rows[outside][0]}, but the rows are 0 to "
                f"{n_samples - 1:,}; check that the files belong together."
            )
        if len(np.unique(rows)) != len(rows) or (split[rows] != _NO_PART).any():
            raise InputError(
                f"The {part} index of {path} holds a row twice, or one of another part; "
                "every row belongs to exactly one part."
            )
        split[rows] = code
        found = True
    return split if found else None
