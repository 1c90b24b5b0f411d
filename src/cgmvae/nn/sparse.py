"""Batches of wide sparse features: their nonzero values, and products with them.

A batch of 128 rows of 100,000 features is 50 MB of zeros, and a dense product with it does a
thousand times the necessary work. :class:`~cgmvae.nn.packed.PackedMLP` takes such rows in its first
layer; what follows is dense.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from cgmvae.nn.batch import BatchShard
from cgmvae.nn.rng import RandomStreams


class SparseRows(NamedTuple):
    """Rows of every member: their nonzero values, member after member, row after row."""

    values: Tensor
    """(n_stored,)"""
    columns: Tensor
    """The feature of each value, int64 (n_stored,)"""
    starts: Tensor
    """Where rows start among the values, and where the last ends, int64 (n_members, n_rows + 1)"""
    n_columns: int
    drawn: Tensor | None = None
    """Index of each value's random number among those of its member, int64 (n_stored,); None if
    they are in order"""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(n_members, n_rows, n_columns)."""
        n_members, n_bounds = self.starts.shape
        return n_members, n_bounds - 1, self.n_columns

    def rows(self) -> Tensor:
        """Return the row of each value, counted over all members, int64 (n_stored,)."""
        n_members, n_rows, _ = self.shape
        lengths = self.starts.diff(dim=1).reshape(-1)
        return torch.arange(n_members * n_rows, device=lengths.device).repeat_interleave(lengths)

    def times(self, factors: Tensor) -> SparseRows:
        """Multiply each row by its factor, (n_members, n_rows)."""
        return self._replace(values=self.values * factors.reshape(-1)[self.rows()])

    def dropout(self, streams: RandomStreams, rate: Tensor) -> SparseRows:
        """Drop values with each member's own rate, (n_members,), and scale up the others.

        Dropping a zero changes nothing, so numbers are drawn only for stored values.
        """
        bounds = self.starts[:, [0, -1]].tolist()
        own: list[slice | Tensor] = [slice(end - start) for start, end in bounds]
        longest = max(end - start for start, end in bounds)
        if self.drawn is not None:
            own = [self.drawn[start:end] for start, end in bounds]
            longest = int(self.drawn.max()) + 1 if len(self.drawn) else 0
        with streams.undivided():
            kept = streams.mask(1, longest, rate=rate, dtype=self.values.dtype)
        factors = [numbers[index] for numbers, index in zip(kept[:, 0], own, strict=True)]
        return self._replace(values=self.values * torch.cat(factors))

    def take(self, shard: BatchShard) -> SparseRows:
        """Return a shard of the rows, whose values are dropped as in the whole batch."""
        n_members, n_rows, _ = self.shape
        is_own = torch.zeros(n_rows, dtype=torch.bool, device=self.starts.device)
        is_own[shard.rows] = True
        lengths = self.starts.diff(dim=1)
        stored = is_own.repeat(n_members).repeat_interleave(lengths.reshape(-1))
        numbers = torch.arange(len(self.values), device=self.starts.device)
        numbers -= self.starts[:, 0].repeat_interleave(lengths.sum(1))
        bounds = F.pad(lengths[:, shard.rows].reshape(-1).cumsum(0), (1, 0))
        rows = torch.arange(n_members)[:, None] * shard.n_own + torch.arange(shard.n_own + 1)
        return SparseRows(
            self.values[stored],
            self.columns[stored],
            bounds[rows.to(bounds.device)],
            self.n_columns,
            numbers[stored],
        )

    def repeat(self, n_members: int) -> SparseRows:
        """Repeat the rows of one member for several."""
        shift = torch.arange(n_members, device=self.starts.device)[:, None] * len(self.values)
        return SparseRows(
            self.values.repeat(n_members),
            self.columns.repeat(n_members),
            self.starts + shift,
            self.n_columns,
        )

    def dense(self) -> Tensor:
        """Return the rows with their zeros, (n_members, n_rows, n_columns)."""
        out = self.values.new_zeros(self.shape)
        out.view(-1, self.n_columns)[self.rows(), self.columns] = self.values
        return out


def sparse_affine(x: SparseRows, more: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply each member's affine map to sparse rows and further dense columns.

    ``weight``, (n_members, n_columns + n_more, width), first has the columns of ``x``, for which no
    gradient is computed, and then those of ``more``, (n_members, n_rows, n_more).
    """
    if more is None:
        more = weight.new_zeros(*x.shape[:2], 0)
    return _SparseAffine.apply(x, more, weight, bias)


class _SparseAffine(torch.autograd.Function):
    """Autograd has no gradient of a batched product with sparse rows that leaves zeros out."""

    @staticmethod
    def forward(ctx: Any, x: SparseRows, more: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.x = x
        ctx.save_for_backward(more, weight)
        out = torch.baddbmm(bias[:, None], more, weight[:, x.n_columns :])
        for own, matrix, target in zip(x.starts, weight, out, strict=True):
            stored = slice(int(own[0]), int(own[-1]))
            target += _sums(matrix, x.columns[stored], x.values[stored], own - own[0])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> Any:
        x, (more, weight) = ctx.x, ctx.saved_tensors
        d_weight = torch.zeros_like(weight)
        d_weight[:, x.n_columns :] = torch.bmm(more.mT, d_out)
        for own, gradient, target in zip(x.starts, d_out, d_weight, strict=True):
            stored = slice(int(own[0]), int(own[-1]))
            # The product with the transpose: values by column, each with the row it comes from.
            by_column, order = x.columns[stored].sort(stable=True)
            found, counts = by_column.unique_consecutive(return_counts=True)
            bounds = F.pad(counts.cumsum(0), (1, 0))
            rows = torch.arange(len(own) - 1, device=own.device).repeat_interleave(own.diff())
            target[found] = _sums(gradient, rows[order], x.values[stored][order], bounds)
        return None, torch.bmm(d_out, weight[:, x.n_columns :].mT), d_weight, d_out.sum(1)


def _sums(matrix: Tensor, index: Tensor, factors: Tensor, bounds: Tensor) -> Tensor:
    """Sum rows of a matrix times factors, from bound to bound, (len(bounds) - 1, width)."""
    return F.embedding_bag(
        index, matrix, bounds, mode="sum", per_sample_weights=factors, include_last_offset=True
    )
