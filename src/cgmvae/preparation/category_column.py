"""Columns of categories: a feature of 0 and 1 for each that is not rare."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.columns import parse_numbers
from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError
from cgmvae.preparation.column import ColumnPreparation, missing_name

#: A category of fewer rows is rare: in tables of fewer than so many rows, and in larger ones.
LEAST_ROWS, MANY_ROWS, LEAST_OF_MANY = 2, 1000, 5


@dataclass(frozen=True)
class CategoryColumn(ColumnPreparation):
    """One feature a category; rare ones share a feature, and so do later ones that were not seen.

    Where no category was rare, one that was not seen has no feature.
    """

    categories: tuple[str, ...]
    """Those with a feature of their own, sorted."""
    others: bool
    """Whether rare ones have a feature together."""
    gaps: bool
    """Whether a feature says where the category is missing."""

    @classmethod
    def learn(cls, values: NDArray[Any]) -> Self:
        """Keep the categories that are not rare."""
        counts = Counter(values.tolist())
        n_missing = counts.pop(None, 0)
        least = LEAST_ROWS if len(values) < MANY_ROWS else LEAST_OF_MANY
        kept = sorted(category for category, count in counts.items() if count >= least)
        return cls(tuple(kept), len(kept) < len(counts), n_missing > 0)

    def __post_init__(self) -> None:
        if len(set(self.categories)) < len(self.categories):
            raise ValueError("a category is there twice")

    def feature_names(self, column: str) -> list[str]:
        """Return names such as ``habitat=wetland`` and ``habitat (other)``."""
        names = [f"{column}={category}" for category in self.categories]
        names += [f"{column} (other)"] if self.others else []
        return [*names, missing_name(column)] if self.gaps else names

    def transform(self, column: str, values: NDArray[Any]) -> Matrix:
        """Return a 1 for each row's category."""
        self._refuse_numbers(column, values)
        places: dict[str | None, int] = {name: i for i, name in enumerate(self.categories)}
        n_features = len(self.feature_names(column))
        nowhere = n_features
        other = len(self.categories) if self.others else nowhere
        places[None] = n_features - 1 if self.gaps else nowhere
        found = np.array([places.get(value, other) for value in values.tolist()], dtype=np.int64)
        rows = np.flatnonzero(found < nowhere)
        ones = np.ones(len(rows), dtype=np.float32)
        return sp.csr_array((ones, (rows, found[rows])), shape=(len(values), n_features))

    def _refuse_numbers(self, column: str, values: NDArray[Any]) -> None:
        """Refuse a column that has become one of numbers, all of which would be unseen."""
        given = {value for value in values.tolist() if value is not None}
        if not given or not self.categories or not given.isdisjoint(self.categories):
            return
        if any(parse_numbers([category]) is not None for category in self.categories):
            return
        if parse_numbers(list(given)) is not None:
            raise InputError(
                f"The column {column!r} holds numbers, such as {min(given)}, and the model knows "
                f"categories, such as {self.categories[0]!r}; give it what it was fitted with."
            )

    def describe(self) -> str:
        """Say how many categories have a feature."""
        done = f"0 or 1 for each of {len(self.categories):,} categories"
        done += ", and for rare ones together" if self.others else ""
        return done + (", and where it is missing" if self.gaps else "")
