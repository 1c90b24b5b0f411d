"""Rows on the device: gathered into dense batches, whatever form they are kept in."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgmvae.data.dataset import Matrix


def digest(*arrays: NDArray[Any]) -> str:
    """Return a short hash of types, shapes and contents."""
    total = hashlib.blake2b(digest_size=16)
    for array in arrays:
        total.update(f"{array.dtype.str} {array.shape} ".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def _tensor(array: NDArray[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    writable = array if array.flags.writeable else array.copy()  # torch warns of the others
    return torch.as_tensor(writable, device=device).to(dtype)


#: The share of an accelerator's free memory that a sparse matrix may take as a dense one.
_DENSE_SHARE = 1 / 8


def _fits_dense(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether an accelerator holds a dense matrix of this shape with ease."""
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return shape[0] * shape[1] * dtype.itemsize <= free * _DENSE_SHARE


class RowStore:
    """A matrix on the device whose rows are gathered by number; sparse ones stay sparse.

    An accelerator gathers dense rows without waiting, so where it has room enough a sparse matrix
    is spread out there.

    Parameters
    ----------
    matrix : array or CSR array, (n_rows, n_columns)
    dtype : torch.dtype
        Of what :meth:`gather` returns.
    device : torch.device
    """

    def __init__(self, matrix: Matrix, *, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype = matrix.shape, dtype
        self._sparse: tuple[Tensor, Tensor, Tensor] | None = None
        self._dense: Tensor | None = None
        if not sp.issparse(matrix):
            self._dense = _tensor(np.ascontiguousarray(matrix), dtype, device)
            return
        matrix = sp.csr_array(matrix)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        self._sparse = (
            _tensor(matrix.indptr, torch.int64, device),
            _tensor(matrix.indices, torch.int64, device),
            _tensor(matrix.data, dtype, device),
        )
        if _fits_dense(self.shape, dtype, device):
            self._dense = self.gather(torch.arange(self.shape[0], device=device))

    def digest(self) -> str:
        """Return a hash of what is stored, so that other data are told apart."""
        parts = (self._dense,) if self._sparse is None else self._sparse
        return digest(*(part.cpu().numpy() for part in parts if part is not None))

    def gather(self, rows: Tensor) -> Tensor:
        """Return rows as a dense tensor, (*rows.shape, n_columns)."""
        if self._dense is not None:
            return self._dense[rows]
        assert self._sparse is not None
        bounds, columns, values = self._sparse
        flat = rows.reshape(-1)
        starts = bounds[flat]
        lengths = bounds[flat + 1] - starts
        ends = lengths.cumsum(0)
        places = torch.arange(len(flat), device=flat.device).repeat_interleave(lengths)
        offsets = torch.arange(len(places), device=flat.device) - (ends - lengths)[places]
        positions = starts[places] + offsets
        out = torch.zeros(len(flat), self.shape[1], dtype=self.dtype, device=flat.device)
        out[places, columns[positions]] = values[positions]
        return out.reshape(*rows.shape, self.shape[1])
