"""Search by packing: every setting, split and seed is a member of one training.

Members that share sizes and plan are trained in one pass, as many at a time as the device holds.
Part of the way the worse settings are left out of the pack (successive halving). The best settings
are then fitted as one ensemble, an ordinary estimator whose ``members`` they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cgmvae.data.files import atomic_path
from cgmvae.errors import InputError
from cgmvae.methods.packed import Fit, PackedClassifier, train_together
from cgmvae.search.capacity import members_that_fit
from cgmvae.search.space import Space, sample
from cgmvae.training.plan import TrainingConfig
from cgmvae.training.selection import MEAN_OF_FIVE


class SearchResult(NamedTuple):
    """What became of one setting."""

    setting: dict[str, Any]
    value: float
    """Mean of the metric over splits and seeds, at each one's best epoch."""
    values: list[float]
    """The metric of each split and seed."""
    epochs: int
    """Epochs that it was trained for; fewer than planned where it was left out."""


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
        All settings, the best first; those that were trained longer come before the others.
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
        packs = self._packs(models, fits, settings)
        found: list[SearchResult] = []
        for number, pack in enumerate(packs):
            found += self._try(pack, models, fits, number, len(packs))
        order = sorted(range(len(found)), key=lambda i: (-found[i].epochs, -found[i].value, i))
        self.results_ = [found[i] for i in order]
        self.best_estimator_ = self._ensemble(models[0], fits[0], seed)
        self.best_estimator_.fit(X, Y, validation_data=validation_data, groups=groups)
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
        for name in ("n_splits", "n_seeds", "n_best"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if self.factor < 2 or not all(0 < rung < 1 for rung in self.rungs):
            raise InputError("factor must be at least 2, and rungs shares between 0 and 1.")

    def _packs(
        self, models: Sequence[PackedClassifier], fits: Sequence[Fit], settings: list[Any]
    ) -> list[list[dict[str, Any]]]:
        """Return settings that are trained together: alike in sizes and plan, as many as fit."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for setting in settings:
            groups.setdefault(_plan_of(models[0], fits[0], setting), []).append(setting)
        packs = []
        for alike in groups.values():
            room = members_that_fit(models[0]._with(alike[0]), fits[0])
            size = max(1, room // (self.n_splits * self.n_seeds))
            packs += [alike[i : i + size] for i in range(0, len(alike), size)]
        return packs

    def _try(
        self,
        settings: list[dict[str, Any]],
        models: Sequence[PackedClassifier],
        fits: Sequence[Fit],
        number: int,
        n_packs: int,
    ) -> list[SearchResult]:
        """Train one pack, or read what became of it when it was trained before."""
        stored = self._stored(number, settings)
        if stored is not None:
            return stored
        tried = [self._trial(model, settings, number, n_packs) for model in models]
        halving = Halving(len(settings), self.n_seeds, tried[0]._training_config(fits[0].train))
        halving.plan(self.rungs, self.factor, least=min(self.n_best, len(settings)))
        result = train_together(tried, fits, keep=halving, selection=self.metric)
        values = result.best_value.reshape(self.n_splits, len(settings), self.n_seeds)
        series = result.history.arrays()["validation"]
        trained = (~np.isnan(series)).sum(0).reshape(values.shape)
        found = [
            SearchResult(
                setting,
                float(values[:, i].mean()),
                values[:, i].ravel().tolist(),
                int(trained[:, i].max()),
            )
            for i, setting in enumerate(settings)
        ]
        self._store(number, found)
        return found

    def _trial(
        self, model: PackedClassifier, settings: list[dict[str, Any]], number: int, n_packs: int
    ) -> PackedClassifier:
        """Return an estimator whose members are these settings, each with every seed."""
        own = model._with(settings[0])
        own.members = [setting for setting in settings for _ in range(self.n_seeds)]
        own.checkpoint = None if self.folder is None else self._place(f"{number}.checkpoint")
        if self.progress is not None:
            tell = self.progress
            own.progress = lambda epoch, epochs, best: tell(number, n_packs, epoch, epochs, best)
        return own

    def _ensemble(self, model: PackedClassifier, fit: Fit, seed: int) -> PackedClassifier:
        """Return the unfitted ensemble of the best settings that share sizes and plan."""
        best = self.results_[0].setting
        plan = _plan_of(model, fit, best)
        settings = (result.setting for result in self.results_)
        alike = [setting for setting in settings if _plan_of(model, fit, setting) == plan]
        base = clone(self.estimator).set_params(random_state=seed, **best)
        return base.set_params(members=alike[: self.n_best])

    def _place(self, name: str) -> Path:
        assert self.folder is not None
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"pack_{name}"

    def _stored(self, number: int, settings: list[dict[str, Any]]) -> list[SearchResult] | None:
        if self.folder is None or not (path := self._place(f"{number}.json")).exists():
            return None
        read = json.loads(path.read_text(encoding="utf-8"))
        plan = {"settings": settings, "search": self._description()}
        if {name: read.get(name) for name in plan} != json.loads(json.dumps(plan)):
            raise InputError(f"{path} is of another search; remove the folder or name another.")
        return [SearchResult(*each) for each in read["results"]]

    def _store(self, number: int, found: list[SearchResult]) -> None:
        if self.folder is None:
            return
        text = json.dumps(
            {
                "settings": [result.setting for result in found],
                "search": self._description(),
                "results": found,
            },
            indent=1,
        )
        with atomic_path(self._place(f"{number}.json")) as temporary:
            temporary.write_text(text, encoding="utf-8")
        self._place(f"{number}.checkpoint").unlink(missing_ok=True)

    def _description(self) -> dict[str, Any]:
        """Return what tells this search from another over the same settings."""
        parameters = clone(self.estimator).get_params(deep=False)
        elsewhere = {"device", "checkpoint", "progress", "random_state", "members"}
        own = {name: repr(value) for name, value in parameters.items() if name not in elsewhere}
        names = ("metric", "n_splits", "n_seeds", "rungs", "factor", "n_best", "random_state")
        return {"estimator": own} | {name: repr(getattr(self, name)) for name in names}


def _plan_of(model: PackedClassifier, fit: Fit, setting: Mapping[str, Any]) -> str:
    """Return what settings of one pack agree in."""
    own = model._with(setting)
    return repr((own._shape(), own._training_config(fit.train)))


class Halving:
    """Leaves the worse settings out of a pack part of the way.

    Members are ordered by split, setting and seed.
    """

    def __init__(self, n_settings: int, n_seeds: int, config: TrainingConfig) -> None:
        self.n_settings, self.n_seeds, self.config = n_settings, n_seeds, config
        self.left_after: Mapping[int, int] = {}

    def plan(self, rungs: Sequence[float], factor: int, *, least: int) -> None:
        """Say after which epoch how many settings are left."""
        left, after = self.n_settings, {}
        for rung in sorted(rungs):
            left = max(least, -(-left // factor))
            after[max(1, round(rung * self.config.epochs))] = left
        self.left_after = after

    def __call__(
        self, epoch: int, places: NDArray[np.int64], values: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return the members that go on."""
        if epoch not in self.left_after:
            return places
        setting = places // self.n_seeds % self.n_settings
        finite = np.where(np.isfinite(values), values, -1.0)
        sums = np.bincount(setting, finite, self.n_settings)
        counts = np.bincount(setting, minlength=self.n_settings)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
        best = np.argsort(-means, kind="stable")[: self.left_after[epoch]]
        return places[np.isin(setting, best)]
