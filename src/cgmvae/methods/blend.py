"""Several experts, weighed by what they score out of fold.

Every expert gives probabilities of rows that it did not learn from: out-of-fold rows of a network,
out-of-bag rows of trees, votes of other rows; an expert without any is fitted on folds. One place,
:mod:`cgmvae.methods.combination`, weighs their log-odds, and an expert that does not help is
dropped. Thresholds are learned on blended probabilities of rows that did not choose the weights.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.data.mapped import MappedRows, dense, is_sparse
from cgmvae.declared import as_declared
from cgmvae.errors import InputError, listed
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.cgmvae import CGMVAEClassifier
from cgmvae.methods.combination import Combination, ExpertRecord, weigh_experts
from cgmvae.methods.communities import (
    label_set_arrays,
    learn_label_sets,
    restore_label_sets,
    with_known_labels,
)
from cgmvae.methods.inputs import Fit, LabelWarning, Rows, UnlabeledRowsWarning
from cgmvae.methods.linear import MAX_WEIGHTS, MAX_WORK, LinearSVM
from cgmvae.methods.model_file import (
    describe_parameters,
    model_state,
    restore_model,
    restore_parameters,
    with_prefix,
)
from cgmvae.methods.neighbors import MAX_CELLS, MAX_ROWS, NearestVotes
from cgmvae.methods.out_of_fold import N_FOLDS, FewRowsWarning, assign_folds, score_folds
from cgmvae.methods.predictor import WeightedExperts
from cgmvae.methods.registry import REGISTRY, method_name
from cgmvae.methods.trees import MixedForest
from cgmvae.preparation import FeaturePipeline
from cgmvae.training.device import find_device

Experts: TypeAlias = Sequence[tuple[str, Any]]


class NoNetwork(InputError, AttributeError):
    """The blend has no C-GMVAE expert, so that it lacks what comes from one."""


@dataclass(kw_only=True, eq=False, repr=False)
class BlendClassifier(_BaseComposition, MultiLabelClassifier):
    """Several multi-label classifiers, weighed by what they score out of fold.

    Parameters
    ----------
    experts : "auto" or list of (str, estimator)
        Multi-label classifiers of this library or with scikit-learn's interface, by name. Those
        that score their own training rows (networks with folds, trees out of bag, …) are fitted
        once; any other is fitted on five folds, and then on all rows. "auto" is C-GMVAE, a
        mixed forest, votes of near rows, and linear support vector machines where features are
        sparse.
    auto_network : CGMVAEClassifier, optional
        The C-GMVAE of "auto", not fitted, with its preset, members, checkpoint and so on.
    keep_training_rows : bool
        Whether experts may store training rows, as forests and votes do. If not, "auto" goes
        without these, and a list that has such experts is refused.
    conditional : bool
        Whether ``fit`` also learns which labels come together beyond the blended probabilities; see
        :class:`~cgmvae.methods.cgmvae.CGMVAEClassifier`.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`. Experts get scaled features, in
        which missing values are filled. If ``fit`` is given validation rows, these choose weights
        and thresholds.

    Attributes
    ----------
    models_ : dict of str to estimator
        The fitted experts that were not dropped.
    experts_ : list of ExpertRecord
        Name, kind, weight and score of each expert, dropped or not.
    combination_ : Combination
        The weights of ``models_``, and a shift for each label.
    cgmvae_ : CGMVAEClassifier or None
        The first C-GMVAE among the fitted experts.
    label_factors_ : LabelFactors or None
        The factors that labels share beyond the blended probabilities; None if label sets of rows
        held out are no more likely with them.
    label_pairs_ : LabelPairs or None
        Correlations of pairs of labels, of at most 1,000 labels.
    oof_proba_ : array, (n_rows, n_labels)
        Blended probabilities of rows that neither the experts nor their weights were learned from;
        not stored with the model, absent if validation rows were given.
    oof_rows_ : array, (n_rows,)
        The rows of X that they belong to.

    Notes
    -----
    Label similarities and uncertainty come from the C-GMVAE expert, which is never dropped. Experts
    of "auto" get features that the blend has scaled, so that the ``scaling`` of ``auto_network`` is
    not used.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> from cgmvae.methods import BinaryRelevance
    >>> data, _ = make_survey(300, 5, 6, seed=1)
    >>> experts = [("trees", MixedForest(n_trees=20)), ("logistic", BinaryRelevance())]
    >>> model = BlendClassifier(experts, random_state=0).fit(data.X, data.Y)
    >>> model.predict_proba(data.X).shape, list(model.weights_)
    ((300, 6), ['trees', 'logistic'])
    """

    scores_own_rows: ClassVar[bool] = True
    reads_batches: ClassVar[bool] = True
    predicts_by_scorer: ClassVar[bool] = False  # experts predict as fast as they can

    experts: Any = field(default="auto", kw_only=False)
    auto_network: CGMVAEClassifier | None = None
    keep_training_rows: bool = True
    conditional: bool = True

    models_: dict[str, Any] = field(init=False)
    experts_: list[ExpertRecord] = field(init=False)
    combination_: Combination = field(init=False)

    @property
    def weights_(self) -> dict[str, float]:
        """What the log-odds of each expert are multiplied by; 0 if it was dropped."""
        return {expert.name: expert.weight for expert in self.experts_}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with ``deep`` also those of the experts as ``name__parameter``."""
        return self._get_params("experts", deep=deep)

    def set_params(self, **parameters: Any) -> BlendClassifier:
        """Set parameters; those of an expert are named ``name__parameter``."""
        return self._set_params("experts", **parameters)

    def _fit_rows(self, train: Rows, validation: Rows | None, seed: int) -> None:
        train = train._replace(features=_in_memory(train.features))
        if validation is not None:
            validation = validation._replace(features=_in_memory(validation.features))
        experts = self._unfitted_experts(train)
        seeds = np.random.SeedSequence(seed).generate_state(len(experts)).tolist()
        found = {
            name: _fit_and_score(_seeded(model, own), train, validation, seed)
            for (name, model), own in zip(experts, seeds, strict=True)
        }
        # A network with fewer members than folds does not score all rows.
        common = reduce(np.intersect1d, [expert.rows for expert in found.values()])
        if len(common) == 0:
            raise InputError("No row is scored by all experts; give networks as many members.")
        scored = (train if validation is None else validation).take(common)
        scores = {
            name: expert.scores[np.searchsorted(expert.rows, common)]
            for name, expert in found.items()
        }
        keep = {name for name, model in experts if isinstance(model, CGMVAEClassifier)}
        weighed = weigh_experts(scored, scores, keep=keep, metric=self.threshold_metric, seed=seed)
        self.models_ = {name: found[name].model for name in weighed.names}
        for model in self.models_.values():
            if isinstance(model, MultiLabelClassifier):
                model.label_names_ = self.label_names_
        self._share_pipelines()
        self.combination_ = weighed.combination
        weights = dict(zip(weighed.names, weighed.combination.weights.tolist(), strict=True))
        self.experts_ = [
            ExpertRecord(
                name,
                _kind(model),
                weights.get(name, 0.0),
                weighed.alone[name],
                weighed.gains.get(name),
            )
            for name, model in experts
        ]
        self._unseen = scored, weighed.scores
        learn_label_sets(self, *self._unseen, find_device("auto"))
        if validation is None:
            self.oof_proba_ = weighed.scores
            self.oof_rows_ = common if train.numbers is None else train.numbers[common]

    def _unseen_rows(self, fit: Fit) -> tuple[Rows, NDArray[np.floating]]:
        unseen = self._unseen
        del self._unseen
        return unseen

    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        own = [m.pipeline_ for m in self.models_.values() if isinstance(m, MultiLabelClassifier)]
        columns: dict[int, Matrix] = {}  # of pipelines that several experts share

        def scores(model: Any) -> NDArray[np.floating]:
            pipeline = getattr(model, "pipeline_", None)
            if sum(pipeline is each for each in own) < 2:
                return _probabilities(model, features, self.n_labels_)
            if id(pipeline) not in columns:
                columns[id(pipeline)] = model.columns(features)
            found: NDArray[np.floating] = model.score_columns(columns[id(pipeline)])
            return found

        return self.combination_.apply([scores(model) for model in self.models_.values()])

    def _share_pipelines(self) -> None:
        """Give one pipeline to experts whose own have learned the same, to be applied once."""
        distinct: list[FeaturePipeline] = []
        for model in self.models_.values():
            # What comes from an encoder of one's own is not what the other experts get.
            if isinstance(model, MultiLabelClassifier) and getattr(model, "encoder_", None) is None:
                own = model.pipeline_
                model.pipeline_ = next((each for each in distinct if each.equals(own)), own)
                distinct.append(model.pipeline_)

    def scorer(self) -> WeightedExperts | None:
        """Return the weighted experts as a module; None if one of them has none."""
        own = (
            model.predictor() if isinstance(model, MultiLabelClassifier) else None
            for model in self.models_.values()
        )
        experts = [each for each in own if each is not None]
        if len(experts) < len(self.models_):
            return None
        return WeightedExperts(experts, self.combination_.weights, self.combination_.shifts)

    def _unfitted_experts(self, train: Rows) -> Experts:
        if isinstance(self.experts, str):
            if self.experts != "auto":
                raise InputError(f'experts is {self.experts!r}; it must be "auto" or a list.')
            experts = default_experts(train, self._unfitted_network())
            return [each for each in experts if self.keep_training_rows or not keeps_rows(each[1])]
        if self.auto_network is not None:
            raise InputError('auto_network is that of "auto"; put it into the list of experts.')
        experts = [(name, clone(model)) for name, model in self.experts]
        if not experts:
            raise InputError('experts is empty; give at least one, or "auto".')
        self._validate_names([name for name, _ in experts])
        kept = [name for name, model in experts if keeps_rows(model)]
        if kept and not self.keep_training_rows:
            raise InputError(
                f"keep_training_rows is False, but {listed(kept)} may store training rows; leave "
                "them out."
            )
        return experts

    def _unfitted_network(self) -> CGMVAEClassifier:
        """Return the C-GMVAE of "auto"; its checkpoint and progress are not copied."""
        given = CGMVAEClassifier() if self.auto_network is None else self.auto_network
        if not isinstance(given, CGMVAEClassifier):
            raise InputError(f"auto_network is {type(given).__name__}; give a CGMVAEClassifier.")
        own = {"checkpoint": given.checkpoint, "progress": given.progress}
        # The blend learns which labels come together, around its own probabilities.
        return clone(given).set_params(scaling="none", conditional=False, **own)

    def selection_title(self) -> str:
        """Return the name of the metric that chooses the best epoch of the C-GMVAE of "auto"."""
        network = self._unfitted_network()
        network.plan_ = network.plan(self.plan_.profile)
        return network.selection_title()

    # What the C-GMVAE expert knows.

    @property
    def cgmvae_(self) -> CGMVAEClassifier | None:
        """The C-GMVAE expert, which label similarities and uncertainty come from."""
        found = (m for m in self.models_.values() if isinstance(m, CGMVAEClassifier))
        return next(found, None)

    @property
    def _network(self) -> CGMVAEClassifier:
        check_is_fitted(self)
        if self.cgmvae_ is None:
            raise NoNetwork("None of the experts is C-GMVAE, which this comes from; add one.")
        return self.cgmvae_

    def predict_proba(self, X: Any, known: Any = None, *, as_frame: bool = False) -> Any:
        """Return the probability of every label, (n_samples, n_labels).

        ``known`` labels are returned as they are known, and what is learned about the others from
        them is added to the blended probabilities; see
        :meth:`~cgmvae.methods.cgmvae.CGMVAEClassifier.predict_proba`.
        """
        scores = super().predict_proba(X)
        if known is not None:
            scores = with_known_labels(self, scores, known)
        return self._framed(scores, X, as_frame=as_frame)

    @property
    def similarity_is(self) -> str | None:  # type: ignore[override]
        """Description of the label similarity; None without a C-GMVAE expert."""
        network = self.cgmvae_ if hasattr(self, "models_") else None
        return None if network is None else f"{network.similarity_is} in the C-GMVAE expert"

    def label_similarity(self, *, normalize: bool = True) -> NDArray[np.floating]:
        """Return how alike the labels' embeddings are in the C-GMVAE expert."""
        return self._network.label_similarity(normalize=normalize)

    def member_similarities(self) -> NDArray[np.floating]:
        """Return the label similarity of each member of the C-GMVAE expert."""
        return self._network.member_similarities()

    def uncertainty(
        self, X: Any, n_draws: int = 8, random_state: Any = None
    ) -> NDArray[np.floating]:
        """Return how much each probability of the C-GMVAE expert varies, (n_samples, n_labels)."""
        return self._network.uncertainty(self.inputs(X), n_draws, random_state)

    # Model files.

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        combination = self.combination_
        arrays = {"weights": combination.weights, "shifts": combination.shifts}
        arrays |= label_set_arrays(self)
        models = {}
        for i, (name, model) in enumerate(self.models_.items()):
            if not isinstance(model, MultiLabelClassifier):
                raise InputError(
                    f"The expert {name!r} is a {type(model).__name__}, which cannot be saved "
                    "without pickle; leave it out, or pickle the blend."
                )
            tensors, models[name] = model_state(model)
            arrays |= {f"experts.{i}.{key}": array for key, array in tensors.items()}
        given = None
        if not isinstance(self.experts, str):
            own = ((n, m) for n, m in self.experts if isinstance(m, MultiLabelClassifier))
            given = {name: describe_parameters(model) for name, model in own}
        records = [dataclasses.asdict(record) for record in self.experts_]
        network = None if self.auto_network is None else describe_parameters(self.auto_network)
        return arrays, {
            "records": records,
            "models": models,
            "given": given,
            "auto_network": network,
        }

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        restore_label_sets(self, arrays)
        records = description["records"]
        self.experts_ = [ExpertRecord(**as_declared(ExpertRecord, each)) for each in records]
        self.models_ = {
            name: self._restore_expert(with_prefix(arrays, f"experts.{i}."), model)
            for i, (name, model) in enumerate(description["models"].items())
        }
        self._share_pipelines()
        if (given := description["given"]) is not None:
            self.experts = [(name, restore_parameters(each)) for name, each in given.items()]
        if (network := description["auto_network"]) is not None:
            self.auto_network = restore_parameters(network)
        n_experts = len(self.models_)
        weights, shifts = arrays["weights"], arrays["shifts"]
        if not n_experts or weights.shape != (n_experts,) or shifts.shape != (self.n_labels_,):
            raise ValueError("it does not have a weight for each expert and a shift for each label")
        self.combination_ = Combination(weights.astype(np.float64), shifts.astype(np.float64))

    def _restore_expert(self, tensors: dict[str, NDArray[Any]], description: Any) -> Any:
        model = restore_model(tensors, description)
        if model.n_labels_ != self.n_labels_ or model.n_features_in_ != self.pipeline_.n_columns:
            raise ValueError("its experts have other features or labels")
        return model


def default_experts(train: Rows, network: CGMVAEClassifier) -> Experts:
    """Return the experts of "auto" for scaled rows, none of them fitted.

    Experts that compare all rows, or weigh all words, are left out where these are very many.
    """
    n_rows, n_columns = train.features.shape
    n_labels = train.labels.shape[1]
    experts: list[tuple[str, Any]] = [("cgmvae", network), ("trees", MixedForest(scaling="none"))]
    if is_sparse(train.features):
        n_stored = MappedRows.of(train.features).n_stored
        if n_columns * n_labels <= MAX_WEIGHTS and n_stored * n_labels <= MAX_WORK:
            experts.append(("linear", LinearSVM(scaling="none")))
    if n_rows <= MAX_ROWS and n_rows * n_columns <= MAX_CELLS:
        experts.append(("votes", NearestVotes(scaling="none")))
    return experts


def keeps_rows(model: Any) -> bool:
    """Return whether an expert stores training rows, or is of a kind that nothing is known of."""
    name = method_name(model)
    return name not in REGISTRY or REGISTRY[name].keeps_rows


class _FittedExpert(NamedTuple):
    """An expert, and its probabilities of rows that it did not learn from."""

    model: Any
    rows: NDArray[np.int64]
    """Their positions among the training or validation rows, in ascending order"""
    scores: NDArray[np.floating]


def _fit_and_score(model: Any, train: Rows, validation: Rows | None, seed: int) -> _FittedExpert:
    """Fit an expert, and score the validation rows, or the training rows out of fold."""
    n_labels = train.labels.shape[1]
    _fit(model, train, validation)
    if validation is not None:
        scores = _probabilities(model, validation.features, n_labels)
    elif not isinstance(model, MultiLabelClassifier):
        scores = _score_folds(model, train, seed)
    elif not model.scores_own_rows:
        scores = score_folds(model, train._replace(features=model.inputs(train.features)), seed)
    else:
        order = np.argsort(model.oof_rows_)
        return _FittedExpert(model, model.oof_rows_[order], model.oof_proba_[order])
    return _FittedExpert(model, np.arange(len(scores)), scores)


def _score_folds(model: Any, train: Rows, seed: int) -> NDArray[np.floating]:
    """Return the scores of rows by an estimator of another library, fitted on the other folds."""
    fold, scores = assign_folds(train, N_FOLDS, seed), np.zeros(train.labels.shape)
    for k in range(fold.max() + 1):
        of_others, held = clone(model), np.flatnonzero(fold == k)
        _fit_foreign(of_others, train.take(np.flatnonzero(fold != k)))
        scores[held] = _probabilities(of_others, train.features[held], train.labels.shape[1])
    return scores


def _fit(model: Any, train: Rows, validation: Rows | None = None) -> None:
    """Fit an expert to scaled rows."""
    if not isinstance(model, MultiLabelClassifier):
        _fit_foreign(model, train)
        return
    held = None
    if validation is not None:
        held = validation.features, _as_labels(validation)
    features, labels = train.features, _as_labels(train)
    with warnings.catch_warnings():
        for kind in (FewRowsWarning, LabelWarning, UnlabeledRowsWarning):  # the blend has warned
            warnings.simplefilter("ignore", kind)
        model.fit(
            features, labels, validation_data=held, sample_weight=train.weights, groups=train.groups
        )


def _as_labels(rows: Rows) -> MultiLabelDataset:
    nothing = sp.csr_array((rows.labels.shape[0], 1))
    return MultiLabelDataset(nothing, rows.labels, unknown=rows.unknown)


def _fit_foreign(model: Any, train: Rows) -> None:
    """Fit an estimator that is not one of this library."""
    name = type(model).__name__
    if train.unknown is not None and train.unknown.sum():
        raise InputError(
            f"{name} does not take unknown labels; give BinaryRelevance of a classifier instead, "
            "which learns each label from the rows that know it."
        )
    weights = {}
    if train.weights is not None:
        if not has_fit_parameter(model, "sample_weight"):
            raise InputError(f"{name} does not take sample weights; leave it or them out.")
        weights = {"sample_weight": train.weights}
    # Some estimators give -1 to absent labels, in the type of the labels.
    model.fit(_foreign(train.features), dense(train.labels).astype(np.int64), **weights)


def _probabilities(model: Any, features: Any, n_labels: int) -> NDArray[np.floating]:
    """Return the probabilities of an expert, (n_rows, n_labels), whatever form it gives them."""
    if isinstance(model, MultiLabelClassifier):
        return model.predict_proba(features)
    features = _foreign(features)
    if hasattr(model, "predict_proba"):
        found = model.predict_proba(features)
        if isinstance(found, list):  # of all classes, for each label
            classes = zip(found, model.classes_, strict=True)
            found = np.column_stack([each @ np.asarray(own, float) for each, own in classes])
    elif hasattr(model, "decision_function"):
        found = expit(model.decision_function(features))
    else:
        raise InputError(
            f"{type(model).__name__} has neither predict_proba nor decision_function; wrap it in "
            "CalibratedClassifierCV and OneVsRestClassifier."
        )
    found = np.asarray(found, np.float64)
    if found.ndim == 1 and n_labels == 1:
        found = found[:, None]
    if found.shape == (features.shape[0], 2) and n_labels == 1:
        found = found[:, 1:]
    if found.shape != (features.shape[0], n_labels):
        raise InputError(
            f"{type(model).__name__} gave probabilities of shape {found.shape}, not "
            f"({features.shape[0]}, {n_labels}); wrap it in OneVsRestClassifier."
        )
    return found


def _in_memory(features: Any) -> Any:
    """Return rows as a matrix, unless they are on disk, where networks read them."""
    if not isinstance(features, MappedRows) or features.on_disk:
        return features
    return features.gather(np.arange(len(features)))


def _foreign(features: Any) -> Any:
    """Return features in the form of all libraries: few know sparse arrays."""
    if isinstance(features, MappedRows):
        return np.asarray(features)
    return sp.csr_matrix(features) if sp.issparse(features) else features


def _seeded(model: Any, seed: int) -> Any:
    """Return an expert with this seed wherever it has none."""
    parameters = model.get_params().items()
    own = {n: seed for n, v in parameters if n.rpartition("__")[2] == "random_state" and v is None}
    return model.set_params(**own)


def _kind(model: Any) -> str:
    name = method_name(model)
    return REGISTRY[name].title if name in REGISTRY else name
