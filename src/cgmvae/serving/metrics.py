"""What the server counts, in the text format of Prometheus.

With several worker processes, each counts in files of a folder that the variable
``PROMETHEUS_MULTIPROC_DIR`` names, and any of them reports the sum.
"""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

#: Environment variable that prometheus_client reads when it is imported.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 16384)


class Metrics:
    """Requests, their duration, batches and closed connections of one application.

    Requests for ``/health`` and the like are not counted.
    """

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self._requests = Counter("cgmvae_requests", "Requests.", ["status"], registry=own)
        self._seconds = Histogram(
            "cgmvae_request_seconds", "Duration of requests.", buckets=_SECONDS, registry=own
        )
        self.batch_rows = Histogram(
            "cgmvae_batch_rows", "Rows that were scored together.", buckets=_ROWS, registry=own
        )
        self.closed_connections = Counter(
            "cgmvae_closed_connections", "Idle, slow or refused connections.", registry=own
        )

    def add_request(self, status: int | None, seconds: float) -> None:
        """Count a request; status None if the client got no response."""
        self._requests.labels(str(status)).inc()
        self._seconds.observe(seconds)

    def render(self) -> bytes:
        """Return all metrics as text."""
        if FOLDER_VARIABLE not in os.environ:
            return generate_latest(self._registry)
        of_all_workers = CollectorRegistry()
        MultiProcessCollector(of_all_workers)
        return generate_latest(of_all_workers)
