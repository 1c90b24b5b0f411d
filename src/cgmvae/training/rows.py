"""Rows for training: gathered into batches on the device, whatever form they are stored in.

Rows on disk (:mod:`cgmvae.data.mapped`) stay there, and each batch is read when it is needed. So do
many rows in memory if the CPU computes: a scaled copy would double them.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cgmvae.data.dataset import Matrix, canonical
from cgmvae.data.mapped import StackedRows
from cgmvae.nn.batch import Batch
from cgmvae.nn.sparse import SparseRows


def digest(*arrays: NDArray[Any]) -> str:
    """Return a short hash of types, shapes and contents."""
    total = hashlib.blake2b(digest_size=16)
    for array in arrays:
        total.update(f"{array.dtype.str} {array.shape} ".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


#: The share of a GPU's free memory that a sparse matrix may take as a dense one.
_DENSE_SHARE = 1 / 8

#: The most bytes of rows in memory that are copied for training on a CPU.
_COPIED_BYTES = 2**26

#: Sparse batches pay off from this many columns on, if at most this share of the cells is stored.
_WIDE, _SPARSE = 1000, 0.1

#: Rows of a matrix on disk that enter its hash.
_HASHED_ROWS = 1024


def is_wide(rows: StackedRows, device: torch.device) -> bool:
    """Return whether batches are better left sparse: on a CPU, many columns, mostly zeros."""
    n_cells = rows.shape[0] * rows.shape[1]
    wide = rows.is_sparse and device.type == "cpu" and rows.shape[1] >= _WIDE
    return wide and rows.n_stored <= _SPARSE * n_cells


class RowStore:
    """A matrix whose rows are gathered by number.

    Rows on disk, and many rows in memory for training on a CPU, are read where they are. Others are
    copied to the device, block by block. Sparse ones stay sparse, but a GPU gathers dense rows
    without waiting, so if it has enough memory a sparse matrix is stored there as a dense one.
    ``leave_sparse`` is whether :meth:`batch` may return sparse rows.
    """

    def __init__(
        self,
        matrix: Matrix | StackedRows,
        *,
        dtype: torch.dtype,
        device: torch.device,
        leave_sparse: bool = False,
    ) -> None:
        rows = matrix if isinstance(matrix, StackedRows) else StackedRows([matrix])
        self.shape, self.dtype, self.device = rows.shape, dtype, device
        self.leaves_sparse = leave_sparse and is_wide(rows, device)
        many = device.type == "cpu" and rows.n_bytes > _COPIED_BYTES
        self._source = rows if rows.on_disk or many else None
        self._sparse: tuple[Tensor, Tensor, Tensor] | None = None
        self._dense: Tensor | None = None
        if self._source is not None:
            return
        if not rows.is_sparse:
            self._dense = torch.empty(rows.shape, dtype=dtype, device=device)
            for where, block in rows.blocks():
                # torch warns about read-only arrays.
                writable = np.require(block, requirements=["C", "W"])
                self._dense[where] = torch.from_numpy(writable).to(device)
            return
        self._sparse = _as_sparse(rows, dtype, device)
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
        if self.shape[0] * self.shape[1] * dtype.itemsize <= free * _DENSE_SHARE:
            self._dense = self.gather(torch.arange(self.shape[0], device=device))

    def digest(self) -> str:
        """Return a hash of what is stored, to tell it from other data.

        For rows on disk it covers the shape and some rows at even distances, since reading all
        would take as long as an epoch: a change of another row may go unnoticed.
        """
        if (source := self._source) is not None and source.on_disk:
            chosen = np.linspace(0, self.shape[0] - 1, min(_HASHED_ROWS, self.shape[0]))
            return digest(np.array(self.shape), source.gather(chosen.astype(np.int64)))
        if source is not None:
            blocks = (block for _, block in source.blocks())
            arrays = (
                (each.indptr, each.indices, each.data) if sp.issparse(each) else (each,)
                for each in blocks
            )
            return digest(np.array(self.shape), np.array([digest(*each) for each in arrays]))
        parts = (self._dense,) if self._sparse is None else self._sparse
        return digest(*(part.cpu().numpy() for part in parts if part is not None))

    @property
    def on_device(self) -> bool:
        """Whether the rows are dense ones in the device's memory."""
        return self._dense is not None

    def gather(self, rows: Tensor) -> Tensor:
        """Return rows as a dense tensor, (*rows.shape, n_columns)."""
        if self._dense is not None:
            return self._dense[rows]
        if self._source is not None:
            return self._read(rows)
        found = self.gather_sparse(rows.reshape(1, -1)).dense()
        return found.reshape(*rows.shape, self.shape[1])

    def batch(self, rows: Tensor) -> Tensor | SparseRows:
        """Return rows as a network takes them: sparse if that is allowed and pays off."""
        return self.gather_sparse(rows) if self.leaves_sparse else self.gather(rows)

    def gather_sparse(self, rows: Tensor) -> SparseRows:
        """Return rows of sparse features as sparse rows, (*rows.shape, n_columns)."""
        if self._source is not None:
            found = self._source.gather_sparse(rows.reshape(-1).numpy())
            return sparse_rows(found, rows.shape[0], self.dtype)
        assert self._sparse is not None
        ends, columns, values = self._sparse
        flat = rows.reshape(-1)
        starts = ends[flat]
        lengths = ends[flat + 1] - starts
        bounds = F.pad(lengths.cumsum(0), (1, 0))
        positions = torch.arange(int(bounds[-1]), device=rows.device)
        positions += (starts - bounds[:-1]).repeat_interleave(lengths)
        own = bounds[_bounds_of_members(*rows.shape).to(rows.device)]
        return SparseRows(values[positions], columns[positions].long(), own, self.shape[1])

    def _read(self, rows: Tensor) -> Tensor:
        """Return rows from where they are; rows that all members need are read once."""
        assert self._source is not None
        numbers = rows.cpu().numpy()
        if numbers.ndim > 1 and (numbers == numbers[:1]).all():
            numbers = numbers[:1]
        found = torch.from_numpy(self._source.gather(numbers.reshape(-1)))
        found = found.to(self.device, self.dtype).reshape(*numbers.shape, self.shape[1])
        return found.expand(*rows.shape, -1)


def sparse_rows(matrix: sp.csr_array, n_members: int, dtype: torch.dtype) -> SparseRows:
    """Return the rows of a CSR array, member after member, (n_members, n_rows, n_columns)."""
    own = _bounds_of_members(n_members, matrix.shape[0] // n_members)
    return SparseRows(
        torch.from_numpy(matrix.data).to(dtype),
        torch.from_numpy(matrix.indices).long(),
        torch.from_numpy(matrix.indptr).long()[own],
        matrix.shape[1],
    )


def _bounds_of_members(n_members: int, n_rows: int) -> Tensor:
    """Return where the bounds of each member's rows are among those of all, int64."""
    return torch.arange(n_members)[:, None] * n_rows + torch.arange(n_rows + 1)


def for_members(features: Tensor | SparseRows, n_members: int) -> Tensor | SparseRows:
    """Repeat rows that all members share, (n_members, n_rows, n_columns)."""
    if isinstance(features, Tensor):
        return features.expand(n_members, -1, -1)
    return features if features.shape[0] == n_members else features.repeat(n_members)


def _as_sparse(
    rows: StackedRows, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return where each row ends, and the columns and values of all stored cells."""
    lengths = [np.diff(canonical(block).indptr) for _, block in rows.blocks()]
    ends = np.concatenate([[0], np.cumsum(np.concatenate(lengths), dtype=np.int64)])
    columns = torch.empty(int(ends[-1]), dtype=torch.int32)
    values = torch.empty(int(ends[-1]), dtype=dtype)
    for where, block in rows.blocks():
        block, cells = canonical(block), slice(ends[where.start], ends[where.stop])
        columns.numpy()[cells], values.numpy()[cells] = block.indices, block.data
    return torch.from_numpy(ends).to(device), columns.to(device), values.to(device)


class TrainingRows(NamedTuple):
    """All rows that members refer to by number, on the device."""

    features: RowStore
    positive: RowStore
    unknown: RowStore | None
    weight: Tensor | None
    """Weight of each row, (n_rows,)"""

    @property
    def on_device(self) -> bool:
        """Whether batches are gathered without the host: all rows are there as dense ones."""
        return all(store.on_device for store in self[:3] if store is not None)

    def batch(self, rows: Tensor, weight: Tensor) -> Batch:
        """Gather rows, (n_members, n_rows)."""
        positive, known = self._labels(rows)
        return Batch(self.features.batch(rows), positive, known, self._weighted(rows, weight))

    def _labels(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return which labels apply, and which are known, (n_members, n_rows, n_labels)."""
        positive = self.positive.gather(rows)
        if self.unknown is None:
            return positive, positive.new_ones(()).expand_as(positive)
        known = ~self.unknown.gather(rows)
        return positive & known, known

    def _weighted(self, rows: Tensor, weight: Tensor) -> Tensor:
        return weight if self.weight is None else weight * self.weight[rows]

    def digests(self) -> list[str]:
        """Return a hash of each part."""
        weights = [] if self.weight is None else [digest(self.weight.detach().cpu().numpy())]
        return [store.digest() for store in self[:3] if store is not None] + weights
