"""Rows of several matrices under each other: put into one, or read where they are.

:func:`stacked` joins the parts that a file was read in. The training numbers its rows as
:class:`StackedRows`: those to learn from, those to choose the best epoch on, and those of further
fits. Each of their matrices may lie on disk; see :mod:`cgmvae.data.mapped`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.mapped import MappedRows, dense


def stacked(parts: Sequence[Any]) -> Any:
    """Put matrices, each (n_rows, n_columns), under each other, as CSR where one of them is."""
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))
    return np.concatenate(parts)


class StackedRows:
    """Rows of several matrices under each other, read when they are needed.

    Parameters
    ----------
    parts : sequence of array, CSR array or MappedRows, each (n_rows, n_columns)
        Their rows are numbered on from one to the next.

    Attributes
    ----------
    on_disk, is_sparse : bool
        Whether any of them is.
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
        """Read the rows of these numbers as a dense array, (n, n_columns)."""
        found = np.empty((len(numbers), self.shape[1]), self.dtype)
        owners = np.searchsorted(self._ends, numbers, side="right")
        for i in np.unique(owners):
            own = owners == i
            found[own] = dense(self.parts[i].gather(numbers[own] - self._starts[i]))
        return found

    def gather_sparse(self, numbers: NDArray[np.int64]) -> sp.csr_array:
        """Read the rows of these numbers as a CSR array, (n, n_columns)."""
        owners = np.searchsorted(self._ends, numbers, side="right")
        places = [np.flatnonzero(owners == i) for i in range(len(self.parts))]
        read = [
            sp.csr_array(part.gather(numbers[own] - start))
            for part, own, start in zip(self.parts, places, self._starts, strict=True)
        ]
        if len(read) == 1:
            return read[0]
        return stacked(read)[np.argsort(np.concatenate(places))]

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Read all rows, a block at a time, and say which they are."""
        for start, part in zip(self._starts.tolist(), self.parts, strict=True):
            for rows, block in part.blocks():
                yield slice(start + rows.start, start + rows.stop), block
