"""Which rows of a batch a process has, where several processes train on one batch.

:mod:`cgmvae.training.rows` gathers them; :mod:`cgmvae.nn.noise` draws for all rows of the batch
and takes what is theirs.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class RowShare(NamedTuple):
    """Every ``step``-th row of a batch, from ``first`` on: shares differ by a row at most.

    Examples
    --------
    >>> import torch
    >>> RowShare(1, 2, 5).take(torch.arange(5), 0)
    tensor([1, 3])
    """

    first: int
    step: int
    n_rows: int
    """Of the whole batch."""

    @property
    def rows(self) -> slice:
        """Return the share's rows among those of the batch."""
        return slice(self.first, None, self.step)

    @property
    def n_own(self) -> int:
        """Return how many rows the share has."""
        return len(range(self.first, self.n_rows, self.step))

    def take(self, whole: Tensor, axis: int) -> Tensor:
        """Return the share's part of a tensor along its axis of rows, or of several to a row."""
        each = whole.shape[axis] // self.n_rows
        apart = whole.unflatten(axis, (self.n_rows, each)).movedim(axis, 0)[self.rows]
        return apart.movedim(0, axis).flatten(axis, axis + 1).contiguous()

    def size_of_whole(self, size: int) -> int:
        """Return the length of the axis that :meth:`take` takes so much of."""
        return size // self.n_own * self.n_rows
