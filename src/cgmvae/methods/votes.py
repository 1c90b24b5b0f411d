"""Votes of training rows for their labels, however the rows that vote were found.

A row that is to be predicted gives each training row a weight: near rows by their distance
(:mod:`cgmvae.methods.neighbors`), rows of the same leaves by the trees of a forest
(:mod:`cgmvae.methods.trees`). The probability of label l is

    v_l = (Σ_i w_i y_il + m_l) / (Σ_i w_i + 1),

where the sums go over the rows that know the label, and m_l is the frequency of the label: one more
vote, so that no probability is 0 or 1 because few rows were asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense
from cgmvae.methods.inputs import Rows
from cgmvae.methods.model_file import matrix_arrays, read_matrix


@dataclass(frozen=True, eq=False)
class Voters:
    """Training rows that vote."""

    labels: Matrix
    """0 or 1, (n_rows, n_labels)"""
    unknown: Matrix | None
    """Which labels are unknown, (n_rows, n_labels); None if all are known"""
    row_weights: NDArray[np.float64]
    """Sample weights, (n_rows,)"""

    @classmethod
    def of(cls, rows: Rows) -> Voters:
        """Return the training rows as voters."""
        return cls(rows.labels.astype(np.uint8), rows.unknown, rows.row_weights())

    def take(self, chosen: NDArray[np.int64]) -> Voters:
        """Return some of the rows as voters."""
        return replace(
            self,
            labels=self.labels[chosen],
            unknown=None if self.unknown is None else self.unknown[chosen],
            row_weights=self.row_weights[chosen],
        )

    @cached_property
    def frequencies(self) -> NDArray[np.float64]:
        """m, the frequency of each label where it is known, (n_labels,); 0 where it is not."""
        positive = self.row_weights @ self.labels
        known = np.full(positive.shape, self.row_weights.sum())
        if self.unknown is not None:
            known -= self.row_weights @ self.unknown
        return np.divide(positive, known, out=np.zeros_like(positive), where=known > 0)

    def centered(self) -> NDArray[np.float64]:
        """Return labels minus their frequencies, (n_rows, n_labels); 0 where they are unknown."""
        centered = dense(self.labels) - self.frequencies
        if self.unknown is not None:
            centered[dense(self.unknown)] = 0
        return centered

    def sums(self, weights: sp.csr_array) -> NDArray[np.float64]:
        """Return the sums of v for rows that give each voter a weight, those of w y and those of w.

        (n_queries, n_rows) becomes (n_queries, 2 · n_labels), or one more than n_labels if all
        labels are known.
        """
        known: Any = np.asarray(weights.sum(axis=1)).reshape(-1, 1)
        if self.unknown is not None:
            known = known - dense(weights @ self.unknown.astype(np.float64))
        return np.hstack([dense(weights @ self.labels.astype(np.float64)), known])

    def probabilities(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return v for what :meth:`sums` returns, or sums of that, (n_queries, n_labels)."""
        positive, known = np.split(sums, [len(self.frequencies)], axis=1)
        return np.clip((positive + self.frequencies) / (known + 1), 0, 1)

    def count(self, weights: sp.csr_array) -> NDArray[np.float64]:
        """Return v for rows that give each voter a weight, (n_queries, n_rows) -> (…, n_labels)."""
        return self.probabilities(self.sums(weights))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that they are stored in, by name."""
        parts = matrix_arrays("labels", self.labels) | matrix_arrays("unknown", self.unknown)
        return parts | {"row_weights": self.row_weights}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], n_labels: int) -> Voters:
        """Return the voters that were stored in these arrays; raise if they are inconsistent."""
        row_weights = arrays["row_weights"].astype(np.float64)
        shape = (len(row_weights), n_labels)
        labels: Any = read_matrix(arrays, "labels", shape, np.unsignedinteger)
        unknown = read_matrix(arrays, "unknown", shape, np.bool_, optional=True)
        if ((labels.data if sp.issparse(labels) else labels) > 1).any():
            raise ValueError("the labels of its training rows are not 0 and 1")
        positive = np.isfinite(row_weights) & (row_weights > 0)
        if row_weights.ndim != 1 or not positive.all():
            raise ValueError("its training rows do not have one weight each")
        return cls(labels, unknown, row_weights)
