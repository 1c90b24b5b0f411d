"""Forked processes of this machine that share a training on a CPU.

A step of a small network is hundreds of short operations, which threads hardly speed up; processes
that train members of their own do. They are forked, which is only safe on Linux: they start at
once, and the rows are in memory once. Each of them uses one thread.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import current_process, get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from joblib import cpu_count

from cgmvae.errors import InputError
from cgmvae.training.loop import Progress

Result = TypeVar("Result")

#: A share of the work: it is given its number and a callback to report its epochs to.
Work = Callable[[int, Progress], Result]


def most_processes() -> int:
    """Return how many processes may train side by side: one per thread that torch may use.

    One where processes are not forked: on other systems than Linux, in a daemon of
    ``multiprocessing``, and where torch has a GPU, whose threads would not survive the fork.
    """
    if sys.platform != "linux" or current_process().daemon or torch.cuda.is_available():
        return 1
    return min(torch.get_num_threads(), cpu_count())


def run_shares(work: Work[Result], n_shares: int, progress: Progress | None = None) -> list[Result]:
    """Return the results of all shares: the first is worked on here, the others in processes.

    Where memory or limits do not allow as many processes, more of them are worked on here.

    Parameters
    ----------
    work : callable
        Called as ``work(share, report)``; it returns something that pickle can write. Warnings and
        exceptions of all shares are those of this function.
    n_shares : int
    progress : callable, optional
        Called once all shares that are still at work have finished an epoch, with the best metric
        of all.
    """
    merged = _MergedProgress(n_shares, progress)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    processes: list[_Process[Result]] = []
    try:
        for share in range(1, n_shares):
            try:
                processes.append(_Process(work, share))
            except OSError:
                break
        waiting: dict[Any, _Process[Result]] = {each.pipe: each for each in processes}

        def listen(timeout: float | None) -> None:
            while ready := wait(list(waiting), timeout):
                for pipe in ready:
                    if waiting[pipe].receive(merged):
                        del waiting[pipe]
                timeout = 0

        def work_here(share: int) -> Result:
            def report(epoch: int, n_epochs: int, best: float) -> None:
                merged.add(share, epoch, n_epochs, best)
                listen(timeout=0)

            result = work(share, report)
            merged.end(share)
            return result

        first, *rest = map(work_here, (0, *range(1 + len(processes), n_shares)))
        while waiting:
            listen(timeout=None)
        return [first, *(process.result for process in processes), *rest]
    finally:
        for process in processes:
            process.stop()
        torch.set_num_threads(n_threads)


class _Outcome(NamedTuple):
    """What a process sends when it has finished."""

    result: Any
    error: Exception | None
    warnings: list[Warning]


class _Process(Generic[Result]):
    """A forked process with its share of the work."""

    result: Result

    def __init__(self, work: Work[Result], share: int) -> None:
        self._share = share
        context = get_context("fork")
        self.pipe, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(theirs, work, share), daemon=True)
        try:
            with warnings.catch_warnings():
                # Python warns of threads that are lost; those of OpenMP are not used, see _work.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._process.start()
        except OSError:
            self.pipe.close()
            raise
        finally:
            theirs.close()

    def receive(self, progress: _MergedProgress) -> bool:
        """Take a message that has come; return whether it is the last. Raise the share's error."""
        try:
            message = self.pipe.recv()
        except EOFError as error:
            raise InputError(
                "A process of this training was killed, perhaps because memory ran out; use fewer "
                "members, or a single process by setting the environment variable "
                "OMP_NUM_THREADS=1."
            ) from error
        if not isinstance(message, _Outcome):
            progress.add(self._share, *message)
            return False
        for warning in message.warnings:
            warnings.warn(warning, stacklevel=5)
        if message.error is not None:
            raise message.error
        self.result = message.result
        progress.end(self._share)
        return True

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.terminate()
        self._process.join()
        self.pipe.close()


def _work(pipe: Connection, work: Work[Any], share: int) -> None:
    """Work on a share in a forked process, with a single thread: the others were not forked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    result, failure = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = work(share, lambda *told: pipe.send(told))
        except Exception as error:
            failure = _sendable(error)
            if not isinstance(failure, InputError):
                failure.add_note(f"In a process of the training:\n{traceback.format_exc()}")
    told = [each.message for each in caught if isinstance(each.message, Warning)]
    with suppress(BrokenPipeError):
        pipe.send(_Outcome(result, failure, told))


def _sendable(error: Exception) -> Exception:
    """Return the error, or its words if pickle cannot bring it to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def end_with_parent() -> None:
    """End this process when the one that started it was killed, in the middle of work too."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


class _MergedProgress:
    """The progress of all shares as one: the epoch that all have finished, and the best metric."""

    def __init__(self, n_shares: int, progress: Progress | None) -> None:
        self._progress = progress
        self._epochs = [0] * n_shares
        self._at_work = set(range(n_shares))
        self._n_epochs, self._best = 0, float("-inf")
        self._last: int | None = None

    def add(self, share: int, epoch: int, n_epochs: int, best: float) -> None:
        """Take note of an epoch that a share has finished."""
        self._epochs[share], self._n_epochs = epoch, n_epochs
        self._best = max(self._best, best)
        self._tell(min(self._epochs[i] for i in self._at_work))

    def end(self, share: int) -> None:
        """Take note that a share has finished its last epoch."""
        self._at_work.discard(share)
        left = [self._epochs[i] for i in self._at_work]
        self._tell(min(left) if left else max(self._epochs))

    def _tell(self, epoch: int) -> None:
        if self._progress is None or epoch == 0:
            return
        # A training that is resumed does not start with the first epoch.
        first = epoch if self._last is None else self._last + 1
        for number in range(first, epoch + 1):
            self._progress(number, self._n_epochs, self._best)
        self._last = max(epoch, self._last or 0)
