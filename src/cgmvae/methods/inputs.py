"""What people hand to ``fit`` and ``predict``, turned into arrays, columns, label names and masks.

:class:`~cgmvae.methods.base.MultiLabelClassifier` uses it for X and Y.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import MultiLabelBinarizer

from cgmvae.data.columns import Columns, ColumnType, as_columns, names_of
from cgmvae.data.dataset import Features, Matrix, MultiLabelDataset, split_unknown
from cgmvae.errors import InputError, listed, one_line


class Targets(NamedTuple):
    """Labels as 0/1, the mask of the unknown ones, and the labels' names."""

    labels: Matrix
    unknown: Matrix | None
    names: tuple[str, ...]


class Rows(NamedTuple):
    """Rows that a method learns from or chooses thresholds on."""

    features: Features
    labels: Matrix
    unknown: Matrix | None = None
    weights: NDArray[np.float64] | None = None
    """Above 0, (n_rows,); None where all count alike."""
    groups: NDArray[Any] | None = None

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Return these rows, in this order."""
        return Rows(*(None if part is None else part[indices] for part in self))

    def row_weights(self) -> NDArray[np.float64]:
        """Return the weight of each row, 1 where none were given, (n_rows,)."""
        return np.ones(self.labels.shape[0]) if self.weights is None else self.weights

    def that_know_a_label(self) -> Rows:
        """Return the rows that know a label; all of them where none does."""
        if self.unknown is None:
            return self
        n_unknown = np.asarray(self.unknown.sum(axis=1)).ravel()
        telling = np.flatnonzero(n_unknown < self.unknown.shape[1])
        return self.take(telling) if len(telling) else self


def as_table(X: Any) -> Columns | None:
    """Return the columns of a table that needs a preparation; None for arrays and plain numbers."""
    if isinstance(X, Columns | Mapping):
        return as_columns(X)
    types = getattr(X, "dtypes", ()) if hasattr(X, "columns") else ()
    return None if all(map(_is_number, types)) else as_columns(X)


def _is_number(type_: Any) -> bool:
    """Tell whether the type of a DataFrame's column is that of numbers or of true and false."""
    if hasattr(type_, "kind"):
        return type_.kind in "fiub"
    return str(type_) == "Boolean" or bool(getattr(type_, "is_numeric", bool)())


def matched(X: Any, kinds: Mapping[str, ColumnType]) -> Columns:
    """Return the columns of a table that a model was fitted with, in its order, by their names.

    Parameters
    ----------
    X : DataFrame, Columns, or mapping of name to sequence
        Columns that the model does not know are warned of.
    kinds : mapping of str to {"number", "category", "date", "text"}
        What the model's columns hold, by name.
    """
    if not (isinstance(X, Columns | Mapping) or hasattr(X, "columns")):
        raise InputError(
            f"The model was fitted on columns with names ({listed(list(kinds))}); give a table "
            "that has them, such as a DataFrame."
        )
    found = names_of(X)
    there = set(found)
    if missing := [name for name in kinds if name not in there]:
        raise InputError(
            f"The data lacks {len(missing):,} of the model's {len(kinds):,} columns: "
            f"{listed(missing)}; add them under these names."
        )
    if extra := [name for name in found if name not in kinds]:
        text = f"Columns that the model does not know are ignored: {listed(extra)}."
        warnings.warn(text, stacklevel=2)
    return as_columns(X, kinds, only=list(kinds))


def as_numbers(
    X: Any, kinds: Mapping[str, ColumnType] | None, n_features: int
) -> NDArray[np.floating]:
    """Return the columns of a table for a model of numbers, (n_samples, n_features).

    Parameters
    ----------
    X : Columns, or mapping of name to sequence
        All must be numbers.
    kinds : mapping of str to {"number"}, optional
        The names of the model's columns; without them the columns are taken as they come.
    n_features : int
        How many columns the model takes.
    """
    table = as_columns(X) if kinds is None else matched(X, kinds)
    numbers = table.as_matrix()
    if numbers is None:
        name, kind = next(pair for pair in table.by_name().items() if pair[1] != "number")
        raise InputError(
            f"The column {name!r} is of the kind {kind}, and the model takes numbers; give it what "
            "it was fitted with."
        )
    if numbers.shape[1] != n_features:
        raise InputError(
            f"The table has {numbers.shape[1]:,} columns, and the model takes {n_features:,}."
        )
    return numbers


def as_targets(Y: Any, names: Sequence[str] | None = None) -> Targets:
    """Read labels in any of the accepted forms.

    Parameters
    ----------
    Y : array, CSR array, DataFrame, MultiLabelDataset or sequence of label sets
        0, 1 or NaN for unknown, (n_samples, n_labels). A DataFrame's columns name the labels; label
        sets (``[{"owl"}, {"owl", "hawk"}]``) are spread over sorted columns.
    names : sequence of str, optional
        Names that are known already: label sets are spread over these columns, and columns of
        other names, or in another order, are refused.

    Examples
    --------
    >>> as_targets([["owl"], ["hawk", "owl"]]).names
    ('hawk', 'owl')
    """
    if isinstance(Y, MultiLabelDataset):
        return Targets(Y.Y, Y.unknown, _agreed(Y.label_names, names))
    if hasattr(Y, "to_numpy") and not hasattr(Y, "columns"):
        Y = Y.to_numpy()  # a series of label sets
    if _is_label_sets(Y):
        return _from_label_sets(Y, names)
    columns = getattr(Y, "columns", None)
    values = Y if sp.issparse(Y) else _as_numbers(Y)
    if values.ndim == 1:
        raise InputError(
            "Y must be a table with one column a label, (n_samples, n_labels); "
            "for a single label use Y.reshape(-1, 1)."
        )
    labels, unknown = split_unknown(values)
    if columns is not None:
        names = _agreed([str(column) for column in columns], names)
    elif names is None:
        names = [f"label_{i}" for i in range(labels.shape[1])]
    if len(names) != labels.shape[1] or len(set(names)) != len(names):
        raise InputError(
            f"Y has {labels.shape[1]} columns for {len(set(names))} different label names; "
            "every column needs a name of its own."
        )
    return Targets(labels, unknown, tuple(names))


def targets_of_rows(
    features: Matrix, Y: Any, names: Sequence[str] | None = None, *, given_as: str = "Y"
) -> Targets:
    """Read the labels of these rows as :func:`as_targets` does; raise where they are not as many.

    ``given_as`` is the name that people know the labels by.
    """
    targets = as_targets(Y, names)
    if targets.labels.shape[0] != features.shape[0]:
        raise InputError(
            f"X has {features.shape[0]:,} rows and {given_as} {targets.labels.shape[0]:,}; "
            "they must describe the same rows."
        )
    return targets


def _agreed(names: Sequence[str], expected: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of label columns, once they are seen to be those that are expected."""
    if expected is not None and tuple(names) != tuple(expected):
        raise InputError(
            f"These are not the model's labels: {_first_difference(names, expected)}; give the "
            "label columns that it was fitted with, in the same order."
        )
    return tuple(names)


def _first_difference(names: Sequence[str], expected: Sequence[str]) -> str:
    if len(names) != len(expected):
        return f"there are {len(names)} instead of {len(expected)}"
    pairs = zip(names, expected, strict=True)
    found, wanted = next((a, b) for a, b in pairs if a != b)
    return f"{found!r} is where {wanted!r} should be"


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
    for number, row in enumerate(Y):
        # A text would be taken for the set of its letters.
        if not isinstance(row, set | frozenset | list | tuple):
            raise InputError(
                f"Row {number} of Y is {one_line(repr(row))}, which is no set of label names; "
                "give a set or a list for every row."
            )
    sets = [{str(label) for label in row} for row in Y]
    found = sorted(set().union(*sets))
    classes = found if names is None else list(names)
    if extra := sorted(set(found) - set(classes)):
        raise InputError(f"The label {extra[0]!r} was not there when the model was fitted.")
    if not classes:
        raise InputError(
            "No row has a label; there is nothing to learn from label sets like these."
        )
    binarizer = MultiLabelBinarizer(classes=classes, sparse_output=True)
    labels, _ = split_unknown(sp.csr_array(binarizer.fit_transform(sets)))
    return Targets(labels, None, tuple(classes))


def _as_numbers(Y: Any) -> NDArray[Any]:
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
            "Y must be a table of 0, 1 or NaN for unknown labels, or a list of sets of label "
            "names; this is neither."
        ) from error
