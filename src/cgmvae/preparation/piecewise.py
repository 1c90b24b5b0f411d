"""Piecewise-linear encoding of continuous features (Gorishniy et al. 2022).

A network that sees a number only as itself must bend its first layer to tell small from large
values. Next to the scaled value, each continuous feature gets one column per quantile bin, which
rises from 0 to 1 as the value passes through the bin. Edges are learned on the training rows and
stored with the model.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows

#: ``auto`` bounds the number of columns; see ``model.plan.feature_plan``.
EncodingName = Literal["auto", "piecewise-linear", "standard"]

# Deviation D18: the paper and the released code standardize features and do no more.
#: Features with at most this many distinct values are left alone: they are counts or categories.
FEW_VALUES = 10


class PiecewiseLinear:
    """Appends the piecewise-linear columns of continuous features to scaled rows.

    Parameters
    ----------
    n_bins : int
        Bins per feature; with fewer than 2 nothing is appended. Sparse rows and features with few
        distinct values are always left as they are.

    Attributes
    ----------
    feature_ : array of int, (n_columns,)
        The feature of each appended column.
    lower_, upper_ : array, (n_columns,)
        Its bin: a scaled value v becomes (v − lower) / (upper − lower), clipped to [0, 1].

    Examples
    --------
    >>> X = np.arange(16.0)[:, None]
    >>> encoding = PiecewiseLinear(2).fit(X)
    >>> encoding.transform(np.array([[0.0], [7.5], [9.375]])).tolist()
    [[0.0, 0.0, 0.0], [7.5, 1.0, 0.0], [9.375, 1.0, 0.25]]
    """

    def __init__(self, n_bins: int) -> None:
        self.n_bins = n_bins

    def fit(self, X: Matrix) -> PiecewiseLinear:
        """Learn the bins from scaled training rows, (n_samples, n_features)."""
        self.feature_ = np.zeros(0, np.int64)
        self.lower_, self.upper_ = np.zeros((2, 0))
        rows = MappedRows.of(X)
        if rows.is_sparse or self.n_bins < 2:
            return self
        edges = [_edges(column, self.n_bins) for column in rows.sample().T]
        self.feature_ = np.repeat(np.arange(len(edges)), [max(0, len(each) - 1) for each in edges])
        self.lower_ = np.concatenate([each[:-1] for each in edges])
        self.upper_ = np.concatenate([each[1:] for each in edges])
        return self

    @property
    def n_columns(self) -> int:
        """Number of columns that are appended."""
        return len(self.feature_)

    def transform(self, X: Matrix) -> Matrix:
        """Return rows with the columns appended, in the same precision; MappedRows lazily."""
        if self.n_columns == 0:
            return X
        if isinstance(X, MappedRows):
            return X.then(self.transform)
        X = X.toarray() if sp.issparse(X) else X
        encoded = np.empty((len(X), X.shape[1] + self.n_columns), X.dtype)
        encoded[:, : X.shape[1]] = X
        lower, width = (bins.astype(X.dtype) for bins in (self.lower_, self.upper_ - self.lower_))
        width = np.maximum(width, np.finfo(X.dtype).tiny)  # float32 rounds the narrowest bins to 0
        for rows, block in MappedRows(X).blocks():
            with np.errstate(over="ignore"):  # infinite shares are clipped
                encoded[rows, X.shape[1] :] = shares_of_bins(block, self.feature_, lower, width)
        return encoded

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the learned bins as arrays by name."""
        return {"feature": self.feature_, "lower": self.lower_, "upper": self.upper_}

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], n_features: int) -> PiecewiseLinear:
        """Rebuild an encoding from :meth:`state`; raise if the bins are inconsistent."""
        encoding = cls(0)
        encoding.feature_ = np.asarray(arrays["feature"])
        encoding.lower_, encoding.upper_ = arrays["lower"], arrays["upper"]
        bins = (encoding.feature_, encoding.lower_, encoding.upper_)
        if len({each.shape for each in bins}) > 1 or encoding.feature_.ndim != 1:
            raise ValueError("its piecewise-linear bins have different lengths")
        inside = (encoding.feature_ >= 0) & (encoding.feature_ < n_features)
        if encoding.feature_.dtype.kind != "i" or not inside.all():
            raise ValueError("its piecewise-linear bins are of features that it does not have")
        if not (np.isfinite(bins[1:]).all() and (encoding.upper_ > encoding.lower_).all()):
            raise ValueError("its piecewise-linear bins are not intervals")
        return encoding


def shares_of_bins(rows: Any, feature: Any, lower: Any, width: Any) -> Any:
    """Return how much of each bin lies below the value of its feature, for arrays or tensors."""
    return ((rows[:, feature] - lower) / width).clip(0, 1)


def _edges(values: NDArray[Any], n_bins: int) -> NDArray[np.float64]:
    """Return the edges of a feature's quantile bins; none if it has few distinct values."""
    values = values.astype(np.float64)
    if len(np.unique(values)) <= FEW_VALUES:
        return np.zeros(0)
    edges = np.unique(np.quantile(values, np.linspace(0, 1, n_bins + 1)))
    return edges if len(edges) > 2 else np.zeros(0)
