"""Label embeddings of SLEEC: rows that share labels, and vectors whose products say so.

The Gram matrix of the label vectors is kept for pairs of label neighbours only (Ω of the paper),
and completed to one of low rank by singular value projection (SVP): a gradient step on the squared
error over Ω, then the nearest positive semidefinite matrix of that rank.

Where the paper is silent: label vectors have length 1, so that their products are cosines; a row is
its own neighbour; a pair counts where either row chose the other; rows that are equally near are
chosen among at random, since the first of them would otherwise be everybody's neighbours.

Unknown labels: two rows are compared on the labels that both know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Vectors = NDArray[np.float64]

#: Rows, and pairs of rows, that are worked on at a time.
BLOCK_ROWS, BLOCK_PAIRS = 1024, 1 << 16

#: Directions in which eigenvectors are looked for beside those that are known.
OVERSAMPLING = 8

#: Differences of cosines below this are ties.
TIE = 1e-9


class Pairs(NamedTuple):
    """Observed entries of a symmetric matrix: those on and above its diagonal, row by row."""

    n_rows: int
    first: NDArray[np.int64]
    """(n_pairs,)"""
    second: NDArray[np.int64]
    values: Vectors

    def square_sum(self, values: Vectors) -> float:
        """Return the sum of squares over the matrix, both halves counted."""
        return float(np.where(self.first == self.second, 1.0, 2.0) @ values**2)

    def residuals(self, z: Vectors) -> Vectors:
        """Return the observed values less the products of embeddings ``z``, (n_pairs,)."""
        products = np.empty(len(self.first))
        for start in range(0, len(products), BLOCK_PAIRS):
            part = slice(start, start + BLOCK_PAIRS)
            np.einsum("pd,pd->p", z[self.first[part]], z[self.second[part]], out=products[part])
        return self.values - products

    def half(self, values: Vectors) -> sp.csr_array:
        """Return the matrix that, with its transpose added, has these values where observed."""
        data = np.where(self.first == self.second, 0.5, 1.0) * values
        starts = np.searchsorted(self.first, np.arange(self.n_rows + 1))
        return sp.csr_array((data, self.second, starts), (self.n_rows, self.n_rows))


def label_neighbours(
    labels: sp.csr_array,
    unknown: sp.csr_array | None,
    n_neighbours: int,
    rng: np.random.Generator,
) -> Pairs:
    """Return each row's nearest rows by cosine of the label vectors, as pairs with the cosine.

    Parameters
    ----------
    labels : CSR array of floats, (n_samples, n_labels)
        0/1; 0 where unknown.
    unknown : CSR array of floats, (n_samples, n_labels), or None
        1 where a label is not known.
    n_neighbours : int
        Neighbours of a row, itself included; all rows where there are fewer.
    rng : Generator
        Chooses among rows that are equally near.
    """
    n_rows = labels.shape[0]
    n_neighbours = min(n_neighbours, n_rows)
    found, values = np.empty((n_rows, n_neighbours), np.int64), np.empty((n_rows, n_neighbours))
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = np.arange(start, min(start + BLOCK_ROWS, n_rows))
        cosine = label_cosine(labels, unknown, rows)
        distance = TIE * rng.random(cosine.shape) - cosine
        distance[np.arange(len(rows)), rows] = -np.inf
        nearest = np.argpartition(distance, n_neighbours - 1, axis=1)[:, :n_neighbours]
        found[rows], values[rows] = nearest, np.take_along_axis(cosine, nearest, axis=1)
    rows = np.repeat(np.arange(n_rows), n_neighbours)
    first, second = np.minimum(rows, found.ravel()), np.maximum(rows, found.ravel())
    _, once = np.unique(first * n_rows + second, return_index=True)
    return Pairs(n_rows, first[once], second[once], values.ravel()[once])


def label_cosine(
    labels: sp.csr_array, unknown: sp.csr_array | None, rows: NDArray[np.int64]
) -> Vectors:
    """Return the cosine of some rows with all rows, on the labels that both know.

    It is 0 for a row that has none of these labels.
    """
    own = labels[rows]
    shared = (own @ labels.T).toarray()
    own_size, other_size = own.sum(axis=1)[:, None], labels.sum(axis=1)
    if unknown is not None:
        own_size = own_size - (own @ unknown.T).toarray()
        other_size = other_size - (unknown[rows] @ labels.T).toarray()
    return shared / np.sqrt(np.maximum(own_size * other_size, 1.0))


def complete(
    pairs: Pairs,
    rank: int,
    iterations: int,
    rng: np.random.Generator,
    *,
    tolerance: float = 1e-3,
) -> tuple[Vectors, list[float]]:
    """Return embeddings z whose products z zᵀ come near the observed values, by SVP.

    Parameters
    ----------
    pairs : Pairs
        The observed entries.
    rank : int
        Length of an embedding, at most ``n_rows``.
    iterations : int
        Steps, at most.
    rng : Generator
        Draws directions in which eigenvectors are looked for.
    tolerance : float
        A step that lowers the error by a smaller share is the last.

    Returns
    -------
    z : array, (n_rows, rank)
        The embeddings.
    errors : list of float
        Sum of squared errors over the observed entries, before the first step and after each; it
        falls from step to step.
    """
    z, residuals = np.zeros((pairs.n_rows, rank)), pairs.values
    errors = [pairs.square_sum(residuals)]
    # The inverse of the observed share suits entries that are observed at random (Jain, Meka,
    # Dhillon 2010); it is halved while the error would rise, down to 1, where it cannot.
    step = max(1.0, pairs.n_rows**2 / pairs.square_sum(np.ones(len(residuals))))
    for _ in range(iterations):
        half = pairs.half(residuals)
        while True:
            moved = _project(z, step * half, rng)
            residuals = pairs.residuals(moved)
            error = pairs.square_sum(residuals)
            if error < errors[-1] or step == 1.0:
                break
            step = max(step / 2, 1.0)
        if error >= errors[-1]:
            break
        z = moved
        errors.append(error)
        if errors[-1] > (1 - tolerance) * errors[-2]:
            break
    return z, errors


def _project(z: Vectors, half: sp.csr_array, rng: np.random.Generator) -> Vectors:
    """Return z of the positive semidefinite matrix of its rank that is nearest to A.

    A is z zᵀ + half + halfᵀ, and no matrix of its size is formed. Eigenvectors are taken from a
    space that holds z and A z. They become exact from step to step, and however rough they are, the
    new matrix is no further from A than z zᵀ is: a gradient step of 1 cannot raise the error.
    """
    rank = z.shape[1]

    def product(vectors: Vectors) -> Vectors:
        return z @ (z.T @ vectors) + half @ vectors + half.T @ vectors

    basis = _search_space(z, product, rng)
    values, vectors = np.linalg.eigh(basis.T @ product(basis))
    return basis @ (vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0)))


def _search_space(
    z: Vectors, product: Callable[[Vectors], Vectors], rng: np.random.Generator
) -> Vectors:
    """Return an orthonormal basis of z, some random directions, and products with all these."""
    n_rows, rank = z.shape
    n_new = OVERSAMPLING if z.any() else rank + OVERSAMPLING
    if 2 * (rank + n_new) >= n_rows:
        return np.eye(n_rows)
    start, _ = np.linalg.qr(np.hstack([z, rng.standard_normal((n_rows, n_new))]))
    basis, _ = np.linalg.qr(np.hstack([start, product(start)]))
    return basis
