"""Where a training saves its state, so that a stopped run can be resumed, and how often.

:mod:`cgmvae.training.loop` writes it; the caller of the training removes it at the end.
"""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError

#: The least time from one state to the next, and the largest fraction of the time that saving may
#: take.
MIN_SECONDS, MAX_FRACTION = 60.0, 0.03

#: Seconds before the first of them.
FIRST_SECONDS = 10.0

#: How fast states are written, until one has been.
_BYTES_PER_SECOND = 1e8

_PREVIOUS = ".previous"


class Checkpoint(os.PathLike[str]):
    """Files that hold the last two states of one training; each written whole or not at all.

    The older one is read where the newer one is damaged, or was being written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __fspath__(self) -> str:
        return str(self.path)

    def part(self, first: int, last: int) -> Checkpoint:
        """Return the checkpoint of some members, where they are trained in parts."""
        return Checkpoint(self.path.with_name(f"{self.path.name}.{first}-{last}"))

    def exists(self) -> bool:
        """Tell whether there is a state to continue from, whole or of a part."""
        return any(self._states()) or any(self._parts())

    def division(self, n_members: int) -> list[NDArray[np.int64]]:
        """Return which members are trained together: all, or those of each part."""
        every = np.arange(n_members)
        if any(self._states()):
            return [every]
        ends = [part.path.name.rpartition(".")[2].split("-") for part in self._parts()]
        cuts = {cut for first, last in ends for cut in (int(first), int(last) + 1)}
        return np.split(every, sorted(cut for cut in cuts if 0 < cut < n_members))

    def save(self, state: dict[str, NDArray[Any]], fingerprint: dict[str, Any]) -> None:
        """Write this state, and keep the one before it."""
        if self.path.exists():
            self.path.replace(self._previous)
        write_tensors(self.path, state, fingerprint)

    def load(self, fingerprint: dict[str, Any]) -> dict[str, NDArray[Any]] | None:
        """Return the newest state, or None where there is none; refuse that of another training."""
        states = self._states()
        if not states:
            return None
        state = None
        if len(states) == 2:
            try:
                state, found = read_tensors(states[0], advice="the state before it is used")
            except InputError as error:
                warnings.warn(str(error), stacklevel=2)
        if state is None:
            state, found = read_tensors(states[-1], advice="remove it, and training starts over")
        if found != json.loads(json.dumps(fingerprint)):
            raise InputError(
                f"{self.path} belongs to a training with other settings or rows; "
                "remove it or name another file."
            )
        return state

    def remove(self) -> None:
        """Forget all states, and those of all parts."""
        for checkpoint in (self, *self._parts()):
            for path in checkpoint._states():
                path.unlink(missing_ok=True)

    @property
    def _previous(self) -> Path:
        return self.path.with_name(self.path.name + _PREVIOUS)

    def _states(self) -> list[Path]:
        """Return the files that there are, the newest first."""
        return [path for path in (self.path, self._previous) if path.exists()]

    def _parts(self) -> list[Checkpoint]:
        pattern = re.compile(re.escape(self.path.name) + r"\.[0-9]+-[0-9]+")
        folder = self.path.parent
        found = folder.iterdir() if folder.is_dir() else ()
        names = {path.name.removesuffix(_PREVIOUS) for path in found}
        return [Checkpoint(folder / name) for name in sorted(names) if pattern.fullmatch(name)]


class Pace:
    """Says when a state is to be saved: once a minute at most, and for 3% of the time at most.

    What a kill can cost is therefore the work of a minute, or 33 times what saving takes; at the
    beginning, of ten seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = self._last = clock()
        self._spent, self._cost = 0.0, 0.0

    def is_due(self, n_bytes: int) -> bool:
        """Return whether a state of this size should be saved now."""
        now = self._clock()
        cost = self._cost or n_bytes / _BYTES_PER_SECOND
        affordable = self._spent + cost <= MAX_FRACTION * (now - self._start)
        least = MIN_SECONDS if self._spent else min(FIRST_SECONDS, MIN_SECONDS)
        return now - self._last >= least and affordable

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Measure how long the block takes, which saves a state."""
        start = self._clock()
        yield
        self._last = self._clock()
        self._cost = self._last - start
        self._spent += self._cost
