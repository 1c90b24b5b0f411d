"""Metrics of rankings: how well the scores order the labels of a row, or the rows of a label."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cgmvae.data.dataset import Matrix
from cgmvae.evaluation.metrics import as_bool


def precision_at_k(
    Y: ArrayLike | Matrix, scores: ArrayLike, k: int = 1, *, unknown: Matrix | None = None
) -> float:
    """Mean over rows of the share of the k highest-scored known labels that are true."""
    best = np.argsort(-np.asarray(scores), axis=1, kind="stable")[:, :k]
    return float(np.take_along_axis(as_bool(Y), best, 1).mean())
