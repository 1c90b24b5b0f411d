"""A fitted model as one ONNX file, which other languages and servers run without this library.

The file takes raw features and gives probabilities and labels; scaling, filling of missing values,
all members and the threshold rule are inside (:mod:`~cgmvae.serving.onnx_graph`). Nothing is
written unless ONNX Runtime gives what the model gives.
"""

from __future__ import annotations

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
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cgmvae import __version__
from cgmvae.data.files import atomic_path
from cgmvae.errors import InputError
from cgmvae.evaluation.thresholds import describe_rule
from cgmvae.methods import MultiLabelClassifier, method_name
from cgmvae.serving.onnx_graph import ExportedModel, exported_model

#: The version of ONNX's operators: the one that torch's exporter is written for.
OPSET = 18

#: How far the file's probabilities may be from the model's.
TOLERANCE = 1e-5

#: Batches that the file is compared with the model on.
BATCH_SIZES = (1, 7, 1000)

#: Share of the values that are missing there.
_MISSING = 0.1

#: Numbers that the widest part of the graph may hold in the comparison; it bounds its memory.
_COMPARED_NUMBERS = 1 << 27

#: Bytes of weights in one file: what protobuf can hold, less room for the graph and the names.
WEIGHTS_LIMIT = (1 << 31) - (1 << 26)

_INPUT = (
    "Rows of numbers in float64, NaN where a value is missing; a value that a sparse row leaves "
    "out is 0."
)
_PREPARED_INPUT = (
    f"{_INPUT} They are the features that cgmvae prepares from the columns of a table."
)


@dataclass(frozen=True)
class ExportedFile:
    """What was written."""

    n_features: int
    """Width of the input ``features``."""
    n_labels: int
    """Width of the outputs ``probabilities`` and ``labels``."""
    prepared: bool
    """Whether the input is not the columns of a table but what the model prepares from them."""
    difference: float
    """The largest difference between the file's probabilities and the model's that was seen."""


def export_onnx(model: MultiLabelClassifier, path: str | os.PathLike[str]) -> ExportedFile:
    """Write a fitted model to one ONNX file, whole or not at all.

    The file's input is ``features``, float64 (n_rows, n_features) with NaN where a value is
    missing; its outputs are ``probabilities`` and ``labels``, 0 and 1 by the model's threshold
    rule, (n_rows, n_labels). Its metadata are texts: ``method``, ``library``, ``input``, and as
    JSON ``label_names``, ``feature_names`` and ``threshold_rule``. Where the model takes
    categories, dates or text, the file takes the features that ``model.prepared`` gives.

    Parameters
    ----------
    model : MultiLabelClassifier
        A network or binary relevance, fitted.
    path : path
        The file; one that is there is replaced.
    """
    check_is_fitted(model)
    module = exported_model(model)
    with _quiet_exporter():
        _check_packages()
        content = _serialised(module, _metadata(model))
        difference = _compare(model, module, content)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    prepared = model.preparation_ is not None
    return ExportedFile(module.n_features, len(model.label_names_), prepared, difference)


def _check_packages() -> None:
    """Say what to install where a package is missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError('An ONNX file needs more packages: pip install "cgmvae[onnx]"') from error


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Keep from the user what the exporter says of itself."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _serialised(module: ExportedModel, metadata: dict[str, str]) -> bytes:
    """Return the bytes of the file."""
    import onnx

    program = _trace(module)
    weights = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
    if weights > WEIGHTS_LIMIT:
        raise InputError(
            f"The model's weights take {weights / 2**30:.1f} GiB, and an ONNX file holds less than "
            "2 GiB; fit fewer members or narrower layers."
        )
    proto = program.model_proto
    # The exporter notes where in this library each operation comes from.
    del proto.graph.value_info[:], proto.graph.metadata_props[:]
    for part in (*proto.graph.node, *proto.graph.input, *proto.graph.output):
        del part.metadata_props[:]
    proto.producer_name, proto.producer_version = "cgmvae", __version__
    onnx.helper.set_model_props(proto, metadata)
    onnx.checker.check_model(proto)
    return proto.SerializeToString()


@torch.no_grad()
def _trace(module: ExportedModel) -> Any:
    rows = torch.zeros(3, module.n_features, dtype=torch.float64)
    try:
        return torch.onnx.export(
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


def _metadata(model: MultiLabelClassifier) -> dict[str, str]:
    """Return what the file says of itself; JSON in ASCII, so that any name can be written."""
    return {
        "method": method_name(model),
        "library": f"cgmvae {__version__}",
        "input": _INPUT if model.preparation_ is None else _PREPARED_INPUT,
        "label_names": json.dumps(list(model.label_names_)),
        "feature_names": json.dumps(model.prepared_names()),
        "threshold_rule": json.dumps(describe_rule(model.threshold_rule_)),
    }


def _compare(model: MultiLabelClassifier, module: ExportedModel, content: bytes) -> float:
    """Return how far the file is from the model on made-up rows; refuse it where that is far."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    most = max(1, _COMPARED_NUMBERS // module.row_size)
    sizes = sorted({min(size, most) for size in BATCH_SIZES})
    return max(_difference(model, session, _made_up_rows(model, size)) for size in sizes)


def _difference(model: MultiLabelClassifier, session: Any, rows: NDArray[np.float64]) -> float:
    probabilities, labels = session.run(["probabilities", "labels"], {"features": rows})
    expected = model._score_rows(model.scaler_.transform(rows))
    difference = float(np.abs(probabilities - expected).max())
    if not difference <= TOLERANCE:  # NaN too
        raise InputError(
            f"The ONNX file gives probabilities that differ by {difference:.1g} from the model's; "
            "nothing was written."
        )
    if not np.array_equal(labels, model.threshold_rule_.apply(probabilities)):
        raise InputError(
            "The ONNX file gives other labels than the model's threshold rule; nothing was written."
        )
    return difference


def _made_up_rows(model: MultiLabelClassifier, n_rows: int) -> NDArray[np.float64]:
    """Return rows around the mean of the training rows, some values missing."""
    scaler, rng = model.scaler_, np.random.default_rng(n_rows)
    shape = (n_rows, len(scaler.shift_))
    rows = scaler.shift_ + scaler.scale_ * (scaler.fill_ + rng.standard_normal(shape))
    rows[rng.random(shape) < _MISSING] = np.nan
    return rows
