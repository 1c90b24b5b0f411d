"""Whether a value fits the type that a dataclass declares for its field.

Parameters of estimators, fields of configs, settings on the command line and what a model file
claims are checked here, and nowhere else. An error message says what the value is and what it must
be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from cgmvae.errors import InputError, one_line

#: Whole numbers that may be 0, and parameters that are checked where they are used.
_FROM_ZERO = {"covariance_rank", "sampled_labels", "max_parents", "n_restarts"}
_FROM_ZERO |= {
    "feature_layers",
    "label_layers",
    "decoder_layers",
    "encoder_frozen_epochs",
    "frozen_epochs",
}
_CHECKED_ELSEWHERE = {"n_jobs", "device", "validation_fraction"}


@cache
def declared_types(record: type) -> dict[str, Any]:
    """Return the types of the fields that ``__init__`` of a dataclass takes, by name."""
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record) if field.init}


def check_declared(record: type, values: Mapping[str, Any]) -> None:
    """Raise if a value does not fit the type that a dataclass declares for its field.

    Whole numbers are at least 1, other numbers at least 0, and a probability of dropping is below
    1. This holds for estimators and for their settings, in Python and on the command line.

    Parameters
    ----------
    record : type
        The dataclass; a field of type ``Literal`` declares its choices.
    values : mapping of str to anything
        Values by field name; names that are not fields are ignored.
    """
    for name, hint in declared_types(record).items():
        if name in values and (wanted := requirement(name, values[name], hint)):
            raise InputError(f"{name} is {values[name]!r}; {wanted}.", parameter=name)


def requirement(name: str, value: Any, hint: Any) -> str | None:
    """Return what a value of a declared type must be; None if it is that.

    Examples
    --------
    >>> requirement("epochs", 0, int | None)
    'it must be a whole number of at least 1'
    """
    if name in _CHECKED_ELSEWHERE or (value is None and NoneType in get_args(hint)):
        return None
    if get_origin(hint) in (Union, UnionType):  # which of the two depends on what is in it
        found = [requirement(name, value, each) for each in get_args(hint) if each is not NoneType]
        return None if None in found else ", or ".join(filter(None, found))
    if get_origin(hint) is Literal:
        return None if fits(value, hint) else f"choose one of {', '.join(get_args(hint))}"
    if get_origin(hint) is tuple:
        wanted = "whole numbers of at least 1, such as (256, 128)"
        is_right = fits(value, hint) and all(1 <= size < 2**31 for size in value)
    elif hint is int:
        least = 0 if name in _FROM_ZERO else 1
        wanted = f"a whole number of at least {least}"
        is_right = fits(value, hint) and least <= value < 2**31
    elif hint is float:
        bound = 1 if "dropout" in name else math.inf
        wanted = "at least 0 and below 1" if bound == 1 else "a number of at least 0"
        is_right = fits(value, hint) and 0 <= value < bound
    elif hint in (bool, str):
        wanted, is_right = "true or false" if hint is bool else "a name", fits(value, hint)
    else:
        return None
    return None if is_right else f"it must be {wanted}"


def as_declared(record: type, values: Any) -> dict[str, Any]:
    """Return JSON values as fields of a dataclass; raise if one does not fit its declared type.

    Lists inside a value become tuples, as does a value that is declared as a tuple. Fields may be
    missing.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"its {record.__name__} is not a JSON object")
    hints = declared_types(record)
    for name, value in values.items():
        if name not in hints:
            raise ValueError(f"{record.__name__} has no parameter {one_line(name)!r}")
        if not fits(value, hints[name]):
            raise ValueError(f"its parameter {name!r} cannot be {one_line(repr(value))}")
    return {name: _as_tuples(value, hints[name]) for name, value in values.items()}


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value has a declared type, whatever its range.

    A list may stand for a tuple, as in JSON, and a whole number for any number. A dataclass is a
    mapping here, whose fields are checked where it is made.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return isinstance(value, str | bool | int | None) and value in arguments
    if origin in (Union, UnionType):
        return any(fits(value, each) for each in arguments)
    if origin in (tuple, Sequence):
        return isinstance(value, list | tuple) and all(fits(each, arguments[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(fits(v, arguments[1]) for v in value.values())
    if is_typeddict(hint):
        named = get_type_hints(hint).items()
        return isinstance(value, Mapping) and all(
            name in value and fits(value[name], each) for name, each in named
        )
    if isinstance(hint, type) and is_dataclass(hint):
        return isinstance(value, Mapping)
    is_truth = isinstance(value, bool | np.bool_)
    if hint is bool:
        return is_truth
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not is_truth
    return isinstance(value, hint) if hint in (str, NoneType) else hint is Any


def _as_tuples(value: Any, hint: Any = tuple[Any, ...]) -> Any:
    """Return a value whose lists are tuples; the outermost only if the type is a tuple."""
    if isinstance(value, Mapping):
        return {name: _as_tuples(each) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    is_tuple = any(get_origin(each) is tuple for each in (hint, *get_args(hint)))
    return (tuple if is_tuple else list)(map(_as_tuples, value))
