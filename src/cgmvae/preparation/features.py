"""All columns of a table as one feature matrix, each column through its own encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.columns import Columns, ColumnType, as_columns, check_unique, names_of
from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense
from cgmvae.errors import InputError, listed, warn
from cgmvae.preparation.encoders import ENCODERS, CategoryColumn, ColumnEncoder

#: With more features than this the matrix is sparse, even without text columns.
WIDE = 256


class ColumnSummary(NamedTuple):
    """How one column is encoded."""

    column: str
    kind: ColumnType
    done: str
    n_features: int


class FeaturePreparation:
    """Columns of numbers, categories, dates and text as one matrix; fitted on training rows.

    Parameters
    ----------
    kinds : mapping of str to {"number", "category", "date", "text"}
        Type of each column by name, in order.

    Attributes
    ----------
    encoders_ : list of ColumnEncoder
        The encoder of each column.
    feature_names_ : list of str
        Names of the features, such as ``habitat=wetland``, ``date (year)`` and ``notes: owl``.
    sparse_ : bool
        Whether the matrix is a CSR array: with text columns, or more than :data:`WIDE` features,
        unless most features are measurements, which are hardly ever 0 once they are scaled.
    measured_ : array of bool, (n_features,)
        Which features are measurements on an arbitrary scale; all others are between 0 and 1.

    Examples
    --------
    >>> sites = as_columns({"depth": [0.5, 2.0, 1.0], "habitat": ["wetland", "forest", "wetland"]})
    >>> preparation = FeaturePreparation(sites.by_name()).fit(sites)
    >>> preparation.feature_names_
    ['depth', 'habitat=wetland', 'habitat (other)']
    >>> preparation.transform(sites).tolist()
    [[0.5, 1.0, 0.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """

    def __init__(self, kinds: Mapping[str, ColumnType]) -> None:
        self.kinds = dict(kinds)

    def fit(self, columns: Columns) -> FeaturePreparation:
        """Learn the encoder of each column from training rows."""
        pairs = zip(columns.kinds, self._values(columns), strict=True)
        return self.with_encoders([ENCODERS[kind].learn(values) for kind, values in pairs])

    def with_encoders(self, encoders: Sequence[ColumnEncoder]) -> FeaturePreparation:
        """Set fitted encoders, one per column; return the preparation itself."""
        self.encoders_ = list(encoders)
        columns = list(zip(self.kinds, self.encoders_, strict=True))
        names = [encoder.feature_names(name) for name, encoder in columns]
        if not any(names):
            raise InputError(
                "The text columns contain no words, so there are no features; pass other columns."
            )
        self.feature_names_ = _distinct([name for own in names for name in own])
        pairs = zip(names, self.encoders_, strict=True)
        self.measured_ = np.concatenate(
            [np.arange(len(own)) < encoder.measured() for own, encoder in pairs]
        )
        wide = "text" in self.kinds.values() or len(self.feature_names_) > WIDE
        self.sparse_ = wide and 2 * int(self.measured_.sum()) <= len(self.measured_)
        return self

    def transform(self, columns: Columns) -> Matrix:
        """Return the features of rows, (n_rows, n_features); NaN if missing."""
        triples = zip(self.kinds, self.encoders_, self._values(columns), strict=True)
        parts = [encoder.transform(name, values) for name, encoder, values in triples]
        if self.sparse_:
            return sp.csr_array(sp.hstack([sp.csr_array(part) for part in parts], format="csr"))
        return np.hstack([dense(part) for part in parts])

    def unseen(self, columns: Columns) -> dict[str, Counter[str]]:
        """Return the categories that no training row had, and their number of rows, by column."""
        found = {
            name: encoder.unseen(values)
            for name, encoder, values in zip(
                self.kinds, self.encoders_, self._values(columns), strict=True
            )
            if isinstance(encoder, CategoryColumn)
        }
        return {name: counts for name, counts in found.items() if counts}

    def describe(self) -> list[ColumnSummary]:
        """Describe how each column is encoded."""
        return [
            ColumnSummary(name, kind, encoder.describe(), len(encoder.feature_names(name)))
            for (name, kind), encoder in zip(self.kinds.items(), self.encoders_, strict=True)
        ]

    def _values(self, columns: Columns) -> tuple[NDArray[Any], ...]:
        if columns.by_name() != self.kinds or columns.names != tuple(self.kinds):
            raise InputError(
                "These are not the columns that the model was fitted with; pass the same columns "
                "in the same order."
            )
        return columns.values


def _distinct(names: list[str]) -> list[str]:
    """Return the names with a number appended to duplicates."""
    found: dict[str, None] = {}
    for name in names:
        own, number = name, 1
        while own in found:
            number += 1
            own = f"{name} ({number})"
        found[own] = None
    return list(found)


#: The column that a list of texts becomes.
TEXT_COLUMN = "text"


def table_columns(X: Any) -> Columns | None:
    """Return the columns of a table that needs encoding; None for arrays and numeric tables.

    A list or series of texts is a table with one column of text.

    Examples
    --------
    >>> table_columns(["an owl calls", "a hawk"]).by_name()
    {'text': 'text'}
    """
    if (texts := _texts(X)) is not None:
        return as_columns({TEXT_COLUMN: texts}, {TEXT_COLUMN: "text"})
    if isinstance(X, Columns | Mapping):
        return as_columns(X)
    if not hasattr(X, "columns"):
        return None
    check_unique(names_of(X))
    types = getattr(X, "dtypes", ())
    return None if all(map(_is_numeric, types)) else as_columns(X)


def _texts(X: Any) -> NDArray[Any] | None:
    """Return the texts that a list, a series or an array consists of; None if it does not."""
    if hasattr(X, "columns") or isinstance(X, str | Columns | Mapping):
        return None
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    if not isinstance(X, list | tuple | np.ndarray) or getattr(X, "ndim", 1) != 1:
        return None
    if not any(isinstance(each, str) for each in X):
        return None
    missing = [each is None or each != each for each in X]
    if not all(gap or isinstance(each, str) for each, gap in zip(X, missing, strict=True)):
        return None
    texts = [None if gap else each for each, gap in zip(X, missing, strict=True)]
    return np.array(texts, dtype=object)


def _is_numeric(dtype: Any) -> bool:
    """Return whether the dtype of a pandas or polars column is numeric or Boolean."""
    if hasattr(dtype, "kind"):
        return dtype.kind in "fiub"
    return str(dtype) == "Boolean" or bool(getattr(dtype, "is_numeric", bool)())


def match_columns(X: Any, kinds: Mapping[str, ColumnType]) -> Columns:
    """Return the columns of a table that a model was fitted with, by name, in the model's order.

    A warning names the columns that the model does not know.
    """
    if (texts := _texts(X)) is not None:
        X = {TEXT_COLUMN: texts}
    if not (isinstance(X, Columns | Mapping) or hasattr(X, "columns")):
        raise InputError(
            f"The model was fitted on columns with names ({listed(list(kinds))}); pass a table "
            "that has them, such as a DataFrame."
        )
    found = names_of(X)
    present = set(found)
    if missing := [name for name in kinds if name not in present]:
        raise InputError(
            f"The data lacks {len(missing):,} of the model's {len(kinds):,} columns: "
            f"{listed(missing)}; add them under these names."
        )
    if extra := [name for name in found if name not in kinds]:
        text = f"Columns that the model does not know are ignored: {listed(extra)}."
        warn(text)
    return as_columns(X, kinds, only=list(kinds))


def numeric_matrix(
    X: Any, kinds: Mapping[str, ColumnType] | None, n_features: int
) -> NDArray[np.floating]:
    """Return the columns of a table for a numeric model, (n_samples, n_features).

    ``kinds`` are the model's columns by name; None to use the columns in the order given.
    """
    table = as_columns(X) if kinds is None else match_columns(X, kinds)
    numbers = table.as_matrix()
    if numbers is None:
        name, kind = next(pair for pair in table.by_name().items() if pair[1] != "number")
        raise InputError(
            f"The column {name!r} has the type {kind}, but the model was fitted on numbers; pass "
            "numbers in this column."
        )
    if numbers.shape[1] != n_features:
        raise InputError(
            f"The table has {numbers.shape[1]:,} columns, but the model was fitted with "
            f"{n_features:,}; pass the same columns."
        )
    return numbers
