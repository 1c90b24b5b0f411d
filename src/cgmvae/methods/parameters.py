"""Checks of parameters that several methods have: counts, probabilities and named choices.

A parameter is checked when a fit needs it, as scikit-learn asks for it, and refused in one sentence
of one form: what it is, and what it must be.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from numbers import Integral
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cgmvae.errors import InputError


def check_whole(least: int, **values: Any) -> None:
    """Raise where a parameter is no whole number, or below the least that it may be.

    Examples
    --------
    >>> check_whole(1, epochs=0)
    Traceback (most recent call last):
        ...
    cgmvae.errors.InputError: epochs is 0; it must be a whole number of at least 1.
    """
    for name, value in values.items():
        if not isinstance(value, Integral) or int(value) < least:
            raise InputError(f"{name} is {value}; it must be a whole number of at least {least}.")


def check_dropout(**values: float) -> None:
    """Raise where a probability of dropping is below 0, or not below 1."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise InputError(f"{name} is {value}; it must be at least 0 and below 1.")


def check_choices(record: type, values: Mapping[str, Any]) -> None:
    """Raise where a value is none of those that a dataclass names for its field.

    Parameters
    ----------
    record : type
        The dataclass; fields that are declared as ``Literal`` name their values.
    values : mapping of str to anything
        By name; what the dataclass does not have is not looked at.
    """
    for name, choices in _named_choices(record).items():
        if name in values and values[name] not in choices:
            raise InputError(f"{name} is {values[name]!r}; choose one of {', '.join(choices)}.")


@cache
def _named_choices(record: type) -> dict[str, tuple[str, ...]]:
    hints = get_type_hints(record).items()
    return {name: get_args(hint) for name, hint in hints if get_origin(hint) is Literal}
