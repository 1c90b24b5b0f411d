import math

import numpy as np
import pytest
import torch

from cgmvae.errors import InputError
from cgmvae.training.schedules import cosine, ramp, warm_restarts


@pytest.mark.parametrize(
    ("progress", "warmup", "expected"),
    [
        (0.0, 0.1, 0.0),
        (0.025, 0.1, 0.25),
        (0.1, 0.1, 1.0),
        (0.4, 0.1, 0.75),
        (0.55, 0.1, 0.5),
        (1.0, 0.1, 0.0),
        (0.0, 0.0, 1.0),
        (1 / 3, 0.0, 0.75),
        (0.5, 1.0, 0.5),
    ],
)
def test_cosine_at_known_points(progress, warmup, expected):
    assert cosine(progress, warmup) == pytest.approx(expected, abs=1e-12)


def test_cosine_without_warmup_is_torchs():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=9)
    for epoch in range(9):
        assert cosine(epoch / 9, 0.0) == pytest.approx(schedule.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize(("first", "factor"), [(5, 2), (3, 1), (4, 3)])
def test_warm_restarts_are_torchs(first, factor):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, first, factor)
    optimizer.step()
    for epoch in np.arange(0.05, 40, 0.35):
        schedule.step(float(epoch))
        expected = schedule.get_last_lr()[0]
        assert warm_restarts(float(epoch), first, factor) == pytest.approx(expected, abs=1e-9)


def test_warm_restarts_begin_anew_after_each_longer_period():
    assert [warm_restarts(epoch, 2, 2) for epoch in (0, 2, 6, 14)] == [1.0] * 4
    for start, length in ((0, 2), (2, 4), (6, 8)):
        assert warm_restarts(start + length / 2, 2, 2) == pytest.approx(0.5)
        assert warm_restarts(start + length * (1 - 1e-6), 2, 2) < 1e-6


@pytest.mark.parametrize(("first", "factor"), [(0, 2), (-1, 2), (2, 0.5)])
def test_warm_restarts_that_would_never_end_are_refused(first, factor):
    with pytest.raises(InputError, match="first period"):
        warm_restarts(10.0, first, factor)


def test_ramp():
    assert [ramp(p, 0.5) for p in (0.0, 0.25, 0.5, 0.9)] == [0.0, 0.5, 1.0, 1.0]
    assert ramp(0.0, 0.0) == 1.0
    assert math.isclose(ramp(0.1, 0.3), 1 / 3)
