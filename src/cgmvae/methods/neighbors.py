"""Votes of the nearest training rows.

Near rows know more than a network of what is rare or local: a species that few sites have, side
effects of one family of drugs. They vote for their labels
(:mod:`cgmvae.methods.votes`) with weights

    w_i ∝ exp(−8 d_i² / d_m²),    Σ_i w_i = k,

where d_m is the median of the k distances. Distances are Euclidean between scaled and encoded
features; rows that are mostly 0, like words and bits of molecules, are scaled to unit length.

The training rows become part of the model, and of its file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import normalize
from torch import Tensor, nn

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.methods.expert import Expert
from cgmvae.methods.inputs import Rows
from cgmvae.methods.model_file import matrix_arrays, read_matrix, with_prefix
from cgmvae.methods.nearest import ROUNDING, NearestRows
from cgmvae.methods.out_of_fold import assign_folds
from cgmvae.methods.predictor import float64, in_blocks, unit_length
from cgmvae.methods.votes import Voters
from cgmvae.model.plan import DataProfile, Plan, feature_plan
from cgmvae.preparation.components import NumberOfComponents
from cgmvae.preparation.piecewise import EncodingName

#: The most rows and cells with which a blend has votes: rows are compared with each other, and
#: stored with the model.
MAX_ROWS, MAX_CELLS = 20_000, 1 << 23

#: How fast a vote loses weight with its distance.
SHARPNESS = 8.0

#: Rows whose votes are counted at a time.
_BLOCK = 1024


#: Folds of rows that do not vote for each other, where there are groups of rows.
N_FOLDS = 10


@dataclass(kw_only=True, eq=False, repr=False)
class NearestVotes(Expert):
    """Votes of the nearest training rows, weighted by their distance.

    Distances are Euclidean between scaled and encoded features; rows that are mostly 0, like words
    and bits of molecules, are scaled to unit length before.

    Parameters
    ----------
    n_neighbors : int
        k, number of rows that vote.
    encoding, principal_components
        How features are encoded, and how many of their principal components are compared; see
        :class:`~cgmvae.methods.neural.NeuralClassifier`.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`. The threshold rule is learned on
        votes for training rows.

    Attributes
    ----------
    features_ : array or CSR array, (n_rows, n_columns)
        The training rows, as they are compared.
    voters_ : Voters
        Their labels.
    by_angle_ : bool
        Whether rows are scaled to unit length before they are compared.
    oof_proba_, oof_rows_
        Votes of the other rows, or of other folds of groups; see
        :class:`~cgmvae.methods.expert.Expert`.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(300, 5, 6, seed=1)
    >>> NearestVotes(random_state=0).fit(data.X, data.Y).predict_proba(data.X).shape
    (300, 6)
    """

    n_neighbors: int = 32
    encoding: EncodingName = "auto"
    principal_components: NumberOfComponents = "auto"

    voters_: Voters = field(init=False)

    def plan(self, profile: DataProfile) -> Plan:
        """Return what ``fit`` does with such data."""
        return Plan(
            profile,
            feature_plan(profile, self.scaling, self.encoding, self.principal_components),
        )

    def _learn(self, train: Rows, seed: int) -> NDArray[np.floating]:
        features = train.features.astype(np.float32)
        self.by_angle_ = _are_mostly_zero(features)
        features = normalize(features) if self.by_angle_ else features
        values = features.data if sp.issparse(features) else features
        values[...] = _rounded_values(values)
        self.features_, self.voters_ = features, Voters.of(train)
        self.k_ = self.n_neighbors
        rows = np.arange(features.shape[0])
        if train.groups is None:
            return self._votes(features, rows, own=rows)
        fold, scores = assign_folds(train, N_FOLDS, seed), np.empty(train.labels.shape)
        for k in range(fold.max() + 1):
            own = fold == k
            scores[own] = self._votes(features[own], rows[~own])
        return scores

    def _votes(
        self,
        queries: Matrix,
        rows: NDArray[np.int64],
        own: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float64]:
        """Return what the nearest of these rows vote; rows do not vote for their ``own`` query."""
        search, voters = NearestRows(self.features_[rows]), self.voters_.take(rows)
        k = min(self.k_, len(rows) if own is None else len(rows) - 1)
        if k == 0:
            return np.tile(voters.frequencies, (queries.shape[0], 1))

        def votes(block: slice) -> NDArray[np.float64]:
            squared, found = search.search(queries[block], k, None if own is None else own[block])
            weights = voting_weights(squared) * voters.row_weights[found]
            weights *= k / weights.sum(axis=1, keepdims=True)
            cells = (weights.ravel(), found.ravel(), np.arange(len(found) + 1) * k)
            return voters.count(sp.csr_array(cells, shape=(len(found), len(rows))))

        return in_blocks(votes, queries.shape[0], _BLOCK)

    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        compared = features.astype(np.float32)
        if self.by_angle_:  # in float64, since near rows differ by little
            compared = normalize(compared.astype(np.float64))
        return self._votes(compared, np.arange(self.features_.shape[0]))

    def scorer(self) -> VotesOfNearest:
        """Return the votes as a module."""
        n_rows, n_columns = self.features_.shape
        if n_rows * n_columns > MAX_CELLS:
            raise InputError(
                f"{n_rows:,} training rows of {n_columns:,} columns vote, too many for a graph; "
                "leave out the votes of near rows."
            )
        return VotesOfNearest(self)

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays = matrix_arrays("features", self.features_)
        arrays |= {f"voters.{name}": each for name, each in self.voters_.arrays().items()}
        return arrays, {"by_angle": self.by_angle_, "k": self.k_}

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        self.voters_ = Voters.from_arrays(with_prefix(arrays, "voters."), self.n_labels_)
        shape = (len(self.voters_.row_weights), self.pipeline_.n_columns)
        features: Any = read_matrix(arrays, "features", shape, np.floating)
        if not np.isfinite(features.data if sp.issparse(features) else features).all():
            raise ValueError("its training rows are not finite")
        self.features_ = features.astype(np.float32)
        self.by_angle_, self.k_ = bool(description["by_angle"]), int(description["k"])
        if self.k_ < 1:
            raise ValueError("its number of neighbors is below 1")


class VotesOfNearest(nn.Module):
    """The votes as tensor operations, whose memory grows with rows times training rows."""

    def __init__(self, model: NearestVotes) -> None:
        super().__init__()
        self.by_angle, voters = model.by_angle_, model.voters_
        rows = dense(model.features_)
        # A common offset of all rows would cost precision, as in the search of the model.
        self.origin = float64(np.zeros_like(rows[0]) if sp.issparse(model.features_) else rows[0])
        self.rows = nn.Buffer(torch.as_tensor(rows))
        self.k = min(model.k_, len(rows))
        self.labels = nn.Buffer(torch.as_tensor(dense(voters.labels)))
        unknown = voters.unknown
        self.known = None if unknown is None else nn.Buffer(torch.as_tensor(~dense(unknown)))
        self.row_weights = float64(voters.row_weights)
        self.frequencies = float64(voters.frequencies)

    def forward(self, columns: Tensor) -> Tensor:
        """Map (n_rows, n_columns) to (n_rows, n_labels)."""
        queries = columns.float().double()  # as the model compares them
        queries = (unit_length(queries) if self.by_angle else queries) - self.origin
        rows = self.rows.double() - self.origin
        squares = queries.square().sum(1, keepdim=True)
        squared = squares + rows.square().sum(1) - 2 * queries @ rows.T
        squared = torch.maximum(squared, ROUNDING * squares).float()
        nearest, found = torch.topk(squared, self.k, dim=1, largest=False)
        nearest = nearest.double()
        median = nearest[:, self.k // 2 :][:, :1].clamp(min=float(np.finfo(np.float32).tiny))
        weights = torch.exp(-SHARPNESS * nearest / median) * self.row_weights[found]
        weights = self.k * weights / weights.sum(1, keepdim=True)
        positive = (weights.unsqueeze(1) @ self.labels[found].double()).squeeze(1)
        known = weights.sum(1, keepdim=True)
        if self.known is not None:
            known = (weights.unsqueeze(1) @ self.known[found].double()).squeeze(1)
        return ((positive + self.frequencies) / (known + 1)).clamp(0, 1)


def voting_weights(squared: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the weights of rows by their squared distances, sorted, (n_rows, k)."""
    k = squared.shape[1]
    median = np.maximum(squared[:, k // 2 : k // 2 + 1], np.finfo(np.float32).tiny)
    return np.exp(-SHARPNESS * squared / median.astype(np.float64))


def _are_mostly_zero(features: Matrix) -> bool:
    """Return whether no number is below 0, and more than half of them are 0."""
    values = features.data if sp.issparse(features) else features
    n_cells = features.shape[0] * features.shape[1]
    return bool((values >= 0).all() and 2 * np.count_nonzero(values) < n_cells)


def _rounded_values(features: NDArray[np.float32]) -> NDArray[np.floating]:
    """Return numbers rounded to float16, unless one is too large for it."""
    limit = np.finfo(np.float16).max
    return features.astype(np.float16) if (np.abs(features) < limit).all() else features
