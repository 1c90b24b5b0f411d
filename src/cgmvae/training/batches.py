"""From row numbers to batches: the whole of one, or the share that a process has of it.

:mod:`cgmvae.training.rows` keeps the parts of rows, and :mod:`cgmvae.training.loop` asks for
batches.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from cgmvae.nn.batch import Batch, BatchShare
from cgmvae.nn.row_share import RowShare
from cgmvae.nn.sparse_rows import SparseRows
from cgmvae.training.rows import RowStore, digest


class TrainingRows(NamedTuple):
    """All rows that members refer to by number, on the device."""

    features: RowStore
    positive: RowStore
    unknown: RowStore | None
    weight: Tensor | None
    """How much each row counts, (n_rows,)"""

    def batch(self, rows: Tensor, weight: Tensor) -> Batch:
        """Gather rows, (n_members, n_rows)."""
        positive, known = self._labels(rows)
        return Batch(self.features.batch(rows), positive, known, self._weighted(rows, weight))

    def share(self, rows: Tensor, weight: Tensor, share: RowShare) -> BatchShare:
        """Gather a share of the rows of a batch, (n_members, n_rows)."""
        positive, known = self._labels(rows)
        counts = self._weighted(rows, weight)
        own = share.rows
        return BatchShare(
            Batch(self._features(rows, share), positive[:, own], known[:, own], counts[:, own]),
            present=positive.any(1),
            total_weight=counts.sum(1),
        )

    def _features(self, rows: Tensor, share: RowShare) -> Tensor | SparseRows:
        """Gather the features of a share of the rows."""
        if self.features.leaves_sparse:
            # How many values stand before a row's decides which random numbers are its own.
            return self.features.gather_sparse(rows).take(share)
        return self.features.batch(rows[:, share.rows])

    def _labels(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return which labels apply, and which are known, (n_members, n_rows, n_labels)."""
        positive = self.positive.gather(rows)
        if self.unknown is None:
            return positive, positive.new_ones(()).expand_as(positive)
        known = ~self.unknown.gather(rows)
        return positive & known, known

    def _weighted(self, rows: Tensor, weight: Tensor) -> Tensor:
        return weight if self.weight is None else weight * self.weight[rows]

    def digests(self) -> list[str]:
        """Return a hash of each part."""
        stores = [store.digest() for store in self[:3] if store is not None]
        if self.weight is None:
            return stores
        return [*stores, digest(self.weight.detach().cpu().numpy())]
