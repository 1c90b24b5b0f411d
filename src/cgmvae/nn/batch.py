"""Batches: what the training loop gives to a network, whole or as one process's shard."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

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


class PartialBatch(Batch):
    """Some rows of a batch whose other rows are in other processes.

    Parameters
    ----------
    rows : Batch
        The rows of this process.
    present : Tensor of bool, (n_members, n_labels)
        Which labels some row of the whole batch has.
    total_weight : Tensor, (n_members,)
        Sum of the weights of all its rows.
    """

    _present: Tensor
    _total_weight: Tensor

    def __new__(cls, rows: Batch, *, present: Tensor, total_weight: Tensor) -> Self:
        """Return the rows together with what is known about the others."""
        partial = super().__new__(cls, *rows)
        partial._present, partial._total_weight = present, total_weight
        return partial

    def present(self) -> Tensor:
        """Return which labels some row of the whole batch has, bool (n_members, n_labels)."""
        return self._present

    def total_weight(self) -> Tensor:
        """Return the sum of all row weights of the whole batch, (n_members,)."""
        return self._total_weight


class BatchShard(NamedTuple):
    """Every ``step``-th row of a batch, starting at ``first``: shards differ by at most one row.

    Examples
    --------
    >>> import torch
    >>> BatchShard(1, 2, 5).take(torch.arange(5), 0)
    tensor([1, 3])
    """

    first: int
    step: int
    n_rows: int
    """Rows of the whole batch."""

    @property
    def rows(self) -> slice:
        """Return the shard's rows among those of the batch."""
        return slice(self.first, None, self.step)

    @property
    def n_own(self) -> int:
        """Return the number of rows of the shard."""
        return len(range(self.first, self.n_rows, self.step))

    def take(self, whole: Tensor, axis: int) -> Tensor:
        """Return the shard of a tensor along an axis with one or more entries per row."""
        each = whole.shape[axis] // self.n_rows
        apart = whole.unflatten(axis, (self.n_rows, each)).movedim(axis, 0)[self.rows]
        return apart.movedim(0, axis).flatten(axis, axis + 1).contiguous()

    def size_of_whole(self, size: int) -> int:
        """Return the length of the axis of which :meth:`take` returns this many entries."""
        return size // self.n_own * self.n_rows
