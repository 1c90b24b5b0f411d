"""The training loop: any number of members of any packed network, in one pass over the steps.

The loop knows members and a network that returns named loss terms; it does not know which network.
Schedules, clipping, stopping, best weights and failures are each member's own, and what a member
draws at random depends on its seed and its step alone, so it ends with the same weights in company
as alone, and after a resumed run as after an uninterrupted one.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgmvae.errors import InputError
from cgmvae.nn.batch import Batch
from cgmvae.nn.noise import Noise, make_noise, stream_seed
from cgmvae.training import schedules
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.device import fast_products
from cgmvae.training.history import History
from cgmvae.training.members import Member, column, weight_tensors
from cgmvae.training.optimizer import FlatParameters, PackedAdam
from cgmvae.training.rows import RowStore, digest
from cgmvae.training.selection import MEAN_OF_FIVE, selection_value


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


class PackedNetwork(Protocol):
    """What the loop asks of a network: an ``nn.Module`` with a leading member axis."""

    def terms(self, batch: Batch, noise: Noise | None) -> dict[str, Tensor]:
        """Return the unweighted loss terms, each (n_members, n_rows)."""

    def __call__(self, features: Tensor) -> Tensor:
        """Return the probabilities of all labels, (n_members, n_rows, n_labels)."""


class TrainingRows(NamedTuple):
    """All rows that members refer to by number, on the device."""

    features: RowStore
    positive: RowStore
    unknown: RowStore | None
    weight: Tensor | None
    """How much each row counts, (n_rows,)"""

    def batch(self, rows: Tensor, weight: Tensor) -> Batch:
        """Gather rows, (n_members, n_rows)."""
        positive = self.positive.gather(rows)
        known = torch.ones_like(positive[:1, :1]).expand_as(positive)
        if self.unknown is not None:
            known = ~self.unknown.gather(rows)
            positive = positive & known
        if self.weight is not None:
            weight = weight * self.weight[rows]
        return Batch(self.features.gather(rows), positive, known, weight)

    def digests(self) -> list[str]:
        """Return a hash of each part."""
        stores = [store.digest() for store in self[:3] if store is not None]
        return stores if self.weight is None else [*stores, digest(_host(self.weight))]


class TrainingResult(NamedTuple):
    """What training leaves beside the weights, which are each member's best."""

    history: History
    best_epoch: NDArray[np.int64]
    """Epoch whose weights were kept, from 1, (n_members,)"""
    best_value: NDArray[np.float64]
    """Its validation metric, (n_members,)"""


#: How much better a validation metric must be to count as better.
_ROUNDING = 1e-12

#: Called after each epoch with the epoch's number, the number of epochs and the best metric so far.
Progress = Callable[[int, int, float], None]


def train(
    network: Any,
    members: Sequence[Member],
    rows: TrainingRows,
    config: TrainingConfig,
    *,
    device: torch.device,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> TrainingResult:
    """Train all members and leave each with the weights of its best epoch.

    Parameters
    ----------
    network : PackedNetwork
        Changed in place.
    members : sequence of Member
        In the order of the network's leading axis.
    rows : TrainingRows
        What the members' row numbers refer to.
    config : TrainingConfig
        The shared plan.
    device : torch.device
        Where network and rows are.
    checkpoint : Checkpoint, optional
        Where the state is kept after each epoch, and continued from where there is one.
    progress : callable, optional
        Told after each epoch.
    """
    run = _Run(network, members, rows, config, device)
    fingerprint: dict[str, Any] = {}
    if checkpoint is not None:
        fingerprint = run.fingerprint()
        run.restore(checkpoint.load(fingerprint), checkpoint.path)
    while run.epoch < config.epochs and bool(run.running.any()):
        with fast_products(device):
            run.train_epoch()
        run.validate()
        if checkpoint is not None:
            checkpoint.save(run.state(), fingerprint)
        if progress is not None:
            progress(run.epoch, config.epochs, float(run.best_value.max()))
    return run.finish()


class _Run:
    """The state of one training: tensors of all members, and the epoch that they have reached."""

    def __init__(
        self,
        network: Any,
        members: Sequence[Member],
        rows: TrainingRows,
        config: TrainingConfig,
        device: torch.device,
    ) -> None:
        self.network, self.members, self.rows = network, members, rows
        self.config, self.device = config, device
        self.flat = FlatParameters(network)
        dtype, n_members = self.flat.values.dtype, len(members)
        decay = column(members, "weight_decay")
        self.adam = PackedAdam(self.flat, decay, kind=config.optimizer, clip=config.clip)
        self.noise = make_noise(column(members, "seed"), device)
        self.weights = weight_tensors(members, dtype=dtype, device=device)
        if not self.weights:
            raise InputError("Every term has weight 0; give at least one of them a weight.")
        self.epoch = 0
        self.history = History()
        self.best = self.flat.values.clone()
        self.best_value = torch.full((n_members,), -torch.inf, dtype=torch.float64, device=device)
        self.best_epoch = torch.zeros(n_members, dtype=torch.int64, device=device)
        self.running = torch.ones(n_members, dtype=torch.bool, device=device)
        sizes = [len(member.train_rows) for member in members]
        if min(sizes) == 0:
            raise InputError("There are no rows to learn from; give more rows.")
        self.steps_of = np.array([-(-n // config.batch_size) for n in sizes])
        self.validation = self._validation_rows()

    def fingerprint(self) -> dict[str, Any]:
        """Return what must agree for a checkpoint to be continued."""
        settings = {
            "config": asdict(self.config),
            "members": [member.fingerprint() for member in self.members],
            "data": self.rows.digests(),
            "parameters": dict(zip(self.flat.names, map(list, self.flat.shapes), strict=True)),
            "dtype": str(self.flat.values.dtype),
        }
        return json.loads(json.dumps(settings, default=repr))

    def train_epoch(self) -> None:
        """Take every member's steps of one epoch."""
        order, weight = self._row_order()
        rates = self._learning_rates()
        sums = {name: self.best_value.new_zeros(len(self.members)) for name in self.weights}
        alive = self.running.clone()
        failed_at = torch.full_like(self.best_epoch, -1)
        for step in range(int(self.steps_of.max())):
            self.noise.seek(self._step_numbers(step))
            batch = self.rows.batch(order[:, step], weight[:, step])
            means = self._mean_terms(batch)
            # Eq. 8, the one place where terms are weighted.
            total = torch.stack([self._weight(n) * mean for n, mean in means.items()]).sum(0)
            gradient = self.flat.collect_gradients(total.sum())
            stepping = alive & (batch.weight.sum(1) > 0)
            finite = torch.isfinite(gradient.sum(1)) & torch.isfinite(total.detach())
            failed_at = torch.where(stepping & ~finite, step, failed_at)
            alive &= finite | ~stepping
            self.adam.step(rates[step], stepping & finite)
            for name, mean in means.items():
                sums[name] += torch.where(stepping, mean.detach(), 0.0)
        self.epoch += 1
        self._report_failures(failed_at, order, weight)
        self.running &= failed_at < 0
        steps = torch.as_tensor(self.steps_of, device=self.device)
        means = {name: torch.where(self.running, s / steps, torch.nan) for name, s in sums.items()}
        self.history.add(**{name: _host(mean) for name, mean in means.items()})

    def _mean_terms(self, batch: Batch) -> dict[str, Tensor]:
        """Return the weighted mean over rows of each term that somebody weighs, (n_members,)."""
        terms = self.network.terms(batch, self.noise)
        if missing := [name for name in self.weights if name not in terms]:
            raise InputError(
                f"The term {missing[0]!r} has a weight, but the network has no such term."
            )
        total = batch.weight.sum(1, keepdim=True)
        share = batch.weight / total.masked_fill(total == 0, 1.0)
        return {name: (terms[name] * share).sum(1) for name in self.weights}

    def _weight(self, name: str) -> Tensor:
        """Return the weight of a term in this epoch, (n_members,)."""
        progress = self.epoch / self.config.epochs
        factor = schedules.ramp(progress, self.config.kl_warmup) if name == "kl" else 1.0
        if self.config.first_stage > 0:
            first = progress < self.config.first_stage
            factor *= first != (name == "cross_entropy")
        return self.weights[name] * factor

    def _row_order(self) -> tuple[Tensor, Tensor]:
        """Return row numbers and weights of the epoch's steps, (n_members, n_steps, batch_size)."""
        size, n_steps = self.config.batch_size, int(self.steps_of.max())
        order = np.empty((len(self.members), n_steps * size), np.int64)
        weight = np.zeros(order.shape, np.float32)
        for i, member in enumerate(self.members):
            generator = np.random.default_rng(stream_seed(member.seed, f"order {self.epoch}"))
            n = len(member.train_rows)
            own = member.train_rows[generator.permutation(n)]
            # What fills up the shape is a row of the member's own: another's might not be finite.
            order[i] = own[0]
            order[i, :n] = own
            weight[i, :n] = 1.0
        shape = (len(self.members), n_steps, size)
        dtype = self.flat.values.dtype
        return (
            torch.from_numpy(order.reshape(shape)).to(self.device),
            torch.from_numpy(weight.reshape(shape)).to(self.device, dtype),
        )

    def _step_numbers(self, step: int) -> list[int]:
        """Return the number of each member's own step, counted from 1 over all epochs."""
        return [1 + self.epoch * int(n) + step for n in self.steps_of]

    def _learning_rates(self) -> Tensor:
        """Return the learning rates of the epoch, (n_steps, n_members)."""
        config, n_steps = self.config, int(self.steps_of.max())
        highest = np.array(column(self.members, "learning_rate"))
        floor = np.minimum(config.floor_learning_rate, highest)
        rates = np.empty((n_steps, len(self.members)))
        for i, own_steps in enumerate(self.steps_of):
            for step in range(n_steps):
                # The middle of the step: neither the first nor the last update is lost to a zero.
                epoch = self.epoch + (min(step, own_steps - 1) + 0.5) / own_steps
                rates[step, i] = self._rate_factor(epoch)
        rates = floor + (highest - floor) * rates
        return torch.from_numpy(rates).to(self.device, self.flat.values.dtype)

    def _rate_factor(self, epoch: float) -> float:
        config = self.config
        if config.schedule == "constant":
            return 1.0
        if config.schedule == "cosine":
            return schedules.cosine(epoch / config.epochs, config.warmup)
        return schedules.warm_restarts(epoch, config.restart_epochs, config.restart_factor)

    def _validation_rows(self) -> Tensor:
        """Return row numbers, (n_members or 1, n_rows), −1 where they only fill up the shape."""
        parts = [np.asarray(member.validation_rows) for member in self.members]
        if all(np.array_equal(part, parts[0]) for part in parts[1:]):
            parts = parts[:1]
        rows = np.full((len(parts), max(len(part) for part in parts)), -1, np.int64)
        for row, part in zip(rows, parts, strict=True):
            row[: len(part)] = part
        return torch.from_numpy(rows).to(self.device)

    @torch.no_grad()
    def validate(self) -> None:
        """Score members on their validation rows; keep their best weights, stop the idle."""
        value = self._validation_value()
        # A difference of rounding is no improvement; it may depend on the company.
        better = self.running & (value > self.best_value + _ROUNDING)
        better &= torch.isfinite(self.flat.values.sum(1))
        self.best_value = torch.where(better, value, self.best_value)
        self.best_epoch = torch.where(better, self.epoch, self.best_epoch)
        chosen = better.nonzero().squeeze(1)
        self.best[chosen] = self.flat.values[chosen]
        self.history.add(validation=_host(torch.where(self.running, value, torch.nan)))
        if self.config.patience is not None:
            self.running &= self.epoch - self.best_epoch < self.config.patience

    def _validation_value(self) -> Tensor:
        """Return each member's metric, (n_members,).

        NaN where a score is; the number of the epoch for a member without validation rows, whose
        last epoch is its best.
        """
        rows = self.validation
        if rows.shape[1] == 0:
            return torch.full_like(self.best_value, float(self.epoch))
        real = rows >= 0
        filled = rows.clamp(min=0)
        n_members = len(self.members)
        scores = torch.cat(
            [
                self.network(self.rows.features.gather(part).expand(n_members, -1, -1))
                for part in filled.split(1024, dim=1)
            ],
            dim=1,
        )
        batch = self.rows._replace(features=self.rows.positive, weight=None).batch(filled, filled)
        known = (batch.known & real[..., None]).expand_as(scores)
        positive = batch.positive & known
        value = selection_value(self.config.selection, scores, positive, known)
        value = torch.where((scores.isnan() & real[..., None]).any(2).any(1), torch.nan, value)
        return torch.where(real.any(1), value, float(self.epoch))

    def _report_failures(self, failed_at: Tensor, order: Tensor, weight: Tensor) -> None:
        """Say which members failed and where; raise where no member is left with anything."""
        failed = failed_at >= 0
        usable = (self.running & ~failed) | (self.best_epoch > 0)
        for i in failed.nonzero().squeeze(1).tolist():
            step = int(failed_at[i])
            where = self._failure(i, order[:, step], weight[:, step], step)
            message = (
                f"Member {i} stopped in epoch {self.epoch}: {where} is not finite; "
                "lower its learning rate or check that row."
            )
            if not bool(usable.any()):
                raise InputError(message)
            warnings.warn(message, UserWarning, stacklevel=4)

    @torch.no_grad()
    def _failure(self, member: int, order: Tensor, weight: Tensor, step: int) -> str:
        """Name term and row of a failure; the weights still are those of the failed step."""
        self.noise.seek([1 + (self.epoch - 1) * int(n) + step for n in self.steps_of])
        batch = self.rows.batch(order, weight)
        for name, term in self.network.terms(batch, self.noise).items():
            bad = (~torch.isfinite(term[member]) & (batch.weight[member] > 0)).nonzero()
            if name in self.weights and bool(self.weights[name][member]) and len(bad):
                return f"the term {name!r} of row {int(order[member, bad[0, 0]])}"
        return "its gradient"

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything that a continued run needs, as arrays by name."""
        tensors = {
            "values": self.flat.values,
            "mean": self.adam.mean,
            "square": self.adam.square,
            "n_steps": self.adam.n_steps,
            "best": self.best,
            "best_value": self.best_value,
            "best_epoch": self.best_epoch,
            "running": self.running,
        }
        arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
        history = {f"history.{name}": array for name, array in self.history.arrays().items()}
        return {"epoch": np.array([self.epoch]), **arrays, **history}

    def restore(self, state: dict[str, NDArray[Any]] | None, path: Any) -> None:
        """Continue from what :meth:`state` returned, read from ``path``; nothing without it."""
        if state is None:
            return
        for name, array in self.state().items():
            found = state.get(name)
            if found is None or (found.dtype, found.shape) != (array.dtype, array.shape):
                raise InputError(f"{path} has no right {name!r}; remove it or name another file.")
        self.epoch = int(state["epoch"][0])
        targets = (self.flat.values, self.adam.mean, self.adam.square, self.adam.n_steps, self.best)
        names = ("values", "mean", "square", "n_steps", "best")
        for target, name in zip(targets, names, strict=True):
            target.copy_(torch.from_numpy(state[name]))
        for name in ("best_value", "best_epoch", "running"):
            setattr(self, name, torch.from_numpy(state[name]).to(self.device))
        prefix = "history."
        self.history = History.from_arrays(
            {key[len(prefix) :]: array for key, array in state.items() if key.startswith(prefix)}
        )

    def finish(self) -> TrainingResult:
        """Give each member its best weights."""
        if not bool((self.best_epoch > 0).any()):
            raise InputError("No epoch gave finite scores; lower the learning rate.")
        self.flat.values.copy_(self.best)
        return TrainingResult(self.history, _host(self.best_epoch), _host(self.best_value))


def _host(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy()
