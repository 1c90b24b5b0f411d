"""NumPy archives: the library's own format, which stores every field of a data set exactly.

An archive holds ``X`` and ``Y``, each either dense or as the four arrays of a CSR matrix
(``X_data``, ``X_indices``, ``X_indptr``, ``X_shape``); an unknown label is 255. The keys
``label_names``, ``feature_names``, ``group``, ``id`` and ``official_split`` are optional; others
are ignored. Pickled objects are never loaded, and no array is loaded before its header has been
compared with the size of what the archive holds.
"""

from __future__ import annotations

import lzma
import os
import struct
import sys
import zipfile
import zlib
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data import files
from cgmvae.data.dataset import Matrix, MultiLabelDataset, csr_from_parts, split_unknown
from cgmvae.data.readers.conventions import COLUMNS_LIMIT, reject_columns
from cgmvae.data.readers.options import ReadingOptions
from cgmvae.errors import InputError, first_line

#: The value of an unknown label.
UNKNOWN = 255

#: The arrays that store a CSR matrix; their names are appended to that of the matrix.
CSR_PARTS = ("data", "indices", "indptr", "shape")

#: How the header is read in each version of the array format that holds numbers and text.
_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}

#: What NumPy raises for a damaged header, besides a ValueError.
HEADER_DAMAGE = (TypeError, LookupError, SyntaxError, TokenError, RecursionError, MemoryError)

#: What zipfile and NumPy raise for a damaged file; a RuntimeError is a password, or a compression
#: or a version that they do not support.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    TypeError,
    OSError,
    ValueError,
    RuntimeError,
)


def read(
    path: str | os.PathLike[str], options: ReadingOptions, *, name: str | None = None
) -> MultiLabelDataset:
    """Read a data set from an ``.npz`` archive; a key of groups that was given must exist."""
    path = files.check_file(path)
    with Archive(path) as archive:
        groups = archive.groups_key(options)
        labels, unknown = split_unknown(archive.matrix("Y"), UNKNOWN)
        return MultiLabelDataset(
            X=archive.matrix("X"),
            Y=labels,
            unknown=unknown,
            label_names=archive.names("label_names"),
            feature_names=archive.names("feature_names"),
            groups=archive.array(groups) if groups in archive else None,
            ids=archive.array("id") if "id" in archive else None,
            official_split=archive.array("official_split") if "official_split" in archive else None,
            name=name or files.data_name(path),
        )


def read_features(
    path: str | os.PathLike[str], options: ReadingOptions
) -> tuple[Matrix, tuple[str, ...]]:
    """Read the features alone, and their names, if there are any; there need not be labels."""
    with Archive(files.check_file(path)) as archive:
        archive.groups_key(options)
        return archive.matrix("X"), archive.names("feature_names")


def write(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set to a compressed ``.npz`` archive; the same data gives the same bytes."""
    reject_columns(dataset, "npz")
    files.reject_compressed(path, "npz")
    Y = dataset.Y
    if dataset.unknown is not None and sp.issparse(Y):
        Y = sp.csr_array(Y + dataset.unknown.astype(np.uint8) * np.uint8(UNKNOWN))
    elif dataset.unknown is not None:
        Y = np.where(dataset.unknown, np.uint8(UNKNOWN), Y)
    arrays: dict[str, Any] = {
        **_parts("X", dataset.X),
        **_parts("Y", Y),
        "label_names": np.array(dataset.label_names, dtype=np.str_),
        "feature_names": np.array(dataset.feature_names, dtype=np.str_),
    }
    if any(name.endswith("\0") for name in (*dataset.label_names, *dataset.feature_names)):
        raise InputError("A name ends in the character NUL, which npz cannot store; rename it.")
    if (groups := dataset.groups) is not None:
        arrays["group"] = np.array(groups.tolist()) if groups.dtype == object else groups
        if arrays["group"].dtype == object or arrays["group"].tolist() != groups.tolist():
            raise InputError(
                "The groups are Python objects of several types; convert them to text."
            )
    if dataset.ids is not None:
        arrays["id"] = dataset.ids
    if dataset.official_split is not None:
        arrays["official_split"] = dataset.official_split
    with files.atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _parts(key: str, matrix: Matrix) -> dict[str, NDArray[Any]]:
    if not sp.issparse(matrix):
        return {key: matrix}
    values: tuple[NDArray[Any], ...]
    values = (matrix.data, matrix.indices, matrix.indptr, np.array(matrix.shape, dtype=np.int64))
    return {f"{key}_{part}": value for part, value in zip(CSR_PARTS, values, strict=True)}


def read_array(file: IO[bytes], n_bytes: int, what: str) -> NDArray[Any]:
    """Read an array in NumPy's format, after comparing its header with the size of the file.

    Raises a ValueError if the header is damaged, and an InputError that begins with ``what`` if
    there are objects, or more or fewer bytes than stated.
    """
    version = np.lib.format.read_magic(file)
    if version not in _HEADER_READERS:
        raise ValueError(f"version {version} of the array format")
    try:
        shape, is_fortran, dtype = _HEADER_READERS[version](file)
    except HEADER_DAMAGE as error:
        raise ValueError(first_line(error)) from error
    if dtype.hasobject:
        raise InputError(
            f"{what} holds Python objects, which are never loaded; save it as numbers or text."
        )
    # A byte each at least, or there could be any number of empty texts.
    stated, held = prod(shape) * max(dtype.itemsize, 1), n_bytes - file.tell()
    if stated != held or min(shape, default=0) < 0:
        raise InputError(
            f"{what} states {stated:,} bytes and holds {held:,}; fetch the file again."
        )
    content = bytearray(held)
    if file.readinto(content) != held:  # type: ignore[attr-defined]
        raise EOFError("it ends too early")
    return np.ndarray(shape, dtype, content, order="F" if is_fortran else "C")


class Archive:
    """The arrays of an ``.npz`` file, each checked before it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except _DAMAGE as error:
            with path.open("rb") as file:
                begins_as_zip = file.read(2) == b"PK"
            problem = (
                "is a damaged or incomplete archive; fetch the file again"
                if begins_as_zip
                else "is not an npz archive; name its format, or save it with numpy.savez"
            )
            raise InputError(f"{path} {problem}.") from error
        self._members = {
            info.filename.removesuffix(".npy"): info
            for info in self._zip.infolist()
            if info.filename.endswith(".npy")
        }
        self._loaded_bytes = 0

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def groups_key(self, options: ReadingOptions) -> str:
        """Return the key of the groups; raise if one was given and does not exist."""
        key = options.groups or "group"
        if key != "group" and key not in self:
            raise InputError(f"{self.path} has no array {key!r} to take the groups from.")
        return key

    def array(self, key: str) -> NDArray[Any]:
        """Load one array."""
        info = self._members[key]
        self._loaded_bytes += info.file_size
        files.check_unpacked(self.path, self._loaded_bytes)
        what = f"The array {key!r} of {self.path}"
        try:
            with self._zip.open(info) as file:
                array = read_array(file, info.file_size, what)
                file.read(1)  # the checksum is verified at the end
            _check_characters(array)
            return array
        except InputError:
            raise
        except _DAMAGE as error:
            raise InputError(
                f"{what} is damaged ({first_line(error)}); fetch the file again."
            ) from error

    def matrix(self, key: str) -> Matrix:
        """Load a dense matrix, or a CSR one from its four parts."""
        if key in self:
            return self.array(key)
        parts = [f"{key}_{part}" for part in CSR_PARTS]
        missing = [part for part in parts if part not in self]
        if len(missing) == len(parts):
            raise InputError(
                f"{self.path} has no array {key!r} and no sparse {', '.join(parts)}; it must hold "
                "the features as X and the labels as Y."
            )
        if missing:
            raise InputError(f"{self.path} has a sparse {key} without {', '.join(missing)}.")
        return _checked_csr(*map(self.array, parts), key=key, path=self.path)

    def names(self, key: str) -> tuple[str, ...]:
        """Load the names of the columns; none if the key is absent."""
        if key not in self:
            return ()
        names = self.array(key)
        if names.dtype.kind == "S":
            names = np.char.decode(names, "utf-8", "replace")
        if names.ndim != 1 or names.dtype.kind != "U":
            raise InputError(f"The array {key!r} of {self.path} must be a list of names.")
        return tuple(names.tolist())


def _checked_csr(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    shape: NDArray[Any],
    *,
    key: str,
    path: Path,
) -> sp.csr_array:
    """Return the CSR matrix of these parts, checked and with sorted indices."""
    is_pair = shape.shape == (2,) and shape.dtype.kind in "iu"
    if not is_pair or shape.min() < 0 or shape[1] > COLUMNS_LIMIT:
        raise InputError(
            f"The sparse {key} of {path} states the shape {shape.tolist()}; it must have rows, and "
            f"at most {COLUMNS_LIMIT:,} columns."
        )
    try:
        matrix = csr_from_parts(data, indices, indptr, shape=tuple(shape.tolist()))
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"The sparse {key} of {path} is malformed ({error}).") from error
    if not matrix.has_canonical_format:
        matrix.sort_indices()
        # SciPy keeps the flag of a matrix from before the indices were sorted.
        matrix = sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
        if not matrix.has_canonical_format:
            raise InputError(f"The sparse {key} of {path} has two values for the same cell.")
    return matrix


def _check_characters(array: NDArray[Any]) -> None:
    """Raise a ValueError for an invalid code point, which NumPy accepts."""
    if array.dtype.kind != "U" or array.dtype.itemsize == 0:
        return
    code_points = np.ascontiguousarray(array).view(np.uint32)
    if not array.dtype.isnative:
        code_points = code_points.byteswap()
    if code_points.size and code_points.max() > sys.maxunicode:
        raise ValueError("it holds an invalid character")
