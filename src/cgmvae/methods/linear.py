"""A linear model beside the network, for words and other sparse features.

Which words a document has says most of what there is to say, and a linear support vector machine
(SVM) per label weighs them one by one; the network knows which of them go together. Their log-odds
are added up:

    a · (log-odds of the network) + b · (x · w_l + c_l) + d

with x the row, scaled to unit length, and w_l, c_l the mean of a few SVMs, each of which was
fitted without some folds of the rows. On these folds a, b and d are learned, so that the log-loss
of all labels together is least.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows, dense
from cgmvae.evaluation.calibration import log_odds
from cgmvae.methods.inputs import Rows
from cgmvae.methods.serialization import read_network_weight

WhetherLinear = bool | Literal["auto"]

#: SVMs per label; the folds of the members are merged into this many parts.
N_PARTS = 4

#: The most weights, and stored values of all rows times labels, with which "auto" fits SVMs.
MOST_WEIGHTS, MOST_WORK = 1 << 22, 1 << 27

#: Part of the way from the network's log-odds to those learned out of fold: a row is out of fold
#: for one member, and the mean of all members, which predicts, needs less help. Compared on
#: validation rows of reuters (docs/results/accuracy.md).
SHARE = 2 / 3

#: The largest a and b, which are unbounded where all rows are told apart.
LARGEST_WEIGHT = 10.0

#: The linear model is not used if it lowers the log-loss out of fold by less than this part of it.
LEAST_GAIN = 0.01


@dataclass(frozen=True, eq=False)
class LinearModel:
    """What is added to the network's log-odds; a and b are taken up by the weights."""

    coefficients: NDArray[np.float32]
    """(n_features, n_labels)"""
    intercepts: NDArray[np.float64]
    """(n_labels,)"""
    network_weight: float
    """What the network's own log-odds are multiplied by"""

    def blend(self, scores: NDArray[np.floating], features: Matrix) -> NDArray[np.floating]:
        """Return the network's probabilities of scaled rows with this added, (n_rows, n_labels)."""
        own = dense(unit_length(features) @ self.coefficients) + self.intercepts
        return expit(self.network_weight * log_odds(scores) + own).astype(scores.dtype)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that it is stored in, by name."""
        return {
            "linear.coefficients": self.coefficients.astype(np.float16),
            "linear.intercepts": self.intercepts,
        }

    @classmethod
    def from_arrays(
        cls,
        arrays: dict[str, NDArray[Any]],
        description: Mapping[str, Any],
        n_features: int,
        n_labels: int,
    ) -> LinearModel | None:
        """Take the arrays out of those of a model; None if there are none."""
        own = {name: arrays.pop(name) for name in list(arrays) if name.startswith("linear.")}
        if (network_weight := read_network_weight(description)) is None:
            return None
        coefficients, intercepts = own["linear.coefficients"], own["linear.intercepts"]
        if coefficients.shape != (n_features, n_labels) or intercepts.shape != (n_labels,):
            raise ValueError("its linear model is not one of its features and labels")
        return cls(coefficients.astype(np.float32), intercepts.astype(np.float64), network_weight)


def unit_length(features: Matrix) -> Matrix:
    """Return rows scaled to unit length, in float32."""
    return normalize(features.astype(np.float32))


def learn_linear(
    train: Rows,
    unseen: Rows,
    folds: NDArray[np.int64],
    unseen_folds: NDArray[np.int64],
    scores: NDArray[np.floating],
) -> tuple[LinearModel | None, NDArray[np.floating]]:
    """Fit the SVMs, and learn how much they should count.

    Parameters
    ----------
    train, unseen : Rows
        All training rows, scaled, and those of them that are scored.
    folds : array, (n_rows,)
        Folds of all rows; −1 for rows without known labels, which are left out.
    unseen_folds : array, (n_unseen,)
        Folds of the rows that are scored.
    scores : array, (n_unseen, n_labels)
        Their probabilities by members that were not trained on their fold.

    Returns
    -------
    model : LinearModel or None
        None if it does not lower the log-loss.
    scores : array, (n_unseen, n_labels)
        The scores, blended with the linear model if it is used.
    """
    labeled = np.flatnonzero(folds >= 0)
    features = unit_length(MappedRows.of(train.features).gather(labeled))
    rows = train._replace(features=None).take(labeled)._replace(features=features)
    asked, targets = MappedRows.of(unseen.features), unseen._replace(features=None)
    part, unseen_part = folds[labeled] % N_PARTS, unseen_folds % N_PARTS
    margins, svms = np.empty(scores.shape), []
    for k in np.unique(unseen_part):
        coefficients, intercepts = _fit_svms(rows.take(np.flatnonzero(part != k)))
        own = np.flatnonzero(unseen_part == k)
        margins[own] = dense(unit_length(asked.gather(own)) @ coefficients) + intercepts
        svms.append((coefficients, intercepts))
        if len(svms) == 1:  # a part of the rows tells whether the others are worth the time
            gain, _ = _learn_weights(targets.take(own), scores[own], margins[own])
            if gain < LEAST_GAIN / 2:
                return None, scores
    gain, (a, b, d) = _learn_weights(targets, scores, margins)
    if gain < LEAST_GAIN:
        return None, scores
    coefficients, intercepts = (np.mean(parts, axis=0) for parts in zip(*svms, strict=True))
    model = LinearModel(
        (SHARE * b * coefficients).astype(np.float16).astype(np.float32),
        SHARE * (b * intercepts + d),
        float(1 + SHARE * (a - 1)),
    )
    odds = model.network_weight * log_odds(scores) + SHARE * (b * margins + d)
    return model, expit(odds).astype(scores.dtype)


def _fit_svms(rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit one SVM per label on these rows; return coefficients and intercepts.

    A label that all rows have, or none, has coefficients 0.
    """
    from sklearn.svm import LinearSVC  # prediction does without this package

    features: Any = rows.features
    if sp.issparse(features):  # liblinear takes no other indices
        parts = features.data, *(p.astype(np.int32) for p in (features.indices, features.indptr))
        features = sp.csr_array(parts, shape=features.shape)
    labels, unknown = (
        None if each is None else sp.csc_array(each) for each in (rows.labels, rows.unknown)
    )
    weights, n_labels = rows.row_weights(), rows.labels.shape[1]
    coefficients, intercepts = np.zeros((features.shape[1], n_labels)), np.full(n_labels, -1.0)

    def fit(label: int) -> None:
        known: Any = ... if unknown is None else np.flatnonzero(~_column(unknown, label))
        true = _column(labels, label)[known]
        if true.all():
            intercepts[label] = 1.0 if len(true) else -1.0
        elif true.any():
            svm = LinearSVC(random_state=0)
            inside = features if unknown is None else features[known]
            svm.fit(inside, true, sample_weight=weights[known])
            coefficients[:, label], intercepts[label] = svm.coef_[0], svm.intercept_[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # what is learned of it is measured
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(fit, range(n_labels)))
    return coefficients, intercepts


def _column(matrix: sp.csc_array, index: int) -> NDArray[np.bool_]:
    return dense(matrix[:, [index]])[:, 0].astype(bool)


def _learn_weights(
    rows: Rows, scores: NDArray[np.floating], margins: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return by which part the log-loss falls, and a, b and d.

    It is compared with that of the network with the best temperature and shift.
    """
    known = ... if rows.unknown is None else ~dense(rows.unknown)
    network, margin, true = (
        each[known].ravel() for each in (log_odds(scores), margins, dense(rows.labels))
    )
    alone, _ = _best_weights(network[None], true)
    loss, weights = _best_weights(np.stack([network, margin]), true)
    return 1 - loss / max(alone, np.finfo(np.float64).tiny), weights


def _best_weights(
    terms: NDArray[np.float64], true: NDArray[Any]
) -> tuple[float, NDArray[np.float64]]:
    """Return the least log-loss of a weighted sum of terms, (n_terms, n_cells), and the weights.

    The last weight is that of a constant; the others are within bounds.
    """

    def log_loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        odds = weights[:-1] @ terms + weights[-1]
        errors = expit(odds) - true
        slopes = np.append(terms @ errors, errors.sum()) / len(true)
        return float(np.mean(np.logaddexp(0, odds) - true * odds)), slopes

    bounds = [(0.0, LARGEST_WEIGHT)] * len(terms) + [(None, None)]
    start = np.eye(len(bounds))[0]
    found = minimize(log_loss, start, jac=True, bounds=bounds, method="L-BFGS-B")
    return float(found.fun), found.x
