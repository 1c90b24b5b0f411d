"""Learning rates and term weights as pure functions of how far training is."""

from __future__ import annotations

import math
from typing import Literal

from cgmvae.errors import InputError

ScheduleName = Literal["constant", "cosine", "warm-restarts"]


def cosine(progress: float, warmup: float) -> float:
    """Rise linearly to 1 during the share ``warmup`` of training, then fall to 0 as a half cosine.

    Examples
    --------
    >>> cosine(0.05, 0.1), cosine(0.1, 0.1), round(cosine(0.55, 0.1), 6), cosine(1.0, 0.1)
    (0.5, 1.0, 0.5, 0.0)
    """
    if progress < warmup:
        return progress / warmup
    return 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))


def warm_restarts(epoch: float, first: float, factor: float) -> float:
    """Fall from 1 to 0 as a half cosine, again and again, each period ``factor`` times as long.

    Examples
    --------
    >>> warm_restarts(0, 50, 2), round(warm_restarts(25, 50, 2), 6), warm_restarts(50, 50, 2)
    (1.0, 0.5, 1.0)
    """
    if first <= 0 or factor < 1:
        raise InputError("Warm restarts need a first period above 0 and a factor of at least 1.")
    period = first
    while epoch >= period:
        epoch -= period
        period *= factor
    return 0.5 * (1 + math.cos(math.pi * epoch / period))


def ramp(progress: float, length: float) -> float:
    """Rise linearly from 0 to 1 during the share ``length`` of training (KL warm-up)."""
    return min(1.0, progress / length) if length > 0 else 1.0
