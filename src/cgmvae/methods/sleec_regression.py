"""Regressors of SLEEC: linear maps from features to label embeddings, by ADMM.

They minimise Σ wᵢ ‖zᵢ − V xᵢ‖² + λ ‖V‖² + μ Σ wᵢ ‖V xᵢ‖₁, where zᵢ are embeddings, xᵢ features and
wᵢ weights of rows. Here ``regressor`` is Vᵀ, (n_features, embedding_dim).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from cgmvae.data.dataset import Matrix

Vectors = NDArray[np.float64]

#: Rows of a product of sparse matrices that are computed at a time.
BLOCK_ROWS = 1024


def fit_regressor(
    features: Matrix,
    z: Vectors,
    weights: Vectors,
    *,
    l2_weight: float,
    l1_weight: float,
    penalty: float,
    iterations: int,
    tolerance: float = 1e-4,
) -> Vectors:
    """Return the regressor of least cost, (n_features, embedding_dim).

    Parameters
    ----------
    features : array or CSR array, (n_samples, n_features)
        The xᵢ.
    z : array, (n_samples, embedding_dim)
        The embeddings zᵢ.
    weights : array, (n_samples,)
        The wᵢ, all above 0.
    l2_weight, l1_weight : float
        λ, above 0, and μ. Without μ the answer is ridge regression's, in closed form.
    penalty : float
        ρ of ADMM: how much a difference between V x and its sparse copy costs.
    iterations : int
        Steps of ADMM, at most.
    tolerance : float
        ADMM ends when sparse copies differ from V x, and from those of the step before, by less
        than this share of z.
    """
    if l1_weight == 0:
        return _ridge_solver(features, weights, 1.0, l2_weight)(z)
    solve = _ridge_solver(features, weights, 1.0 + penalty, l2_weight)
    sparse, dual = np.zeros_like(z), np.zeros_like(z)
    near = tolerance * np.linalg.norm(z)
    for _ in range(iterations):
        regressor = solve(z + penalty * (sparse - dual))
        predicted = features @ regressor
        before, sparse = sparse, shrink(predicted + dual, l1_weight / (2 * penalty))
        dual += predicted - sparse
        if max(np.linalg.norm(predicted - sparse), np.linalg.norm(sparse - before)) <= near:
            break
    return regressor


def shrink(values: Vectors, by: float) -> Vectors:
    """Move values towards 0 by so much, and no further than 0."""
    return np.sign(values) * np.maximum(np.abs(values) - by, 0.0)


def _ridge_solver(
    features: Matrix, weights: Vectors, scale: float, l2_weight: float
) -> Callable[[Vectors], Vectors]:
    """Return what solves (scale XᵀWX + λI) V = XᵀW z for V, given z.

    The factored matrix is as large as the number of features or of rows, whichever is less.
    """
    roots = np.sqrt(weights)[:, None]
    weighted: Any = features.multiply(roots).tocsr() if sp.issparse(features) else features * roots
    transposed = weighted.T.tocsr() if sp.issparse(weighted) else weighted.T
    by_rows = weighted.shape[0] < weighted.shape[1]
    gram = scale * outer_gram(weighted if by_rows else transposed)
    gram[np.diag_indices_from(gram)] += l2_weight
    factor = cho_factor(gram, overwrite_a=True)
    if by_rows:
        return lambda z: transposed @ cho_solve(factor, roots * z)
    return lambda z: cho_solve(factor, transposed @ (roots * z))


def outer_gram(matrix: Matrix) -> Vectors:
    """Return the products of all rows with one another, dense, (n_rows, n_rows)."""
    if not sp.issparse(matrix):
        return matrix @ matrix.T
    products = np.empty((matrix.shape[0],) * 2)
    other = matrix.T.tocsr()
    for start in range(0, len(products), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        products[part] = (matrix[part] @ other).toarray()
    return products
