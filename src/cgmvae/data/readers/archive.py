"""The arrays of an npz file, loaded with mistrust.

Pickled objects are never loaded, and no array is loaded before its header has been compared with
what the archive holds. :mod:`cgmvae.data.readers.npz` says what the arrays mean.
"""

from __future__ import annotations

import lzma
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data import files
from cgmvae.data.dataset import Matrix
from cgmvae.data.readers.array_header import ArrayHeader, read_array_header
from cgmvae.data.readers.conventions import COLUMNS_LIMIT
from cgmvae.data.sparse_parts import csr_from_parts
from cgmvae.errors import InputError, first_line

#: The arrays that a CSR matrix is kept as; their names follow that of the matrix.
CSR_PARTS = ("data", "indices", "indptr", "shape")

#: What zipfile and NumPy raise at a damaged file; a RuntimeError is a password, or a compression
#: or a version that they do not know.
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


class Archive:
    """The arrays of an ``.npz`` file, each checked before it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except _DAMAGE as error:
            raise _not_an_archive(path) from error
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

    def array(self, key: str) -> NDArray[Any]:
        """Load one array."""
        info = self._members[key]
        self._loaded_bytes += info.file_size
        if self._loaded_bytes > files.UNPACKED_LIMIT:
            raise InputError(
                f"{self.path} unpacks to more than {files.UNPACKED_LIMIT:,} bytes, which is not "
                "accepted; divide the data into several files."
            )
        with self.damage_named(key):
            with self._zip.open(info) as file:
                self._check_header(key, file, info.file_size)
            with self._zip.open(info) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
            _check_characters(array)
            return array

    def open_array(self, key: str) -> tuple[IO[bytes], ArrayHeader]:
        """Open one array at the first byte of its values; nothing is loaded."""
        info = self._members[key]
        files.check_unpacked(self.path, info.file_size)
        with self.damage_named(key):
            file = self._zip.open(info)
            return file, self._check_header(key, file, info.file_size)

    @contextmanager
    def damage_named(self, key: str) -> Iterator[None]:
        """Turn what is raised at a damaged array into one sentence."""
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
        """Return the keys of the four parts of a CSR matrix, once they are all there."""
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
        """Load the names of the columns; none where the key is absent."""
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
                "save it as numbers or text."
            )
        held = n_bytes - file.tell()
        if not header.fits(held):
            raise InputError(
                f"The array {key!r} of {self.path} states {header.n_bytes:,} bytes and holds "
                f"{held:,}; fetch the file again."
            )
        return header


def _not_an_archive(path: Path) -> InputError:
    with path.open("rb") as file:
        begins_as_zip = file.read(2) == b"PK"
    if begins_as_zip:
        return InputError(f"{path} is a damaged or incomplete archive; fetch the file again.")
    return InputError(
        f"{path} is not an npz archive; name its format, or save it with numpy.savez."
    )


def checked_csr(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    shape: NDArray[Any],
    *,
    key: str,
    path: Path,
) -> sp.csr_array:
    """Return the CSR matrix that these are the parts of, checked and with sorted indices."""
    if any(part.ndim != 1 or part.dtype.kind not in "iu" for part in (indices, indptr, shape)):
        raise InputError(
            f"The indices and the shape of the sparse {key} of {path} must be integers."
        )
    stated = checked_shape(shape, key=key, path=path)
    try:
        matrix = csr_from_parts(data, indices, indptr, shape=stated)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"The sparse {key} of {path} is malformed ({error}).") from error
    if not matrix.has_canonical_format:
        matrix.sort_indices()
        # SciPy keeps the flag of a matrix as it was before the indices were sorted.
        matrix = sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
        if not matrix.has_canonical_format:
            raise InputError(f"The sparse {key} of {path} has two values for the same cell.")
    return matrix


def checked_shape(shape: NDArray[Any], *, key: str, path: Path) -> tuple[int, int]:
    """Return the shape that a CSR matrix states, once it is one that is accepted."""
    is_pair = shape.shape == (2,) and shape.dtype.kind in "iu"
    if not is_pair or shape.min() < 0 or shape[1] > COLUMNS_LIMIT:
        raise InputError(
            f"The sparse {key} of {path} states the shape {shape.tolist()}; it must have rows, and "
            f"at most {COLUMNS_LIMIT:,} columns."
        )
    return int(shape[0]), int(shape[1])


def _check_characters(array: NDArray[Any]) -> None:
    """Raise a ValueError where a text holds what is no character, which NumPy lets pass."""
    if array.dtype.kind != "U" or array.dtype.itemsize == 0:
        return
    numbers = np.ascontiguousarray(array).view(np.uint32)
    if not array.dtype.isnative:
        numbers = numbers.byteswap()
    if numbers.size and numbers.max() > sys.maxunicode:
        raise ValueError("it holds something that is no character")
