"""Scaling of features: learnt on the training rows, applied to all, saved with the model."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError

ScalingName = Literal["auto", "standardise", "max-abs", "none"]


class FeatureScaler:
    """Shift and scale of each feature; a missing value becomes the feature's mean.

    Parameters
    ----------
    kind : {"auto", "standardise", "max-abs", "none"}
        ``auto`` standardises dense features. Sparse ones that lie within ±1 already (presence,
        tf-idf) are left as they are; others are divided by their largest absolute value, which
        keeps zeros zero.

    Attributes
    ----------
    kind_ : str
        What is done: ``standardise``, ``max-abs`` or ``none``.
    shift_, scale_ : array, (n_features,)
        A value v becomes (v − shift) / scale.

    Examples
    --------
    >>> FeatureScaler().fit_transform(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    def __init__(self, kind: ScalingName = "auto") -> None:
        self.kind = kind

    def fit(self, X: Matrix) -> FeatureScaler:
        """Learn shift and scale from rows, (n_samples, n_features)."""
        if self.kind not in get_args(ScalingName):
            raise InputError(
                f"There is no scaling {self.kind!r}; choose one of "
                f"{', '.join(get_args(ScalingName))}."
            )
        self.kind_ = _choose(X) if self.kind == "auto" else self.kind
        n_features = X.shape[1]
        self.shift_, self.scale_ = np.zeros(n_features), np.ones(n_features)
        self.fill_ = np.zeros(n_features)
        if self.kind_ == "max-abs":
            self.scale_ = _nonzero(_largest(X))
        elif self.kind_ == "standardise":
            mean, variance = _moments(X)
            self.scale_ = _nonzero(np.sqrt(_without_rounding(variance, mean, X.shape[0])))
            self.shift_ = mean if not sp.issparse(X) else self.shift_
        if self.kind_ != "standardise" or sp.issparse(X):
            self.fill_ = (_moments(X)[0] - self.shift_) / self.scale_
        return self

    def transform(self, X: Matrix) -> Matrix:
        """Return scaled rows, as precise as given; ``X`` is not changed.

        Sparse rows stay sparse where nothing is shifted, which is so after a fit on sparse rows.
        """
        if sp.issparse(X) and self.shift_.any():
            X = X.toarray()
        if sp.issparse(X):
            Z = sp.csr_array(X, copy=True)
            Z.data = (Z.data / self.scale_[Z.indices]).astype(X.dtype)
            missing = np.isnan(Z.data)
            Z.data[missing] = self.fill_[Z.indices[missing]]
            return Z
        Z = ((X - self.shift_) / self.scale_).astype(X.dtype)
        missing = np.isnan(Z)
        Z[missing] = np.broadcast_to(self.fill_, Z.shape)[missing]
        return Z

    def fit_transform(self, X: Matrix) -> Matrix:
        """Learn from rows and return them scaled."""
        return self.fit(X).transform(X)


def _choose(X: Matrix) -> str:
    if not sp.issparse(X):
        return "standardise"
    within = np.nan_to_num(np.abs(X.data)).max(initial=0.0) <= 1
    return "none" if within else "max-abs"


def _moments(X: Matrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of each feature over its present values; 0 where there are none."""
    if sp.issparse(X):
        present = sp.csr_array(X, dtype=np.float64, copy=True)
        missing = present.copy()
        missing.data = np.isnan(present.data).astype(np.float64)
        present.data = np.nan_to_num(present.data)
        n = np.maximum(X.shape[0] - missing.sum(axis=0), 1)
        mean = present.sum(axis=0) / n
        n_zeros = X.shape[0] - np.bincount(present.indices, minlength=X.shape[1])
        present.data = np.where(missing.data, 0, present.data - mean[present.indices]) ** 2
        return mean, (present.sum(axis=0) + n_zeros * mean**2) / n
    X = X.astype(np.float64)
    missing = np.isnan(X)
    n = np.maximum((~missing).sum(axis=0), 1)
    mean = np.where(missing, 0, X).sum(axis=0) / n
    return mean, (np.where(missing, 0, X - mean) ** 2).sum(axis=0) / n


def _largest(X: Matrix) -> NDArray[np.float64]:
    if sp.issparse(X):
        largest = sp.csr_array(X, dtype=np.float64, copy=True)
        largest.data = np.nan_to_num(np.abs(largest.data))
        return largest.max(axis=0).toarray().ravel()
    return np.nan_to_num(np.abs(X.astype(np.float64))).max(axis=0, initial=0.0)


def _without_rounding(
    variance: NDArray[np.float64], mean: NDArray[np.float64], n_rows: int
) -> NDArray[np.float64]:
    """Return the variances, 0 where rounding of the mean explains them."""
    epsilon = np.finfo(np.float64).eps
    return np.where(variance <= (n_rows * mean * epsilon) ** 2, 0.0, variance)


def _nonzero(scale: NDArray[Any]) -> NDArray[np.float64]:
    """Constant features keep their scale."""
    return np.where(scale > 0, scale, 1.0)
