"""Rows on the device: gathered into dense batches, whatever form they are kept in."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from cgmvae.data.dataset import Matrix


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
            self._starts = torch.as_tensor(matrix.indptr, dtype=torch.int64, device=device)
            self._columns = torch.as_tensor(matrix.indices, dtype=torch.int64, device=device)
            self._values = torch.as_tensor(matrix.data, device=device).to(dtype)
        else:
            self._dense = torch.as_tensor(np.ascontiguousarray(matrix), device=device).to(dtype)

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
