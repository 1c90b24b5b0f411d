"""Micro-batching: concurrent requests are scored in one call.

A network scores 64 rows in little more time than one, so rows wait for others: until the event
loop has handled all requests that it received at once, while a call runs, and for a few
milliseconds if another request is being read. A single thread scores. The event loop does all else:
the two threads compete for the interpreter, so they meet twice per batch and not per request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
    scores: asyncio.Future[Scores]


class Batcher:
    """Collects the rows of several requests and scores them together.

    ``on_batch`` is called with the number of rows of each batch. All methods belong to the running
    event loop.
    """

    def __init__(
        self, config: ServingConfig, on_batch: Callable[[int], None] = lambda _: None
    ) -> None:
        self._config, self._on_batch = config, on_batch
        self._queue: deque[_Job] = deque()
        self._n_queued = self._n_arriving = 0
        self._complete = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "scoring")

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Announce a request that is being read, for which a batch waits a short time."""
        self._n_arriving += 1
        try:
            yield
        finally:
            self._n_arriving -= 1
            self._check_complete()

    def submit(self, rows: Sized, score: Score) -> asyncio.Future[Scores]:
        """Put rows in the queue; the result is their probabilities, (n_rows, n_labels).

        Rows are scored with others of the same function.
        """
        if self._closed:
            raise overloaded("The server is stopping; try again when it is back.")
        if self._queue and self._n_queued + len(rows) > self._config.waiting_rows:
            raise overloaded("Too many rows are waiting to be scored; try again in a second.")
        loop = asyncio.get_running_loop()
        job = _Job(rows, score, loop.create_future())
        self._queue.append(job)
        self._n_queued += len(rows)
        self._check_complete()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._work())
        return job.scores

    async def close(self) -> None:
        """Score the queue, and accept nothing more."""
        self._closed = True
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    def _check_complete(self) -> None:
        if self._n_queued >= self._config.batch_rows or not self._n_arriving:
            self._complete.set()

    async def _work(self) -> None:
        """Score batch after batch until the queue is empty."""
        loop = asyncio.get_running_loop()
        while self._queue:
            self._complete = asyncio.Event()  # of this batch
            self._check_complete()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.batch_seconds):
                    await self._complete.wait()
            if not (batch := self._next_batch()):
                continue
            results = await loop.run_in_executor(self._thread, self._score_batch, batch)
            for job, result in zip(batch, results, strict=True):
                if job.scores.cancelled():
                    continue
                if isinstance(result, Exception):
                    job.scores.set_exception(result)
                else:
                    job.scores.set_result(result)

    def _next_batch(self) -> list[_Job]:
        """Take from the queue what is scored next, without requests that were canceled."""
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
        return [job for job in batch if not job.scores.cancelled()]

    def _score_batch(self, batch: list[_Job]) -> Sequence[Scores | Exception]:
        """Return the probabilities of each request, or why it has none; this is the thread."""
        n_rows = [len(job.rows) for job in batch]
        try:
            self._on_batch(sum(n_rows))
            scores = batch[0].score([job.rows for job in batch])
        except Exception as error:
            if len(batch) == 1:
                return [error]
            # An invalid request must not fail the others of its batch.
            return [result for job in batch for result in self._score_batch([job])]
        return np.split(scores, np.cumsum(n_rows)[:-1])
