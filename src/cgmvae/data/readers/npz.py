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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data import files
from cgmvae.data.dataset import Matrix, MultiLabelDataset, csr_from_parts, split_unknown
from cgmvae.data.readers.conventions import COLUMNS_LIMIT, reject_columns
from cgmvae.errors import InputError, first_line

#: The value of an unknown label.
UNKNOWN = 255

#: The arrays that store a CSR matrix; their names are appended to that of the matrix.
CSR_PARTS = ("data", "indices", "indptr", "shape")

#: The earliest time that a zip file can store, so that the same data set gives the same bytes.
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)

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
    path: str | os.PathLike[str], *, groups: str = "group", name: str | None = None
) -> MultiLabelDataset:
    """Read a data set from an ``.npz`` archive.

    Parameters
    ----------
    path : path
        The archive.
    groups : str, default="group"
        The key of the groups, (n_samples,). If ``"group"`` is absent, there are no groups; any
        other key must exist.
    name : str, optional
        Name of the data set; by default that of the file.

    Examples
    --------
    >>> import tempfile
    >>> data = MultiLabelDataset([[0.5], [2.0]], [[1, 0], [1, 1]], label_names=["owl", "hawk"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(data, f"{folder}/birds.npz")
    ...     read(f"{folder}/birds.npz").label_names
    ('owl', 'hawk')
    """
    path = files.check_file(path)
    with Archive(path) as archive:
        archive.check_groups(groups)
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


def write(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set to a compressed ``.npz`` archive; the same data gives the same bytes."""
    reject_columns(dataset, "npz")
    files.reject_compressed(path, "npz")
    Y = dataset.Y
    if dataset.unknown is not None and sp.issparse(Y):
        Y = sp.csr_array(Y + dataset.unknown.astype(np.uint8) * np.uint8(UNKNOWN))
    elif dataset.unknown is not None:
        Y = np.where(dataset.unknown, np.uint8(UNKNOWN), Y)
    arrays = {
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
    with files.atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for key, array in arrays.items():
            member = zipfile.ZipInfo(f"{key}.npy", _TIMESTAMP)
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _parts(key: str, matrix: Matrix) -> dict[str, NDArray[Any]]:
    if not sp.issparse(matrix):
        return {key: matrix}
    values: tuple[NDArray[Any], ...]
    values = (matrix.data, matrix.indices, matrix.indptr, np.array(matrix.shape, dtype=np.int64))
    return {f"{key}_{part}": value for part, value in zip(CSR_PARTS, values, strict=True)}


class ArrayHeader(NamedTuple):
    """Shape, order and type of an array, as its file states them."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]

    def fits(self, n_bytes: int) -> bool:
        """Return whether values of this shape and type take ``n_bytes``."""
        return self.n_bytes == n_bytes and min(self.shape, default=0) >= 0

    @property
    def n_bytes(self) -> int:
        """Size of the values; a byte each at least, or there could be any number of empty texts."""
        return prod(self.shape) * max(self.dtype.itemsize, 1)


def read_array_header(file: IO[bytes]) -> ArrayHeader:
    """Read the header at the beginning of an array; raise a ValueError if it is damaged."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADER_READERS:
        raise ValueError(f"version {version} of the array format")
    try:
        return ArrayHeader(*_HEADER_READERS[version](file))
    except HEADER_DAMAGE as error:
        raise ValueError(first_line(error)) from error


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

    def check_groups(self, key: str) -> None:
        """Reject a key of the groups that is not the default and does not exist."""
        if key != "group" and key not in self:
            raise InputError(f"{self.path} has no array {key!r} to take the groups from.")

    def array(self, key: str) -> NDArray[Any]:
        """Load one array."""
        info = self._members[key]
        self._loaded_bytes += info.file_size
        if self._loaded_bytes > files.UNPACKED_LIMIT:
            raise InputError(
                f"{self.path} unpacks to more than the {files.UNPACKED_LIMIT:,} bytes that are "
                "accepted; divide the data into several files."
            )
        with self.damage_reported(key):
            with self._zip.open(info) as file:
                self._check_header(key, file, info.file_size)
            with self._zip.open(info) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
            _check_characters(array)
            return array

    def open_array(self, key: str) -> tuple[IO[bytes], ArrayHeader]:
        """Open an array at the first byte of its values; nothing is loaded."""
        info = self._members[key]
        files.check_unpacked(self.path, info.file_size)
        with self.damage_reported(key):
            file = self._zip.open(info)
            return file, self._check_header(key, file, info.file_size)

    @contextmanager
    def damage_reported(self, key: str) -> Iterator[None]:
        """Report a damaged array in one sentence."""
        try:
            yield
        except InputError:
            raise
        except _DAMAGE as error:
            raise InputError(
                f"The array {key!r} of {self.path} is damaged ({first_line(error)}); "
                "fetch the file again."
            ) from error

    def matrix(self, key: str) -> Matrix:
        """Load a dense matrix, or a CSR one from its four parts."""
        if key in self:
            return self.array(key)
        parts = [self.array(part) for part in self.csr_keys(key)]
        return checked_csr(*parts, key=key, path=self.path)

    def csr_keys(self, key: str) -> list[str]:
        """Return the keys of the four parts of a CSR matrix, all of which must exist."""
        parts = [f"{key}_{part}" for part in CSR_PARTS]
        missing = [part for part in parts if part not in self]
        if len(missing) == len(parts):
            raise InputError(
                f"{self.path} has no array {key!r} and no sparse {', '.join(parts)}; it must hold "
                "the features as X and the labels as Y."
            )
        if missing:
            raise InputError(f"{self.path} has a sparse {key} without {', '.join(missing)}.")
        return parts

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

    def _check_header(self, key: str, file: IO[bytes], n_bytes: int) -> ArrayHeader:
        header = read_array_header(file)
        if header.dtype.hasobject:
            raise InputError(
                f"The array {key!r} of {self.path} holds Python objects, which are never loaded; "
                "save it as code_points or text."
            )
        held = n_bytes - file.tell()
        if not header.fits(held):
            raise InputError(
                f"The array {key!r} of {self.path} states {header.n_bytes:,} bytes and holds "
                f"{held:,}; fetch the file again."
            )
        return header


def checked_csr(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    shape: NDArray[Any],
    *,
    key: str,
    path: Path,
) -> sp.csr_array:
    """Return the CSR matrix of these parts, checked and with sorted indices."""
    stated = checked_shape(shape, key=key, path=path)
    try:
        matrix = csr_from_parts(data, indices, indptr, shape=stated)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"The sparse {key} of {path} is malformed ({error}).") from error
    if not matrix.has_canonical_format:
        matrix.sort_indices()
        # SciPy keeps the flag of a matrix from before the indices were sorted.
        matrix = sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
        if not matrix.has_canonical_format:
            raise InputError(f"The sparse {key} of {path} has two values for the same cell.")
    return matrix


def checked_shape(shape: NDArray[Any], *, key: str, path: Path) -> tuple[int, int]:
    """Return the shape that a CSR matrix states, if it is acceptable."""
    is_pair = shape.shape == (2,) and shape.dtype.kind in "iu"
    if not is_pair or shape.min() < 0 or shape[1] > COLUMNS_LIMIT:
        raise InputError(
            f"The sparse {key} of {path} states the shape {shape.tolist()}; it must have rows, and "
            f"at most {COLUMNS_LIMIT:,} columns."
        )
    return int(shape[0]), int(shape[1])


def _check_characters(array: NDArray[Any]) -> None:
    """Raise a ValueError for an invalid code point, which NumPy accepts."""
    if array.dtype.kind != "U" or array.dtype.itemsize == 0:
        return
    code_points = np.ascontiguousarray(array).view(np.uint32)
    if not array.dtype.isnative:
        code_points = code_points.byteswap()
    if code_points.size and code_points.max() > sys.maxunicode:
        raise ValueError("it holds an invalid character")


class _ArrayRows:
    """The rows of an array, which are read as they are taken."""

    def __init__(self, archive: Archive, key: str) -> None:
        self._archive, self._key, self._n_taken = archive, key, 0
        self._file, (self.shape, is_fortran, self._dtype) = archive.open_array(key)
        if len(self.shape) == 0:
            raise InputError(
                f"The array {key!r} of {archive.path} is a single value; it must have rows."
            )
        self._is_fortran = is_fortran and len(self.shape) > 1  # its rows are spread over all of it

    def take(self, n: int) -> NDArray[Any]:
        """Return the next ``n`` rows, or as many as are left."""
        n = min(n, self.shape[0] - self._n_taken)
        self._n_taken += n
        if self._is_fortran:
            return self._loaded[self._n_taken - n : self._n_taken]
        n_bytes = n * prod(self.shape[1:]) * self._dtype.itemsize
        with self._archive.damage_reported(self._key):
            content = self._file.read(n_bytes)
            if self._n_taken == self.shape[0]:
                self._file.read(1)  # the checksum is verified at the end
            if len(content) != n_bytes:
                raise EOFError("the compressed data ends too early")
        return np.frombuffer(content, dtype=self._dtype).reshape(n, *self.shape[1:])

    @cached_property
    def _loaded(self) -> NDArray[Any]:
        return self._archive.array(self._key)


class _SparseRows:
    """The rows of a CSR matrix, whose parts are read as they are needed."""

    def __init__(self, archive: Archive) -> None:
        *keys, shape_key = archive.csr_keys("X")
        self._path, shape = archive.path, archive.array(shape_key)
        self.shape = checked_shape(shape, key="X", path=self._path)
        self._data, self._indices, self._ends = (_ArrayRows(archive, key) for key in keys)
        self._end = self._ends.take(1)
        if self._ends.shape != (self.shape[0] + 1,) or self._end.tolist() != [0]:
            raise InputError(f"The sparse X of {self._path} is malformed (its row offsets).")

    def take(self, n: int) -> sp.csr_array:
        """Return the next ``n`` rows, or as many as are left."""
        ends = np.concatenate([self._end, self._ends.take(n)])
        n_cells = max(0, int(ends[-1]) - int(ends[0]))
        self._end = ends[-1:]
        return checked_csr(
            self._data.take(n_cells),
            self._indices.take(n_cells),
            ends - ends[0],
            np.array([len(ends) - 1, self.shape[1]]),
            key="X",
            path=self._path,
        )


def open_feature_rows(archive: Archive) -> _ArrayRows | _SparseRows:
    """Open the features for reading row by row, after checking their shape."""
    rows = _ArrayRows(archive, "X") if "X" in archive else _SparseRows(archive)
    if len(rows.shape) != 2:
        raise InputError(f"The features must have two dimensions, not {len(rows.shape)}.")
    if rows.shape[0] == 0:
        raise InputError(f"{archive.path} has no rows; check how it was written.")
    return rows
