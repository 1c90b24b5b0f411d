"""From features to probabilities and labels, as one torch module.

``predict_proba`` applies it to dense rows, the server does so through ``predict_proba``, and an
ONNX file is exported from it: they agree because they are the same code. Scaling, bins and
components use the functions of :mod:`cgmvae.preparation` in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.evaluation.calibration import MAX_LOG_ODDS
from cgmvae.evaluation.thresholds import ThresholdRule, TopK
from cgmvae.nn.encoder import EncoderStack
from cgmvae.preparation.components import project
from cgmvae.preparation.piecewise import shares_of_bins
from cgmvae.preparation.pipeline import FeaturePipeline
from cgmvae.preparation.scaling import scale_dense

#: Rows of all members that are scored at a time, and their features.
SCORED_ROWS, SCORED_CELLS = 4096, 2**24

#: Prepared features of the rows that are prepared at a time, before the components are taken.
PREPARED_CELLS = 2**18

#: Fewer rows are not worth a thread.
_MIN_ROWS = 64

_CPU = torch.device("cpu")


def float64(values: Any) -> nn.Buffer:
    """Return values as a buffer in double precision."""
    return nn.Buffer(torch.as_tensor(values, dtype=torch.float64))


class PreparedFeatures(nn.Module):
    """Scaling, bins and components of a fitted pipeline, for dense rows in float64."""

    def __init__(self, pipeline: FeaturePipeline) -> None:
        super().__init__()
        scaler, bins, components = pipeline.scaler, pipeline.bins, pipeline.components
        self.n_features = pipeline.n_inputs
        self.shift, self.scale = float64(scaler.shift_), float64(scaler.scale_)
        self.fill, self.bound = float64(scaler.fill_), scaler.bound_
        self.feature = nn.Buffer(torch.as_tensor(bins.feature_))
        self.lower, self.width = float64(bins.lower_), float64(bins.upper_ - bins.lower_)
        self.mean, self.vectors = float64(components.mean_), float64(components.vectors_)
        self.n_more = pipeline.n_more

    @property
    def rows_at_once(self) -> int:
        """Rows that are best prepared at a time: what becomes of them fits into the cache."""
        return PREPARED_CELLS // max(1, self.n_features + len(self.feature))

    def forward(self, rows: Tensor) -> Tensor:
        """Map (n_rows, n_features), NaN where a value is missing, to what the method sees."""
        columns = scale_dense(rows, self.shift, self.scale, self.fill, self.bound, torch)
        if len(self.feature):
            shares = shares_of_bins(columns, self.feature, self.lower, self.width)
            columns = torch.cat([columns, shares], dim=1)
        columns = project(columns, self.mean, self.vectors) if len(self.mean) else columns
        return nn.functional.pad(columns, (0, self.n_more)) if self.n_more else columns


class MeanOfMembers(nn.Module):
    """The mean probability of a network's members."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, columns: Tensor) -> Tensor:
        """Map (n_rows, n_columns) to (n_rows, n_labels)."""
        first = next(self.network.parameters())
        return self.network(columns.to(first.dtype).expand(len(first), -1, -1)).mean(0)

    @property
    def rows_at_once(self) -> int:
        """Rows that are best scored at a time."""
        return max(1, SCORED_ROWS // len(next(self.network.parameters())))


class LogisticRegressions(nn.Module):
    """One logistic regression per label, in float64.

    ``constant``, (n_labels,), says whether all training rows agreed on a label; its probability is
    then constant, and stored as its intercept.
    """

    def __init__(self, constant: Any, coefficients: Any, intercepts: Any) -> None:
        super().__init__()
        self.constant = nn.Buffer(torch.as_tensor(constant))
        self.coefficients, self.intercepts = float64(coefficients), float64(intercepts)

    rows_at_once = SCORED_ROWS

    def forward(self, columns: Tensor) -> Tensor:
        """Map (n_rows, n_columns) to (n_rows, n_labels)."""
        log_odds = columns @ self.coefficients.T + self.intercepts
        return torch.where(self.constant, self.intercepts, torch.sigmoid(log_odds))


def unit_length(rows: Tensor) -> Tensor:
    """Return rows of length 1; one of almost zeros stays as it is, as scikit-learn has it."""
    length = rows.square().sum(1, keepdim=True).sqrt()
    is_zero = length < 10 * torch.finfo(rows.dtype).eps
    return rows / torch.where(is_zero, torch.ones_like(length), length)


class WeightedExperts(nn.Module):
    """The experts of a blend: their log-odds, weighted and added, as probabilities in float64."""

    def __init__(self, experts: Sequence[Predictor], weights: Any, shifts: Any) -> None:
        super().__init__()
        self.experts = nn.ModuleList(experts)
        self.weights, self.shifts = float64(weights), float64(shifts)

    def forward(self, columns: Tensor) -> Tensor:
        """Map (n_rows, n_columns) to (n_rows, n_labels)."""
        total = self.shifts
        for weight, expert in zip(self.weights, self.experts, strict=True):
            p = expert(columns).double()
            odds = torch.log(p) - torch.log1p(-p)
            total = total + weight * odds.clamp(-MAX_LOG_ODDS, MAX_LOG_ODDS)
        return torch.sigmoid(total)


class Rule(nn.Module):
    """A threshold rule on tensors."""

    def __init__(self, rule: ThresholdRule) -> None:
        super().__init__()
        self.k = rule.k if isinstance(rule, TopK) else None
        # A scalar or one threshold per label; a top-k rule has none.
        self.thresholds = float64(getattr(rule, "threshold", getattr(rule, "thresholds", ())))

    def forward(self, probabilities: Tensor) -> Tensor:
        """Return 0/1 labels; thresholds are compared in the dtype of the probabilities."""
        if self.k is None:
            return (probabilities >= self.thresholds.to(probabilities.dtype)).long()
        # Of equal probabilities ONNX's TopK takes the first, like the model.
        best = torch.topk(probabilities, min(self.k, probabilities.shape[1]), dim=1).indices
        return torch.zeros_like(probabilities, dtype=torch.int64).scatter(1, best, 1)


class Predictor(nn.Module):
    """A fitted model: features, (n_rows, n_features) in float64, to probabilities.

    Parameters
    ----------
    features : PreparedFeatures
    scorer : nn.Module
        Maps what features become to probabilities, (n_rows, n_labels).
    """

    def __init__(self, features: PreparedFeatures, scorer: Any) -> None:
        super().__init__()
        self.features, self.scorer = features, scorer

    @property
    def n_features(self) -> int:
        """Width of the input."""
        return self.features.n_features

    @property
    def rows_at_once(self) -> int:
        """Rows that are best scored at a time."""
        return int(cast(Any, self.scorer).rows_at_once)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the probabilities of all labels, (n_rows, n_labels)."""
        return self.scorer(self.features(rows))


def scored(module: Any, rows: NDArray[Any]) -> NDArray[Any]:
    """Return what a module makes of rows, computed where it is, in blocks of ``rows_at_once``."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    device = next((each.device for each in tensors if each.device.type != "cpu"), _CPU)
    n_threads = torch.get_num_threads() if device.type == "cpu" else 1
    if any(isinstance(part, EncoderStack) for part in module.modules()):
        n_threads = 1  # it lends its module one member's weights for each call
    module = module.to(device)
    size = min(module.rows_at_once, SCORED_CELLS // n_threads // max(1, rows.shape[1]))

    def of_block(block: slice) -> NDArray[Any]:
        given = torch.from_numpy(np.require(rows[block], np.float64, ["C", "W"]))
        return module(given.to(device)).cpu().numpy()

    return in_blocks(of_block, len(rows), size, n_threads)


def in_blocks(
    score: Callable[[slice], NDArray[Any]], n_rows: int, size: int, n_threads: int | None = None
) -> NDArray[Any]:
    """Return the scores of all rows, those of at most ``size`` rows at a time.

    Each of torch's threads takes blocks of its own. Threads that share every operation wait for
    each other after it, which takes ten times as long on cores that have other work.
    """
    score = torch.no_grad()(score)
    n_threads = n_threads or torch.get_num_threads()
    if n_threads > 1:
        size = min(size, max(_MIN_ROWS, -(-n_rows // n_threads)))
    size = max(1, size)
    blocks = [slice(start, start + size) for start in range(0, max(1, n_rows), size)]
    if n_threads == 1:
        return joined(map(score, blocks), n_rows)
    torch.set_num_threads(1)
    try:
        if len(blocks) == 1:
            return score(blocks[0])
        with ThreadPoolExecutor(n_threads, "scoring") as pool:
            return joined(pool.map(score, blocks), n_rows)
    finally:
        torch.set_num_threads(n_threads)


def joined(parts: Iterable[NDArray[Any]], n_rows: int) -> NDArray[Any]:
    """Return the parts of at least one row one below the other, (n_rows, n_columns).

    They are copied as they come. Parts kept until the end would lie between the large arrays that
    are freed meanwhile, and the allocator could not use that memory again: 6 KB a row.
    """
    found, start = np.empty(0), 0
    for part in parts:
        if start == 0:
            found = np.empty((n_rows, part.shape[1]), part.dtype)
        found[start : start + len(part)] = part
        start += len(part)
    return found
