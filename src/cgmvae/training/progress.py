"""Lines that say what a training has reached, for a terminal, a notebook or a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def duration_text(seconds: float) -> str:
    """Return a duration in words.

    Examples
    --------
    >>> duration_text(8), duration_text(100), duration_text(5000)
    ('8 s', '1 min 40 s', '1 h 23 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


class EpochLines:
    """A progress callback that writes a line with the epoch, the best metric and the time left.

    Parameters
    ----------
    metric : callable
        Returns the name of the metric; it is known when the first epoch ends.
    write : callable, optional
        Takes a line; by default it is printed.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self,
        metric: Callable[[], str],
        write: Callable[[str], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metric, self._write, self._clock = metric, write or _print, clock
        self._start, self._n_done = clock(), 0

    def __call__(self, epoch: int, n_epochs: int, best: float) -> None:
        """Write the line of an epoch that has ended."""
        self._n_done += 1  # a resumed training does not start with the first epoch
        left = (self._clock() - self._start) / self._n_done * (n_epochs - epoch)
        self._write(
            f"Epoch {epoch:,} of {n_epochs:,}: best {self._metric()} {best:.4f}, about "
            f"{duration_text(left)} left"
        )


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class MergedProgress:
    """The progress of several parts as one: the epoch that all have finished, and the best metric.

    Parameters
    ----------
    n_parts : int
    progress : callable, optional
        Called with each epoch, the number of epochs, and the best metric of all parts.
    """

    def __init__(self, n_parts: int, progress: Callable[[int, int, float], None] | None) -> None:
        self._progress = progress
        self._epochs = [0] * n_parts
        self._at_work = set(range(n_parts))
        self._n_epochs, self._best = 0, float("-inf")
        self._last: int | None = None

    def add(self, part: int, epoch: int, n_epochs: int, best: float) -> None:
        """Take note of an epoch that a part has finished."""
        self._epochs[part], self._n_epochs = epoch, n_epochs
        self._best = max(self._best, best)
        self._tell(min(self._epochs[i] for i in self._at_work))

    def end(self, part: int) -> None:
        """Take note that a part has finished its last epoch."""
        self._at_work.discard(part)
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
