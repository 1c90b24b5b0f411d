"""Members, the order of their rows, and schedules."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from cgmvae.errors import InputError
from cgmvae.training import plan
from cgmvae.training.plan import (
    Member,
    Planner,
    TrainingConfig,
    block_order,
    cosine,
    ramp,
    warm_restarts,
    weight_tensors,
)

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
def test_every_row_occurs_once(n_rows, rng):
    assert np.sort(block_order(n_rows, rng)).tolist() == list(range(n_rows))


@pytest.mark.usefixtures("few_rows")
def test_windows_mix_whole_blocks(rng):
    order = block_order(400, rng)
    windows = order.reshape(20, 20)
    for window in windows:
        blocks, counts = np.unique(window // 4, return_counts=True)
        assert counts.tolist() == [4] * 5
        assert np.ptp(blocks) > 20
    neighbors = np.abs(np.diff(windows, axis=1)) == 1
    assert neighbors.mean() < 0.2


def test_orders_within_a_window_are_uniform(rng):
    orders = [tuple(block_order(3, rng)) for _ in range(6000)]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert np.abs(counts / 1000 - 1).max() < 0.15


@pytest.mark.usefixtures("few_rows")
def test_members_of_one_fit_share_the_row_order_in_any_pack():
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


def plain_member(**changes) -> Member:
    plain = Member(
        seed=1,
        train_rows=np.arange(4),
        validation_rows=np.arange(4, 6),
        weights={"kl": 0.5},
        learning_rate=1e-3,
        weight_decay=0.0,
        dropout=0.1,
        input_dropout=0.0,
    )
    return replace(plain, **changes)


def test_batches_are_filled_with_other_rows_of_the_member():
    epoch = Planner([member(0, range(13))], CONFIG).epoch(0)
    assert np.unique(epoch.order[0, 1]).size == 10
    assert epoch.weight[0].sum(1).tolist() == [10, 3]


def test_a_row_encoder_rests_and_then_has_a_rate_of_its_own():
    config = replace(CONFIG, encoder_frozen_epochs=1, encoder_learning_rate=1e-4)
    planner = Planner(
        [member(0, range(5)), replace(member(1, range(5)), learning_rate=0.1)], config
    )
    assert planner.encoder_factors(0) == [0.0, 0.0]
    assert planner.encoder_factors(1) == pytest.approx([0.1, 1e-3])
    assert Planner([member(0, range(5))], CONFIG).encoder_factors(0) == [1.0]


def test_weights_of_terms_that_some_members_omit():
    members = [
        plain_member(weights={"kl": 0.5, "b": 0.0}),
        plain_member(weights={"a": 2.0, "b": 0.0}),
    ]
    weights = weight_tensors(members, dtype=torch.float64, device=torch.device("cpu"))
    assert list(weights) == ["kl", "a"]
    assert weights["kl"].tolist() == [0.5, 0.0]
    assert weights["a"].tolist() == [0.0, 2.0]
    assert weights["a"].dtype == torch.float64


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 2},
        {"train_rows": np.array([0, 1, 3, 2])},
        {"validation_rows": np.arange(5, 7)},
        {"weights": {"kl": 0.6}},
        {"learning_rate": 2e-3},
        {"weight_decay": 0.1},
        {"dropout": 0.2},
        {"input_dropout": 0.2},
        {"settings": {"temperature": 0.1}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_field_is_part_of_the_fingerprint(changes):
    assert plain_member(**changes).fingerprint() != plain_member().fingerprint()


@pytest.mark.parametrize(
    ("progress", "warmup", "expected"),
    [
        (0.0, 0.1, 0.0),
        (0.025, 0.1, 0.25),
        (0.1, 0.1, 1.0),
        (0.55, 0.1, 0.5),
        (1.0, 0.1, 0.0),
        (0.5, 1.0, 0.5),
    ],
)
def test_cosine_at_known_points(progress, warmup, expected):
    assert cosine(progress, warmup) == pytest.approx(expected, abs=1e-12)


def test_cosine_without_warmup_equals_torch():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=9)
    for epoch in range(9):
        assert cosine(epoch / 9, 0.0) == pytest.approx(schedule.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize(("first", "factor"), [(5, 2), (3, 1), (4, 3)])
def test_warm_restarts_equal_torch(first, factor):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, first, factor)
    optimizer.step()
    for epoch in np.arange(0.05, 40, 0.35):
        schedule.step(float(epoch))
        expected = schedule.get_last_lr()[0]
        assert warm_restarts(float(epoch), first, factor) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("first", "factor"), [(0, 2), (-1, 2), (2, 0.5)])
def test_invalid_warm_restarts_are_rejected(first, factor):
    with pytest.raises(InputError, match="first period"):
        warm_restarts(10.0, first, factor)


def test_ramp():
    assert [ramp(p, 0.5) for p in (0.0, 0.25, 0.5, 0.9)] == [0.0, 0.5, 1.0, 1.0]
    assert ramp(0.0, 0.0) == 1.0
    assert math.isclose(ramp(0.1, 0.3), 1 / 3)


def test_the_rate_of_a_step_is_that_of_its_middle_and_never_below_the_floor():
    config = replace(CONFIG, epochs=2, batch_size=2, warmup=0.0, floor_learning_rate=2e-4)
    rates = [Planner([member(0, range(4))], config).epoch(number).rates[:, 0] for number in (0, 1)]
    expected = [2e-4 + 8e-4 * cosine(middle, 0.0) for middle in (1 / 8, 3 / 8, 5 / 8, 7 / 8)]
    np.testing.assert_allclose(np.concatenate(rates), expected)


def test_a_member_that_reads_all_rows_on_disk_learns_nothing_from_its_own_fold():
    own = replace(member(0, range(30), order_seed=5), validation_rows=np.arange(10, 20))
    order, weight = Planner([own], CONFIG).epoch(0)[:2]
    np.testing.assert_array_equal(weight, (order < 10) | (order >= 20))


def test_the_weight_of_the_kl_alone_rises():
    planner = Planner([member(0, range(4))], replace(CONFIG, epochs=4, kl_warmup=0.5))
    assert [planner.factor("kl", number) for number in range(4)] == [0, 0.5, 1, 1]
    assert [planner.factor("cross_entropy", number) for number in range(4)] == [1] * 4
