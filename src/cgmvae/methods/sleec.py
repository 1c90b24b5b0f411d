"""SLEEC: sparse local embeddings (Bhatia, Jain, Kar, Varma, Jain 2015), the ensemble of them.

A learner divides the training rows into clusters by their features. In each cluster label vectors
become short embeddings that keep the products of label neighbours
(:mod:`~cgmvae.methods.sleec_embedding`), and a linear map predicts embeddings from features
(:mod:`~cgmvae.methods.sleec_regression`). A new row is embedded by the map of the nearest cluster;
the training rows of that cluster whose predicted embeddings are nearest vote with their labels.

Where the paper is silent, or this is not the paper's: rows of features, with a
constant, are brought to length 1 before all else; an embedding is no longer than there are labels,
or rows in the cluster; the weights of the maps' penalties are relative to the size of what they
penalise; a label's frequency in the cluster is one more vote, so that few neighbours that agree are
not certain, and that frequency counts the frequency in all rows as one more row.

Unknown labels: only neighbours that know a label vote on it; where none does, its frequency among
the rows that know it decides. A row that knows no label is left out. Weights count in the
clustering, in the maps and in the votes, not in the embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances_argmin

from cgmvae.data.dataset import Matrix, csr_from_parts
from cgmvae.errors import InputError
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Rows
from cgmvae.methods.nearest import NearestRows
from cgmvae.methods.parameters import check_whole
from cgmvae.methods.sleec_clusters import Learner, as_inputs, cluster_rows, mean_length
from cgmvae.methods.sleec_embedding import complete, label_neighbours
from cgmvae.methods.sleec_regression import fit_regressor

#: Rows of a cluster by default, as in the paper's experiments.
ROWS_PER_CLUSTER = 6000

_COUNTS = (
    "embedding_dim",
    "n_neighbors_svp",
    "n_neighbors",
    "n_learners",
    "svp_iterations",
    "admm_iterations",
)


@dataclass(kw_only=True, eq=False, repr=False)
class SLEEC(MultiLabelClassifier):
    """Sparse local embeddings for extreme multi-label classification.

    Parameters
    ----------
    embedding_dim : int
        Length of label embeddings, at most; never more than there are labels, or rows in a cluster.
    n_clusters : int, optional
        Clusters of a learner; by default one for every 6,000 training rows begun.
    n_neighbors_svp : int
        Label neighbours of a row, itself included, whose products embeddings keep.
    n_neighbors : int
        Training rows that vote on the labels of a new row.
    n_learners : int
        Learners whose votes are averaged; each has clusters, and chooses among equally near label
        neighbours, of its own.
    l2_weight : float
        λ: what large coefficients of the maps cost, relative to the mean eigenvalue of XXᵀ, the
        second moments of the features.
    l1_weight : float
        μ: what predicted embeddings cost that are not sparse, relative to the root mean square of
        the embeddings.
    svp_iterations, admm_iterations : int
        Steps of the two solvers, at most.
    admm_penalty : float
        ρ of ADMM; it decides how fast the maps are found, not which.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`.

    Attributes
    ----------
    learners_ : list of Learner
        What was learnt.
    labels_, unknown_ : CSR array, (n_rows, n_labels)
        Labels of the training rows that vote; ``unknown_`` is None where all are known.
    weights_ : array, (n_rows,)
        What their votes count; 1 in the mean.
    n_neighbors_ : int
        Training rows that vote.
    mean_length_ : float
        Root mean square of the lengths of the rows of features.

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
        self._check_parameters()
        rows = train.that_know_a_label()
        self.labels_ = sp.csr_array(rows.labels, dtype=np.float64)
        self.unknown_ = None
        if rows.unknown is not None:
            self.unknown_ = sp.csr_array(rows.unknown, dtype=np.float64)
        weights = rows.row_weights()
        self.weights_ = weights / weights.mean()
        self.n_neighbors_ = int(self.n_neighbors)
        self.mean_length_ = mean_length(rows.features, self.weights_)
        inputs = as_inputs(rows.features, self.mean_length_)
        self.learners_ = [
            self._fit_learner(inputs, np.random.default_rng((seed, i)))
            for i in range(self.n_learners)
        ]

    def _fit_learner(self, inputs: Matrix, rng: np.random.Generator) -> Learner:
        n_rows, n_labels = self.labels_.shape
        n_clusters = self.n_clusters or -(-n_rows // ROWS_PER_CLUSTER)
        centres, cluster_of_row = cluster_rows(inputs, self.weights_, min(n_clusters, n_rows), rng)
        dim = min(self.embedding_dim, n_labels)
        regressors = np.zeros((len(centres), inputs.shape[1], dim))
        embeddings = np.empty((n_rows, dim))
        for cluster, regressor in enumerate(regressors):
            members = np.flatnonzero(cluster_of_row == cluster)
            regressor[:, : len(members)] = self._fit_cluster(inputs[members], members, rng)
            embeddings[members] = inputs[members] @ regressor
        return Learner(centres, regressors, cluster_of_row, embeddings)

    def _fit_cluster(
        self, inputs: Matrix, members: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return the map that predicts the label embeddings of a cluster's rows."""
        labels = self.labels_[members]
        unknown = None if self.unknown_ is None else self.unknown_[members]
        pairs = label_neighbours(labels, unknown, self.n_neighbors_svp, rng)
        rank = min(self.embedding_dim, *labels.shape)
        z, _ = complete(pairs, rank, self.svp_iterations, rng)
        weights = self.weights_[members]
        return fit_regressor(
            inputs,
            z,
            weights,
            l2_weight=self.l2_weight * weights.sum() / inputs.shape[1],
            l1_weight=self.l1_weight * float(np.sqrt(np.mean(z**2))),
            penalty=self.admm_penalty,
            iterations=self.admm_iterations,
        )

    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        inputs = as_inputs(features, self.mean_length_)
        scores = np.zeros((features.shape[0], self.n_labels_))
        for learner in self.learners_:
            scores += self._learner_scores(learner, inputs)
        return scores / len(self.learners_)

    def _learner_scores(self, learner: Learner, inputs: Matrix) -> NDArray[np.float64]:
        nearest = pairwise_distances_argmin(inputs, learner.centres)
        everyone = np.arange(len(self.weights_))
        frequency = self._shares(everyone[None], np.zeros(self.n_labels_))[0]
        scores = np.empty((len(nearest), self.n_labels_))
        for cluster in np.unique(nearest):
            asking = np.flatnonzero(nearest == cluster)
            members = np.flatnonzero(learner.cluster_of_row == cluster)
            local_frequency = self._shares(members[None], frequency)[0]
            z = inputs[asking] @ learner.regressors[cluster]
            search = NearestRows(learner.embeddings[members])
            found = search.find(z, min(self.n_neighbors_, len(members)))
            scores[asking] = self._shares(members[found], local_frequency)
        return scores

    def _shares(self, voters: NDArray[np.int64], prior: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return which share of voters, (n_samples, n_voters), have each label, of those who know.

        ``prior``, (n_labels,), is one more vote.
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

    def _check_parameters(self) -> None:
        counts = {name: getattr(self, name) for name in _COUNTS}
        if self.n_clusters is not None:
            counts["n_clusters"] = self.n_clusters
        check_whole(1, **counts)
        for name in ("l2_weight", "admm_penalty"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"{name} is {getattr(self, name)}; it must be above 0.")
        if not 0 <= self.l1_weight < np.inf:
            raise InputError(f"l1_weight is {self.l1_weight}; it must be at least 0.")

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays = {"weights": self.weights_} | _places("labels", self.labels_)
        if self.unknown_ is not None:
            arrays |= _places("unknown", self.unknown_)
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
        self.labels_ = _ones(arrays, "labels", shape)
        self.unknown_ = _ones(arrays, "unknown", shape) if "unknown.columns" in arrays else None
        self.n_neighbors_ = int(description["n_neighbors"])
        self.mean_length_ = float(description["mean_length"])
        self.learners_ = [
            Learner(*(arrays[f"{i}.{name}"] for name in Learner._fields))
            for i in range(int(description["n_learners"]))
        ]
        if self.n_neighbors_ < 1 or not self.learners_ or not 0 < self.mean_length_ < np.inf:
            raise ValueError("it has no voters, learners or lengths")
        if self.weights_.ndim != 1:
            raise ValueError("its rows have no weights")
        for learner in self.learners_:
            learner.check(shape[0], self.n_inputs_ + 1)


def _places(name: str, matrix: sp.csr_array) -> dict[str, NDArray[Any]]:
    """Return where a matrix of zeros and ones has ones."""
    return {f"{name}.columns": matrix.indices, f"{name}.starts": matrix.indptr}


def _ones(arrays: dict[str, NDArray[Any]], name: str, shape: tuple[int, int]) -> sp.csr_array:
    """Return the matrix that :func:`_places` took apart, checked."""
    columns, starts = arrays[f"{name}.columns"], arrays[f"{name}.starts"]
    return csr_from_parts(np.ones(len(columns)), columns, starts, shape=shape)
