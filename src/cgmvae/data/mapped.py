"""Rows that stay where they are until they are needed: in a file on disk, or in a caller's array.

A matrix that is larger than the memory is mapped from its file. :class:`MappedRows` knows which of
its rows are meant and what is done to them, and reads them by number or in blocks; to choose rows
or columns, or to scale, copies nothing. The format :mod:`cgmvae.data.readers.mapped` gives features
in this form, the scaler learns from blocks, and the training gathers its batches from several of
them (:mod:`cgmvae.data.stacked`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.errors import InputError

_Matrix: TypeAlias = Any
_Step: TypeAlias = Callable[[_Matrix], _Matrix]

#: Bytes of the rows that are read at a time.
BLOCK_BYTES = 2**21

#: A memory-mapped array that has fewer bytes is taken for an ordinary one: programs that work in
#: parallel hand arrays to each other in this form.
LARGE_BYTES = 2**30

#: The most bytes of mapped rows that are read into memory at once.
MEMORY_LIMIT = 8 * 2**30


class MappedRows:
    """Rows of a matrix that are read when they are needed.

    Parameters
    ----------
    matrix : memory-mapped array, array or CSR array, (n_rows, n_columns)
        Where the rows are. A mapped file should hold them one after the other (C order).

    Attributes
    ----------
    on_disk : bool
        Whether the matrix is a memory-mapped file.

    Examples
    --------
    >>> rows = MappedRows(np.arange(8.0).reshape(4, 2)).take([3, 1]).then(lambda block: -block)
    >>> rows.shape, rows.gather([1, 0]).tolist()
    ((2, 2), [[-2.0, -3.0], [-6.0, -7.0]])
    """

    ndim = 2

    def __init__(self, matrix: _Matrix) -> None:
        if matrix.ndim != 2:
            raise InputError(f"The features must be a table of two dimensions, not {matrix.ndim}.")
        self.on_disk = isinstance(matrix, np.memmap)
        as_rows: Callable[[Any], Any] = sp.csr_array if sp.issparse(matrix) else np.asarray
        self._matrix = as_rows(matrix)
        self._numbers: NDArray[np.int64] | None = None
        self._steps: tuple[_Step, ...] = ()
        self._no_rows = self._matrix[:0]

    @classmethod
    def of(cls, matrix: Any) -> MappedRows:
        """Return the rows of a matrix; those that are mapped already are returned as they are."""
        return matrix if isinstance(matrix, cls) else cls(matrix)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self), int(self._no_rows.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of what is read."""
        return self._no_rows.dtype

    @property
    def n_bytes(self) -> int:
        """What all rows take when they are read."""
        return len(self) * self._row_bytes()

    @property
    def is_sparse(self) -> bool:
        """Whether what is read is a CSR array."""
        return bool(sp.issparse(self._no_rows))

    @property
    def n_stored(self) -> int:
        """Number of stored cells: all of them, or for a CSR array about as many as it stores."""
        if not self.is_sparse:
            return len(self) * self.shape[1]
        return int(self._matrix.nnz * (len(self) / max(1, self._matrix.shape[0])))

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Where each row is in the matrix, (n_rows,)."""
        return np.arange(self._matrix.shape[0]) if self._numbers is None else self._numbers

    def __len__(self) -> int:
        return int(self._matrix.shape[0]) if self._numbers is None else len(self._numbers)

    def __getitem__(self, key: Any) -> MappedRows:
        """Return some of the rows, or of the rows and columns; nothing is read."""
        if isinstance(key, tuple):
            rows, columns = key
            return self[rows].then(lambda block: block[:, columns])
        if isinstance(key, slice):
            return self if key == slice(None) else self.take(np.arange(len(self))[key])
        key = np.asarray(key)
        return self.take(np.flatnonzero(key) if key.dtype == bool else key)

    def take(self, numbers: Any) -> MappedRows:
        """Return the rows of these numbers, in this order; nothing is read."""
        taken = copy.copy(self)
        taken._numbers = self.numbers[np.asarray(numbers, np.int64)]
        return taken

    def then(self, step: _Step) -> MappedRows:
        """Return these rows with something done to them whenever they are read.

        Parameters
        ----------
        step : callable
            Takes rows as they are read now, and returns as many rows. It must do to each row the
            same whatever rows are beside it.
        """
        changed = copy.copy(self)
        changed._steps = (*self._steps, step)
        changed._no_rows = step(self._no_rows)
        return changed

    def reading_order(self) -> NDArray[np.int64]:
        """Return the numbers of all rows as they are read fastest: of a file from front to back."""
        numbers = self.numbers if self.on_disk else np.arange(len(self))
        return np.argsort(numbers)

    def in_reading_order(self) -> MappedRows:
        """Return the same rows in their reading order."""
        chosen = self.on_disk and self._numbers is not None
        return self.take(self.reading_order()) if chosen else self

    def gather(self, numbers: Any) -> _Matrix:
        """Read the rows of these numbers, (n, n_columns); a file is read from front to back."""
        numbers = np.asarray(numbers, np.int64)
        if self._numbers is not None:
            numbers = self._numbers[numbers]
        if not self.on_disk:
            return self._finished(self._matrix[numbers])
        order = np.argsort(numbers)
        block = np.empty((len(numbers), self._matrix.shape[1]), self._matrix.dtype)
        block[order] = self._matrix[numbers[order]]
        return self._finished(block)

    def blocks(self, n_bytes: int | None = None) -> Iterator[tuple[slice, _Matrix]]:
        """Read all rows, so many bytes of them at a time, and say which they are."""
        n_rows = max(1, (n_bytes or BLOCK_BYTES) // self._row_bytes())
        for start in range(0, len(self), n_rows):
            rows = slice(start, min(start + n_rows, len(self)))
            if self._numbers is None:
                yield rows, self._finished(self._matrix[rows])
            else:
                yield rows, self.gather(np.arange(rows.start, rows.stop))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Read all rows into memory, unless they are too many."""
        if (n_bytes := len(self) * self.shape[1] * self.dtype.itemsize) > MEMORY_LIMIT:
            raise InputError(
                f"The features take {n_bytes:,} bytes, and at most {MEMORY_LIMIT:,} are read "
                "into memory; use fewer rows, or a network, which reads them in batches."
            )
        array = np.empty(self.shape, self.dtype if dtype is None else dtype)
        for rows, block in self.blocks():
            array[rows] = dense(block)
        return array

    def _finished(self, block: _Matrix) -> _Matrix:
        for step in self._steps:
            block = step(block)
        return block

    def _row_bytes(self) -> int:
        if self.is_sparse:
            stored = self._matrix.data.nbytes + self._matrix.indices.nbytes
            return max(1, stored // max(1, self._matrix.shape[0]))
        return max(1, self.shape[1] * self.dtype.itemsize)


def as_mapped(X: Any) -> MappedRows | None:
    """Return rows of float32 or float64 that need not be read into memory; None for all others.

    Parameters
    ----------
    X : anything
        MappedRows, or a memory-mapped array with rows one after the other that takes at least
        :data:`LARGE_BYTES`.
    """
    if isinstance(X, np.memmap):
        by_rows = X.ndim == 2 and X.flags.c_contiguous and X.dtype.kind in "fiub"
        return _as_floats(MappedRows(X)) if by_rows and X.nbytes >= LARGE_BYTES else None
    return _as_floats(X) if isinstance(X, MappedRows) else None


def check_finite(matrix: Any) -> None:
    """Refuse a matrix that holds infinite values; it is read a block at a time."""
    blocks = (block for _, block in MappedRows.of(matrix).blocks())
    values = (block.data if sp.issparse(block) else block for block in blocks)
    if n_infinite := sum(int(np.isinf(each).sum()) for each in values):
        raise InputError(
            f"The features hold {n_infinite:,} infinite values; "
            "replace them by numbers, or by NaN where the value is missing."
        )


def is_sparse(matrix: Any) -> bool:
    """Tell whether rows are those of a CSR array, mapped or not."""
    return matrix.is_sparse if isinstance(matrix, MappedRows) else bool(sp.issparse(matrix))


def dense(matrix: Any) -> NDArray[Any]:
    """Return a matrix as an array in memory."""
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def _as_floats(rows: MappedRows) -> MappedRows:
    if rows.dtype in (np.float32, np.float64):
        return rows
    if rows.dtype.kind not in "fiub":
        raise InputError("The features must be numbers; encode or drop the other columns.")
    return rows.then(lambda block: block.astype(np.float32))
