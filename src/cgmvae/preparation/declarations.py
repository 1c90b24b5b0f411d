"""Values from a model file, held against what a class declares: names, types and named choices.

:mod:`cgmvae.methods.persistence` reads parameters so, and the neural methods their networks' sizes.
JSON knows neither tuples nor numpy's numbers; :func:`plain` and :func:`as_declared` go to it and
come back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from cgmvae.errors import InputError, one_line


def plain(value: Any) -> Any:
    """Return what JSON can hold for a value that may hold numpy's numbers, mappings and tuples."""
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
    raise InputError(f"{value!r} among the parameters cannot be kept in a model file.")


def as_declared(record: type, values: Any) -> dict[str, Any]:
    """Return the values that a file gives for fields of a dataclass; raise where one does not fit.

    Lists inside a value become tuples, and so does a value that is declared as one.

    Parameters
    ----------
    record : type
        The dataclass.
    values : mapping
        Values by name, as JSON holds them; fields may be missing.

    Examples
    --------
    >>> from cgmvae.model.network import NetworkConfig
    >>> as_declared(NetworkConfig, {"latent_dim": 8, "label_hidden": [16, 4]})
    {'latent_dim': 8, 'label_hidden': (16, 4)}
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"its {record.__name__} is not a record")
    hints = _hints(record)
    for name, value in values.items():
        if name not in hints:
            raise ValueError(f"{record.__name__} has no parameter {one_line(name)!r}")
        if not _fits(value, hints[name]):
            raise ValueError(f"its parameter {name!r} cannot be {one_line(repr(value))}")
    return {name: _with_tuples(value, hints[name]) for name, value in values.items()}


@cache
def _hints(record: type) -> dict[str, Any]:
    """Return the types of the fields that a dataclass is made from."""
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in dataclasses.fields(record) if field.init}


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value of JSON can stand for what is declared."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin in (tuple, Sequence):
        return isinstance(value, list | tuple) and all(_fits(each, arguments[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(v, arguments[1]) for v in value.values())
    return _is_of(value, hint)


def _is_of(value: Any, hint: Any) -> bool:
    """Return whether a value is of a plain type; whole numbers may stand for any number."""
    number = isinstance(value, int | float)
    if hint is bool:
        return number and value in (0, 1)
    if hint is int:
        return number and float(value).is_integer()
    if hint is float:
        return number
    return isinstance(value, hint) if hint in (str, NoneType) else hint is Any


def _with_tuples(value: Any, hint: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _inner_tuples(each) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    inner = [_inner_tuples(each) for each in value]
    as_tuple = any(get_origin(each) is tuple for each in (hint, *get_args(hint)))
    return tuple(inner) if as_tuple else inner


def _inner_tuples(value: Any) -> Any:
    """Return a value with all its lists as tuples."""
    if isinstance(value, Mapping):
        return {name: _inner_tuples(each) for name, each in value.items()}
    return tuple(map(_inner_tuples, value)) if isinstance(value, list) else value
