"""How members are divided: among processes, and in packs that an accelerator has room for.

:func:`~cgmvae.methods.together.train_together` trains so. What a member learns depends on itself
alone, so that it does not matter where it is trained, and in which company.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.distributed import ALONE, Group
from cgmvae.training.memory import in_parts

Places = NDArray[np.int64]
Part = TypeVar("Part", covariant=True)


class TrainPart(Protocol[Part]):
    """Trains some members."""

    def __call__(self, places: Places, group: Group = ALONE) -> Part:
        """Train the members at these places; the group shares the rows of each batch."""


def train_divided(
    train: TrainPart[Part],
    n_members: int,
    group: Group,
    *,
    checkpoint: Checkpoint | None = None,
    rows_can_be_shared: bool = True,
) -> list[Part]:
    """Train all members, in as many packs as need be, and return these in order to every process.

    The one rule: where there are as many packs as processes or more, each process trains packs of
    its own; where there are fewer, all processes train one pack after the other, sharing the rows
    of each batch. There are as many packs as processes if that leaves none of them empty, else one;
    but a training that was stopped goes on with the packs that its checkpoint knows, whatever the
    number of processes then and now.

    Parameters
    ----------
    train : callable
        Trains the members at some places. Where a process is alone with it and an accelerator has
        no room for them, it is asked to train fewer at a time.
    n_members : int
    group : Group
    checkpoint : Checkpoint, optional
        Where the training keeps its state.
    rows_can_be_shared : bool
        False for losses of a row that depend on the others of its batch. Then processes without a
        pack of their own wait.
    """

    def packs() -> list[Places]:
        if checkpoint is not None and checkpoint.exists():
            return checkpoint.division(n_members)
        enough = n_members >= group.size or not rows_can_be_shared
        return np.array_split(np.arange(n_members), min(n_members, group.size) if enough else 1)

    found = group.broadcast(packs)
    if len(found) < group.size and rows_can_be_shared:
        return [train(places, group) for places in found]
    trained = group.spread(lambda places: in_parts(train, places), found)
    return [part for parts in trained for part in parts]
