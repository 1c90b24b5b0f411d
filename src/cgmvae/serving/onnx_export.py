"""Export of a fitted model to one ONNX file, which other languages and servers run by themselves.

The file is exported from the model's predictor and threshold rule, the modules that
``predict_proba`` applies. Nothing is written unless ONNX Runtime agrees with the model.

LaMP and RBCC score a batch in blocks to bound memory. A graph cannot have a number of blocks that
depends on the batch, so the exported graph scores all rows at once.
"""

from __future__ import annotations

import copy
import json
import logging
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
from cgmvae.errors import InputError
from cgmvae.evaluation.thresholds import describe_rule
from cgmvae.methods import REGISTRY, MultiLabelClassifier, method_name
from cgmvae.methods.predictor import MeanOfMembers, Predictor, Rule
from cgmvae.preparation.pipeline import describe_columns

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
    categories, dates or text, the file takes the features that ``model.prepared`` returns, and its
    metadata say as JSON, in ``columns``, what was learned to prepare them.

    Parameters
    ----------
    model : MultiLabelClassifier
        A fitted method that is a graph of tensor operations: a network, binary relevance, extra
        trees, linear machines, votes of near rows, or a blend of these.
    path : path
        An existing file is replaced.
    """
    check_is_fitted(model)
    predictor = exported_model(model)
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(
            'Exporting to ONNX needs more packages: pip install "cgmvae[onnx]"'
        ) from error
    with _quiet_exporter():
        content = _serialized(model, predictor)
        difference = _compare(model, content)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    prepared = model.pipeline_.columns is not None
    return ExportedFile(predictor.n_features, len(model.label_names_), prepared, difference)


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
def _serialized(model: MultiLabelClassifier, predictor: Predictor) -> bytes:
    """Return the content of the file."""
    import onnx

    rows = torch.zeros(3, predictor.n_features, dtype=torch.float64)
    try:
        program: Any = torch.onnx.export(
            _Exported(predictor, Rule(model.threshold_rule_)).eval(),
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
        "input": _INPUT if model.pipeline_.columns is None else _PREPARED_INPUT,
        # JSON in ASCII, so that any name can be written.
        "label_names": json.dumps(list(model.label_names_)),
        "feature_names": json.dumps(model.prepared_names()),
        "threshold_rule": json.dumps(describe_rule(model.threshold_rule_)),
    }
    if model.pipeline_.columns is not None:
        metadata["columns"] = json.dumps(describe_columns(model.pipeline_.columns))
    onnx.helper.set_model_props(proto, metadata)
    onnx.checker.check_model(proto)
    return proto.SerializeToString()


def _compare(model: MultiLabelClassifier, content: bytes) -> float:
    """Return the largest difference between file and model on random rows; raise if it is large."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    scaler, rng = model.pipeline_.scaler, np.random.default_rng(0)
    largest = 0.0
    for n_rows in BATCH_SIZES:
        shape = (n_rows, len(scaler.shift_))
        rows = scaler.shift_ + scaler.scale_ * (scaler.fill_ + rng.standard_normal(shape))
        rows[rng.random(shape) < _MISSING] = np.nan
        probabilities, labels = session.run(["probabilities", "labels"], {"features": rows})
        expected = model._score_numbers(rows)
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


class _Exported(nn.Module):
    """Probabilities and labels, as the file returns them."""

    def __init__(self, predictor: Predictor, rule: Rule) -> None:
        super().__init__()
        self.predictor, self.rule = predictor, rule

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map float64 rows, (n_rows, n_features), to probabilities and 0/1 labels."""
        probabilities = self.predictor(features)
        return probabilities, self.rule(probabilities)


def exported_model(model: MultiLabelClassifier) -> Predictor:
    """Return the predictor of a fitted model on the CPU; the model is not changed."""
    predictor = copy.deepcopy(model.predictor())
    if predictor is None:
        for name, expert in getattr(model, "models_", {}).items():
            if getattr(expert, "predictor", lambda: None)() is None:
                raise InputError(
                    f"The expert {name!r} is a {type(expert).__name__}, which cannot be exported; "
                    "leave it out of the blend."
                )
        names = [
            name
            for name, method in REGISTRY.items()
            if method.estimator.scorer is not MultiLabelClassifier.scorer
        ]
        raise InputError(
            f"{type(model).__name__} cannot be exported; the methods that can are "
            f"{', '.join(names[:-1])} and {names[-1]}."
        )
    for part in predictor.modules():
        if isinstance(part, MeanOfMembers) and hasattr(part.network, "exportable"):
            part.network = part.network.exportable()
    return predictor.cpu().eval()
