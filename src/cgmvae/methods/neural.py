"""What the neural methods share: members, one training, averaged predictions.

A method says how its network is built from a plan and which loss terms it weighs; it gets
ensembles, early stopping, checkpoints and the GPU in return. A fit is read in :func:`begin_fit`,
:func:`train_together` and :func:`finish_fit`; that of one estimator is that of several.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows, StackedRows, dense
from cgmvae.declared import as_declared, check_declared
from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import count
from cgmvae.evaluation.thresholds import GlobalThreshold, ThresholdRule
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Fit, Rows, check_dropout, check_whole, recorded_warnings
from cgmvae.methods.model_file import read_config, with_prefix
from cgmvae.methods.out_of_fold import assign_folds, warn_of_few_rows
from cgmvae.methods.predictor import SCORED_CELLS, SCORED_ROWS, MeanOfMembers, joined
from cgmvae.model.plan import DataProfile, Plan, feature_plan, given_fields
from cgmvae.nn.rng import RandomStreams, TorchStreams
from cgmvae.nn.sparse import SparseRows
from cgmvae.preparation.components import NumberOfComponents
from cgmvae.preparation.piecewise import EncodingName
from cgmvae.preparation.pipeline import padded
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.device import find_device, machine_memory
from cgmvae.training.loop import Keep, Progress
from cgmvae.training.pack import LabelRows, Pack, Task, TrainedMembers, label_log_odds
from cgmvae.training.plan import Member, TrainingConfig, column
from cgmvae.training.progress import EpochLines
from cgmvae.training.rows import is_wide, sparse_rows
from cgmvae.training.selection import selection_title

#: Maximum number of out-of-fold probabilities to keep; beyond it, a sample of the rows is used.
_OOF_CELLS = 2**26

#: Probabilities are taken for calibrated if their sum is this close to the number of positives.
_CALIBRATED = 0.1

#: Copies of its weights that a member needs in training: weights, gradients, two moments, the best
#: weights, and one more for everything else.
_COPIES = 6

#: A batch has at most as many rows as there are, or as this. Smaller batches are always filled up:
#: what a member draws at random may depend on their size, but not on the rows of other members.
_FILLED_BATCH = 1024

#: Training rows whose probabilities tell whether weights may be rounded to float16, and how much
#: these may move.
_SAMPLE, _MAX_MOVE = 256, 1e-3


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralClassifier(MultiLabelClassifier):
    """Base of the methods that are networks.

    Parameters
    ----------
    epochs : int
        Passes over the training rows; the best one on validation rows is kept.
    batch_size : int
        Rows per step.
    learning_rate, weight_decay : float
        Of AdamW; the rate rises and falls as ``training`` says (cosine by default).
    dropout, input_dropout : float
        Probability of dropping a hidden unit, and a feature.
    training : mapping or TrainingConfig, optional
        Any further field of :class:`~cgmvae.training.plan.TrainingConfig`, such as
        ``{"patience": 10}``.
    n_members : int
        Models that are trained together and averaged. Unless ``fit`` is given validation rows,
        each member is trained without one fold of the rows, which chooses its best epoch.
    n_folds : int, optional
        Number of folds; several members share a fold if there are more members than folds. By
        default as many as members, or ``1 / validation_fraction`` for fewer than four members.
    encoding : {"auto", "piecewise-linear", "standard"}
        Whether continuous features get piecewise-linear columns next to their scaled values; see
        :class:`~cgmvae.preparation.piecewise.PiecewiseLinear`. Their number is decided by
        :mod:`cgmvae.model.plan`; ``auto`` has fewer for wide tables.
    principal_components : int, "auto" or None
        Principal components that the network learns from, if there are more encoded features; None
        for the features themselves. See
        :class:`~cgmvae.preparation.components.PrincipalComponents`.
    members : sequence of mapping, optional
        For members that differ, the parameters of each: learning rate, weight decay, dropout and
        weights of terms, whatever leaves the network's sizes and the training plan as they are.
        Their number then takes the place of ``n_members``.
    device : str
        "auto" is the GPU if there is one.
    checkpoint : path, optional
        A file to save the state of training in, once a minute at most; a fit that was stopped
        resumes from it, and removes it at the end. A ``Checkpoint`` is not removed.
    progress : callable or bool, optional
        Called after each epoch with its number, the number of epochs and the best metric so far;
        True prints them, and the time left, as lines.

    Attributes
    ----------
    network_ : nn.Module
        All members.
    history_ : dict of str to array (n_epochs, n_members)
        Training terms and the validation metric of each epoch.
    best_epoch_ : array, (n_members,)
        The epoch whose weights each member keeps.
    member_settings_ : list of mapping
        Rates, dropouts and loss weights that each member was trained with.
    member_folds_ : array, (n_members,)
        The fold that each member was not trained on; −1 with validation rows of their own.
    oof_proba_ : array, (n_rows, n_labels)
        Out-of-fold probabilities: the mean of the members that were not trained on the row. Not
        stored with the model; absent if validation rows were given.
    oof_rows_ : array, (n_rows,)
        The rows of X that they belong to: all of them, unless there are fewer members than folds,
        rows of weight 0, or so many cells that a sample has to do.
    oof_folds_ : array, (n_rows,)
        Their folds.
    """

    scores_own_rows: ClassVar[bool] = True
    reads_batches: ClassVar[bool] = True

    member_parameters: ClassVar[frozenset[str]] = frozenset(
        {"learning_rate", "weight_decay", "dropout", "input_dropout"}
    )
    """Parameters that estimators which are fitted together may differ in."""

    config_class: ClassVar[type]
    """The frozen dataclass of the network's sizes and switches."""

    network_class: ClassVar[type[nn.Module]]
    """Made from a config, the number of features, the label log-odds, streams, and each member's
    ``dropout``, ``input_dropout`` and own settings."""

    epochs: int | None = 40
    batch_size: int | None = 128
    learning_rate: float | None = 1e-3
    weight_decay: float | None = 0.01
    dropout: float | None = 0.2
    input_dropout: float | None = 0.0
    training: Mapping[str, Any] | TrainingConfig | None = None
    n_members: int = 8
    n_folds: int | None = None
    encoding: EncodingName = "auto"
    principal_components: NumberOfComponents = None
    members: Sequence[Mapping[str, Any]] | None = None
    device: str = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    progress: Progress | bool | None = None
    network_: Any = field(init=False)
    member_settings_: list[Mapping[str, Any]] = field(init=False)
    member_folds_: NDArray[np.int64] = field(init=False)

    # What a method gives: its terms, and how to build its network from a plan.

    def _weights(self) -> Mapping[str, float]:
        """Return the weight of each term of the objective."""
        raise NotImplementedError

    def _config(self, profile: DataProfile) -> Any:
        """Return the sizes and switches of the network; members of one pack share them."""
        raise NotImplementedError

    def _network_settings(self) -> Mapping[str, Any]:
        """Return further numbers that the network takes for each member."""
        return {}

    def plan(self, profile: DataProfile) -> Plan:
        """Return what ``fit`` does with such data."""
        features = feature_plan(profile, self.scaling, self.encoding, self.principal_components)
        given = given_fields(self.training, TrainingConfig)
        check_declared(TrainingConfig, given)
        training = TrainingConfig(**{"epochs": self.epochs, "batch_size": self.batch_size, **given})
        member = {
            "weights": dict(self._weights()),
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "dropout": self.dropout,
            "input_dropout": self.input_dropout,
            "settings": dict(self._network_settings()),
        }
        return Plan(profile, features, self._config(profile), training, member)

    def _network(
        self,
        members: Sequence[Member],
        label_log_odds: NDArray[np.float64],
        streams: RandomStreams,
    ) -> nn.Module:
        """Return a fresh network of these members, as planned."""
        own = [dict(member.settings or {}) for member in members]
        return self.network_class(
            self.plan_.network,
            self.pipeline_.n_columns,
            label_log_odds,
            streams,
            dropout=column(members, "dropout"),
            input_dropout=column(members, "input_dropout"),
            **{name: [each[name] for each in own] for name in own[0]},
        )

    def _show_labels(self, network: nn.Module, labels: list[tuple[LabelRows, int]]) -> None:
        """Show a fresh network the labels that its members train on.

        ``labels`` come with the number of consecutive members that share them.
        """

    def _compatible(self) -> Any:
        """Return what else estimators that are fitted together must agree in."""
        return None

    def _holds_out(self) -> bool:
        """Return whether all members hold out the same rows, in place of folds of their own."""
        return False

    def _learn_unseen(self, rows: Rows, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Learn from rows that no member, or only some, saw; return their scores after that."""
        return scores

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
        """Fit the model to labeled rows; see :meth:`MultiLabelClassifier.fit`."""
        fit = begin_fit(self, X, Y, validation_data, sample_weight, groups)
        train_together([self], [fit])
        finish_fit(self, fit)
        return self

    def _fit_rows(self, train: Rows, validation: Rows | None, seed: int) -> None:
        train_together([self], [Fit(train, validation, seed)])

    def _unseen_rows(self, fit: Fit) -> tuple[Rows, NDArray[np.floating]]:
        if fit.validation is not None:
            return fit.validation, self._score_rows(fit.validation.features)
        return _out_of_fold(self, fit)

    @torch.no_grad()
    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        scores = member_scores(self.network_, features)
        means = (members.mean(0).cpu().numpy() for members in scores)
        return joined(means, features.shape[0])

    def scorer(self) -> nn.Module:
        """Return the mean of the members as a module."""
        return MeanOfMembers(self.network_)

    def _learned_rule(self, rows: Rows, scores: NDArray[np.floating]) -> ThresholdRule:
        """Return the rule; for micro-F1 out of fold, correct the threshold for averaging.

        Single members are more extreme than their mean, and a threshold that is best for them may
        be too high for it. It is capped at F1/2, the optimum for calibrated probabilities (Lipton,
        Elkan and Naryanaswamy 2014), where their sum is that of the positives.
        """
        chosen = super()._learned_rule(rows, scores)
        if not isinstance(chosen, GlobalThreshold) or self.threshold_metric != "micro_f1":
            return chosen
        known = scores if rows.unknown is None else scores * ~dense(rows.unknown)
        excess = float(known.sum(dtype=np.float64)) / max(1.0, float(rows.labels.sum())) - 1
        if (self.member_folds_ < 0).any() or abs(excess) >= _CALIBRATED:
            return chosen
        reached = count(rows.labels, chosen.apply(scores), rows.unknown).value("micro_f1")
        return GlobalThreshold(min(chosen.threshold, float(reached) / 2))

    def selection_title(self) -> str:
        """Return the name of the metric that chooses the best epoch; known once fit has a plan."""
        assert self.plan_.training is not None
        return selection_title(self.plan_.training.selection)

    @property
    def pack_size(self) -> int:
        """Number of members that a fit trains."""
        return self.n_members if self.members is None else len(self.members)

    def n_fold_parts(self) -> int:
        """Return the number of folds that the rows are divided into."""
        if self.n_folds is not None:
            check_whole(2, n_folds=self.n_folds)
            return self.n_folds
        return self.pack_size if self.pack_size >= 4 else round(1 / self.validation_fraction)

    def changed(self, settings: Mapping[str, Any]) -> Self:
        """Return this estimator with other settings, planned for the same data."""
        other = copy.copy(self)
        try:
            other.set_params(members=None, **self.as_parameters(settings))
        except ValueError as error:
            raise InputError(f"A member cannot be made: {error}") from error
        other.plan_ = other.plan(self.plan_.profile)
        return other

    # In files.

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays = {name: v.detach().cpu().numpy() for name, v in self.network_.state_dict().items()}
        arrays |= {f"history.{name}": series for name, series in self.history_.items()}
        arrays |= {"best_epoch": self.best_epoch_, "best_value": self.best_value_}
        folds = self.member_folds_.tolist()
        return arrays, {"member_settings": self.member_settings_, "member_folds": folds}

    def _restore_plan(self, description: Any, n_weights: int) -> None:
        super()._restore_plan(description, n_weights)
        self.plan_ = dataclasses.replace(
            self.plan_,
            network=read_config(self.config_class, description["network"], n_weights),
            training=TrainingConfig(**as_declared(TrainingConfig, description["training"])),
            member=as_declared(Member, description["member"]),
        )

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        stored = description["member_settings"]
        self.member_settings_ = [as_declared(Member, settings) for settings in stored]
        nothing = np.zeros(0, np.int64)
        members = [
            Member(seed=seed, train_rows=nothing, validation_rows=nothing, **settings)
            for seed, settings in enumerate(self.member_settings_)
        ]
        n_weights = sum(array.size for array in arrays.values())
        if not 0 < len(members) * self.n_labels_ <= n_weights:
            raise ValueError("it has no members, or fewer weights than labels")
        log_odds = np.zeros((len(members), self.n_labels_))
        self.network_ = fill_network(
            lambda streams: self._network(members, log_odds, streams),
            arrays,
            n_members=len(members),
            device=find_device(self.device),
        )
        self.member_folds_ = np.array(description["member_folds"], np.int64)
        if self.member_folds_.shape != (len(members),):
            raise ValueError("it does not have one fold per member")
        self.history_ = with_prefix(arrays, "history.")
        self.best_epoch_, self.best_value_ = arrays["best_epoch"], arrays["best_value"]
        for series in (*self.history_.values(), self.best_epoch_, self.best_value_):
            if series.shape[-1:] != (len(members),) or series.dtype.kind not in "fi":
                raise ValueError("its history is not that of its members")


_NotAlike = InputError(
    "Only estimators of one class, with the same network, features and labels, can be fitted "
    "together; fit the others by themselves."
)


# --- A fit, in three parts -----------------------------------------------------------------------


def begin_fit(
    model: NeuralClassifier,
    X: Any,
    Y: Any,
    validation_data: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    *,
    hold_out: bool = False,
) -> Fit:
    """Return the rows that an estimator learns from, as its network sees them; set its plan.

    There are no validation rows (None) if members hold out folds of their own, which ``hold_out``
    forbids.
    """
    with recorded_warnings() as said:
        fit = model._begin(X, Y, validation_data, sample_weight, groups)
        warn_of_few_rows(fit)
    model.fit_warnings_ = said
    if hold_out or model._holds_out():
        fit = model._divided(fit)
    return model._with_features(fit)


def train_together(models: Sequence[NeuralClassifier], fits: Sequence[Fit]) -> None:
    """Train the members of several estimators as one pack, and give each its own."""
    pack = make_pack(models, fits)
    pack.train()
    for i, (model, fit) in enumerate(zip(models, fits, strict=True)):
        adopt(model, pack.of_task(i))
        round_weights(model.network_, fit.train.features)
    checkpoint = models[0].checkpoint
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        Checkpoint(checkpoint).remove()


def finish_fit(model: NeuralClassifier, fit: Fit) -> None:
    """Learn calibration and threshold rule on rows that members were not trained on."""
    rows, scores = model._unseen_rows(fit)
    scores = model._learn_unseen(rows, scores)
    model._set_rule(rows, scores, out_of_fold=fit.validation is None)


def fit_together(
    models: Sequence[NeuralClassifier], data: Sequence[tuple[Any, Any, tuple[Any, Any] | None]]
) -> None:
    """Fit several estimators of one class and shape as one pack.

    Splits, seeds and settings of a study become members of one training.

    Parameters
    ----------
    models : sequence of NeuralClassifier
        Unfitted; see :func:`make_pack`.
    data : sequence of (X, Y, validation_data)
        What the ``fit`` of each would be given; None for folds of its own.
    """
    if any(type(model) is not type(models[0]) for model in models):
        raise _NotAlike
    fits = [begin_fit(model, *own) for model, own in zip(models, data, strict=True)]
    fits = widened(models, fits)
    train_together(models, fits)
    for model, fit in zip(models, fits, strict=True):
        finish_fit(model, fit)


def _out_of_fold(model: NeuralClassifier, fit: Fit) -> tuple[Rows, NDArray[np.floating]]:
    """Return training rows, and their scores by the members that were not trained on them."""
    train, seed = fit.train, fit.seed
    fold = assign_folds(train, model.n_fold_parts(), seed)
    held = np.flatnonzero(np.isin(fold, model.member_folds_))
    most = max(1, _OOF_CELLS // model.n_labels_)
    if len(held) > most:
        held = np.sort(np.random.default_rng(seed).choice(held, most, replace=False))
    rows, model.oof_folds_ = train.take(held), fold[held]
    model.oof_proba_ = _score_folds(
        model.network_, rows.features, model.oof_folds_, model.member_folds_
    )
    model.oof_rows_ = held if train.numbers is None else train.numbers[held]
    return rows, model.oof_proba_


@torch.no_grad()
def _score_folds(
    network: Any, features: Any, fold: NDArray[np.int64], member_folds: NDArray[np.int64]
) -> NDArray[np.floating]:
    """Return the mean probabilities of the members that were not trained on each row."""
    rows = MappedRows.of(features)
    order = rows.reading_order()
    unseen = torch.as_tensor(member_folds[:, None] == fold[order])  # (M, n_rows)

    def means() -> Iterator[NDArray[Any]]:
        start = 0
        for _, block in rows.in_reading_order().blocks():
            for scores in member_scores(network, block):
                own = unseen[:, start : start + scores.shape[1], None].to(scores)
                yield ((scores * own).sum(0) / own.sum(0)).cpu().numpy()
                start += scores.shape[1]

    return joined(means(), len(order))[np.argsort(order)]


# --- Members of a pack ---------------------------------------------------------------------------


def make_pack(
    models: Sequence[NeuralClassifier],
    fits: Sequence[Fit],
    *,
    keep: Keep | None = None,
    selection: str | None = None,
) -> Pack:
    """Return the pack of several estimators of one class and shape.

    Device, checkpoint, progress and training plan are those of the first estimator.

    Parameters
    ----------
    models : sequence of NeuralClassifier
        Their networks must have the same sizes.
    fits : sequence of Fit
        What each of them learns from.
    keep : callable, optional
        See :func:`~cgmvae.training.loop.train`.
    selection : str, optional
        The metric whose best epoch is kept, in place of the estimators' own.
    """
    first = models[0]
    for model in models:
        if type(model) is not type(first) or shape_of(model) != shape_of(first):
            raise _NotAlike
    config = first.plan_.training
    assert config is not None
    if selection is not None:
        config = dataclasses.replace(config, selection=selection)
    n_members = min(model.pack_size for model in models)
    check_whole(1, n_members=n_members, epochs=config.epochs, batch_size=config.batch_size)
    n_rows = max(fit.train.features.shape[0] for fit in fits)
    most = max(n_rows, _FILLED_BATCH)
    config = dataclasses.replace(config, batch_size=min(config.batch_size, most))
    device = find_device(first.device)
    if device.type == "cpu":
        _check_memory(sum(model.pack_size for model in models), first)
    progress = first.progress
    if isinstance(progress, bool):
        progress = EpochLines(first.selection_title) if progress else None
    builder = copy.copy(first)
    builder.progress = None  # pickle may not be able to send it where networks are built
    return Pack(
        [task_of(model, fit) for model, fit in zip(models, fits, strict=True)],
        partial(build_network, builder),
        config,
        device=device,
        checkpoint=None if first.checkpoint is None else Checkpoint(first.checkpoint),
        progress=progress,
        keep=keep,
    )


def shape_of(model: NeuralClassifier) -> Any:
    """Return what estimators that are fitted together must agree in."""
    return (
        model.pipeline_.n_columns,
        model.n_labels_,
        model.plan_.network,
        model._compatible(),
    )


def task_of(model: NeuralClassifier, fit: Fit) -> Task:
    """Return what is to be trained for an estimator; set its folds and its members' settings."""
    train = MappedRows.of(fit.train.features)
    model.member_settings_ = _settings_of_members(model)
    n_members = model.pack_size
    seeds = np.random.SeedSequence(fit.seed).generate_state(n_members)
    order = train.reading_order()
    if fit.validation is None:
        # Deviation D17: the paper trains one network, with the same validation rows throughout.
        parts: tuple[Rows, ...] = (fit.train,)
        fold = assign_folds(fit.train, model.n_fold_parts(), fit.seed)
        model.member_folds_ = np.arange(n_members) % (fold.max() + 1)
        held = [order[fold[order] == k] for k in model.member_folds_]
    else:
        parts = (fit.train, fit.validation)
        model.member_folds_ = np.full(n_members, -1)
        held = [len(train) + MappedRows.of(fit.validation.features).reading_order()] * n_members
    # Rows on disk are read once for all members, which skip their own fold.
    learned = [order if train.on_disk else np.setdiff1d(order, own) for own in held]
    members = [
        Member(
            seed=int(seed),
            train_rows=rows,
            validation_rows=own,
            order_seed=fit.seed if train.on_disk else None,
            **settings,
        )
        for seed, rows, own, settings in zip(
            seeds, learned, held, model.member_settings_, strict=True
        )
    ]
    return Task(parts, members)


def _settings_of_members(model: NeuralClassifier) -> list[Mapping[str, Any]]:
    """Return what each member is trained with; raise where no pack can hold them."""
    plan = model.plan_
    assert plan.member is not None
    found: list[Mapping[str, Any]] = [plan.member] * model.n_members
    if model.members is not None:
        found = []
        for given in model.members:
            own = model.changed(given)
            if shape_of(own) != shape_of(model) or own.plan_.training != plan.training:
                raise InputError(
                    f"The member {dict(given)} has another network or training plan than the "
                    "others; only rates, dropouts and weights may differ in a pack."
                )
            assert own.plan_.member is not None
            found.append(own.plan_.member)
    for settings in found:
        check_dropout(dropout=settings["dropout"], input_dropout=settings["input_dropout"])
    return found


def build_network(
    model: NeuralClassifier,
    members: Sequence[Member],
    labels: Sequence[LabelRows],
    streams: RandomStreams,
) -> nn.Module:
    """Return a fresh network of members that train on these labels."""
    shared = [list(same) for _, same in itertools.groupby(labels, key=id)]
    odds = np.concatenate([np.tile(label_log_odds(each[0]), (len(each), 1)) for each in shared])
    network = model._network(members, odds, streams)
    model._show_labels(network, [(each[0], len(each)) for each in shared])
    return network


def adopt(model: NeuralClassifier, trained: TrainedMembers | None) -> None:
    """Give an estimator its members of a pack; nothing if all of them were left out."""
    if trained is None:
        return
    model.member_settings_ = [model.member_settings_[i] for i in trained.numbers]
    model.network_ = trained.network
    model.history_ = trained.history
    model.member_folds_ = model.member_folds_[trained.numbers]
    model.best_epoch_, model.best_value_ = trained.best_epoch, trained.best_value


def widened(models: Sequence[NeuralClassifier], fits: Sequence[Fit]) -> list[Fit]:
    """Pad the columns of all fits with zeros to the same width, and set it in the models.

    Each fit learns from its own training rows which words, categories and bins become columns, so
    the widths may differ; members of one pack need the same. Data with other columns is left for
    the pack to reject.
    """
    if len({model.n_features_in_ for model in models}) > 1:
        return list(fits)
    width = max(model.pipeline_.n_columns for model in models)
    if all(model.pipeline_.n_columns == width for model in models):
        return list(fits)
    for model in models:
        model.pipeline_.n_more = width - model.pipeline_.n_columns
    return [
        fit.each(lambda rows: rows._replace(features=padded(rows.features, width))) for fit in fits
    ]


def bytes_per_member(model: NeuralClassifier) -> int:
    """Return the memory that a member's weights take in training; they are not allocated."""
    nothing = np.zeros(0, np.int64)
    settings = model.plan_.member or {}
    member = Member(seed=0, train_rows=nothing, validation_rows=nothing, **settings)
    network = model._network([member], np.zeros((1, model.n_labels_)), ZeroStreams(1, "meta"))
    return _COPIES * sum(parameter.nbytes for parameter in network.parameters())


def _check_memory(n_members: int, model: NeuralClassifier) -> None:
    """Raise if the weights of this many members need more memory than the machine has.

    The operating system would grant the memory, and end the process when it is used.
    """
    memory = machine_memory()
    needed = n_members * bytes_per_member(model)
    if memory is not None and needed > memory:
        raise InputError(
            f"Training {n_members:,} models of this size needs {needed / 1e9:,.1f} GB of memory or "
            f"more, and there are {memory / 1e9:,.1f} GB; use a smaller network or fewer members.",
            parameter="n_members",
        )


@torch.no_grad()
def round_weights(network: nn.Module, features: Any) -> None:
    """Round the weights to float16, in which model files take half the space.

    They stay as they are if that moves a probability of a sample of the training rows; those of an
    encoder of the user's stay in any case. What is learned afterwards is learned with these
    weights.
    """

    def scored() -> NDArray[np.floating]:
        return torch.cat([each.mean(0).cpu() for each in member_scores(network, sample)]).numpy()

    rows = MappedRows.of(features)
    spread = np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLE)).astype(np.int64)
    sample = rows.gather(spread)
    before = scored()
    weights = [
        each
        for name, each in network.state_dict().items()
        if each.dtype == torch.float32 and not name.startswith("row_encoder.")
    ]
    exact = [each.clone() for each in weights]
    for each in weights:
        each.copy_(each.half())
    moved = np.abs(scored() - before)
    finite = all(bool(each.isfinite().all()) for each in weights)
    if not (finite and moved.max() < _MAX_MOVE):
        for each, own in zip(weights, exact, strict=True):
            each.copy_(own)


# --- Scores of members ---------------------------------------------------------------------------


def member_scores(network: Any, features: Matrix) -> Iterator[Tensor]:
    """Yield the probabilities of all members block by block, (n_members, n_rows, n_labels)."""
    yield from map(network, member_blocks(network, features))


def member_blocks(network: Any, features: Matrix) -> Iterator[Tensor | SparseRows]:
    """Give rows to all members a block at a time, (n_members, n_rows, n_columns).

    Wide sparse rows are given without their zeros to networks that take them so.
    """
    first = next(network.parameters())
    n_members, device, dtype = len(first), first.device, first.dtype
    wide = getattr(network, "takes_sparse_rows", False) and is_wide(StackedRows([features]), device)
    most = max(1, min(SCORED_ROWS, SCORED_CELLS // max(1, features.shape[1])) // n_members)
    for start in range(0, features.shape[0], most):
        block = features[start : start + most]
        if wide:
            stacked = StackedRows([block])
            stored = stacked.gather_sparse(np.arange(stacked.shape[0]))
            yield sparse_rows(stored, 1, dtype).repeat(n_members)
        else:
            rows = torch.as_tensor(dense(block), dtype=dtype, device=device)
            yield rows.expand(n_members, -1, -1)


# --- Networks from files -------------------------------------------------------------------------


def fill_network(
    build: Callable[[RandomStreams], nn.Module],
    arrays: Mapping[str, NDArray[Any]],
    *,
    n_members: int,
    device: torch.device,
) -> nn.Module:
    """Build a network with these arrays as its tensors; raise if shapes or types differ.

    Sizes claimed by a file could request more memory than there is. The network is therefore first
    built on the meta device, compared with the arrays, and only then allocated and filled.
    ``build`` returns the network, given its initial weights; arrays that it lacks are ignored.
    """
    for name, tensor in build(ZeroStreams(n_members, "meta", len(arrays))).state_dict().items():
        stored = torch.from_numpy(arrays[name])
        if stored.shape != tensor.shape or stored.dtype != tensor.dtype:
            raise ValueError(f"its weights {name!r} have the wrong shape or type")
    network = build(ZeroStreams(n_members, device, len(arrays)))
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            tensor.copy_(torch.from_numpy(arrays[name]))
    return network


class ZeroStreams(TorchStreams):
    """Zeros as initial weights, for at most ``n_tensors`` tensors.

    They are not scaled: torch imports its compiler, for a second, to multiply meta tensors.
    """

    def __init__(
        self, n_members: int, device: torch.device | str, n_tensors: float = math.inf
    ) -> None:
        super().__init__(device)
        self.seeds = tuple(range(n_members))
        self._n_left = n_tensors

    def uniform(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return zeros, (n_members, *shape)."""
        self._n_left -= 1
        if self._n_left < 0:
            raise ValueError("its network needs more tensors than it has arrays")
        return torch.zeros(self.n_members, *shape, dtype=dtype, device=self.device)

    def uniform_weights(self, name: str, *shape: int, bound: float, dtype: torch.dtype) -> Tensor:
        """Return zeros, (n_members, *shape)."""
        return self.uniform(name, *shape, dtype=dtype)

    def normal_weights(self, name: str, *shape: int, scale: float, dtype: torch.dtype) -> Tensor:
        """Return zeros, (n_members, *shape)."""
        return self.uniform(name, *shape, dtype=dtype)

    def normal(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return zeros, (n_members, *shape)."""
        return self.uniform(name, *shape, dtype=dtype)
