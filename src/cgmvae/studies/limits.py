"""Limits of time: of a method, of a search, of a job."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class OutOfTime(BaseException):
    """A method took too long. Like Ctrl-C it is no error, so that nothing catches it."""


class TimeLimit(NamedTuple):
    """How long a job may take, and when the work that it is part of ends."""

    seconds: float
    end: float
    """As :func:`time.time` counts, which all processes agree on."""
    cuts_searches: bool = True
    """Whether a search may end with some of its settings tried, after half of the time."""

    def left(self) -> float:
        """Return the seconds of a job that starts now; 0 or less if it is too late."""
        return min(self.seconds, self.end - time.time())


class TimeLimits(NamedTuple):
    """The limits of jobs by kind: networks share a GPU, and other methods the cores beside it."""

    networks: TimeLimit
    others: TimeLimit


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Raise :class:`OutOfTime` in the block after so many seconds, where signals can do that.

    They cannot on Windows, nor in another thread than the main one. Without a number there is no
    limit.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if seconds is None or not in_main or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))  # 0 would be no limit
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
