"""The range of each numeric column in the training rows, and how far other rows lie outside it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.columns import Columns
from cgmvae.data.dataset import Features
from cgmvae.data.mapped import MappedRows, dense, is_sparse


class TrainingRanges:
    """The smallest and the largest value of each column of numbers.

    Other columns have no range.

    Attributes
    ----------
    bounds : array, (2, n_columns)
        −∞ and ∞ for a column without a range.

    Examples
    --------
    >>> ranges = TrainingRanges.of(np.array([[0.0, 5.0], [10.0, 6.0]]))
    >>> ranges.excess(np.array([[12.0, 5.5], [3.0, 5.5]])).tolist()
    [[0.2, 0.0], [0.0, 0.0]]
    """

    def __init__(self, bounds: NDArray[np.float64]) -> None:
        self.bounds = bounds
        low, high = bounds
        with np.errstate(over="ignore", invalid="ignore"):
            width = high - low
        self._width = np.where((width > 0) & np.isfinite(width), width, 1.0)

    @classmethod
    def of(cls, features: Features) -> TrainingRanges | None:
        """Return the ranges of training rows; None if no column has one.

        Sparse features have none: most values are zero, and a word that is more frequent than ever
        before says little.
        """
        if is_sparse(features):
            return None
        low = np.full(features.shape[1], np.inf)
        high = -low
        for values in _numbers(features):
            low = np.fmin(low, np.fmin.reduce(values, axis=0))
            high = np.fmax(high, np.fmax.reduce(values, axis=0))
        has_range = low <= high
        low[~has_range], high[~has_range] = -np.inf, np.inf
        return cls(np.stack([low, high])) if has_range.any() else None

    def excess(self, features: Features) -> NDArray[np.float64]:
        """Return how far each value is from its column's range, as a share of the range's width.

        It is 0 within the range, and where the value is missing: (n_rows, n_columns).
        """
        low, high = self.bounds
        found = [np.zeros((0, len(low)))]
        for values in _numbers(features):
            beyond = np.fmax(low - values, values - high) / self._width
            found.append(np.fmax(beyond, 0.0))
        return np.concatenate(found)


def _numbers(features: Features) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of rows, with NaN in columns that hold no numbers."""
    if isinstance(features, Columns):
        missing = np.full(features.shape[0], np.nan)
        pairs = zip(features.kinds, features.values, strict=True)
        yield np.stack([v if kind == "number" else missing for kind, v in pairs], axis=1)
        return
    for _, block in MappedRows.of(features).blocks():
        yield dense(block).astype(np.float64)
