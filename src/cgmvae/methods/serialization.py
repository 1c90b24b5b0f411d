"""Model files: arrays and a JSON description in one file that cannot execute code.

An estimator provides its fitted state as named arrays and a JSON-serializable description; what all
estimators share (names, encoding, scaling, threshold rule, origin) is added here. A file may come
from an untrusted source: everything it claims is checked against the types that classes declare and
against the arrays it contains before it is used. :mod:`cgmvae.data.serialization` is the container.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae import __version__
from cgmvae.data.dataset import Matrix, csr_from_parts
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError, one_line
from cgmvae.evaluation.calibration import Calibration
from cgmvae.evaluation.thresholds import (
    GlobalThreshold,
    LabelThresholds,
    ThresholdRule,
    TopK,
    describe_rule,
)
from cgmvae.methods.inputs import declared_types
from cgmvae.methods.registry import METHODS, REGISTRY
from cgmvae.preparation.components import PrincipalComponents
from cgmvae.preparation.encoders import ENCODERS
from cgmvae.preparation.features import FeaturePreparation
from cgmvae.preparation.piecewise import PiecewiseLinear
from cgmvae.preparation.scaling import FeatureScaler, ScalingName

if TYPE_CHECKING:
    from torch import nn

    from cgmvae.methods.base import MultiLabelClassifier

#: Increased when earlier versions of this library cannot read the files: 2 added columns that are
#: not numeric, 3 weights in float16, 4 training rows that vote. A file gets the lowest number that
#: can represent it. Files of all numbers must stay readable (docs/guide/models.md);
#: tests/methods/stored_models has one of each.
FORMAT_VERSION = 5

#: How the weights of networks are stored.
Precision = Literal["auto", "float32", "float16"]

#: Parameters that say where and how a model was trained; they are neither written nor read.
_NOT_STORED = {"device", "checkpoint", "progress", "verbose", "n_jobs", "random_state", "estimator"}

#: Parameters that are code, and given anew when a model is loaded.
_CODE = {"encoder", "collate"}

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


def save_model(model: Any, path: str | os.PathLike[str], *, in_half: bool) -> None:
    """Write a fitted estimator to one file, atomically.

    ``in_half`` stores its float32 arrays in float16.
    """
    parameters = model.get_params(deep=False).items()
    left_out = _NOT_STORED | _CODE
    stored = {name: plain(value) for name, value in parameters if name not in left_out}
    scaler, rule, preparation = model.scaler_, model.threshold_rule_, model.preparation_
    try:
        as_declared(type(model), stored)
        check_rule(rule)
    except ValueError as error:
        raise InputError(f"The model cannot be saved: {error}; change that.") from error
    arrays, own = model._fitted_state()
    if in_half:
        arrays = {name: _in_half(array) for name, array in arrays.items()}
    shared = {"shift": scaler.shift_, "scale": scaler.scale_, "fill": scaler.fill_}
    if model.encoding_.n_columns:
        shared |= {f"bins.{name}": array for name, array in model.encoding_.state().items()}
    if model.components_.is_used:
        shared |= {f"components.{name}": array for name, array in model.components_.state().items()}
    if isinstance(rule, LabelThresholds):
        shared["thresholds"] = rule.thresholds
    names = getattr(model, "feature_names_in_", None)
    description = {
        "kind": "cgmvae model",
        "format": _format(own, in_half=in_half, prepared=preparation is not None),
        "library": __version__,
        "class": type(model).__name__,
        "parameters": stored,
        "label_names": list(model.label_names_),
        "feature_names": None if names is None else [str(name) for name in names],
        "n_features": model.n_features_in_,
        "preparation": None if preparation is None else describe_preparation(preparation),
        "scaling": scaler.kind_,
        # Thresholds per label are stored as an array.
        "threshold": {k: v for k, v in describe_rule(rule).items() if k not in shared},
        "origin": plain(getattr(model, "origin_", None)),
        "fitted": plain(own),
    }
    tensors = {f"shared.{name}": array for name, array in shared.items()}
    tensors |= {f"fitted.{name}": array for name, array in arrays.items()}
    write_tensors(path, tensors, description)


def _format(own: Mapping[str, Any], *, in_half: bool, prepared: bool) -> int:
    """Return the first version of the format that has all that is stored."""
    if own.get("linear"):
        return 5
    return 4 if own.get("neighbors") else 3 if in_half else 2 if prepared else 1


def _in_half(array: NDArray[Any]) -> NDArray[Any]:
    """Return float32 numbers as float16, and any others as they are."""
    if array.dtype != np.float32:
        return array
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    if not np.isfinite(half).all():
        raise InputError("A weight is too large for float16; save the model in float32.")
    return half


class EncoderMismatch(Exception):
    """The encoder that was given has other weights than the one that was stored."""


def load(
    path: str | os.PathLike[str],
    *,
    encoder: nn.Module | Callable[[], nn.Module] | None = None,
    collate: Callable[[Sequence[Any]], Any] | None = None,
) -> MultiLabelClassifier:
    """Load a model that was saved with ``save``; such a file cannot execute code.

    Parameters
    ----------
    path : path
    encoder : nn.Module or callable, optional
        For a model that was fitted with an encoder: a module of the same form, or a function that
        returns one. Its weights are replaced by those in the file.
    collate : callable, optional
        The function that the model was fitted with, if any.
    """
    code = {"encoder": encoder, "collate": collate}
    code = {name: each for name, each in code.items() if each is not None}
    tensors, description = _read_model(path)
    _check_encoder(path, description, code)
    with _damage_reported(path):
        kind: Any = METHODS[description["class"]]
        parameters = dict(description["parameters"])
        left_out = _NOT_STORED | _CODE
        stored = {name: v for name, v in parameters.items() if name not in left_out}
        model = kind(**as_declared(kind, stored), **code)
        _restore_shared(model, tensors, description)
        arrays = with_prefix(tensors, "fitted.")
        for name, array in arrays.items():
            may_be_nan = name == "best_value" or name.startswith("history.")
            if not may_be_nan and array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"its {name!r} contains NaN or infinity")
        model._restore_fitted(arrays, description["fitted"])
    return model


def summarize(path: str | os.PathLike[str]) -> Any:
    """Return what a file says about its model, which is not built: this needs no torch.

    The attributes are those that all estimators share after ``fit``, and: ``method``, an entry of
    the registry; ``parameters``; ``n_members``, ``calibration``, ``votes`` and ``network_weight``,
    None if there are none; ``n_numbers``, of the learned values.
    """
    tensors, description = _read_model(path)
    method = next(m for m in REGISTRY.values() if m.class_name == description["class"])
    with _damage_reported(path):
        found = SimpleNamespace(method=method, max_labels=method.max_labels)
        _restore_shared(found, tensors, description)
        found.parameters = dict(description["parameters"])
        found.n_members = len(description["fitted"].get("member_settings", ())) or None
        found.calibration = read_calibration(description["fitted"], found.n_labels_)
        learned = with_prefix(tensors, "fitted.").items()
        found.votes = read_votes(description["fitted"])
        found.network_weight = read_network_weight(description["fitted"])
        kept = ("history.", "neighbors.")
        found.n_numbers = sum(a.size for name, a in learned if not name.startswith(kept))
    return found


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


def _check_encoder(path: Any, description: Mapping[str, Any], code: Mapping[str, Any]) -> None:
    fitted = description.get("fitted")
    has_encoder = isinstance(fitted, dict) and fitted.get("encoder") is not None
    if has_encoder and "encoder" not in code:
        raise InputError(
            f"{path} was fitted with an encoder, whose weights it holds, but not its code; pass "
            "encoder=, a module of the same form or a function that returns one."
        )
    if code and not has_encoder:
        raise InputError(f"{path} was not fitted with an encoder; load it without one.")


def _restore_shared(model: Any, tensors: dict[str, NDArray[Any]], description: Any) -> None:
    model.label_names_ = tuple(_names(description, "label_names"))
    model.n_labels_ = len(model.label_names_)
    if len(set(model.label_names_)) < model.n_labels_:
        raise ValueError("two labels have the same name")
    if model.max_labels is not None and model.n_labels_ > model.max_labels:
        raise ValueError(f"it has {model.n_labels_:,} labels, more than its method supports")
    model.classes_ = np.tile([0, 1], (model.n_labels_, 1))
    model.n_features_in_ = int(description["n_features"])
    if description["feature_names"] is not None:
        names = _names(description, "feature_names")
        if len(names) != model.n_features_in_:
            raise ValueError("it does not have one name per feature")
        model.feature_names_in_ = np.array(names, dtype=object)
    # Files of earlier versions have neither an origin nor a preparation.
    model.origin_ = description.get("origin")
    if not isinstance(model.origin_, dict | None):
        raise ValueError("its origin is not a JSON object")
    model.preparation_ = preparation = restore_preparation(description.get("preparation"))
    if preparation is not None:
        if list(preparation.kinds) != list(getattr(model, "feature_names_in_", ())):
            raise ValueError("its encoded columns are not its feature names")
        model.n_inputs_ = len(preparation.feature_names_)
    else:
        model.n_inputs_ = model.n_features_in_
    model.scaler_ = _read_scaler(tensors, description["scaling"], model.n_inputs_)
    bins = with_prefix(tensors, "shared.bins.")
    model.encoding_ = PiecewiseLinear("standard").fit(np.zeros((1, model.n_inputs_)))
    if bins:
        model.encoding_ = PiecewiseLinear.from_state(bins, model.n_inputs_)
    model.components_ = PrincipalComponents()
    model.n_columns_ = model.n_inputs_ + model.encoding_.n_columns
    if components := with_prefix(tensors, "shared.components."):
        model.components_ = PrincipalComponents.from_state(components, model.n_columns_)
        model.n_columns_ = model.components_.vectors_.shape[1]
    model.threshold_rule_ = _read_rule(tensors, description["threshold"], model.n_labels_)


def _names(description: Mapping[str, Any], key: str) -> list[str]:
    names = description[key]
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError(f"its {key} is not a list of names")
    return names


def describe_preparation(preparation: FeaturePreparation) -> list[dict[str, Any]]:
    """Return the encoders of all columns as JSON values."""
    columns = zip(preparation.kinds.items(), preparation.encoders_, strict=True)
    return [
        {"name": name, "kind": kind, "learnt": plain(dataclasses.asdict(encoder))}
        for (name, kind), encoder in columns
    ]


def restore_preparation(state: Any) -> FeaturePreparation | None:
    """Return the preparation that :func:`describe_preparation` described; raise if inconsistent."""
    if state is None:
        return None
    classes = [ENCODERS[column["kind"]] for column in state]
    encoders = [
        encoder(**as_declared(encoder, column["learnt"]))
        for encoder, column in zip(classes, state, strict=True)
    ]
    kinds = {str(column["name"]): column["kind"] for column in state}
    if len(kinds) < len(encoders):
        raise ValueError("two columns have the same name")
    return FeaturePreparation(kinds).with_encoders(encoders)


def _read_scaler(tensors: dict[str, NDArray[Any]], kind: Any, n_features: int) -> FeatureScaler:
    if kind == "auto" or kind not in get_args(ScalingName):
        raise ValueError("its scaling is unknown")
    scaler = FeatureScaler(kind)
    scaler.kind_ = kind
    scaler.shift_, scaler.scale_, scaler.fill_ = (
        _vector(tensors, name, n_features) for name in ("shift", "scale", "fill")
    )
    learned = (scaler.shift_, scaler.scale_, scaler.fill_)
    if not (np.isfinite(learned).all() and (scaler.scale_ > 0).all()):
        raise ValueError("its scaling is not finite and positive")
    return scaler


def _read_rule(tensors: dict[str, NDArray[Any]], rule: Any, n_labels: int) -> ThresholdRule:
    if rule["rule"] == "global":
        return check_rule(GlobalThreshold(float(rule["threshold"])))
    if rule["rule"] == "top-k" and 0 <= rule["k"] <= n_labels:
        return TopK(int(rule["k"]))
    if rule["rule"] == "per-label":
        return check_rule(LabelThresholds(_vector(tensors, "thresholds", n_labels)))
    raise ValueError("its threshold rule is unknown")


def read_calibration(fitted: Mapping[str, Any], n_labels: int) -> Calibration | None:
    """Return the calibration that a fitted state records; files of earlier versions have none."""
    if (state := fitted.get("calibration")) is None:
        return None
    found = Calibration(**as_declared(Calibration, state))
    if len(found.shifts) != n_labels:
        raise ValueError("its calibration does not have one shift per label")
    return found


class VotesRecord(NamedTuple):
    """What a file says about the training rows that vote; see :mod:`cgmvae.methods.neighbors`."""

    n_rows: int
    by_angle: bool
    k: int
    weight: float


def read_votes(fitted: Mapping[str, Any]) -> VotesRecord | None:
    """Return what a fitted state records of votes; None if there are none."""
    if (state := fitted.get("neighbors")) is None:
        return None
    n_rows, k, weight = int(state["n_rows"]), int(state["k"]), float(state["weight"])
    found = VotesRecord(n_rows, bool(state["by_angle"]), k, weight)
    if not (1 <= found.k <= found.n_rows and 0 <= found.weight <= 1):
        raise ValueError("its votes are more than its training rows, or their weight is above 1")
    return found


def read_network_weight(fitted: Mapping[str, Any]) -> float | None:
    """Return the weight of the network beside a linear model; None if there is none."""
    if (state := fitted.get("linear")) is None:
        return None
    if not 0 <= (weight := float(state["network_weight"])) < math.inf:
        raise ValueError("the weight of its network beside the linear model is not a number from 0")
    return weight


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


def as_declared(record: type, values: Any) -> dict[str, Any]:
    """Return JSON values as fields of a dataclass; raise if one does not fit its declared type.

    Lists inside a value become tuples, as does a value that is declared as a tuple. Fields may be
    missing.

    Examples
    --------
    >>> from cgmvae.model.network import NetworkConfig
    >>> as_declared(NetworkConfig, {"latent_dim": 8, "label_hidden": [16, 4]})
    {'latent_dim': 8, 'label_hidden': (16, 4)}
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"its {record.__name__} is not a JSON object")
    hints = declared_types(record)
    for name, value in values.items():
        if name not in hints:
            raise ValueError(f"{record.__name__} has no parameter {one_line(name)!r}")
        if not _fits(value, hints[name]):
            raise ValueError(f"its parameter {name!r} cannot be {one_line(repr(value))}")
    return {name: _as_tuples(value, hints[name]) for name, value in values.items()}


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a JSON value can represent the declared type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin in (tuple, Sequence):
        return isinstance(value, list | tuple) and all(_fits(each, arguments[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(v, arguments[1]) for v in value.values())
    # An integer fits any numeric type, and 0 and 1 fit bool.
    number = isinstance(value, int | float)
    if hint is bool:
        return number and value in (0, 1)
    if hint is int:
        return number and float(value).is_integer()
    if hint is float:
        return number
    return isinstance(value, hint) if hint in (str, NoneType) else hint is Any


def _as_tuples(value: Any, hint: Any = tuple[Any, ...]) -> Any:
    """Return a value whose lists are tuples; the outermost only if the type is a tuple."""
    if isinstance(value, Mapping):
        return {name: _as_tuples(each) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    is_tuple = any(get_origin(each) is tuple for each in (hint, *get_args(hint)))
    return (tuple if is_tuple else list)(map(_as_tuples, value))
