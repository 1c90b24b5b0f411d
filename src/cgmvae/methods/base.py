"""The contract of every estimator, and what an estimator gets for keeping it.

A method implements ``_fit_rows``, ``_score_rows`` and two functions that store it. It gets: input
in any accepted form, a plan made from the data, a feature pipeline, held-out rows, a threshold rule
learned on them, label names, model files, and compatibility with scikit-learn.
"""

from __future__ import annotations

import difflib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

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
from torch import nn

from cgmvae.data.columns import Columns, ColumnType
from cgmvae.data.dataset import Features, Matrix, MultiLabelDataset, canonical
from cgmvae.data.mapped import MappedRows, as_mapped, check_finite, dense, is_sparse
from cgmvae.data.splits import group_numbers, holdout
from cgmvae.declared import as_declared, check_declared
from cgmvae.errors import InputError, NonFiniteScores, warn
from cgmvae.evaluation.metrics import count
from cgmvae.evaluation.thresholds import (
    RuleName,
    ThresholdRule,
    check_choice,
    learn_rule,
    threshold_curve,
)
from cgmvae.methods import out_of_fold
from cgmvae.methods.communities import (
    CorrelationKind,
    LabelCorrelation,
    LabelCounts,
    count_labels,
    draw_label_sets,
    label_correlation,
    loadings_of,
    most_probable_sets,
)
from cgmvae.methods.conditioning import LogLikelihood, label_set_log_likelihood
from cgmvae.methods.inputs import (
    Fit,
    LabelClasses,
    Rows,
    UnlabeledRowsWarning,
    check_learnable,
    check_whole,
    recorded_warnings,
    targets_of_rows,
)
from cgmvae.methods.model_file import save_model
from cgmvae.methods.predictor import Predictor, PreparedFeatures, scored
from cgmvae.model.plan import DataProfile, Plan, stored_by_values
from cgmvae.preparation.features import match_columns, numeric_matrix, table_columns
from cgmvae.preparation.pipeline import FeaturePipeline, FeaturePlan, computed
from cgmvae.preparation.scaling import ScalingName


@dataclass(kw_only=True, eq=False, repr=False)
class MultiLabelClassifier(ClassifierMixin, BaseEstimator, ABC):
    """Base class of all methods.

    A method is a dataclass: its fields are its parameters, and these are among them.

    Parameters
    ----------
    scaling : {"auto", "standardize", "max-abs", "none"}
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
    input_names_ : tuple of str or None
        Names of the columns of X: those of a table, or those of the data set that Y is.
    classes_ : list of [0, 1], (n_labels,)
        0 and 1 for each label, as scikit-learn requires.
    plan_ : Plan
        What was decided from the data before anything was learned.
    pipeline_ : FeaturePipeline
        How columns of X become what the method sees.
    threshold_rule_ : GlobalThreshold, LabelThresholds or TopK
        The learned rule that turns probabilities into labels.
    threshold_curve_ : ThresholdCurve
        The metrics at all thresholds, on the rows that the rule was learned on.
    fit_warnings_ : list of str
        What ``fit`` warned of; stored in the model file, so that reports repeat it.
    origin_ : dict or None
        Provenance of the model (data, split, command, versions) as JSON values; stored in the model
        file. The command line sets it; ``fit`` resets it.
    """

    max_labels: ClassVar[int | None] = None
    """Largest number of labels that the method supports; None for any number."""

    scores_own_rows: ClassVar[bool] = False
    """Whether the method scores its training rows, or some of them, by models that did not learn
    from them, if no validation rows are given."""

    reads_batches: ClassVar[bool] = False
    """Whether the method trains on batches, so that the rows need not fit into memory."""

    predicts_by_scorer: ClassVar[bool] = True
    """Whether dense rows are predicted by :meth:`scorer`; if not, it is for exports."""

    similarity_is: ClassVar[str | None] = None
    """Description of :meth:`label_similarity`, for reports; None if the method has none."""

    scaling: ScalingName = "auto"
    threshold_rule: RuleName = "global"
    threshold_metric: str = "micro_f1"
    validation_fraction: float = 0.1
    random_state: Any = None

    n_features_in_: int = field(init=False)
    input_names_: tuple[str, ...] | None = field(init=False)

    @abstractmethod
    def _fit_rows(self, train: Rows, validation: Any, seed: int) -> None:
        """Learn from prepared training rows; validation rows may select among models.

        They are None if the method scores its own rows, unless they were given.
        """

    @abstractmethod
    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        """Return label probabilities for prepared rows, (n_samples, n_labels)."""

    @abstractmethod
    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        """Return the learned state: arrays by name, and a JSON-serializable description."""

    @abstractmethod
    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        """Restore the state that :meth:`_fitted_state` returned; raise if it is inconsistent."""

    def _restore_plan(self, description: Any, n_weights: int) -> None:
        """Set the plan that a file describes; raise if so many stored values cannot be enough."""
        self.plan_ = Plan(
            DataProfile(**as_declared(DataProfile, description["profile"])),
            FeaturePlan(**as_declared(FeaturePlan, description["features"])),
        )

    def plan(self, profile: DataProfile) -> Plan:
        """Return what ``fit`` does with such data."""
        return Plan(profile, FeaturePlan(self.scaling))

    def as_parameters(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings by name as parameters of this estimator."""
        return dict(settings)

    def scorer(self) -> nn.Module | None:
        """Return the fitted method as a module from prepared rows to probabilities.

        None if it is no graph of tensor operations; then it has no ONNX file either.
        """
        return None

    # Fitting and predicting.

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        validation_data: tuple[Any, Any] | None = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Self:
        """Fit the model to labeled rows.

        Parameters
        ----------
        X : array, CSR array, DataFrame, list of str, Columns or MappedRows, (n_samples, n_features)
            Features; NaN marks a missing value. Table columns may also hold categories, dates and
            text; see :mod:`cgmvae.preparation`. A list or series of texts is one such column.
            Neural methods read a large memory-mapped array in batches, other methods load it into
            memory; see :mod:`cgmvae.data.mapped`.
        Y : array, CSR array, DataFrame or sequence of label sets, (n_samples, n_labels)
            Labels: 0, 1, or NaN for unknown. Rows whose labels are all unknown are left out, and a
            warning says so.
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
        """
        with recorded_warnings() as said:
            fit = self._begin(X, Y, validation_data, sample_weight, groups)
            out_of_fold.warn_of_few_rows(fit)
            if not self.scores_own_rows:
                fit = self._divided(fit)
        self.fit_warnings_ = said
        fit = self._with_features(fit)
        self._fit_rows(*fit)
        rows, scores = self._unseen_rows(fit)
        self._set_rule(rows, scores, out_of_fold=rows is not fit.validation)
        return self

    def predict_proba(self, X: Any, *, as_frame: bool = False) -> Any:
        """Return the probability of every label, (n_samples, n_labels).

        ``as_frame`` returns a pandas DataFrame with the label names and the index of X.
        """
        return self._framed(self._score_numbers(self.prepared(X)), X, as_frame=as_frame)

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the fitted model to one file for :func:`cgmvae.load`; no pickle is involved.

        The loaded model predicts exactly what this one does.
        """
        check_is_fitted(self)
        save_model(self, path)

    # Whole label sets; only some methods learn which labels come together.

    def sample_labels(
        self, X: Any, n_draws: int = 100, random_state: Any = None
    ) -> NDArray[np.bool_]:
        """Draw whole label sets of each row, (n_draws, n_samples, n_labels).

        Each label is present as often as ``predict_proba`` says. Labels come together as the model
        has learned beyond their features (``label_factors_``); of a method that does not learn
        that, they are drawn one by one.
        """
        check_whole(1, n_draws=n_draws)
        rng = np.random.default_rng(int(check_random_state(random_state).randint(2**31 - 1)))
        return draw_label_sets(self.predict_proba(X), loadings_of(self), n_draws, rng)

    def label_set_log_likelihood(
        self, X: Any, Y: Any, n_draws: int = 256, random_state: Any = 0
    ) -> LogLikelihood:
        """Return the log-likelihood of each row's whole label set, and its standard error.

        Unknown labels are left out. ``n_draws`` draws of the factors are weighted; without factors,
        it is the sum of the labels' own log-likelihoods, and has no error.
        """
        check_whole(2, n_draws=n_draws)
        scores = self.predict_proba(X)
        targets = targets_of_rows(scores, Y, self.label_names_)
        labels = dense(targets.labels).astype(bool)
        known = np.ones_like(labels) if targets.unknown is None else ~dense(targets.unknown)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        loadings = loadings_of(self)
        return label_set_log_likelihood(scores, labels, known, loadings, n_draws=n_draws, seed=seed)

    def predict_count(self, X: Any, level: float = 0.95) -> LabelCounts:
        """Return how many labels each row is expected to have, and an interval of this level.

        The interval knows that labels come together, but not that probabilities may be wrong, as
        they are far from the training rows.
        """
        if not 0 < level < 1:
            raise InputError(f"The level is {level}; it must be between 0 and 1.")
        return count_labels(self.predict_proba(X), loadings_of(self), level)

    def most_probable_set(self, X: Any) -> NDArray[np.bool_]:
        """Return the label set of each row that is most probable as a whole, (n_samples, n_labels).

        It is right about all labels at once most often, but wrong about single labels more often
        than ``predict``, whose thresholds are learned for ``threshold_metric``.
        """
        return most_probable_sets(self.predict_proba(X), loadings_of(self))

    def label_correlation(self, kind: CorrelationKind = "residual") -> LabelCorrelation:
        """Return how labels come together in one of three senses, with an interval of 95%.

        None of the three is proof that one label acts on another: a cause that is not among the
        features gives the same numbers.

        Parameters
        ----------
        kind : {"observed", "response", "residual"}
            ``observed`` is the correlation of the labels in the training rows. ``response`` is
            :meth:`label_similarity`: labels that respond alike to the features; its interval goes
            from the lowest to the highest member. ``residual`` is the correlation beyond what the
            features explain, of the probit on rows scored out of fold; its interval is as wide as
            that of the pair by itself.
        """
        check_is_fitted(self)
        return label_correlation(self, kind)

    def member_similarities(self) -> NDArray[np.floating]:
        """Return :meth:`label_similarity` of each member, (n_members, n_labels, n_labels)."""
        return self.label_similarity()[None]

    # Labels that are alike, of methods that learn which are.

    def label_similarity(self) -> NDArray[np.floating]:
        """Return the similarity of all pairs of labels, (n_labels, n_labels)."""
        raise InputError(
            f"{type(self).__name__} does not learn which labels are similar; use C-GMVAE or MPVAE."
        )

    def nearest_labels(self, name: str, k: int = 5) -> list[tuple[str, float]]:
        """Return the k labels most similar to this one with their similarity, highest first."""
        index = self.label_index(name)
        similarity = self.label_similarity()[index]
        return [
            (self.label_names_[i], float(similarity[i])) for i in most_similar(similarity, index, k)
        ]

    def label_index(self, name: str) -> int:
        """Return the index of the label of this name."""
        check_is_fitted(self)
        if name not in self.label_names_:
            close = difflib.get_close_matches(str(name), self.label_names_, 3)
            hint = f" Did you mean {', '.join(close)}?" if close else ""
            raise InputError(f"There is no label {name!r}.{hint}")
        return list(self.label_names_).index(name)

    # What X is for the model.

    def input_kinds(self) -> dict[str, ColumnType] | None:
        """Return the type of each column of X by name; None if the model knows no names."""
        check_is_fitted(self)
        if self.pipeline_.columns is not None:
            return dict(self.pipeline_.columns.kinds)
        return None if self.input_names_ is None else dict.fromkeys(self.input_names_, "number")

    def prepared(self, X: Any) -> Matrix:
        """Return the encoded features of X before scaling, (n_samples, n_inputs)."""
        check_is_fitted(self)
        return self.pipeline_.numbers(self._validated(X, reset=False))

    def prepared_names(self) -> list[str]:
        """Return the names of the encoded features."""
        check_is_fitted(self)
        return self.pipeline_.feature_names(self.input_names_)

    def novelty(self, X: Any) -> NDArray[np.float64]:
        """Return how far each row lies outside the training rows, (n_samples,).

        That is, in the column where it is furthest, how far the value is from the range of the
        training rows, as a share of the range's width: 0 within all ranges, 1 a whole range beyond.
        A row within all ranges can still be an unusual combination. Only columns of numbers count.
        """
        check_is_fitted(self)
        if self.pipeline_.ranges is None:
            raise InputError(
                "Only dense columns of numbers have a range, and the model was fitted on none, so "
                "it cannot say how new a row is."
            )
        return self.pipeline_.ranges.excess(self._validated(X, reset=False)).max(axis=1)

    def inputs(self, X: Any) -> Matrix:
        """Return X as the method sees it: prepared, scaled, encoded, and its components."""
        numbers = self.prepared(X)
        return self.pipeline_.transform(numbers)

    # From X and Y to prepared rows.

    def _begin(self, X: Any, Y: Any, validation_data: Any, sample_weight: Any, groups: Any) -> Fit:
        """Check the arguments of ``fit``; return the rows to learn from, and a seed.

        Parameters of a wrong type or range are rejected here, and an unknown threshold metric, not
        after training.
        """
        check_declared(type(self), vars(self))
        check_choice(self.threshold_rule, self.threshold_metric)
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
        if train.weights is not None and not train.weights.all():
            kept = np.flatnonzero(train.weights)
            train = train.take(kept)._replace(numbers=kept)
        train = _without_unlabeled(train)
        validation = None
        if validation_data is not None:
            validation = self._check_rows(*validation_data, reset=False).with_known_labels()
            if not validation.labeled().any():
                raise InputError(
                    "All labels of the validation rows are unknown; give rows whose labels are "
                    "known."
                )
        return Fit(train, validation, seed)

    def _divided(self, fit: Fit) -> Fit:
        """Return the fit with rows held out, unless validation rows were given."""
        if fit.validation is not None:
            return fit
        train, seed = fit.train, fit.seed
        kept, held = holdout(train.labels, self.validation_fraction, seed=seed, groups=train.groups)
        return Fit(train.take(kept), train.take(held), seed)

    def _with_features(self, fit: Fit) -> Fit:
        """Plan the fit and learn the feature pipeline; return the fit with prepared rows."""
        pipeline = self.pipeline_
        numbers = self._for_training(pipeline.fit_columns(fit.train.features))
        self.plan_ = self.plan(DataProfile.of(numbers, fit.train.labels))
        pipeline.fit(numbers, self.plan_.features)

        def prepare(rows: Rows) -> Rows:
            own = numbers
            if rows is not fit.train:
                own = self._for_training(pipeline.numbers(rows.features))
            features = pipeline.transform(own)
            return rows._replace(features=computed(features) if pipeline.reduces else features)

        return fit.each(prepare)

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
            self.classes_ = LabelClasses(self.n_labels_)
            if self.input_names_ is None and isinstance(Y, MultiLabelDataset):
                named = len(Y.feature_names) == self.n_features_in_
                self.input_names_ = tuple(Y.feature_names) if named else None
        return Rows(features, targets.labels, targets.unknown)

    def _validated(self, X: Any, *, reset: bool) -> Features:
        """Return X as numbers, as columns that need encoding, or as rows that stay on disk."""
        X = X.tocsr() if sp.issparse(X) else X  # a DOK array is a mapping, like a table
        if reset:
            table = table_columns(X)
            self.pipeline_ = FeaturePipeline(None if table is None else table.by_name())
            self.input_names_ = None
            if table is not None:
                self.n_features_in_ = table.shape[1]
                self.feature_names_in_ = np.array(table.names, dtype=object)
                self.input_names_ = tuple(table.names)
                return table
        elif self.pipeline_.columns is not None:
            return match_columns(X, self.pipeline_.columns.kinds)
        elif isinstance(X, Columns | Mapping) or self._is_matched_by_name(X):
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
        names = getattr(self, "feature_names_in_", None)
        if reset and names is not None:
            self.input_names_ = tuple(map(str, names))
        if reset and not sp.issparse(X):
            X = stored_by_values(X)
        return canonical(X) if sp.issparse(X) else X

    def _is_matched_by_name(self, X: Any) -> bool:
        """Return whether X is a table that is not just that of ``fit``, with columns in order."""
        if self.input_names_ is None or not hasattr(X, "columns"):
            return False
        return not hasattr(self, "feature_names_in_") or list(self.input_names_) != list(X.columns)

    def _for_training(self, features: Features) -> Features:
        """Return features as rows read in batches, or all in memory, as the method needs them."""
        if self.reads_batches and not isinstance(features, Columns):
            return MappedRows.of(features)
        return np.asarray(features) if isinstance(features, MappedRows) else features

    # From numbers to scores and the threshold rule.

    def _unseen_rows(self, fit: Fit) -> tuple[Rows, NDArray[np.floating]]:
        """Return rows that the model, or models like it, did not learn from, and their scores."""
        assert fit.validation is not None
        if fit.train.labels.shape[0] + fit.validation.labels.shape[0] < out_of_fold.FEW_ROWS:
            return out_of_fold.score_out_of_fold(self, fit.train, fit.validation, fit.seed)
        return fit.validation, self._score_rows(fit.validation.features)

    def _score_numbers(self, numbers: Matrix) -> NDArray[np.floating]:
        """Return probabilities for encoded rows; those on disk are read in their order there."""
        if not isinstance(numbers, MappedRows):
            scores = self._score_block(numbers)
        else:
            blocks = numbers.in_reading_order().blocks()
            scores = np.concatenate([self._score_block(block) for _, block in blocks])
            scores = scores[np.argsort(numbers.reading_order())]
        if not np.isfinite(scores).all():
            row = int(np.argmin(np.isfinite(scores).all(axis=1)))
            columns = self.pipeline_.transform(dense(MappedRows.of(numbers).gather([row])))
            largest = self.pipeline_.largest_input(dense(columns)[0])
            raise NonFiniteScores(row, self.prepared_names()[largest])
        return scores

    def _score_block(self, numbers: Matrix) -> NDArray[np.floating]:
        """Return probabilities for encoded rows in memory, dense ones by the predictor."""
        by_scorer = self.predicts_by_scorer and not is_sparse(numbers)
        predictor = self.predictor() if by_scorer else None
        if predictor is None:
            return self._score_rows(self.columns(numbers))
        return scored(predictor, dense(numbers))

    def columns(self, numbers: Matrix) -> Matrix:
        """Return encoded rows in memory as the method sees them; components by the predictor."""
        if not self.pipeline_.reduces:
            return self.pipeline_.transform(numbers)
        return scored(PreparedFeatures(self.pipeline_), dense(numbers))

    def score_columns(self, columns: Matrix) -> NDArray[np.floating]:
        """Return probabilities for what :meth:`columns` returns."""
        scorer = self.scorer() if self.predicts_by_scorer and not is_sparse(columns) else None
        if scorer is None:
            return self._score_rows(columns)
        return scored(scorer, dense(columns))

    def predictor(self) -> Predictor | None:
        """Return the fitted model as one module; None if :meth:`scorer` is None."""
        scorer = self.scorer()
        return None if scorer is None else Predictor(PreparedFeatures(self.pipeline_), scorer)

    def _learned_rule(self, rows: Rows, scores: NDArray[np.floating]) -> ThresholdRule:
        """Return the rule of ``predict``, learned on rows with these scores."""
        return learn_rule(
            rows.labels,
            scores,
            rule=self.threshold_rule,
            metric=self.threshold_metric,
            unknown=rows.unknown,
        )

    def _set_rule(self, rows: Rows, scores: NDArray[np.floating], *, out_of_fold: bool) -> None:
        """Learn the rule of ``predict`` on rows with these scores, and keep all thresholds."""
        self.threshold_rule_ = self._learned_rule(rows, scores)
        self.threshold_curve_ = threshold_curve(
            rows.labels, scores, unknown=rows.unknown, out_of_fold=out_of_fold
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


def _without_unlabeled(train: Rows) -> Rows:
    """Return the rows to learn from; say in one line which rows are left out."""
    labeled = train.labeled()
    if labeled.all():
        return train
    warn(
        f"{(~labeled).sum():,} rows without labels are left out; the model is learned from "
        f"the other {labeled.sum():,}.",
        category=UnlabeledRowsWarning,
    )
    kept = np.flatnonzero(labeled)
    numbers = kept if train.numbers is None else train.numbers[kept]
    return train.take(kept)._replace(numbers=numbers)


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
    group_numbers(groups)  # they must be sortable
    return groups


def most_similar(similarity: NDArray[np.floating], own: int, k: int) -> NDArray[np.int64]:
    """Return the indices of the k highest similarities except ``own``, highest first."""
    order = np.argsort(-similarity, kind="stable")
    return order[order != own][: max(k, 0)]
