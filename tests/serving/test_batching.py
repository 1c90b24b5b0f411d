"""Micro-batching: requests share a call, and each gets its own scores."""

import asyncio
import threading

import numpy as np
import pytest

from cgmvae.serving.batching import Batcher
from cgmvae.serving.config import ServingConfig
from cgmvae.serving.responses import RequestError

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Scorer:
    """Doubles rows; calls wait while the gate is closed, and their sizes are recorded."""

    def __init__(self, open_=True):
        self.gate, self.entered, self.sizes = threading.Event(), threading.Event(), []
        if open_:
            self.gate.set()

    def __call__(self, parts):
        rows = np.concatenate(parts)
        self.sizes.append(len(rows))
        self.entered.set()
        assert self.gate.wait(60)
        if (rows < 0).any():
            raise ValueError("negative")
        return rows * 2

    async def is_busy(self):
        """Wait until a call has begun."""
        assert await asyncio.to_thread(self.entered.wait, 60)


@pytest.fixture
def scorer():
    scorer = Scorer(open_=False)
    yield scorer
    scorer.gate.set()


def rows(value, n=1):
    return np.full((n, 2), float(value))


async def test_requests_that_are_received_at_once_share_a_call():
    batcher, scorer = Batcher(ServingConfig()), Scorer()
    found = await asyncio.gather(*(batcher.submit(rows(value), scorer) for value in range(3)))
    assert scorer.sizes == [3]
    assert [scores[0, 0] for scores in found] == [0, 2, 4]


async def test_rows_that_come_during_a_call_share_the_next(scorer):
    batcher = Batcher(ServingConfig())
    first = batcher.submit(rows(1), scorer)
    await scorer.is_busy()
    others = [batcher.submit(rows(value, n), scorer) for value, n in ((2, 1), (3, 4), (4, 2))]
    scorer.gate.set()
    found = await asyncio.gather(first, *others)
    assert scorer.sizes == [1, 7]
    for scores, (value, n) in zip(found, ((1, 1), (2, 1), (3, 4), (4, 2)), strict=True):
        assert np.array_equal(scores, rows(2 * value, n))


async def test_a_batch_has_a_size():
    batcher, scorer = Batcher(ServingConfig(batch_rows=4)), Scorer()
    await asyncio.gather(*(batcher.submit(rows(1, n), scorer) for n in (3, 2, 2, 9, 1)))
    assert scorer.sizes == [3, 4, 9, 1]


async def test_a_batch_waits_for_arriving_requests_only():
    batcher, scorer = Batcher(ServingConfig(batch_seconds=60)), Scorer()
    assert np.array_equal(await batcher.submit(rows(1), scorer), rows(2))
    with batcher.arriving():
        first = batcher.submit(rows(2), scorer)
        await asyncio.sleep(0.01)
        second = batcher.submit(rows(3), scorer)
    await asyncio.gather(first, second)
    assert scorer.sizes == [1, 2]


async def test_a_full_batch_waits_for_nobody():
    batcher = Batcher(ServingConfig(batch_seconds=60, batch_rows=2))
    with batcher.arriving():
        async with asyncio.timeout(30):
            await batcher.submit(rows(1, 2), Scorer())


async def test_the_wait_for_arriving_requests_ends():
    batcher = Batcher(ServingConfig(batch_seconds=0.001))
    with batcher.arriving():
        assert np.array_equal(await batcher.submit(rows(1), Scorer()), rows(2))


async def test_an_invalid_request_does_not_fail_the_others():
    batcher, scorer = Batcher(ServingConfig()), Scorer()
    asked = [batcher.submit(rows(value), scorer) for value in (2, -1, 3)]
    good, bad, last = await asyncio.gather(*asked, return_exceptions=True)
    assert np.array_equal(good, rows(4))
    assert np.array_equal(last, rows(6))
    with pytest.raises(ValueError, match="negative"):
        raise bad


async def test_cancelled_requests_are_not_scored(scorer):
    batcher = Batcher(ServingConfig())
    first, also_left = batcher.submit(rows(1), scorer), batcher.submit(rows(1), scorer)
    await scorer.is_busy()
    left, stays = batcher.submit(rows(2, 5), scorer), batcher.submit(rows(3), scorer)
    assert left.cancel()
    assert also_left.cancel()
    scorer.gate.set()
    await asyncio.gather(first, stays)
    assert scorer.sizes == [2, 1]


async def test_the_queue_is_bounded(scorer):
    batcher = Batcher(ServingConfig(waiting_rows=5))
    first = batcher.submit(rows(1), scorer)
    await scorer.is_busy()
    waiting = [batcher.submit(rows(2, 3), scorer), batcher.submit(rows(2, 2), scorer)]
    with pytest.raises(RequestError, match="Too many rows are waiting") as error:
        batcher.submit(rows(3), scorer)
    assert (error.value.status, error.value.headers) == (503, {"Retry-After": "1"})
    scorer.gate.set()
    await asyncio.gather(first, *waiting)
    assert np.array_equal(await batcher.submit(rows(3, 9), scorer), rows(6, 9))


async def test_closing_scores_the_queue():
    batcher = Batcher(ServingConfig(batch_rows=1))
    futures = [batcher.submit(rows(value), Scorer()) for value in range(5)]
    await batcher.close()
    assert [future.result()[0, 0] for future in futures] == [0, 2, 4, 6, 8]
    with pytest.raises(RequestError, match="stopping"):
        batcher.submit(rows(1), Scorer())
