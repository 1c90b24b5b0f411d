"""From features to probabilities and labels, as one torch module.

``predict_proba`` applies it to dense rows, the server does so through ``predict_proba``, and an
ONNX file is exported from it: they agree because they are the same code. Scaling, bins and
components use the functions of :mod:`cgmvae.preparation` in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import torch
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

#: Fewer rows are not worth a thread.
_MIN_ROWS = 64


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

    def forward(self, rows: Tensor) -> Tensor:
        """Return the probabilities of all labels, (n_rows, n_labels)."""
        return self.scorer(self.features(rows))

    def scored(self, rows: Tensor) -> Tensor:
        """Return the same, computed in blocks of rows where the scorer is, on the CPU.

        Each of torch's threads takes blocks of its own. Threads that share every operation wait for
        each other after it, which takes ten times as long on cores that have other work.
        """
        tensors = itertools.chain(self.scorer.parameters(), self.scorer.buffers())
        device = next(tensors).device
        module = self.to(device)
        n_threads = torch.get_num_threads() if device.type == "cpu" else 1
        if any(isinstance(part, EncoderStack) for part in self.scorer.modules()):
            n_threads = 1  # it lends its module one member's weights for each call
        n_rows = min(
            int(self.scorer.rows_at_once), SCORED_CELLS // n_threads // max(1, rows.shape[1])
        )
        if n_threads > 1:
            n_rows = min(n_rows, max(_MIN_ROWS, -(-len(rows) // n_threads)))
        blocks = rows.split(max(1, n_rows)) if len(rows) else (rows,)
        if n_threads == 1:
            return joined((module(block.to(device)).cpu() for block in blocks), len(rows))
        torch.set_num_threads(1)
        try:
            if len(blocks) == 1:
                return cast(Tensor, module(rows))
            with ThreadPoolExecutor(n_threads, "scoring") as pool:
                return joined(pool.map(torch.no_grad()(module), blocks), len(rows))
        finally:
            torch.set_num_threads(n_threads)


def joined(parts: Iterable[Tensor], n_rows: int) -> Tensor:
    """Return the parts of at least one row one below the other, (n_rows, n_columns).

    They are copied as they come. Parts kept until the end would lie between the large tensors that
    are freed meanwhile, and the allocator could not use that memory again: 6 KB a row.
    """
    found, start = torch.empty(0), 0
    for part in parts:
        if start == 0:
            found = part.new_empty(n_rows, part.shape[1])
        found[start : start + len(part)] = part
        start += len(part)
    return found
