"""Reading and writing data sets in files, one module per format.

A format is a module with ``read(path, **options)`` and, unless it is read-only,
``write(dataset, path)``; ``table`` has such functions for each of its formats. :func:`read` and
:func:`write` choose the format by the file's suffix (ignoring ``.gz`` and ``.bz2``) or by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.files import check_file, data_suffix
from cgmvae.data.readers import arff, mapped, npz, released, svmlight, table
from cgmvae.errors import InputError

__all__ = ["FORMATS", "Format", "check_source", "choose", "read", "write"]


@dataclass(frozen=True)
class Format:
    """How files of one format are read and written."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[..., MultiLabelDataset]
    write: Callable[[MultiLabelDataset, Any], None] | None
    is_folder: bool = False
    """Whether a data set is a folder instead of a file."""


FORMATS = {
    format_.name: format_
    for format_ in (
        Format("arff", (".arff",), arff.read, None),
        Format("npz", (".npz",), npz.read, npz.write),
        Format("svmlight", (".svm", ".svmlight", ".libsvm"), svmlight.read, svmlight.write),
        Format("csv", (".csv", ".tsv", ".tab"), table.read_csv, table.write_csv),
        Format("xlsx", (".xlsx", ".xlsm"), table.read_xlsx, None),
        Format("jsonl", (".jsonl", ".ndjson"), table.read_jsonl, None),
        Format("feather", (".feather", ".arrow"), table.read_feather, None),
        Format("parquet", (".parquet", ".pq"), table.read_parquet, table.write_parquet),
        Format("released", (".npy",), released.read, None),
        Format("mapped", (".mapped",), mapped.read, mapped.write, is_folder=True),
    )
}


def read(
    path: str | os.PathLike[str], *, format: str | None = None, **options: Any
) -> MultiLabelDataset:
    """Read a data set from a file.

    Parameters
    ----------
    path : path
        The file, possibly compressed with gzip or bzip2.
    format : str, optional
        A name of :data:`FORMATS`; by default determined by the suffix.
    **options
        Options of the format's own ``read``.
    """
    return choose(path, format).read(path, **options)


def write(
    dataset: MultiLabelDataset, path: str | os.PathLike[str], *, format: str | None = None
) -> None:
    """Write a data set to a file atomically."""
    format_ = choose(path, format)
    if format_.write is None:
        raise InputError(f"The format {format_.name!r} can only be read; write npz instead.")
    format_.write(dataset if format_.is_folder else dataset.in_memory(), path)


def check_source(path: str | os.PathLike[str], format: str | None = None) -> Path:
    """Return ``path`` as a :class:`~pathlib.Path` to a file, or a folder if the format is one."""
    is_mapped = format == "mapped" if format else data_suffix(path) == ".mapped"
    return mapped.check_folder(path) if is_mapped else check_file(path)


def choose(path: str | os.PathLike[str], name: str | None = None) -> Format:
    """Return the format with that name, or the one of the file's suffix."""
    if name is not None:
        if name not in FORMATS:
            raise InputError(f"There is no format {name!r}; choose one of {', '.join(FORMATS)}.")
        return FORMATS[name]
    suffix = data_suffix(path)
    for format_ in FORMATS.values():
        if suffix in format_.suffixes:
            return format_
    raise InputError(
        f"The format of {path} is not clear from its name; choose one of {', '.join(FORMATS)}.",
        parameter="format",
    )
