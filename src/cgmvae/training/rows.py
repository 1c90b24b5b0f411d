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


class RowStore:
    """A matrix on the device whose rows are gathered by number; sparse ones stay sparse.

    Parameters
    ----------
    matrix : array or CSR array, (n_rows, n_columns)
    dtype : torch.dtype
        Of what :meth:`gather` returns.
    device : torch.device
    """

    def __init__(self, matrix: Matrix, *, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype = matrix.shape, dtype
        self._sparse = sp.issparse(matrix)
        if self._sparse:
            matrix = sp.csr_array(matrix)
            if not matrix.has_canonical_format:
                matrix = matrix.copy()
                matrix.sum_duplicates()
            self._starts = _tensor(matrix.indptr, torch.int64, device)
            self._columns = _tensor(matrix.indices, torch.int64, device)
            self._values = _tensor(matrix.data, dtype, device)
        else:
            self._dense = _tensor(np.ascontiguousarray(matrix), dtype, device)

    def digest(self) -> str:
        """Return a hash of what is stored, so that other data are told apart."""
        parts = (self._starts, self._columns, self._values) if self._sparse else (self._dense,)
        return digest(*(part.cpu().numpy() for part in parts))

    def gather(self, rows: Tensor) -> Tensor:
        """Return rows as a dense tensor, (*rows.shape, n_columns)."""
        if not self._sparse:
            return self._dense[rows]
        flat = rows.reshape(-1)
        starts = self._starts[flat]
        lengths = self._starts[flat + 1] - starts
        ends = lengths.cumsum(0)
        places = torch.arange(len(flat), device=flat.device).repeat_interleave(lengths)
        offsets = torch.arange(len(places), device=flat.device) - (ends - lengths)[places]
        positions = starts[places] + offsets
        out = torch.zeros(len(flat), self.shape[1], dtype=self.dtype, device=flat.device)
        out[places, self._columns[positions]] = self._values[positions]
        return out.reshape(*rows.shape, self.shape[1])
