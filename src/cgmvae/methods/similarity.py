"""Which labels are alike: shared by the methods that learn it."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cgmvae.errors import InputError


class LabelSimilarity(ABC):
    """Mixed into a method that has ``label_similarity``."""

    similarity_is: ClassVar[str] = "the cosine of the labels' embeddings"
    """What the similarity of two labels is, for people."""

    label_names_: Sequence[str]

    @abstractmethod
    def label_similarity(self) -> NDArray[np.floating]:
        """Return how alike labels are, (n_labels, n_labels)."""

    def nearest_labels(self, name: str, k: int = 5) -> list[tuple[str, float]]:
        """Return the k labels most like this one, with their similarity, the most alike first."""
        index = self._label_index(name)
        similarity = self.label_similarity()[index]
        nearest = nearest_places(similarity, index, k)
        return [(self.label_names_[i], float(similarity[i])) for i in nearest]

    def _label_index(self, name: str) -> int:
        check_is_fitted(self)
        if name not in self.label_names_:
            close = difflib.get_close_matches(str(name), self.label_names_, 3)
            hint = f" Did you mean {', '.join(close)}?" if close else ""
            raise InputError(f"There is no label {name!r}.{hint}")
        return list(self.label_names_).index(name)


def nearest_places(similarity: NDArray[np.floating], own: int, k: int) -> NDArray[np.int64]:
    """Return the places of the k highest similarities but a label's own, the highest first."""
    order = np.argsort(-similarity, kind="stable")
    return order[order != own][: max(k, 0)]
