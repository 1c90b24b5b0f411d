"""Hyperparameter search by packing: every setting is a member of one training.

Settings that share sizes and training plan are trained in one pack, as many at a time as the device
holds. Part of the way through, the worst settings are dropped (successive halving). The best
settings are then fitted as one ensemble: an ordinary estimator whose ``members`` they are.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cgmvae.errors import InputError
from cgmvae.methods.inputs import Fit, check_whole
from cgmvae.methods.neural import (
    NeuralClassifier,
    begin_fit,
    bytes_per_member,
    make_pack,
    shape_of,
)
from cgmvae.search.results import Pack, SearchFolder, SearchResult
from cgmvae.search.space import Space, sample
from cgmvae.training.device import find_device, free_memory, machine_memory
from cgmvae.training.engine import Report, active_engine, max_processes, run
from cgmvae.training.loop import train
from cgmvae.training.pack import FittingParts, training_rows
from cgmvae.training.plan import TrainingConfig
from cgmvae.training.selection import MEAN_OF_FIVE

#: Called after each epoch with pack, number of packs, epoch, number of epochs, best metric so far.
SearchProgress = Callable[[int, int, int, int, float], None]


@dataclass(kw_only=True, eq=False, repr=False)
class PackedSearch(MetaEstimatorMixin, BaseEstimator):
    """Search over the hyperparameters of a packed method.

    Parameters
    ----------
    estimator : NeuralClassifier
        The estimator whose parameters are searched; what is not in ``space`` stays as it is.
    space : mapping of str to sequence, or sequence of mappings
        Values to try, by parameter of the estimator; or the settings themselves.
    n_settings : int, optional
        Number of settings to draw at random; all of them by default.
    metric : str
        Validation metric that settings are compared by, at its best threshold.
    rungs : sequence of float
        Fractions of the training after which only 1 in ``factor`` of the settings is kept.
    factor : int
        See ``rungs``.
    n_best : int
        Number of settings in the final ensemble.
    refit : bool
        Whether to fit that ensemble; without it there are only ``results_``.
    folder : path, optional
        Where finished packs and the checkpoint of the current one are stored; an interrupted
        search resumes from it.
    progress : callable, optional
        Called after each epoch, see ``SearchProgress``; packs may be trained side by side.
    random_state : int, RandomState or None
        Seed of everything.

    Attributes
    ----------
    results_ : list of SearchResult
        All settings, best first. Settings that were dropped come last, the earliest dropped at the
        very end.
    best_estimator_ : NeuralClassifier
        The fitted ensemble of the best settings.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> from cgmvae.methods import CGMVAEClassifier
    >>> data, _ = make_survey(200, 6, 5, seed=0)
    >>> base = CGMVAEClassifier(epochs=4, embedding_dim=16)
    >>> space = {"learning_rate": (1e-3, 1e-2), "dropout": (0.1, 0.3)}
    >>> search = PackedSearch(base, space, n_best=2, random_state=0).fit(data.X, data.Y)
    >>> len(search.results_), search.best_estimator_.pack_size
    (4, 2)
    """

    estimator: NeuralClassifier = field(kw_only=False)
    space: Space | Sequence[Mapping[str, Any]] = field(kw_only=False)
    n_settings: int | None = None
    metric: str = MEAN_OF_FIVE
    rungs: Sequence[float] = (0.25, 0.5)
    factor: int = 3
    n_best: int = 8
    refit: bool = True
    folder: str | os.PathLike[str] | None = None
    progress: SearchProgress | None = None
    random_state: Any = None

    def fit(
        self, X: Any, Y: Any, *, validation_data: tuple[Any, Any] | None = None, groups: Any = None
    ) -> Self:
        """Train all settings, then fit the ensemble of the best ones.

        Parameters
        ----------
        X, Y, groups
            As in the estimator's ``fit``.
        validation_data : (X, Y), optional
            The rows that settings are compared on; by default rows are held out.
        """
        self._check()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = sample(self.space, self.n_settings, seed)
        model = clone(self.estimator).set_params(random_state=seed)
        fit = begin_fit(model, X, Y, validation_data, None, groups, hold_out=True)
        stored = SearchFolder(self.folder, settings, lambda: self._description(settings, fit))
        trial = _Trial(self, model, fit, settings, stored)
        found = trial.run(stored.packs(trial.packs))

        def rank(result: SearchResult) -> tuple[bool, float, float]:
            """Order by metric, after that the dropped settings, then those without any score."""
            dropped = -math.inf if result.finished else -result.epochs
            return result.value == -math.inf, dropped, -result.value

        self.results_ = sorted(found, key=rank)
        if not self.refit:
            return self
        # The ensemble has the best settings that can be trained in one pack.
        first = self.results_[0].setting
        ranked = [result.setting for result in self.results_]
        keys = [_pack_key(model, setting) for setting in ranked]
        alike = [setting for setting, key in zip(ranked, keys, strict=True) if key == keys[0]]
        best = clone(self.estimator)
        best.set_params(random_state=seed, **best.as_parameters(first))
        best.set_params(
            members=alike[: self.n_best],
            checkpoint=stored.checkpoint(None) or self.estimator.checkpoint,
        )
        best.fit(X, Y, validation_data=validation_data, groups=groups)
        self.best_estimator_ = best.set_params(checkpoint=self.estimator.checkpoint)
        return self

    def predict_proba(self, X: Any, *, as_frame: bool = False) -> Any:
        """Return the label probabilities of the best ensemble, (n_samples, n_labels)."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X, as_frame=as_frame)

    def predict(self, X: Any, *, as_frame: bool = False) -> Any:
        """Return the labels that the best ensemble predicts, (n_samples, n_labels)."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X, as_frame=as_frame)

    def _check(self) -> None:
        if not isinstance(self.estimator, NeuralClassifier):
            raise InputError(
                f"A search needs a neural method, which {type(self.estimator).__name__} is not; "
                "use one such as CGMVAEClassifier."
            )
        check_whole(1, n_best=self.n_best)
        if self.factor < 2 or not all(0 < rung < 1 for rung in self.rungs):
            raise InputError("factor must be at least 2, and all rungs between 0 and 1.")

    def _description(self, settings: Sequence[Any], fit: Fit) -> dict[str, Any]:
        """Return what distinguishes this search from another one, in JSON types."""
        parameters = clone(self.estimator).get_params(deep=False)
        ignored = {"device", "checkpoint", "progress", "random_state", "members"}
        own = {name: repr(value) for name, value in parameters.items() if name not in ignored}
        names = ("metric", "rungs", "factor", "n_best", "random_state")
        rows = [part for part in fit[:2] if part is not None]
        return {
            "estimator": own,
            **{name: repr(getattr(self, name)) for name in names},
            "settings": [repr(setting) for setting in settings],
            "data": training_rows(rows, torch.device("cpu")).digests(),
        }


def _pack_key(model: NeuralClassifier, setting: Mapping[str, Any]) -> str:
    """Return a key that is equal for settings that can be trained in one pack."""
    own = model.changed(setting)
    return repr((shape_of(own), own.plan_.training))


@dataclass
class _Trial:
    """The packs of one search: which settings each one has, and how it is trained."""

    search: PackedSearch
    model: NeuralClassifier
    fit: Fit
    settings: list[dict[str, Any]]
    stored: SearchFolder

    def packs(self) -> list[Pack]:
        """Group settings of the same sizes and training plan, as many as the device holds."""
        groups: dict[str, Pack] = {}
        for number, setting in enumerate(self.settings):
            groups.setdefault(_pack_key(self.model, setting), []).append(number)
        packs = []
        for alike in groups.values():
            size = members_that_fit(self.model.changed(self.settings[alike[0]]), self.fit)
            packs += [alike[i : i + size] for i in range(0, len(alike), size)]
        return packs

    def run(self, packs: Sequence[Pack]) -> list[SearchResult]:
        """Return the results of all packs, in their order; several are trained side by side."""

        def tell(number: int, *told: Any) -> None:
            if self.search.progress is not None:
                self.search.progress(number, len(packs), *told)

        engine = active_engine(len(packs), find_device(self.model.device))
        found: dict[int, list[SearchResult]] = {}
        with closing(run(self._train_fitting, packs, engine, on_report=tell)) as done:
            for number, results in done:
                # Settings stay here, since pickle may not be able to send them.
                found[number] = [SearchResult(self.settings[i], *own) for i, own in results]
        return [result for number in sorted(found) for result in found[number]]

    def _train_fitting(
        self, pack: Pack, report: Report
    ) -> list[tuple[int, tuple[float, int, bool]]]:
        """Train a pack, in parts if it is too large for the GPU; return the numbers by setting."""
        parts, found = FittingParts([pack]), []
        for part in parts:
            try:
                results = self.stored.results(part) or self._train(part, report)
            except torch.cuda.OutOfMemoryError as error:
                parts.halve(error)
                continue
            found += [(i, own[1:]) for i, own in zip(part, results, strict=True)]
        return found

    def _train(self, pack: Pack, report: Report) -> list[SearchResult]:
        """Train a pack, and store its results."""
        search, settings = self.search, [self.settings[i] for i in pack]
        model = self.model.changed(settings[0])
        model.members = settings
        model.checkpoint = self.stored.checkpoint(pack)
        if search.progress is not None:
            model.progress = report
        training = model.plan_.training
        assert training is not None
        halving = Halving(len(settings))
        least = min(search.n_best, len(settings))
        halving.plan(training.epochs, search.rungs, search.factor, least=least)
        result = make_pack([model], [self.fit], keep=halving, selection=search.metric).train()
        trained = (~np.isnan(result.history.arrays()["validation"])).sum(0)
        found = [
            SearchResult(
                setting, float(result.best_value[i]), int(trained[i]), i in result.finished
            )
            for i, setting in enumerate(settings)
        ]
        self.stored.keep(pack, found)
        return found


@dataclass
class Halving:
    """Successive halving: drops the worst settings of a pack during training."""

    n_settings: int
    kept_after: dict[int, int] = field(default_factory=dict)
    """How many settings are kept after which epoch."""

    def plan(self, epochs: int, rungs: Sequence[float], factor: int, *, least: int) -> None:
        """Set how many settings are kept after which epoch."""
        kept = self.n_settings
        for rung in sorted(rungs):
            kept = max(least, -(-kept // factor))
            self.kept_after[max(1, round(rung * epochs))] = kept

    def __call__(
        self, epoch: int, members: NDArray[np.int64], values: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return the indices of the members that continue."""
        if epoch not in self.kept_after:
            return members
        finite = np.where(np.isfinite(values), values, -1.0)
        best = np.argsort(-finite, kind="stable")[: self.kept_after[epoch]]
        return members[np.sort(best)]


#: Fraction of a device's memory that a pack may take.
_MEMORY_FRACTION = 0.6

#: Sizes of the packs whose GPU memory is measured.
_FEW, _MANY = 4, 12

#: Largest pack on a CPU: more members train no faster per member.
_MAX_ON_CPU = 32


def members_that_fit(model: NeuralClassifier, fit: Fit) -> int:
    """Return how many members like the model's can be trained in one pack, at least 1."""
    device = find_device(model.device)
    if device.type == "cuda":
        free_memory()
        free, _ = torch.cuda.mem_get_info(device)
        return max(1, int(free * _MEMORY_FRACTION / _measured_bytes(model, fit, device)))
    memory = machine_memory()
    if memory is None:
        return _MAX_ON_CPU
    # Every process may train a pack.
    n_members = int(memory * _MEMORY_FRACTION / max_processes() / bytes_per_member(model))
    return max(1, min(_MAX_ON_CPU, n_members))


def _measured_bytes(model: NeuralClassifier, fit: Fit, device: torch.device) -> float:
    """Return the GPU memory of one more member, measured with packs of two sizes.

    Infinite where the larger one runs out of memory.
    """
    peaks = []
    try:
        for n_members in (_FEW, _MANY):
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            pack = make_pack([model.changed({"n_members": n_members})], [fit])
            config = TrainingConfig(epochs=1, batch_size=pack.config.batch_size)
            network, members, rows = pack.assemble(np.arange(n_members))
            train(network, members, rows, config, device=device)
            peaks.append(torch.cuda.max_memory_allocated(device) - before)
            del pack, network, rows
    except torch.cuda.OutOfMemoryError:
        return np.inf
    return max(1.0, (peaks[1] - peaks[0]) / (_MANY - _FEW))
