"""What the neural methods share: members, one training loop, averaged predictions.

A method says how its network is built from members and which loss terms it weighs; it gets
ensembles, early stopping, checkpoints and the accelerator for it.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.data.dataset import Matrix
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Rows
from cgmvae.nn.noise import Noise, make_noise
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.device import find_device
from cgmvae.training.loop import Progress, TrainingConfig, TrainingRows, train
from cgmvae.training.members import Member
from cgmvae.training.rows import RowStore

#: Rows of all members that are scored at a time.
_SCORED_ROWS = 4096


class PackedClassifier(MultiLabelClassifier):
    """Base of the methods that are networks.

    A subclass has these parameters among its own: ``n_members``, ``device``, ``checkpoint``,
    ``progress``.

    Attributes
    ----------
    network_ : nn.Module
        All members.
    history_ : dict of str to array (n_epochs, n_members)
        Training terms and the validation metric of each epoch.
    best_epoch_ : array, (n_members,)
        The epoch whose weights each member keeps.
    """

    n_members: int
    device: str
    checkpoint: str | os.PathLike[str] | None
    progress: Progress | None

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

    def _fit_rows(self, train_rows: Rows, validation: Rows, seed: int) -> None:
        device = find_device(self.device)
        n_train, n_held = train_rows.features.shape[0], validation.features.shape[0]
        settings = self._member_settings(train_rows)
        members = [
            Member(
                seed=int(member_seed),
                train_rows=np.arange(n_train),
                validation_rows=np.arange(n_train, n_train + n_held),
                **settings,
            )
            for member_seed in np.random.SeedSequence(seed).generate_state(self.n_members)
        ]
        log_odds = np.tile(label_log_odds(train_rows), (len(members), 1))
        noise = make_noise([member.seed for member in members], device)
        self.network_ = self._build_network(members, log_odds, noise)
        result = train(
            self.network_,
            members,
            _training_rows(train_rows, validation, device),
            self._training_config(train_rows),
            device=device,
            checkpoint=None if self.checkpoint is None else Checkpoint(self.checkpoint),
            progress=self.progress,
        )
        self.history_ = result.history.arrays()
        self.best_epoch_, self.best_value_ = result.best_epoch, result.best_value

    @torch.no_grad()
    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        parts = [self.network_(x).mean(0).cpu() for x in self._blocks(features)]
        return torch.cat(parts).numpy()

    def _blocks(self, features: Matrix) -> Iterator[Tensor]:
        """Give rows to all members a block at a time, (n_members, n_rows, n_features)."""
        parameter = next(self.network_.parameters())
        n_members, device, dtype = parameter.shape[0], parameter.device, parameter.dtype
        for start in range(0, features.shape[0], max(1, _SCORED_ROWS // n_members)):
            block = features[start : start + max(1, _SCORED_ROWS // n_members)]
            dense = block.toarray() if sp.issparse(block) else block
            yield torch.as_tensor(dense, dtype=dtype, device=device).expand(n_members, -1, -1)


def label_log_odds(rows: Rows) -> NDArray[np.float64]:
    """Return the log-odds of each label among the rows that know it, (n_labels,)."""
    positive = np.asarray(rows.labels.sum(axis=0), np.float64).ravel()
    known = np.full(len(positive), float(rows.labels.shape[0]))
    if rows.unknown is not None:
        known -= np.asarray(rows.unknown.sum(axis=0), np.float64).ravel()
    return np.log(positive + 0.5) - np.log(known - positive + 0.5)


def _training_rows(train_rows: Rows, validation: Rows, device: torch.device) -> TrainingRows:
    """Put training and then validation rows on the device."""

    def store(name: str, dtype: torch.dtype) -> RowStore:
        parts = [getattr(train_rows, name), getattr(validation, name)]
        return RowStore(_stack(parts), dtype=dtype, device=device)

    unknown = None
    if train_rows.unknown is not None or validation.unknown is not None:
        train_rows, validation = _with_masks(train_rows), _with_masks(validation)
        unknown = store("unknown", torch.bool)
    weight = None
    if train_rows.weights is not None:
        ones = np.ones(validation.features.shape[0])
        weight = torch.as_tensor(np.concatenate([train_rows.weights, ones]), device=device).float()
    return TrainingRows(
        store("features", torch.float32), store("labels", torch.bool), unknown, weight
    )


def _with_masks(rows: Rows) -> Rows:
    if rows.unknown is not None:
        return rows
    return rows._replace(unknown=sp.csr_array(rows.labels.shape, dtype=bool))


def _stack(parts: list[Matrix]) -> Matrix:
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.vstack(parts, format="csr"))
    return np.concatenate(parts)
