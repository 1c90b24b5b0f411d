"""Processes of this machine that make jobs one after the other.

:func:`~cgmvae.studies.engines.local_engine` starts them. Each has a pipe of its own, so that it
is known which job a process had that was killed, for instance because the memory ran out.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch
from joblib import cpu_count

from cgmvae.errors import InputError
from cgmvae.studies.runner import Outcome, run_job
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.store import Store

Job = tuple[RunSpec, ...]

#: Seconds that a worker without a job is given to end by itself.
_FAREWELL = 10.0


class WorkPlace(NamedTuple):
    """What all workers of an engine are told."""

    folder: str
    """Of the store."""
    device: str
    threads: int
    """Of a worker: together they take the cores that are there."""


class Worker:
    """One process, and the job that it has."""

    def __init__(self, place: WorkPlace) -> None:
        # A forked process would share the threads' locks of this one.
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        # No daemon: those may not start the processes that scikit-learn's forests use.
        self._process = context.Process(target=_serve, args=(theirs, place))
        with _interrupts_blocked():  # which the process inherits: Ctrl-C is not for it
            self._process.start()
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        """Hand over a job; a worker that is dead is found out by :meth:`outcome`."""
        self.job = job
        with suppress(OSError):  # a closed end, which the next look at the pipe finds too
            self.pipe.send(job)

    def outcome(self) -> Outcome | None:
        """Wait for the job, and return what became of it, or None if its process was killed."""
        try:
            found = self.pipe.recv()
        except (EOFError, OSError):
            return None
        self.job = None
        if isinstance(found, InputError):
            raise found
        return found

    def stop(self) -> None:
        """End the process; the job that it has is lost."""
        self.pipe.close()
        if self.job is None:  # it ends by itself, and takes the processes that it started along
            self._process.join(_FAREWELL)
        self._process.terminate()
        self._process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Keep Ctrl-C waiting until the block ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cores_each(workers: int) -> int:
    """Return how many processor cores each of so many workers may keep busy."""
    return max(1, cpu_count() // workers)


def _serve(pipe: Connection, place: WorkPlace) -> None:
    """Make jobs until the other end of the pipe is closed."""
    torch.set_num_threads(place.threads)
    store = Store(place.folder)
    try:
        while True:
            job = pipe.recv()
            try:
                found: Outcome | InputError = run_job(job, store, device=place.device)
            except InputError as error:  # the folder: no job can be kept
                found = error
            pipe.send(found)
    except (EOFError, BrokenPipeError):
        return
