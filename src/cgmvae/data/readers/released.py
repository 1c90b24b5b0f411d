"""The ``.npy`` matrices released by the authors of MPVAE and C-GMVAE, with their index files."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.dataset import TEST, TRAIN, VALIDATION, MultiLabelDataset, split_unknown
from cgmvae.data.files import data_name, open_binary
from cgmvae.data.readers.npz import read_array
from cgmvae.errors import InputError, first_line

#: A file of row indices, or the row indices.
Index = str | os.PathLike[str] | Sequence[int] | NDArray[Any]

#: The parts of the official split: their codes, and the suffixes of their index files.
_PARTS = {
    "train": (TRAIN, "_train_idx.npy"),
    "validation": (VALIDATION, "_val_idx.npy"),
    "test": (TEST, "_test_idx.npy"),
}

#: The code of a row that is in no part yet.
_NO_PART = 255


def read(
    path: str | os.PathLike[str],
    *,
    n_labels: int,
    meta_offset: int = 0,
    train_index: Index | None = None,
    validation_index: Index | None = None,
    test_index: Index | None = None,
    label_names: Sequence[str] = (),
    feature_names: Sequence[str] = (),
    name: str | None = None,
) -> MultiLabelDataset:
    """Read a matrix of shape (n_samples, meta_offset + n_labels + n_features).

    Parameters
    ----------
    path : path
        The ``.npy`` file.
    n_labels : int
        Number of label columns: 0, 1, or NaN for unknown.
    meta_offset : int
        Number of columns before the labels, which are skipped.
    train_index, validation_index, test_index : path or array of int, optional
        Row indices of the parts of the official split. An index that is not given is searched
        beside ``mirflickr_data.npy`` (or ``mirflickr.npy``) as ``mirflickr_train_idx.npy``,
        ``mirflickr_val_idx.npy`` and ``mirflickr_test_idx.npy``. Rows that are in none of them are
        left out, and a warning says how many; without any index, there is no official split.
    label_names, feature_names : sequence of str
        Column names.
    name : str, optional
        Name of the data set; by default that of the file, without ``_data``.

    Returns
    -------
    MultiLabelDataset
        X float32 and Y, both dense.

    Warns
    -----
    UserWarning
        If rows are in none of the indices.
    """
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
    indices = {"train": train_index, "validation": validation_index, "test": test_index}
    split = _official_split(path, indices, len(table))
    dataset = MultiLabelDataset(
        X,
        Y,
        unknown=unknown,
        label_names=label_names,
        feature_names=feature_names,
        name=name or data_name(path).removesuffix("_data"),
    )
    if split is None:
        return dataset
    rows = np.flatnonzero(split != _NO_PART)
    if n_left_out := len(split) - len(rows):
        warnings.warn(
            f"{n_left_out:,} of the {len(split):,} rows of {path} are in none of its train, "
            "validation and test indices, and are left out.",
            UserWarning,
            stacklevel=2,
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


def _official_split(
    path: Path, indices: dict[str, Index | None], n_samples: int
) -> NDArray[np.uint8] | None:
    split = np.full(n_samples, _NO_PART, dtype=np.uint8)
    found = False
    for part, (code, suffix) in _PARTS.items():
        index = indices[part]
        if index is None:
            stem = data_name(path)
            beside = (path.with_name(n + suffix) for n in (stem.removesuffix("_data"), stem))
            index = next((candidate for candidate in beside if candidate.is_file()), None)
        if index is None:
            continue
        is_file = isinstance(index, str | os.PathLike)
        what = f"The {part} index {index}" if is_file else f"The {part} index"
        rows = _load(Path(index)) if is_file else np.asarray(index)  # type: ignore[arg-type]
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
