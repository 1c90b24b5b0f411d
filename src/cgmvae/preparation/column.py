"""What the preparations of all kinds of columns have in common.

A preparation is a frozen dataclass of what JSON can hold, and refuses values that do not add up,
for they may come from a file. It is learnt from training rows and applied to all;
:mod:`cgmvae.preparation.features` keeps one for each column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix

#: The share of missing values from which a column gets a feature that says where they are.
NOTABLE_SHARE = 0.05


@dataclass(frozen=True)
class ColumnPreparation(ABC):
    """How one column becomes features."""

    @classmethod
    @abstractmethod
    def learn(cls, values: NDArray[Any]) -> Self:
        """Choose what is done, from the values of training rows, (n_rows,)."""

    @abstractmethod
    def feature_names(self, column: str) -> list[str]:
        """Return the names of the features that are made of a column of this name."""

    @abstractmethod
    def transform(self, column: str, values: NDArray[Any]) -> Matrix:
        """Return the features of these values, (n_rows, n_features), in float32."""

    @abstractmethod
    def describe(self) -> str:
        """Say in a few words what is done."""

    def measured(self) -> int:
        """Return how many features, the first ones, are measurements of any size."""
        return 0


def has_notable_gaps(missing: NDArray[np.bool_]) -> bool:
    """Tell whether a notable share of values is missing, but not all."""
    return bool(NOTABLE_SHARE <= missing.mean() < 1)


def missing_name(column: str) -> str:
    """Return the name of the feature that says where a column's values are missing."""
    return f"{column} (missing)"
