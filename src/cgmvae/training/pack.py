"""A pack: the members of several estimators, trained together.

An ensemble, the folds of a cross-validation, the seeds of a study and the settings of a search are
members of one pack. What a member learns depends on itself alone, so a pack may be trained all at
once, in parts where GPU memory is short, or divided among the processes of an engine: the result is
the same.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows, StackedRows
from cgmvae.errors import InputError
from cgmvae.nn.rng import RandomStreams, make_streams
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.device import free_memory
from cgmvae.training.engine import SERIAL, Engine, active_engine, run
from cgmvae.training.loop import Diverged, History, Keep, Progress, TrainingResult, train
from cgmvae.training.plan import Member, TrainingConfig, column
from cgmvae.training.progress import MergedProgress
from cgmvae.training.rows import RowStore, TrainingRows

Numbers = NDArray[np.int64]


class LabeledRows(Protocol):
    """Rows that members learn from."""

    @property
    def features(self) -> Any:
        """Scaled features, (n_rows, n_features)."""

    @property
    def labels(self) -> Matrix:
        """0 or 1, (n_rows, n_labels)."""

    @property
    def unknown(self) -> Matrix | None:
        """Which labels are unknown, (n_rows, n_labels); None if all are known."""

    @property
    def weights(self) -> NDArray[np.float64] | None:
        """Weight of each row, (n_rows,); None for 1 each."""


class LabelRows(NamedTuple):
    """Labels of the rows that a member trains on."""

    labels: Matrix
    unknown: Matrix | None
    weights: NDArray[np.float64] | None = None

    def row_weights(self) -> NDArray[np.float64]:
        """Return the weight of each row, 1 if none were given, (n_rows,)."""
        return np.ones(self.labels.shape[0]) if self.weights is None else self.weights


class Task(NamedTuple):
    """What one estimator wants trained."""

    rows: Sequence[LabeledRows]
    """Training rows, validation rows, …; members number them consecutively."""
    members: Sequence[Member]


#: Builds the network of some members, given the labels that each trains on.
NetworkFactory = Callable[[Sequence[Member], Sequence[LabelRows], RandomStreams], nn.Module]


class TrainedMembers(NamedTuple):
    """What an estimator gets back: the members that finished at least one epoch."""

    numbers: Numbers
    """Which of the task's members, (n_kept,)"""
    network: nn.Module
    history: dict[str, NDArray[np.float64]]
    """Terms and validation metric of each epoch, (n_epochs, n_kept)"""
    best_epoch: NDArray[np.int64]
    best_value: NDArray[np.float64]


class _Part(NamedTuple):
    """Members that were trained in one go."""

    numbers: Numbers
    network: nn.Module
    result: TrainingResult
    error: Diverged | None = None
    """Why none of them is usable."""

    @property
    def finished(self) -> Numbers:
        """Return the members that the network still holds, in its order."""
        return self.numbers[self.result.finished]


class _SentPart(NamedTuple):
    """A part as processes send it: the tensors of its network as arrays."""

    numbers: Numbers
    parameters: list[NDArray[Any]]
    buffers: list[NDArray[Any]]
    result: TrainingResult
    error: Diverged | None

    @classmethod
    def of(cls, part: _Part) -> _SentPart:
        """Take the tensors out of the network, whose class pickle may not be able to name."""
        parameters = [each.detach().cpu().numpy() for each in part.network.parameters()]
        buffers = [each.cpu().numpy() for each in part.network.buffers()]
        return cls(part.numbers, parameters, buffers, part.result, part.error)

    def received(self, network: nn.Module) -> _Part:
        """Return the part, with tensors in the form of this network."""
        parameters, buffers = (
            map(torch.from_numpy, own) for own in (self.parameters, self.buffers)
        )
        return _Part(
            self.numbers, _with_tensors(network, parameters, buffers), self.result, self.error
        )


class Pack:
    """Members of several tasks, and how they are trained.

    Parameters
    ----------
    tasks : sequence of Task
        With the same numbers of features and labels.
    build : callable
        Builds the network of some members, see :data:`NetworkFactory`.
    config : TrainingConfig
        The plan that all members share.
    device : torch.device
    checkpoint : Checkpoint, optional
        Where the state is saved, and resumed from.
    progress : callable, optional
        Called after each epoch.
    keep : callable, optional
        See :func:`~cgmvae.training.loop.train`. Since it compares members, the pack is then not
        trained in parts.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        build: NetworkFactory,
        config: TrainingConfig,
        *,
        device: torch.device,
        checkpoint: Checkpoint | None = None,
        progress: Progress | None = None,
        keep: Keep | None = None,
    ) -> None:
        self.tasks, self.build, self.config, self.device = tasks, build, config, device
        self.checkpoint, self.progress, self.keep = checkpoint, progress, keep
        sizes = [len(task.members) for task in tasks]
        #: The task of each member, and the member's number within it, (n_members,)
        self.owners = np.repeat(np.arange(len(tasks)), sizes)
        self.numbers = np.concatenate([np.arange(size) for size in sizes])
        self._parts: list[_Part] = []

    def train(self) -> TrainingResult:
        """Train all members; :meth:`of_task` then returns those of each task."""
        engine = self._engine()
        parts = self._division(engine.n_jobs)
        if min(engine.n_jobs, len(parts)) > 1:
            trained = self._train_side_by_side(parts, engine)
        else:
            trained = self._train_parts(parts, self.progress)
        trained.sort(key=_first_member)
        errors = [part.error for part in trained if part.error is not None]
        if len(errors) == len(trained):
            raise errors[0]
        for error in errors:
            warnings.warn(str(error), stacklevel=2)
        self._parts = trained
        return self._joined_result()

    def _engine(self) -> Engine:
        """Return where members are trained: none of them side by side if they are compared."""
        rows = [MappedRows.of(part.features) for task in self.tasks for part in task.rows]
        if self.keep is not None or any(own.on_disk for own in rows):
            return SERIAL
        return active_engine(len(self.owners), self.device)

    def _train_side_by_side(self, parts: list[Numbers], engine: Engine) -> list[_Part]:
        """Train each part in a process of the engine."""
        structure, _, rows = self.assemble(parts[0][:1])
        # The rows of one task are in memory once for all forked processes.
        shared = rows if engine.kind == "fork" and len(self.tasks) == 1 else None
        pack = copy.copy(self)
        pack.progress = None  # it stays here, and may be something that pickle cannot send

        def work(numbers: Numbers, report: Progress) -> list[_SentPart]:
            return [_SentPart.of(part) for part in pack._train_parts([numbers], report, shared)]

        merged = MergedProgress(len(parts), self.progress)
        trained = []
        with closing(run(work, parts, engine, on_report=merged.add)) as results:
            for number, sent in results:
                merged.end(number)
                trained += [each.received(structure) for each in sent]
        return trained

    def _train_parts(
        self,
        own: list[Numbers],
        progress: Progress | None,
        shared: TrainingRows | None = None,
    ) -> list[_Part]:
        """Train parts one after the other, in smaller ones if the GPU has too little memory."""
        parts = FittingParts(own)
        trained = []
        network: Any
        rows: Any
        for numbers in parts:
            try:
                network, members, rows = self.assemble(numbers, shared)
                result = train(
                    network,
                    members,
                    rows,
                    self.config,
                    device=self.device,
                    checkpoint=self._checkpoint_of(numbers),
                    progress=progress,
                    keep=self.keep,
                    first_number=int(numbers[0]),
                )
            except Diverged as error:
                trained.append(_Part(numbers, network, _no_result(len(numbers)), error))
                continue
            except torch.cuda.OutOfMemoryError as error:
                if self.keep is not None:
                    raise
                parts.halve(error)
                network = rows = None  # before the next attempt, their memory must be free
                continue
            except (MemoryError, RuntimeError) as error:
                if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
                    raise InputError(
                        f"There is too little memory for {len(numbers):,} models of this size; use "
                        "fewer of them, a smaller network or a smaller batch."
                    ) from error
                raise
            whole = len(numbers) == len(self.owners)
            # Copied, since views of one buffer would be pickled with all of it.
            network = join_members([(network, np.arange(len(result.finished)))])
            trained.append(_Part(numbers, network if whole else network.cpu(), result))
        return trained

    def of_task(self, number: int) -> TrainedMembers | None:
        """Return the trained members of a task; None if all of them were left out on the way."""
        result = self._joined_result()
        own = np.flatnonzero(self.owners == number)
        if not np.isin(own, result.finished).any():
            return None
        kept = own[(result.best_epoch[own] > 0) & np.isin(own, result.finished)]
        if len(kept) == 0:
            raise InputError("No member of a model finished an epoch; lower the learning rate.")
        chosen = [
            (part.network, np.searchsorted(part.finished, kept[np.isin(kept, part.finished)]))
            for part in self._parts
            if np.isin(kept, part.finished).any()
        ]
        (network, numbers), *others = chosen
        whole = not others and len(numbers) == len(self._parts[0].finished)
        network = network if whole and len(self.tasks) == 1 else join_members(chosen)
        history = result.history.arrays()
        return TrainedMembers(
            self.numbers[kept],
            network.to(self.device),
            {name: series[:, kept] for name, series in history.items()},
            result.best_epoch[kept],
            result.best_value[kept],
        )

    def assemble(
        self, numbers: Numbers, rows: TrainingRows | None = None
    ) -> tuple[nn.Module, list[Member], TrainingRows]:
        """Return the network of some members, these members, and the rows that they refer to.

        ``rows`` are these, if they have been put on the device before.
        """
        members: list[Member] = []
        labels: list[LabelRows] = []
        parts: list[LabeledRows] = []
        n_rows = 0
        for i in np.unique(self.owners[numbers]):
            task = self.tasks[i]
            own = [task.members[k] for k in self.numbers[numbers[self.owners[numbers] == i]]]
            labels += training_labels(task, own)
            members += [member.shifted(n_rows) for member in own]
            parts += task.rows
            n_rows += sum(part.labels.shape[0] for part in task.rows)
        network = self.build(members, labels, make_streams(column(members, "seed"), self.device))
        sparse = getattr(network, "takes_sparse_rows", False)
        if rows is None:
            rows = training_rows(parts, self.device, leave_sparse=sparse)
        return network, members, rows

    def _division(self, n_parts: int) -> list[Numbers]:
        """Return the members that are trained together, in this many parts.

        A training that was stopped is resumed with the parts of its checkpoint.
        """
        n_members = len(self.owners)
        if self.keep is not None:
            return [np.arange(n_members)]
        if self.checkpoint is not None and self.checkpoint.exists():
            return self.checkpoint.division(n_members)
        return np.array_split(np.arange(n_members), min(n_members, n_parts))

    def _checkpoint_of(self, numbers: Numbers) -> Checkpoint | None:
        if self.checkpoint is None or len(numbers) == len(self.owners):
            return self.checkpoint
        return self.checkpoint.part(numbers[0], numbers[-1])

    def _joined_result(self) -> TrainingResult:
        """Return the results of all parts as if they had been trained in one go."""
        n_members, parts = len(self.owners), self._parts
        n_epochs = max(len(each) for part in parts for each in part.result.history.values.values())
        history: dict[str, NDArray[np.float64]] = {}
        best_epoch, best_value = np.zeros(n_members, np.int64), np.zeros(n_members)
        for numbers, _, result, _ in parts:
            best_epoch[numbers], best_value[numbers] = result.best_epoch, result.best_value
            for name, series in result.history.arrays().items():
                joined = history.setdefault(name, np.full((n_epochs, n_members), np.nan))
                joined[: len(series), numbers] = series
        finished = np.concatenate([part.finished for part in parts])
        return TrainingResult(History.from_arrays(history), best_epoch, best_value, finished)


def _first_member(part: _Part) -> int:
    return int(part.numbers[0])


def _no_result(n_members: int) -> TrainingResult:
    """Return the result of members none of which is usable."""
    never = np.zeros(n_members, np.int64)
    return TrainingResult(History(), never, np.zeros(n_members), np.arange(n_members))


class FittingParts:
    """Iterates over parts of something, and halves them if they are too large for the GPU.

    Parameters
    ----------
    parts : sequence of list or array
        Each with at least one item.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self._waiting = list(parts)
        self._size: int | None = None

    def __iter__(self) -> Iterator[Any]:
        while self._waiting:
            self._current = self._waiting.pop(0)
            if self._size is not None:
                free_memory()
                if len(self._current) > self._size:
                    self._waiting.insert(0, self._current[self._size :])
                    self._current = self._current[: self._size]
            yield self._current

    def halve(self, error: torch.cuda.OutOfMemoryError) -> None:
        """Try the current part again in smaller ones; raise if it is a single item.

        Parts that follow become as small. A warning says so once.
        """
        if len(self._current) == 1:
            reason = str(error).partition(". ")[0]
            raise InputError(
                f"The GPU has too little memory for a single model ({reason}); use a smaller "
                "network or batch, or the device cpu."
            ) from error
        if self._size is None:
            warnings.warn(
                f"The GPU has no memory for a pack of {len(self._current):,}; smaller ones are "
                "trained one after the other.",
                stacklevel=3,
            )
        self._size = -(-len(self._current) // 2)
        self._waiting.insert(0, self._current)


def join_members(chosen: Sequence[tuple[nn.Module, Numbers]]) -> nn.Module:
    """Return a network of some members of one or several networks of the same form, as copies."""
    first = chosen[0][0]

    def joined(tensors: Sequence[Tensor]) -> Tensor:
        device = tensors[0].device
        taken = (
            tensor.detach()[torch.from_numpy(numbers).to(tensor.device)].to(device)
            for tensor, (_, numbers) in zip(tensors, chosen, strict=True)
        )
        return torch.cat(list(taken))

    parameters = zip(*(network.parameters() for network, _ in chosen), strict=True)
    buffers = zip(*(network.buffers() for network, _ in chosen), strict=True)
    return _with_tensors(first, map(joined, parameters), map(joined, buffers))


def _with_tensors(
    network: nn.Module, parameters: Iterable[Tensor], buffers: Iterable[Tensor]
) -> nn.Module:
    """Return a copy of a network's structure with other tensors, in the order of its own."""
    memo: dict[int, Any] = {}
    for own, new in zip(network.parameters(), parameters, strict=True):
        memo[id(own)] = nn.Parameter(new)
    for old, other in zip(network.buffers(), buffers, strict=True):
        memo[id(old)] = other
    return copy.deepcopy(network, memo)


def training_labels(task: Task, members: Sequence[Member]) -> list[LabelRows]:
    """Return the labels that each member trains on; members with equal rows share them."""
    labels = StackedRows([part.labels for part in task.rows])
    unknown = weights = None
    if any(part.unknown is not None for part in task.rows):
        unknown = StackedRows([_mask(part) for part in task.rows])
    if any(part.weights is not None for part in task.rows):
        weights = np.concatenate([_weights(part) for part in task.rows])
    found: dict[bytes, LabelRows] = {}
    keys = []
    for member in members:
        rows = np.setdiff1d(member.train_rows, member.validation_rows)
        keys.append(rows.tobytes())
        if keys[-1] not in found:
            found[keys[-1]] = LabelRows(
                _gathered(labels, rows),
                None if unknown is None else _gathered(unknown, rows),
                None if weights is None else weights[rows],
            )
    return [found[key] for key in keys]


def _gathered(rows: StackedRows, numbers: Numbers) -> Matrix:
    return rows.gather_sparse(numbers) if rows.is_sparse else rows.gather(numbers)


def label_log_odds(rows: LabelRows) -> NDArray[np.float64]:
    """Return the log-odds of each label among the rows in which it is known, (n_labels,)."""
    positive = np.asarray(rows.labels.sum(axis=0), np.float64).ravel()
    known = np.full(len(positive), float(rows.labels.shape[0]))
    if rows.unknown is not None:
        known -= np.asarray(rows.unknown.sum(axis=0), np.float64).ravel()
    return np.log(positive + 0.5) - np.log(known - positive + 0.5)


def training_rows(
    parts: Sequence[LabeledRows], device: torch.device, *, leave_sparse: bool = False
) -> TrainingRows:
    """Put rows on the device, one part after the other.

    ``leave_sparse`` allows batches of wide sparse features without their zeros.
    """

    def store(matrices: Sequence[Any], dtype: torch.dtype, **options: bool) -> RowStore:
        return RowStore(StackedRows(list(matrices)), dtype=dtype, device=device, **options)

    unknown = weight = None
    if any(part.unknown is not None for part in parts):
        unknown = store([_mask(part) for part in parts], torch.bool)
    if any(part.weights is not None for part in parts):
        weights = np.concatenate([_weights(part) for part in parts])
        weight = torch.as_tensor(weights, dtype=torch.float32, device=device)
    return TrainingRows(
        store([part.features for part in parts], torch.float32, leave_sparse=leave_sparse),
        store([part.labels for part in parts], torch.bool),
        unknown,
        weight,
    )


def _mask(part: LabeledRows) -> Matrix:
    if part.unknown is not None:
        return part.unknown
    return sp.csr_array(part.labels.shape, dtype=bool)


def _weights(part: LabeledRows) -> NDArray[np.float64]:
    return np.ones(part.labels.shape[0]) if part.weights is None else part.weights
