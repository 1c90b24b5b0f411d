"""Checks and conversions of what users pass: labels in any form, and parameter values.

X is handled by :class:`~cgmvae.methods.base.MultiLabelClassifier` and :mod:`cgmvae.preparation`.
Parameters are checked when ``fit`` needs them, as scikit-learn requires; an error message says
what the value is and what it must be.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Features, Matrix, MultiLabelDataset, split_unknown
from cgmvae.errors import InputError, listed, one_line


class Targets(NamedTuple):
    """Labels as 0/1, the mask of unknown labels, and the label names."""

    labels: Matrix
    unknown: Matrix | None
    names: tuple[str, ...]


class Rows(NamedTuple):
    """Rows that a method trains on or learns thresholds on."""

    features: Features
    labels: Matrix
    unknown: Matrix | None = None
    weights: NDArray[np.float64] | None = None
    """Positive sample weights, (n_rows,); None if all rows count equally."""
    groups: NDArray[Any] | None = None
    numbers: NDArray[np.int64] | None = None
    """Positions in the X passed to ``fit``, (n_rows,); None if all rows are there in order."""

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Return the rows at these indices, in this order."""
        parts: list[Any] = [None if part is None else part[indices] for part in self]
        return Rows(*parts)

    def row_weights(self) -> NDArray[np.float64]:
        """Return the weight of each row, 1 if no weights were given, (n_rows,)."""
        return np.ones(self.labels.shape[0]) if self.weights is None else self.weights

    def labeled(self) -> NDArray[np.bool_]:
        """Return which rows have at least one known label, (n_rows,)."""
        n_rows, n_labels = self.labels.shape
        if self.unknown is None:
            return np.ones(n_rows, bool)
        return np.asarray(self.unknown.sum(axis=1)).ravel() < n_labels

    def with_known_labels(self) -> Rows:
        """Return the rows with at least one known label; all rows if there are none."""
        labeled = self.labeled()
        return self if labeled.all() or not labeled.any() else self.take(np.flatnonzero(labeled))


def as_targets(Y: Any, names: Sequence[str] | None = None) -> Targets:
    """Convert labels from any accepted form.

    Parameters
    ----------
    Y : array, CSR array, DataFrame, MultiLabelDataset or sequence of label sets
        0, 1 or unknown (NaN, or masked), (n_samples, n_labels). The columns of a DataFrame name the
        labels; label sets (``[{"owl"}, {"owl", "hawk"}]``) are binarized into sorted columns.
    names : sequence of str, optional
        Label names of a fitted model: label sets are binarized into these columns, and columns
        with other names, or in another order, are rejected.

    Examples
    --------
    >>> as_targets([["owl"], ["hawk", "owl"]]).names
    ('hawk', 'owl')
    """
    if isinstance(Y, MultiLabelDataset):
        return Targets(Y.Y, Y.unknown, _matching_names(Y.label_names, names))
    if isinstance(Y, np.ma.MaskedArray):
        Y = np.ma.filled(Y.astype(np.float64), np.nan)
    if hasattr(Y, "to_numpy") and not hasattr(Y, "columns"):
        Y = Y.to_numpy()  # a series of label sets
    if _is_label_sets(Y):
        return _from_label_sets(Y, names)
    columns = getattr(Y, "columns", None)
    values = Y if sp.issparse(Y) else _numeric_labels(Y)
    if values.ndim == 1:
        raise InputError(
            "Y must have one column per label, (n_samples, n_labels); "
            "for a single label use Y.reshape(-1, 1)."
        )
    labels, unknown = split_unknown(values)
    if labels.shape[1] == 0:
        raise InputError("Y has no columns; give at least one label.")
    if columns is not None:
        names = _matching_names([str(column) for column in columns], names)
    elif names is None:
        names = [f"label_{i}" for i in range(labels.shape[1])]
    if len(names) != labels.shape[1] or len(set(names)) != len(names):
        raise InputError(
            f"Y has {labels.shape[1]} columns for {len(set(names))} distinct label names; "
            "every column needs its own name."
        )
    return Targets(labels, unknown, tuple(names))


def targets_of_rows(
    features: Matrix, Y: Any, names: Sequence[str] | None = None, *, given_as: str = "Y"
) -> Targets:
    """Convert labels like :func:`as_targets`; raise if their number of rows is not that of X.

    ``given_as`` is the name of the labels in the error message.
    """
    targets = as_targets(Y, names)
    if targets.labels.shape[0] != features.shape[0]:
        raise InputError(
            f"X has {features.shape[0]:,} rows and {given_as} {targets.labels.shape[0]:,}; "
            "they must describe the same rows."
        )
    return targets


class UnlabeledRowsWarning(UserWarning):
    """Rows without labels are left out of training."""


class LabelWarning(UserWarning):
    """Some labels cannot be learned from the rows."""


def check_learnable(targets: Targets) -> None:
    """Raise if no label is known, and warn of labels that would be predicted nowhere or everywhere.

    A label that is known only where it is present, as in data of presences, says nothing about
    where it is absent.
    """
    n_rows, n_labels = targets.labels.shape
    positive = np.asarray(targets.labels.sum(axis=0, dtype=np.int64)).ravel()  # (n_labels,)
    known = np.full(n_labels, n_rows)
    if targets.unknown is not None:
        known -= np.asarray(targets.unknown.sum(axis=0, dtype=np.int64)).ravel()
    if not known.any():
        raise InputError("All labels of all rows are unknown; give rows whose labels are known.")
    if not positive.any():
        warnings.warn(
            "No row has a positive label, so the model will hardly predict any; check which "
            "columns are labels.",
            LabelWarning,
            stacklevel=4,
        )
    only = np.flatnonzero((positive == known) & (known > 0) & (known < n_rows))
    if len(only):
        names = listed([targets.names[i] for i in only])
        warnings.warn(
            f"Labels that are positive wherever they are known will be predicted everywhere: "
            f"{names}; give rows in which they are known to be absent.",
            LabelWarning,
            stacklevel=4,
        )


def _matching_names(names: Sequence[str], expected: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of label columns; raise if they are not the expected ones."""
    if expected is not None and tuple(names) != tuple(expected):
        raise InputError(
            f"These are not the model's labels: {_first_difference(names, expected)}; pass the "
            "label columns that it was fitted with, in the same order."
        )
    return tuple(names)


def _first_difference(names: Sequence[str], expected: Sequence[str]) -> str:
    if len(names) != len(expected):
        return f"there are {len(names)} instead of {len(expected)}"
    pairs = zip(names, expected, strict=True)
    found, wanted = next((a, b) for a, b in pairs if a != b)
    return f"found {found!r} instead of {wanted!r}"


def _is_label_sets(Y: Any) -> bool:
    if sp.issparse(Y) or hasattr(Y, "columns") or isinstance(Y, str):
        return False
    if not isinstance(Y, list | tuple | np.ndarray):
        return False
    rows = [row for row in Y if not isinstance(row, np.ndarray)]
    if (isinstance(Y, np.ndarray) and Y.dtype != object) or len(rows) < len(Y):
        return False
    if rows and all(isinstance(row, list | tuple) and len(row) == 0 for row in rows):
        return True
    return any(isinstance(row, set | frozenset) for row in rows) or any(
        isinstance(label, str) for row in rows if isinstance(row, list | tuple) for label in row
    )


def _from_label_sets(Y: Any, names: Sequence[str] | None) -> Targets:
    from sklearn.preprocessing import MultiLabelBinarizer  # slow to import, and seldom needed

    for index, row in enumerate(Y):
        # A string would be read as the set of its letters.
        if not isinstance(row, set | frozenset | list | tuple):
            raise InputError(
                f"Row {index} of Y is {one_line(repr(row))}, which is not a set of label names; "
                "pass a set or a list for every row."
            )
    sets = [{str(label) for label in row} for row in Y]
    found = sorted(set().union(*sets))
    classes = found if names is None else list(names)
    if extra := sorted(set(found) - set(classes)):
        raise InputError(f"The model was not fitted with the label {extra[0]!r}; remove it.")
    if not classes:
        raise InputError("All label sets are empty; pass at least one row with a label.")
    binarizer = MultiLabelBinarizer(classes=classes, sparse_output=True)
    labels, _ = split_unknown(sp.csr_array(binarizer.fit_transform(sets)))
    return Targets(labels, None, tuple(classes))


def _numeric_labels(Y: Any) -> NDArray[Any]:
    try:
        values = np.asarray(Y)
        if values.dtype.kind in "fiub":
            return values
        if hasattr(Y, "columns") and values.dtype == object:
            return Y.to_numpy(dtype=np.float64, na_value=np.nan)
        if values.dtype.kind == "c":
            raise TypeError("complex numbers")
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            "Y must be a table of 0, 1 or NaN (unknown), or a list of sets of label names."
        ) from error


def check_whole(least: int, **values: Any) -> None:
    """Raise if a parameter is not a whole number of at least ``least``.

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
    """Raise if a dropout probability is not in [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise InputError(f"{name} is {value}; it must be at least 0 and below 1.")


#: Whole numbers that may be 0, and parameters that are checked where they are used.
_FROM_ZERO = {"covariance_rank", "sampled_labels", "sampled_features", "max_parents", "n_restarts"}
_FROM_ZERO |= {"feature_layers", "label_layers", "decoder_layers", "n_neighbors"}
_CHECKED_ELSEWHERE = {"n_jobs", "device", "validation_fraction"}


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
            raise InputError(f"{name} is {values[name]!r}; {wanted}.")


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
    is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return None if value in choices else f"choose one of {', '.join(choices)}"
    if get_origin(hint) is tuple:
        sizes = value if isinstance(value, list | tuple) else (None,)
        wanted = "whole numbers of at least 1, such as (256, 128)"
        fits = all(isinstance(size, Integral) and 1 <= int(size) < 2**31 for size in sizes)
    elif hint is bool:
        wanted, fits = "true or false", isinstance(value, bool | np.bool_)
    elif hint is int:
        least = 0 if name in _FROM_ZERO else 1
        wanted = f"a whole number of at least {least}"
        fits = is_number and isinstance(value, Integral) and least <= int(value) < 2**31
    elif hint is float and "dropout" in name:
        wanted, fits = "at least 0 and below 1", is_number and 0 <= value < 1
    elif hint is float:
        wanted, fits = "a number of at least 0", is_number and 0 <= value < math.inf
    elif hint is str:
        wanted, fits = "a name", isinstance(value, str)
    else:
        return None
    return None if fits else f"it must be {wanted}"


@cache
def declared_types(record: type) -> dict[str, Any]:
    """Return the types of the fields that ``__init__`` of a dataclass takes, by name."""
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record) if field.init}
