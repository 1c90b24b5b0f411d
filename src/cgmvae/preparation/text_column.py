"""Columns of text: the weights of their words, tf-idf, each row of length 1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer, strip_accents_unicode
from sklearn.preprocessing import normalize

from cgmvae.data.dataset import Matrix
from cgmvae.preparation.column import ColumnPreparation

#: The most words that have a feature: those that occur most often.
MOST_WORDS = 20_000

#: From this many texts on, a word must be in two of them.
ENOUGH_TEXTS = 20

#: Two letters or more, without digits; accents and capitals do not count.
_WORD = r"[^\W\d_]{2,}"


@dataclass(frozen=True)
class TextColumn(ColumnPreparation):
    """The share of each word, damped, and the more the fewer texts have it.

    A word that is n times in a text has the weight 1 + ln n, times 1 + ln((1 + texts) / (1 + texts
    with the word)); then each text is divided by its length. Missing text has no words.
    """

    words: tuple[str, ...]
    """Words with a feature, sorted."""
    counts: tuple[int, ...]
    """In how many texts each one is."""
    n_texts: int
    """How many texts were learnt from."""

    @classmethod
    def learn(cls, values: NDArray[Any]) -> Self:
        """Choose the words, and count the texts that have them."""
        texts = [value for value in values.tolist() if value is not None]
        least = 2 if len(texts) >= ENOUGH_TEXTS else 1
        counter = _counter(min_df=least, max_features=MOST_WORDS)
        try:
            found = counter.fit_transform(texts)
        except ValueError:  # no text has a word, or no two have the same
            return cls((), (), len(texts))
        counts = np.bincount(found.indices, minlength=found.shape[1])
        words = counter.get_feature_names_out().tolist()
        return cls(tuple(words), tuple(counts.tolist()), len(texts))

    def __post_init__(self) -> None:
        if len(set(self.words)) < len(self.words) or len(self.counts) != len(self.words):
            raise ValueError("words and their counts do not fit")
        if not all(0 <= count <= self.n_texts for count in self.counts):
            raise ValueError("a word is in more texts than there are")

    def feature_names(self, column: str) -> list[str]:
        """Return names such as ``notes: owl``."""
        return [f"{column}: {word}" for word in self.words]

    def transform(self, column: str, values: NDArray[Any]) -> Matrix:
        """Return the weight of each word in each text."""
        if not self.words:
            return sp.csr_array((len(values), 0), dtype=np.float32)
        texts = ["" if value is None else value for value in values.tolist()]
        weights = sp.csr_array(self._counter.transform(texts), dtype=np.float64)
        weights.data = (1 + np.log(weights.data)) * self._rarity[weights.indices]
        return sp.csr_array(normalize(weights, copy=False), dtype=np.float32)

    def describe(self) -> str:
        """Say how many words have a weight."""
        return f"weights of {len(self.words):,} words (tf-idf)"

    @cached_property
    def _counter(self) -> CountVectorizer:
        return _counter(vocabulary={word: place for place, word in enumerate(self.words)})

    @cached_property
    def _rarity(self) -> NDArray[np.float64]:
        return 1 + np.log((1 + self.n_texts) / (1 + np.array(self.counts, np.float64)))


def _counter(**parameters: Any) -> CountVectorizer:
    return CountVectorizer(
        token_pattern=_WORD, preprocessor=_plain_letters, lowercase=False, **parameters
    )


def _plain_letters(text: str) -> str:
    """Return a text without accents and capitals."""
    return strip_accents_unicode(text).lower()
