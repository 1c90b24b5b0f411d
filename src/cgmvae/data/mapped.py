"""Rows that are read only when they are needed, from a memory-mapped file or an array.

A matrix larger than memory is memory-mapped. :class:`MappedRows` is a view of some of its rows,
with the transformations to apply to them, and reads them by index or in blocks; selecting rows or
columns and scaling copy nothing. The format :mod:`cgmvae.data.readers.mapped` gives features in
this form, scalers are fitted on blocks, and training gathers its batches from :class:`StackedRows`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.errors import InputError

_Matrix: TypeAlias = Any
_Step: TypeAlias = Callable[[_Matrix], _Matrix]

#: Bytes per block of rows.
BLOCK_BYTES = 2**21

#: A smaller memory-mapped array is treated as an ordinary one: joblib passes arrays between
#: processes in this form.
LARGE_BYTES = 2**30

#: Rows that quantiles and principal components are learned on.
SAMPLE_ROWS = 20_000

#: Upper limit of the bytes that are read into memory at once.
MEMORY_LIMIT = 8 * 2**30


class MappedRows:
    """Rows of a matrix that are read only when they are needed.

    Parameters
    ----------
    matrix : memory-mapped array, array or CSR array, (n_rows, n_columns)
        The source of the rows. A memory-mapped file should be in C order.

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
            raise InputError(f"The features must have two dimensions, not {matrix.ndim}.")
        self.on_disk = isinstance(matrix, np.memmap)
        as_rows: Callable[[Any], Any] = sp.csr_array if sp.issparse(matrix) else np.asarray
        self._matrix = as_rows(matrix)
        self._numbers: NDArray[np.int64] | None = None
        self._steps: tuple[_Step, ...] = ()
        self._no_rows = self._matrix[:0]
        self._widest = self._no_rows.shape[1]

    @classmethod
    def of(cls, matrix: Any) -> MappedRows:
        """Return the rows of a matrix; MappedRows are returned unchanged."""
        return matrix if isinstance(matrix, cls) else cls(matrix)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self), int(self._no_rows.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the rows that are read."""
        return self._no_rows.dtype

    @property
    def n_bytes(self) -> int:
        """Size of all rows in memory, in bytes."""
        return len(self) * self._row_bytes()

    @property
    def is_sparse(self) -> bool:
        """Whether rows are read as a CSR array."""
        return bool(sp.issparse(self._no_rows))

    @property
    def n_stored(self) -> int:
        """Number of stored values; an estimate where some rows of a CSR array are selected."""
        if not self.is_sparse:
            return len(self) * self.shape[1]
        return int(self._matrix.nnz * (len(self) / max(1, self._matrix.shape[0])))

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Index of each row in the matrix, (n_rows,)."""
        return np.arange(self._matrix.shape[0]) if self._numbers is None else self._numbers

    def __len__(self) -> int:
        return int(self._matrix.shape[0]) if self._numbers is None else len(self._numbers)

    def __getitem__(self, key: Any) -> MappedRows:
        """Select rows, or rows and columns; nothing is read."""
        if isinstance(key, tuple):
            rows, columns = key
            return self[rows].then(lambda block: block[:, columns])
        if isinstance(key, slice):
            return self if key == slice(None) else self.take(np.arange(len(self))[key])
        key = np.asarray(key)
        return self.take(np.flatnonzero(key) if key.dtype == bool else key)

    def take(self, numbers: Any) -> MappedRows:
        """Select rows by index, in this order; nothing is read."""
        taken = copy.copy(self)
        taken._numbers = self.numbers[np.asarray(numbers, np.int64)]
        return taken

    def then(self, step: _Step) -> MappedRows:
        """Return these rows with a transformation that is applied whenever they are read.

        It maps a block of rows to as many rows, each independently of the others.
        """
        changed = copy.copy(self)
        changed._steps = (*self._steps, step)
        changed._no_rows = step(self._no_rows)
        changed._widest = max(self._widest, changed._no_rows.shape[1])
        return changed

    def reading_order(self) -> NDArray[np.int64]:
        """Return all row indices in the order that reads fastest: a file from front to back."""
        numbers = self.numbers if self.on_disk else np.arange(len(self))
        return np.argsort(numbers)

    def in_reading_order(self) -> MappedRows:
        """Return the same rows in their reading order."""
        chosen = self.on_disk and self._numbers is not None
        return self.take(self.reading_order()) if chosen else self

    def gather(self, numbers: Any) -> _Matrix:
        """Read rows by index, (n, n_columns); a file is read from front to back."""
        numbers = np.asarray(numbers, np.int64)
        if self._numbers is not None:
            numbers = self._numbers[numbers]
        if not self.on_disk:
            return self._transformed(self._matrix[numbers])
        order = np.argsort(numbers)
        block = np.empty((len(numbers), self._matrix.shape[1]), self._matrix.dtype)
        block[order] = self._matrix[numbers[order]]
        return self._transformed(block)

    def sample(self) -> NDArray[Any]:
        """Read at most :data:`SAMPLE_ROWS` rows at regular distances, (n, n_columns), dense."""
        chosen = np.linspace(0, len(self) - 1, min(len(self), SAMPLE_ROWS)).astype(np.int64)
        return dense(self.gather(chosen))

    def blocks(self, n_bytes: int | None = None) -> Iterator[tuple[slice, _Matrix]]:
        """Yield all rows in blocks of about ``n_bytes``, each with its slice of row indices."""
        n_rows = max(1, (n_bytes or BLOCK_BYTES) // self._row_bytes())
        for start in range(0, len(self), n_rows):
            rows = slice(start, min(start + n_rows, len(self)))
            if self._numbers is None:
                yield rows, self._transformed(self._matrix[rows])
            else:
                yield rows, self.gather(np.arange(rows.start, rows.stop))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Read all rows into memory, unless they are too large."""
        if (n_bytes := len(self) * self.shape[1] * self.dtype.itemsize) > MEMORY_LIMIT:
            raise InputError(
                f"The features take {n_bytes:,} bytes, and at most {MEMORY_LIMIT:,} are read "
                "into memory; use fewer rows, or a neural method, which reads them in batches."
            )
        array = np.empty(self.shape, self.dtype if dtype is None else dtype)
        for rows, block in self.blocks():
            array[rows] = dense(block)
        return array

    def _transformed(self, block: _Matrix) -> _Matrix:
        """Return the block after all steps; of dense rows, what is between them is small."""
        if not self._steps or sp.issparse(block) or self.is_sparse:
            return self._after_steps(block)
        found = np.empty((block.shape[0], self.shape[1]), self.dtype)
        n_rows = max(1, BLOCK_BYTES // max(1, self._widest * self.dtype.itemsize))
        for start in range(0, len(found), n_rows):
            found[start : start + n_rows] = self._after_steps(block[start : start + n_rows])
        return found

    def _after_steps(self, block: _Matrix) -> _Matrix:
        for step in self._steps:
            block = step(block)
        return block

    def _row_bytes(self) -> int:
        if self.is_sparse:
            stored = self._matrix.data.nbytes + self._matrix.indices.nbytes
            return max(1, stored // max(1, self._matrix.shape[0]))
        return max(1, self.shape[1] * self.dtype.itemsize)


def as_mapped(X: Any) -> MappedRows | None:
    """Return rows of float32 or float64 that can stay on disk; None for any other input.

    These are MappedRows, and memory-mapped arrays in C order of at least :data:`LARGE_BYTES`.
    """
    if isinstance(X, np.memmap):
        by_rows = X.ndim == 2 and X.flags.c_contiguous and X.dtype.kind in "fiub"
        return _as_floats(MappedRows(X)) if by_rows and X.nbytes >= LARGE_BYTES else None
    return _as_floats(X) if isinstance(X, MappedRows) else None


def check_finite(matrix: Any) -> None:
    """Reject a matrix that holds infinite values; it is read in blocks."""
    blocks = (block for _, block in MappedRows.of(matrix).blocks())
    values = (block.data if sp.issparse(block) else block for block in blocks)
    if n_infinite := sum(int(np.isinf(each).sum()) for each in values):
        raise InputError(
            f"The features hold {n_infinite:,} infinite values; "
            "replace them with numbers, or with NaN where the value is missing."
        )


def is_sparse(matrix: Any) -> bool:
    """Return whether the rows of a matrix are sparse, mapped or not."""
    return matrix.is_sparse if isinstance(matrix, MappedRows) else bool(sp.issparse(matrix))


def is_binary(matrix: Any) -> bool:
    """Return whether the rows are sparse and all that they store is 1; all of them are read."""
    if not is_sparse(matrix):
        return False
    rows = MappedRows.of(matrix)
    return bool((rows.gather(np.arange(len(rows))).data == 1).all())


def dense(matrix: Any) -> NDArray[Any]:
    """Return a matrix as a dense array in memory."""
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def _as_floats(rows: MappedRows) -> MappedRows:
    if rows.dtype in (np.float32, np.float64):
        return rows
    if rows.dtype.kind not in "fiub":
        raise InputError("The features must be numbers; encode or drop the other columns.")
    return rows.then(lambda block: block.astype(float_type(rows.dtype)))


def float_type(dtype: np.dtype[Any]) -> type[np.floating]:
    """Return float32 if it holds all values of a dtype exactly, otherwise float64."""
    return np.float32 if np.can_cast(dtype, np.float32) else np.float64


def vstack(parts: Sequence[Any]) -> Any:
    """Stack matrices, each (n_rows, n_columns), vertically; as CSR if one of them is."""
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))
    return np.concatenate(parts)


class StackedRows:
    """Rows of several matrices, stacked vertically and read only when they are needed.

    Training numbers its rows this way: the training rows, the validation rows, and those of further
    fits. Each matrix may be on disk.

    Parameters
    ----------
    parts : sequence of array, CSR array or MappedRows, each (n_rows, n_columns)
        Row indices continue from one part to the next.

    Attributes
    ----------
    on_disk, is_sparse : bool
        Whether any of the parts is.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = [MappedRows.of(part) for part in parts]
        sizes = [len(part) for part in self.parts]
        self._ends = np.cumsum(sizes)
        self._starts = self._ends - sizes
        self.shape = (int(self._ends[-1]), self.parts[0].shape[1])
        self.n_bytes = sum(part.n_bytes for part in self.parts)
        self.n_stored = sum(part.n_stored for part in self.parts)
        self.dtype = np.result_type(*(part.dtype for part in self.parts))
        self.on_disk = any(part.on_disk for part in self.parts)
        self.is_sparse = any(part.is_sparse for part in self.parts)

    def gather(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Read rows by index as a dense array, (n, n_columns)."""
        found = np.empty((len(numbers), self.shape[1]), self.dtype)
        owners = np.searchsorted(self._ends, numbers, side="right")
        for i in np.unique(owners):
            own = owners == i
            found[own] = dense(self.parts[i].gather(numbers[own] - self._starts[i]))
        return found

    def gather_sparse(self, numbers: NDArray[np.int64]) -> sp.csr_array:
        """Read rows by index as a CSR array, (n, n_columns)."""
        owners = np.searchsorted(self._ends, numbers, side="right")
        positions = [np.flatnonzero(owners == i) for i in range(len(self.parts))]
        read = [
            sp.csr_array(part.gather(numbers[own] - start))
            for part, own, start in zip(self.parts, positions, self._starts, strict=True)
        ]
        if len(read) == 1:
            return read[0]
        return vstack(read)[np.argsort(np.concatenate(positions))]

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Yield all rows in blocks, each with its slice of row indices."""
        for start, part in zip(self._starts.tolist(), self.parts, strict=True):
            for rows, block in part.blocks():
                yield slice(start + rows.start, start + rows.stop), block
