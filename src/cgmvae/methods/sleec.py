"""SLEEC: an ensemble of sparse local embeddings (Bhatia, Jain, Kar, Varma, Jain 2015).

A learner clusters the training rows by their features. In each cluster

1. label vectors get short embeddings that preserve the inner products of label neighbors
   (:func:`label_neighbors`, :func:`complete`): the Gram matrix of the label vectors is observed for
   pairs of label neighbors only (Ω in the paper) and completed to a matrix of low rank by singular
   value projection (SVP), a gradient step on the squared error over Ω followed by the projection
   onto positive semidefinite matrices of that rank;
2. a linear map predicts embeddings from features (:func:`fit_regressor`, by ADMM).

A new row is embedded by the map of the nearest cluster; the training rows of that cluster with the
nearest predicted embeddings vote with their labels.

Where the paper leaves a choice open, or this implementation differs: features are extended by a
constant and normalized to length 1 first; an embedding is no longer than the number of labels, or
of rows in the cluster; the weights of the maps' penalties are relative to the scale of what they
penalize. Label vectors have length 1, so that their products are cosines; a row is its own
neighbor; a pair counts if either row chose the other; ties between neighbors are broken at random,
because otherwise the first rows would be everyone's neighbors. A label's frequency in the cluster
is an additional vote, so that a few unanimous neighbors are not certain, and that frequency counts
the frequency in all rows as an additional row.

Unknown labels: two rows are compared on the labels that are known for both; only neighbors for
which a label is known vote on it, and if there are none, its frequency among the rows for which it
is known decides. A row without known labels is ignored. Sample weights apply to the clustering, the
maps and the votes, not to the embeddings.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.preprocessing import normalize

from cgmvae.data.dataset import Matrix, csr_from_parts, with_short_indices
from cgmvae.errors import InputError
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Rows
from cgmvae.methods.nearest import NearestRows

Vectors = NDArray[np.float64]

#: Default number of rows per cluster, as in the paper's experiments.
ROWS_PER_CLUSTER = 6000

#: Rows, and pairs of rows, that are processed at a time.
BLOCK_ROWS, BLOCK_PAIRS = 1024, 1 << 16

#: Additional random directions in the eigenvector search.
OVERSAMPLING = 8

#: Cosines that differ by less than this are ties.
TIE = 1e-9


@dataclass(kw_only=True, eq=False, repr=False)
class SLEEC(MultiLabelClassifier):
    """Sparse local embeddings for extreme multi-label classification.

    Parameters
    ----------
    embedding_dim : int
        Largest dimension of label embeddings; never more than the number of labels, or of rows in a
        cluster.
    n_clusters : int, optional
        Clusters per learner; by default one per 6,000 training rows, rounded up.
    n_neighbors_svp : int
        Label neighbors per row, itself included, whose inner products the embeddings preserve.
    n_neighbors : int
        Number of training rows that vote on the labels of a new row.
    n_learners : int
        Number of learners whose votes are averaged; they differ in their clusters and in ties
        between label neighbors.
    l2_weight : float
        λ: ridge penalty of the maps, relative to the mean eigenvalue of XXᵀ, the second moments of
        the features.
    l1_weight : float
        μ: L1 penalty of the predicted embeddings, relative to the root mean square of the
        embeddings.
    svp_iterations, admm_iterations : int
        Largest number of steps of the two solvers.
    admm_penalty : float
        ρ of ADMM; it affects the speed of convergence, not the solution.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`.

    Attributes
    ----------
    learners_ : list of Learner
        The fitted learners.
    labels_, unknown_ : CSR array, (n_rows, n_labels)
        Labels of the training rows that vote; ``unknown_`` is None if all are known.
    weights_ : array, (n_rows,)
        Weights of their votes, with mean 1.
    n_neighbors_ : int
        Number of training rows that vote.
    mean_length_ : float
        Weighted root mean square norm of the feature rows; 1 if all are 0.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(300, 5, 6, seed=1)
    >>> SLEEC(random_state=0).fit(data.X, data.Y).predict_proba(data.X).shape
    (300, 6)
    """

    embedding_dim: int = 50
    n_clusters: int | None = None
    n_neighbors_svp: int = 100
    n_neighbors: int = 20
    n_learners: int = 5
    l2_weight: float = 0.3
    l1_weight: float = 0.1
    svp_iterations: int = 20
    admm_iterations: int = 20
    admm_penalty: float = 1.0

    def _fit_rows(self, train: Rows, validation: Rows, seed: int) -> None:
        for name in ("l2_weight", "admm_penalty"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"{name} is {getattr(self, name)}; it must be above 0.")
        self.labels_ = sp.csr_array(train.labels, dtype=np.float64)
        self.unknown_ = None
        if train.unknown is not None:
            self.unknown_ = sp.csr_array(train.unknown, dtype=np.float64)
        weights = train.row_weights()
        self.weights_ = weights / weights.mean()
        self.n_neighbors_ = int(self.n_neighbors)
        features = train.features
        is_sparse = sp.issparse(features)
        squares = features.multiply(features) if is_sparse else np.square(features)
        norms = np.asarray(squares.sum(axis=1, dtype=np.float64)).ravel()
        self.mean_length_ = float(np.sqrt(np.average(norms, weights=self.weights_))) or 1.0
        inputs = as_inputs(features, self.mean_length_)
        self.learners_ = [
            self._fit_learner(inputs, np.random.default_rng((seed, i)))
            for i in range(self.n_learners)
        ]

    def _fit_learner(self, inputs: Matrix, rng: np.random.Generator) -> Learner:
        n_rows, n_labels = self.labels_.shape
        n_clusters = self.n_clusters or -(-n_rows // ROWS_PER_CLUSTER)
        centers, cluster_of_row = cluster_rows(inputs, self.weights_, min(n_clusters, n_rows), rng)
        dim = min(self.embedding_dim, n_labels)
        regressors = np.zeros((len(centers), inputs.shape[1], dim))
        embeddings = np.empty((n_rows, dim))
        for cluster, regressor in enumerate(regressors):
            members = np.flatnonzero(cluster_of_row == cluster)
            unknown = None if self.unknown_ is None else self.unknown_[members]
            pairs = label_neighbors(self.labels_[members], unknown, self.n_neighbors_svp, rng)
            z, _ = complete(pairs, min(dim, len(members)), self.svp_iterations, rng)
            weights = self.weights_[members]
            regressor[:, : z.shape[1]] = fit_regressor(
                inputs[members],
                z,
                weights,
                l2_weight=self.l2_weight * weights.sum() / inputs.shape[1],
                l1_weight=self.l1_weight * float(np.sqrt(np.mean(z**2))),
                penalty=self.admm_penalty,
                iterations=self.admm_iterations,
            )
            embeddings[members] = inputs[members] @ regressor
        return Learner(centers, regressors, cluster_of_row, embeddings)

    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        inputs = as_inputs(features, self.mean_length_)
        scores = np.zeros((features.shape[0], self.n_labels_))
        frequency = self._shares(np.arange(len(self.weights_))[None], np.zeros(self.n_labels_))[0]
        for learner in self.learners_:
            nearest = pairwise_distances_argmin(inputs, learner.centers)
            for cluster in np.unique(nearest):
                asking = np.flatnonzero(nearest == cluster)
                members = np.flatnonzero(learner.cluster_of_row == cluster)
                local_frequency = self._shares(members[None], frequency)[0]
                z = inputs[asking] @ learner.regressors[cluster]
                search = NearestRows(learner.embeddings[members])
                found = search.find(z, min(self.n_neighbors_, len(members)))
                scores[asking] += self._shares(members[found], local_frequency)
        return scores / len(self.learners_)

    def _shares(self, voters: NDArray[np.int64], prior: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the fraction of voters, (n_samples, n_voters), that have each label, where known.

        ``prior``, (n_labels,), is an additional vote.
        """
        starts = np.arange(len(voters) + 1) * voters.shape[1]
        votes = sp.csr_array(
            (self.weights_[voters.ravel()], voters.ravel(), starts),
            (len(voters), len(self.weights_)),
        )
        total = 1.0 + votes.sum(axis=1)[:, None]
        if self.unknown_ is not None:
            total = total - (votes @ self.unknown_).toarray()
        return ((votes @ self.labels_).toarray() + prior) / total

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays = {"weights": self.weights_}
        for name, ones in (("labels", self.labels_), ("unknown", self.unknown_)):
            if ones is not None:  # a matrix of zeros and ones is where its ones are
                arrays |= {f"{name}.columns": ones.indices, f"{name}.starts": ones.indptr}
        for i, learner in enumerate(self.learners_):
            arrays |= {f"{i}.{name}": part for name, part in learner._asdict().items()}
        return arrays, {
            "n_learners": len(self.learners_),
            "n_neighbors": self.n_neighbors_,
            "mean_length": self.mean_length_,
        }

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        self.weights_ = arrays["weights"]
        shape = (len(self.weights_), self.n_labels_)

        def ones(name: str) -> sp.csr_array:
            columns, starts = arrays[f"{name}.columns"], arrays[f"{name}.starts"]
            return csr_from_parts(np.ones(len(columns)), columns, starts, shape=shape)

        self.labels_ = ones("labels")
        self.unknown_ = ones("unknown") if "unknown.columns" in arrays else None
        self.n_neighbors_ = int(description["n_neighbors"])
        self.mean_length_ = float(description["mean_length"])
        self.learners_ = [
            Learner(*(arrays[f"{i}.{name}"] for name in Learner._fields))
            for i in range(int(description["n_learners"]))
        ]
        if self.n_neighbors_ < 1 or not self.learners_ or not 0 < self.mean_length_ < np.inf:
            raise ValueError("it has no voters, learners or mean length")
        if self.weights_.ndim != 1:
            raise ValueError("its rows have no weights")
        for learner in self.learners_:
            n_clusters, dim = len(learner.centers), learner.embeddings.shape[-1]
            inputs = (n_clusters, self.pipeline_.n_columns + 1)
            shapes = [inputs, (*inputs, dim), shape[:1], (shape[0], dim)]
            clusters = np.unique(learner.cluster_of_row)
            if [part.shape for part in learner] != shapes or dim == 0:
                raise ValueError("its embeddings do not match its rows and features")
            if not np.array_equal(clusters, np.arange(n_clusters)):
                raise ValueError("its clusters do not match its rows")


class Learner(NamedTuple):
    """One clustering, and the maps learned in its clusters."""

    centers: NDArray[np.floating]
    """(n_clusters, n_inputs)"""
    regressors: NDArray[np.float64]
    """Maps from inputs to embeddings, (n_clusters, n_inputs, dim)"""
    cluster_of_row: NDArray[np.int64]
    """Cluster of each training row, (n_rows,)"""
    embeddings: NDArray[np.float64]
    """Predicted embedding of each training row, (n_rows, dim)"""


def as_inputs(features: Matrix, length: float) -> Matrix:
    """Return features divided by ``length`` and a 1, normalized, (n_samples, n_features + 1).

    The constant makes the maps affine. It also distinguishes rows that differ only in length, as
    rows with few features do, which normalized features would not.
    """
    scaled, ones = features.astype(np.float64) / length, np.ones((features.shape[0], 1))
    if not sp.issparse(features):
        return normalize(np.hstack([scaled, ones]), copy=False)
    inputs = sp.csr_array(sp.hstack([scaled, sp.csr_array(ones)], format="csr"))
    return normalize(with_short_indices(inputs), copy=False)


def cluster_rows(
    inputs: Matrix, weights: NDArray[np.float64], n_clusters: int, rng: np.random.Generator
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """Return k-means centers and the nearest center of each row; every center has rows."""
    with warnings.catch_warnings():
        # Fewer distinct rows than clusters are fine: empty clusters are dropped.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clustering = KMeans(n_clusters, n_init=1, random_state=int(rng.integers(2**31)))
        centers = clustering.fit(inputs, sample_weight=weights).cluster_centers_
    used, cluster_of_row = np.unique(
        pairwise_distances_argmin(inputs, centers), return_inverse=True
    )
    return centers[used], cluster_of_row.astype(np.int64)


class Pairs(NamedTuple):
    """Observed entries of a symmetric matrix: those on and above its diagonal, row by row."""

    n_rows: int
    first: NDArray[np.int64]
    """(n_pairs,)"""
    second: NDArray[np.int64]
    values: Vectors

    def square_sum(self, values: Vectors) -> float:
        """Return the sum of squares over the matrix, counting both halves."""
        return float(np.where(self.first == self.second, 1.0, 2.0) @ values**2)

    def residuals(self, z: Vectors) -> Vectors:
        """Return the observed values minus the inner products of embeddings ``z``, (n_pairs,)."""
        products = np.empty(len(self.first))
        for start in range(0, len(products), BLOCK_PAIRS):
            part = slice(start, start + BLOCK_PAIRS)
            np.einsum("pd,pd->p", z[self.first[part]], z[self.second[part]], out=products[part])
        return self.values - products

    def half(self, values: Vectors) -> sp.csr_array:
        """Return the matrix that, added to its transpose, has these values where observed."""
        data = np.where(self.first == self.second, 0.5, 1.0) * values
        starts = np.searchsorted(self.first, np.arange(self.n_rows + 1))
        return sp.csr_array((data, self.second, starts), (self.n_rows, self.n_rows))


def label_neighbors(
    labels: sp.csr_array,
    unknown: sp.csr_array | None,
    n_neighbors: int,
    rng: np.random.Generator,
) -> Pairs:
    """Return the nearest rows of each row by cosine of the label vectors, as pairs.

    Labels are 0 where unknown. A row is its own neighbor; ``rng`` breaks ties.
    """
    n_rows = labels.shape[0]
    n_neighbors = min(n_neighbors, n_rows)
    found, values = np.empty((n_rows, n_neighbors), np.int64), np.empty((n_rows, n_neighbors))
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = np.arange(start, min(start + BLOCK_ROWS, n_rows))
        cosine = label_cosine(labels, unknown, rows)
        distance = TIE * rng.random(cosine.shape) - cosine
        distance[np.arange(len(rows)), rows] = -np.inf
        nearest = np.argpartition(distance, n_neighbors - 1, axis=1)[:, :n_neighbors]
        found[rows], values[rows] = nearest, np.take_along_axis(cosine, nearest, axis=1)
    rows = np.repeat(np.arange(n_rows), n_neighbors)
    first, second = np.minimum(rows, found.ravel()), np.maximum(rows, found.ravel())
    _, once = np.unique(first * n_rows + second, return_index=True)
    return Pairs(n_rows, first[once], second[once], values.ravel()[once])


def label_cosine(
    labels: sp.csr_array, unknown: sp.csr_array | None, rows: NDArray[np.int64]
) -> Vectors:
    """Return the cosine of some rows with all rows, on the labels known for both.

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
    """Return embeddings whose inner products approximate the observed values, by SVP.

    Steps end after ``iterations``, or after one that reduces the error by a fraction of less than
    ``tolerance``. Returns the embeddings, (n_rows, rank), and the sums of squared errors over the
    observed entries, before the first step and after each step; they decrease.
    """
    z, residuals = np.zeros((pairs.n_rows, rank)), pairs.values
    errors = [pairs.square_sum(residuals)]
    # The inverse of the observed fraction suits entries observed at random (Jain, Meka, Dhillon
    # 2010); it is halved while the error would increase, down to 1, where it cannot.
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

    A is z zᵀ + half + halfᵀ; no n × n matrix is formed. Eigenvectors are computed in a subspace
    that contains z and A z. They become exact over the steps, and however rough they are, the new
    matrix is no further from A than z zᵀ is: a gradient step of 1 cannot increase the error.
    """
    n_rows, rank = z.shape

    def product(vectors: Vectors) -> Vectors:
        return z @ (z.T @ vectors) + half @ vectors + half.T @ vectors

    # The subspace: z, some random directions, and their products with A.
    n_new = OVERSAMPLING if z.any() else rank + OVERSAMPLING
    if 2 * (rank + n_new) >= n_rows:
        basis = np.eye(n_rows)
    else:
        start, _ = np.linalg.qr(np.hstack([z, rng.standard_normal((n_rows, n_new))]))
        basis, _ = np.linalg.qr(np.hstack([start, product(start)]))
    values, vectors = np.linalg.eigh(basis.T @ product(basis))
    return basis @ (vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0)))


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
    """Return the linear map with the smallest cost, (n_features, embedding_dim), by ADMM.

    It is Vᵀ for the V that minimizes Σ wᵢ ‖zᵢ − V xᵢ‖² + λ ‖V‖² + μ Σ wᵢ ‖V xᵢ‖₁, with λ > 0 as
    ``l2_weight`` and μ as ``l1_weight``; with μ = 0 this is ridge regression, in closed form.
    ``penalty`` is ρ of ADMM, the cost of a difference between V x and its sparse copy. ADMM stops
    when the sparse copies differ from V x, and from those of the previous step, by less than
    ``tolerance`` as a fraction of z.
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
    """Soft-thresholding: move values toward 0 by ``by``, but not past 0."""
    return np.sign(values) * np.maximum(np.abs(values) - by, 0.0)


def _ridge_solver(
    features: Matrix, weights: Vectors, scale: float, l2_weight: float
) -> Callable[[Vectors], Vectors]:
    """Return a function of z that solves (scale XᵀWX + λI) V = XᵀW z for V.

    The factorized matrix has the size of the number of features or of rows, whichever is smaller.
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
    """Return the inner products of all pairs of rows, dense, (n_rows, n_rows)."""
    if not sp.issparse(matrix):
        return matrix @ matrix.T
    products = np.empty((matrix.shape[0],) * 2)
    other = matrix.T.tocsr()
    for start in range(0, len(products), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        products[part] = (matrix[part] @ other).toarray()
    return products
