"""A fitted model as one module that torch can trace: scaling, all members, their mean, the rule.

:mod:`~cgmvae.serving.onnx_file` writes the traced graph. LaMP and RBCC score a batch block by block
to bound memory; a graph cannot follow a number of blocks that depends on the batch, so here they
score all of its rows at once.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.errors import InputError
from cgmvae.evaluation.thresholds import GlobalThreshold, LabelThresholds, ThresholdRule, TopK
from cgmvae.methods import REGISTRY, BinaryRelevance, MultiLabelClassifier
from cgmvae.methods.lamp import LaMPNetwork
from cgmvae.methods.packed import PackedClassifier
from cgmvae.methods.rbcc import WIDEST, RBCCNetwork, marginals
from cgmvae.preparation.scaling import FeatureScaler

#: The methods whose prediction is a graph of tensor operations.
_TRACEABLE = (PackedClassifier, BinaryRelevance)


class ExportedModel(nn.Module):
    """From raw features to probabilities and labels, as ``predict_proba`` and ``predict`` go.

    Parameters
    ----------
    scaler : FeatureScaler
        What is done to features first, in float64.
    scorer : MemberScorer or LinearScorer
        From scaled features to probabilities.
    rule : GlobalThreshold, LabelThresholds or TopK
        From probabilities to labels.
    """

    shift: Tensor
    scale: Tensor
    fill: Tensor

    def __init__(
        self, scaler: FeatureScaler, scorer: MemberScorer | LinearScorer, rule: ThresholdRule
    ) -> None:
        super().__init__()
        for name, values in (
            ("shift", scaler.shift_),
            ("scale", scaler.scale_),
            ("fill", scaler.fill_),
        ):
            self.register_buffer(name, torch.as_tensor(values, dtype=torch.float64))
        self.scorer = scorer
        self.rule = BestLabels(rule.k) if isinstance(rule, TopK) else ReachedThresholds(rule)

    @property
    def n_features(self) -> int:
        """Width of the input."""
        return len(self.shift)

    @property
    def row_size(self) -> int:
        """How many numbers the widest part of the graph holds for each row, about."""
        return max(self.n_features, self.scorer.row_size(self.n_features))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map float64 rows, (n_rows, n_features), to probabilities and labels of 0 and 1."""
        scaled = (features - self.shift) / self.scale
        probabilities = self.scorer(torch.where(torch.isnan(scaled), self.fill, scaled))
        return probabilities, self.rule(probabilities)


class MemberScorer(nn.Module):
    """The mean of a network's members."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        first = next(network.parameters())
        self.n_members, self.dtype = len(first), first.dtype

    def forward(self, features: Tensor) -> Tensor:
        """Map (n_rows, n_features) to (n_rows, n_labels)."""
        rows = features.to(self.dtype).expand(self.n_members, -1, -1)
        return self.of_members(rows).mean(0)

    def of_members(self, features: Tensor) -> Tensor:
        """Return the probabilities of each member, (n_members, n_rows, n_labels)."""
        return self.network(features)

    def row_size(self, n_features: int) -> int:
        """Return how many numbers are held for a row."""
        return self.n_members * n_features


class MessageScorer(MemberScorer):
    """The mean of LaMP's members, whose label nodes attend to each other."""

    def of_members(self, features: Tensor) -> Tensor:
        """Return the probabilities of each member, (n_members, n_rows, n_labels)."""
        return torch.sigmoid(self.network.logits(self.network.states(features)[-1]))

    def row_size(self, n_features: int) -> int:
        """Return how many numbers are held for a row: states, or the weights of attention."""
        config, n_labels = self.network.config, self.network.label_bias.shape[1]
        width = max(config.embedding_dim, config.n_heads * n_labels)
        return self.n_members * max(n_features, n_labels * width)


class ChainScorer(MemberScorer):
    """The mean of RBCC's members, by the marginals of each one's Bayesian network."""

    def __init__(self, network: RBCCNetwork) -> None:
        super().__init__(network)
        self.structures = list(network.structures())

    def of_members(self, features: Tensor) -> Tensor:
        """Return the probabilities of the members, grouped by structure, (M, B, L)."""
        tables = self.network.tables(features)
        found = [marginals(tables[members], each) for each, members in self.structures]
        return torch.cat(found)

    def row_size(self, n_features: int) -> int:
        """Return how many numbers are held for a row: gates, or the joint of waiting labels."""
        _, n_labels, n_parents = self.network.parents.shape
        gates = n_labels * 3 * self.network.config.state_dim << n_parents
        return self.n_members * max(n_features, gates, 2 << WIDEST)


class LinearScorer(nn.Module):
    """A logistic regression for each label, in float64; a constant where all rows agreed.

    Parameters
    ----------
    constant : array of bool, (n_labels,)
        Whether a label's probability is constant; it is its intercept then.
    coefficients : array, (n_labels, n_features)
    intercepts : array, (n_labels,)
    """

    constant: Tensor
    coefficients: Tensor
    intercepts: Tensor

    def __init__(
        self,
        constant: NDArray[np.bool_],
        coefficients: NDArray[np.floating],
        intercepts: NDArray[np.floating],
    ) -> None:
        super().__init__()
        self.register_buffer("constant", torch.as_tensor(constant))
        self.register_buffer("coefficients", torch.as_tensor(coefficients).double())
        self.register_buffer("intercepts", torch.as_tensor(intercepts).double())

    def forward(self, features: Tensor) -> Tensor:
        """Map (n_rows, n_features) to (n_rows, n_labels)."""
        log_odds = features @ self.coefficients.T + self.intercepts
        return torch.where(self.constant, self.intercepts, torch.sigmoid(log_odds))

    def row_size(self, n_features: int) -> int:
        """Return how many numbers are held for a row."""
        return max(n_features, len(self.intercepts))


class ReachedThresholds(nn.Module):
    """The labels whose probability reaches a threshold, compared in the probabilities' precision.

    Parameters
    ----------
    rule : GlobalThreshold or LabelThresholds
    """

    thresholds: Tensor

    def __init__(self, rule: GlobalThreshold | LabelThresholds) -> None:
        super().__init__()
        values = rule.threshold if isinstance(rule, GlobalThreshold) else rule.thresholds
        self.register_buffer("thresholds", torch.as_tensor(values, dtype=torch.float64))

    def forward(self, probabilities: Tensor) -> Tensor:
        """Map (n_rows, n_labels) to 0 and 1."""
        return (probabilities >= self.thresholds.to(probabilities.dtype)).long()


class BestLabels(nn.Module):
    """The k labels of the highest probability; of equal ones the first, as ONNX defines TopK."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, probabilities: Tensor) -> Tensor:
        """Map (n_rows, n_labels) to 0 and 1."""
        best = torch.topk(probabilities, min(self.k, probabilities.shape[1]), dim=1).indices
        return torch.zeros_like(probabilities, dtype=torch.int64).scatter(1, best, 1)


def exported_model(model: MultiLabelClassifier) -> ExportedModel:
    """Return what a fitted model does with numbers, on the processor; the model is not changed."""
    return ExportedModel(model.scaler_, _scorer(model), model.threshold_rule_).eval()


def _scorer(model: MultiLabelClassifier) -> MemberScorer | LinearScorer:
    if isinstance(model, BinaryRelevance):
        arrays, _ = model._fitted_state()
        return LinearScorer(**arrays)
    if not isinstance(model, PackedClassifier):
        names = [name for name, m in REGISTRY.items() if issubclass(m.estimator, _TRACEABLE)]
        raise InputError(
            f"{type(model).__name__} cannot be exported; the methods that can are "
            f"{', '.join(names[:-1])} and {names[-1]}."
        )
    network = copy.deepcopy(model.network_).cpu()
    kinds = {LaMPNetwork: MessageScorer, RBCCNetwork: ChainScorer}
    return kinds.get(type(network), MemberScorer)(network)
