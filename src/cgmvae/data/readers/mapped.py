"""Mapped folders: data sets whose features are larger than memory, and stay on disk.

A folder ``*.mapped`` holds the features as ``X.npy``, which is memory-mapped, their names as
``features.json``, and everything else as ``labels.npz``: a data set without features, which is
loaded into memory. Training needs rows in random order, which a compressed file cannot give; so a
table is converted once (:func:`cgmvae.data.streaming.unpack`), and can then be used any number of
times.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data import files
from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.data.mapped import MappedRows, dense
from cgmvae.data.readers import npz
from cgmvae.data.readers.conventions import reject_columns
from cgmvae.data.readers.options import ReadingOptions
from cgmvae.errors import InputError, first_line

_FEATURES, _NAMES, _LABELS = "X.npy", "features.json", "labels.npz"


def read(
    path: str | os.PathLike[str], options: ReadingOptions, *, name: str | None = None
) -> MultiLabelDataset:
    """Read a data set whose features stay on disk; their values are not checked."""
    folder = check_folder(path)
    labels = npz.read(folder / _LABELS, options)
    X = _open_features(folder / _FEATURES)
    if X.shape[0] != labels.n_samples:
        raise InputError(
            f"{folder / _FEATURES} has {X.shape[0]:,} rows and {folder / _LABELS} "
            f"{labels.n_samples:,}; write the folder again."
        )
    names = files.read_json(folder / _NAMES, advice="write the folder again")
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise InputError(f"{folder / _NAMES} is not a list of names; write the folder again.")
    name = name or files.data_name(path)
    return replace(labels, X=MappedRows(X), feature_names=names, name=name)


def write(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as a new folder, in blocks of rows; sparse features become dense."""
    reject_columns(dataset, "mapped")
    rows = MappedRows.of(dataset.X)
    nothing = np.zeros((dataset.n_samples, 0), np.float32)
    write_blocks(
        replace(dataset, X=nothing, feature_names=()),
        (block for _, block in rows.blocks()),
        path,
        feature_names=dataset.feature_names,
        dtype=rows.dtype,
    )


def write_blocks(
    labels: MultiLabelDataset,
    blocks: Iterable[Matrix],
    path: str | os.PathLike[str],
    *,
    feature_names: Sequence[str],
    dtype: np.dtype[Any],
) -> None:
    """Write a new folder with features that come in blocks, each (n_rows, n_features).

    ``labels`` is everything but the features. If writing fails, the folder is not created.
    """
    if len(feature_names) == 0:
        raise InputError("A mapped folder needs at least one feature; check the source.")
    shape = (labels.n_samples, len(feature_names))
    with files.atomic_folder(path) as folder:
        npz.write(labels, folder / _LABELS)
        (folder / _NAMES).write_text(json.dumps(list(feature_names)), encoding="utf-8")
        n_rows = 0
        with (folder / _FEATURES).open("wb") as file:
            header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for block in blocks:
                n_rows += block.shape[0]
                file.write(np.ascontiguousarray(dense(block), dtype).data)
        if n_rows != shape[0]:
            raise InputError(
                f"There are labels for {shape[0]:,} rows and features for {n_rows:,}; the file "
                "changed while it was read, so convert it again."
            )


def check_folder(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` as a :class:`~pathlib.Path` to a mapped folder."""
    folder = Path(path)
    advice = "name a mapped folder, which a table can be converted to"
    try:
        if not folder.is_dir():
            problem = "is a file" if folder.exists() else "does not exist"
            raise InputError(f"{path} {problem}; {advice}.")
        for name in (_FEATURES, _NAMES, _LABELS):
            if not (folder / name).is_file():
                raise InputError(f"The folder {path} has no {name}; {advice}.")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {advice}.") from error
    return folder


def _open_features(path: Path) -> NDArray[Any]:
    """Memory-map the features; reject a file that is damaged or holds anything else."""
    try:
        X = np.lib.format.open_memmap(path, mode="r")
    except (*npz.HEADER_DAMAGE, ValueError, OverflowError, OSError) as error:
        raise InputError(
            f"{path} is damaged ({first_line(error)}); write the folder again."
        ) from error
    if X.ndim != 2 or X.dtype not in (np.float32, np.float64):
        raise InputError(
            f"{path} does not hold float32 or float64 in two dimensions; write the folder again."
        )
    if not X.flags.c_contiguous:
        raise InputError(f"{path} is in Fortran order; write it in C order.")
    return X
