"""The contract of every estimator, and what an estimator gets for keeping it.

A method implements ``_fit_rows``, ``_score_rows`` and two functions that store it. It gets: input
in any accepted form, encoding of columns that are not numbers, feature scaling, a validation split,
a threshold rule learned on it, label names, model files, and compatibility with scikit-learn.
"""

from __future__ import annotations

import difflib
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from cgmvae.data.columns import Columns, ColumnType
from cgmvae.data.dataset import Features, Matrix, MultiLabelDataset, canonical
from cgmvae.data.mapped import MappedRows, as_mapped, check_finite, dense, is_sparse
from cgmvae.data.splits import holdout
from cgmvae.errors import InputError, NonFiniteScores
from cgmvae.evaluation.metrics import count
from cgmvae.evaluation.thresholds import RuleName, learn_rule
from cgmvae.methods import out_of_fold
from cgmvae.methods.inputs import (
    Rows,
    UnlabeledRowsWarning,
    check_declared,
    check_learnable,
    targets_of_rows,
)
from cgmvae.methods.out_of_fold import join_rows
from cgmvae.methods.serialization import Precision, save_model
from cgmvae.preparation.components import NumberOfComponents, PrincipalComponents
from cgmvae.preparation.features import (
    FeaturePreparation,
    match_columns,
    numeric_matrix,
    table_columns,
)
from cgmvae.preparation.piecewise import EncodingName, PiecewiseLinear
from cgmvae.preparation.scaling import FeatureScaler, ScalingName


@dataclass(kw_only=True, eq=False, repr=False)
class MultiLabelClassifier(ClassifierMixin, BaseEstimator, ABC):
    """Base class of all methods.

    A method is a dataclass: its fields are its parameters, and these are among them.

    Parameters
    ----------
    scaling : {"auto", "standardise", "max-abs", "none"}
        How features are scaled; see :class:`~cgmvae.preparation.scaling.FeatureScaler`.
    threshold_rule : {"global", "per-label", "top-k"}
        The rule that ``predict`` applies to probabilities, learned on rows that were held out.
    threshold_metric : str
        The metric that the rule maximizes, and that ``score`` returns.
    validation_fraction : float
        Fraction of the rows held out for validation if no validation rows are given; four or more
        members of a network hold out folds instead.
    random_state : int, RandomState or None
        Seed of all random streams.

    Attributes
    ----------
    label_names_ : tuple of str
        Names of the label columns.
    classes_ : array, (n_labels, 2)
        0 and 1 for each label, as scikit-learn requires.
    preparation_ : FeaturePreparation or None
        How columns are encoded as features; None if X was numeric.
    n_inputs_ : int
        Number of features after encoding; ``n_features_in_`` if X was numeric.
    scaler_ : FeatureScaler
        The fitted scaling.
    encoding_ : PiecewiseLinear
        The fitted encoding of continuous features.
    components_ : PrincipalComponents
        The principal components that the method learns from, if any.
    n_columns_ : int
        Number of columns after scaling, encoding and principal components.
    n_rows_, sparse_rows_ : int, bool
        Number of training rows with labels, and whether they are sparse; not stored with the model.
    threshold_rule_ : GlobalThreshold, LabelThresholds or TopK
        The learned rule that turns probabilities into labels.
    origin_ : dict or None
        Provenance of the model (data, split, command, versions) as JSON values; stored in the model
        file. The command line sets it; ``fit`` resets it.
    """

    max_labels: ClassVar[int | None] = None
    """Largest number of labels that the method supports; None for any number."""

    cross_validates: ClassVar[bool] = False
    """Whether members hold out folds of their own if no validation rows are given."""

    reads_batches: ClassVar[bool] = False
    """Whether the method trains on batches, so that the rows need not fit into memory."""

    scaling: ScalingName = "auto"
    threshold_rule: RuleName = "global"
    threshold_metric: str = "micro_f1"
    validation_fraction: float = 0.1
    random_state: Any = None

    @abstractmethod
    def _fit_rows(self, train: Rows, validation: Rows, seed: int) -> None:
        """Learn from scaled training rows; validation rows may select among models."""

    @abstractmethod
    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        """Return label probabilities for scaled rows, (n_samples, n_labels)."""

    @abstractmethod
    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        """Return the learned state: arrays by name, and a JSON-serializable description."""

    @abstractmethod
    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        """Restore the state that :meth:`_fitted_state` returned; raise if it is inconsistent."""

    # Fitting and predicting.

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        validation_data: tuple[Any, Any] | None = None,
        sample_weight: Any = None,
        groups: Any = None,
        unlabelled: Any = None,
    ) -> Self:
        """Fit the model to labeled rows.

        Parameters
        ----------
        X : array, CSR array, DataFrame, Columns or MappedRows, (n_samples, n_features)
            Features; NaN marks a missing value. Table columns may also hold categories, dates and
            text; see :mod:`cgmvae.preparation`. Neural methods read a large memory-mapped array in
            batches, other methods load it into memory; see :mod:`cgmvae.data.mapped`.
        Y : array, CSR array, DataFrame or sequence of label sets, (n_samples, n_labels)
            Labels: 0, 1, or NaN for unknown.
        validation_data : (X, Y), optional
            Rows for choosing the threshold rule (and the best epoch). By default neural methods
            hold out another fold of the rows for each member and learn the rule on all of them, out
            of fold; other methods hold out a fraction ``validation_fraction`` of the rows, and
            below 200 rows do the same with models of their own. Groups are held out as a whole.
        sample_weight : array, (n_samples,), optional
            Weight of each row in training. A row of weight 0 is ignored.
        groups : array, (n_samples,), optional
            Rows of one group stay together when rows are held out. By default the groups of Y, if
            it is a data set.
        unlabelled : array, CSR array, DataFrame or Columns, (n_rows, n_features), optional
            Further rows whose labels are unknown, like rows of X whose labels in Y are all NaN.
            The model learns from them only where its settings say so
            (``docs/results/unlabelled.md``); otherwise a warning says that they are left out.
        """
        train, validation, seed = self._prepare(
            X, Y, validation_data, sample_weight, groups, unlabelled=unlabelled
        )
        out_of_fold.warn_of_few_rows(train, validation)
        self._fit_rows(train, validation, seed)
        self._learn_threshold_rule(*self._score_unseen(train, validation, seed))
        return self

    def predict_proba(self, X: Any, *, as_frame: bool = False) -> Any:
        """Return the probability of every label, (n_samples, n_labels).

        ``as_frame`` returns a pandas DataFrame with the label names and the index of X.
        """
        return self._framed(self._scores(self.inputs(X)), X, as_frame=as_frame)

    def predict(self, X: Any, *, as_frame: bool = False) -> Any:
        """Return the labels that the learned threshold rule selects, (n_samples, n_labels).

        ``as_frame`` returns a pandas DataFrame with the label names and the index of X.
        """
        probabilities = self.predict_proba(X)
        labels = self.threshold_rule_.apply(probabilities).astype(np.int64)
        return self._framed(labels, X, as_frame=as_frame)

    def _framed(self, values: NDArray[Any], X: Any, *, as_frame: bool) -> Any:
        if not as_frame:
            return values
        try:
            import pandas as pd  # type: ignore[import-untyped]
        except ImportError as error:
            raise InputError("as_frame needs pandas; install it, or leave it out.") from error
        index = X.index if hasattr(X, "iloc") else None
        return pd.DataFrame(values, columns=list(self.label_names_), index=index)

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

    def save(self, path: str | os.PathLike[str], *, precision: Precision = "auto") -> None:
        """Save the fitted model to one file for :func:`cgmvae.load`; no pickle is involved.

        Parameters
        ----------
        path : path
        precision : {"auto", "float32", "float16"}
            How the weights of a network are stored; other methods are stored as they are. "auto" is
            float16, half the size, if that moves no probability of a sample of the training rows by
            more than 0.001, and float32 otherwise, or if there is no such sample because the model
            was loaded.
        """
        check_is_fitted(self)
        if precision not in get_args(Precision):
            choices = ", ".join(get_args(Precision))
            raise InputError(f"There is no precision {precision!r}; choose one of {choices}.")
        save_model(self, path, in_half=self._stored_in_half(precision))

    def _stored_in_half(self, precision: Precision) -> bool:
        """Return whether float32 arrays are stored in float16."""
        return False

    def input_kinds(self) -> dict[str, ColumnType] | None:
        """Return the type of each column of X by name; None if the model knows no names."""
        check_is_fitted(self)
        if self.preparation_ is not None:
            return dict(self.preparation_.kinds)
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else dict.fromkeys(map(str, names), "number")

    def prepared(self, X: Any) -> Matrix:
        """Return the encoded features of X before scaling, (n_samples, n_inputs)."""
        check_is_fitted(self)
        features = self._validated(X, reset=False)
        return features if self.preparation_ is None else self.preparation_.transform(features)

    def prepared_names(self) -> list[str]:
        """Return the names of the encoded features."""
        check_is_fitted(self)
        if self.preparation_ is not None:
            return list(self.preparation_.feature_names_)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return [f"feature_{i}" for i in range(self.n_inputs_)]
        return [str(name) for name in names]

    # From X and Y to scaled rows.

    def _prepare(
        self,
        X: Any,
        Y: Any,
        validation_data: Any,
        sample_weight: Any,
        groups: Any,
        *,
        unlabelled: Any = None,
        hold_out: bool = False,
    ) -> tuple[Rows, Any, int]:
        """Check the arguments of ``fit``; return scaled training and validation rows, and a seed.

        There are no validation rows (None) if members hold out folds of their own, which
        ``hold_out`` forbids. Parameters of a wrong type or range are rejected here, and an unknown
        threshold metric, not after training.
        """
        check_declared(type(self), vars(self))
        learn_rule([[1]], [[1.0]], rule=self.threshold_rule, metric=self.threshold_metric)
        if not 0 < self.validation_fraction < 1:
            raise InputError(
                f"validation_fraction is {self.validation_fraction}; it must be between 0 and 1."
            )
        train = self._check_rows(X, Y, reset=True)
        self.origin_: dict[str, Any] | None = None
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if sample_weight is not None:
            train = train._replace(weights=_check_weights(sample_weight, train.features))
        if groups is None and isinstance(Y, MultiLabelDataset):
            groups = Y.groups
        if groups is not None:
            train = train._replace(groups=_check_groups(groups, train.features.shape[0]))
        if unlabelled is not None:
            train = _with_unlabelled(train, self._validated(unlabelled, reset=False))
        train = train._replace(features=self._for_training(train.features))
        if train.weights is not None and not train.weights.all():
            kept = np.flatnonzero(train.weights)
            train = train.take(kept)._replace(numbers=kept)
        validation = None
        if validation_data is not None:
            validation = self._check_rows(*validation_data, reset=False)
            validation = validation._replace(features=self._for_training(validation.features))
        elif hold_out or self._needs_validation():
            labeled = train.labeled()
            known = train.with_known_labels()
            kept, held = holdout(
                known.labels, self.validation_fraction, seed=seed, groups=known.groups
            )
            numbers = np.flatnonzero(labeled)
            kept = np.sort(np.concatenate([numbers[kept], np.flatnonzero(~labeled)]))
            train, validation = train.take(kept), train.take(numbers[held])
        train, validation = self._learn_features(self._without_unlabeled(train), validation)
        return train, validation, seed

    def _needs_validation(self) -> bool:
        """Return whether rows are held out for all members together, in place of folds."""
        return not self.cross_validates

    def _learns_unlabeled(self) -> bool:
        """Return whether the model itself learns from rows without known labels."""
        return False

    def _without_unlabeled(self, train: Rows) -> Rows:
        """Return the rows to learn from; say in one line which rows are left out."""
        labeled = train.labeled()
        if labeled.all() or self._learns_unlabeled():
            return train
        warnings.warn(
            f"{(~labeled).sum():,} rows without labels are left out; the model is learned from "
            f"the other {labeled.sum():,}.",
            UnlabeledRowsWarning,
            stacklevel=4,
        )
        kept = np.flatnonzero(labeled)
        numbers = kept if train.numbers is None else train.numbers[kept]
        return train.take(kept)._replace(numbers=numbers)

    def _check_rows(self, X: Any, Y: Any, *, reset: bool) -> Rows:
        if Y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        features = self._validated(X, reset=reset)
        targets = targets_of_rows(features, Y, None if reset else self.label_names_)
        if reset and self.max_labels is not None and len(targets.names) > self.max_labels:
            raise InputError(
                f"{type(self).__name__} supports at most {self.max_labels} labels, but Y has "
                f"{len(targets.names):,}; choose another method or fewer labels."
            )
        if reset and features.shape[0] < 2:
            raise InputError("Found 1 sample, but at least 2 are required: one is held out.")
        if reset:
            check_learnable(targets)
            self.label_names_: Sequence[str] = targets.names
            self.n_labels_ = len(targets.names)
            self.classes_ = np.tile([0, 1], (self.n_labels_, 1))
        return Rows(features, targets.labels, targets.unknown)

    def _validated(self, X: Any, *, reset: bool) -> Features:
        """Return X as numbers, as columns that need encoding, or as rows that stay on disk."""
        if reset:
            table = table_columns(X)
            self.preparation_ = None if table is None else FeaturePreparation(table.by_name())
            if table is not None:
                self.n_features_in_ = table.shape[1]
                self.feature_names_in_ = np.array(table.names, dtype=object)
                return table
        elif self.preparation_ is not None:
            return match_columns(X, self.preparation_.kinds)
        elif isinstance(X, Columns | Mapping) or self._has_other_names(X):
            return numeric_matrix(X, self.input_kinds(), self.n_features_in_)
        if (mapped := as_mapped(X)) is not None:
            _check_feature_names(self, mapped, reset=reset)
            _check_n_features(self, mapped, reset=reset)
            check_finite(mapped)
            return mapped
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
        )
        return canonical(X) if sp.issparse(X) else X

    def _has_other_names(self, X: Any) -> bool:
        """Return whether X is a table whose columns are not just those of ``fit``, in order."""
        names: Any = getattr(self, "feature_names_in_", None)
        is_table = names is not None and hasattr(X, "columns")
        return is_table and list(names) != list(X.columns)

    def _for_training(self, features: Features) -> Features:
        """Return features as rows read in batches, or all in memory, as the method needs them."""
        if self.reads_batches and not isinstance(features, Columns):
            return MappedRows.of(features)
        return np.asarray(features) if isinstance(features, MappedRows) else features

    def _learn_features(self, train: Rows, validation: Rows | None) -> tuple[Rows, Rows | None]:
        """Fit preparation, scaling and encoding on the training rows, and apply them to all."""
        measured, parts = None, [train] if validation is None else [train, validation]
        if (preparation := self.preparation_) is not None:
            measured = preparation.fit(train.features).measured_
            parts = [
                rows._replace(features=self._for_training(preparation.transform(rows.features)))
                for rows in parts
            ]
        self.n_inputs_ = int(parts[0].features.shape[1])
        self.n_rows_ = int(train.labeled().sum())
        self.scaler_ = FeatureScaler(self.scaling).fit(parts[0].features, measured)
        encoding, n_components = self._encoding()
        scaled = self.scaler_.transform(parts[0].features)
        self.encoding_ = PiecewiseLinear(encoding).fit(scaled)
        self.components_ = PrincipalComponents(n_components).fit(
            self.encoding_.transform(scaled), encoded=self.encoding_.n_columns > 0
        )
        self.n_columns_ = self._width()
        parts = [rows._replace(features=self._scaled(rows.features)) for rows in parts]
        if self.components_.is_used:
            parts = [rows._replace(features=_computed(rows.features)) for rows in parts]
        self.sparse_rows_ = is_sparse(parts[0].features)
        return parts[0], None if validation is None else parts[1]

    def _encoding(self) -> tuple[EncodingName, NumberOfComponents]:
        """Return how scaled features are encoded, and how many components of them are used."""
        return "standard", None

    def _width(self) -> int:
        """Return the number of columns after scaling, encoding and principal components."""
        if self.components_.is_used:
            return self.components_.vectors_.shape[1]
        return self.n_inputs_ + self.encoding_.n_columns

    def _scaled(self, features: Matrix) -> Matrix:
        """Return prepared features as the method sees them."""
        encoded = self.encoding_.transform(self.scaler_.transform(features))
        return self.components_.transform(encoded)

    def inputs(self, X: Any) -> Matrix:
        """Return X as the method sees it: prepared, scaled, encoded, and its components."""
        return self._scaled(self.prepared(X))

    # From scaled rows to scores and the threshold rule.

    def _scores(self, features: Matrix) -> NDArray[np.floating]:
        """Return probabilities for scaled rows; rows on disk are read in their order there."""
        if not isinstance(features, MappedRows):
            scores = self._score_rows(features)
        else:
            blocks = features.in_reading_order().blocks()
            scores = np.concatenate([self._score_rows(block) for _, block in blocks])
            scores = scores[np.argsort(features.reading_order())]
        if not np.isfinite(scores).all():
            row = int(np.argmin(np.isfinite(scores).all(axis=1)))
            values = dense(MappedRows.of(features).gather([row]))
            values = self.components_.inverse_transform(values)[0, : self.n_inputs_]
            raise NonFiniteScores(row, self.prepared_names()[int(np.argmax(np.abs(values)))])
        return scores

    def _score_unseen(
        self, train: Rows, validation: Any, seed: int
    ) -> tuple[Rows, NDArray[np.floating]]:
        """Return rows that the model, or a model like it, was not trained on, and their scores."""
        if train.labels.shape[0] + validation.labels.shape[0] < out_of_fold.FEW_ROWS:
            return out_of_fold.score_out_of_fold(self, train, validation, seed)
        return validation, self._scores(validation.features)

    def _learn_threshold_rule(self, rows: Rows, scores: NDArray[np.floating]) -> None:
        """Learn the rule of ``predict`` on rows with these scores."""
        self.threshold_rule_ = learn_rule(
            rows.labels,
            scores,
            rule=self.threshold_rule,
            metric=self.threshold_metric,
            unknown=rows.unknown,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags


def _with_unlabelled(train: Rows, features: Features) -> Rows:
    """Return training rows, and below them rows without labels."""
    if any(isinstance(part, MappedRows) for part in (train.features, features)):
        raise InputError(
            "Rows that are read in batches cannot be joined with others; give the rows without "
            "labels as rows of X whose labels in Y are all NaN."
        )
    shape = features.shape[0], train.labels.shape[1]
    return join_rows(train, Rows(features, np.zeros(shape, np.uint8), np.ones(shape, bool)))


def _computed(features: Matrix) -> Matrix:
    """Return rows as they are read, in memory, unless they are on disk.

    Principal components are fewer columns than they come from, and are computed only once this way.
    """
    if not isinstance(features, MappedRows) or features.on_disk:
        return features
    return MappedRows(np.asarray(features))


def _check_weights(weights: Any, features: Matrix) -> NDArray[np.float64]:
    checked = np.asarray(
        _check_sample_weight(weights, features, dtype=np.float64, ensure_non_negative=True)
    )
    if not checked.any():
        raise InputError("All sample weights are zero; give at least one row a positive weight.")
    return checked


def _check_groups(groups: Any, n_samples: int) -> NDArray[Any]:
    groups = np.asarray(groups)
    if groups.shape != (n_samples,):
        raise InputError(f"groups must have one value for each of the {n_samples:,} rows.")
    return groups


class LabelSimilarity(ABC):
    """Mixin for methods that learn how similar labels are."""

    similarity_is: ClassVar[str] = "the cosine of the labels' embeddings"
    """Description of the similarity, for reports."""

    label_names_: Sequence[str]

    @abstractmethod
    def label_similarity(self) -> NDArray[np.floating]:
        """Return the similarity of all pairs of labels, (n_labels, n_labels)."""

    def nearest_labels(self, name: str, k: int = 5) -> list[tuple[str, float]]:
        """Return the k labels most similar to this one with their similarity, highest first."""
        index = self._label_index(name)
        similarity = self.label_similarity()[index]
        return [
            (self.label_names_[i], float(similarity[i])) for i in most_similar(similarity, index, k)
        ]

    def _label_index(self, name: str) -> int:
        check_is_fitted(self)
        if name not in self.label_names_:
            close = difflib.get_close_matches(str(name), self.label_names_, 3)
            hint = f" Did you mean {', '.join(close)}?" if close else ""
            raise InputError(f"There is no label {name!r}.{hint}")
        return list(self.label_names_).index(name)


def most_similar(similarity: NDArray[np.floating], own: int, k: int) -> NDArray[np.int64]:
    """Return the indices of the k highest similarities except ``own``, highest first."""
    order = np.argsort(-similarity, kind="stable")
    return order[order != own][: max(k, 0)]
