"""Micro-batching: concurrent requests are scored in one call.

A network scores 64 rows in little more time than one, so rows wait for others: while a call runs,
and for a few milliseconds if another request is being read. A single thread scores; it belongs to
no event loop.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cgmvae.serving.config import ServingConfig
from cgmvae.serving.responses import overloaded

Scores = NDArray[np.floating]

#: Takes the rows of one or more requests and returns their concatenated probabilities,
#: (n_rows, n_labels).
Score: TypeAlias = Callable[[Sequence[Any]], Scores]


class _Job(NamedTuple):
    rows: Sized  # an array, or columns
    score: Score
    scores: Future[Scores]


class Batcher:
    """Collects the rows of several requests and scores them together.

    ``on_batch`` is called with the number of rows of each batch.
    """

    def __init__(
        self, config: ServingConfig, on_batch: Callable[[int], None] = lambda _: None
    ) -> None:
        self._config, self._on_batch = config, on_batch
        self._changed = threading.Condition()
        self._queue: deque[_Job] = deque()
        self._n_queued = self._n_arriving = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Announce a request that is being read, for which a batch waits a short time."""
        with self._changed:
            self._n_arriving += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_arriving -= 1
                self._changed.notify()

    def submit(self, rows: Sized, score: Score) -> Future[Scores]:
        """Put rows in the queue; the result is their probabilities, (n_rows, n_labels).

        Rows are scored with others of the same function.
        """
        job = _Job(rows, score, Future())
        with self._changed:
            if self._closed:
                raise overloaded("The server is stopping; try again when it is back.")
            if self._queue and self._n_queued + len(rows) > self._config.waiting_rows:
                raise overloaded("Too many rows are waiting to be scored; try again in a second.")
            self._queue.append(job)
            self._n_queued += len(rows)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="scoring", daemon=True)
                self._thread.start()
            self._changed.notify()
        return job.scores

    def close(self) -> None:
        """Score the queue, and accept nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            if batch := [job for job in batch if job.scores.set_running_or_notify_cancel()]:
                self._score_batch(batch)

    def _next_batch(self) -> list[_Job]:
        """Wait for rows, then for those that are arriving; return nothing once closed and empty."""

        def is_complete() -> bool:
            full = self._n_queued >= self._config.batch_rows
            return full or self._closed or not self._n_arriving

        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            self._changed.wait_for(is_complete, self._config.batch_seconds)
            batch: list[_Job] = []
            n_rows = 0
            while self._queue and (
                not batch
                or (
                    self._queue[0].score == batch[0].score
                    and n_rows + len(self._queue[0].rows) <= self._config.batch_rows
                )
            ):
                batch.append(self._queue.popleft())
                n_rows += len(batch[-1].rows)
            self._n_queued -= n_rows
            return batch

    def _score_batch(self, batch: list[_Job]) -> None:
        try:
            self._on_batch(sum(len(job.rows) for job in batch))
            scores = batch[0].score([job.rows for job in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0].scores.set_exception(error)
            else:  # an invalid request must not fail the others of its batch
                for job in batch:
                    self._score_batch([job])
            return
        ends = np.cumsum([len(job.rows) for job in batch])
        for job, part in zip(batch, np.split(scores, ends[:-1]), strict=True):
            job.scores.set_result(part)
