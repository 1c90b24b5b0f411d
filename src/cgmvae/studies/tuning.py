"""Runs with tuned settings: one search per cell on validation rows, stored and then shared.

A cell is all that the splits and seeds of a tuned run have in common. Its settings are chosen once,
on the training and validation rows of split :data:`TUNED_ON`, with every candidate a member of a
pack (:mod:`cgmvae.search.packed_search`); ``FOLDER/searches/KEY.json`` has the result, and a search
that was stopped resumes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from filelock import FileLock

from cgmvae.data.files import atomic_path, make_folder, read_json
from cgmvae.errors import InputError
from cgmvae.methods.registry import REGISTRY
from cgmvae.search import PAPER_SPACE, PackedSearch, grid, sample
from cgmvae.search.space import PAPER_WEIGHT_SPACE, Space
from cgmvae.studies.limits import OutOfTime, TimeLimit, limited
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


#: By how much each pack of a search with a limit of time is larger than the one before.
_GROWTH = 4

#: Share of a job's time after which a search that may be cut ends.
_SEARCH_SHARE = 0.5


@dataclass(frozen=True)
class Tuning:
    """How many settings a search tries."""

    n_settings: int | None
    """Drawn at random from all; None tries every point of the paper's grid, each with random values
    of :data:`WEIGHT_SPACE`."""
    rungs: tuple[float, ...] = (0.25, 0.5)
    """See :class:`~cgmvae.search.PackedSearch`."""
    alike: bool = False
    """Whether C-GMVAE, too, draws from its space in the registry, which has about as many settings
    as those of other methods, and not from the paper's, which has a thousand times as many."""


TUNINGS: Mapping[str, Tuning] = {
    "grid": Tuning(None),
    "random": Tuning(40),
    "quick": Tuning(3, rungs=()),
    "equal": Tuning(24, alike=True),
    "few": Tuning(3, rungs=(), alike=True),
}


def candidates(spec: RunSpec) -> list[dict[str, Any]]:
    """Return the settings that are tried for a run.

    What the run sets itself is not searched, nor what a weight of 0 makes meaningless. The first
    candidate is the run as it is; of another method, with its authors' values as far as known.
    """
    tuning, given = TUNINGS[spec.tuning], spec.settings
    if spec.method != "cgmvae" or tuning.alike:
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


def tuned_settings(
    spec: RunSpec, store: Store, *, device: str = "auto", time_limit: TimeLimit | None = None
) -> dict[str, Any]:
    """Return the record of a cell's search, made now if it is not stored.

    ``best`` are the settings to add to those of the run, ``value`` the validation metric that they
    reached, ``n_settings`` how many were tried in how many ``seconds``. With a limit of time
    settings are tried in ever larger packs until half of it is over. If not even the first was
    tried, which is the run as it is, or if the search must be whole, this is out of time.
    """
    cell = replace(spec, split=TUNED_ON, seed=0)
    if cell.tuning not in TUNINGS:
        raise InputError(f"There is no search {cell.tuning!r}; choose one of {', '.join(TUNINGS)}.")
    folder = make_folder(store.folder / "searches")
    path = folder / f"{cell.key}.json"
    with FileLock(folder / f"{cell.key}.lock"):
        if not path.exists():
            record = _search(cell, folder / cell.key, device, time_limit)
            with atomic_path(path) as temporary:
                temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return dict(read_json(path, advice="remove it and run the study again"))


def _search(cell: RunSpec, folder: Path, device: str, limit: TimeLimit | None) -> dict[str, Any]:
    parts, settings = load_parts(cell), candidates(cell)
    model: Any = REGISTRY[cell.method].estimator()
    model.set_params(**model.as_parameters(cell.parameters()))
    best, n_tried, start = None, 0, time.perf_counter()
    is_cut = limit is not None and limit.cuts_searches
    seconds = None if limit is None else limit.left() * (_SEARCH_SHARE if is_cut else 1)
    packs = [settings] if limit is None else _growing(settings)
    for number, pack in enumerate(packs):
        search = PackedSearch(
            model.set_params(device=device),
            pack,
            rungs=TUNINGS[cell.tuning].rungs,
            n_best=1,
            refit=False,
            folder=folder if limit is None else folder / str(number),
            random_state=0,
        )
        left = None if seconds is None else seconds - (time.perf_counter() - start)
        try:
            with limited(left):
                search.fit(
                    parts.train.X,
                    parts.train,
                    validation_data=(parts.validation.X, parts.validation),
                )
        except OutOfTime:
            if best is None or not is_cut:
                raise
            break
        n_tried += len(search.results_)
        if best is None or search.results_[0].value > best.value:
            best = search.results_[0]
    assert best is not None
    return {
        "best": best.setting,
        "value": best.value,
        "n_settings": n_tried,
        "seconds": round(time.perf_counter() - start, 2),
    }


def _growing(settings: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield the first of the settings, the next four, and so on; the last pack has the rest."""
    start, size = 0, 1
    while start < len(settings):
        if len(settings) - start <= 2 * size:
            size = len(settings) - start
        yield settings[start : start + size]
        start, size = start + size, _GROWTH * size
