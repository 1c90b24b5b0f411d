"""Search by packing: every setting, split and seed is a member of one training.

Members that share sizes and plan are trained in one pass, as many at a time as the device holds.
Part of the way the worse settings are left out of the pack (successive halving). The best settings
are then fitted as one ensemble, an ordinary estimator whose ``members`` they are.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cgmvae.errors import InputError
from cgmvae.methods.inputs import check_whole
from cgmvae.methods.packed import PackedClassifier
from cgmvae.methods.together import Fit, train_together, training_rows
from cgmvae.search.capacity import members_that_fit
from cgmvae.search.halving import Halving
from cgmvae.search.results import Pack, SearchFolder, SearchResult
from cgmvae.search.space import Space, sample
from cgmvae.search.widths import equally_wide
from cgmvae.training.loop import TrainingResult
from cgmvae.training.memory import in_parts
from cgmvae.training.selection import MEAN_OF_FIVE

#: Told after each epoch: pack, packs, epoch, epochs, best metric so far.
SearchProgress = Callable[[int, int, int, int, float], None]


@dataclass(kw_only=True, eq=False, repr=False)
class PackedSearch(MetaEstimatorMixin, BaseEstimator):
    """Search of a packed method's settings.

    Parameters
    ----------
    estimator : PackedClassifier
        What all settings share.
    space : mapping of str to sequence
        Values to try, by parameter of the estimator.
    n_settings : int, optional
        So many settings, drawn at random; all of them by default.
    metric : str
        What settings are compared by, on validation rows, at its best threshold.
    n_splits, n_seeds : int
        Splits into training and validation rows, and seeds on each, that a setting is tried with.
    rungs : sequence of float
        Shares of the training after which all but 1 in ``factor`` of the settings are left out.
    factor : int
        See ``rungs``.
    n_best : int
        Settings that make up the ensemble.
    folder : path, optional
        Where finished packs and the state of the unfinished one are kept; a search that was
        stopped continues from it.
    progress : callable, optional
        Told after each epoch.
    random_state : int, RandomState or None
        Seed of everything.

    Attributes
    ----------
    results_ : list of SearchResult
        All settings, the best first; those that were left out on the way come after the others, the
        sooner the later.
    best_estimator_ : PackedClassifier
        The ensemble of the best settings, fitted.

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

    estimator: PackedClassifier = field(kw_only=False)
    space: Space = field(kw_only=False)
    n_settings: int | None = None
    metric: str = MEAN_OF_FIVE
    n_splits: int = 1
    n_seeds: int = 1
    rungs: Sequence[float] = (0.25, 0.5)
    factor: int = 3
    n_best: int = 8
    folder: str | os.PathLike[str] | None = None
    progress: SearchProgress | None = None
    random_state: Any = None

    def fit(
        self, X: Any, Y: Any, *, validation_data: tuple[Any, Any] | None = None, groups: Any = None
    ) -> Self:
        """Try the settings, and fit the ensemble of the best.

        Parameters
        ----------
        X, Y, groups
            As in the estimator's ``fit``.
        validation_data : (X, Y), optional
            The validation rows of the only split; by default rows are held out.
        """
        self._check(validation_data)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = sample(self.space, self.n_settings, seed)
        models = [
            clone(self.estimator).set_params(random_state=seed + i) for i in range(self.n_splits)
        ]
        fits = [Fit(*model._prepare(X, Y, validation_data, None, groups)) for model in models]
        fits = equally_wide(models, fits)
        kept = SearchFolder(self.folder, settings, lambda: self._description(settings, fits))
        trial = _Trial(self, models, fits, settings, kept)
        packs = kept.packs(trial.packs)
        found: list[SearchResult] = []
        for number, pack in enumerate(packs):
            for part in in_parts(partial(trial.run, number, len(packs)), pack):
                found += part
        self.results_ = sorted(found, key=_rank)
        best = self._ensemble(models[0], fits[0], seed)
        best.set_params(checkpoint=kept.checkpoint(None) or self.estimator.checkpoint)
        best.fit(X, Y, validation_data=validation_data, groups=groups)
        self.best_estimator_ = best.set_params(checkpoint=self.estimator.checkpoint)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Return what the ensemble of the best settings returns."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return what the ensemble of the best settings returns."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def _check(self, validation_data: Any) -> None:
        if validation_data is not None and self.n_splits != 1:
            raise InputError("Validation rows are given, so there is one split; use n_splits=1.")
        if not isinstance(self.estimator, PackedClassifier):
            raise InputError(
                f"A search trains networks together, and {type(self.estimator).__name__} is none; "
                "give it one, such as CGMVAEClassifier."
            )
        check_whole(1, n_splits=self.n_splits, n_seeds=self.n_seeds, n_best=self.n_best)
        if self.factor < 2 or not all(0 < rung < 1 for rung in self.rungs):
            raise InputError("factor must be at least 2, and rungs shares between 0 and 1.")

    def _ensemble(self, model: PackedClassifier, fit: Fit, seed: int) -> PackedClassifier:
        """Return the unfitted ensemble of the best settings that share sizes and plan."""
        best = self.results_[0].setting
        plan = _plan_of(model, fit, best)
        settings = (result.setting for result in self.results_)
        alike = [setting for setting in settings if _plan_of(model, fit, setting) == plan]
        base = clone(self.estimator).set_params(random_state=seed, **best)
        return base.set_params(members=alike[: self.n_best])

    def _description(self, settings: Sequence[Any], fits: Sequence[Fit]) -> dict[str, Any]:
        """Return what tells this search from another, as JSON holds it."""
        parameters = clone(self.estimator).get_params(deep=False)
        elsewhere = {"device", "checkpoint", "progress", "random_state", "members"}
        own = {name: repr(value) for name, value in parameters.items() if name not in elsewhere}
        names = ("metric", "n_splits", "n_seeds", "rungs", "factor", "n_best", "random_state")
        return {
            "estimator": own,
            **{name: repr(getattr(self, name)) for name in names},
            "settings": [repr(setting) for setting in settings],
            "data": training_rows(fits, torch.device("cpu")).digests(),
        }


def _rank(result: SearchResult) -> tuple[bool, float, float]:
    """Return what results are sorted by; those without any score come last."""
    left_out = -math.inf if result.finished else -result.epochs
    return result.value == -math.inf, left_out, -result.value


def _plan_of(model: PackedClassifier, fit: Fit, setting: Mapping[str, Any]) -> str:
    """Return what settings of one pack agree in."""
    own = model._with(setting)
    return repr((own._shape(), own._training_config(fit.train)))


class _Trial:
    """The packs of one search: which settings they have, and what becomes of them."""

    def __init__(
        self,
        search: PackedSearch,
        models: Sequence[PackedClassifier],
        fits: Sequence[Fit],
        settings: list[dict[str, Any]],
        kept: SearchFolder,
    ) -> None:
        self.search, self.models, self.fits = search, models, fits
        self.settings, self.kept = settings, kept

    def packs(self) -> list[Pack]:
        """Return settings that are trained together: alike in sizes and plan, as many as fit."""
        model, fit = self.models[0], self.fits[0]
        groups: dict[str, Pack] = {}
        for number, setting in enumerate(self.settings):
            groups.setdefault(_plan_of(model, fit, setting), []).append(number)
        packs = []
        for alike in groups.values():
            room = members_that_fit(model._with(self.settings[alike[0]]), fit)
            size = max(1, room // (self.search.n_splits * self.search.n_seeds))
            packs += [alike[i : i + size] for i in range(0, len(alike), size)]
        return packs

    def run(self, number: int, n_packs: int, pack: Pack) -> list[SearchResult]:
        """Train one pack, or read what became of it when it was trained before."""
        stored = self.kept.results(pack)
        if stored is not None:
            return stored
        search, settings = self.search, [self.settings[i] for i in pack]
        tried = [self._model(model, pack, number, n_packs) for model in self.models]
        plan = tried[0]._training_config(self.fits[0].train)
        halving = Halving(len(settings), search.n_seeds, plan)
        halving.plan(search.rungs, search.factor, least=min(search.n_best, len(settings)))
        # One setting is compared with none, and its splits and seeds may be trained in parts.
        keep = halving if len(settings) > 1 else None
        result = train_together(tried, self.fits, keep=keep, selection=search.metric)
        found = self._results(settings, result)
        self.kept.keep(pack, found)
        return found

    def _results(
        self, settings: list[dict[str, Any]], result: TrainingResult
    ) -> list[SearchResult]:
        values = result.best_value.reshape(len(self.models), len(settings), -1)
        series = result.history.arrays()["validation"]
        trained = (~np.isnan(series)).sum(0).reshape(values.shape)
        finished = np.isin(np.arange(values.size), result.places).reshape(values.shape)
        return [
            SearchResult(
                setting,
                float(values[:, i].mean()),
                values[:, i].ravel().tolist(),
                int(trained[:, i].max()),
                bool(finished[:, i].all()),
            )
            for i, setting in enumerate(settings)
        ]

    def _model(
        self, model: PackedClassifier, pack: Pack, number: int, n_packs: int
    ) -> PackedClassifier:
        """Return an estimator whose members are the settings of a pack, each with every seed."""
        own = model._with(self.settings[pack[0]])
        own.members = [self.settings[i] for i in pack for _ in range(self.search.n_seeds)]
        own.checkpoint = self.kept.checkpoint(pack)
        if self.search.progress is not None:
            tell = self.search.progress
            own.progress = lambda epoch, epochs, best: tell(number, n_packs, epoch, epochs, best)
        return own
