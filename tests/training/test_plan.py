"""The order of rows on disk: every row once, neighbours soon after each other, the same for all."""

import numpy as np
import pytest

from cgmvae.training import plan
from cgmvae.training.members import Member
from cgmvae.training.plan import Planner, TrainingConfig, block_order

CONFIG = TrainingConfig(epochs=3, batch_size=10)


def member(seed, rows, order_seed=None):
    return Member(
        seed=seed,
        train_rows=np.asarray(rows),
        validation_rows=np.zeros(0, np.int64),
        weights={"loss": 1.0},
        learning_rate=1e-3,
        weight_decay=0.0,
        dropout=0.0,
        input_dropout=0.0,
        order_seed=order_seed,
    )


@pytest.fixture
def few_rows(monkeypatch):
    """Make blocks of 4 rows, and windows of 5 blocks."""
    monkeypatch.setattr(plan, "BLOCK_ROWS", 4)
    monkeypatch.setattr(plan, "WINDOW_BLOCKS", 5)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("n_rows", [1, 3, 4, 20, 21, 203])
def test_every_row_comes_once(n_rows, rng):
    assert np.sort(block_order(n_rows, rng)).tolist() == list(range(n_rows))


@pytest.mark.usefixtures("few_rows")
def test_a_window_holds_whole_blocks_from_everywhere_well_mixed(rng):
    order = block_order(400, rng)
    windows = order.reshape(20, 20)
    for window in windows:
        blocks, counts = np.unique(window // 4, return_counts=True)
        assert counts.tolist() == [4] * 5
        assert np.ptp(blocks) > 20
    neighbours = np.abs(np.diff(windows, axis=1)) == 1
    assert neighbours.mean() < 0.2


def test_up_to_a_window_all_orders_are_equally_likely(rng):
    orders = [tuple(block_order(3, rng)) for _ in range(6000)]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert np.abs(counts / 1000 - 1).max() < 0.15


@pytest.mark.usefixtures("few_rows")
def test_members_of_a_fit_share_the_order_alone_and_in_company():
    rows = np.arange(100, 145)
    members = [member(1, rows, order_seed=7), member(2, rows, order_seed=7), member(3, rows)]
    orders = Planner(members, CONFIG).epoch(1).order.reshape(3, -1)[:, :45]
    assert orders[0].tolist() == orders[1].tolist()
    assert sorted(orders[2]) == sorted(orders[0]) != orders[2].tolist()
    alone = Planner(members[:1], CONFIG)
    assert alone.epoch(1).order.ravel()[:45].tolist() == orders[0].tolist()
    assert alone.epoch(2).order.ravel()[:45].tolist() != orders[0].tolist()
    other = Planner([member(1, rows, order_seed=8)], CONFIG).epoch(1)
    assert other.order.ravel()[:45].tolist() != orders[0].tolist()
