"""Nearest neighbors by Euclidean distance: among all rows, or in the nearest cells of an IVF index.

Without cells a query is compared with every row. With cells, found by k-means, it is compared with
the rows of the cells whose centers are nearest to it (an inverted file index): the more cells are
probed, the higher the recall; with all cells the search is exact.

Distances are computed by float64 matrix products, one block of queries at a time, and compared in
single precision. Equal values there are ties, which the earlier row wins, so that neighbors do not
depend on the other rows of the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense

#: Distances held in memory at a time, at about 16 bytes each.
_HELD_DISTANCES = 1 << 20

#: Fraction of a query's squared norm below which a squared distance is rounding error.
_ROUNDING = 1e-12

#: Groups of columns per requested smallest value.
_GROUPS = 16


class Cells(NamedTuple):
    """A partition of rows into cells."""

    centres: NDArray[np.floating]
    """(n_cells, n_features)"""
    cell_of_row: NDArray[np.int64]
    """Cell of each row, (n_rows,); no cell is empty."""

    def check(self, shape: tuple[int, int]) -> None:
        """Raise if this is not a partition of rows of this shape."""
        indices = np.unique(self.cell_of_row)
        if (
            self.centres.shape != (len(indices), shape[1])
            or self.cell_of_row.shape != shape[:1]
            or not np.array_equal(indices, np.arange(len(indices)))
        ):
            raise ValueError("its cells are not a partition of its rows")


def divide(rows: Matrix, seed: int) -> Cells:
    """Partition rows into about √n_rows cells by k-means."""
    n_cells = max(1, round(rows.shape[0] ** 0.5))
    clustering = MiniBatchKMeans(n_cells, n_init=1, random_state=seed).fit(rows)
    centres = clustering.cluster_centers_
    chosen = NearestRows(centres).find(rows, 1)[:, 0]
    used, cell_of_row = np.unique(chosen, return_inverse=True)
    return Cells(centres[used], cell_of_row.astype(np.int64))


class NearestRows:
    """Nearest-neighbor search among rows, (n_rows, n_features), or ``n_probes`` of their cells."""

    def __init__(self, rows: Matrix, cells: Cells | None = None, n_probes: int = 1) -> None:
        self._rows = rows
        # A common offset of all rows would cost precision, so the first row is subtracted.
        self._origin = None if sp.issparse(rows) else rows[0].astype(np.float64)
        if cells is None:
            self._centres, self._n_probes = None, 1
            self._members = [np.arange(rows.shape[0])]
            self._all = self._side(rows)
            return
        self._centres, n_cells = self._side(cells.centres), len(cells.centres)
        self._n_probes = max(1, min(n_probes, n_cells))
        order = np.argsort(cells.cell_of_row, kind="stable")
        starts = np.searchsorted(cells.cell_of_row[order], np.arange(1, n_cells))
        self._members = np.split(order, starts)

    def find(
        self, queries: Matrix, n_wanted: int, own: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Return the indices of the nearest rows of each query, (n_queries, n_wanted).

        Nearest first; −1 if a query was compared with fewer rows. A query is not compared with its
        ``own`` row, (n_queries,), unless that is −1.
        """
        return self.search(queries, n_wanted, own)[1]

    def search(
        self, queries: Matrix, n_wanted: int, own: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return squared distances, infinite if there are none, and what :meth:`find` returns."""
        n_queries, n_cells = queries.shape[0], len(self._members)
        squared = np.full((n_queries, n_wanted), np.inf, np.float32)
        found = np.full((n_queries, n_wanted), -1)
        if n_wanted == 0:
            return squared, found
        own = np.full(n_queries, -1) if own is None else own
        most = max(n_cells, self._n_probes * n_wanted, *map(len, self._members))
        size = max(1, _HELD_DISTANCES // most)
        for start in range(0, n_queries, size):
            part = slice(start, start + size)
            near, best = self._find_block(self._side(queries[part]), n_wanted, own[part])
            squared[part, : best.shape[1]], found[part, : best.shape[1]] = near, best
        return squared, found

    def _find_block(
        self, queries: _Side, n_wanted: int, own: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        shape = (len(own), self._n_probes, n_wanted)
        distances, found = np.full(shape, np.inf, np.float32), np.full(shape, -1)
        for asking, slot, members, side in self._comparisons(queries):
            between = _squared_distances(queries.take(asking), side)
            between[members == own[asking, None]] = np.inf
            best = smallest(between, n_wanted)
            cells = (asking, slot, slice(best.shape[1]))
            distances[cells] = np.take_along_axis(between, best, axis=1)
            found[cells] = members[best]
        found[np.isinf(distances)] = -1
        both = distances.reshape(len(own), -1), found.reshape(len(own), -1)
        order = np.lexsort(both[::-1], axis=-1)[:, :n_wanted]
        near, best = (np.take_along_axis(part, order, axis=1) for part in both)
        return near, best

    def _comparisons(
        self, queries: _Side
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], _Side]]:
        """Yield the queries, the probe of each query, and the rows to compare them with."""
        if self._centres is None:
            every = np.arange(len(queries.squares))
            yield every, np.zeros_like(every), self._members[0], self._all
            return
        probes = smallest(_squared_distances(queries, self._centres), self._n_probes)
        for cell in np.unique(probes):
            asking, slot = np.nonzero(probes == cell)
            members = self._members[cell]
            yield asking, slot, members, self._side(self._rows[members])

    def _side(self, rows: Matrix) -> _Side:
        """Prepare rows for :func:`_squared_distances`."""
        values = rows.astype(np.float64) if self._origin is None else dense(rows) - self._origin
        return _Side(values, np.asarray((values * values).sum(axis=1)))


class _Side(NamedTuple):
    """Rows on one side of a distance matrix."""

    values: Matrix
    squares: NDArray[np.float64]
    """Squared norms, (n_rows,)"""

    def take(self, rows: NDArray[np.int64]) -> _Side:
        return _Side(self.values[rows], self.squares[rows])


def _squared_distances(queries: _Side, rows: _Side) -> NDArray[np.float32]:
    """Return squared Euclidean distances, (n_queries, n_rows), all finite."""
    squared = dense((-2 * queries.values) @ rows.values.T)
    squared += queries.squares[:, None]
    squared += rows.squares
    # A row equal to the query has a distance of rounding error; all such rows are ties.
    floor = _ROUNDING * queries.squares[:, None]
    np.clip(squared, floor, np.finfo(np.float32).max, out=squared)
    return squared.astype(np.float32)


def smallest(values: NDArray[np.floating], n: int) -> NDArray[np.int64]:
    """Return the columns of the n smallest values of each row, smallest first.

    All columns if there are fewer. Ties go to the first column.
    """
    n_rows, n_columns = values.shape
    if n >= n_columns:
        return np.argsort(values, axis=1, kind="stable")
    # The n-th smallest of the minima of groups of columns bounds the n-th smallest value. Few
    # values are below this bound, and only those are sorted.
    width = max(1, n_columns // (_GROUPS * n))
    grouped = values[:, : n_columns // width * width].reshape(n_rows, -1, width)
    bound = np.partition(grouped.min(axis=2), n - 1, axis=1)[:, n - 1 : n]
    rows, columns = np.nonzero(values <= bound)
    order = np.lexsort((columns, values[rows, columns], rows))
    first = np.searchsorted(rows, np.arange(n_rows))
    return columns[order[first[:, None] + np.arange(n)]]
