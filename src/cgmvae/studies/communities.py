"""The benchmark of Norberg et al. (2019): predictions of whole communities of species.

Each set has 600 sites to learn from and 600 to predict, in three tasks: 1 and 2 interpolate, 3
extrapolates. The numbers of the joint models HMSC and DMVP-DRNets are stored beside the data, as
their authors evaluated them. The measures are those of :mod:`cgmvae.evaluation.joint`.

The data is not in the catalog: it is read from ``norberg2019/SET.npz`` in the folder that
``CGMVAE_DATA`` names, with the arrays ``Xt_k``, ``Xv_k`` (environment), ``St_k``, ``Sv_k``
(coordinates), ``Yt_k``, ``Yv_k`` (species; t to learn from, v to predict), ``DMVP_k`` and
``HMSC_k`` (twenty numbers each) of task k.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.errors import InputError
from cgmvae.evaluation.joint import DISSIMILARITIES, community_quality
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.registry import find_method
from cgmvae.studies.runner import describe_environment
from cgmvae.studies.tables import Cell, Table, number

SETS = ("birds", "plant", "vegetation")

#: The tasks, and what they ask for.
TASKS: Mapping[int, str] = {1: "interpolation", 2: "interpolation", 3: "extrapolation"}

#: Draws of label sets of each row, as in the benchmark.
N_DRAWS = 100

#: The models whose numbers are stored, by the name of their array.
STORED: Mapping[str, str] = {"DMVP": "DMVP-DRNets", "HMSC": "HMSC"}

_PROPERTIES = ("accuracy", "discrimination", "calibration", "precision")

#: Names of the twenty numbers, in their order.
NUMBERS = (
    *(f"species {name}" for name in _PROPERTIES),
    *(f"richness {name}" for name in _PROPERTIES),
    *(f"{index} {name}" for name in _PROPERTIES for index in DISSIMILARITIES),
)

#: Of which numbers more is better, and which are compared: a precise prediction need not be right.
_MORE = np.array(["discrimination" in name for name in NUMBERS])
_COMPARED = np.array(["precision" not in name for name in NUMBERS])

Numbers = NDArray[np.float64]


class Sites(NamedTuple):
    """One task of one set."""

    X: NDArray[np.float32]
    Y: NDArray[np.uint8]
    new_X: NDArray[np.float32]
    new_Y: NDArray[np.uint8]
    stored: Mapping[str, Numbers]
    """What other models reached, by title"""


class Result(NamedTuple):
    """What the models reached in one task of one set, (20,) by title."""

    data: str
    task: int
    numbers: Mapping[str, Numbers]


def load_sites(data: str, task: int, *, coordinates: bool = True) -> Sites:
    """Read one task; ``coordinates`` adds those of the sites to their features."""
    if data not in SETS:
        raise InputError(f"There is no set {data!r}; choose one of {', '.join(SETS)}.")
    if task not in TASKS:
        raise InputError(f"There is no task {task}; choose 1, 2 or 3.")
    path = Path(os.environ.get("CGMVAE_DATA", "")) / "norberg2019" / f"{data}.npz"
    if not path.exists():
        raise InputError(
            f"There is no {path}; name the folder that holds norberg2019/ in CGMVAE_DATA."
        )
    with np.load(path) as arrays:
        kinds = "XS" if coordinates else "X"
        X, new_X = (np.hstack([arrays[f"{kind}{part}_{task}"] for kind in kinds]) for part in "tv")
        stored = {title: arrays[f"{name}_{task}"] for name, title in STORED.items()}
        return Sites(X, arrays[f"Yt_{task}"], new_X, arrays[f"Yv_{task}"], stored)


def measure(model: MultiLabelClassifier, sites: Sites, *, seed: int = 0) -> Numbers:
    """Return the twenty numbers of a fitted model on the sites to predict."""
    scores = model.predict_proba(sites.new_X)
    draws = model.sample_labels(sites.new_X, N_DRAWS, random_state=seed)
    return community_quality(sites.new_Y.astype(bool), scores, draws, seed=seed).values()


def run(
    methods: Sequence[str],
    data: Sequence[str] = SETS,
    tasks: Sequence[int] = tuple(TASKS),
    *,
    coordinates: bool = True,
    seed: int = 0,
    device: str = "auto",
) -> Iterator[Result]:
    """Fit and measure methods of the registry, one result per set and task."""
    found = [find_method(name) for name in methods]
    everything = [
        (name, task, load_sites(name, task, coordinates=coordinates))
        for name in data
        for task in tasks
    ]
    for name, task, sites in everything:
        numbers = {}
        for method in found:
            model = method.estimator(random_state=seed)
            if "device" in model.get_params(deep=False):
                model.set_params(device=device)
            numbers[method.title] = measure(model.fit(sites.X, sites.Y), sites, seed=seed)
        yield Result(name, task, {**numbers, **sites.stored})


def at_least_as_good(own: Numbers, other: Numbers) -> NDArray[np.bool_]:
    """Return for each of the 15 numbers that are compared whether the own one is as good."""
    better = np.where(_MORE, own >= other, own <= other)
    return better[_COMPARED]


def tables(results: Sequence[Result]) -> list[Table]:
    """Return means over sets by kind of task, every cell, and how often a model is ahead."""
    titles = list(results[0].numbers) if results else []
    by_kind: dict[str, list[Result]] = {}
    for result in results:
        by_kind.setdefault(TASKS[result.task], []).append(result)
    found = [
        _number_table(f"Means, {kind}", titles, [each.numbers for each in own])
        for kind, own in by_kind.items()
    ]
    found += [
        _number_table(f"{each.data}, task {each.task}", titles, [each.numbers]) for each in results
    ]
    return [*found, _comparison(titles, results)] if results else []


def _number_table(
    title: str, titles: Sequence[str], numbers: Sequence[Mapping[str, Numbers]]
) -> Table:
    means = np.array([np.mean([own[each] for own in numbers], axis=0) for each in titles])
    best = np.where(_MORE, means.max(0), means.min(0))
    rows: list[list[Cell | str]] = []
    for i, name in enumerate(NUMBERS):
        is_best = (means[:, i] == best[i]) & _COMPARED[i]
        cells = zip(means[:, i], is_best, strict=True)
        rows.append([name, *(Cell(number(v), "best" if first else None) for v, first in cells)])
    return Table(title, ["measure", *titles], rows)


def _comparison(titles: Sequence[str], results: Sequence[Result]) -> Table:
    others = list(STORED.values())
    kinds = {"all": results} | {
        kind: [each for each in results if TASKS[each.task] == kind] for kind in TASKS.values()
    }
    rows = []
    for title in titles:
        for kind, own in kinds.items():
            if title in others or not own:
                continue
            shares = (
                np.mean([at_least_as_good(r.numbers[title], r.numbers[other]) for r in own])
                for other in others
            )
            rows.append([title, kind, *(f"{100 * share:.0f}%" for share in shares)])
    return Table(
        "Cells of set × task × measure in which a model is at least as good",
        ["model", "tasks", *(f"as {other}" for other in others)],
        rows,
        [
            "Of 15 measures: precision is left out, since a precise prediction may be wrong. Of "
            "discrimination more is better, of all others less. Task 3 extrapolates: its sites lie "
            "outside the region of the others.",
        ],
    )


def origin(device: str) -> Table:
    """Return where and with what the numbers were made."""
    fields = ("date", "device", "commit", "cgmvae", "torch")
    found = describe_environment(device)
    row = [str(found[name] or "–") for name in fields]
    return Table("Where the models were fitted", fields, [row])
