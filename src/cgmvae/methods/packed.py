"""What the neural methods share: members, one training loop, averaged predictions.

A method says how its network is built and which loss terms it weighs; it gets ensembles, early
stopping, checkpoints and the GPU in return. :class:`PackedClassifier` is the base of all networks,
:class:`NeuralClassifier` of those whose settings are plain parameters.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows, StackedRows, dense
from cgmvae.errors import InputError
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Rows, check_choices, check_dropout, check_whole
from cgmvae.methods.serialization import as_declared, fill_network, read_config, with_prefix
from cgmvae.nn.rng import RandomStreams
from cgmvae.nn.sparse import SparseRows
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.device import find_device
from cgmvae.training.loop import Keep, Progress
from cgmvae.training.pack import LabelRows, Pack, Task, TrainedMembers, label_log_odds
from cgmvae.training.plan import Member, TrainingConfig, column
from cgmvae.training.rows import is_wide, sparse_rows

#: Rows of all members that are scored at a time, and their features.
_SCORED_ROWS, _SCORED_CELLS = 4096, 2**24


class Fit(NamedTuple):
    """What one estimator learns from: scaled rows and the seed of its members."""

    train: Rows
    validation: Rows
    seed: int


@dataclass(kw_only=True, eq=False, repr=False)
class PackedClassifier(MultiLabelClassifier):
    """Base of the methods that are networks.

    Parameters
    ----------
    n_members : int
        Models that are trained together and averaged.
    members : sequence of mapping, optional
        For members that differ, the parameters of each: learning rate, weight decay, dropout and
        weights of terms, whatever leaves the network's sizes and the training plan as they are.
        Their number then takes the place of ``n_members``.
    device : str
        "auto" is the accelerator where there is one.
    checkpoint : path, optional
        A file to keep the state of training in; a fit that was stopped continues from it.
    progress : callable, optional
        Called after each epoch with its number, the number of epochs and the best metric so far.

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
    """

    reads_batches: ClassVar[bool] = True

    member_parameters: ClassVar[frozenset[str]] = frozenset(
        {"learning_rate", "weight_decay", "dropout", "input_dropout"}
    )
    """Parameters that estimators which are fitted together may differ in."""

    whole_batches: ClassVar[bool] = False
    """Whether the loss of a row depends on the others of its batch, which processes then cannot
    share."""

    config_class: ClassVar[type]
    """The frozen dataclass of the network's sizes and switches."""

    n_members: int = 4
    members: Sequence[Mapping[str, Any]] | None = None
    device: str = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    progress: Progress | None = None
    network_: Any = field(init=False)
    member_settings_: list[Mapping[str, Any]] = field(init=False)

    @abstractmethod
    def _training_config(self, train: Rows) -> TrainingConfig:
        """Return the plan of the pack."""

    @abstractmethod
    def _member_settings(self, train: Rows) -> Mapping[str, Any]:
        """Return the fields of :class:`Member` that the method chooses."""

    @abstractmethod
    def _config(self) -> Any:
        """Return the sizes and switches of the network; members of one pack share them."""

    @abstractmethod
    def _network(
        self,
        config: Any,
        members: Sequence[Member],
        label_log_odds: NDArray[np.float64],
        streams: RandomStreams,
    ) -> nn.Module:
        """Return a fresh network of these sizes and members."""

    def _prepare_network(self, network: nn.Module, labels: list[tuple[LabelRows, int]]) -> None:
        """Show a fresh network the labels that its members train on.

        ``labels`` come with the number of consecutive members that share them.
        """

    def _build_network(
        self, members: Sequence[Member], labels: Sequence[LabelRows], streams: RandomStreams
    ) -> nn.Module:
        """Return a fresh network of members that train on these labels."""
        shared = [list(same) for _, same in itertools.groupby(labels, key=id)]
        odds = np.concatenate([np.tile(label_log_odds(each[0]), (len(each), 1)) for each in shared])
        network = self._network(self._config(), members, odds, streams)
        self._prepare_network(network, [(each[0], len(each)) for each in shared])
        return network

    def _fit_rows(self, train: Rows, validation: Rows, seed: int) -> None:
        pack = make_pack([self], [Fit(train, validation, seed)])
        pack.train()
        self._adopt(pack.of_task(0))

    def _fit_folds(self, folds: Sequence[tuple[Rows, Rows]], seed: int) -> list[Self]:
        models = [copy.copy(self).set_params(checkpoint=None, progress=None) for _ in folds]
        pack = make_pack(models, [Fit(*fold, seed) for fold in folds])
        pack.train()
        for i, model in enumerate(models):
            model._adopt(pack.of_task(i))
        return models

    def _adopt(self, trained: TrainedMembers | None) -> None:
        """Take over the members of a pack; nothing if all of them were left out."""
        if trained is None:
            return
        self.member_settings_ = [self.member_settings_[i] for i in trained.numbers]
        self.network_ = trained.network
        self.history_ = trained.history
        self.best_epoch_, self.best_value_ = trained.best_epoch, trained.best_value

    @property
    def pack_size(self) -> int:
        """Number of members that a fit trains."""
        return self.n_members if self.members is None else len(self.members)

    def _task(self, fit: Fit) -> Task:
        """Return what is to be trained."""
        train, validation = (
            MappedRows.of(fit.train.features),
            MappedRows.of(fit.validation.features),
        )
        self.member_settings_ = self._settings_of_members(fit.train)
        seeds = np.random.SeedSequence(fit.seed).generate_state(self.pack_size)
        own: dict[str, Any] = {
            "train_rows": train.reading_order(),
            "validation_rows": len(train) + validation.reading_order(),
            "order_seed": fit.seed if train.on_disk else None,
        }
        members = [
            Member(seed=int(seed), **own, **settings)
            for seed, settings in zip(seeds, self.member_settings_, strict=True)
        ]
        return Task((fit.train, fit.validation), members)

    def _settings_of_members(self, train: Rows) -> list[Mapping[str, Any]]:
        """Return what each member is trained with."""
        if self.members is None:
            settings = [self._member_settings(train)] * self.n_members
        else:
            settings = self._settings_that_differ(self.members, train)
        for own in settings:
            check_dropout(dropout=own["dropout"], input_dropout=own["input_dropout"])
        return settings

    def _settings_that_differ(
        self, members: Sequence[Mapping[str, Any]], train: Rows
    ) -> list[Mapping[str, Any]]:
        """Return what these members are trained with; raise where no pack can hold them."""
        plan = self._training_config(train)
        settings = []
        for given in members:
            own = self._with(given)
            if own._shape() != self._shape() or own._training_config(train) != plan:
                raise InputError(
                    f"The member {dict(given)} has another network or training plan than the "
                    "others; only rates, dropouts and weights may differ in a pack."
                )
            settings.append(own._member_settings(train))
        return settings

    def _with(self, parameters: Mapping[str, Any]) -> Self:
        """Return this estimator with other parameters, and what it knows of the data."""
        changed = copy.copy(self)
        try:
            return changed.set_params(members=None, **parameters)
        except ValueError as error:
            raise InputError(f"A member cannot be made: {error}") from error

    def _shape(self) -> Any:
        """Return what estimators that are fitted together must agree in."""
        return self.n_inputs_, self.n_labels_, self._config()

    @torch.no_grad()
    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        takes_sparse = getattr(self.network_, "takes_sparse_rows", False)
        wide = takes_sparse and is_wide(StackedRows([features]), self._form()[1])
        blocks = self._sparse_blocks(features) if wide else self._blocks(features)
        return torch.cat([self.network_(x).mean(0).cpu() for x in blocks]).numpy()

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays = {name: v.detach().cpu().numpy() for name, v in self.network_.state_dict().items()}
        arrays |= {f"history.{name}": series for name, series in self.history_.items()}
        arrays |= {"best_epoch": self.best_epoch_, "best_value": self.best_value_}
        config = dataclasses.asdict(self.network_.config)
        return arrays, {"member_settings": self.member_settings_, "network": config}

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
        config = read_config(self.config_class, description["network"], n_weights)
        self.network_ = fill_network(
            lambda streams: self._network(config, members, log_odds, streams),
            arrays,
            n_members=len(members),
            device=find_device(self.device),
        )
        self._restore_history(arrays, len(members))

    def _restore_history(self, arrays: dict[str, NDArray[Any]], n_members: int) -> None:
        self.history_ = with_prefix(arrays, "history.")
        self.best_epoch_, self.best_value_ = arrays["best_epoch"], arrays["best_value"]
        for series in (*self.history_.values(), self.best_epoch_, self.best_value_):
            if series.shape[-1:] != (n_members,) or series.dtype.kind not in "fi":
                raise ValueError("its history is not that of its members")

    def _blocks(self, features: Matrix) -> Iterator[Tensor]:
        """Give rows to all members a block at a time, (n_members, n_rows, n_features)."""
        n_members, device, dtype = self._form()
        for block in self._row_blocks(features):
            yield torch.as_tensor(dense(block), dtype=dtype, device=device).expand(
                n_members, -1, -1
            )

    def _sparse_blocks(self, features: Matrix) -> Iterator[SparseRows]:
        """Give wide sparse rows to all members, without their zeros."""
        n_members, _, dtype = self._form()
        for block in self._row_blocks(features):
            stacked = StackedRows([block])
            stored = stacked.gather_sparse(np.arange(stacked.shape[0]))
            yield sparse_rows(stored, 1, dtype).repeat(n_members)

    def _row_blocks(self, features: Matrix) -> Iterator[Matrix]:
        most = max(1, min(_SCORED_ROWS, _SCORED_CELLS // features.shape[1]) // self._form()[0])
        for start in range(0, features.shape[0], most):
            yield features[start : start + most]

    def _form(self) -> tuple[int, torch.device, torch.dtype]:
        """Return the number of members, and where and in which type their weights are."""
        parameter = next(self.network_.parameters())
        return parameter.shape[0], parameter.device, parameter.dtype


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralClassifier(PackedClassifier):
    """Base of the comparison methods that are networks.

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
    training : mapping, optional
        Any further field of ``TrainingConfig`` by name, such as ``{"patience": 10}``.
    """

    network_class: ClassVar[type[nn.Module]]
    """Made from a config, the number of features, the label log-odds, streams, and each member's
    ``dropout``, ``input_dropout`` and own settings."""

    epochs: int = 40
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    dropout: float = 0.2
    input_dropout: float = 0.0
    training: Mapping[str, Any] | None = None

    @abstractmethod
    def _weights(self) -> Mapping[str, float]:
        """Return the weight of each term of the objective."""

    def _network_settings(self) -> Mapping[str, Any]:
        """Return further numbers that the network takes for each member."""
        return {}

    def _training_config(self, train: Rows) -> TrainingConfig:
        check_choices(TrainingConfig, self.training or {})
        try:
            return TrainingConfig(
                epochs=self.epochs, batch_size=self.batch_size, **(self.training or {})
            )
        except TypeError as error:
            raise InputError(f"training does not fit TrainingConfig: {error}.") from error

    def _member_settings(self, train: Rows) -> Mapping[str, Any]:
        return {
            "weights": dict(self._weights()),
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "dropout": self.dropout,
            "input_dropout": self.input_dropout,
            "settings": dict(self._network_settings()),
        }

    def _network(
        self,
        config: Any,
        members: Sequence[Member],
        label_log_odds: NDArray[np.float64],
        streams: RandomStreams,
    ) -> nn.Module:
        own = [dict(member.settings or {}) for member in members]
        return self.network_class(
            config,
            self.n_inputs_,
            label_log_odds,
            streams,
            dropout=column(members, "dropout"),
            input_dropout=column(members, "input_dropout"),
            **{name: [each[name] for each in own] for name in own[0]},
        )


def make_pack(
    models: Sequence[PackedClassifier],
    fits: Sequence[Fit],
    *,
    keep: Keep | None = None,
    selection: str | None = None,
) -> Pack:
    """Return the pack of several estimators of one class and shape.

    Device, checkpoint, progress and training plan are those of the first estimator.

    Parameters
    ----------
    models : sequence of PackedClassifier
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
        if type(model) is not type(first) or model._shape() != first._shape():
            raise InputError(
                "Only estimators of one class, with the same network, features and labels, can be "
                "fitted together; fit the others by themselves."
            )
    config = first._training_config(fits[0].train)
    if selection is not None:
        config = dataclasses.replace(config, selection=selection)
    n_members = min(model.pack_size for model in models)
    check_whole(1, n_members=n_members, epochs=config.epochs, batch_size=config.batch_size)
    return Pack(
        [model._task(fit) for model, fit in zip(models, fits, strict=True)],
        first._build_network,
        config,
        device=find_device(first.device),
        checkpoint=None if first.checkpoint is None else Checkpoint(first.checkpoint),
        progress=first.progress,
        keep=keep,
        shares_rows=not first.whole_batches,
    )


def fit_together(
    models: Sequence[PackedClassifier], data: Sequence[tuple[Any, Any, tuple[Any, Any]]]
) -> None:
    """Fit several estimators of one class and shape as one pack.

    Splits, seeds and settings of a study become members of one training. Threshold rules are
    learned on the validation rows.

    Parameters
    ----------
    models : sequence of PackedClassifier
        Unfitted; see :func:`make_pack`.
    data : sequence of (X, Y, validation_data)
        What the ``fit`` of each would be given.
    """
    fits = [
        Fit(*model._prepare(X, Y, validation_data, None, None))
        for model, (X, Y, validation_data) in zip(models, data, strict=True)
    ]
    pack = make_pack(models, fits)
    pack.train()
    for i, (model, fit) in enumerate(zip(models, fits, strict=True)):
        model._adopt(pack.of_task(i))
        model.threshold_rule_ = model._learn_threshold_rule(fit.validation)
