"""One step of all members: terms, gradients, update; on a GPU recorded and replayed.

Launching a hundred kernels takes longer than the kernels themselves, so on a GPU the step is
recorded once as a CUDA graph over fixed tensors, and then replayed. If the rows are on the GPU too,
their numbers for a whole epoch are among these tensors: the recorded step gathers its batch, and
counts the steps, so that the host only replays it.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cgmvae.errors import InputError
from cgmvae.nn import cuda
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import make_streams
from cgmvae.nn.sparse import Scratch, SparseRows
from cgmvae.training.optimizer import FlatParameters, PackedAdam, gradient_norms
from cgmvae.training.plan import Member, TrainingConfig, column, weight_tensors
from cgmvae.training.rows import TrainingRows

#: Steps before one is recorded: libraries and memory pools settle.
_WARM_UP = 3


class StepInput(NamedTuple):
    """What changes from step to step."""

    batch: Batch
    rates: Tensor
    """Learning rates, (n_members,)"""
    numbers: Tensor
    """Each member's own step, the key of its streams, int32 (n_members,)"""
    number: Tensor
    """The step's number within the epoch, int64 ()"""


class EpochInput(NamedTuple):
    """What changes from epoch to epoch: :class:`~cgmvae.training.plan.Epoch` on the device."""

    order: Tensor
    weight: Tensor
    rates: Tensor
    numbers: Tensor


class PackedStep:
    """The weights, moments and streams of a pack, and the step that changes them.

    Parameters
    ----------
    network : PackedNetwork
    members : sequence of Member
    config : TrainingConfig
    device : torch.device

    Attributes
    ----------
    sums : dict of str to Tensor, (n_members,)
        Sum of each term over the steps of the epoch.
    failed_at : Tensor of int, (n_members,)
        The step of the epoch at which a member's loss or gradient was not finite, or −1.
    """

    def __init__(
        self,
        network: Any,
        members: Sequence[Member],
        config: TrainingConfig,
        device: torch.device,
    ) -> None:
        self.network = network
        half = config.precision == "bf16" and cuda.usable(next(network.parameters()))
        self.flat = FlatParameters(network, half=half)
        decay = column(members, "weight_decay")
        self.adam = PackedAdam(
            self.flat, decay, kind=config.optimizer, decay_all=config.decay_all, clip=config.clip
        )
        self.streams = make_streams(column(members, "seed"), device)
        self.weights = weight_tensors(members, dtype=self.flat.values.dtype, device=device)
        if not self.weights:
            raise InputError("Every term has weight 0; give at least one of them a weight.")
        self._weights_now = torch.stack(list(self.weights.values()))
        self._sums = torch.zeros_like(self._weights_now, dtype=torch.float64)
        self.sums = dict(zip(self.weights, self._sums, strict=True))
        self.failed_at = torch.full((len(members),), -1, dtype=torch.int64, device=device)
        self._alive = torch.ones(len(members), dtype=torch.bool, device=device)
        self._learns = self.flat.mask(getattr(network, "classifier", self.flat.names))
        self._frozen: Tensor | None = None
        self._scratch = Scratch()
        self._records = device.type == "cuda"
        #: The step that is given its input, and the one that takes its own from the epoch's.
        self._single, self._next = Recorded(), Recorded()
        self._input: StepInput | None = None
        self._epoch: EpochInput | None = None
        self._number = torch.zeros(1, dtype=torch.int64, device=device)

    def start_epoch(
        self, running: Tensor, factor: Callable[[str], float], *, frozen: bool = False
    ) -> None:
        """Begin an epoch with the running members and each term's factor.

        If it is ``frozen``, only the parameters that the network names as its ``classifier`` learn.
        """
        self._frozen = self.flat.values.clone() if frozen else None
        for now, (name, weight) in zip(self._weights_now, self.weights.items(), strict=True):
            now.copy_(weight * factor(name))
        self._sums.zero_()
        self.failed_at.fill_(-1)
        self._alive.copy_(running)

    def take_epoch(self, rows: TrainingRows, given: EpochInput) -> None:
        """Take all steps of an epoch; the rows must be the same each time."""
        if self._records and rows.on_device:
            if self._epoch is None:
                self._epoch = EpochInput(*(torch.empty_like(part) for part in given))
            for source, target in zip(given, self._epoch, strict=True):
                target.copy_(source)
            self._number.zero_()
            for _ in range(len(given.rates)):
                self._next(lambda: self._update_next(rows))
                self._restore_frozen()
            return
        numbers = torch.arange(len(given.rates), device=given.rates.device)
        for i, number in enumerate(numbers):
            batch = rows.batch(given.order[:, i], given.weight[:, i])
            self.take(StepInput(batch, given.rates[i], given.numbers[i], number))

    def _update_next(self, rows: TrainingRows) -> None:
        """Take the epoch's step of this number, without the host knowing it."""
        assert self._epoch is not None
        order, weight, rates, numbers = (
            part.index_select(axis, self._number).squeeze(axis)
            for part, axis in zip(self._epoch, (1, 1, 0, 0), strict=True)
        )
        self._update(StepInput(rows.batch(order, weight), rates, numbers, self._number[0]))
        self._number += 1

    def take(self, given: StepInput) -> None:
        """Take one step."""
        if not self._records:
            self._update(given)
        else:
            self._input = fixed = _like(given) if self._input is None else self._input
            _copy(given, fixed)
            self._single(lambda: self._update(fixed))
        self._restore_frozen()

    def _restore_frozen(self) -> None:
        if self._frozen is not None:  # momentum and weight decay move them too
            self.flat.set(torch.where(self._learns, self.flat.values, self._frozen))

    def _update(self, given: StepInput) -> None:
        batch = given.batch
        if isinstance(batch.features, SparseRows):
            # Both layers that take the rows need this order.
            self._scratch.release()
            batch = batch._replace(features=batch.features.indexed(self._scratch))
        self.streams.seek(given.numbers)
        total_weight = batch.total_weight()
        share = batch.weight / total_weight.masked_fill(total_weight == 0, 1.0)[:, None]
        terms = self.network.terms(batch, self.streams)
        if missing := [name for name in self.weights if name not in terms]:
            raise InputError(
                f"The term {missing[0]!r} has a weight, but the network has no such term."
            )
        means = (torch.stack([terms[name] for name in self.weights]) * share).sum(2)
        # Members share no weights, so the gradient of the sum of their losses is that of each.
        losses = (self._weights_now * means).sum(0)  # Eq. 8
        gradients = self.flat.gradients(losses.sum())
        means, losses = means.detach(), losses.detach()
        norms = gradient_norms(gradients)
        stepping = self._alive & (total_weight > 0)
        active = stepping & ((norms + losses).abs() < torch.inf)  # not so of NaN either
        failed = stepping ^ active
        # masked_fill would read the index on the host, and the step could not be recorded.
        torch.where(failed, given.number, self.failed_at, out=self.failed_at)
        self._alive ^= failed
        self.adam.step(gradients, norms, given.rates, active)
        self._sums += torch.where(stepping, means, 0.0)


class Recorded:
    """Work on fixed tensors that is done a few times, recorded, and then replayed.

    A network that cannot be recorded (one that waits for a result on the host) is called each time.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._can_record = True

    def __call__(self, work: Callable[[], object]) -> None:
        """Do the work, which must be the same each time."""
        self._calls += 1
        if self._graph is None and self._can_record and self._calls > _WARM_UP:
            self._record(work)
        if self._graph is not None:
            self._graph.replay()
        else:
            self._warm_up(work)

    def _warm_up(self, work: Callable[[], object]) -> None:
        """Call the function on a stream of its own, as recording asks for."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
        torch.cuda.current_stream().wait_stream(stream)

    def _record(self, work: Callable[[], object]) -> None:
        graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        gc.disable()  # freeing GPU memory during a recording spoils it
        try:
            with torch.cuda.graph(graph):
                work()
        except RuntimeError as error:
            self._can_record = False
            torch.cuda.synchronize()
            reason = str(error).partition("\n")[0]
            warnings.warn(
                f"This network cannot be recorded as a CUDA graph and runs slower ({reason}).",
                stacklevel=5,
            )
        else:
            self._graph = graph
        finally:
            if collecting:
                gc.enable()


def _like(given: StepInput) -> StepInput:
    """Return new tensors of the same form."""
    batch = Batch(*(torch.empty_like(part, memory_format=_DENSE) for part in given.batch))
    return StepInput(batch, *(torch.empty_like(part) for part in given[1:]))


_DENSE = torch.contiguous_format


def _copy(source: StepInput, target: StepInput) -> None:
    for a, b in zip((*source.batch, *source[1:]), (*target.batch, *target[1:]), strict=True):
        b.copy_(a, non_blocking=True)
