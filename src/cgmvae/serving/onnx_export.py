"""Export of a fitted model to one ONNX file, which other languages and servers run by themselves.

Scaling, imputation of missing values, all members, training rows that vote and the threshold rule
are part of its graph.
Nothing is written unless ONNX Runtime agrees with the model.

LaMP and RBCC score a batch in blocks to bound memory. A graph cannot have a number of blocks that
depends on the batch, so the exported graph scores all rows at once.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from cgmvae import __version__
from cgmvae.data.files import atomic_path
from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.evaluation.calibration import MAX_LOG_ODDS
from cgmvae.evaluation.thresholds import ThresholdRule, TopK, describe_rule
from cgmvae.methods import REGISTRY, BinaryRelevance, MultiLabelClassifier, method_name
from cgmvae.methods.lamp import LaMPNetwork
from cgmvae.methods.linear import LinearModel
from cgmvae.methods.neighbors import SHARPNESS, Neighbors
from cgmvae.methods.packed import PackedClassifier
from cgmvae.methods.rbcc import RBCCNetwork, marginals
from cgmvae.preparation.components import PrincipalComponents
from cgmvae.preparation.piecewise import PiecewiseLinear
from cgmvae.preparation.scaling import FeatureScaler

#: Methods whose predictions are a graph of tensor operations.
_TRACEABLE = (PackedClassifier, BinaryRelevance)

#: Version of the ONNX operators: the one that torch's exporter is written for.
OPSET = 18

#: Maximum difference between the probabilities of the file and of the model.
TOLERANCE = 1e-5

#: Sizes of the batches on which the file is compared with the model; small ones, because the graph
#: of a model with many labels takes much memory per row.
BATCH_SIZES = (1, 7, *[8] * 16)

#: Share of missing values in these batches.
_MISSING = 0.1

#: Maximum size of the weights in bytes: the limit of protobuf, less space for graph and names.
WEIGHTS_LIMIT = (1 << 31) - (1 << 26)

_INPUT = (
    "Rows of numbers in float64, NaN where a value is missing; a value that a sparse row does not "
    "store is 0."
)
_PREPARED_INPUT = (
    f"{_INPUT} They are the features that cgmvae prepares from the columns of a table."
)


@dataclass(frozen=True)
class ExportedFile:
    """The file that was written."""

    n_features: int
    """Width of the input ``features``."""
    n_labels: int
    """Width of the outputs ``probabilities`` and ``labels``."""
    prepared: bool
    """Whether the input is the features that the model prepares from the columns of a table."""
    difference: float
    """The largest observed difference between the probabilities of the file and of the model."""


def export_onnx(model: MultiLabelClassifier, path: str | os.PathLike[str]) -> ExportedFile:
    """Write a fitted model to one ONNX file, atomically.

    The input of the file is ``features``, float64 (n_rows, n_features) with NaN where a value is
    missing; its outputs, (n_rows, n_labels) each, are ``probabilities`` and ``labels``, 0 or 1 by
    the model's threshold rule. Its metadata are the strings ``method``, ``library`` and ``input``,
    and as JSON ``label_names``, ``feature_names`` and ``threshold_rule``. If the model takes
    categories, dates or text, the file takes the features that ``model.prepared`` returns.

    Parameters
    ----------
    model : MultiLabelClassifier
        A network or binary relevance, fitted.
    path : path
        An existing file is replaced.
    """
    check_is_fitted(model)
    module = exported_model(model)
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(
            'Exporting to ONNX needs more packages: pip install "cgmvae[onnx]"'
        ) from error
    with _quiet_exporter():
        content = _serialized(model, module)
        difference = _compare(model, content)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    prepared = model.preparation_ is not None
    return ExportedFile(module.n_features, len(model.label_names_), prepared, difference)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Suppress the messages of the exporter."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@torch.no_grad()
def _serialized(model: MultiLabelClassifier, module: ExportedModel) -> bytes:
    """Return the content of the file."""
    import onnx

    rows = torch.zeros(3, module.n_features, dtype=torch.float64)
    try:
        program: Any = torch.onnx.export(
            module,
            (rows,),
            dynamo=True,
            opset_version=OPSET,
            input_names=["features"],
            output_names=["probabilities", "labels"],
            dynamic_shapes=({0: torch.export.Dim("n_rows")},),
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        raise InputError(
            f"torch {torch.__version__} cannot write this network as ONNX; nothing was written."
        ) from error
    weights = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
    if weights > WEIGHTS_LIMIT:
        raise InputError(
            f"The model's weights take {weights / 2**30:.1f} GiB, and an ONNX file holds less than "
            "2 GiB; fit fewer members or narrower layers."
        )
    proto = program.model_proto
    # The exporter records the source file of each operation.
    del proto.graph.value_info[:], proto.graph.metadata_props[:]
    for part in (*proto.graph.node, *proto.graph.input, *proto.graph.output):
        del part.metadata_props[:]
    proto.producer_name, proto.producer_version = "cgmvae", __version__
    metadata = {
        "method": method_name(model),
        "library": f"cgmvae {__version__}",
        "input": _INPUT if model.preparation_ is None else _PREPARED_INPUT,
        # JSON in ASCII, so that any name can be written.
        "label_names": json.dumps(list(model.label_names_)),
        "feature_names": json.dumps(model.prepared_names()),
        "threshold_rule": json.dumps(describe_rule(model.threshold_rule_)),
    }
    onnx.helper.set_model_props(proto, metadata)
    onnx.checker.check_model(proto)
    return proto.SerializeToString()


def _compare(model: MultiLabelClassifier, content: bytes) -> float:
    """Return the largest difference between file and model on random rows; raise if it is large."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    scaler, rng = model.scaler_, np.random.default_rng(0)
    largest = 0.0
    for n_rows in BATCH_SIZES:
        shape = (n_rows, len(scaler.shift_))
        rows = scaler.shift_ + scaler.scale_ * (scaler.fill_ + rng.standard_normal(shape))
        rows[rng.random(shape) < _MISSING] = np.nan
        probabilities, labels = session.run(["probabilities", "labels"], {"features": rows})
        expected = model._score_rows(model._scaled(rows))
        difference = float(np.abs(probabilities - expected).max())
        if not difference <= TOLERANCE:  # NaN too
            raise InputError(
                f"The probabilities of the ONNX file differ from the model's by {difference:.1g}; "
                "nothing was written."
            )
        if not np.array_equal(labels, model.threshold_rule_.apply(probabilities)):
            raise InputError(
                "The labels of the ONNX file do not follow the model's threshold rule; nothing "
                "was written."
            )
        largest = max(largest, difference)
    return largest


# --- The graph -----------------------------------------------------------------------------------


class ExportedModel(nn.Module):
    """From raw features to probabilities and labels, like ``predict_proba`` and ``predict``.

    The features are scaled in float64, scored, and turned into labels by the threshold rule.
    """

    def __init__(
        self,
        scaler: FeatureScaler,
        encoding: PiecewiseLinear,
        components: PrincipalComponents,
        scorer: nn.Module,
        rule: ThresholdRule,
    ) -> None:
        super().__init__()
        self.scorer = scorer
        self.k = rule.k if isinstance(rule, TopK) else None
        # A scalar or one threshold per label; a top-k rule has none.
        thresholds = getattr(rule, "threshold", getattr(rule, "thresholds", ()))
        self.thresholds = _buffer(thresholds)
        self.shift, self.scale = _buffer(scaler.shift_), _buffer(scaler.scale_)
        self.fill = _buffer(scaler.fill_)
        self.bound = scaler.bound_
        self.n_features = len(self.shift)
        self.feature = torch.as_tensor(encoding.feature_)
        self.lower = _buffer(encoding.lower_)
        self.width = _buffer(encoding.upper_ - encoding.lower_)
        self.mean, self.vectors = _buffer(components.mean_), _buffer(components.vectors_)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map float64 rows, (n_rows, n_features), to probabilities and 0/1 labels."""
        scaled = (features - self.shift) / self.scale
        scaled = torch.where(torch.isnan(scaled), self.fill, scaled)
        if math.isfinite(self.bound):
            scaled = scaled.clamp(-self.bound, self.bound)
        if len(self.feature):
            share = (scaled[:, self.feature] - self.lower) / self.width
            scaled = torch.cat([scaled, share.clamp(0, 1)], dim=1)
        if len(self.mean):
            scaled = (scaled - self.mean) @ self.vectors
        probabilities = self.scorer(scaled)
        if self.k is None:  # thresholds are compared in the dtype of the probabilities
            reached = probabilities >= self.thresholds.to(probabilities.dtype)
            return probabilities, reached.long()
        # Of equal probabilities ONNX's TopK takes the first, like the model.
        best = torch.topk(probabilities, min(self.k, probabilities.shape[1]), dim=1).indices
        zeros = torch.zeros_like(probabilities, dtype=torch.int64)
        return probabilities, zeros.scatter(1, best, 1)


class MemberScorer(nn.Module):
    """The mean probability of a network's members, (n_rows, n_features) to (n_rows, n_labels)."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        first = next(network.parameters())
        self.n_members, self.dtype = len(first), first.dtype
        if isinstance(network, RBCCNetwork):
            self.structures = list(network.structures())

    def forward(self, features: Tensor) -> Tensor:
        """Return the mean over members."""
        rows = features.to(self.dtype).expand(self.n_members, -1, -1)
        if isinstance(self.network, LaMPNetwork):
            members = torch.sigmoid(self.network.logits(self.network.states(rows)[-1]))
        elif isinstance(self.network, RBCCNetwork):
            tables = self.network.tables(rows)
            found = [marginals(tables[own], structure) for structure, own in self.structures]
            members = torch.cat(found)  # grouped by structure, which the mean does not depend on
        else:
            members = self.network(rows)
        return members.mean(0)


class VotingScorer(nn.Module):
    """The probabilities of a network averaged with votes of training rows, in float64."""

    def __init__(self, network: MemberScorer, neighbors: Neighbors) -> None:
        super().__init__()
        self.network, self.k, self.weight = network, neighbors.k, neighbors.weight
        self.by_angle = neighbors.by_angle
        rows = dense(neighbors.features).astype(np.float64)
        # A common offset of all rows would cost precision, as in the search of the model.
        origin = np.zeros_like(rows[0]) if self.by_angle else rows[0]
        self.origin, self.rows = _buffer(origin), _buffer(rows - origin)
        self.row_weights = _buffer(neighbors.row_weights)
        self.labels = _buffer(dense(neighbors.labels))
        self.frequencies = _buffer(neighbors.frequencies)
        unknown = neighbors.unknown
        self.known = None if unknown is None else _buffer(~dense(unknown))

    def forward(self, features: Tensor) -> Tensor:
        """Map (n_rows, n_features) to (n_rows, n_labels)."""
        compared = features.float().double()  # as the model compares them
        query = compared - self.origin
        if self.by_angle:
            query = _unit_length(compared)
        squares = query.square().sum(1, keepdim=True) + self.rows.square().sum(1)
        squared = (squares - 2 * query @ self.rows.T).clamp(min=0)
        nearest, rows = torch.topk(squared, self.k, dim=1, largest=False)
        median = nearest[:, self.k // 2 :][:, :1].clamp(min=float(np.finfo(np.float32).tiny))
        weights = torch.exp(-SHARPNESS * (nearest - nearest[:, :1]) / median)
        weights = weights * self.row_weights[rows]
        weights = (self.k * weights / weights.sum(1, keepdim=True)).unsqueeze(1)
        positive = (weights @ self.labels[rows]).squeeze(1)
        known = self.k if self.known is None else (weights @ self.known[rows]).squeeze(1)
        votes = ((positive + self.frequencies) / (known + 1)).clamp(0, 1)
        scores = self.network(features)
        odds = (1 - self.weight) * _log_odds(scores) + self.weight * _log_odds(votes)
        return torch.sigmoid(odds).to(scores.dtype)


class BlendedScorer(nn.Module):
    """The probabilities of another scorer blended with a linear model, in float64."""

    def __init__(self, scorer: nn.Module, linear: LinearModel) -> None:
        super().__init__()
        self.scorer, self.weight = scorer, linear.network_weight
        self.coefficients = _buffer(linear.coefficients)
        self.intercepts = _buffer(linear.intercepts)

    def forward(self, features: Tensor) -> Tensor:
        """Map (n_rows, n_features) to (n_rows, n_labels)."""
        scores = self.scorer(features)
        own = _unit_length(features.float().double()) @ self.coefficients + self.intercepts
        return torch.sigmoid(self.weight * _log_odds(scores) + own).to(scores.dtype)


def _unit_length(rows: Tensor) -> Tensor:
    """Return rows of length 1; a row of zeros stays as it is."""
    length = rows.square().sum(1, keepdim=True).sqrt()
    return rows / torch.where(length == 0, torch.ones_like(length), length)


def _log_odds(scores: Tensor) -> Tensor:
    """Return log-odds within the bounds of :func:`~cgmvae.evaluation.calibration.log_odds`."""
    p = scores.double()
    return (torch.log(p) - torch.log1p(-p)).clamp(-MAX_LOG_ODDS, MAX_LOG_ODDS)


class LinearScorer(nn.Module):
    """One logistic regression per label, in float64.

    ``constant``, (n_labels,), says whether all training rows agreed on a label; its probability is
    then constant, and stored as its intercept.
    """

    def __init__(self, constant: Any, coefficients: Any, intercepts: Any) -> None:
        super().__init__()
        self.constant = nn.Buffer(torch.as_tensor(constant))
        self.coefficients, self.intercepts = _buffer(coefficients), _buffer(intercepts)

    def forward(self, features: Tensor) -> Tensor:
        """Map (n_rows, n_features) to (n_rows, n_labels)."""
        log_odds = features @ self.coefficients.T + self.intercepts
        return torch.where(self.constant, self.intercepts, torch.sigmoid(log_odds))


def _buffer(values: Any) -> nn.Buffer:
    return nn.Buffer(torch.as_tensor(values, dtype=torch.float64))


def exported_model(model: MultiLabelClassifier) -> ExportedModel:
    """Return the prediction of a fitted model as a module on the CPU; the model is not changed."""
    scorer: nn.Module
    if isinstance(model, BinaryRelevance):
        arrays, _ = model._fitted_state()
        scorer = LinearScorer(**arrays)
    elif isinstance(model, PackedClassifier):
        scorer = members = MemberScorer(copy.deepcopy(model.network_).cpu())
        if (neighbors := getattr(model, "neighbors_", None)) is not None:
            scorer = VotingScorer(members, neighbors)
        if (linear := getattr(model, "linear_model_", None)) is not None:
            scorer = BlendedScorer(scorer, linear)
    else:
        names = [name for name, m in REGISTRY.items() if issubclass(m.estimator, _TRACEABLE)]
        raise InputError(
            f"{type(model).__name__} cannot be exported; the methods that can are "
            f"{', '.join(names[:-1])} and {names[-1]}."
        )
    parts = (model.scaler_, model.encoding_, model.components_, scorer, model.threshold_rule_)
    return ExportedModel(*parts).eval()
