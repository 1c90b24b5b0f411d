"""Settings given as ``NAME=VALUE``, checked against the fields that take them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cgmvae.errors import InputError


def parse_settings(given: Sequence[str], estimator: type) -> dict[str, Any]:
    """Read ``NAME=VALUE``, where VALUE is JSON or a bare word, as parameters of an estimator.

    C-GMVAE's settings are collected in its parameter ``settings``; the other methods have a
    parameter for each.
    """
    if not given:
        return {}
    hints = _hints(estimator)
    read = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"The setting {text!r} has no value; write NAME=VALUE.")
        if name not in hints:
            raise InputError(f"There is no setting {name!r}; there are {', '.join(sorted(hints))}.")
        read[name] = _as_setting(name, value, hints[name])
    return {"settings": read} if _has_presets(estimator) else read


def check_space(space: Mapping[str, Sequence[Any]], estimator: type) -> None:
    """Refuse values of a search that the estimator's parameters cannot have."""
    hints = get_type_hints(estimator)
    for name, values in space.items():
        if name not in {field.name for field in fields(estimator) if field.init}:
            raise InputError(
                f"The space has {name!r}, which the method does not have; leave it out."
            )
        for value in values:
            _as_setting(name, json.dumps(value), hints[name])


def _has_presets(estimator: type) -> bool:
    return any(field.name == "preset" for field in fields(estimator))


def _hints(estimator: type) -> dict[str, Any]:
    """Return the types of what can be set, by name."""
    from cgmvae.methods.base import MultiLabelClassifier
    from cgmvae.methods.packed import PackedClassifier
    from cgmvae.model.network import NetworkConfig
    from cgmvae.model.presets import Preset
    from cgmvae.training.plan import TrainingConfig

    if _has_presets(estimator):
        hints: dict[str, Any] = {}
        for config in (Preset, TrainingConfig, NetworkConfig):
            hints |= get_type_hints(config)
        return {name: hint for name, hint in hints.items() if name not in ("network", "training")}
    shared = {f.name for base in (MultiLabelClassifier, PackedClassifier) for f in fields(base)}
    own = {f.name for f in fields(estimator) if f.init} - shared - {"estimator", "training"}
    return {name: hint for name, hint in get_type_hints(estimator).items() if name in own}


def _as_setting(name: str, text: str, hint: Any) -> Any:
    """Return the value of a setting whose field has this type."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if value is None and NoneType in get_args(hint):
        return None
    kind = _kind(name, hint)
    if kind == "sizes":
        value = tuple(value) if isinstance(value, list) else (value,)
    wanted, fits = _KINDS[kind]
    if not fits(value):
        raise InputError(f"The setting {name} is {text}; it must be {wanted}.")
    return value


def _kind(name: str, hint: Any) -> str:
    if get_origin(hint) is tuple:
        return "sizes"
    if get_origin(hint) is Literal or hint is str:
        return "name"
    number = (get_args(hint) or (hint,))[0]  # the first of ``float | None``
    kind = "probability" if number is float and "dropout" in name else number.__name__
    return kind if kind in _KINDS else "other"


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value < 2**31


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


#: What a setting of each kind must be, in words and as a check.
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bool": ("true or false", lambda value: type(value) is bool),
    "int": ("a whole number of at least 1", _is_count),
    "float": ("a number of at least 0", _is_number),
    "probability": ("at least 0 and below 1", lambda value: _is_number(value) and value < 1),
    "name": ("a name", lambda value: isinstance(value, str)),
    "other": ("what the method takes, which checks it itself", lambda value: True),
    "sizes": ("whole numbers of at least 1, such as [256, 128]", lambda v: all(map(_is_count, v))),
}
