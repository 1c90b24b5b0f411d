"""What the training loop hands to a network: rows of every member."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from torch import Tensor


class Batch(NamedTuple):
    """Rows of every member; rows that only fill up the shape have weight 0."""

    features: Any
    """A tensor (n_members, n_rows, n_features); SparseRows for a network that takes them"""
    positive: Tensor
    """Whether the label is known to apply, bool (n_members, n_rows, n_labels)"""
    known: Tensor
    """Whether it is known if the label applies, bool (n_members, n_rows, n_labels)"""
    weight: Tensor
    """How much each row counts, (n_members, n_rows)"""

    def present(self) -> Tensor:
        """Return which labels some row of the batch has, bool (n_members, n_labels)."""
        return self.positive.any(1)

    def total_weight(self) -> Tensor:
        """Return how much all rows count together, (n_members,)."""
        return self.weight.sum(1)


class BatchShare(Batch):
    """Some rows of a batch, whose others are in other processes.

    Parameters
    ----------
    rows : Batch
        Those that are here.
    present : Tensor of bool, (n_members, n_labels)
        Which labels some row of the whole batch has.
    total_weight : Tensor, (n_members,)
        How much all its rows count together.
    """

    _present: Tensor
    _total_weight: Tensor

    def __new__(cls, rows: Batch, *, present: Tensor, total_weight: Tensor) -> Self:
        """Return the rows, which know of the others."""
        share = super().__new__(cls, *rows)
        share._present, share._total_weight = present, total_weight
        return share

    def present(self) -> Tensor:
        """Return which labels some row of the whole batch has, bool (n_members, n_labels)."""
        return self._present

    def total_weight(self) -> Tensor:
        """Return how much all rows of the whole batch count together, (n_members,)."""
        return self._total_weight
