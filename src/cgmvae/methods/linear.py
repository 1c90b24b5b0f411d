"""Linear support vector machines, for words and other sparse features.

For text, a linear model on word counts is a strong baseline. Here it is the mean of a few linear
support vector machines (SVMs) per label, each fitted without a part of the rows, which it scores.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from torch import Tensor, nn

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense
from cgmvae.methods import predictor
from cgmvae.methods.expert import Expert
from cgmvae.methods.inputs import Rows
from cgmvae.methods.out_of_fold import assign_folds
from cgmvae.methods.predictor import float64

#: SVMs per label, each without its own part of the rows.
N_PARTS = 4

#: The most weights, and stored values of all rows times labels, with which a blend fits SVMs.
MAX_WEIGHTS, MAX_WORK = 1 << 22, 1 << 27

#: The largest slope, which is unbounded where all rows are told apart.
MAX_WEIGHT = 10.0


@dataclass(kw_only=True, eq=False, repr=False)
class LinearSVM(Expert):
    """One linear support vector machine per label, on rows of unit length.

    It is the mean of a few, each fitted without a part of the rows, which it scores. One slope and
    one shift for all labels, learned on these scores, turn margins into log-odds.

    Parameters
    ----------
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`. The threshold rule is learned out of
        fold.

    Attributes
    ----------
    coefficients_, intercepts_ : array, (n_features, n_labels) and (n_labels,)
        A row x of unit length has the log-odds ``x @ coefficients_ + intercepts_``.
    oof_proba_, oof_rows_
        Out-of-fold probabilities; see :class:`~cgmvae.methods.expert.Expert`.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(300, 5, 6, seed=1)
    >>> LinearSVM(random_state=0).fit(data.X, data.Y).predict_proba(data.X).shape
    (300, 6)
    """

    coefficients_: NDArray[np.float32] = field(init=False)
    intercepts_: NDArray[np.float64] = field(init=False)

    def _learn(self, train: Rows, seed: int) -> NDArray[np.floating]:
        rows = train._replace(features=unit_length(train.features))
        part = assign_folds(train, N_PARTS, seed)
        margins, svms = np.zeros(rows.labels.shape), []
        for k in range(part.max() + 1):
            coefficients, intercepts = _fit_svms(rows.take(np.flatnonzero(part != k)))
            own = np.flatnonzero(part == k)
            margins[own] = dense(rows.features[own] @ coefficients) + intercepts
            svms.append((coefficients, intercepts))
        known = ... if train.unknown is None else ~dense(train.unknown)
        _, (slope, shift) = _best_weights(
            margins[known].reshape(1, -1), dense(train.labels)[known].ravel()
        )
        coefficients, intercepts = (np.mean(parts, axis=0) for parts in zip(*svms, strict=True))
        # In float16, model files take half the space.
        self.coefficients_ = (slope * coefficients).astype(np.float16).astype(np.float32)
        self.intercepts_ = slope * intercepts + shift
        return expit(slope * margins + shift)

    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        margins = dense(unit_length(features) @ self.coefficients_)
        return expit(margins.astype(np.float64) + self.intercepts_)

    def scorer(self) -> LinearMargins:
        """Return the linear model as a module."""
        return LinearMargins(self.coefficients_, self.intercepts_)

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        return {"coefficients": self.coefficients_, "intercepts": self.intercepts_}, {}

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        coefficients, intercepts = arrays["coefficients"], arrays["intercepts"]
        n_labels = self.n_labels_
        if coefficients.shape != (self.pipeline_.n_columns, n_labels) or intercepts.shape != (
            n_labels,
        ):
            raise ValueError("its linear model is not one of its features and labels")
        self.coefficients_ = coefficients.astype(np.float32)
        self.intercepts_ = intercepts.astype(np.float64)


class LinearMargins(nn.Module):
    """Probabilities of a linear model of rows of unit length, in float64."""

    def __init__(self, coefficients: Any, intercepts: Any) -> None:
        super().__init__()
        self.coefficients, self.intercepts = float64(coefficients), float64(intercepts)

    def forward(self, columns: Tensor) -> Tensor:
        """Map (n_rows, n_columns) to (n_rows, n_labels)."""
        rows = predictor.unit_length(columns.float())  # as the model does
        return torch.sigmoid(rows.double() @ self.coefficients + self.intercepts)


def unit_length(features: Matrix) -> Matrix:
    """Return rows scaled to unit length, in float32."""
    return normalize(features.astype(np.float32))


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

    bounds = [(0.0, MAX_WEIGHT)] * len(terms) + [(None, None)]
    start = np.eye(len(bounds))[0]
    found = minimize(log_loss, start, jac=True, bounds=bounds, method="L-BFGS-B")
    return float(found.fun), found.x
