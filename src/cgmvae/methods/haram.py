"""HARAM: a hierarchy of fuzzy categories that are bound to label sets (Benites, Sapozhnikova 2015).

The lower level is ML-ARAM: categories of rows (:mod:`cgmvae.methods.fuzzy_art`), each of which
takes rows of one label set only and counts its labels. The upper level clusters these categories
by the same rule with a vigilance of its own, so that a prediction looks into the most active
clusters instead of at every category. The labels of the most active categories are then counted,
weighted by activation. :mod:`cgmvae.methods.haram_network` holds both levels.

The vigilance of the label side is 1, so the label part of ARAM's choice function is equal for all
categories that may take a row, and label sets can be learnt one after the other. There is no match
tracking.

Where the papers are silent, and where this differs:

- Clusters are opened from the most active on until they hold ``searched_fraction`` of the
  categories.
- The counts of the voting categories are divided by their rows, which changes no ranking and gives
  scores between 0 and 1; ``predict`` applies the learnt threshold rule to them. The papers' own
  rule is :meth:`HARAM.predict_by_largest_difference`.
- An unknown label agrees with either value; scores count the rows that know the label, and where no
  voting category does, all rows that know it. Rows that know no label are left out.
- Rows count in the label counts by their weight.
- A feature without range always matches; the features that rows may have beyond the range of the
  training rows are moved to its border.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.fuzzy_art import Boxes, Rule
from cgmvae.methods.haram_network import (
    above_largest_difference,
    arrays_of,
    network_of,
    train_network,
    vote_weights,
)
from cgmvae.methods.inputs import Rows
from cgmvae.methods.parameters import check_whole
from cgmvae.methods.stored_arrays import with_prefix
from cgmvae.preparation.scaling import ScalingName

#: Cells of the largest table that a prediction holds at a time.
_CELLS = 2**22

#: How far scores stay away from 0 and 1: some rows without a label are no proof that none has it.
_MARGIN = 1e-6


@dataclass(kw_only=True, eq=False, repr=False)
class HARAM(MultiLabelClassifier):
    """Hierarchical ARAM: fuzzy categories of rows, found through clusters of categories.

    Parameters
    ----------
    vigilance : float in [0, 1]
        How alike the rows of a category are; at 1 they are equal, at 0 a label set has one.
    cluster_vigilance : float in [0, 1]
        How alike the categories of a cluster are.
    searched_fraction : float in (0, 1]
        Clusters are opened until they hold this share of the categories; at 1 there is no upper
        level, which is ML-ARAM. Like ``vote_threshold`` it may be changed after the fit.
    vote_threshold : float in [0, 1]
        A category votes if its activation T is near the largest, (max − T) / max ≤
        ``vote_threshold`` · (max − min); at 0 the most active one decides.
    choice : float > 0
        The constant α in |A ∧ w| / (α + |w|).
    learning_rate : float in (0, 1]
        The share of the way that a category moves towards its row; 1 is fast learning.
    n_voters : int
        Networks that see the rows in different orders and are averaged. The first sees them in the
        order given.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`. Whatever the scaling, features are
        brought to a range of width 1.

    Attributes
    ----------
    voters_ : list of HARAMNetwork
        Categories, label counts and clusters. A coordinate is a feature's distance from the point
        of its range nearest to 0, in units of the range; so zeros stay zero.
    minimum_, maximum_ : array, (n_features,)
        The range of each feature in the training rows; what lies beyond is moved to its border.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(300, 5, 6, seed=1)
    >>> HARAM(random_state=0).fit(data.X, data.Y).predict_proba(data.X).shape
    (300, 6)
    """

    scaling: ScalingName = "none"
    vigilance: float = 0.85
    cluster_vigilance: float = 0.7
    searched_fraction: float = 0.2
    vote_threshold: float = 0.03
    choice: float = 1e-3
    learning_rate: float = 1.0
    n_voters: int = 3

    def predict_by_largest_difference(self, X: Any) -> NDArray[np.int64]:
        """Return the labels ranked before the largest drop of the score, (n_samples, n_labels).

        This is the rule of the ARAM papers. Every row gets a label and, of several, never all. A
        single label is given from the score 0.5 on.
        """
        return above_largest_difference(self.predict_proba(X)).astype(np.int64)

    def _fit_rows(self, train: Rows, validation: Rows, seed: int) -> None:
        self._check_parameters()
        rows = train.that_know_a_label()
        self.minimum_, self.maximum_ = _ranges(rows.features)
        inputs = self._inputs(rows.features)
        n, rng = len(inputs), np.random.default_rng(seed)
        orders = [np.arange(n), *(rng.permutation(n) for _ in range(self.n_voters - 1))]
        rules = self._rule(self.vigilance), self._rule(self.cluster_vigilance)
        self.voters_ = [train_network(inputs.take(i), rows.take(i), *rules) for i in orders]

    def _check_parameters(self) -> None:
        check_whole(1, n_voters=self.n_voters)
        for name in ("vigilance", "cluster_vigilance", "vote_threshold"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be from 0 to 1.")
        for name in ("searched_fraction", "learning_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(
                    f"{name} is {getattr(self, name)}; it must be above 0 and at most 1."
                )
        if not self.choice > 0:
            raise InputError(f"choice is {self.choice}; it must be above 0.")

    def _rule(self, vigilance: float) -> Rule:
        return Rule(float(vigilance), float(self.choice), float(self.learning_rate))

    def _inputs(self, features: Matrix) -> Boxes:
        points = _to_width_one(features, self.minimum_, self.maximum_)
        return Boxes.between(points, points)

    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        n, widest = features.shape[0], max(len(voter.categories) for voter in self.voters_)
        step = max(1, _CELLS // max(widest, features.shape[1]))
        blocks = [self._score_block(features[i : i + step]) for i in range(0, n, step)]
        return np.concatenate(blocks)

    def _score_block(self, features: Matrix) -> NDArray[np.float64]:
        inputs = self._inputs(features)
        is_sparse = sp.issparse(self.voters_[0].categories.lower)
        inputs = inputs.sparse() if is_sparse else inputs.dense()
        parts = []
        for voter in self.voters_:
            found = voter.activations(inputs, self.choice, self.searched_fraction)
            parts.append(voter.scores(vote_weights(found, self.vote_threshold)))
        return _MARGIN + (1 - 2 * _MARGIN) * np.mean(parts, axis=0)

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays = {"minimum": self.minimum_, "maximum": self.maximum_}
        for k, voter in enumerate(self.voters_):
            arrays |= {f"{k}.{name}": array for name, array in arrays_of(voter).items()}
        return arrays, {"n_voters": len(self.voters_)}

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        self.minimum_, self.maximum_ = arrays["minimum"], arrays["maximum"]
        shape = (self.n_inputs_,)
        if self.minimum_.shape != shape or self.maximum_.shape != shape:
            raise ValueError("its ranges do not fit its features")
        self.voters_ = [
            network_of(with_prefix(arrays, f"{k}."), self.n_inputs_, self.n_labels_)
            for k in range(description["n_voters"])
        ]
        if not self.voters_:
            raise ValueError("it has no voters")


def _ranges(features: Matrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest and the largest value of each feature."""
    extremes = features.min(axis=0), features.max(axis=0)
    if sp.issparse(features):
        extremes = tuple(each.toarray().ravel() for each in extremes)
    return extremes[0].astype(np.float64), extremes[1].astype(np.float64)


def _to_width_one(
    features: Matrix, minimum: NDArray[np.float64], maximum: NDArray[np.float64]
) -> Matrix:
    """Return features whose ranges have the width 1; see ``voters_`` for their origin."""
    origin = np.clip(0.0, minimum, maximum)
    width = np.where(maximum > minimum, maximum - minimum, 1.0)
    if not sp.issparse(features):
        return (np.clip(features.astype(np.float64), minimum, maximum) - origin) / width
    scaled = sp.csr_array(features, dtype=np.float64, copy=True)
    column = scaled.indices
    scaled.data = np.clip(scaled.data, minimum[column], maximum[column]) - origin[column]
    scaled.data /= width[column]
    scaled.eliminate_zeros()
    return scaled
