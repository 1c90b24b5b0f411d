"""The plan of a training: what all members share, and what each epoch brings to each member.

All of it is arithmetic on the host that depends on the members and the epoch alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.errors import InputError
from cgmvae.nn.noise import stream_seed
from cgmvae.training import schedules
from cgmvae.training.members import Member, column
from cgmvae.training.selection import MEAN_OF_FIVE


@dataclass(frozen=True)
class TrainingConfig:
    """The plan that all members of a pack share."""

    epochs: int = 40
    """Passes over each member's training rows."""
    batch_size: int = 128
    """Rows a step."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    schedule: schedules.ScheduleName = "cosine"
    """How the learning rate changes."""
    warmup: float = 0.05
    """Share of training in which the cosine schedule rises."""
    restart_epochs: float = 50
    """First period of the warm restarts."""
    restart_factor: float = 2
    """How much longer each period is than the last."""
    floor_learning_rate: float = 0.0
    """What the schedule falls to."""
    clip: float | None = 5.0
    """Bound of each member's gradient norm."""
    kl_warmup: float = 0.0
    """Share of training in which the weight of the KL rises from 0."""
    first_stage: float = 0.0
    """Share of training without cross-entropy; after it, cross-entropy alone (two-stage)."""
    patience: int | None = None
    """Epochs without a better validation metric after which a member stops."""
    selection: str = MEAN_OF_FIVE
    """The validation metric whose best epoch is kept."""
    precision: Literal["tf32", "bf16"] = "tf32"
    """Of an accelerator's matrix products in training; all else is float32 or finer."""


class Epoch(NamedTuple):
    """What one epoch brings."""

    order: NDArray[np.int64]
    """Row numbers, (n_members, n_steps, batch_size)"""
    weight: NDArray[np.float32]
    """1, or 0 for a row that only fills up the shape, (n_members, n_steps, batch_size)"""
    rates: NDArray[np.float64]
    """Learning rates, (n_steps, n_members)"""
    numbers: NDArray[np.int64]
    """Each member's own steps, counted from 1 over all epochs, (n_steps, n_members)"""


class Planner:
    """Makes the epochs of some members."""

    def __init__(self, members: Sequence[Member], config: TrainingConfig) -> None:
        self.members, self.config = members, config
        sizes = [len(member.train_rows) for member in members]
        if min(sizes) == 0:
            raise InputError("There are no rows to learn from; give more rows.")
        #: Steps of each member in an epoch, (n_members,)
        self.steps_of = np.array([-(-n // config.batch_size) for n in sizes])

    @property
    def n_steps(self) -> int:
        """Steps of the longest epoch."""
        return int(self.steps_of.max())

    def epoch(self, number: int) -> Epoch:
        """Return an epoch, counted from 0."""
        order, weight = self._row_order(number)
        return Epoch(order, weight, self._learning_rates(number), self._step_numbers(number))

    def factor(self, term: str, number: int) -> float:
        """Return what the weight of a term is multiplied by in an epoch."""
        progress = number / self.config.epochs
        factor = schedules.ramp(progress, self.config.kl_warmup) if term == "kl" else 1.0
        if self.config.first_stage > 0:
            first = progress < self.config.first_stage
            factor *= first != (term == "cross_entropy")
        return factor

    def _row_order(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        size, n_members = self.config.batch_size, len(self.members)
        order = np.empty((n_members, self.n_steps * size), np.int64)
        weight = np.zeros(order.shape, np.float32)
        for i, member in enumerate(self.members):
            generator = np.random.default_rng(stream_seed(member.seed, f"order {number}"))
            n = len(member.train_rows)
            own = member.train_rows[generator.permutation(n)]
            # What fills up the shape is a row of the member's own: another's might not be finite.
            order[i, n:] = own[0]
            order[i, :n] = own
            weight[i, :n] = 1.0
        shape = (n_members, self.n_steps, size)
        return order.reshape(shape), weight.reshape(shape)

    def _step_numbers(self, number: int) -> NDArray[np.int64]:
        return 1 + number * self.steps_of + np.arange(self.n_steps)[:, None]

    def _learning_rates(self, number: int) -> NDArray[np.float64]:
        highest = np.array(column(self.members, "learning_rate"))
        floor = np.minimum(self.config.floor_learning_rate, highest)
        factors = np.empty((self.n_steps, len(self.members)))
        for own_steps in np.unique(self.steps_of):
            # The middle of the step: neither the first nor the last update is lost to a zero.
            steps = np.minimum(np.arange(self.n_steps), own_steps - 1) + 0.5
            own = [self._rate_factor(number + step / own_steps) for step in steps]
            factors[:, self.steps_of == own_steps] = np.array(own)[:, None]
        return floor + (highest - floor) * factors

    def _rate_factor(self, epoch: float) -> float:
        config = self.config
        if config.schedule == "constant":
            return 1.0
        if config.schedule == "cosine":
            return schedules.cosine(epoch / config.epochs, config.warmup)
        return schedules.warm_restarts(epoch, config.restart_epochs, config.restart_factor)
