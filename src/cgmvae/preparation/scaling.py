"""Feature scaling: fitted on the training rows, applied to all rows, stored with the model.

Values are scaled in float64 and rounded afterwards: in float32, two times of day in Unix seconds
are the same number.

Rows are processed in blocks, so that they may stay on disk and no float64 copy of all of them is
made; see :mod:`cgmvae.data.mapped`.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows, dense
from cgmvae.errors import InputError

ScalingName = Literal["auto", "standardize", "max-abs", "none"]

#: Scaled values are clipped to ± this bound, so that networks stay finite whatever they are given.
#: A training value is at most √n_samples standard deviations from the mean, so the bound changes
#: no training row of fewer than 10⁸.
MAX_SCALED = 1e4


class FeatureScaler:
    """Shift and scale of each feature; a missing value is replaced by the feature's mean.

    Parameters
    ----------
    kind : {"auto", "standardize", "max-abs", "none"}
        ``auto`` standardizes dense features. Sparse features within ±1 (presence, tf-idf) are left
        unchanged; others are divided by their largest absolute value, which keeps zeros zero. If a
        table was encoded as sparse features, its measurements are standardized, and its words and
        categories are left unchanged.

    Attributes
    ----------
    kind_ : str
        The scaling in use: ``standardize``, ``max-abs`` or ``none``.
    shift_, scale_ : array, (n_features,)
        A value v becomes (v − shift) / scale, clipped to ± :data:`MAX_SCALED` unless the scaling is
        ``none``.

    Examples
    --------
    >>> FeatureScaler().fit_transform(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    def __init__(self, kind: ScalingName = "auto") -> None:
        self.kind = kind

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
    def fit(self, X: Matrix, measured: NDArray[np.bool_] | None = None) -> FeatureScaler:
        """Learn shift and scale from rows.

        Parameters
        ----------
        X : array, CSR array or MappedRows, (n_samples, n_features)
            Training rows.
        measured : array of bool, (n_features,), optional
            With ``auto`` and sparse rows, the features to standardize; all others are left
            unchanged.
        """
        if self.kind not in get_args(ScalingName):
            raise InputError(
                f"scaling is {self.kind!r}; choose one of {', '.join(get_args(ScalingName))}."
            )
        rows = MappedRows.of(X).in_reading_order()
        if self.kind == "auto" and measured is not None and rows.is_sparse:
            return self._fit_measured(rows, measured)
        self.kind_ = self.kind
        if self.kind == "auto":
            self.kind_ = "standardize"
            if rows.is_sparse:
                self.kind_ = "none" if _largest(rows).max(initial=0.0) <= 1 else "max-abs"
        n_features = rows.shape[1]
        self.shift_, self.scale_ = np.zeros(n_features), np.ones(n_features)
        self.fill_ = np.zeros(n_features)
        if self.kind_ == "max-abs":
            self.scale_ = _nonzero(_largest(rows))
        elif self.kind_ == "standardize":
            mean, variance = _moments(rows)
            self.scale_ = _nonzero(np.sqrt(_without_rounding(variance, mean, len(rows))))
            self.shift_ = mean if not rows.is_sparse else self.shift_
        if self.kind_ != "standardize" or rows.is_sparse:
            self.fill_ = (_moments(rows)[0] - self.shift_) / self.scale_
        finite = np.isfinite([self.shift_, self.scale_, self.fill_]).all(axis=0)
        if not finite.all():
            i = int(np.argmin(finite))
            raise InputError(
                f"Feature {i:,}, counted from 0, has values as large as {_largest(rows)[i]:.1g}, "
                "too large to be scaled; divide it by a constant."
            )
        return self

    def _fit_measured(self, rows: MappedRows, measured: NDArray[np.bool_]) -> FeatureScaler:
        part = FeatureScaler("standardize").fit(rows[:, np.flatnonzero(measured)].then(dense))
        self.kind_ = part.kind_ if measured.any() else "none"
        self.shift_, self.scale_ = np.zeros(len(measured)), np.ones(len(measured))
        self.fill_ = np.zeros(len(measured))
        self.shift_[measured], self.scale_[measured] = part.shift_, part.scale_
        return self

    @property
    def bound_(self) -> float:
        """The largest absolute value of scaled features."""
        return np.inf if self.kind_ == "none" else MAX_SCALED

    def transform(self, X: Matrix) -> Matrix:
        """Return scaled rows in the same precision; ``X`` is not modified.

        Sparse rows stay sparse if at most half of the features are shifted. MappedRows are scaled
        lazily, when they are read.
        """
        if isinstance(X, MappedRows):
            return X.then(self.transform)
        if not sp.issparse(X):
            return _scaled(X, self.shift_, self.scale_, self.fill_, self.bound_)
        shifted = np.flatnonzero(self.shift_)
        if 2 * len(shifted) > len(self.shift_):
            return _scaled(X.toarray(), self.shift_, self.scale_, self.fill_, self.bound_)
        Z = sp.csr_array(X, copy=True)
        scaled = Z.data / self.scale_[Z.indices]
        Z.data = np.clip(scaled, -self.bound_, self.bound_).astype(X.dtype)
        missing = np.isnan(Z.data)
        Z.data[missing] = self.fill_[Z.indices[missing]]
        if len(shifted) == 0:
            return Z
        Z.data[np.isin(Z.indices, shifted)] = 0
        shift, scale, fill = (values[shifted] for values in (self.shift_, self.scale_, self.fill_))
        few = _scaled(X[:, shifted].toarray(), shift, scale, fill, self.bound_)
        return sp.csr_array(Z + _in_columns(few, shifted, Z.shape))

    def fit_transform(self, X: Matrix) -> Matrix:
        """Fit to rows and return them scaled."""
        return self.fit(X).transform(X)


def scale_dense(
    rows: Any, shift: Any, scale: Any, fill: Any, bound: float, arrays: Any = np
) -> Any:
    """Return scaled rows in float64; ``arrays`` is numpy or torch, whichever they belong to."""
    scaled = (rows - shift) / scale
    if np.isfinite(bound):
        scaled = arrays.clip(scaled, -bound, bound)
    return arrays.where(arrays.isnan(scaled), fill, scaled)


def _scaled(
    X: NDArray[Any], shift: NDArray[Any], scale: NDArray[Any], fill: NDArray[Any], bound: float
) -> NDArray[Any]:
    Z = np.empty(X.shape, X.dtype)
    for rows, block in MappedRows(X).blocks():
        with np.errstate(over="ignore"):  # infinite values are clipped
            Z[rows] = scale_dense(block, shift, scale, fill, bound)
    return Z


def _in_columns(
    values: NDArray[Any], columns: NDArray[np.int64], shape: tuple[int, int]
) -> sp.csr_array:
    """Return a CSR array of this shape with dense values in these columns."""
    n_rows, n_columns = values.shape
    ends = np.arange(n_rows + 1) * n_columns
    return sp.csr_array((values.ravel(), np.tile(columns, n_rows), ends), shape=shape)


def _moments(rows: MappedRows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and variance of the present values of each feature; 0 if there are none.

    scikit-learn's ``partial_fit`` loses a feature that is missing in all rows of a block.
    """
    n_features = rows.shape[1]
    total, n_missing, n_zeros = np.zeros((3, n_features))
    for _, block in rows.blocks():
        columns, values = _cells(block)
        missing = np.isnan(values)
        total += _column_sums(columns, np.where(missing, 0, values), n_features)
        n_missing += _column_sums(columns, missing, n_features)
        if columns is not None:
            n_zeros += block.shape[0] - np.bincount(columns, minlength=n_features)
    n = np.maximum(len(rows) - n_missing, 1)
    mean = total / n
    squares = n_zeros * mean**2
    for _, block in rows.blocks():
        columns, values = _cells(block)
        values -= mean if columns is None else mean[columns]
        squares += _column_sums(columns, np.where(np.isnan(values), 0, values) ** 2, n_features)
    return mean, squares / n


def _largest(rows: MappedRows) -> NDArray[np.float64]:
    """Return the largest absolute value of each feature; 0 if there are none."""
    largest = np.zeros(rows.shape[1])
    for _, block in rows.blocks():
        columns, values = _cells(block)
        values = np.nan_to_num(np.abs(values))
        if columns is None:
            largest = np.maximum(largest, values.max(axis=0, initial=0.0))
        else:
            np.maximum.at(largest, columns, values)
    return largest


def _cells(block: Matrix) -> tuple[NDArray[np.int64] | None, NDArray[np.float64]]:
    """Return the columns and values of sparse rows; None and all values of dense rows."""
    if sp.issparse(block):
        return block.indices, block.data.astype(np.float64)
    return None, block.astype(np.float64)


def _column_sums(
    columns: NDArray[np.int64] | None, values: NDArray[Any], n_columns: int
) -> NDArray[np.float64]:
    if columns is None:
        return values.sum(axis=0)
    return np.asarray(np.bincount(columns, values, n_columns), np.float64)


def _without_rounding(
    variance: NDArray[np.float64], mean: NDArray[np.float64], n_rows: int
) -> NDArray[np.float64]:
    """Return the variances, set to 0 where rounding of the mean explains them."""
    epsilon = np.finfo(np.float64).eps
    return np.where(variance <= (n_rows * mean * epsilon) ** 2, 0.0, variance)


def _nonzero(scale: NDArray[Any]) -> NDArray[np.float64]:
    """Return the scales, with 1 for constant features."""
    return np.where(scale > 0, scale, 1.0)
