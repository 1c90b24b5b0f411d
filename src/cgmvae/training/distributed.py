"""The processes that train together, as ``torchrun`` starts them, and how they communicate.

:class:`~cgmvae.training.pack.Pack` divides a training among them in one of two ways. With as many
members as processes or more, each process trains members of its own, and all weights are gathered
at the end. With fewer, all processes train all members, and each takes its shard of the rows of
every batch (:mod:`cgmvae.training.step`). A single process is a group of one.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from cgmvae.errors import InputError

Result = TypeVar("Result")

#: How long a process waits for the others in a step, which take as long as it does itself.
STEP_TIMEOUT = timedelta(minutes=30)

#: How long it waits where others may have much more to do, such as members of their own.
PATIENCE = timedelta(days=30)

#: What torchrun tells the processes that it starts.
_TOLD = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

#: Set to its own number by a process that has joined; those that it starts inherit torchrun's
#: variables, and this one, by which they know that they are not meant.
_JOINED = "CGMVAE_JOINED"


@dataclass(frozen=True)
class Group:
    """Processes that train together.

    All of them must call the same methods in the same order; where one has failed, the others get
    an :class:`InputError`. In a group of one process they return at once.
    """

    rank: int = 0
    """The number of this process, from 0."""
    size: int = 1
    """How many there are."""
    patient: Any = None
    """The channel for objects, on which processes wait long for each other."""

    @property
    def leads(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> None:
        """Add up a contiguous tensor over all processes, in place."""
        if self.size > 1:
            with _others_answer():
                dist.all_reduce(tensor)

    def broadcast_(self, tensor: Tensor) -> None:
        """Give the first process's contiguous tensor to all, in place."""
        if self.size > 1:
            with _others_answer():
                dist.broadcast(tensor, src=0)

    def broadcast(self, made: Callable[[], Result]) -> Result:
        """Return what the function returns in the first process; the others do not call it."""
        if self.size == 1:
            return made()
        held = [made() if self.leads else None]
        with _others_answer():
            dist.broadcast_object_list(held, src=0, group=self.patient)
        return held[0]  # type: ignore[return-value]

    def gather(self, value: Result) -> list[Result]:
        """Return the values of all processes, in order; pickle must be able to write them."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        with _others_answer():
            dist.all_gather_object(found, value, group=self.patient)
        return found

    def barrier(self) -> None:
        """Wait until all processes have come here."""
        self.gather(None)

    def is_first(self, event: str) -> bool:
        """Return whether no process has asked this of this event before.

        Unlike the other methods, it waits for nobody.
        """
        if self.size == 1:
            return True
        with _others_answer():
            return dist.distributed_c10d._get_default_store().add(f"cgmvae {event}", 1) == 1


#: A process by itself.
ALONE = Group()

_current: Group | None = None


def current_group(timeout: timedelta = STEP_TIMEOUT) -> Group:
    """Return the group that this process belongs to, and join it at the first call.

    Without ``torchrun``, or another program that sets the same variables, a process is alone. A
    process group that the caller has made is used as it is. CPUs communicate by gloo, GPUs by NCCL;
    a process uses the GPU of its local rank. ``timeout`` is how long a process waits for the others
    in a step.
    """
    global _current
    if _current is None or (_current.size > 1 and not dist.is_initialized()):
        _current = _join(timeout)
    return _current


def _join(timeout: timedelta) -> Group:
    if not dist.is_available():
        return ALONE
    if not dist.is_initialized():
        if not _is_called_for():
            return ALONE
        os.environ[_JOINED] = str(os.getpid())
        with _others_answer():
            dist.init_process_group(_backend(), timeout=timeout)
    if dist.get_world_size() == 1:
        return ALONE
    with _others_answer():
        patient = dist.new_group(backend="gloo", timeout=PATIENCE)
    # The threads of the group must not outlive the interpreter.
    atexit.register(lambda: dist.destroy_process_group() if dist.is_initialized() else None)
    return Group(dist.get_rank(), dist.get_world_size(), patient)


def _is_called_for() -> bool:
    """Return whether this very process, and not one that started it, is one of several."""
    joined = os.environ.get(_JOINED)
    several = all(name in os.environ for name in _TOLD) and os.environ["WORLD_SIZE"] != "1"
    return several and joined in (None, str(os.getpid()))


def _backend() -> str:
    """Choose the GPU of this process, and the backend of the group."""
    n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if n_devices == 0:
        return "gloo"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % n_devices)
    # NCCL refuses two processes on one GPU.
    several = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > n_devices
    return "gloo" if several or not dist.is_nccl_available() else "cpu:gloo,cuda:nccl"


@contextmanager
def _others_answer() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise InputError(
            "Another process of this training has ended or does not answer; see what it says, and "
            "start all of them again."
        ) from error
