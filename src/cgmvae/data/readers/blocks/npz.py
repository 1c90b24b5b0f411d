"""Blocks of an npz file: its features, taken from the archive as they are needed.

A dense array in Fortran order is the exception: it is loaded, for its rows are spread over all of
it. Labels are not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data import files
from cgmvae.data.dataset import Matrix, column_names
from cgmvae.data.readers.archive import Archive, checked_csr, checked_shape
from cgmvae.data.readers.blocks.base import MatrixBlocks
from cgmvae.errors import InputError

#: The key of the features.
_KEY = "X"


class NpzBlocks(MatrixBlocks):
    """Blocks of an npz file; ``groups`` is that of :func:`cgmvae.data.readers.npz.read`."""

    def __init__(self, path: str | os.PathLike[str], *, groups: str = "group") -> None:
        with Archive(files.check_file(path)) as archive:
            if groups != "group" and groups not in archive:
                raise InputError(f"{path} has no array {groups!r} to take the groups from.")
            n_columns = _open_rows(archive).shape[1]
            names = column_names(archive.names("feature_names"), "feature", n_columns)
        super().__init__(path, names)

    def _parts(self, n_rows: int) -> Iterator[Matrix]:
        with Archive(self.path) as archive:
            rows = _open_rows(archive)
            for start in range(0, rows.shape[0], n_rows):
                self._share = start / rows.shape[0]
                yield rows.take(n_rows)


class _ArrayRows:
    """The rows of an array, which is read as they are taken."""

    def __init__(self, archive: Archive, key: str) -> None:
        self._archive, self._key, self._n_taken = archive, key, 0
        self._file, (self.shape, is_fortran, self._dtype) = archive.open_array(key)
        if len(self.shape) == 0:
            raise InputError(
                f"The array {key!r} of {archive.path} is one value; it must have rows."
            )
        self._is_whole = is_fortran and len(self.shape) > 1

    def take(self, n: int) -> NDArray[Any]:
        """Return the next ``n`` rows, or as many as are left."""
        n = min(n, self.shape[0] - self._n_taken)
        self._n_taken += n
        if self._is_whole:
            return self._loaded[self._n_taken - n : self._n_taken]
        n_bytes = n * prod(self.shape[1:]) * self._dtype.itemsize
        with self._archive.damage_named(self._key):
            content = self._file.read(n_bytes)
            if self._n_taken == self.shape[0]:
                self._file.read(1)  # the checksum is compared at the end of the member
            if len(content) != n_bytes:
                raise EOFError("the compressed data ends too early")
        return np.frombuffer(content, dtype=self._dtype).reshape(n, *self.shape[1:])

    @cached_property
    def _loaded(self) -> NDArray[Any]:
        return self._archive.array(self._key)


class _SparseRows:
    """The rows of a CSR matrix whose parts are read as they are needed."""

    def __init__(self, archive: Archive) -> None:
        *keys, shape_key = archive.csr_keys(_KEY)
        self._path, shape = archive.path, archive.array(shape_key)
        self.shape = checked_shape(shape, key=_KEY, path=self._path)
        self._data, self._indices, self._ends = (_ArrayRows(archive, key) for key in keys)
        self._end = self._ends.take(1)
        if self._ends.shape != (self.shape[0] + 1,) or self._end.tolist() != [0]:
            raise InputError(f"The sparse {_KEY} of {self._path} is malformed (where rows end).")

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
            key=_KEY,
            path=self._path,
        )


def _open_rows(archive: Archive) -> _ArrayRows | _SparseRows:
    """Open the features, after a look at their shape."""
    rows = _ArrayRows(archive, _KEY) if _KEY in archive else _SparseRows(archive)
    if len(rows.shape) != 2:
        raise InputError(f"The features must be a table of two dimensions, not {len(rows.shape)}.")
    if rows.shape[0] == 0:
        raise InputError(f"{archive.path} has no rows; check how it was written.")
    return rows
