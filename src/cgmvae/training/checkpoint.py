"""Where a training keeps its state after each epoch, so that a stopped run continues."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cgmvae.data.tensor_file import read_tensors, write_tensors
from cgmvae.errors import InputError


class Checkpoint:
    """A file that holds the state of one training; written whole or not at all."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def save(self, state: dict[str, NDArray[Any]], fingerprint: dict[str, Any]) -> None:
        """Replace the file by this state."""
        write_tensors(self.path, state, fingerprint)

    def load(self, fingerprint: dict[str, Any]) -> dict[str, NDArray[Any]] | None:
        """Return the state, or None where there is no file; refuse that of another training."""
        if not self.path.exists():
            return None
        state, found = read_tensors(self.path)
        if found != json.loads(json.dumps(fingerprint)):
            raise InputError(
                f"{self.path} belongs to a training with other settings or rows; "
                "remove it or name another file."
            )
        return state

    def remove(self) -> None:
        """Forget the state."""
        self.path.unlink(missing_ok=True)
