"""Batches: what the training loop gives to a network."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Rows of every member; rows that only fill the shape have weight 0."""

    features: Any
    """A tensor (n_members, n_rows, n_features); SparseRows for a network that takes them"""
    positive: Tensor
    """Whether the label is known to apply, bool (n_members, n_rows, n_labels)"""
    known: Tensor
    """Whether it is known if the label applies, bool (n_members, n_rows, n_labels)"""
    weight: Tensor
    """Weight of each row, (n_members, n_rows)"""

    def present(self) -> Tensor:
        """Return which labels some row of the batch has, bool (n_members, n_labels)."""
        return self.positive.any(1)

    def total_weight(self) -> Tensor:
        """Return the sum of the row weights, (n_members,)."""
        return self.weight.sum(1)
