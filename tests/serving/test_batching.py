"""Micro-batching: requests share a call, and each gets its own scores."""

import threading
from concurrent.futures import CancelledError, wait

import numpy as np
import pytest

from cgmvae.serving.batching import Batcher
from cgmvae.serving.config import ServingConfig
from cgmvae.serving.responses import RequestError


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


@pytest.fixture
def scorer():
    scorer = Scorer(open_=False)
    yield scorer
    scorer.gate.set()


def rows(value, n=1):
    return np.full((n, 2), float(value))


def test_rows_that_come_during_a_call_share_the_next(scorer):
    batcher = Batcher(ServingConfig())
    first = batcher.submit(rows(1), scorer)
    scorer.entered.wait(60)
    others = [batcher.submit(rows(value, n), scorer) for value, n in ((2, 1), (3, 4), (4, 2))]
    scorer.gate.set()
    wait([first, *others], 60)
    assert scorer.sizes == [1, 7]
    for future, (value, n) in zip([first, *others], ((1, 1), (2, 1), (3, 4), (4, 2)), strict=True):
        assert np.array_equal(future.result(), rows(2 * value, n))


def test_a_batch_has_a_size(scorer):
    batcher = Batcher(ServingConfig(batch_rows=4))
    futures = [batcher.submit(rows(0), scorer)]
    scorer.entered.wait(60)
    futures += [batcher.submit(rows(1, n), scorer) for n in (3, 2, 2, 9, 1)]
    scorer.gate.set()
    wait(futures, 60)
    assert scorer.sizes == [1, 3, 4, 9, 1]


def test_a_batch_waits_for_arriving_requests_only():
    scorer = Scorer()
    batcher = Batcher(ServingConfig(batch_seconds=60))
    assert np.array_equal(batcher.submit(rows(1), scorer).result(30), rows(2))
    with batcher.arriving():
        first = batcher.submit(rows(2), scorer)
        second = batcher.submit(rows(3), scorer)
    wait([first, second], 30)
    assert scorer.sizes == [1, 2]


def test_the_wait_for_arriving_requests_ends():
    batcher = Batcher(ServingConfig(batch_seconds=0.001))
    with batcher.arriving():
        assert np.array_equal(batcher.submit(rows(1), Scorer()).result(30), rows(2))


def test_an_invalid_request_does_not_fail_the_others(scorer):
    batcher = Batcher(ServingConfig())
    first = batcher.submit(rows(1), scorer)
    scorer.entered.wait(60)
    good, bad, last = (batcher.submit(rows(value), scorer) for value in (2, -1, 3))
    scorer.gate.set()
    wait([first, good, bad, last], 60)
    assert np.array_equal(good.result(), rows(4))
    assert np.array_equal(last.result(), rows(6))
    with pytest.raises(ValueError, match="negative"):
        bad.result()


def test_cancelled_requests_are_not_scored(scorer):
    batcher = Batcher(ServingConfig())
    first = batcher.submit(rows(1), scorer)
    scorer.entered.wait(60)
    left, stays = batcher.submit(rows(2, 5), scorer), batcher.submit(rows(3), scorer)
    assert left.cancel()
    scorer.gate.set()
    wait([first, stays], 60)
    assert scorer.sizes == [1, 1]
    with pytest.raises(CancelledError):
        left.result()


def test_the_queue_is_bounded(scorer):
    batcher = Batcher(ServingConfig(waiting_rows=5))
    batcher.submit(rows(1), scorer)
    scorer.entered.wait(60)
    waiting = [batcher.submit(rows(2, 3), scorer), batcher.submit(rows(2, 2), scorer)]
    with pytest.raises(RequestError, match="Too many rows are waiting") as error:
        batcher.submit(rows(3), scorer)
    assert (error.value.status, error.value.headers) == (503, {"Retry-After": "1"})
    scorer.gate.set()
    wait(waiting, 60)
    assert np.array_equal(batcher.submit(rows(3, 9), scorer).result(60), rows(6, 9))


def test_closing_scores_the_queue(scorer):
    batcher = Batcher(ServingConfig(batch_rows=1))
    futures = [batcher.submit(rows(value), scorer) for value in range(5)]
    closing = threading.Thread(target=batcher.close)
    scorer.entered.wait(60)
    closing.start()
    scorer.gate.set()
    closing.join(60)
    assert [future.result(0)[0, 0] for future in futures] == [0, 2, 4, 6, 8]
    with pytest.raises(RequestError, match="stopping"):
        batcher.submit(rows(1), scorer)
