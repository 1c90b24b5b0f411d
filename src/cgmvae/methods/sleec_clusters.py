"""Clusters of SLEEC: how features are prepared and divided, and what a division learns."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.preprocessing import normalize

from cgmvae.data.dataset import Matrix, with_short_indices


class Learner(NamedTuple):
    """One division into clusters, and what was learnt in each."""

    centres: NDArray[np.floating]
    """(n_clusters, n_inputs)"""
    regressors: NDArray[np.float64]
    """Maps from inputs to embeddings, (n_clusters, n_inputs, dim)"""
    cluster_of_row: NDArray[np.int64]
    """Cluster of each training row, (n_rows,)"""
    embeddings: NDArray[np.float64]
    """Predicted embedding of each training row, (n_rows, dim)"""

    def check(self, n_rows: int, n_inputs: int) -> None:
        """Raise where the parts are not those of so many rows and inputs, or do not fit."""
        n_clusters, dim = len(self.centres), self.embeddings.shape[-1]
        shapes = [(n_clusters, n_inputs), (n_clusters, n_inputs, dim), (n_rows,)]
        clusters = np.unique(self.cluster_of_row)
        if [part.shape for part in self] != [*shapes, (n_rows, dim)] or not np.array_equal(
            clusters, np.arange(n_clusters)
        ):
            raise ValueError("its clusters do not fit its rows and features")
        if dim == 0:
            raise ValueError("its embeddings have no dimensions")


def mean_length(features: Matrix, weights: NDArray[np.float64]) -> float:
    """Return the root of the weighted mean of the rows' squared lengths; 1 where all are 0."""
    squares = features.multiply(features) if sp.issparse(features) else np.square(features)
    mean = np.average(np.asarray(squares.sum(axis=1, dtype=np.float64)).ravel(), weights=weights)
    return float(np.sqrt(mean)) or 1.0


def as_inputs(features: Matrix, length: float) -> Matrix:
    """Return rows of length 1, (n_samples, n_features + 1): features over ``length``, and a 1.

    The constant makes the maps affine. It also keeps rows apart that differ in length only, as
    rows of few features do, which features of length 1 would not.
    """
    scaled, ones = features.astype(np.float64) / length, np.ones((features.shape[0], 1))
    if not sp.issparse(features):
        return normalize(np.hstack([scaled, ones]), copy=False)
    inputs = sp.csr_array(sp.hstack([scaled, sp.csr_array(ones)], format="csr"))
    return normalize(with_short_indices(inputs), copy=False)


def cluster_rows(
    inputs: Matrix, weights: NDArray[np.float64], n_clusters: int, rng: np.random.Generator
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """Return centres by k-means and the nearest of each row; every centre has rows."""
    with warnings.catch_warnings():
        # Fewer different rows than clusters are fine: clusters without rows are dropped.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clustering = KMeans(n_clusters, n_init=1, random_state=int(rng.integers(2**31)))
        centres = clustering.fit(inputs, sample_weight=weights).cluster_centers_
    used, cluster_of_row = np.unique(
        pairwise_distances_argmin(inputs, centres), return_inverse=True
    )
    return centres[used], cluster_of_row.astype(np.int64)
