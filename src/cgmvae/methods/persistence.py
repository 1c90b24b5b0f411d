"""Model files: arrays and JSON in one file that cannot run code (:mod:`cgmvae.data.tensor_file`).

An estimator gives its fitted state as arrays by name and a description that JSON can hold; what all
estimators share (names, scaling, threshold rule, origin) is added here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae import __version__
from cgmvae.data.tensor_file import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.evaluation.thresholds import GlobalThreshold, LabelThresholds, ThresholdRule, TopK
from cgmvae.methods.scaling import FeatureScaler

#: Raised when files of an older version of this library can no longer be read.
FORMAT_VERSION = 1

_SHARED_ARRAYS = ("shift", "scale", "fill")

#: Parameters that say where and how a model was trained; they are neither written nor read.
_NOT_STORED = {"device", "checkpoint", "progress", "n_jobs", "random_state", "estimator"}

#: What a description that does not add up can cause.
_DAMAGE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError)


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
        "format": FORMAT_VERSION,
        "library": __version__,
        "class": type(model).__name__,
        "parameters": _storable_parameters(model),
        "label_names": list(model.label_names_),
        "feature_names": None if names is None else [str(name) for name in names],
        "n_features": model.n_features_in_,
        "scaling": scaler.kind_,
        "threshold": _describe_rule(rule),
        "origin": _plain(getattr(model, "origin_", None)),
        "fitted": _plain(own),
    }
    tensors = {f"shared.{name}": array for name, array in shared.items()}
    tensors |= {f"fitted.{name}": array for name, array in arrays.items()}
    write_tensors(path, tensors, description)


def load_model(path: str | os.PathLike[str], classes: Mapping[str, Any]) -> Any:
    """Read a fitted estimator of one of these classes, by name."""
    tensors, description = read_tensors(path)
    _check_description(path, description, classes)
    try:
        model = classes[description["class"]](**_read_parameters(description["parameters"]))
        _restore_shared(model, tensors, description)
        own = {
            name.removeprefix("fitted."): array
            for name, array in tensors.items()
            if name.startswith("fitted.")
        }
        model._restore_fitted(own, description["fitted"])
    except _DAMAGE as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged ({error}); fetch or write it again.") from error
    return model


def _check_description(path: Any, description: Any, classes: Mapping[str, Any]) -> None:
    if not isinstance(description, dict) or description.get("kind") != "cgmvae model":
        raise InputError(f"{path} is not a model of this library.")
    version = description.get("format")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise InputError(
            f"{path} was written by a newer version ({description.get('library')}); "
            f"this is {__version__}: update the library."
        )
    if description.get("class") not in list(classes):
        raise InputError(f"{path} holds a {description.get('class')!r}, which is not known here.")


def _storable_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters that describe the model, not where and how it was trained."""
    parameters = model.get_params(deep=False).items()
    return {name: _plain(value) for name, value in parameters if name not in _NOT_STORED}


def _plain(value: Any) -> Any:
    """Return what JSON can hold for a value that may hold numpy's numbers, mappings and tuples."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise InputError(f"{value!r} among the parameters cannot be kept in a model file.")


def _read_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored parameters, with tuples where JSON knows lists only."""
    read = {name: value for name, value in parameters.items() if name not in _NOT_STORED}
    if read.get("settings") is not None:
        read["settings"] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in read["settings"].items()
        }
    return read


def _describe_rule(rule: ThresholdRule) -> dict[str, Any]:
    if isinstance(rule, GlobalThreshold):
        return {"rule": "global", "threshold": rule.threshold}
    return {"rule": "top-k", "k": rule.k} if isinstance(rule, TopK) else {"rule": "per-label"}


def _restore_shared(model: Any, tensors: dict[str, NDArray[Any]], description: Any) -> None:
    model.label_names_ = tuple(str(name) for name in description["label_names"])
    model.n_labels_ = len(model.label_names_)
    model.classes_ = np.tile([0, 1], (model.n_labels_, 1))
    model.n_features_in_ = int(description["n_features"])
    if description["feature_names"] is not None:
        model.feature_names_in_ = np.array(description["feature_names"], dtype=object)
    model.origin_ = _read_origin(description)
    scaler = FeatureScaler(description["scaling"])
    scaler.kind_ = description["scaling"]
    scaler.shift_, scaler.scale_, scaler.fill_ = (
        _vector(tensors, name, model.n_features_in_) for name in _SHARED_ARRAYS
    )
    model.scaler_ = scaler
    rule = description["threshold"]
    if rule["rule"] == "global":
        model.threshold_rule_ = GlobalThreshold(float(rule["threshold"]))
    elif rule["rule"] == "top-k":
        model.threshold_rule_ = TopK(int(rule["k"]))
    else:
        model.threshold_rule_ = LabelThresholds(_vector(tensors, "thresholds", model.n_labels_))


def _read_origin(description: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return where a model comes from; files of earlier versions do not say."""
    origin = description.get("origin")
    if origin is not None and not isinstance(origin, dict):
        raise ValueError("its origin is not a record")
    return origin


def _vector(tensors: Mapping[str, NDArray[Any]], name: str, length: int) -> NDArray[Any]:
    array = tensors[f"shared.{name}"]
    if array.shape != (length,):
        raise ValueError(f"its {name!r} does not have {length} values")
    return array
