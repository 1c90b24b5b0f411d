"""What the neural methods share: members, one training loop, averaged predictions.

A method says how its network is built from members and which loss terms it weighs; it gets
ensembles, early stopping, checkpoints and the accelerator for it.
"""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Rows
from cgmvae.nn.noise import Noise, make_noise
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.device import find_device
from cgmvae.training.loop import Keep, Progress, TrainingResult, TrainingRows, train
from cgmvae.training.members import Member
from cgmvae.training.plan import TrainingConfig
from cgmvae.training.rows import RowStore

#: Rows of all members that are scored at a time.
_SCORED_ROWS = 4096


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

    member_parameters: ClassVar[frozenset[str]] = frozenset(
        {"learning_rate", "weight_decay", "dropout", "input_dropout"}
    )
    """Parameters that estimators which are fitted together may differ in."""

    n_members: int = 4
    members: Sequence[Mapping[str, Any]] | None = None
    device: str = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    progress: Progress | None = None
    network_: Any = field(init=False)

    @abstractmethod
    def _training_config(self, train: Rows) -> TrainingConfig:
        """Return the plan of the pack."""

    @abstractmethod
    def _member_settings(self, train: Rows) -> Mapping[str, Any]:
        """Return the fields of :class:`Member` that the method chooses."""

    @abstractmethod
    def _build_network(
        self, members: list[Member], label_log_odds: NDArray[np.float64], noise: Noise
    ) -> nn.Module:
        """Return a fresh network of these members."""

    def _build_stored_network(
        self, description: Any, members: list[Member], label_log_odds: NDArray[Any], noise: Noise
    ) -> nn.Module:
        """Return the network that :meth:`_fitted_state` described, with fresh weights."""
        return self._build_network(members, label_log_odds, noise)

    def _prepare_network(self, network: nn.Module, fits: list[tuple[Rows, int]]) -> None:
        """Tell a fresh network about its training rows; given with each model's members."""

    def _fit_rows(self, train: Rows, validation: Rows, seed: int) -> None:
        train_together([self], [Fit(train, validation, seed)])

    @property
    def pack_size(self) -> int:
        """Number of members that a fit trains."""
        return self.n_members if self.members is None else len(self.members)

    def _make_members(
        self, train: Rows, validation: Rows, seed: int, first_row: int
    ) -> list[Member]:
        n_train, n_held = train.features.shape[0], validation.features.shape[0]
        self.member_settings_ = self._settings_of_members(train)
        seeds = np.random.SeedSequence(seed).generate_state(self.pack_size)
        rows = np.arange(first_row, first_row + n_train)
        held = np.arange(first_row + n_train, first_row + n_train + n_held)
        return [
            Member(seed=int(member_seed), train_rows=rows, validation_rows=held, **settings)
            for member_seed, settings in zip(seeds, self.member_settings_, strict=True)
        ]

    def _settings_of_members(self, train: Rows) -> list[Mapping[str, Any]]:
        """Return what each member is trained with."""
        if self.members is None:
            return [self._member_settings(train)] * self.n_members
        plan = self._training_config(train)
        settings = []
        for given in self.members:
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
        return self.n_features_in_, self.n_labels_

    @torch.no_grad()
    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        parts = [self.network_(x).mean(0).cpu() for x in self._blocks(features)]
        return torch.cat(parts).numpy()

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays = {name: v.detach().cpu().numpy() for name, v in self.network_.state_dict().items()}
        arrays |= {f"history.{name}": series for name, series in self.history_.items()}
        arrays |= {"best_epoch": self.best_epoch_, "best_value": self.best_value_}
        return arrays, {"member_settings": self.member_settings_}

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        self.member_settings_ = description["member_settings"]
        nothing = np.zeros(0, np.int64)
        (n_members,) = arrays["best_epoch"].shape
        seeds = range(n_members)
        members = [
            Member(seed=seed, train_rows=nothing, validation_rows=nothing, **settings)
            for seed, settings in zip(seeds, self.member_settings_, strict=True)
        ]
        device = find_device(self.device)
        log_odds = np.zeros((n_members, self.n_labels_))
        noise = make_noise(list(seeds), device)
        self.network_ = self._build_stored_network(description, members, log_odds, noise)
        with torch.no_grad():
            for name, parameter in self.network_.state_dict().items():
                stored = torch.as_tensor(arrays[name])
                if stored.shape != parameter.shape:
                    raise ValueError(f"the weights {name!r} have another shape")
                parameter.copy_(stored)
        prefix = "history."
        self.history_ = {
            name.removeprefix(prefix): series
            for name, series in arrays.items()
            if name.startswith(prefix)
        }
        self.best_epoch_, self.best_value_ = arrays["best_epoch"], arrays["best_value"]

    def _blocks(self, features: Matrix) -> Iterator[Tensor]:
        """Give rows to all members a block at a time, (n_members, n_rows, n_features)."""
        parameter = next(self.network_.parameters())
        n_members, device, dtype = parameter.shape[0], parameter.device, parameter.dtype
        for start in range(0, features.shape[0], max(1, _SCORED_ROWS // n_members)):
            block = features[start : start + max(1, _SCORED_ROWS // n_members)]
            dense = block.toarray() if sp.issparse(block) else block
            yield torch.as_tensor(dense, dtype=dtype, device=device).expand(n_members, -1, -1)


class Fit(NamedTuple):
    """What one estimator learns from: scaled rows and the seed of its members."""

    train: Rows
    validation: Rows
    seed: int


def train_together(
    models: Sequence[PackedClassifier],
    fits: Sequence[Fit],
    *,
    keep: Keep | None = None,
    selection: str | None = None,
) -> TrainingResult:
    """Train several estimators of one class and shape as one pack.

    Splits, seeds and settings of a study become members of one training. The estimators' device,
    checkpoint, progress and training plan are those of the first.

    Parameters
    ----------
    models : sequence of PackedClassifier
        Their networks must have the same sizes.
    fits : sequence of (train, validation, seed)
        What each one learns from.
    keep : callable, optional
        See :func:`~cgmvae.training.loop.train`; a model whose members were all left out stays
        unfitted.
    selection : str, optional
        The metric whose best epoch is kept, in place of the estimators' own.
    """
    first, device = models[0], find_device(models[0].device)
    _check_alike(models)
    config = first._training_config(fits[0].train)
    if selection is not None:
        config = replace(config, selection=selection)
    _check_counts(min(model.pack_size for model in models), config)
    members, log_odds, start = [], [], 0
    for model, fit in zip(models, fits, strict=True):
        own = model._make_members(*fit, first_row=start)
        members += own
        log_odds += [label_log_odds(fit.train)] * len(own)
        start += fit.train.features.shape[0] + fit.validation.features.shape[0]
    noise = make_noise([member.seed for member in members], device)
    network = first._build_network(members, np.stack(log_odds), noise)
    first._prepare_network(
        network, [(f.train, m.pack_size) for m, f in zip(models, fits, strict=True)]
    )
    result = train(
        network,
        members,
        _training_rows(fits, device),
        config,
        device=device,
        checkpoint=None if first.checkpoint is None else Checkpoint(first.checkpoint),
        progress=first.progress,
        keep=keep,
    )
    _own_memory(network)
    first_member = 0
    for model in models:
        places = np.arange(first_member, first_member + model.pack_size)
        first_member += model.pack_size
        _hand_over(model, places, network, members, result)
    return result


def _hand_over(
    model: PackedClassifier,
    places: NDArray[np.int64],
    network: nn.Module,
    members: list[Member],
    result: TrainingResult,
) -> None:
    """Give a model its members of the pack, but those left out or without a finished epoch."""
    if not np.isin(places, result.places).any():
        return
    kept = places[(result.best_epoch[places] > 0) & np.isin(places, result.places)]
    if len(kept) == 0:
        raise InputError("No member of a model finished an epoch; lower the learning rate.")
    model.network_ = network
    model.member_settings_ = [model.member_settings_[i - places[0]] for i in kept]
    if len(kept) < len(members):
        own = [members[i] for i in kept]
        noise = make_noise([member.seed for member in own], find_device(model.device))
        model.network_ = model._build_network(own, np.zeros((len(own), model.n_labels_)), noise)
        _copy_members(network, model.network_, np.searchsorted(result.places, kept))
    history = result.history.arrays()
    model.history_ = {name: series[:, kept] for name, series in history.items()}
    model.best_epoch_, model.best_value_ = result.best_epoch[kept], result.best_value[kept]


def fit_together(
    models: Sequence[PackedClassifier], data: Sequence[tuple[Any, Any, tuple[Any, Any]]]
) -> None:
    """Fit several estimators of one class and shape as one pack.

    Parameters
    ----------
    models : sequence of PackedClassifier
        Unfitted; see :func:`train_together`.
    data : sequence of (X, Y, validation_data)
        What each one's ``fit`` would be given.
    """
    fits = [
        Fit(*model._prepare(X, Y, validation_data, None, None))
        for model, (X, Y, validation_data) in zip(models, data, strict=True)
    ]
    train_together(models, fits)
    for model, fit in zip(models, fits, strict=True):
        model.threshold_rule_ = model._learn_threshold_rule(fit.validation)


def _check_alike(models: Sequence[PackedClassifier]) -> None:
    for model in models:
        if type(model) is not type(models[0]) or model._shape() != models[0]._shape():
            raise InputError(
                "Only estimators of one class, with the same network, features and labels, can be "
                "fitted together; fit the others by themselves."
            )


def _check_counts(n_members: int, config: TrainingConfig) -> None:
    counts = (n_members, config.epochs, config.batch_size)
    for name, count in zip(("n_members", "epochs", "batch_size"), counts, strict=True):
        if count < 1:
            raise InputError(f"{name} is {count}; it must be at least 1.")


def _own_memory(network: nn.Module) -> None:
    """Give each parameter memory of its own: views of one buffer are pickled with all of it."""
    for parameter in network.parameters():
        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)


def _copy_members(source: nn.Module, target: nn.Module, members: NDArray[np.int64]) -> None:
    """Give ``target`` the weights of these members of ``source``."""
    with torch.no_grad():
        for name, values in source.state_dict().items():
            target.state_dict()[name].copy_(values[torch.from_numpy(members).to(values.device)])


def label_log_odds(rows: Rows) -> NDArray[np.float64]:
    """Return the log-odds of each label among the rows that know it, (n_labels,)."""
    positive = np.asarray(rows.labels.sum(axis=0), np.float64).ravel()
    known = np.full(len(positive), float(rows.labels.shape[0]))
    if rows.unknown is not None:
        known -= np.asarray(rows.unknown.sum(axis=0), np.float64).ravel()
    return np.log(positive + 0.5) - np.log(known - positive + 0.5)


def _training_rows(fits: Sequence[Fit], device: torch.device) -> TrainingRows:
    """Put the training and then the validation rows of each fit on the device."""
    parts = [rows for fit in fits for rows in (fit.train, fit.validation)]

    def store(name: str, dtype: torch.dtype) -> RowStore:
        return RowStore(_stack([getattr(p, name) for p in parts]), dtype=dtype, device=device)

    unknown = weight = None
    if any(part.unknown is not None for part in parts):
        parts = [_with_masks(part) for part in parts]
        unknown = store("unknown", torch.bool)
    if any(part.weights is not None for part in parts):
        ones = [np.ones(p.features.shape[0]) if p.weights is None else p.weights for p in parts]
        weight = torch.as_tensor(np.concatenate(ones), dtype=torch.float32, device=device)
    features, labels = store("features", torch.float32), store("labels", torch.bool)
    return TrainingRows(features, labels, unknown, weight)


def _with_masks(rows: Rows) -> Rows:
    if rows.unknown is not None:
        return rows
    return rows._replace(unknown=sp.csr_array(rows.labels.shape, dtype=bool))


def _stack(parts: list[Matrix]) -> Matrix:
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.vstack(parts, format="csr"))
    return np.concatenate(parts)
