"""Nearest neighbors by Euclidean distance, among all rows.

Distances are computed by float64 matrix products, one block of queries at a time, and compared in
single precision. Equal values there are ties, which the earlier row wins, so that neighbors do not
depend on the other rows of the block. scikit-learn's brute-force search breaks ties in no order
that is defined: on sider, 88% of the rows get other neighbors.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense

#: Distances held in memory at a time, at about 16 bytes each: few, so that they stay in the cache.
_HELD_DISTANCES = 1 << 18

#: Fraction of a query's squared norm below which a squared distance is rounding error.
ROUNDING = 1e-12

#: Groups of columns per requested smallest value.
_GROUPS = 16


class NearestRows:
    """Nearest-neighbor search among rows, (n_rows, n_features)."""

    def __init__(self, rows: Matrix) -> None:
        # A common offset of all rows would cost precision, so the first row is subtracted.
        self._origin = None if sp.issparse(rows) else rows[0].astype(np.float64)
        self._rows = self._moved(rows)
        self._squares = _squared_norms(self._rows)

    def find(
        self, queries: Matrix, n_wanted: int, own: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Return the indices of the nearest rows of each query, (n_queries, n_wanted).

        Nearest first; −1 if there are fewer rows. A query is not compared with its ``own`` row,
        (n_queries,), unless that is −1.
        """
        return self.search(queries, n_wanted, own)[1]

    def search(
        self, queries: Matrix, n_wanted: int, own: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return squared distances, infinite if there are none, and what :meth:`find` returns."""
        n_queries = queries.shape[0]
        squared = np.full((n_queries, n_wanted), np.inf, np.float32)
        found = np.full((n_queries, n_wanted), -1)
        if n_wanted == 0:
            return squared, found
        size = max(1, _HELD_DISTANCES // max(n_wanted, len(self._squares)))
        for start in range(0, n_queries, size):
            part = slice(start, start + size)
            between = self._squared_distances(queries[part])
            if own is not None:
                excluded = np.flatnonzero(own[part] >= 0)
                between[excluded, own[part][excluded]] = np.inf
            near, best = smallest(between, n_wanted)
            squared[part, : best.shape[1]] = near
            found[part, : best.shape[1]] = np.where(np.isinf(near), -1, best)
        return squared, found

    def _moved(self, rows: Matrix) -> Matrix:
        return rows.astype(np.float64) if self._origin is None else dense(rows) - self._origin

    def _squared_distances(self, queries: Matrix) -> NDArray[np.float32]:
        """Return squared Euclidean distances, (n_queries, n_rows), all finite."""
        values = self._moved(queries)
        squares = _squared_norms(values)[:, None]
        if sp.issparse(self._rows):  # with dense queries in half the time of sparse ones
            squared = np.ascontiguousarray((self._rows @ dense(-2 * values).T).T)
            squared += self._squares
        else:  # torch, whose threads a caller that has threads of its own can switch off
            added, rows, own = map(torch.from_numpy, (self._squares, self._rows, values))
            squared = torch.addmm(added, own, rows.T, alpha=-2).numpy()
        squared += squares
        # A row equal to the query has a distance of rounding error; all such rows are ties.
        found = np.empty(squared.shape, np.float32)
        largest = np.finfo(np.float32).max
        return np.clip(squared, ROUNDING * squares, largest, out=found, casting="same_kind")


def _squared_norms(rows: Matrix) -> NDArray[np.float64]:
    return np.asarray((rows * rows).sum(axis=1))


def smallest(values: NDArray[np.float32], n: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the n smallest values of each row, none of them negative, and their columns.

    The smallest is first, and ties go to the first column; all if there are fewer.
    """
    n_rows, n_columns = values.shape
    n = min(n, n_columns)
    # The n-th smallest of the minima of groups of columns bounds the n-th smallest value. Few
    # values are below this bound, and only those are sorted.
    width = max(1, n_columns // (_GROUPS * n))
    grouped = values[:, : n_columns // width * width].reshape(n_rows, width, -1)
    bound = np.partition(grouped.min(axis=1), n - 1, axis=1)[:, n - 1 : n]
    rows, columns = np.nonzero(values <= bound)
    counts = np.bincount(rows, minlength=n_rows)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    # As bits, numbers of at least 0 are in the order of the numbers; columns follow as further
    # bits, so that whole numbers are sorted, without ties.
    bits = np.ascontiguousarray(values[rows, columns]).view(np.uint32).astype(np.uint64)
    keys = np.full((n_rows, counts.max(initial=n)), np.iinfo(np.uint64).max)
    keys[rows, place] = bits << np.uint64(32) | columns.astype(np.uint64)
    keys.sort(axis=1)
    best = keys[:, :n]
    found = (best >> np.uint64(32)).astype(np.uint32).view(np.float32)
    return found, (best & np.uint64(0xFFFFFFFF)).astype(np.int64)
