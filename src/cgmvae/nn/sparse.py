"""Batches of wide sparse features: their nonzero values, and products with them.

A batch of 128 rows of 100,000 features is 50 MB of zeros, and a dense product with it does a
thousand times the necessary work. :class:`~cgmvae.nn.packed.PackedMLP` takes such rows in its first
layer; what follows is dense.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from cgmvae.nn.rng import RandomStreams


class ColumnOrder(NamedTuple):
    """The values of one member, ordered by column: a product with the transpose needs them so."""

    columns: Tensor
    """The columns that occur, in increasing order, int64 (n_columns,)"""
    bounds: Tensor
    """Where columns start among the ordered values, and where the last ends, (n_columns + 1,)"""
    order: Tensor
    """The number of each ordered value among those of the member, int64 (n_values,)"""
    rows: Tensor
    """The row of each ordered value, int64 (n_values,)"""


class Scratch:
    """Memory for the gradients of a step, used again in the next.

    They take tens of megabytes, which the operating system would hand out anew in each step, page
    by page: that takes longer than to compute them.
    """

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []
        self._n_taken = 0

    def release(self) -> None:
        """Allow all memory to be used again."""
        self._n_taken = 0

    def take(self, n_rows: int, width: int, like: Tensor) -> Tensor:
        """Return an array of any content that nobody else has taken, (n_rows, width)."""
        size = n_rows * width
        if self._n_taken == len(self._buffers):
            self._buffers.append(like.new_empty(0))
        if len(self._buffers[self._n_taken]) < size:
            self._buffers[self._n_taken] = like.new_empty(size + size // 8)
        self._n_taken += 1
        return self._buffers[self._n_taken - 1][:size].view(n_rows, width)


class SparseRows(NamedTuple):
    """Rows of every member: their nonzero values, member after member, row after row."""

    values: Tensor
    """(n_stored,)"""
    columns: Tensor
    """The feature of each value, int64 (n_stored,)"""
    starts: Tensor
    """Where rows start among the values, and where the last ends, int64 (n_members, n_rows + 1)"""
    n_columns: int
    by_column: tuple[ColumnOrder, ...] | None = None
    """The order by columns of each member's values, if :meth:`indexed` has been called"""
    scratch: Scratch | None = None
    """Where gradients are written; None for new memory"""

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

    def dropout(self, streams: RandomStreams, name: str, rate: Tensor) -> SparseRows:
        """Drop values with each member's own rate, (n_members,), and scale up the others.

        Dropping a zero changes nothing, so numbers are drawn only for stored values.
        """
        bounds = self.starts[:, [0, -1]].tolist()
        lengths = [end - start for start, end in bounds]
        kept = streams.mask(name, 1, max(lengths), rate=rate, dtype=self.values.dtype)
        factors = [own[:length] for own, length in zip(kept[:, 0], lengths, strict=True)]
        return self._replace(values=self.values * torch.cat(factors))

    def repeat(self, n_members: int) -> SparseRows:
        """Repeat the rows of one member for several."""
        shift = torch.arange(n_members, device=self.starts.device)[:, None] * len(self.values)
        return SparseRows(
            self.values.repeat(n_members),
            self.columns.repeat(n_members),
            self.starts + shift,
            self.n_columns,
        )

    def indexed(self, scratch: Scratch | None = None) -> SparseRows:
        """Return the rows with their order by columns, which does not depend on the values."""
        if self.by_column is not None:
            return self
        n_members, n_rows, n_columns = self.shape
        counts = self.starts[:, -1] - self.starts[:, 0]
        members = torch.arange(n_members)
        columns = self.columns + (members * n_columns).repeat_interleave(counts)
        bounds = torch.cat([self.starts[:, :-1].reshape(-1), self.starts[-1, -1:]])
        # SciPy counts how often columns occur; sorting them takes ten times as long.
        matrix = sp.csr_array(
            (np.arange(len(columns)), columns.numpy(), bounds.numpy()),
            shape=(n_members * n_rows, n_members * n_columns),
        )
        ordered = matrix.tocsc()
        order, rows, ends = map(torch.as_tensor, (ordered.data, ordered.indices, ordered.indptr))
        orders = []
        for member, start, own in zip(
            range(n_members),
            self.starts[:, 0].tolist(),
            ends.unfold(0, n_columns + 1, n_columns),
            strict=True,
        ):
            found = own.diff().nonzero().squeeze(1)
            stored = slice(start, int(own[-1]))
            orders.append(
                ColumnOrder(
                    found,
                    (own[F.pad(found + 1, (1, 0))] - start).long(),
                    order[stored] - start,
                    rows[stored].long() - member * n_rows,
                )
            )
        return self._replace(by_column=tuple(orders), scratch=scratch)

    def dense(self) -> Tensor:
        """Return the rows with their zeros, (n_members, n_rows, n_columns)."""
        out = self.values.new_zeros(*self.shape)
        out.view(-1, self.n_columns)[self.rows(), self.columns] = self.values
        return out


def sparse_affine(x: SparseRows, more: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply each member's affine map to sparse rows and further dense columns.

    ``weight``, (n_members, n_columns + n_more, width), first has the columns of ``x``, for which no
    gradient is computed, and then those of ``more``, (n_members, n_rows, n_more). Its own gradient
    is a sparse tensor of the rows that ``x`` uses, and of those for ``more``.
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
        x, (more, weight) = ctx.x.indexed(), ctx.saved_tensors
        d_more = torch.bmm(more.mT, d_out)
        dense_rows = torch.arange(x.n_columns, weight.shape[1])
        rows = [torch.cat([own.columns, dense_rows]) for own in x.by_column]
        counts = [len(own) for own in rows]
        values = (x.scratch or Scratch()).take(sum(counts), weight.shape[2], weight)
        for i, (own, target) in enumerate(zip(x.by_column, values.split(counts), strict=True)):
            factors = x.values[x.starts[i, 0] : x.starts[i, -1]][own.order]
            target[: len(own.columns)] = _sums(d_out[i], own.rows, factors, own.bounds)
            target[len(own.columns) :] = d_more[i]
        d_weight = _gradient_of_rows(rows, values, weight)
        return None, torch.bmm(d_out, weight[:, x.n_columns :].mT), d_weight, d_out.sum(1)


def _gradient_of_rows(rows: Sequence[Tensor], values: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of a weight of which each member uses some rows, in increasing order.

    ``values`` are the gradients of the rows, member after member.
    """
    members = torch.arange(len(rows)).repeat_interleave(torch.tensor([len(own) for own in rows]))
    # Sorted by member and row, as a coalesced tensor is.
    return torch.sparse_coo_tensor(
        torch.stack([members, torch.cat(list(rows))]),
        values,
        weight.shape,
        is_coalesced=True,
        check_invariants=False,
    )


def _sums(matrix: Tensor, index: Tensor, factors: Tensor, bounds: Tensor) -> Tensor:
    """Sum rows of a matrix times factors, from bound to bound, (len(bounds) - 1, width)."""
    return F.embedding_bag(
        index, matrix, bounds, mode="sum", per_sample_weights=factors, include_last_offset=True
    )
