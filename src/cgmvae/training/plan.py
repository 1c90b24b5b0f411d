"""The plan of a training: its members, what they share, and what each epoch brings to each.

All of it is arithmetic on the host that depends only on the members and the epoch. Rows in memory
are shuffled for each member and epoch. Rows on disk come in :func:`block_order`, in which
neighbors are read soon after each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgmvae.errors import InputError
from cgmvae.nn.rng import stream_seed
from cgmvae.training.rows import digest

#: Rows on disk that stay neighbors, and how many such blocks are mixed with each other.
BLOCK_ROWS, WINDOW_BLOCKS = 64, 1024

ScheduleName = Literal["constant", "cosine", "warm-restarts"]


@dataclass(frozen=True, eq=False)
class Member:
    """One model of a pack, with all that it does not share with the others."""

    seed: int
    """Key of all its random streams."""
    train_rows: NDArray[np.int64]
    """Numbers of the rows it goes through; it does not learn from those that are validation rows
    too."""
    validation_rows: NDArray[np.int64]
    """Numbers of the rows that its best epoch is chosen on."""
    weights: Mapping[str, float]
    """Weight of each term of the objective."""
    learning_rate: float
    weight_decay: float
    dropout: float
    input_dropout: float
    settings: Mapping[str, Any] | None = None
    """Further values that a method's network takes per member, such as a temperature."""
    order_seed: int | None = None
    """Key of the order of training rows on disk, which ``train_rows`` must name in the order of the
    file. The members of a fit share it, so that a row is read once for all; None for rows in
    memory."""

    def shifted(self, n_rows: int) -> Member:
        """Return the member with its rows renumbered, ``n_rows`` other rows coming first."""
        return replace(
            self,
            train_rows=self.train_rows + n_rows,
            validation_rows=self.validation_rows + n_rows,
        )

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
    """Return the weight of each term, (n_members,); terms without any weight are left out."""
    names = dict.fromkeys(name for member in members for name in member.weights)
    tensors = {
        name: torch.tensor([m.weights.get(name, 0.0) for m in members], dtype=dtype, device=device)
        for name in names
    }
    return {name: values for name, values in tensors.items() if bool((values != 0).any())}


@dataclass(frozen=True)
class TrainingConfig:
    """The plan that all members of a pack share."""

    epochs: int = 40
    """Passes over each member's training rows."""
    batch_size: int = 128
    """Rows per step."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    """Whether weight decay is decoupled (AdamW) or an L2 term (Adam)."""
    schedule: ScheduleName = "cosine"
    """How the learning rate changes: step by step, with warm restarts once per epoch."""
    warmup: float = 0.05
    """Share of training in which the cosine schedule rises."""
    restart_epochs: float = 50
    """First period of the warm restarts."""
    restart_factor: float = 2
    """How much longer each period is than the last."""
    floor_learning_rate: float = 0.0
    """What the schedule falls to."""
    decay_all: bool = False
    """Whether weight decay applies to biases and normalization too."""
    clip: float | None = 5.0
    """Bound of each member's gradient norm."""
    kl_warmup: float = 0.0
    """Share of training in which the weight of the KL rises from 0."""
    first_stage: float = 0.0
    """Share of training without cross-entropy. After it, in the second of two stages, cross-entropy
    alone trains the network's ``classifier``, and all else is frozen."""
    patience: int | None = None
    """Epochs without a better validation metric after which a member stops, and costs no more time
    once a quarter of the pack has stopped."""
    selection: str = "mean_of_five"
    """The validation metric whose best epoch is kept, one of ``selection.SELECTIONS``."""
    encoder_learning_rate: float | None = None
    """Learning rate of an encoder of one's own, at its highest; None for that of the network."""
    encoder_frozen_epochs: int = 0
    """First epochs in which such an encoder is not trained."""
    precision: Literal["tf32", "bf16"] = "tf32"
    """Precision of matrix products in training on a GPU; all else is float32 or finer, but for the
    nodes of LaMP."""


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
        factor = ramp(progress, self.config.kl_warmup) if term == "kl" else 1.0
        if self.config.first_stage > 0:
            factor *= self.in_second_stage(number) == (term == "cross_entropy")
        return factor

    def in_second_stage(self, number: int) -> bool:
        """Return whether an epoch is in the second of two stages."""
        return 0 < self.config.first_stage <= number / self.config.epochs

    def encoder_factors(self, number: int) -> list[float]:
        """Return what each member's learning rate is multiplied by for a row encoder."""
        if number < self.config.encoder_frozen_epochs:
            return [0.0] * len(self.members)
        own = self.config.encoder_learning_rate
        return [1.0 if own is None else own / member.learning_rate for member in self.members]

    def _row_order(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        size, n_members = self.config.batch_size, len(self.members)
        order = np.empty((n_members, self.n_steps * size), np.int64)
        weight = np.zeros(order.shape, np.float32)
        for i, member in enumerate(self.members):
            n = len(member.train_rows)
            own = member.train_rows[_order(member, number)]
            # What fills up the shape are rows of the member's own: another's might not be finite,
            # and one row again and again would spoil the statistics of batch normalization.
            order[i] = np.resize(own, order.shape[1])
            weight[i, :n] = 1.0
            if member.order_seed is not None:  # of rows on disk it goes through its own fold too
                weight[i, :n] = ~np.isin(own, member.validation_rows)
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
            return cosine(epoch / config.epochs, config.warmup)
        # As the released code of the paper, which changes the rate between epochs.
        return warm_restarts(math.floor(epoch), config.restart_epochs, config.restart_factor)


def block_order(n_rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw an order of rows on disk that asks for neighbors soon after each other.

    Blocks of :data:`BLOCK_ROWS` consecutive rows are put in random order, and the rows of each
    :data:`WINDOW_BLOCKS` blocks, 65,536 rows, are shuffled together. Every row comes once. Up to as
    many rows all orders are equally likely; beyond, rows from everywhere in the file come together,
    but the rows of a block always come within one window.

    Examples
    --------
    >>> block_order(5, np.random.default_rng(0)).tolist()
    [2, 4, 3, 0, 1]
    """
    blocks = generator.permutation(-(-n_rows // BLOCK_ROWS))
    windows = []
    for start in range(0, len(blocks), WINDOW_BLOCKS):
        chosen = blocks[start : start + WINDOW_BLOCKS, None]
        rows = (chosen * BLOCK_ROWS + np.arange(BLOCK_ROWS)).ravel()
        windows.append(generator.permutation(rows[rows < n_rows]))
    return np.concatenate(windows)


def _order(member: Member, number: int) -> NDArray[np.int64]:
    """Return the order of a member's training rows in an epoch."""
    n_rows = len(member.train_rows)
    if member.order_seed is None:
        return _generator(member.seed, number).permutation(n_rows)
    return block_order(n_rows, _generator(member.order_seed, number))


def _generator(seed: int, number: int) -> np.random.Generator:
    return np.random.default_rng(stream_seed(seed, f"order {number}"))


def cosine(progress: float, warmup: float) -> float:
    """Rise linearly to 1 during the share ``warmup`` of training, then fall to 0 as a half cosine.

    Examples
    --------
    >>> cosine(0.05, 0.1), cosine(0.1, 0.1), round(cosine(0.55, 0.1), 6), cosine(1.0, 0.1)
    (0.5, 1.0, 0.5, 0.0)
    """
    if progress < warmup:
        return progress / warmup
    return 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))


def warm_restarts(epoch: float, first: float, factor: float) -> float:
    """Fall from 1 to 0 as a half cosine, again and again, each period ``factor`` times as long.

    Examples
    --------
    >>> warm_restarts(0, 50, 2), round(warm_restarts(25, 50, 2), 6), warm_restarts(50, 50, 2)
    (1.0, 0.5, 1.0)
    """
    if first <= 0 or factor < 1:
        raise InputError("Warm restarts need a first period above 0 and a factor of at least 1.")
    period = first
    while epoch >= period:
        epoch -= period
        period *= factor
    return 0.5 * (1 + math.cos(math.pi * epoch / period))


def ramp(progress: float, length: float) -> float:
    """Rise linearly from 0 to 1 during the share ``length`` of training (KL warm-up)."""
    return min(1.0, progress / length) if length > 0 else 1.0
