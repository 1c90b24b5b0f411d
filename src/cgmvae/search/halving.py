"""Successive halving: part of the way the worse settings are left out of a pack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cgmvae.training.plan import TrainingConfig


class Halving:
    """Leaves the worse settings out of a pack part of the way.

    Members are ordered by split, setting and seed.
    """

    def __init__(self, n_settings: int, n_seeds: int, config: TrainingConfig) -> None:
        self.n_settings, self.n_seeds, self.config = n_settings, n_seeds, config
        self.left_after: Mapping[int, int] = {}

    def plan(self, rungs: Sequence[float], factor: int, *, least: int) -> None:
        """Say after which epoch how many settings are left."""
        left, after = self.n_settings, {}
        for rung in sorted(rungs):
            left = max(least, -(-left // factor))
            after[max(1, round(rung * self.config.epochs))] = left
        self.left_after = after

    def __call__(
        self, epoch: int, places: NDArray[np.int64], values: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return the members that go on."""
        if epoch not in self.left_after:
            return places
        setting = places // self.n_seeds % self.n_settings
        finite = np.where(np.isfinite(values), values, -1.0)
        sums = np.bincount(setting, finite, self.n_settings)
        counts = np.bincount(setting, minlength=self.n_settings)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
        best = np.argsort(-means, kind="stable")[: self.left_after[epoch]]
        return places[np.isin(setting, best)]
