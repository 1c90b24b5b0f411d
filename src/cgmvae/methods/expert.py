"""Methods that score their own training rows while they learn, and so need none held out.

Out-of-bag trees, votes that leave a row out, models of folds: whatever has such scores learns its
thresholds on all rows, and can be weighed with others (:mod:`cgmvae.methods.blend`). Networks have
them too (:mod:`cgmvae.methods.neural`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Fit, Rows


@dataclass(kw_only=True, eq=False, repr=False)
class Expert(MultiLabelClassifier):
    """Base of methods that score their own training rows.

    Attributes
    ----------
    oof_proba_ : array, (n_rows, n_labels)
        Probabilities of the training rows that do not come from their own labels; not stored with
        the model.
    oof_rows_ : array, (n_rows,)
        The rows of X that they belong to: all of them, unless some have weight 0 or no labels.
    """

    scores_own_rows: ClassVar[bool] = True
    predicts_by_scorer: ClassVar[bool] = False  # scipy's sparse products are faster

    oof_proba_: NDArray[np.floating] = field(init=False)

    def _fit_rows(self, train: Rows, validation: Rows | None, seed: int) -> None:
        self.oof_proba_ = self._learn(train, seed)
        numbers = np.arange(train.labels.shape[0]) if train.numbers is None else train.numbers
        self.oof_rows_ = numbers

    @abstractmethod
    def _learn(self, train: Rows, seed: int) -> NDArray[np.floating]:
        """Learn from scaled rows; return their probabilities out of fold, (n_rows, n_labels)."""

    def _unseen_rows(self, fit: Fit) -> tuple[Rows, NDArray[np.floating]]:
        if fit.validation is not None:
            return fit.validation, self._score_rows(fit.validation.features)
        return fit.train, self.oof_proba_
