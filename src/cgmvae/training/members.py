"""A member: one model of a pack, with all that it does not share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgmvae.training.rows import digest


@dataclass(frozen=True, eq=False)
class Member:
    """What belongs to one member; sizes and the training plan are the pack's."""

    seed: int
    """Key of all its random streams."""
    train_rows: NDArray[np.int64]
    """Rows it learns from."""
    validation_rows: NDArray[np.int64]
    """Rows that its best epoch is chosen on."""
    weights: Mapping[str, float]
    """Weight of each term of the objective."""
    learning_rate: float
    weight_decay: float
    dropout: float
    input_dropout: float
    settings: Mapping[str, Any] | None = None
    """Further numbers that a method's network takes for each member, such as a temperature."""
    order_seed: int | None = None
    """Key of the order of training rows on disk, which ``train_rows`` must name as they lie there.
    The members of a fit share it, so that a row is read once for all; None for rows in memory."""

    def fingerprint(self) -> dict[str, Any]:
        """Return what tells its training from another, rows as hashes."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return own | {
            "train_rows": digest(np.asarray(self.train_rows)),
            "validation_rows": digest(np.asarray(self.validation_rows)),
            "weights": dict(self.weights),
            "settings": dict(self.settings or {}),
        }


def column(members: Sequence[Member], name: str) -> list[Any]:
    """Return one field of all members."""
    return [getattr(member, name) for member in members]


def weight_tensors(
    members: Sequence[Member], *, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Return the weight of each term, (n_members,); terms that nobody weighs are left out."""
    names = dict.fromkeys(name for member in members for name in member.weights)
    tensors = {
        name: torch.tensor([m.weights.get(name, 0.0) for m in members], dtype=dtype, device=device)
        for name in names
    }
    return {name: values for name, values in tensors.items() if bool((values != 0).any())}
