"""Columns of dates: time as a number, the season and the hour, as far as each of them varies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.preparation.column import ColumnPreparation, has_notable_gaps, missing_name

Part = Literal["year", "season", "hour"]

_NAMES: dict[Part, tuple[str, ...]] = {
    "year": ("year",),
    "season": ("season, sine", "season, cosine"),
    "hour": ("hour, sine", "hour, cosine"),
}
_SECONDS_A_DAY = 86_400


@dataclass(frozen=True)
class DateColumn(ColumnPreparation):
    """Years with a fraction; sine and cosine of the time of the year and of the day.

    1 January, and midnight, have sine 0 and cosine 1. The year is there unless nothing varies
    but the hour, the season where there are dates of several months, the hour where times differ.
    """

    parts: tuple[Part, ...]
    """What is made of a date."""
    gaps: bool
    """Whether a feature says where the date is missing."""

    @classmethod
    def learn(cls, values: NDArray[Any]) -> Self:
        """Choose the parts that vary."""
        missing = np.isnat(values)
        dates = values[~missing]
        days, months = dates.astype("datetime64[D]"), dates.astype("datetime64[M]")
        varies: dict[Part, bool] = {
            "season": len(np.unique(months.astype(np.int64) % 12)) > 1,
            "hour": len(np.unique(dates - days)) > 1,
        }
        varies = {"year": len(np.unique(days)) > 1 or not any(varies.values()), **varies}
        return cls(tuple(p for p, keep in varies.items() if keep), has_notable_gaps(missing))

    def __post_init__(self) -> None:
        if len(set(self.parts)) < len(self.parts) or not self.parts:
            raise ValueError("a date has no parts, or the same twice")

    def feature_names(self, column: str) -> list[str]:
        """Return names such as ``day (year)`` and ``day (season, sine)``."""
        names = [f"{column} ({name})" for part in self.parts for name in _NAMES[part]]
        return [*names, missing_name(column)] if self.gaps else names

    def transform(self, column: str, values: NDArray[Any]) -> Matrix:
        """Return the parts of each date, NaN where it is missing."""
        found = [feature for part in self.parts for feature in _features(values, part)]
        if self.gaps:
            found.append(np.isnat(values))
        return np.column_stack(found).astype(np.float32)

    def describe(self) -> str:
        """Say which parts of the dates are used."""
        done = " and ".join(self.parts)
        return f"{done}, and where it is missing" if self.gaps else done

    def measured(self) -> int:
        """Return the number of all features but the one of the gaps."""
        return sum(len(_NAMES[part]) for part in self.parts)


def _features(dates: NDArray[Any], part: Part) -> list[NDArray[np.float64]]:
    """Return the features of one part, NaN where the date is missing."""
    missing = np.isnat(dates)
    dates = np.where(missing, np.datetime64(0, "s"), dates)
    years = dates.astype("datetime64[Y]")
    year_length = ((years + 1).astype("datetime64[s]") - years.astype("datetime64[s]")).astype(
        float
    )
    of_year = (dates - years).astype(float) / year_length
    if part == "year":
        found = [1970 + years.astype(np.int64) + of_year]
    else:
        of_day = (dates - dates.astype("datetime64[D]")).astype(float) / _SECONDS_A_DAY
        angle = 2 * np.pi * (of_year if part == "season" else of_day)
        found = [np.sin(angle), np.cos(angle)]
    return [np.where(missing, np.nan, feature) for feature in found]
