"""What the neural methods share: members, one training loop, averaged predictions.

A method says how its network is built and which loss terms it weighs; it gets ensembles, early
stopping, checkpoints and the GPU in return. :class:`PackedClassifier` is the base of all networks,
:class:`NeuralClassifier` of those whose settings are plain parameters.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows, StackedRows, dense
from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import count
from cgmvae.evaluation.thresholds import GlobalThreshold, certain_limits
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Rows, check_declared, check_dropout, check_whole
from cgmvae.methods.out_of_fold import assign_folds
from cgmvae.methods.serialization import Precision, as_declared, read_config, with_prefix
from cgmvae.nn.rng import RandomStreams, TorchStreams
from cgmvae.nn.sparse import SparseRows
from cgmvae.preparation.components import NumberOfComponents
from cgmvae.preparation.piecewise import EncodingName
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.device import find_device, machine_memory
from cgmvae.training.loop import Keep, Progress
from cgmvae.training.pack import LabelRows, Pack, Task, TrainedMembers, label_log_odds
from cgmvae.training.plan import Member, TrainingConfig, column
from cgmvae.training.progress import EpochLines
from cgmvae.training.rows import is_wide, sparse_rows
from cgmvae.training.selection import selection_title

#: Out-of-fold probabilities that are kept; of more rows a sample has to do.
_OOF_CELLS = 2**26

#: Probabilities are taken for calibrated if their sum is this close to the number of positives.
_CALIBRATED = 0.1

#: Copies of its weights that a member needs in training: weights, gradients, two moments, the best
#: weights, and one more for everything else.
_COPIES = 6

#: A batch has at most as many rows as there are, or as this. Smaller batches are always filled up:
#: what a member draws at random may depend on their size, but not on the rows of other members.
_FILLED_BATCH = 1024

#: Rows of all members that are scored at a time, and their features.
_SCORED_ROWS, _SCORED_CELLS = 4096, 2**24


#: Rows whose probabilities tell whether weights may be stored in float16, and how much they may
#: move.
_SAMPLE, _LARGEST_MOVE = 256, 1e-3


class Fit(NamedTuple):
    """What one estimator learns from: scaled rows and the seed of its members."""

    train: Rows
    validation: Rows | None
    """None if each member holds out a fold of the training rows."""
    seed: int
    taught: Mapping[int, Rows] | None = None
    """The training rows without labels, with pseudo-labels for the members of each fold."""


@dataclass(kw_only=True, eq=False, repr=False)
class PackedClassifier(MultiLabelClassifier):
    """Base of the methods that are networks.

    Parameters
    ----------
    n_members : int
        Models that are trained together and averaged. Unless ``fit`` is given validation rows,
        each member is trained without one fold of the rows, which chooses its best epoch.
    n_folds : int, optional
        Number of folds; several members share a fold if there are more members than folds. By
        default as many as members, or ``1 / validation_fraction`` for fewer than four members.
    encoding : {"auto", "piecewise-linear", "standard"}
        Whether continuous features get piecewise-linear columns next to their scaled values; see
        :class:`~cgmvae.preparation.piecewise.PiecewiseLinear`.
    principal_components : int, "auto" or None
        Principal components of the encoded features that the network learns from; None for the
        features themselves. See
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
    progress : callable, optional
        Called after each epoch with its number, the number of epochs and the best metric so far.
    verbose : bool
        Whether to print a line after each epoch, if ``progress`` is not given: the epoch, the best
        metric so far and the time left.

    Attributes
    ----------
    network_ : nn.Module
        All members.
    history_ : dict of str to array (n_epochs, n_members)
        Training terms and the validation metric of each epoch.
    best_epoch_ : array, (n_members,)
        The epoch whose weights each member keeps.
    selection_ : str
        The metric that chooses it; not stored with the model.
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

    cross_validates: ClassVar[bool] = True
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

    n_members: int = 8
    n_folds: int | None = None
    encoding: EncodingName = "auto"
    principal_components: NumberOfComponents = None
    members: Sequence[Mapping[str, Any]] | None = None
    device: str = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    progress: Progress | None = None
    verbose: bool = False
    network_: Any = field(init=False)
    selection_: str = field(init=False)
    member_settings_: list[Mapping[str, Any]] = field(init=False)
    member_folds_: NDArray[np.int64] = field(init=False)

    def _encoding(self) -> tuple[EncodingName, NumberOfComponents]:
        return self.encoding, self.principal_components

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

    def _fit_rows(self, train: Rows, validation: Rows | None, seed: int) -> None:
        pack = make_pack([self], teach([self], [Fit(train, validation, seed)]))
        pack.train()
        self._adopt(pack.of_task(0))
        self._keep_sample(train)
        self._remove_checkpoint()

    def _remove_checkpoint(self) -> None:
        """Remove the state of a training that has ended, unless the caller does that."""
        if self.checkpoint is not None and not isinstance(self.checkpoint, Checkpoint):
            Checkpoint(self.checkpoint).remove()

    def _score_unseen(
        self, train: Rows, validation: Rows | None, seed: int
    ) -> tuple[Rows, NDArray[np.floating]]:
        if validation is not None:
            return validation, self._scores(validation.features)
        fold = assign_folds(train, self._n_folds(), seed)
        held = np.flatnonzero(np.isin(fold, self.member_folds_))
        most = max(1, _OOF_CELLS // self.n_labels_)
        if len(held) > most:
            held = np.sort(np.random.default_rng(seed).choice(held, most, replace=False))
        rows, self.oof_folds_ = train.take(held), fold[held]
        self.oof_proba_ = self._score_folds(rows.features, self.oof_folds_)
        self.oof_rows_ = held if train.numbers is None else train.numbers[held]
        return rows, self.oof_proba_

    def _learn_threshold_rule(self, rows: Rows, scores: NDArray[np.floating]) -> None:
        """Learn the rule; for micro-F1 out of fold, correct the threshold for averaging.

        Single members are more extreme than their mean, and a threshold that is best for them may
        be too high for it. The best threshold of calibrated probabilities is half of the F1 that it
        reaches (Lipton, Elkan and Naryanaswamy 2014), and the mean is nearly calibrated, unless the
        loss is not: then probabilities do not add up to the number of positives.
        """
        super()._learn_threshold_rule(rows, scores)
        chosen = self.threshold_rule_
        if not isinstance(chosen, GlobalThreshold) or self.threshold_metric != "micro_f1":
            return
        known = scores if rows.unknown is None else scores * ~dense(rows.unknown)
        excess = float(known.sum(dtype=np.float64)) / max(1.0, float(rows.labels.sum())) - 1
        if (self.member_folds_ >= 0).all() and abs(excess) < _CALIBRATED:
            reached = count(rows.labels, chosen.apply(scores), rows.unknown).value("micro_f1")
            self.threshold_rule_ = GlobalThreshold(min(chosen.threshold, float(reached) / 2))

    @torch.no_grad()
    def _score_folds(self, features: Any, fold: NDArray[np.int64]) -> NDArray[np.floating]:
        """Return the mean probabilities of the members that were not trained on each row."""
        rows = MappedRows.of(features)
        order = rows.reading_order()
        unseen = torch.as_tensor(self.member_folds_[:, None] == fold[order])  # (M, n_rows)
        parts, start = [], 0
        for _, block in rows.in_reading_order().blocks():
            for scores in self._member_scores(block):
                own = unseen[:, start : start + scores.shape[1], None].to(scores)
                parts.append(((scores * own).sum(0) / own.sum(0)).cpu())
                start += scores.shape[1]
        return torch.cat(parts).numpy()[np.argsort(order)]

    def _pseudo_labels(self, fit: Fit, others: Rows, share: float) -> dict[int, Rows]:
        """Return rows with the labels that the members of each fold are sure of.

        How sure a member must be, so that this share is right, is learned for each label from the
        other folds, out of fold, or from the validation rows.
        """
        rows, scores = PackedClassifier._score_unseen(self, fit.train, fit.validation, fit.seed)
        found = {}
        for fold in np.unique(self.member_folds_):
            chosen = np.arange(len(scores))
            if fit.validation is None and (self.oof_folds_ != fold).any():
                chosen = np.flatnonzero(self.oof_folds_ != fold)
            known = rows.take(chosen)
            absent, present = certain_limits(
                known.labels, scores[chosen], share, unknown=known.unknown
            )
            own = self._score_folds(others.features, np.full(others.labels.shape[0], fold))
            labels = own >= present
            found[int(fold)] = others._replace(labels=labels, unknown=~labels & (own > absent))
        return found

    def _n_folds(self) -> int:
        """Return the number of folds that the rows are divided into."""
        if self.n_folds is not None:
            check_whole(2, n_folds=self.n_folds)
            return self.n_folds
        return self.pack_size if self.pack_size >= 4 else round(1 / self.validation_fraction)

    def _adopt(self, trained: TrainedMembers | None) -> None:
        """Take over the members of a pack; nothing if all of them were left out."""
        if trained is None:
            return
        self.member_settings_ = [self.member_settings_[i] for i in trained.numbers]
        self.network_ = trained.network
        self.history_ = trained.history
        self.member_folds_ = self.member_folds_[trained.numbers]
        self.best_epoch_, self.best_value_ = trained.best_epoch, trained.best_value

    def selection_title(self) -> str:
        """Return the name of the metric that chooses the best epoch; known once training starts."""
        return selection_title(self.selection_)

    @property
    def pack_size(self) -> int:
        """Number of members that a fit trains."""
        return self.n_members if self.members is None else len(self.members)

    def _task(self, fit: Fit) -> Task:
        """Return what is to be trained."""
        train = MappedRows.of(fit.train.features)
        self.member_settings_ = self._settings_of_members(fit.train)
        seeds = np.random.SeedSequence(fit.seed).generate_state(self.pack_size)
        order = train.reading_order()
        if fit.validation is None:
            parts: tuple[Rows, ...] = (fit.train,)
            fold = assign_folds(fit.train, self._n_folds(), fit.seed)
            self.member_folds_ = np.arange(self.pack_size) % (fold.max() + 1)
            held = [order[fold[order] == k] for k in self.member_folds_]
        else:
            parts = (fit.train, fit.validation)
            self.member_folds_ = np.full(self.pack_size, -1)
            held = [len(train) + MappedRows.of(fit.validation.features).reading_order()]
            held *= self.pack_size
        # Rows on disk are read once for all members, which skip their own fold.
        read_once = train.on_disk and fit.taught is None
        learned = [order if read_once else np.setdiff1d(order, own) for own in held]
        if fit.taught is not None:  # instead of the rows without labels
            labeled, n_rows = fit.train.labeled(), sum(part.labels.shape[0] for part in parts)
            parts += tuple(fit.taught.values())
            taught = dict(zip(fit.taught, itertools.count(n_rows, (~labeled).sum()), strict=False))
            learned = [
                np.append(own[labeled[own]], taught[fold] + np.arange((~labeled).sum()))
                for own, fold in zip(learned, self.member_folds_, strict=True)
            ]
        members = [
            Member(
                seed=int(seed),
                train_rows=rows,
                validation_rows=own,
                order_seed=fit.seed if read_once else None,
                **settings,
            )
            for seed, rows, own, settings in zip(
                seeds, learned, held, self.member_settings_, strict=True
            )
        ]
        return Task(parts, members)

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

    def _bytes_per_member(self, train: Rows) -> int:
        """Return the memory that a member's weights take in training; they are not allocated."""
        nothing = np.zeros(0, np.int64)
        settings = self._member_settings(train)
        member = Member(seed=0, train_rows=nothing, validation_rows=nothing, **settings)
        log_odds = np.zeros((1, self.n_labels_))
        network = self._network(self._config(), [member], log_odds, ZeroStreams(1, "meta"))
        return _COPIES * sum(parameter.nbytes for parameter in network.parameters())

    def _shape(self) -> Any:
        """Return what estimators that are fitted together must agree in."""
        return self.n_columns_, self.n_labels_, self._config()

    @torch.no_grad()
    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        return torch.cat([p.mean(0).cpu() for p in self._member_scores(features)]).numpy()

    def _member_scores(self, features: Matrix) -> Iterator[Tensor]:
        """Return the probabilities of all members block by block, (n_members, n_rows, n_labels)."""
        takes_sparse = getattr(self.network_, "takes_sparse_rows", False)
        wide = takes_sparse and is_wide(StackedRows([features]), self._form()[1])
        blocks = self._sparse_blocks(features) if wide else self._blocks(features)
        yield from map(self.network_, blocks)

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays = {name: v.detach().cpu().numpy() for name, v in self.network_.state_dict().items()}
        arrays |= {f"history.{name}": series for name, series in self.history_.items()}
        arrays |= {"best_epoch": self.best_epoch_, "best_value": self.best_value_}
        config = dataclasses.asdict(self.network_.config)
        own = {"member_settings": self.member_settings_, "network": config}
        return arrays, own | {"member_folds": self.member_folds_.tolist()}

    def _keep_sample(self, train: Rows) -> None:
        """Keep a few scaled rows, to see what rounding the weights does to their probabilities."""
        rows = MappedRows.of(train.features)
        spread = np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLE)).astype(np.int64)
        self._sample = rows.gather(spread)

    def _stored_in_half(self, precision: Precision) -> bool:
        return precision == "float16" or (precision == "auto" and self._rounded() is not None)

    def round_weights(self) -> None:
        """Round the weights to float16, if :meth:`save` would store them so.

        The model then predicts exactly what it predicts after it is saved and loaded.
        """
        if (rounded := self._rounded()) is not None:
            self.network_ = rounded

    @torch.no_grad()
    def _rounded(self) -> Any:
        """Return the network with weights rounded to float16; None if its predictions move."""
        rounded = copy.deepcopy(self.network_)
        own, copies = self.network_.state_dict(), rounded.state_dict()
        for tensor in copies.values():
            if tensor.dtype == torch.float32:
                tensor.copy_(tensor.half())
        if all(torch.equal(own[name], tensor) for name, tensor in copies.items()):
            return rounded
        sample = getattr(self, "_sample", None)
        if sample is None:
            return None
        with_rounded = copy.copy(self)
        with_rounded.network_ = rounded
        moved = np.abs(with_rounded._score_rows(sample) - self._score_rows(sample))
        return rounded if moved.max() < _LARGEST_MOVE else None

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
        # Files of earlier versions have no folds.
        folds = description.get("member_folds", [-1] * len(members))
        self.member_folds_ = np.array(folds, np.int64)
        if self.member_folds_.shape != (len(members),):
            raise ValueError("it does not have one fold per member")
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
        in_half = stored.dtype == torch.float16 and tensor.dtype == torch.float32
        if stored.shape != tensor.shape or not (in_half or stored.dtype == tensor.dtype):
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

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return zeros, (n_members, *shape)."""
        self._n_left -= 1
        if self._n_left < 0:
            raise ValueError("its network needs more tensors than it has arrays")
        return torch.zeros(self.n_members, *shape, dtype=dtype, device=self.device)

    def uniform_weights(self, *shape: int, bound: float, dtype: torch.dtype) -> Tensor:
        """Return zeros, (n_members, *shape)."""
        return self.uniform(*shape, dtype=dtype)

    def normal_weights(self, *shape: int, scale: float, dtype: torch.dtype) -> Tensor:
        """Return zeros, (n_members, *shape)."""
        return self.uniform(*shape, dtype=dtype)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return zeros, (n_members, *shape)."""
        return self.uniform(*shape, dtype=dtype)


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
        check_declared(TrainingConfig, self.training or {})
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
            self.n_columns_,
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
    for model in models:
        model.selection_ = config.selection
    n_members = min(model.pack_size for model in models)
    check_whole(1, n_members=n_members, epochs=config.epochs, batch_size=config.batch_size)
    n_rows = max(fit.train.features.shape[0] for fit in fits)
    most = max(n_rows, _FILLED_BATCH)
    config = dataclasses.replace(config, batch_size=min(config.batch_size, most))
    device = find_device(first.device)
    if device.type == "cpu":
        _check_memory(sum(model.pack_size for model in models), first, fits[0].train)
    return Pack(
        [model._task(fit) for model, fit in zip(models, fits, strict=True)],
        first._build_network,
        config,
        device=device,
        checkpoint=None if first.checkpoint is None else Checkpoint(first.checkpoint),
        progress=first.progress or (EpochLines(first.selection_title) if first.verbose else None),
        keep=keep,
        shares_rows=not first.whole_batches,
    )


def _check_memory(n_members: int, model: PackedClassifier, train: Rows) -> None:
    """Raise if the weights of this many members need more memory than the machine has.

    The operating system would grant the memory, and end the process when it is used.
    """
    memory = machine_memory()
    needed = n_members * model._bytes_per_member(train)
    if memory is not None and needed > memory:
        raise InputError(
            f"Training {n_members:,} models of this size needs {needed / 1e9:,.1f} GB of memory or "
            f"more, and there are {memory / 1e9:,.1f} GB; use a smaller network or fewer members.",
            parameter="n_members",
        )


def fit_together(
    models: Sequence[PackedClassifier], data: Sequence[tuple[Any, Any, tuple[Any, Any] | None]]
) -> None:
    """Fit several estimators of one class and shape as one pack.

    Splits, seeds and settings of a study become members of one training.

    Parameters
    ----------
    models : sequence of PackedClassifier
        Unfitted; see :func:`make_pack`.
    data : sequence of (X, Y, validation_data)
        What the ``fit`` of each would be given; None for folds of its own.
    """
    fits = [
        Fit(*model._prepare(X, Y, validation_data, None, None))
        for model, (X, Y, validation_data) in zip(models, data, strict=True)
    ]
    if len({model.n_inputs_ for model in models}) == 1:  # otherwise the pack rejects them
        fits = pad_features(models, fits)
    pack = make_pack(models, teach(models, fits))
    pack.train()
    for i, (model, fit) in enumerate(zip(models, fits, strict=True)):
        model._adopt(pack.of_task(i))
        model._keep_sample(fit.train)
        model._learn_threshold_rule(*model._score_unseen(*fit[:3]))
    models[0]._remove_checkpoint()


def teach(models: Sequence[PackedClassifier], fits: Sequence[Fit]) -> list[Fit]:
    """Return the fits with pseudo-labels for rows without labels, for the models that want them.

    They come from models of the same form that are fitted to the labeled rows before.
    """
    wanted = []
    for i, (model, fit) in enumerate(zip(models, fits, strict=True)):
        share = getattr(model, "pseudo_labels", None)  # not every method has them
        if share is not None and not 0.5 < share < 1:
            raise InputError(f"pseudo_labels is {share}; it must be above .5 and below 1.")
        if share is not None and not fit.train.labeled().all():
            wanted.append((i, share))
    taught = list(fits)
    if not wanted:
        return taught
    teachers = [copy.copy(models[i]) for i, _ in wanted]
    lessons = []
    for (i, _), teacher in zip(wanted, teachers, strict=True):
        teacher.checkpoint = None  # a fit that was stopped teaches again
        labeled = np.flatnonzero(fits[i].train.labeled())
        lessons.append(fits[i]._replace(train=fits[i].train.take(labeled)))
    pack = make_pack(teachers, lessons)
    pack.train()
    for number, ((i, share), teacher) in enumerate(zip(wanted, teachers, strict=True)):
        teacher._adopt(pack.of_task(number))
        others = fits[i].train.take(np.flatnonzero(~fits[i].train.labeled()))
        found = teacher._pseudo_labels(lessons[number], others, share)
        taught[i] = fits[i]._replace(taught=found)
    return taught


def pad_features(models: Sequence[PackedClassifier], fits: Sequence[Fit]) -> list[Fit]:
    """Pad the features of all fits with zeros to the same width, and set it in the models.

    Each fit learns from its own training rows which words, categories and bins become columns, so
    the widths may differ; members of one pack need the same.
    """
    width = max(model.n_columns_ for model in models)
    padded = []
    for model, fit in zip(models, fits, strict=True):
        n_more, model.n_columns_ = width - model.n_columns_, width
        if n_more and model.components_.is_used:
            model.components_.pad(n_more)
        elif n_more and not model.sparse_rows_:
            model.encoding_.pad(n_more)
        train = fit.train._replace(features=_padded(fit.train.features, width))
        validation = fit.validation
        if validation is not None:
            validation = validation._replace(features=_padded(validation.features, width))
        padded.append(Fit(train, validation, fit.seed))
    return padded


def _padded(features: Any, width: int) -> Any:
    if isinstance(features, MappedRows):
        return features.then(partial(_padded, width=width))
    n_rows, n_features = features.shape
    if sp.issparse(features):
        cells = (features.data, features.indices, features.indptr)
        return sp.csr_array(cells, shape=(n_rows, width))
    return np.pad(features, ((0, 0), (0, width - n_features)))
