"""What the neural methods share: members, one training loop, averaged predictions.

A method says how its network is built from members and which loss terms it weighs; it gets
ensembles, early stopping, checkpoints and the accelerator for it.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows, StackedRows, dense
from cgmvae.errors import InputError
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Rows
from cgmvae.methods.parameters import check_dropout
from cgmvae.methods.stored_arrays import with_prefix
from cgmvae.methods.stored_network import fill_network, read_config
from cgmvae.methods.together import Fit, train_together
from cgmvae.nn.noise import Noise
from cgmvae.nn.sparse_rows import SparseRows
from cgmvae.preparation.declarations import as_declared
from cgmvae.training.device import find_device
from cgmvae.training.loop import Progress
from cgmvae.training.members import Member
from cgmvae.training.plan import TrainingConfig
from cgmvae.training.rows import is_wide, sparse_rows

#: Rows of all members that are scored at a time, and their features.
_SCORED_ROWS, _SCORED_CELLS = 4096, 2**24


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

    @abstractmethod
    def _network(
        self,
        config: Any,
        members: list[Member],
        label_log_odds: NDArray[np.float64],
        noise: Noise,
    ) -> nn.Module:
        """Return a fresh network of these sizes and members."""

    def _prepare_network(self, network: nn.Module, fits: list[tuple[Rows, int]]) -> None:
        """Tell a fresh network about its training rows; given with each model's members."""

    def _fit_rows(self, train: Rows, validation: Rows, seed: int) -> None:
        train_together([self], [Fit(train, validation, seed)])

    def _fit_folds(self, folds: Sequence[tuple[Rows, Rows]], seed: int) -> list[Self]:
        alike = [copy.copy(self).set_params(checkpoint=None, progress=None) for _ in folds]
        train_together(alike, [Fit(*fold, seed) for fold in folds])
        return alike

    @property
    def pack_size(self) -> int:
        """Number of members that a fit trains."""
        return self.n_members if self.members is None else len(self.members)

    def _make_members(
        self, train: Rows, validation: Rows, seed: int, first_row: int
    ) -> list[Member]:
        features, held = MappedRows.of(train.features), MappedRows.of(validation.features)
        self.member_settings_ = self._settings_of_members(train)
        seeds = np.random.SeedSequence(seed).generate_state(self.pack_size)
        own: dict[str, Any] = {
            "train_rows": first_row + features.reading_order(),
            "validation_rows": first_row + len(features) + held.reading_order(),
            "order_seed": seed if features.on_disk else None,
        }
        return [
            Member(seed=int(member_seed), **own, **settings)
            for member_seed, settings in zip(seeds, self.member_settings_, strict=True)
        ]

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
        return self.n_inputs_, self.n_labels_

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
            lambda noise: self._network(config, members, log_odds, noise),
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
