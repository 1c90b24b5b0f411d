"""What a server takes on, and where it stops."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from cgmvae.errors import InputError

#: A key shorter than this can be guessed.
_KEY_LENGTH = 16


@dataclass(frozen=True, kw_only=True)
class ServingConfig:
    """Limits of a server; beyond each, a request is refused with a sentence.

    Raises
    ------
    InputError
        Where a limit leaves nothing to serve, or the key can be guessed.
    """

    body_bytes: int = 8 * 2**20
    """Largest body of a request; parsed, JSON takes up to twenty times as much memory."""
    rows: int = 10_000
    """Rows of one request."""
    cells: int = 1_000_000
    """Rows times labels of one request, which bounds the answer."""
    seconds: float = 30.0
    """From a request's first byte to its answer."""
    requests: int = 512
    """Requests that are worked at; the next ones are told to come again."""
    held_bytes: int = 256 * 2**20
    """Bytes of bodies and answers that are held; beyond, requests are told to come again."""
    waiting_rows: int = 20_000
    """Rows that wait to be scored; the next ones are told to come again."""
    batch_rows: int = 256
    """Rows that are scored in one call; 1 scores each request by itself."""
    batch_seconds: float = 0.002
    """How long the first row of a batch waits for those that are on their way."""
    api_key: str | None = field(default=None, repr=False)
    """What every request must bring, but those for ``/health``; None lets everybody in."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            if limit.name != "api_key":
                _check_limit(limit.name, getattr(self, limit.name))
        if self.held_bytes < self.body_bytes:
            raise InputError("held_bytes is below body_bytes; raise it, or lower the other.")
        if self.api_key is not None:
            _check_key(self.api_key)

    def rows_for(self, n_labels: int) -> int:
        """Return how many rows a request may have where the model has so many labels."""
        return max(1, min(self.rows, self.cells // max(1, n_labels)))


def _check_limit(name: str, value: float) -> None:
    may_be_zero = name == "batch_seconds"
    if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_zero):
        least = "0 or above" if may_be_zero else "above 0"
        raise InputError(f"The limit {name} is {value}; it must be a number {least}.")


def _check_key(key: str) -> None:
    if len(key) < _KEY_LENGTH or not all("!" <= character <= "~" for character in key):
        raise InputError(
            f"The API key must have at least {_KEY_LENGTH} characters, all of them letters, digits "
            "or signs of ASCII without blanks; choose another."
        )
