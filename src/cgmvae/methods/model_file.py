"""Model files: arrays and a JSON description in one file that cannot execute code.

An estimator provides its fitted state as named arrays and a JSON-serializable description; what all
estimators share (names, plan, feature pipeline, threshold rule, origin) is added here. A file may
come from an untrusted source: everything it claims is checked against the types that classes
declare and against the arrays it contains before it is used. :mod:`cgmvae.data.serialization` is
the container.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae import __version__
from cgmvae.data.dataset import Matrix, csr_from_parts
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.declared import as_declared
from cgmvae.errors import InputError, one_line
from cgmvae.evaluation.calibration import Calibration
from cgmvae.evaluation.thresholds import (
    FINE_THRESHOLDS,
    GlobalThreshold,
    LabelThresholds,
    ThresholdCurve,
    ThresholdRule,
    TopK,
    describe_rule,
)
from cgmvae.methods.combination import ExpertRecord
from cgmvae.methods.inputs import LabelClasses
from cgmvae.methods.registry import METHODS, REGISTRY, method_name
from cgmvae.preparation.pipeline import FeaturePipeline

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from torch import nn

    from cgmvae.methods.base import MultiLabelClassifier
    from cgmvae.methods.own_encoder import OwnEncoder

#: Increased when released versions of this library cannot read the files. Files of all numbers must
#: stay readable (docs/guide/models.md); tests/methods/stored_models has one of each.
FORMAT_VERSION = 1

#: Parameters that say where and how a model was trained, and those that are estimators; they are
#: neither written nor read here.
_NOT_STORED = {"device", "checkpoint", "progress", "n_jobs", "random_state"}
_NOT_STORED |= {"estimator", "experts", "auto_network"}

#: The parameter that is code, and given anew when a model is loaded.
_CODE = "encoder"

#: Exceptions that an inconsistent description can cause.
_DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
    MemoryError,
)

#: Limit of config values even for small networks: draws and ranks are not dimensions of arrays.
_SMALL = 1 << 16

T = TypeVar("T")

_CSR_PARTS = ("data", "indices", "indptr")


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to one file, atomically."""
    write_tensors(path, *model_state(model))


def describe_parameters(model: Any) -> dict[str, Any]:
    """Return the class of an estimator and its parameters, as JSON values."""
    name = type(model).__name__
    if METHODS.get(name) is not type(model):
        raise InputError(
            f"{name} is not in the registry of methods, where a model file's class is looked up; "
            "add it there (docs/adding_a_method.md), or pickle the model."
        )
    stored = _stored_parameters(model.get_params(deep=False), plain)
    return {"class": name, "parameters": stored}


def restore_parameters(description: Mapping[str, Any], encoder: Any = None) -> MultiLabelClassifier:
    """Return an estimator, not fitted, with the parameters that were described."""
    kind: Any = METHODS[description["class"]]
    code = {} if encoder is None else {_CODE: encoder}
    stored = _stored_parameters(dict(description["parameters"]))
    return kind(**as_declared(kind, stored), **code)


def model_state(model: Any) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return all that is stored of a fitted estimator: arrays by name, and JSON values."""
    parameters = describe_parameters(model)
    stored = parameters["parameters"]
    rule, pipeline = model.threshold_rule_, model.pipeline_
    try:
        as_declared(type(model), stored)
        check_rule(rule)
    except ValueError as error:
        raise InputError(f"The model cannot be saved: {error}; change that.") from error
    arrays, own = model._fitted_state()
    shared = pipeline.arrays()
    if isinstance(rule, LabelThresholds):
        shared["thresholds"] = rule.thresholds
    if (curve := getattr(model, "threshold_curve_", None)) is not None:
        shared["curves"] = np.array(list(curve.values.values()))
    description = {
        "kind": "cgmvae model",
        "format": FORMAT_VERSION,
        "library": __version__,
        **parameters,
        "label_names": list(model.label_names_),
        "input_names": None if model.input_names_ is None else list(model.input_names_),
        "from_frame": hasattr(model, "feature_names_in_"),
        "n_features": model.n_features_in_,
        "plan": plain(dataclasses.asdict(model.plan_)),
        "pipeline": plain(pipeline.description()),
        # Thresholds per label are stored as an array.
        "threshold": {k: v for k, v in describe_rule(rule).items() if k not in shared},
        "curves": None if curve is None else _describe_curve(curve),
        "origin": plain(getattr(model, "origin_", None)),
        "warnings": list(getattr(model, "fit_warnings_", ())),
        "kept_rows": kept_rows(model),
        "fitted": plain(own),
    }
    tensors = {f"shared.{name}": array for name, array in shared.items()}
    return tensors | {
        f"fitted.{name}": _in_half(each) for name, each in arrays.items()
    }, description


def kept_rows(model: Any) -> int:
    """Return how many training rows a fitted model contains, in full or in part."""
    if (experts := getattr(model, "models_", None)) is not None:
        return max(kept_rows(each) for each in experts.values())
    name = method_name(model)
    return model.plan_.profile.n_rows if name in REGISTRY and REGISTRY[name].keeps_rows else 0


def _stored_parameters(
    parameters: Mapping[str, Any], convert: Callable[[Any], Any] = lambda value: value
) -> dict[str, Any]:
    """Return the parameters that are written and read; records as mappings of their fields."""
    left_out = _NOT_STORED | {_CODE}
    return {
        name: convert(dataclasses.asdict(value) if _is_record(value) else value)
        for name, value in parameters.items()
        if name not in left_out
    }


def _is_record(value: Any) -> TypeGuard[DataclassInstance]:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _describe_curve(curve: ThresholdCurve) -> dict[str, Any]:
    known = {"n_rows": curve.n_rows, "out_of_fold": curve.out_of_fold}
    return {"metrics": list(curve.values), **known}


def _read_curve(tensors: dict[str, NDArray[Any]], stored: Any) -> ThresholdCurve | None:
    if stored is None:
        return None
    names, values = list(map(str, stored["metrics"])), tensors["shared.curves"]
    if values.shape != (len(names), len(FINE_THRESHOLDS)) or not np.isfinite(values).all():
        raise ValueError("its threshold curves are not one finite number per threshold")
    curves = dict(zip(names, values.astype(np.float64), strict=True))
    return ThresholdCurve(curves, int(stored["n_rows"]), bool(stored["out_of_fold"]))


def _in_half(array: NDArray[Any]) -> NDArray[Any]:
    """Return a float32 array as float16 if that changes no number; :func:`load` turns it back."""
    if array.dtype != np.float32:
        return array
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    return half if np.array_equal(half, array, equal_nan=True) else array


class EncoderMismatch(Exception):
    """The encoder that was given has other weights than the one that was stored."""


def load(
    path: str | os.PathLike[str],
    *,
    encoder: nn.Module | Callable[[], nn.Module] | OwnEncoder | None = None,
) -> MultiLabelClassifier:
    """Load a model that was saved with ``save``; such a file cannot execute code.

    Parameters
    ----------
    path : path
    encoder : nn.Module, callable or OwnEncoder, optional
        For a model that was fitted with an encoder: a module of the same form, or a function that
        returns one. Its weights are replaced by those in the file.
    """
    tensors, description = _read_model(path)
    _check_encoder(path, description, encoder)
    with _damage_reported(path):
        return restore_model(tensors, description, encoder)


def restore_model(
    tensors: dict[str, NDArray[Any]], description: Mapping[str, Any], encoder: Any = None
) -> MultiLabelClassifier:
    """Return the estimator that :func:`model_state` described; raise if it is inconsistent."""
    model = restore_parameters(description, encoder)
    _restore_shared(model, tensors, description)
    arrays = with_prefix(tensors, "fitted.")
    for name, array in arrays.items():
        # Arrays of experts are checked when these are restored.
        may_be_nan = name == "best_value" or name.startswith(("history.", "experts."))
        if not may_be_nan and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"its {name!r} contains NaN or infinity")
        if array.dtype == np.float16:
            arrays[name] = array.astype(np.float32)
    model._restore_plan(description["plan"], sum(array.size for array in arrays.values()))
    model._restore_fitted(arrays, description["fitted"])
    return model


def summarize(path: str | os.PathLike[str]) -> Any:
    """Return what a file says about its model, which is not built: this needs no torch.

    The attributes are those that all estimators share after ``fit``, and: ``method``, an entry of
    the registry; ``parameters``; ``plan``, as JSON values; ``n_members`` and ``calibration``, None
    if there are none; ``n_numbers``, of the learned values; ``kept_rows``, the number of training
    rows in the file; ``experts`` of a blend, what is known of each, None for other methods.
    """
    tensors, description = _read_model(path)
    method = next(m for m in REGISTRY.values() if m.class_name == description["class"])
    with _damage_reported(path):
        found = SimpleNamespace(method=method, max_labels=method.max_labels)
        _restore_shared(found, tensors, description)
        vars(found).update(_summary(description, found.n_labels_))
        found.experts = None
        if (fitted := description["fitted"]).get("records") is not None:
            records = [ExpertRecord(**as_declared(ExpertRecord, r)) for r in fitted["records"]]
            found.experts = [
                SimpleNamespace(
                    record=own, **_summary(fitted["models"].get(own.name), found.n_labels_)
                )
                for own in records
            ]
        learned = with_prefix(tensors, "fitted.").items()
        found.n_numbers = sum(
            array.size for name, array in learned if not re.search(r"history\.|label_pairs\.", name)
        )
    return found


def _summary(description: Mapping[str, Any] | None, n_labels: int) -> dict[str, Any]:
    """Return what :func:`summarize` says of a model and of an expert; of a dropped one, nothing."""
    if description is None:
        return {
            "parameters": {},
            "plan": None,
            "n_members": None,
            "calibration": None,
            "kept_rows": 0,
        }
    fitted = description["fitted"]
    return {
        "parameters": dict(description["parameters"]),
        "plan": dict(description["plan"]),
        "n_members": len(fitted.get("member_settings", ())) or None,
        "calibration": read_calibration(fitted, n_labels),
        "kept_rows": int(description.get("kept_rows", 0)),
    }


def _read_model(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], Any]:
    tensors, description = read_tensors(path)
    _check_description(path, description)
    return tensors, description


@contextmanager
def _damage_reported(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what an inconsistent file causes inside the block into a message."""
    try:
        yield
    except EncoderMismatch as error:
        raise InputError(
            f"The weights of the encoder in {path} have other names or shapes than those of the "
            "encoder that was given; build it as it was for fit."
        ) from error
    except _DAMAGE as error:
        raise InputError(
            f"{path} is damaged ({one_line(error)}); download or save it again."
        ) from error


def _check_description(path: Any, description: Any) -> None:
    if not isinstance(description, dict) or description.get("kind") != "cgmvae model":
        raise InputError(f"{path} is not a model of this library.")
    version, writer = description.get("format"), one_line(description.get("library"))
    if type(version) is not int or version < 1:
        raise InputError(f"{path} is damaged (it has no version); download or save it again.")
    if version > FORMAT_VERSION:
        raise InputError(
            f"{path} was written by a newer version of cgmvae ({writer}); "
            f"this is version {__version__}: update the library."
        )
    if description.get("class") not in list(METHODS):
        name = one_line(repr(description.get("class")))
        raise InputError(
            f"{path} contains a {name}, which is unknown to this version of cgmvae "
            f"({__version__}); it was written by version {writer}."
        )


def _check_encoder(path: Any, description: Mapping[str, Any], encoder: Any) -> None:
    fitted = description.get("fitted")
    has_encoder = isinstance(fitted, dict) and fitted.get("encoder") is not None
    if has_encoder and encoder is None:
        raise InputError(
            f"{path} was fitted with an encoder, whose weights it holds, but not its code; pass "
            "encoder=, a module of the same form or a function that returns one."
        )
    if encoder is not None and not has_encoder:
        raise InputError(f"{path} was not fitted with an encoder; load it without one.")


def _restore_shared(model: Any, tensors: dict[str, NDArray[Any]], description: Any) -> None:
    model.label_names_ = tuple(_names(description["label_names"]))
    model.n_labels_ = len(model.label_names_)
    if len(set(model.label_names_)) < model.n_labels_:
        raise ValueError("two labels have the same name")
    if model.max_labels is not None and model.n_labels_ > model.max_labels:
        raise ValueError(f"it has {model.n_labels_:,} labels, more than its method supports")
    model.classes_ = LabelClasses(model.n_labels_)
    model.n_features_in_ = int(description["n_features"])
    model.input_names_ = None
    if description["input_names"] is not None:
        model.input_names_ = tuple(_names(description["input_names"]))
        if len(model.input_names_) != model.n_features_in_:
            raise ValueError("it does not have one name per column")
    model.origin_ = description["origin"]
    if not isinstance(model.origin_, dict | None):
        raise ValueError("its origin is not a JSON object")
    model.fit_warnings_ = list(description["warnings"])
    if not all(isinstance(text, str) for text in model.fit_warnings_):
        raise ValueError("its warnings are not texts")
    arrays = with_prefix(tensors, "shared.")
    model.pipeline_ = pipeline = FeaturePipeline.restored(arrays, description["pipeline"])
    kinds = None if pipeline.columns is None else list(pipeline.columns.kinds)
    if kinds is not None and kinds != list(model.input_names_ or ()):
        raise ValueError("its encoded columns are not its column names")
    if description["from_frame"] and model.input_names_ is not None:
        model.feature_names_in_ = np.array(model.input_names_, dtype=object)
    model.threshold_rule_ = _read_rule(tensors, description["threshold"], model.n_labels_)
    model.threshold_curve_ = _read_curve(tensors, description["curves"])


def _names(names: Any) -> list[str]:
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError("its names are not a list of names")
    return names


def _read_rule(tensors: dict[str, NDArray[Any]], rule: Any, n_labels: int) -> ThresholdRule:
    if rule["rule"] == "global":
        return check_rule(GlobalThreshold(float(rule["threshold"])))
    if rule["rule"] == "top-k" and 0 <= rule["k"] <= n_labels:
        return TopK(int(rule["k"]))
    if rule["rule"] == "per-label":
        return check_rule(LabelThresholds(_vector(tensors, "thresholds", n_labels)))
    raise ValueError("its threshold rule is unknown")


def read_calibration(fitted: Mapping[str, Any], n_labels: int) -> Calibration | None:
    """Return the calibration that a fitted state records; None if there is none."""
    if (state := fitted.get("calibration")) is None:
        return None
    found = Calibration(**as_declared(Calibration, state))
    if len(found.shifts) != n_labels:
        raise ValueError("its calibration does not have one shift per label")
    return found


def check_rule(rule: ThresholdRule) -> ThresholdRule:
    """Return the rule; raise if a threshold is not a probability."""
    thresholds = np.asarray(getattr(rule, "threshold", getattr(rule, "thresholds", ())))
    if not ((thresholds >= 0) & (thresholds <= 1)).all():
        raise ValueError("its thresholds are not between 0 and 1")
    return rule


def _vector(tensors: Mapping[str, NDArray[Any]], name: str, length: int) -> NDArray[Any]:
    array = tensors[f"shared.{name}"]
    if array.shape != (length,) or array.dtype.kind != "f":
        raise ValueError(f"its {name!r} is not a vector of {length:,} numbers")
    return array


def with_prefix(arrays: Mapping[str, T], prefix: str) -> dict[str, T]:
    """Return the arrays whose names start with a prefix, keyed by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def matrix_arrays(name: str, matrix: Matrix | None) -> dict[str, NDArray[Any]]:
    """Return the named arrays that a dense or CSR matrix is stored in; none for None.

    Examples
    --------
    >>> list(matrix_arrays("labels", np.eye(2)))
    ['labels']
    >>> list(matrix_arrays("labels", sp.csr_array((2, 2))))
    ['labels.data', 'labels.indices', 'labels.indptr']
    """
    if matrix is None:
        return {}
    if not sp.issparse(matrix):
        return {name: matrix}
    return {f"{name}.{part}": getattr(matrix, part) for part in _CSR_PARTS}


def read_matrix(
    arrays: Mapping[str, NDArray[Any]],
    name: str,
    shape: tuple[int, int],
    dtype: type[np.generic],
    *,
    optional: bool = False,
) -> Matrix | None:
    """Return the matrix stored by :func:`matrix_arrays`, or None if it is optional and missing.

    Raises if it does not have this shape or a dtype such as ``np.floating``.
    """
    if name in arrays:
        matrix: Matrix = arrays[name]
    elif optional and f"{name}.data" not in arrays:
        return None
    else:
        matrix = csr_from_parts(*(arrays[f"{name}.{part}"] for part in _CSR_PARTS), shape=shape)
    if matrix.shape != shape or not np.issubdtype(matrix.dtype, dtype):
        raise ValueError(f"its {name!r} is not a matrix of shape ({shape[0]:,}, {shape[1]:,})")
    return matrix


def read_config(record: type, values: Any, n_weights: int) -> Any:
    """Return the config of a network; raise if ``n_weights`` stored values cannot be enough."""
    config = as_declared(record, values)
    for name, value in config.items():
        sizes = value if isinstance(value, tuple) else (value,)
        numbers = [size for size in sizes if isinstance(size, int | float)]
        if not all(0 <= number <= max(n_weights, _SMALL) for number in numbers):
            raise ValueError(f"its {name!r} is negative, or larger than its arrays allow")
    return record(**config)


def plain(value: Any) -> Any:
    """Return a JSON-serializable copy of a value with NumPy scalars, mappings and tuples."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise InputError(
        f"The parameter value {value!r} cannot be stored in a model file; use numbers and strings."
    )
