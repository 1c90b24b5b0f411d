"""Columns of numbers: kept; where a notable share is missing, a second feature says where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError
from cgmvae.preparation.column import ColumnPreparation, has_notable_gaps, missing_name


@dataclass(frozen=True)
class NumberColumn(ColumnPreparation):
    """Numbers as they are; the scaler of the model fills in what is missing."""

    gaps: bool
    """Whether a feature says where values are missing."""

    @classmethod
    def learn(cls, values: NDArray[Any]) -> Self:
        """See whether a notable share of the values is missing."""
        return cls(has_notable_gaps(np.isnan(values)))

    def feature_names(self, column: str) -> list[str]:
        """Return the column's name, and that of its gaps."""
        return [column, *([missing_name(column)] if self.gaps else [])]

    def transform(self, column: str, values: NDArray[Any]) -> Matrix:
        """Return the numbers, NaN where missing, and where that is."""
        with np.errstate(over="ignore"):
            numbers = values.astype(np.float32)
        if np.isinf(numbers).any():
            raise InputError(f"The column {column!r} holds a number beyond float32; rescale it.")
        return np.column_stack([numbers, *([np.isnan(numbers)] if self.gaps else [])])

    def describe(self) -> str:
        """Say that the numbers are kept."""
        return "kept, and where it is missing" if self.gaps else "kept"

    def measured(self) -> int:
        """Return 1, for the numbers themselves."""
        return 1
