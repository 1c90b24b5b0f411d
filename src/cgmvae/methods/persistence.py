"""Model files: arrays and JSON in one file that cannot run code (:mod:`cgmvae.data.serialization`).

An estimator gives its fitted state as arrays by name and a description that JSON can hold; what all
estimators share (names, scaling, threshold rule, origin) is added here. A file may come from a
stranger: what it says is checked against what classes declare and
against the arrays that it holds, before anything is made of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from cgmvae import __version__
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError, one_line
from cgmvae.evaluation.thresholds import (
    GlobalThreshold,
    LabelThresholds,
    ThresholdRule,
    TopK,
    describe_rule,
)
from cgmvae.methods.stored_arrays import with_prefix
from cgmvae.preparation import FeaturePreparation
from cgmvae.preparation.declarations import as_declared, plain
from cgmvae.preparation.scaling import FeatureScaler, ScalingName

#: Raised when an older version of this library can no longer read its files: 2 knows columns that
#: are no numbers. A file has the lowest number that says all of it.
FORMAT_VERSION = 2

_SHARED_ARRAYS = ("shift", "scale", "fill")

#: Parameters that say where and how a model was trained; they are neither written nor read.
_NOT_STORED = {"device", "checkpoint", "progress", "n_jobs", "random_state", "estimator"}

#: What a description that does not add up can cause.
_DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
    MemoryError,
)


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to one file, whole or not at all."""
    arrays, own = model._fitted_state()
    scaler, rule = model.scaler_, model.threshold_rule_
    shared = {"shift": scaler.shift_, "scale": scaler.scale_, "fill": scaler.fill_}
    if isinstance(rule, LabelThresholds):
        shared["thresholds"] = rule.thresholds
    names = getattr(model, "feature_names_in_", None)
    description = {
        "kind": "cgmvae model",
        "format": 1 if model.preparation_ is None else FORMAT_VERSION,
        "library": __version__,
        "class": type(model).__name__,
        "parameters": _storable_parameters(model),
        "label_names": list(model.label_names_),
        "feature_names": None if names is None else [str(name) for name in names],
        "n_features": model.n_features_in_,
        "preparation": None if model.preparation_ is None else plain(model.preparation_.state()),
        "scaling": scaler.kind_,
        # Thresholds of the labels are among the arrays.
        "threshold": {k: v for k, v in describe_rule(rule).items() if k not in shared},
        "origin": plain(getattr(model, "origin_", None)),
        "fitted": plain(own),
    }
    tensors = {f"shared.{name}": array for name, array in shared.items()}
    tensors |= {f"fitted.{name}": array for name, array in arrays.items()}
    write_tensors(path, tensors, description)


def count_numbers(model: Any) -> int:
    """Return how many numbers a fitted estimator consists of, without its history."""
    arrays, _ = model._fitted_state()
    return sum(array.size for name, array in arrays.items() if not name.startswith("history."))


def load_model(path: str | os.PathLike[str], classes: Mapping[str, Any]) -> Any:
    """Read a fitted estimator of one of these classes, by name."""
    tensors, description = read_tensors(path)
    _check_description(path, description, classes)
    try:
        kind = classes[description["class"]]
        model = kind(**_read_parameters(kind, description["parameters"]))
        _restore_shared(model, tensors, description)
        model._restore_fitted(_fitted_arrays(tensors), description["fitted"])
    except _DAMAGE as error:
        raise InputError(
            f"{path} is damaged ({one_line(error)}); fetch or write it again."
        ) from error
    return model


def _fitted_arrays(tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of what was learnt; only a history may hold what is no number."""
    arrays = with_prefix(tensors, "fitted.")
    for name, array in arrays.items():
        told = name == "best_value" or name.startswith("history.")
        if not told and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"its {name!r} is not made of numbers")
    return arrays


def _check_description(path: Any, description: Any, classes: Mapping[str, Any]) -> None:
    if not isinstance(description, dict) or description.get("kind") != "cgmvae model":
        raise InputError(f"{path} is not a model of this library.")
    version, writer = description.get("format"), one_line(description.get("library"))
    if type(version) is not int or version < 1:
        raise InputError(f"{path} is damaged (it has no version); fetch or write it again.")
    if version > FORMAT_VERSION:
        raise InputError(
            f"{path} was written by a newer version ({writer}); "
            f"this is {__version__}: update the library."
        )
    if description.get("class") not in list(classes):
        name = one_line(repr(description.get("class")))
        raise InputError(
            f"{path} holds a {name}, which is not known here; it was written by version {writer}."
        )


def _storable_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters that describe the model, not where and how it was trained."""
    parameters = model.get_params(deep=False).items()
    stored = {name: plain(value) for name, value in parameters if name not in _NOT_STORED}
    try:
        as_declared(type(model), stored)
    except ValueError as error:
        raise InputError(f"The model cannot be saved: {error}; set that parameter.") from error
    return stored


def _read_parameters(kind: type, stored: Any) -> dict[str, Any]:
    """Return stored parameters of a class, but those that are not its own to set."""
    if not isinstance(stored, dict):
        raise ValueError("its parameters are not a record")
    return as_declared(kind, {k: value for k, value in stored.items() if k not in _NOT_STORED})


def _restore_shared(model: Any, tensors: dict[str, NDArray[Any]], description: Any) -> None:
    model.label_names_ = tuple(_names(description, "label_names"))
    model.n_labels_ = len(model.label_names_)
    if model.max_labels is not None and model.n_labels_ > model.max_labels:
        raise ValueError(f"it has {model.n_labels_:,} labels, more than its method takes")
    model.classes_ = np.tile([0, 1], (model.n_labels_, 1))
    model.n_features_in_ = int(description["n_features"])
    if description["feature_names"] is not None:
        names = _names(description, "feature_names")
        if len(names) != model.n_features_in_:
            raise ValueError("it does not have a name for each feature")
        model.feature_names_in_ = np.array(names, dtype=object)
    model.origin_ = _read_origin(description)
    model.preparation_ = _read_preparation(description.get("preparation"), model)
    made = model.preparation_
    model.n_inputs_ = model.n_features_in_ if made is None else len(made.feature_names_)
    model.scaler_ = _read_scaler(tensors, description["scaling"], model.n_inputs_)
    model.threshold_rule_ = _read_rule(tensors, description["threshold"], model.n_labels_)


def _names(description: Mapping[str, Any], key: str) -> list[str]:
    names = description[key]
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError(f"its {key} are not a list of names")
    return names


def _read_preparation(state: Any, model: Any) -> FeaturePreparation | None:
    """Return how features are made of columns; files of earlier versions know numbers only."""
    if state is None:
        return None
    preparation = FeaturePreparation.restore(state)
    if list(preparation.kinds) != list(getattr(model, "feature_names_in_", ())):
        raise ValueError("its prepared columns are not those that it names")
    return preparation


def _read_scaler(tensors: dict[str, NDArray[Any]], kind: Any, n_features: int) -> FeatureScaler:
    if kind == "auto" or kind not in get_args(ScalingName):
        raise ValueError("its scaling is not known")
    scaler = FeatureScaler(kind)
    scaler.kind_ = kind
    scaler.shift_, scaler.scale_, scaler.fill_ = (
        _vector(tensors, name, n_features) for name in _SHARED_ARRAYS
    )
    if not (np.isfinite([scaler.shift_, scaler.fill_]).all() and (scaler.scale_ > 0).all()):
        raise ValueError("its scaling is not made of numbers")
    return scaler


def _read_rule(tensors: dict[str, NDArray[Any]], rule: Any, n_labels: int) -> ThresholdRule:
    if rule["rule"] == "global" and math.isfinite(rule["threshold"]):
        return GlobalThreshold(float(rule["threshold"]))
    if rule["rule"] == "top-k" and 0 <= rule["k"] <= n_labels:
        return TopK(int(rule["k"]))
    if rule["rule"] == "per-label":
        return LabelThresholds(_vector(tensors, "thresholds", n_labels))
    raise ValueError("its threshold rule is not known")


def _read_origin(description: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return where a model comes from; files of earlier versions do not say."""
    origin = description.get("origin")
    if origin is not None and not isinstance(origin, dict):
        raise ValueError("its origin is not a record")
    return origin


def _vector(tensors: Mapping[str, NDArray[Any]], name: str, length: int) -> NDArray[Any]:
    array = tensors[f"shared.{name}"]
    if array.shape != (length,) or array.dtype.kind != "f":
        raise ValueError(f"its {name!r} does not have {length:,} numbers")
    return array
