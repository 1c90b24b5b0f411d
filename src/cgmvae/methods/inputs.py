"""Checks and conversions of what users pass: labels in any form, and whole numbers.

X is handled by :class:`~cgmvae.methods.base.MultiLabelClassifier` and :mod:`cgmvae.preparation`,
declared parameters by :mod:`cgmvae.declared`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Features, Matrix, MultiLabelDataset, split_unknown
from cgmvae.data.mapped import dense
from cgmvae.errors import InputError, listed, one_line, warn


class Targets(NamedTuple):
    """Labels as 0/1, the mask of unknown labels, and the label names."""

    labels: Matrix
    unknown: Matrix | None
    names: tuple[str, ...]


class LabelClasses(list[list[int]]):
    """0 and 1 for each label, as scikit-learn reads the classes of several labels.

    Its ``partial_dependence`` refuses rows that are arrays, ``cross_val_predict`` needs a shape.
    """

    def __init__(self, n_labels: int) -> None:
        super().__init__([0, 1] for _ in range(n_labels))
        self.shape = (n_labels, 2)


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


class Fit(NamedTuple):
    """What one estimator learns from."""

    train: Rows
    validation: Rows | None
    """None if each member of a network holds out a fold of the training rows."""
    seed: int
    """Of the folds and of the members."""

    def each(self, change: Callable[[Rows], Rows]) -> Fit:
        """Return the fit with its training and validation rows changed alike."""
        held = None if self.validation is None else change(self.validation)
        return self._replace(train=change(self.train), validation=held)


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


def as_known(known: Any, names: Sequence[str]) -> Any:
    """Return what is known of each row's labels as a table of all labels, NaN where it is not.

    Parameters
    ----------
    known : array, DataFrame, sequence of label sets or list of dicts
        Label sets name labels that are known to be present; the columns of a DataFrame, in any
        order, are labels that are known in some rows, and so are the keys of a dict. Anything else
        is returned as it is.
    names : sequence of str
        Labels of the model.

    Examples
    --------
    >>> as_known([["owl"], []], ["hawk", "owl"]).tolist()
    [[nan, 1.0], [nan, nan]]
    >>> as_known([{"owl": 0}, {}], ["hawk", "owl"]).tolist()
    [[nan, 0.0], [nan, nan]]
    """
    if hasattr(known, "to_numpy") and not hasattr(known, "columns"):
        known = known.to_numpy()  # a series of label sets
    if _is_label_sets(known):
        present = dense(_from_label_sets(known, names).labels).astype(bool)
        return np.where(present, 1.0, np.nan)
    if isinstance(known, list) and known and all(isinstance(row, dict) for row in known):
        columns = list(dict.fromkeys(name for row in known for name in row)) or [names[0]]
        known = np.array([[row.get(name) for name in columns] for row in known], dtype=object)
        given = as_targets(known.astype(np.float64), columns)
    elif isinstance(known, MultiLabelDataset) or not hasattr(known, "columns"):
        return known
    else:
        given = as_targets(known)
    place = {name: i for i, name in enumerate(names)}
    if extra := [name for name in given.names if name not in place]:
        raise InputError(f"The model has no label {extra[0]!r}, which is given as known.")
    found = np.full((given.labels.shape[0], len(names)), np.nan)
    values = dense(given.labels).astype(np.float64)
    if given.unknown is not None:
        values[dense(given.unknown)] = np.nan
    found[:, [place[name] for name in given.names]] = values
    return found


@contextmanager
def recorded_warnings() -> Iterator[list[str]]:
    """Collect the texts of the user warnings that the block causes; they are shown at its end."""
    texts: list[str] = []
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield texts
    finally:
        for each in caught:
            if issubclass(each.category, UserWarning):
                texts.append(str(each.message))
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


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
        warn(
            "No row has a positive label, so the model will hardly predict any; check which "
            "columns are labels.",
            category=LabelWarning,
        )
    only = np.flatnonzero((positive == known) & (known > 0) & (known < n_rows))
    if len(only):
        names = listed([targets.names[i] for i in only])
        warn(
            f"Labels that are positive wherever they are known will be predicted everywhere: "
            f"{names}; give rows in which they are known to be absent.",
            category=LabelWarning,
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
