"""What the training loop hands to a network: rows of every member."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Rows of every member; rows that only fill up the shape have weight 0."""

    features: Tensor
    """(n_members, n_rows, n_features)"""
    positive: Tensor
    """Whether the label is known to apply, bool (n_members, n_rows, n_labels)"""
    known: Tensor
    """Whether it is known if the label applies, bool (n_members, n_rows, n_labels)"""
    weight: Tensor
    """How much each row counts, (n_members, n_rows)"""
