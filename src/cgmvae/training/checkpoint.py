"""Where a training saves its state after each epoch, so that a stopped run can be resumed.

:mod:`cgmvae.training.loop` writes it; the caller of the training removes it at the end.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError


class Checkpoint:
    """A file that holds the state of one training; written whole or not at all."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def part(self, first: int, last: int) -> Checkpoint:
        """Return the checkpoint of some members, where they are trained in parts."""
        return Checkpoint(self.path.with_name(f"{self.path.name}.{first}-{last}"))

    def exists(self) -> bool:
        """Tell whether there is a state to continue from, whole or of a part."""
        return self.path.exists() or any(self._parts())

    def division(self, n_members: int) -> list[NDArray[np.int64]]:
        """Return which members are trained together: all, or those of each part."""
        every = np.arange(n_members)
        if self.path.exists():
            return [every]
        ends = [path.name.rpartition(".")[2].split("-") for path in self._parts()]
        cuts = {cut for first, last in ends for cut in (int(first), int(last) + 1)}
        return np.split(every, sorted(cut for cut in cuts if 0 < cut < n_members))

    def save(self, state: dict[str, NDArray[Any]], fingerprint: dict[str, Any]) -> None:
        """Replace the file by this state."""
        write_tensors(self.path, state, fingerprint)

    def load(self, fingerprint: dict[str, Any]) -> dict[str, NDArray[Any]] | None:
        """Return the state, or None where there is no file; refuse that of another training."""
        if not self.path.exists():
            return None
        state, found = read_tensors(self.path, advice="remove it, and training starts over")
        if found != json.loads(json.dumps(fingerprint)):
            raise InputError(
                f"{self.path} belongs to a training with other settings or rows; "
                "remove it or name another file."
            )
        return state

    def remove(self) -> None:
        """Forget the state, and that of all parts."""
        for path in (self.path, *self._parts()):
            path.unlink(missing_ok=True)

    def _parts(self) -> list[Path]:
        pattern = re.compile(re.escape(self.path.name) + r"\.[0-9]+-[0-9]+")
        folder = self.path.parent
        found = folder.iterdir() if folder.is_dir() else ()
        return [path for path in found if pattern.fullmatch(path.name)]
