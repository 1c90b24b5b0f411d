"""The training loop: any number of members of any packed network, in one pass over the steps.

The loop takes members and any network that returns named loss terms.
Schedules, clipping, stopping, best weights and failures are separate for each member, and what a
member draws at random depends only on its seed and its step, so it ends with the same weights in a
pack as alone, and after a resumed run as after an uninterrupted one. Members that have stopped are
dropped from the pack, and restored at the end with their best weights.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgmvae.errors import InputError
from cgmvae.nn.batch import Batch
from cgmvae.nn.packed import keep_members
from cgmvae.nn.rng import RandomStreams
from cgmvae.nn.sparse import SparseRows
from cgmvae.training.checkpoint import Checkpoint, Pace
from cgmvae.training.device import fast_products
from cgmvae.training.optimizer import FlatParameters
from cgmvae.training.plan import Member, Planner, TrainingConfig
from cgmvae.training.rows import TrainingRows, for_members
from cgmvae.training.selection import selection_value
from cgmvae.training.step import EpochInput, PackedStep, Recorded


class PackedNetwork(Protocol):
    """What the loop asks of a network: an ``nn.Module`` with a leading member axis."""

    def terms(self, batch: Batch, streams: RandomStreams | None) -> dict[str, Tensor]:
        """Return the unweighted loss terms, each (n_members, n_rows)."""

    def __call__(self, features: Tensor | SparseRows) -> Tensor:
        """Return the probabilities of all labels, (n_members, n_rows, n_labels).

        Sparse rows are given only to a network whose ``takes_sparse_rows`` is true.
        """


class History:
    """Numbers of each epoch.

    Attributes
    ----------
    values : dict of str to list of array (n_members,)
        Training terms by name, and ``validation`` with the metric that chooses the best epoch. NaN
        for a member that had stopped.
    """

    def __init__(self) -> None:
        self.values: dict[str, list[NDArray[np.float64]]] = {}

    def add(self, **numbers: NDArray[np.float64]) -> None:
        """Append the numbers of one epoch."""
        for name, value in numbers.items():
            self.values.setdefault(name, []).append(np.asarray(value, np.float64))

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return each series as an array, (n_epochs, n_members)."""
        return {name: np.stack(series) for name, series in self.values.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[np.float64]]) -> History:
        """Rebuild a history from :meth:`arrays`."""
        history = cls()
        history.values = {name: list(series) for name, series in arrays.items()}
        return history


class Diverged(InputError):
    """No member of a training has finite weights and scores."""


class TrainingResult(NamedTuple):
    """The outcome of a training, apart from the weights."""

    history: History
    best_epoch: NDArray[np.int64]
    """Epoch whose weights were kept, from 1, (n_members,)"""
    best_value: NDArray[np.float64]
    """Its validation metric, (n_members,)"""
    finished: NDArray[np.int64]
    """The members that were trained to the end; the network holds only these."""


#: The share of a pack that must have stopped for these members to be dropped: each time, the
#: network and the optimizer are laid out anew.
_STOPPED_SHARE = 0.25

#: How much better a validation metric must be to count as better.
_ROUNDING = 1e-12

#: Called after each epoch with the epoch's number, the number of epochs and the best metric so far.
Progress = Callable[[int, int, float], None]

#: Called after each epoch with the epoch's number, the members in training and their best metrics;
#: returns the members to continue with.
Keep = Callable[[int, NDArray[np.int64], NDArray[np.float64]], NDArray[np.int64]]


def train(
    network: Any,
    members: Sequence[Member],
    rows: TrainingRows,
    config: TrainingConfig,
    *,
    device: torch.device,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    keep: Keep | None = None,
    first_number: int = 0,
) -> TrainingResult:
    """Train all members; each ends with the weights of its best epoch.

    Parameters
    ----------
    network : PackedNetwork
        Changed in place.
    members : sequence of Member
        In the order of the network's leading axis.
    rows : TrainingRows
        The rows that the members' row numbers refer to.
    config : TrainingConfig
        The shared plan.
    device : torch.device
        Where network and rows are.
    checkpoint : Checkpoint, optional
        Where the state is saved after an epoch, as often as :class:`Pace` allows; an existing one
        is resumed.
    progress : callable, optional
        Called after each epoch.
    keep : callable, optional
        Called after each epoch; returns the members to continue with. The others are dropped.
    first_number : int
        What warnings call the first member.
    """
    run = _Run(network, members, rows, config, device, first_number)
    fingerprint: dict[str, Any] = {}
    if checkpoint is not None:
        fingerprint = run.fingerprint()
        run.restore(checkpoint.load(fingerprint), checkpoint.path)
    pace = Pace()
    while run.epoch < config.epochs and bool(run.running.any()):
        with fast_products(device):
            run.train_epoch()
            run.validate()
        if keep is not None and run.epoch < config.epochs:
            run.keep_only(keep(run.epoch, run.numbers, _host(run.best_value)))
        elif keep is None:
            run.drop_stopped_members()
        if checkpoint is not None and pace.is_due(run.n_bytes):
            with pace.saving():
                checkpoint.save(run.state(), fingerprint)
        if progress is not None:
            progress(run.epoch, config.epochs, run.best_so_far)
    return run.finish()


class _Run:
    """The state of one training: tensors of all members, and the epoch they have reached."""

    def __init__(
        self,
        network: Any,
        members: Sequence[Member],
        rows: TrainingRows,
        config: TrainingConfig,
        device: torch.device,
        first_number: int,
    ) -> None:
        self.network, self.rows, self.config, self.device = network, rows, config, device
        self.first_number = first_number
        n_members = len(members)
        self.all_members = members
        self.numbers = np.arange(n_members)
        self.final_epoch, self.final_value = np.zeros(n_members, np.int64), np.zeros(n_members)
        self._prepare()
        self.terms = tuple(self.step.sums)
        self.epoch = 0
        self.history = History()
        self.best = self.flat.values.clone()
        self.best_value = torch.full((n_members,), -torch.inf, dtype=torch.float64, device=device)
        self.best_epoch = torch.zeros(n_members, dtype=torch.int64, device=device)
        self.running = torch.ones(n_members, dtype=torch.bool, device=device)
        #: The members that have stopped and left the pack, and their best weights.
        self.stopped, self.stopped_best = np.zeros(0, np.int64), self.best[:0]
        #: The buffers of all members, and where they belong.
        self._buffers = [
            (part, name, buffer)
            for part in network.modules()
            for name, buffer in part.named_buffers(recurse=False)
        ]

    def _prepare(self) -> None:
        """Set up what belongs to the members in training."""
        self.members = [self.all_members[int(i)] for i in self.numbers]
        self.planner = Planner(self.members, self.config)
        self.step = PackedStep(self.network, self.members, self.config, self.device)
        self.flat = self.step.flat
        self.validation = self._validation_rows()
        self._planned: EpochInput | None = None
        #: The validation metrics, and the work that computes them on a GPU.
        self._value = torch.zeros(len(self.members), dtype=torch.float64, device=self.device)
        self._recorded = Recorded()

    def keep_only(self, numbers: NDArray[np.int64]) -> None:
        """Drop all members but these from the pack."""
        if len(numbers) == len(self.numbers):
            return
        self._settle()
        kept = torch.from_numpy(np.flatnonzero(np.isin(self.numbers, numbers))).to(self.device)
        old = self.step.adam
        keep_members(self.network, kept)
        self.numbers = self.numbers[kept.cpu().numpy()]
        self._prepare()
        for new, values in zip(self.step.adam.state(), old.state(), strict=True):
            new.copy_(values[kept])
        for name in ("best", "best_value", "best_epoch", "running"):
            setattr(self, name, getattr(self, name)[kept])

    def drop_stopped_members(self) -> None:
        """Drop members that have stopped, if they are many and others go on.

        A GPU trains a few members less in nearly the same time, and would record its step anew.
        """
        if self.device.type != "cpu":
            return
        stopped = ~self.running
        share = float(stopped.double().mean())
        if self.config.patience is None or not _STOPPED_SHARE <= share < 1:
            return
        self.stopped = np.append(self.stopped, self.numbers[_host(stopped)])
        self.stopped_best = torch.cat([self.stopped_best, self.best[stopped]])
        self.keep_only(self.numbers[_host(self.running)])

    def _restore_stopped_members(self) -> None:
        """Bring back the members that have left the pack, with their best weights."""
        numbers = np.append(self.numbers, self.stopped)
        order = torch.from_numpy(np.argsort(numbers)).to(self.device)
        for parameter in self.network.parameters():
            parameter.data = parameter.data.new_empty(len(order), *parameter.shape[1:])
        for part, name, buffer in self._buffers:
            setattr(part, name, buffer)
        self.flat = FlatParameters(self.network)
        self.best = torch.cat([self.best, self.stopped_best])[order]
        self.numbers = np.sort(numbers)

    @property
    def best_so_far(self) -> float:
        """The best metric of a member, whether it has left the pack or not."""
        return float(np.append(_host(self.best_value), self.final_value[self.stopped]).max())

    def _settle(self) -> None:
        """Record what the members in training have reached."""
        self.final_epoch[self.numbers] = _host(self.best_epoch)
        self.final_value[self.numbers] = _host(self.best_value)
        for part, name, buffer in self._buffers:
            if (current := getattr(part, name)) is not buffer:
                buffer[torch.from_numpy(self.numbers).to(self.device)] = current

    def _of_all(self, values: Tensor) -> NDArray[np.float64]:
        """Return arrays over all members, (…, n_members), NaN for those no longer in training."""
        spread = np.full((*values.shape[:-1], len(self.all_members)), np.nan)
        spread[..., self.numbers] = _host(values)
        return spread

    def fingerprint(self) -> dict[str, Any]:
        """Return what must agree for a checkpoint to be resumed."""
        settings = {
            "config": asdict(self.config),
            "members": [member.fingerprint() for member in self.all_members],
            "data": self.rows.digests(),
            "parameters": dict(zip(self.flat.names, map(list, self.flat.shapes), strict=True)),
            "dtype": str(self.flat.values.dtype),
        }
        return json.loads(json.dumps(settings, default=repr))

    def train_epoch(self) -> None:
        """Take every member's steps of one epoch."""
        plan = self._planned or self._plan()
        self.step.start_epoch(
            self.running,
            lambda term: self.planner.factor(term, self.epoch),
            frozen=self.planner.in_second_stage(self.epoch),
        )
        if any(self.flat.of_encoder):
            factors = torch.tensor(self.planner.encoder_factors(self.epoch))
            self.step.adam.encoder_factor.copy_(factors)
        self.step.take_epoch(self.rows, plan)
        self.epoch += 1
        # Planned while the GPU is still at work.
        if self.epoch < self.config.epochs:
            self._planned = self._plan()
        failed_at = self.step.failed_at
        self._report_failures(failed_at, plan.order, plan.weight)
        self.running &= failed_at < 0
        n_steps = torch.as_tensor(self.planner.steps_of, device=self.device)
        sums, nothing = self.step.sums, torch.full_like(self.best_value, torch.nan)
        means = {
            # The members that were dropped may have been the last with a weight for a term.
            name: torch.where(self.running, sums[name] / n_steps, torch.nan)
            if name in sums
            else nothing
            for name in self.terms
        }
        series = zip(means, self._of_all(torch.stack(list(means.values()))), strict=True)
        self.history.add(**dict(series))

    def _plan(self) -> EpochInput:
        """Plan the epoch, and let the device fetch the plan when it is ready for it."""
        dtype = self.flat.values.dtype
        plan, dtypes = self.planner.epoch(self.epoch), (torch.int64, dtype, dtype, torch.int32)
        parts = (torch.from_numpy(part).to(kind) for part, kind in zip(plan, dtypes, strict=True))
        if self.device.type == "cuda":
            parts = (part.pin_memory() for part in parts)
        return EpochInput(*(part.to(self.device, non_blocking=True) for part in parts))

    def _validation_rows(self) -> Tensor:
        """Return row numbers, (n_members or 1, n_rows), −1 where they only fill the shape."""
        parts = [np.asarray(member.validation_rows) for member in self.members]
        if all(np.array_equal(part, parts[0]) for part in parts[1:]):
            parts = parts[:1]
        rows = np.full((len(parts), max(len(part) for part in parts)), -1, np.int64)
        for row, part in zip(rows, parts, strict=True):
            row[: len(part)] = part
        return torch.from_numpy(rows).to(self.device)

    @torch.no_grad()
    def validate(self) -> None:
        """Score members on their validation rows; keep their best weights, stop them in time."""
        value = self._validation_value()
        # A rounding difference is no improvement; it may depend on the other members.
        better = self.running & (value > self.best_value + _ROUNDING)
        better &= torch.isfinite(self.flat.values.sum(1))
        self.best_value = torch.where(better, value, self.best_value)
        self.best_epoch = torch.where(better, self.epoch, self.best_epoch)
        chosen = better.nonzero().squeeze(1).tolist()
        rows = [self.best[i] for i in chosen], [self.flat.values[i] for i in chosen]
        if len(chosen):
            torch._foreach_copy_(*rows)
        self.history.add(validation=self._of_all(torch.where(self.running, value, torch.nan)))
        if self.config.patience is not None:
            self.running &= self.epoch - self.best_epoch < self.config.patience

    def _validation_value(self) -> Tensor:
        """Return each member's metric, (n_members,).

        NaN if a score is NaN; the number of the epoch for a member without validation rows, whose
        last epoch is its best.
        """
        rows = self.validation
        if rows.shape[1] == 0:
            return torch.full_like(self.best_value, float(self.epoch))
        if self.device.type == "cuda" and self.rows.on_device:
            self._recorded(lambda: self._value.copy_(self._score(rows)))
        else:
            self._value = self._score(rows)
        return torch.where((rows >= 0).any(1), self._value, float(self.epoch))

    def _score(self, rows: Tensor) -> Tensor:
        """Return each member's metric on these rows, (n_members,); NaN if a score is NaN."""
        real = rows >= 0
        filled = rows.clamp(min=0)
        n_members = len(self.members)
        scores = torch.cat(
            [
                self.network(for_members(self.rows.features.batch(part), n_members))
                for part in filled.split(1024, dim=1)
            ],
            dim=1,
        )
        batch = self.rows._replace(features=self.rows.positive, weight=None).batch(filled, filled)
        known = (batch.known & real[..., None]).expand_as(scores)
        positive = batch.positive & known
        value = selection_value(self.config.selection, scores, positive, known)
        return torch.where((scores.isnan() & real[..., None]).any(2).any(1), torch.nan, value)

    def _report_failures(self, failed_at: Tensor, order: Tensor, weight: Tensor) -> None:
        """Warn which members failed and where; raise if no member has usable weights."""
        failed = failed_at >= 0
        usable = (self.running & ~failed) | (self.best_epoch > 0)
        for i in failed.nonzero().squeeze(1).tolist():
            step = int(failed_at[i])
            where = self._failure(i, order[:, step], weight[:, step], step)
            number = self.first_number + self.numbers[i]
            message = (
                f"Member {number} stopped in epoch {self.epoch}: {where} is not finite; lower its "
                "learning rate or check that row."
            )
            if not bool(usable.any()) and not self.final_epoch[self.stopped].any():
                raise Diverged(message)
            warnings.warn(message, UserWarning, stacklevel=4)

    @torch.no_grad()
    def _failure(self, member: int, order: Tensor, weight: Tensor, step: int) -> str:
        """Name the term and row of a failure; the weights are still those of the failed step."""
        self.step.streams.seek(1 + (self.epoch - 1) * self.planner.steps_of + step)
        batch = self.rows.batch(order, weight)
        terms = self.network.terms(batch, self.step.streams)
        for name, term in terms.items():
            bad = (~torch.isfinite(term[member]) & (batch.weight[member] > 0)).nonzero()
            if name in self.step.weights and bool(self.step.weights[name][member]) and len(bad):
                return f"the term {name!r} of row {int(order[member, bad[0, 0]])}"
        return "its gradient"

    @property
    def n_bytes(self) -> int:
        """The size of :meth:`state`, nearly: weights, best weights and two moments."""
        return 4 * self.flat.values.nbytes

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything that a resumed run needs, as arrays by name."""
        tensors = {
            "values": self.flat.values,
            "mean": self.step.adam.mean,
            "square": self.step.adam.square,
            "n_steps": self.step.adam.n_steps,
            "best": self.best,
            "stopped_best": self.stopped_best,
            "best_value": self.best_value,
            "best_epoch": self.best_epoch,
            "running": self.running,
        }
        arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
        arrays |= {"members": self.numbers, "stopped": self.stopped}
        arrays["final_epoch"] = self.final_epoch
        arrays["final_value"] = self.final_value
        history = {f"history.{name}": array for name, array in self.history.arrays().items()}
        return {"epoch": np.array([self.epoch]), **arrays, **history}

    def restore(self, state: dict[str, NDArray[Any]] | None, path: Any) -> None:
        """Continue from what :meth:`state` returned, read from ``path``; nothing without it."""
        if state is None:
            return
        numbers = state.get("members", self.numbers)
        self.stopped = state.get("stopped", self.stopped).astype(np.int64)
        if numbers.ndim != 1 or len(numbers) == 0 or not np.isin(numbers, self.numbers).all():
            raise _wrong("members", path)
        others = np.setdiff1d(self.numbers, numbers)
        if self.stopped.ndim != 1 or not np.isin(self.stopped, others).all():
            raise _wrong("stopped", path)
        self.stopped_best = self.best[self.stopped]
        self.keep_only(numbers)
        for name, array in self.state().items():
            found = state.get(name)
            if found is None or (found.dtype, found.shape) != (array.dtype, array.shape):
                raise _wrong(name, path)
        self.epoch = int(state["epoch"][0])
        if not 0 < self.epoch <= self.config.epochs:
            raise _wrong("epoch", path)
        self._planned = None
        self.flat.set(torch.from_numpy(state["values"]))
        adam = self.step.adam
        targets = {
            "mean": adam.mean,
            "square": adam.square,
            "n_steps": adam.n_steps,
            "best": self.best,
            "stopped_best": self.stopped_best,
        }
        for name, target in targets.items():
            target.copy_(torch.from_numpy(state[name]))
        for name in ("best_value", "best_epoch", "running"):
            setattr(self, name, torch.from_numpy(state[name]).to(self.device))
        self.final_epoch, self.final_value = state["final_epoch"], state["final_value"]
        series = {name: state.get(f"history.{name}") for name in (*self.terms, "validation")}
        shape = (self.epoch, len(self.all_members))
        history = {name: each for name, each in series.items() if each is not None}
        if history.keys() != series.keys() or any(e.shape != shape for e in history.values()):
            raise _wrong("history", path)
        self.history = History.from_arrays(history)

    def finish(self) -> TrainingResult:
        """Give each member its best weights."""
        self._settle()
        if not self.final_epoch[np.append(self.numbers, self.stopped)].any():
            raise Diverged("No epoch gave finite scores; lower the learning rate.")
        if len(self.stopped):
            self._restore_stopped_members()
        self.flat.set(self.best)
        self.flat.release()
        return TrainingResult(self.history, self.final_epoch, self.final_value, self.numbers)


def _wrong(name: str, path: Any) -> InputError:
    return InputError(f"The checkpoint {path} has a wrong {name!r}; remove it or use another file.")


def _host(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy()
