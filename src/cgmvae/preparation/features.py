"""All columns of a table as one matrix of features, each column by its own preparation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.columns import Columns, ColumnType
from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.preparation.category_column import CategoryColumn
from cgmvae.preparation.column import ColumnPreparation
from cgmvae.preparation.date_column import DateColumn
from cgmvae.preparation.declarations import as_declared
from cgmvae.preparation.number_column import NumberColumn
from cgmvae.preparation.text_column import TextColumn

#: Features beyond which the matrix is sparse, though no column is text.
WIDE = 256

_PREPARATIONS: dict[ColumnType, type[ColumnPreparation]] = {
    "number": NumberColumn,
    "category": CategoryColumn,
    "date": DateColumn,
    "text": TextColumn,
}


class ColumnSummary(NamedTuple):
    """What is made of one column."""

    column: str
    kind: ColumnType
    done: str
    n_features: int


class FeaturePreparation:
    """Columns of numbers, categories, dates and text as one matrix; learnt from training rows.

    Parameters
    ----------
    kinds : mapping of str to {"number", "category", "date", "text"}
        What the columns hold, by name, in their order.

    Attributes
    ----------
    columns_ : list of ColumnPreparation
        What is done to each column.
    feature_names_ : list of str
        Names of the features, such as ``habitat=wetland``, ``date (year)`` and ``notes: owl``.
    sparse_ : bool
        Whether the matrix is a CSR array: with text, or more than :data:`WIDE` features.
    measured_ : array of bool, (n_features,)
        Which features are measurements of any size; the others lie between 0 and 1.

    Examples
    --------
    >>> from cgmvae.data.columns import as_columns
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
        """Learn from training rows what to do to each column."""
        return self._with(
            [
                _PREPARATIONS[kind].learn(values)
                for kind, values in zip(columns.kinds, self._values(columns), strict=True)
            ]
        )

    def _with(self, columns: list[ColumnPreparation]) -> FeaturePreparation:
        self.columns_ = columns
        names = [
            column.feature_names(name) for name, column in zip(self.kinds, columns, strict=True)
        ]
        if not any(names):
            raise InputError(
                "No features can be made of the columns: there are no words in them; give others."
            )
        self.feature_names_ = _distinct([name for made in names for name in made])
        self.measured_ = np.concatenate(
            [
                np.arange(len(made)) < column.measured()
                for made, column in zip(names, columns, strict=True)
            ]
        )
        self.sparse_ = "text" in self.kinds.values() or len(self.feature_names_) > WIDE
        return self

    def transform(self, columns: Columns) -> Matrix:
        """Return the features of rows, (n_rows, n_features), in float32; NaN where missing."""
        parts = [
            column.transform(name, values)
            for name, column, values in zip(
                self.kinds, self.columns_, self._values(columns), strict=True
            )
        ]
        if self.sparse_:
            return sp.csr_array(sp.hstack([sp.csr_array(part) for part in parts], format="csr"))
        return np.hstack([dense(part) for part in parts])

    def describe(self) -> list[ColumnSummary]:
        """Say what is made of each column."""
        return [
            ColumnSummary(name, kind, column.describe(), len(column.feature_names(name)))
            for (name, kind), column in zip(self.kinds.items(), self.columns_, strict=True)
        ]

    def state(self) -> list[dict[str, Any]]:
        """Return what was learnt, as JSON can hold it."""
        return [
            {"name": name, "kind": kind, "learnt": dataclasses.asdict(column)}
            for (name, kind), column in zip(self.kinds.items(), self.columns_, strict=True)
        ]

    @classmethod
    def restore(cls, state: Any) -> FeaturePreparation:
        """Return what :meth:`state` described; what does not add up raises an error."""
        columns = []
        for record in state:
            kind = _PREPARATIONS[record["kind"]]
            columns.append(kind(**as_declared(kind, record["learnt"])))
        kinds = {str(record["name"]): record["kind"] for record in state}
        if len(kinds) < len(columns):
            raise ValueError("two columns have the same name")
        return cls(kinds)._with(columns)

    def _values(self, columns: Columns) -> tuple[NDArray[Any], ...]:
        if columns.by_name() != self.kinds or columns.names != tuple(self.kinds):
            raise InputError(
                "These are not the columns that the model was fitted with; give those, in their "
                "order."
            )
        return columns.values


def _distinct(names: list[str]) -> list[str]:
    """Return names with a number behind those that were there before."""
    found: dict[str, None] = {}
    for name in names:
        own, number = name, 1
        while own in found:
            number += 1
            own = f"{name} ({number})"
        found[own] = None
    return list(found)
