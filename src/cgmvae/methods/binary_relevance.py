"""Binary relevance: one independent classifier per label (Zhang et al. 2018).

A row is left out of the training of the labels that are unknown for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from torch import nn

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Rows
from cgmvae.methods.predictor import LogisticRegressions


@dataclass(kw_only=True, eq=False, repr=False)
class BinaryRelevance(MultiLabelClassifier):
    """One independent classifier per label.

    Parameters
    ----------
    estimator : scikit-learn classifier, optional
        With ``predict_proba`` or ``decision_function``; logistic regression by default. If it has
        an unset ``random_state``, the seed of this model is used.
    n_jobs : int, optional
        Number of labels fitted in parallel.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`.

    Attributes
    ----------
    estimators_ : list
        The fitted classifier of each label, or the constant probability of a label whose known
        values are all equal.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(300, 5, 6, seed=1)
    >>> BinaryRelevance(random_state=0).fit(data.X, data.Y).predict_proba(data.X).shape
    (300, 6)
    """

    estimator: Any = field(default=None, kw_only=False)
    n_jobs: int | None = None

    def _fit_rows(self, train: Rows, validation: Rows, seed: int) -> None:
        base = LogisticRegression(max_iter=1000) if self.estimator is None else self.estimator
        own = base.get_params().items()
        seeds = [name for name, _ in own if name.rpartition("__")[2] == "random_state"]
        unseeded = [name for name in seeds if base.get_params()[name] is None]
        base = clone(base).set_params(**dict.fromkeys(unseeded, seed))
        labels = sp.csc_array(train.labels)
        unknown = sp.csc_array(labels.shape, dtype=bool)
        if train.unknown is not None:
            unknown = sp.csc_array(train.unknown)
        self.estimators_ = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_label)(base, train, dense(labels[:, [i]]), dense(unknown[:, [i]]))
            for i in range(labels.shape[1])
        )

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        constant = np.array([isinstance(model, float) for model in self.estimators_])
        linear = [model for model in self.estimators_ if not isinstance(model, float)]
        if not all(type(model) is LogisticRegression for model in linear):
            raise InputError(
                "Binary relevance of other classifiers than logistic regression cannot be saved "
                "without pickle; use the default estimator."
            )
        # In the dtype of the fit, so that predictions do not change by rounding.
        dtype = linear[0].coef_.dtype if linear else np.dtype(np.float64)
        coefficients = np.zeros((len(self.estimators_), self.pipeline_.n_columns), dtype)
        intercepts = np.array([m if isinstance(m, float) else 0.0 for m in self.estimators_], dtype)
        for i, model in zip(np.flatnonzero(~constant), linear, strict=True):
            coefficients[i], intercepts[i] = model.coef_[0], model.intercept_[0]
        arrays = {"constant": constant, "coefficients": coefficients, "intercepts": intercepts}
        return arrays, {}

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        parts = (arrays["constant"], arrays["coefficients"], arrays["intercepts"])
        n = self.n_labels_
        if [part.shape for part in parts] != [(n,), (n, self.pipeline_.n_columns), (n,)]:
            raise ValueError("its coefficients do not match its labels and features")
        self.estimators_ = [
            float(intercept) if constant else _linear(row, intercept)
            for constant, row, intercept in zip(*parts, strict=True)
        ]

    def scorer(self) -> nn.Module | None:
        """Return the logistic regressions as a module; None with other estimators."""
        try:
            arrays, _ = self._fitted_state()
        except InputError:
            return None
        return LogisticRegressions(**arrays)

    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        return np.column_stack([_probability(model, features) for model in self.estimators_])


def _linear(coefficients: NDArray[np.floating], intercept: Any) -> LogisticRegression:
    model = LogisticRegression()
    model.classes_ = np.array([0, 1], np.uint8)
    model.coef_, model.intercept_ = coefficients[None, :], intercept[None]
    model.n_features_in_ = len(coefficients)
    return model


def _fit_label(base: Any, rows: Rows, label: NDArray[np.uint8], unknown: NDArray[np.bool_]) -> Any:
    """Fit the classifier of one label, (n_rows, 1), or return its constant probability."""
    known = np.flatnonzero(~unknown)
    y = label[known, 0]
    if len(y) == 0 or y.min() == y.max():
        return float(y[0]) if len(y) else 0.0
    weights = {} if rows.weights is None else {"sample_weight": rows.weights[known]}
    return clone(base).fit(rows.features[known], y, **weights)


def _probability(model: Any, features: Matrix) -> NDArray[np.floating]:
    if isinstance(model, float):
        return np.full(features.shape[0], model)
    if hasattr(model, "predict_proba"):
        return model.predict_proba(features)[:, 1]
    return expit(model.decision_function(features))
