"""Training of several packed estimators as one pack.

:mod:`cgmvae.methods.packed` fits one estimator so, studies and searches many. Where an accelerator
has no room for all members, they are trained in smaller packs, and several processes divide the
training (:mod:`cgmvae.training.division`); what a member learns depends on itself alone, so nothing
else changes. :mod:`cgmvae.methods.handing_over` gives each estimator its members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import nn

from cgmvae.data.mapped import StackedRows
from cgmvae.errors import InputError
from cgmvae.methods.handing_over import Part, hand_over, join, own_memory
from cgmvae.methods.inputs import Rows
from cgmvae.methods.parameters import check_whole
from cgmvae.nn.noise import make_noise
from cgmvae.training.batches import TrainingRows
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.device import find_device
from cgmvae.training.distributed import ALONE, Group, current_group
from cgmvae.training.division import train_divided
from cgmvae.training.loop import Keep, TrainingResult, train
from cgmvae.training.members import Member
from cgmvae.training.plan import TrainingConfig
from cgmvae.training.rows import RowStore

if TYPE_CHECKING:
    from cgmvae.methods.packed import PackedClassifier


class Fit(NamedTuple):
    """What one estimator learns from: scaled rows and the seed of its members."""

    train: Rows
    validation: Rows
    seed: int


class Share(NamedTuple):
    """Members of one estimator that are trained in one pack."""

    model: PackedClassifier
    fit: Fit
    numbers: NDArray[np.int64]
    """Which of the estimator's members."""


def train_together(
    models: Sequence[PackedClassifier],
    fits: Sequence[Fit],
    *,
    keep: Keep | None = None,
    selection: str | None = None,
) -> TrainingResult:
    """Train several estimators of one class and shape as one pack.

    Splits, seeds and settings of a study become members of one training. The estimators' device,
    checkpoint, progress and training plan are those of the first. Where the accelerator has no room
    for all members, smaller packs are trained one after the other, with a warning. Of several
    processes, as ``torchrun`` starts them, all must call this alike, and all get the whole result.

    Parameters
    ----------
    models : sequence of PackedClassifier
        Their networks must have the same sizes.
    fits : sequence of (train, validation, seed)
        What each one learns from.
    keep : callable, optional
        See :func:`~cgmvae.training.loop.train`; a model whose members were all left out stays
        unfitted. Since it compares members, the pack is not divided (several processes share the
        rows of each batch), and a lack of memory is raised.
    selection : str, optional
        The metric whose best epoch is kept, in place of the estimators' own.
    """
    first = models[0]
    _check_alike(models)
    config = first._training_config(fits[0].train)
    if selection is not None:
        config = replace(config, selection=selection)
    n_members = min(model.pack_size for model in models)
    check_whole(1, n_members=n_members, epochs=config.epochs, batch_size=config.batch_size)
    pack = _Pack(models, fits, config, keep)
    parts = pack.train_all(current_group())
    result = join(parts)
    for i, model in enumerate(models):
        hand_over(model, np.flatnonzero(pack.owners == i), parts, result)
    return result


class _Pack:
    """Several estimators and what they learn from, to be trained all at once or in parts."""

    def __init__(
        self,
        models: Sequence[PackedClassifier],
        fits: Sequence[Fit],
        config: TrainingConfig,
        keep: Keep | None,
    ) -> None:
        self.models, self.fits, self.config, self.keep = models, fits, config, keep
        sizes = [model.pack_size for model in models]
        self.owners = np.repeat(np.arange(len(models)), sizes)
        """Whose each member is, (n_members,)"""
        self.numbers = np.concatenate([np.arange(size) for size in sizes])
        """Which one of its owner's members, (n_members,)"""

    def train_all(self, group: Group) -> list[Part]:
        """Train all members, which other processes may have their part in."""
        n_members, shared = len(self.owners), not self.models[0].whole_batches
        for model, fit in zip(self.models, self.fits, strict=True):
            model.member_settings_ = model._settings_of_members(fit.train)
        if self.keep is not None:
            return [self.train(np.arange(n_members), group if shared else ALONE)]
        path = self.models[0].checkpoint
        checkpoint = None if path is None else Checkpoint(path)
        return train_divided(
            self.train, n_members, group, checkpoint=checkpoint, rows_can_be_shared=shared
        )

    def train(self, places: NDArray[np.int64], group: Group = ALONE) -> Part:
        """Train the members at these places."""
        first, device = self.models[0], find_device(self.models[0].device)
        owners, numbers = self.owners[places], self.numbers[places]
        shares = [
            Share(self.models[i], self.fits[i], numbers[owners == i]) for i in np.unique(owners)
        ]
        network, members, rows = assemble(shares, device)
        result = train(
            network,
            members,
            rows,
            self.config,
            device=device,
            checkpoint=self._checkpoint(places),
            progress=first.progress if current_group().leads else None,
            keep=self.keep,
            group=group,
        )
        own_memory(network)
        if len(places) < len(self.owners):
            network.cpu()  # which leaves room for the other parts
        return Part(places, network, members, result)

    def _checkpoint(self, places: NDArray[np.int64]) -> Checkpoint | None:
        if self.models[0].checkpoint is None:
            return None
        whole = Checkpoint(self.models[0].checkpoint)
        return whole if len(places) == len(self.owners) else whole.part(places[0], places[-1])


def assemble(
    shares: Sequence[Share], device: torch.device
) -> tuple[nn.Module, list[Member], TrainingRows]:
    """Return a fresh network of these members, the members, and their rows on the device."""
    members: list[Member] = []
    log_odds, start = [], 0
    for model, fit, numbers in shares:
        own = model._make_members(*fit, first_row=start)
        members += [own[i] for i in numbers]
        log_odds += [label_log_odds(fit.train)] * len(numbers)
        start += fit.train.features.shape[0] + fit.validation.features.shape[0]
    noise = make_noise([member.seed for member in members], device)
    model = shares[0].model
    network = model._build_network(members, np.stack(log_odds), noise)
    model._prepare_network(network, [(share.fit.train, len(share.numbers)) for share in shares])
    leave_sparse = getattr(network, "takes_sparse_rows", False)
    rows = training_rows([share.fit for share in shares], device, leave_sparse=leave_sparse)
    return network, members, rows


def fit_together(
    models: Sequence[PackedClassifier], data: Sequence[tuple[Any, Any, tuple[Any, Any]]]
) -> None:
    """Fit several estimators of one class and shape as one pack.

    Threshold rules are learnt on the validation rows, however few there are.

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


def label_log_odds(rows: Rows) -> NDArray[np.float64]:
    """Return the log-odds of each label among the rows that know it, (n_labels,)."""
    positive = np.asarray(rows.labels.sum(axis=0), np.float64).ravel()
    known = np.full(len(positive), float(rows.labels.shape[0]))
    if rows.unknown is not None:
        known -= np.asarray(rows.unknown.sum(axis=0), np.float64).ravel()
    return np.log(positive + 0.5) - np.log(known - positive + 0.5)


def training_rows(
    fits: Sequence[Fit], device: torch.device, *, leave_sparse: bool = False
) -> TrainingRows:
    """Put the training and then the validation rows of each fit on the device.

    ``leave_sparse`` allows batches of wide sparse features without their zeros.
    """
    parts = [rows for fit in fits for rows in (fit.train, fit.validation)]

    def store(name: str, dtype: torch.dtype, **options: bool) -> RowStore:
        rows = StackedRows([getattr(part, name) for part in parts])
        return RowStore(rows, dtype=dtype, device=device, **options)

    unknown = weight = None
    if any(part.unknown is not None for part in parts):
        parts = [_with_masks(part) for part in parts]
        unknown = store("unknown", torch.bool)
    if any(part.weights is not None for part in parts):
        weights = np.concatenate([part.row_weights() for part in parts])
        weight = torch.as_tensor(weights, dtype=torch.float32, device=device)
    features = store("features", torch.float32, leave_sparse=leave_sparse)
    return TrainingRows(features, store("labels", torch.bool), unknown, weight)


def _with_masks(rows: Rows) -> Rows:
    if rows.unknown is not None:
        return rows
    return rows._replace(unknown=sp.csr_array(rows.labels.shape, dtype=bool))
