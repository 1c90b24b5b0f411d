"""Matrices in model files: one array each, or the three parts of a CSR array, by name.

The methods that keep rows (:mod:`cgmvae.methods.mlknn`, :mod:`cgmvae.methods.haram_network`) take
their matrices apart and put them together here. What comes from a file may say anything, and is
held against what the method expects; :mod:`cgmvae.methods.persistence` says what is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix, csr_from_parts

_CSR_PARTS = ("data", "indices", "indptr")


def matrix_arrays(name: str, matrix: Matrix | None) -> dict[str, NDArray[Any]]:
    """Return the arrays that a matrix is kept in, by name; none for None.

    Examples
    --------
    >>> list(matrix_arrays("labels", np.eye(2)))
    ['labels']
    >>> list(matrix_arrays("labels", sp.csr_array((2, 2))))
    ['labels.data', 'labels.indices', 'labels.indptr']
    """
    if matrix is None:
        return {}
    if not sp.issparse(matrix):
        return {name: matrix}
    return {f"{name}.{part}": getattr(matrix, part) for part in _CSR_PARTS}


def read_matrix(
    arrays: Mapping[str, NDArray[Any]],
    name: str,
    shape: tuple[int, int],
    numbers: type[np.generic],
    *,
    optional: bool = False,
) -> Matrix | None:
    """Return the matrix that :func:`matrix_arrays` took apart; raise where it is another.

    Parameters
    ----------
    arrays : mapping of str to array
        What a file holds.
    name : str
        The matrix's own.
    shape : (n_rows, n_columns)
        What it must have.
    numbers : type
        What it must be made of, such as ``np.floating``.
    optional : bool
        Whether it may be missing, and None is returned.
    """
    if name in arrays:
        matrix: Matrix = arrays[name]
    elif optional and f"{name}.data" not in arrays:
        return None
    else:
        matrix = csr_from_parts(*(arrays[f"{name}.{part}"] for part in _CSR_PARTS), shape=shape)
    if matrix.shape != shape or not np.issubdtype(matrix.dtype, numbers):
        raise ValueError(f"its {name!r} is not a table of {shape[0]:,} rows of {shape[1]:,}")
    return matrix


def with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
