"""One encoder per column type: numbers, categories, dates and text become numeric features.

An encoder is a frozen dataclass of JSON-serializable values, learned from training rows and applied
to all rows. It rejects inconsistent values, because they may come from a file.
:class:`~cgmvae.preparation.features.FeaturePreparation` holds one encoder per column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.columns import ColumnType, as_float64, parse_numbers
from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError

#: A column with at least this fraction of missing values gets a missing-value indicator.
NOTABLE_SHARE = 0.05

#: Categories of fewer rows are rare: the minimum in small tables, the size of a large table, and
#: the minimum there.
MIN_ROWS, MANY_ROWS, MIN_OF_MANY = 2, 1000, 5

#: Maximum vocabulary size; the most frequent words are kept.
MAX_WORDS = 20_000

#: With at least so many texts, a word must occur in two of them, or in three.
ENOUGH_TEXTS, MANY_TEXTS = 20, 5000

_SECONDS_PER_DAY = 86_400


def _without_accents(text: str) -> str:
    """Return a text in lower case without accents."""
    from sklearn.feature_extraction.text import strip_accents_unicode

    return strip_accents_unicode(text).lower()


#: How texts are split into words: two or more letters; accents and case are ignored.
_TOKENS: dict[str, Any] = {
    "token_pattern": r"[^\W\d_]{2,}",
    "preprocessor": _without_accents,
    "lowercase": False,
}

DatePart = Literal["year", "season", "hour"]

_DATE_FEATURES: dict[DatePart, tuple[str, ...]] = {
    "year": ("year",),
    "season": ("season, sine", "season, cosine"),
    "hour": ("hour, sine", "hour, cosine"),
}


@dataclass(frozen=True)
class ColumnEncoder(ABC):
    """How one column becomes features."""

    #: Whether the last feature is a missing-value indicator; no field of encoders without one.
    gaps = False

    @classmethod
    @abstractmethod
    def learn(cls, values: NDArray[Any]) -> Self:
        """Return an encoder learned from the values of training rows, (n_rows,)."""

    @abstractmethod
    def transform(self, column: str, values: NDArray[Any]) -> Matrix:
        """Return the features of these values, (n_rows, n_features); they are scaled afterwards."""

    @abstractmethod
    def _names(self, column: str) -> list[str]:
        """Return the feature names without the missing-value indicator."""

    @abstractmethod
    def _description(self) -> str:
        """Describe the encoding in a few words, without the missing-value indicator."""

    def feature_names(self, column: str) -> list[str]:
        """Return names such as ``habitat=wetland``, ``day (year)`` and ``notes: owl``."""
        return self._names(column) + ([f"{column} (missing)"] if self.gaps else [])

    def describe(self) -> str:
        """Describe the encoding in a few words."""
        return self._description() + (", and where it is missing" if self.gaps else "")

    def measured(self) -> int:
        """Return how many features, the first ones, are measurements on an arbitrary scale."""
        return 0


def _has_notable_gaps(missing: NDArray[np.bool_]) -> bool:
    return bool(NOTABLE_SHARE <= missing.mean() < 1)


@dataclass(frozen=True)
class NumberColumn(ColumnEncoder):
    """Numbers unchanged; the scaler of the model imputes missing values."""

    gaps: bool

    @classmethod
    def learn(cls, values: NDArray[Any]) -> Self:
        """Check whether a notable fraction of the values is missing."""
        return cls(_has_notable_gaps(np.isnan(values)))

    def _names(self, column: str) -> list[str]:
        return [column]

    def transform(self, column: str, values: NDArray[Any]) -> Matrix:
        """Return the numbers, NaN if missing, and the indicator."""
        numbers = as_float64(values, column)
        return np.column_stack([numbers, *([np.isnan(numbers)] if self.gaps else [])])

    def _description(self) -> str:
        return "kept"

    def measured(self) -> int:
        """Return 1, for the numbers themselves."""
        return 1


@dataclass(frozen=True)
class CategoryColumn(ColumnEncoder):
    """One-hot encoding; rare categories, and categories unseen in training, share one feature.

    If no category was rare, an unseen category has no feature.
    """

    categories: tuple[str, ...]
    """Categories with their own feature, sorted."""
    others: bool
    """Whether there is a shared feature for rare categories."""
    gaps: bool
    rare: tuple[str, ...] | None = None
    """The rare categories, sorted; None in model files that do not store them."""

    @classmethod
    def learn(cls, values: NDArray[Any]) -> Self:
        """Keep the categories that are not rare."""
        counts = Counter(values.tolist())
        n_missing = counts.pop(None, 0)
        least = MIN_ROWS if len(values) < MANY_ROWS else MIN_OF_MANY
        kept = sorted(category for category, count in counts.items() if count >= least)
        rare = tuple(sorted(counts.keys() - set(kept)))
        return cls(tuple(kept), len(rare) > 0, n_missing > 0, rare)

    def unseen(self, values: NDArray[Any]) -> Counter[str]:
        """Return how often each category that no training row had occurs."""
        if self.rare is None:
            return Counter()
        known = {None, *self.categories, *self.rare}
        return Counter(value for value in values.tolist() if value not in known)

    def __post_init__(self) -> None:
        if len(set(self.categories)) < len(self.categories):
            raise ValueError("a category is duplicated")

    def _names(self, column: str) -> list[str]:
        names = [f"{column}={category}" for category in self.categories]
        return names + ([f"{column} (other)"] if self.others else [])

    def transform(self, column: str, values: NDArray[Any]) -> Matrix:
        """Return a CSR array with a 1 for the category of each row."""
        seen = {value for value in values.tolist() if value is not None}
        if (
            seen
            and self.categories
            and seen.isdisjoint(self.categories)
            and parse_numbers(list(seen)) is not None
            and all(parse_numbers([category]) is None for category in self.categories)
        ):
            raise InputError(
                f"The column {column!r} contains numbers, such as {min(seen)}, but the model was "
                f"fitted with categories, such as {self.categories[0]!r}; pass the same categories."
            )
        n_features = len(self.feature_names(column))
        no_feature = n_features
        indices: dict[str | None, int] = {name: i for i, name in enumerate(self.categories)}
        indices[None] = n_features - 1 if self.gaps else no_feature
        other = len(self.categories) if self.others else no_feature
        found = np.array([indices.get(value, other) for value in values.tolist()], dtype=np.int64)
        rows = np.flatnonzero(found < no_feature)
        ones = np.ones(len(rows), dtype=np.float32)
        return sp.csr_array((ones, (rows, found[rows])), shape=(len(values), n_features))

    def _description(self) -> str:
        done = f"0 or 1 for each of {len(self.categories):,} categories"
        return done + (", and for rare ones together" if self.others else "")


@dataclass(frozen=True)
class DateColumn(ColumnEncoder):
    """The year with a fraction, and the sine and cosine of the time of year and of day.

    January 1, and midnight, have sine 0 and cosine 1. The season is used if dates fall into several
    months, the hour if the time of day varies. The year is used if dates fall into several years,
    or if days vary within a single month: where the season tells them apart, a single year would
    only push the rows of the next year far away from all that the model has seen.
    """

    parts: tuple[DatePart, ...]
    """The parts of a date that become features."""
    gaps: bool

    @classmethod
    def learn(cls, values: NDArray[Any]) -> Self:
        """Choose the parts that vary."""
        missing = np.isnat(values)
        dates = values[~missing]
        days, months = dates.astype("datetime64[D]"), dates.astype("datetime64[M]")
        varies: dict[DatePart, bool] = {
            "season": len(np.unique(months.astype(np.int64) % 12)) > 1,
            "hour": len(np.unique(dates - days)) > 1,
        }
        several_years = len(np.unique(dates.astype("datetime64[Y]"))) > 1
        in_a_month = not varies["season"] and (len(np.unique(days)) > 1 or not varies["hour"])
        varies = {"year": several_years or in_a_month, **varies}
        return cls(tuple(p for p, keep in varies.items() if keep), _has_notable_gaps(missing))

    def __post_init__(self) -> None:
        if len(set(self.parts)) < len(self.parts) or not self.parts:
            raise ValueError("a date has no parts, or a duplicated part")

    def _names(self, column: str) -> list[str]:
        return [f"{column} ({name})" for part in self.parts for name in _DATE_FEATURES[part]]

    def transform(self, column: str, values: NDArray[Any]) -> Matrix:
        """Return the parts of each date, NaN if it is missing."""
        missing = np.isnat(values)
        dates = np.where(missing, np.datetime64(0, "s"), values)
        years, days = dates.astype("datetime64[Y]"), dates.astype("datetime64[D]")
        length = (years + 1).astype("datetime64[s]") - years.astype("datetime64[s]")
        of_year = (dates - years).astype(float) / length.astype(float)
        of_day = (dates - days).astype(float) / _SECONDS_PER_DAY
        features = {
            "year": [1970 + years.astype(np.int64) + of_year],
            "season": [np.sin(2 * np.pi * of_year), np.cos(2 * np.pi * of_year)],
            "hour": [np.sin(2 * np.pi * of_day), np.cos(2 * np.pi * of_day)],
        }
        used = [np.where(missing, np.nan, each) for part in self.parts for each in features[part]]
        return np.column_stack([*used, missing] if self.gaps else used)

    def _description(self) -> str:
        return " and ".join(self.parts)

    def measured(self) -> int:
        """Return the number of features without the missing-value indicator."""
        return sum(len(_DATE_FEATURES[part]) for part in self.parts)


@dataclass(frozen=True)
class TextColumn(ColumnEncoder):
    """Tf-idf with sublinear term frequency, each row normalized to length 1.

    A word that occurs n times in a text has the weight (1 + ln n) · (1 + ln((1 + n_texts) /
    (1 + n_texts_with_the_word))) before normalization. A missing text has no words.
    """

    words: tuple[str, ...]
    """The vocabulary, sorted."""
    counts: tuple[int, ...]
    """Document frequency of each word."""
    n_texts: int
    """Number of training texts."""

    @classmethod
    def learn(cls, values: NDArray[Any]) -> Self:
        """Choose the vocabulary and count document frequencies."""
        from sklearn.feature_extraction.text import CountVectorizer

        texts = [value for value in values.tolist() if value is not None]
        least = 1 + (len(texts) >= ENOUGH_TEXTS) + (len(texts) >= MANY_TEXTS)
        vectorizer = CountVectorizer(min_df=least, max_features=MAX_WORDS, **_TOKENS)
        try:
            found = vectorizer.fit_transform(texts)
        except ValueError:  # the vocabulary is empty
            return cls((), (), len(texts))
        counts = np.bincount(found.indices, minlength=found.shape[1])
        words = vectorizer.get_feature_names_out().tolist()
        return cls(tuple(words), tuple(counts.tolist()), len(texts))

    def __post_init__(self) -> None:
        if len(set(self.words)) < len(self.words) or len(self.counts) != len(self.words):
            raise ValueError("words and document frequencies do not match")
        if not all(0 <= count <= self.n_texts for count in self.counts):
            raise ValueError("a word occurs in more texts than there are")

    def _names(self, column: str) -> list[str]:
        return [f"{column}: {word}" for word in self.words]

    def transform(self, column: str, values: NDArray[Any]) -> Matrix:
        """Return the weight of each word in each text."""
        if not self.words:
            return sp.csr_array((len(values), 0), dtype=np.float32)
        texts = ["" if value is None else value for value in values.tolist()]
        return sp.csr_array(self._vectorizer.transform(texts), dtype=np.float32)

    def _description(self) -> str:
        return f"weights of {len(self.words):,} words (tf-idf)"

    @cached_property
    def _vectorizer(self) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(
            vocabulary={word: i for i, word in enumerate(self.words)}, sublinear_tf=True, **_TOKENS
        )
        vectorizer.idf_ = 1 + np.log((1 + self.n_texts) / (1 + np.array(self.counts, np.float64)))
        return vectorizer


#: The encoder of each column type.
ENCODERS: dict[ColumnType, type[ColumnEncoder]] = {
    "number": NumberColumn,
    "category": CategoryColumn,
    "date": DateColumn,
    "text": TextColumn,
}
