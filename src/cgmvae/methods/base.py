"""The contract that every estimator keeps, and what it gets for keeping it.

A method writes ``_fit_rows`` and ``_score_rows``. It gets: input in any accepted form, features
made of columns that are no numbers, scaling, held-out validation rows, a threshold rule learnt on
them, label names, and scikit-learn's manners.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows
from cgmvae.data.splits import holdout
from cgmvae.errors import InputError
from cgmvae.evaluation import count, learn_rule
from cgmvae.evaluation.thresholds import RuleName, ThresholdRule
from cgmvae.methods.few_rows import score_out_of_fold, warn_of_few_rows
from cgmvae.methods.inputs import Rows, targets_of_rows
from cgmvae.methods.persistence import save_model
from cgmvae.methods.prepared_input import PreparedInput
from cgmvae.preparation.scaling import ScalingName


@dataclass(kw_only=True, eq=False, repr=False)
class MultiLabelClassifier(PreparedInput, ClassifierMixin, BaseEstimator, ABC):
    """Base of all methods.

    A method is a dataclass: its fields are its parameters, and these are among them.

    Parameters
    ----------
    scaling : {"auto", "standardise", "max-abs", "none"}
        What is done to features; see :class:`~cgmvae.preparation.scaling.FeatureScaler`.
    threshold_rule : {"global", "per-label", "top-k"}
        The rule of ``predict``, learnt on validation rows.
    threshold_metric : str
        The metric that the rule is learnt for, and that ``score`` returns.
    validation_fraction : float
        Share of the rows held out where no validation rows are given.
    random_state : int, RandomState or None
        Seed of everything.

    Attributes
    ----------
    label_names_ : tuple of str
        Names of the label columns.
    classes_ : array, (n_labels, 2)
        0 and 1 for each label, as scikit-learn asks for them.
    preparation_ : FeaturePreparation or None
        How features are made of columns; None where X was numbers.
    n_inputs_ : int
        How many features the method itself is given: ``n_features_in_`` where X was numbers.
    scaler_ : FeatureScaler
        What is done to features.
    threshold_rule_ : GlobalThreshold, LabelThresholds or TopK
        How ``predict`` turns probabilities into labels; learnt on validation rows.
    origin_ : dict or None
        Where the model comes from (data, split, command, versions), as JSON can hold it; kept in
        the model's file. The commands set it; a fit forgets it.
    """

    max_labels: ClassVar[int | None] = None
    """How many labels the method takes at most."""

    scaling: ScalingName = "auto"
    threshold_rule: RuleName = "global"
    threshold_metric: str = "micro_f1"
    validation_fraction: float = 0.1
    random_state: Any = None

    @abstractmethod
    def _fit_rows(self, train: Rows, validation: Rows, seed: int) -> None:
        """Learn from scaled training rows; validation rows may choose among models."""

    @abstractmethod
    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        """Return probabilities for scaled rows, (n_samples, n_labels)."""

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        validation_data: tuple[Any, Any] | None = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Self:
        """Learn from labelled rows.

        Parameters
        ----------
        X : array, CSR array, DataFrame, Columns or MappedRows, (n_samples, n_features)
            Features; NaN where a value is missing. The columns of a table may also be categories,
            dates and text; see :mod:`cgmvae.preparation`. The networks read a large
            memory-mapped array in batches, and the other methods into memory; see
            :mod:`cgmvae.data.mapped`.
        Y : array, CSR array, DataFrame or sequence of label sets, (n_samples, n_labels)
            Labels: 0, 1, or NaN for unknown.
        validation_data : (X, Y), optional
            Rows to choose the threshold rule (and the best epoch) on. By default a share
            ``validation_fraction`` of the rows is held out, by group where groups are given. Where
            there are fewer than 200 rows in all, the rule is learnt on all of them, out of fold;
            see :mod:`cgmvae.methods.few_rows`.
        sample_weight : array, (n_samples,), optional
            How much each row counts in training. A row of weight 0 is as one that is not given.
        groups : array, (n_samples,), optional
            Rows of one group stay together when validation rows are held out.
        """
        train, validation, seed = self._prepare(X, Y, validation_data, sample_weight, groups)
        warn_of_few_rows(train, validation)
        self._fit_rows(train, validation, seed)
        scored = score_out_of_fold(self, train, validation, seed)
        self.threshold_rule_ = self._learn_threshold_rule(*scored or (validation,))
        return self

    def _prepare(
        self, X: Any, Y: Any, validation_data: Any, sample_weight: Any, groups: Any
    ) -> tuple[Rows, Rows, int]:
        """Check what ``fit`` was given; return scaled training and validation rows, and a seed."""
        # An unknown rule or metric is refused now, not after the training.
        learn_rule([[1]], [[1.0]], rule=self.threshold_rule, metric=self.threshold_metric)
        train = self._check_rows(X, Y, reset=True)
        self.origin_: dict[str, Any] | None = None
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if sample_weight is not None:
            train = train._replace(weights=_check_weights(sample_weight, train.features))
        if groups is not None:
            train = train._replace(groups=_check_groups(groups, train.features.shape[0]))
        train = _with_weight(train)
        if validation_data is not None:
            validation = self._check_rows(*validation_data, reset=False)
        else:
            train, validation = self._hold_out(train, seed)
        return *self._learn_features(train, validation), seed

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Return the probability of every label, (n_samples, n_labels)."""
        return self._scores(self._scaled_features(X))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the labels that the learnt threshold rule gives, (n_samples, n_labels)."""
        probabilities = self.predict_proba(X)
        return self.threshold_rule_.apply(probabilities).astype(np.int64)

    def decision_function(self, X: Any) -> NDArray[np.floating]:
        """Return the log-odds of every label, (n_samples, n_labels)."""
        p = self.predict_proba(X).astype(np.float64)
        tiny = np.finfo(np.float64).tiny
        return np.log(np.maximum(p, tiny)) - np.log(np.maximum(1 - p, tiny))

    def score(self, X: Any, Y: Any, sample_weight: Any = None) -> float:
        """Return the metric ``threshold_metric`` of ``predict(X)``; weights are ignored."""
        predicted = self.predict(X)
        targets = targets_of_rows(predicted, Y, self.label_names_)
        return float(count(targets.labels, predicted, targets.unknown).value(self.threshold_metric))

    def label_sets(self, X: Any) -> list[list[str]]:
        """Return the names of the predicted labels of each row."""
        predicted = self.predict(X).astype(bool)
        names = np.asarray(self.label_names_, dtype=object)
        return [names[row].tolist() for row in predicted]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file that :func:`cgmvae.load` reads; no pickle."""
        check_is_fitted(self)
        save_model(self, path)

    @abstractmethod
    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        """Return what was learnt: arrays by name, and what JSON can hold."""

    @abstractmethod
    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        """Become what :meth:`_fitted_state` described."""

    def _check_rows(self, X: Any, Y: Any, *, reset: bool) -> Rows:
        if Y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        features = self._validated(X, reset=reset)
        targets = targets_of_rows(features, Y, None if reset else self.label_names_)
        if reset and self.max_labels is not None and len(targets.names) > self.max_labels:
            raise InputError(
                f"{type(self).__name__} takes at most {self.max_labels} labels, and here are "
                f"{len(targets.names):,}; choose another method, or fewer labels."
            )
        if reset and features.shape[0] < 2:
            raise InputError("There is 1 sample; at least two are needed, one to hold out.")
        if reset:
            self.label_names_: Sequence[str] = targets.names
            self.n_labels_ = len(targets.names)
            self.classes_ = np.tile([0, 1], (self.n_labels_, 1))
        return Rows(self._held(features), targets.labels, targets.unknown)

    def _hold_out(self, rows: Rows, seed: int) -> tuple[Rows, Rows]:
        kept, held = holdout(rows.labels, self.validation_fraction, seed=seed, groups=rows.groups)
        return rows.take(kept), rows.take(held)

    def _scores(self, features: Matrix) -> NDArray[np.floating]:
        """Return probabilities for scaled rows; those on disk are read in the order they have."""
        if not isinstance(features, MappedRows):
            return self._score_rows(features)
        blocks = features.in_reading_order().blocks()
        scores = np.concatenate([self._score_rows(block) for _, block in blocks])
        return scores[np.argsort(features.reading_order())]

    def _learn_threshold_rule(
        self, rows: Rows, scores: NDArray[np.floating] | None = None
    ) -> ThresholdRule:
        """Learn the rule on rows with these scores, by default the model's own."""
        return learn_rule(
            rows.labels,
            self._scores(rows.features) if scores is None else scores,
            rule=self.threshold_rule,
            metric=self.threshold_metric,
            unknown=rows.unknown,
        )

    def _fit_folds(self, folds: Sequence[tuple[Rows, Rows]], seed: int) -> list[Self]:
        """Return models like this one, each of the training and validation rows of a fold."""
        models = [copy.copy(self) for _ in folds]
        for model, (train, validation) in zip(models, folds, strict=True):
            model._fit_rows(train, validation, seed)
        return models

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags


def _check_weights(weights: Any, features: Matrix) -> NDArray[np.float64]:
    checked = np.asarray(
        _check_sample_weight(weights, features, dtype=np.float64, ensure_non_negative=True)
    )
    if not checked.any():
        raise InputError("All weights are zero; give those rows a weight that are learnt from.")
    return checked


def _with_weight(rows: Rows) -> Rows:
    """Return the rows but those of weight 0."""
    if rows.weights is None or rows.weights.all():
        return rows
    return rows.take(np.flatnonzero(rows.weights))


def _check_groups(groups: Any, n_samples: int) -> NDArray[Any]:
    groups = np.asarray(groups)
    if groups.shape != (n_samples,):
        raise InputError(f"groups must have one value for each of the {n_samples:,} rows.")
    return groups
