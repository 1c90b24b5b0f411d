"""Votes of near training rows, averaged with what a network predicts.

A network sums up what rows have in common. The training rows that are nearest to a new one know
more of what is rare or local: a species that few sites have, side effects of one family of drugs.
They vote for their labels,

    v_l = (k · Σ_i w_i y_il + m_l) / (k · Σ_i w_i + 1)    with w_i ∝ exp(−8 d_i² / d_m²),

where the sums go over the k nearest rows that know the label, d_m is the median of the k distances,
m_l the frequency of the label, and the weights of all k add up to 1. Log-odds of the network and of
the votes are averaged with one weight, which is learned out of fold: the votes for a row come from
rows of other folds there. Distances are Euclidean between features as the network sees them; rows
that are mostly 0, like words and bits of molecules, are scaled to unit length before.

The training rows become part of the model, and of its file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.preprocessing import normalize

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows, dense
from cgmvae.evaluation.calibration import log_odds
from cgmvae.methods.inputs import Rows
from cgmvae.methods.nearest import NearestRows
from cgmvae.methods.serialization import VotesRecord, matrix_arrays, read_matrix, read_votes

NumberOfNeighbors = int | Literal["auto"]

#: What "auto" stands for: so many rows vote, if there are at most so many rows and cells, which are
#: compared with each other and stored with the model.
N_NEAREST, MOST_ROWS, MOST_CELLS = 32, 20_000, 1 << 23

#: How fast a vote loses weight with its distance.
SHARPNESS = 8.0

#: Part of the weight learned out of fold that votes are given: a row is out of fold for one member,
#: and the mean of all members, which predicts, needs less help. Compared on validation rows of
#: yeast, scene, sider and ebird (docs/results/accuracy.md).
SHARE = 2 / 3

#: Votes are not used if they lower the log-loss out of fold by less than this part of it.
LEAST_GAIN = 0.01

#: Rows whose votes are counted at a time.
_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Training rows that vote."""

    features: Matrix
    """As the network sees them, (n_rows, n_features); of unit length if compared by angle"""
    labels: Matrix
    """0 or 1, (n_rows, n_labels)"""
    unknown: Matrix | None
    """Which labels are unknown, (n_rows, n_labels); None if all are known"""
    row_weights: NDArray[np.float64]
    """Sample weights, (n_rows,)"""
    by_angle: bool
    """Whether rows are scaled to unit length before they are compared"""
    k: int
    """Number of rows that vote; at most n_rows"""
    weight: float
    """Weight of the votes' log-odds; those of the network have the rest."""

    @classmethod
    def of(cls, rows: Rows, k: int) -> Neighbors:
        """Return training rows with known labels as voters of weight 0."""
        n_rows = rows.labels.shape[0]
        features = MappedRows.of(rows.features).gather(np.arange(n_rows)).astype(np.float32)
        by_angle = _are_mostly_zero(features)
        features = normalize(features) if by_angle else features
        values = features.data if sp.issparse(features) else features
        values[...] = _as_stored(values)
        labels = rows.labels.astype(np.uint8)
        weights = rows.row_weights()
        return cls(features, labels, rows.unknown, weights, by_angle, min(k, n_rows), 0.0)

    def take(self, chosen: NDArray[np.int64]) -> Neighbors:
        """Return some of the rows as voters."""
        return replace(
            self,
            features=self.features[chosen],
            labels=self.labels[chosen],
            unknown=None if self.unknown is None else self.unknown[chosen],
            row_weights=self.row_weights[chosen],
            k=min(self.k, len(chosen)),
        )

    @cached_property
    def _search(self) -> NearestRows:
        return NearestRows(self.features)

    @cached_property
    def frequencies(self) -> NDArray[np.float64]:
        """m, the frequency of each label where it is known, (n_labels,)."""
        positive = self.row_weights @ self.labels
        known = np.full(positive.shape, self.row_weights.sum())
        if self.unknown is not None:
            known -= self.row_weights @ self.unknown
        return np.divide(positive, known, out=np.zeros_like(positive), where=known > 0)

    def votes(self, features: Matrix) -> NDArray[np.float64]:
        """Return v for scaled rows, (n_rows, n_labels)."""
        compared = features.astype(np.float32)
        compared = normalize(compared) if self.by_angle else compared
        blocks = range(0, compared.shape[0], _BLOCK)
        return np.concatenate([self._votes(compared[start : start + _BLOCK]) for start in blocks])

    def _votes(self, features: Matrix) -> NDArray[np.float64]:
        squared, found = self._search.search(features, self.k)
        weights = voting_weights(squared) * self.row_weights[found]
        weights /= weights.sum(axis=1, keepdims=True)
        shape = (len(found), self.features.shape[0])
        starts = np.arange(len(found) + 1) * self.k
        by_row = sp.csr_array((weights.ravel(), found.ravel(), starts), shape)
        known: Any = 1.0
        if self.unknown is not None:
            known = 1 - dense(by_row @ self.unknown.astype(np.float64))
        positive = dense(by_row @ self.labels.astype(np.float64))
        return np.clip((self.k * positive + self.frequencies) / (self.k * known + 1), 0, 1)

    def blend(
        self, scores: NDArray[np.floating], votes: NDArray[np.float64]
    ) -> NDArray[np.floating]:
        """Return probabilities of the network averaged with votes, (n_rows, n_labels)."""
        odds = (1 - self.weight) * log_odds(scores) + self.weight * log_odds(votes)
        return expit(odds).astype(scores.dtype)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that it is stored in, by name."""
        dense_rows = not sp.issparse(self.features)
        parts = {
            "features": _as_stored(self.features) if dense_rows else self.features,
            "labels": self.labels,
            "unknown": self.unknown,
            "row_weights": self.row_weights,
        }
        found: dict[str, NDArray[Any]] = {}
        for name, part in parts.items():
            found |= matrix_arrays(f"neighbors.{name}", part)
        return found

    def record(self) -> VotesRecord:
        """Return what is stored of it besides arrays."""
        return VotesRecord(len(self.row_weights), self.by_angle, self.k, self.weight)

    @classmethod
    def from_arrays(
        cls,
        arrays: dict[str, NDArray[Any]],
        description: Mapping[str, Any],
        n_features: int,
        n_labels: int,
    ) -> Neighbors | None:
        """Take the arrays out of those of a model; None if there are none."""
        own = {name: arrays.pop(name) for name in list(arrays) if name.startswith("neighbors.")}
        if (stored := read_votes(description)) is None:
            return None
        n_rows, by_angle, k, weight = stored
        shape = (n_rows, n_labels)
        features: Any = read_matrix(own, "neighbors.features", (n_rows, n_features), np.floating)
        labels: Any = read_matrix(own, "neighbors.labels", shape, np.unsignedinteger)
        unknown = read_matrix(own, "neighbors.unknown", shape, np.bool_, optional=True)
        row_weights = own["neighbors.row_weights"].astype(np.float64)
        numbers, stored_labels = (m.data if sp.issparse(m) else m for m in (features, labels))
        if not np.isfinite(numbers).all() or (stored_labels > 1).any():
            raise ValueError("its training rows are not finite, or their labels not 0 and 1")
        positive = np.isfinite(row_weights) & (row_weights > 0)
        if row_weights.shape != (n_rows,) or not positive.all():
            raise ValueError("its training rows do not have one weight each")
        return cls(features.astype(np.float32), labels, unknown, row_weights, by_angle, k, weight)


def voting_weights(squared: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the weights of rows by their squared distances, sorted, (n_rows, k)."""
    k = squared.shape[1]
    median = np.maximum(squared[:, k // 2 : k // 2 + 1], np.finfo(np.float32).tiny)
    # The nearest row keeps its weight, however near it is.
    return np.exp(-SHARPNESS * (squared - squared[:, :1]) / median.astype(np.float64))


def learn_neighbors(
    train: Rows,
    unseen: Rows,
    folds: NDArray[np.int64],
    unseen_folds: NDArray[np.int64],
    scores: NDArray[np.floating],
    k: int,
) -> tuple[Neighbors | None, NDArray[np.floating]]:
    """Learn how much votes should count.

    Parameters
    ----------
    train, unseen : Rows
        All training rows, scaled, and those of them that are scored.
    folds : array, (n_rows,)
        Folds of all rows; −1 for rows without known labels, which do not vote.
    unseen_folds : array, (n_unseen,)
        Folds of the rows that are scored.
    scores : array, (n_unseen, n_labels)
        Their probabilities by members that were not trained on their fold.
    k : int
        Number of rows that vote.

    Returns
    -------
    neighbors : Neighbors or None
        None if votes do not lower the log-loss.
    scores : array, (n_unseen, n_labels)
        The scores, averaged with votes if those are used.
    """
    voters = np.flatnonzero(folds >= 0)
    neighbors = Neighbors.of(train.take(voters), k)
    features, votes = MappedRows.of(unseen.features), np.empty(scores.shape)
    for fold in np.unique(unseen_folds):
        others = neighbors.take(np.flatnonzero(folds[voters] != fold))
        own = np.flatnonzero(unseen_folds == fold)
        votes[own] = others.votes(features.gather(own))
    known = ... if unseen.unknown is None else ~dense(unseen.unknown)
    true, network, voted = (
        part[known].ravel() for part in (dense(unseen.labels), log_odds(scores), log_odds(votes))
    )

    def log_loss(weight: float) -> float:
        odds = (1 - weight) * network + weight * voted
        return float(np.mean(np.logaddexp(0, odds) - true * odds))

    best = minimize_scalar(log_loss, bounds=(0, 1), method="bounded", options={"xatol": 0.01})
    if best.fun > (1 - LEAST_GAIN) * log_loss(0):
        return None, scores
    neighbors = replace(neighbors, weight=SHARE * float(best.x))
    return neighbors, neighbors.blend(scores, votes)


def _are_mostly_zero(features: Matrix) -> bool:
    """Return whether no number is below 0, and more than half of them are 0."""
    values = features.data if sp.issparse(features) else features
    n_cells = features.shape[0] * features.shape[1]
    return bool((values >= 0).all() and 2 * np.count_nonzero(values) < n_cells)


def _as_stored(features: NDArray[np.float32]) -> NDArray[np.floating]:
    """Return numbers in float16, unless one is too large for it."""
    limit = np.finfo(np.float16).max
    return features.astype(np.float16) if (np.abs(features) < limit).all() else features
