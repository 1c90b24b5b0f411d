"""Reading and writing data sets in files, one module per format.

A format is a module with ``read(path, options, name=None)`` and, unless it is read-only,
``write(dataset, path)``; ``table`` has such functions for each of its formats. :func:`read` and
:func:`write` choose the format by the file's suffix (ignoring ``.gz`` and ``.bz2``) or by name.
A new format is a module and an entry in :data:`FORMATS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.files import check_file, data_suffix
from cgmvae.data.readers import arff, mapped, npz, released, svmlight, table
from cgmvae.data.readers.options import ReadingOptions, table_options
from cgmvae.errors import InputError, Setting

__all__ = ["FORMATS", "Format", "ReadingOptions", "check_source", "choose", "read", "write"]


@dataclass(frozen=True)
class Format:
    """How files of one format are read and written."""

    name: str
    suffixes: tuple[str, ...]
    options: tuple[str, ...]
    """The fields of :class:`ReadingOptions` that it has."""
    read: Callable[..., MultiLabelDataset]
    write: Callable[[MultiLabelDataset, Any], None] | None = None
    is_folder: bool = False
    """Whether a data set is a folder instead of a file."""

    def check(self, given: Iterable[str]) -> None:
        """Reject an option that files of this format do not have."""
        if other := next((name for name in given if name not in self.options), None):
            raise InputError(Setting(other), f" does not apply to {self.name} files; leave it out.")


_TABLE = table_options()
_TEXT = (*_TABLE, "delimiter", "decimal", "encoding")
_COUNTS = ("n_labels", "n_features", "zero_based")
_RELEASED = ("n_labels", "meta_offset")


def _loaded(name: str, suffixes: tuple[str, ...], *options: str) -> Format:
    return Format(name, suffixes, (*_TABLE, *options), partial(table.read_loaded, format=name))


FORMATS = {
    format_.name: format_
    for format_ in (
        Format("arff", (".arff",), ("labels", "label_count", "xml"), arff.read),
        Format("npz", (".npz",), ("groups",), npz.read, npz.write),
        Format(
            "svmlight", (".svm", ".svmlight", ".libsvm"), _COUNTS, svmlight.read, svmlight.write
        ),
        Format("csv", (".csv", ".tsv", ".tab"), _TEXT, table.read_csv, table.write_csv),
        _loaded("xlsx", (".xlsx", ".xlsm"), "sheet"),
        _loaded("jsonl", (".jsonl", ".ndjson")),
        _loaded("feather", (".feather", ".arrow")),
        Format("parquet", (".parquet", ".pq"), _TABLE, table.read_parquet, table.write_parquet),
        Format("released", (".npy",), _RELEASED, released.read),
        Format("mapped", (".mapped",), (), mapped.read, mapped.write, is_folder=True),
    )
}


def read(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    name: str | None = None,
    **options: Any,
) -> MultiLabelDataset:
    r"""Read a data set from a file.

    Parameters
    ----------
    path : path
        The file, possibly compressed with gzip or bzip2.
    format : str, optional
        A name of :data:`FORMATS`; by default determined by the suffix.
    name : str, optional
        Name of the data set; by default that of the file.
    **options
        Those of :class:`~cgmvae.data.ReadingOptions` that the format has.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "birds.csv")
    ...     _ = path.write_text("height;owl;hawk\n0,5;1;0\n;1;1\n")
    ...     data = read(path, label_count=-2)
    >>> data.label_names, data.X.tolist()
    (('owl', 'hawk'), [[0.5], [nan]])
    """
    chosen = choose(path, format)
    chosen.check(options)
    return chosen.read(path, ReadingOptions(**options), name=name)


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
