"""Limits and API key of a server."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from cgmvae.errors import InputError

#: A shorter API key could be guessed.
_MIN_KEY_LENGTH = 16


@dataclass(frozen=True, kw_only=True)
class ServingConfig:
    """Limits of a server; a request beyond one of them is rejected with an error message.

    A limit that allows no request at all, or a weak API key, is an :class:`InputError`.
    """

    body_bytes: int = 8 * 2**20
    """Maximum size of a request body; parsed JSON takes up to twenty times as much memory."""
    rows: int = 10_000
    """Maximum number of rows per request."""
    cells: int = 1_000_000
    """Maximum number of rows times labels per request, which bounds the response."""
    seconds: float = 30.0
    """Timeout of a request, from its headers to its response."""
    idle_seconds: float = 10.0
    """How long a connection may take to send the headers of a request; then it is closed."""
    grace_seconds: float = 8.0
    """How long a server that stops waits for its last requests."""
    connections: int = 1000
    """Maximum number of open connections, fewer if the process may not open that many files; a new
    one closes the one that has been idle longest."""
    requests: int = 512
    """Maximum number of concurrent requests; further ones get status 503."""
    held_bytes: int = 128 * 2**20
    """Maximum total size of request and response bodies in memory; beyond it, status 503."""
    waiting_rows: int = 20_000
    """Maximum number of rows in the queue; beyond it, status 503."""
    batch_rows: int = 256
    """Maximum number of rows per batch; 1 scores each request separately."""
    batch_seconds: float = 0.002
    """How long the first row of a batch waits for requests that are still being read."""
    api_key: str | None = field(default=None, repr=False)
    """API key that all requests but ``/health``, ``/live`` and ``/ready`` need; None for none."""

    def __post_init__(self) -> None:
        for name in (limit.name for limit in fields(self) if limit.name != "api_key"):
            value, zero_allowed = getattr(self, name), name == "batch_seconds"
            if not math.isfinite(value) or value < 0 or (value == 0 and not zero_allowed):
                bound = "at least 0" if zero_allowed else "above 0"
                raise InputError(
                    f"The limit {name} is {value}; it must be a finite number {bound}."
                )
        if self.held_bytes < self.body_bytes:
            raise InputError("held_bytes is smaller than body_bytes; raise it, or lower the other.")
        key = self.api_key
        if key is not None and (
            len(key) < _MIN_KEY_LENGTH or not all("!" <= c <= "~" for c in key)
        ):
            raise InputError(
                f"The API key must have at least {_MIN_KEY_LENGTH} characters, all of them "
                "printable ASCII without spaces; choose another."
            )

    def rows_for(self, n_labels: int) -> int:
        """Return the maximum number of rows per request for a model with ``n_labels`` labels."""
        return max(1, min(self.rows, self.cells // max(1, n_labels)))
