"""A CSR array from the three arrays that a file keeps it in, each of which may say anything.

scipy trusts them: what points outside an array is read there, and its own check can be passed by
a negative number of cells. Readers of :mod:`cgmvae.data.readers` and of model files come here, and
methods for arrays whose indices are as short as scikit-learn asks for.
"""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp
from numpy.typing import NDArray


def csr_from_parts(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], *, shape: tuple[int, ...]
) -> sp.csr_array:
    """Return the CSR array of these parts; those that do not fit together cause a ValueError.

    Parameters
    ----------
    data : array, (n_cells,)
        Values of the cells that are stored.
    indices : array of int, (n_cells,)
        Their columns.
    indptr : array of int, (n_rows + 1,)
        Where each row's cells begin, and where the last row's end.
    shape : (n_rows, n_columns)

    Examples
    --------
    >>> import numpy as np
    >>> parts = np.ones(1), np.array([2]), np.array([0, 0, 1])
    >>> csr_from_parts(*parts, shape=(2, 3)).toarray().tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if {part.ndim for part in (data, indices, indptr)} != {1} or len(data) != len(indices):
        raise ValueError("the parts of a sparse table differ in length")
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise ValueError("the places of a sparse table are not whole numbers")
    rises = len(indptr) == shape[0] + 1 and bool((indptr[1:] >= indptr[:-1]).all())
    if not rises or indptr[0] != 0 or indptr[-1] > len(indices):
        raise ValueError("the rows of a sparse table do not follow each other")
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        raise ValueError("a cell of a sparse table lies outside of it")
    return sp.csr_array((data, indices, indptr), shape)


def with_short_indices(matrix: sp.csr_array) -> sp.csr_array:
    """Return a CSR array whose indices have 32 bits, where these are enough.

    Some functions of scikit-learn take no others. The values are those of ``matrix``, not a copy.
    """
    short = sp.get_index_dtype(maxval=max(matrix.nnz, *matrix.shape))
    indices, starts = (part.astype(short, copy=False) for part in (matrix.indices, matrix.indptr))
    return sp.csr_array((matrix.data, indices, starts), shape=matrix.shape)
