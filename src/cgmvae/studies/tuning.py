"""Runs with tuned settings: one search per cell on validation rows, stored and then shared.

A cell is all that the splits and seeds of a tuned run have in common. Its settings are chosen once,
on the training and validation rows of split :data:`TUNED_ON`, with every candidate a member of a
pack (:mod:`cgmvae.search.packed_search`); ``FOLDER/searches/KEY.json`` has the result, and a search
that was stopped resumes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from filelock import FileLock

from cgmvae.data.files import atomic_path, make_folder, read_json
from cgmvae.errors import InputError
from cgmvae.methods.registry import REGISTRY
from cgmvae.search import PAPER_SPACE, PackedSearch, grid, sample
from cgmvae.search.space import PAPER_WEIGHT_SPACE, Space
from cgmvae.studies.rows import load_parts
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.store import Store

#: The split whose validation rows choose the settings; a study evaluates on others.
TUNED_ON = 0

#: What is tuned of C-GMVAE beyond the grid of rates, dropouts and weight decays: the paper's values
#: of E, α and β, and values of τ and of the KL weight around those of the presets.
WEIGHT_SPACE: Space = {
    **PAPER_WEIGHT_SPACE,
    "temperature": (0.1, 0.2, 0.5, 1.0),
    "kl_weight": (1 / 256, 1 / 16, 1.0, 6.0),
}


@dataclass(frozen=True)
class Tuning:
    """How many settings a search tries."""

    n_settings: int | None
    """Drawn at random from all; None tries every point of the paper's grid, each with random values
    of :data:`WEIGHT_SPACE`."""
    rungs: tuple[float, ...] = (0.25, 0.5)
    """See :class:`~cgmvae.search.PackedSearch`."""


TUNINGS: Mapping[str, Tuning] = {
    "grid": Tuning(None),
    "random": Tuning(40),
    "quick": Tuning(3, rungs=()),
}


def candidates(spec: RunSpec) -> list[dict[str, Any]]:
    """Return the settings that are tried for a run.

    What the run sets itself is not searched, nor what a weight of 0 makes meaningless. The first
    candidate is the run as it is; of another method, with its authors' values as far as known.
    """
    tuning, given = TUNINGS[spec.tuning], spec.settings
    if spec.method != "cgmvae":
        method = REGISTRY[spec.method]
        own = _searched(method.space, given)
        rates = {name: method.original[name] for name in own if name in method.original}
        return [rates, *sample(own, _besides_first(tuning), seed=0)]
    space = _searched(WEIGHT_SPACE, given)
    if given.get("contrastive_weight") == 0:
        del space["temperature"]
        if given.get("kl_weight") == 0:  # the scale of a single term means little to Adam
            del space["cross_entropy_weight"]
    if tuning.n_settings is not None:
        return [{}, *sample({**PAPER_SPACE, **space}, _besides_first(tuning), seed=0)]
    random = Random(0)
    return [
        {},
        *(
            {**point, **{name: random.choice(values) for name, values in space.items()}}
            for point in grid(PAPER_SPACE)
        ),
    ]


def _searched(space: Space, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in space.items() if name not in given}


def _besides_first(tuning: Tuning) -> int | None:
    return None if tuning.n_settings is None else tuning.n_settings - 1


def tuned_settings(spec: RunSpec, store: Store, *, device: str = "auto") -> dict[str, Any]:
    """Return the record of a cell's search, made now if it is not stored.

    ``best`` are the settings to add to those of the run, ``value`` the validation metric that they
    reached, ``n_settings`` how many were tried.
    """
    cell = replace(spec, split=TUNED_ON, seed=0)
    if cell.tuning not in TUNINGS:
        raise InputError(f"There is no search {cell.tuning!r}; choose one of {', '.join(TUNINGS)}.")
    folder = make_folder(store.folder / "searches")
    path = folder / f"{cell.key}.json"
    with FileLock(folder / f"{cell.key}.lock"):
        if not path.exists():
            record = _search(cell, folder / cell.key, device)
            with atomic_path(path) as temporary:
                temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return dict(read_json(path, advice="remove it and run the study again"))


def _search(cell: RunSpec, folder: Any, device: str) -> dict[str, Any]:
    parts = load_parts(cell)
    model: Any = REGISTRY[cell.method].estimator()
    model.set_params(**model.as_parameters(cell.parameters()))
    search = PackedSearch(
        model.set_params(device=device),
        candidates(cell),
        rungs=TUNINGS[cell.tuning].rungs,
        n_best=1,
        refit=False,
        folder=folder,
        random_state=0,
    )
    search.fit(parts.train.X, parts.train, validation_data=(parts.validation.X, parts.validation))
    best = search.results_[0]
    return {"best": best.setting, "value": best.value, "n_settings": len(search.results_)}
