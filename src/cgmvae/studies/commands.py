"""What the commands of a study do: run what is missing, say how far it is, write its tables.

``cgmvae bench`` and ``python -m cgmvae.studies`` are two thin faces of these functions.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from cgmvae.errors import InputError
from cgmvae.studies.engines import Engine, Event, local_engine, ray_engine
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, make_jobs, unique
from cgmvae.studies.store import Store
from cgmvae.studies.study import Scope, Study
from cgmvae.studies.tables import Table, check_format, render
from cgmvae.studies.workers import Job

#: Seconds between looks at runs that another process makes.
_PATIENCE = 1.0

ENGINES = ("local", "ray")


def make_scope(
    *,
    quick: bool = False,
    data: str | None = None,
    methods: str | None = None,
    splits: str | None = None,
    seeds: str | None = None,
) -> Scope:
    """Return a scope from texts in which commas separate."""

    def words(text: str | None) -> tuple[str, ...] | None:
        return None if text is None else tuple(word.strip() for word in text.split(","))

    def numbers(text: str | None) -> tuple[int, ...] | None:
        try:
            return None if text is None else tuple(int(word) for word in text.split(","))
        except ValueError as error:
            raise InputError(f"{text!r} is not a list of whole numbers; write 0,1,2.") from error

    return Scope(quick, words(data), words(methods), numbers(splits), numbers(seeds))


def make_engine(
    name: str = "local",
    *,
    workers: int | None = None,
    address: str | None = None,
    gpus: float = 0,
    device: str = "auto",
) -> Engine:
    """Return the engine of this name; see :mod:`cgmvae.studies.engines`."""
    if name not in ENGINES:
        raise InputError(f"There is no engine {name!r}; choose one of {', '.join(ENGINES)}.")
    if name == "ray":
        return ray_engine(address=address, workers=workers, gpus=gpus, device=device)
    if address is not None or gpus:
        raise InputError(
            "Only the engine ray takes an address and accelerators of a job; choose it, or leave "
            "them out."
        )
    return local_engine(workers=1 if workers is None else workers, device=device)


@dataclass
class Progress:
    """How far a study is."""

    done: int
    """Runs that are there."""
    total: int
    running: list[Job] = field(default_factory=list)
    """Jobs under way, as far as the engine knows."""
    elsewhere: list[Job] = field(default_factory=list)
    """Jobs that another process works at."""
    failed: list[RunSpec] = field(default_factory=list)
    """Runs that could not be made; the store knows why."""


class Status(NamedTuple):
    """Runs of a study by what became of them."""

    done: int
    running: int
    failed: int
    missing: int


def run_study(
    study: Study,
    scope: Scope,
    store: Store,
    engine: Engine,
    *,
    tell: Callable[[Progress], None] = lambda _: None,
) -> list[RunSpec]:
    """Make the runs of a study that are missing, beside any other process that does the same.

    Returns
    -------
    list of RunSpec
        The runs that could not be made; the store knows why.
    """
    runs = unique(study.runs(scope))
    waiting = [job for job in make_jobs(runs) if not _all_done(store, job)]
    progress = Progress(_count_done(store, runs), len(runs))
    tell(progress)
    if waiting:
        store.check_writable()
    while waiting:
        progress.elsewhere = []
        with _closed_in_the_end(engine(waiting, store)) as events:
            for event in events:
                _take_in(event, progress, store)
                progress.done = _count_done(store, runs)
                tell(progress)
        waiting = [job for job in progress.elsewhere if not _all_done(store, job)]
        if waiting:
            time.sleep(_PATIENCE)
    progress.done = _count_done(store, runs)
    tell(progress)
    return progress.failed


@contextmanager
def _closed_in_the_end(events: Iterator[Event]) -> Iterator[Iterator[Event]]:
    """End the engine's work with the block: Ctrl-C must not leave processes behind."""
    try:
        yield events
    finally:
        if hasattr(events, "close"):
            events.close()


def _take_in(event: Event, progress: Progress, store: Store) -> None:
    job, what = event
    if what == "started":
        progress.running.append(job)
        return
    if job in progress.running:
        progress.running.remove(job)
    if what == "busy":
        progress.elsewhere.append(job)
    elif what == "failed":
        progress.failed += [spec for spec in job if not store.is_done(spec)]


def _all_done(store: Store, job: Job) -> bool:
    return all(store.is_done(spec) for spec in job)


def _count_done(store: Store, runs: Sequence[RunSpec]) -> int:
    return sum(store.is_done(spec) for spec in runs)


def study_status(study: Study, scope: Scope, store: Store) -> Status:
    """Count the runs of a study."""
    found = {"done": 0, "running": 0, "failed": 0, "missing": 0}
    for spec in unique(study.runs(scope)):
        if store.is_done(spec):
            found["done"] += 1
        elif store.is_claimed(spec):
            found["running"] += 1
        else:
            found["missing" if store.error(spec) is None else "failed"] += 1
    return Status(**found)


def describe_failures(runs: Sequence[RunSpec], store: Store) -> list[str]:
    """Say why runs could not be made, a line for all splits and seeds with the same reason."""
    reasons: dict[tuple[str, str, str], int] = {}
    for spec in unique(runs):
        if (reason := store.error(spec)) is not None:
            key = (spec.method, spec.data, reason)
            reasons[key] = reasons.get(key, 0) + 1
    return [
        f"{method} on {data} ({n} run{'s' if n > 1 else ''}): {reason}"
        for (method, data, reason), n in reasons.items()
    ]


def study_tables(study: Study, scope: Scope, store: Store, format: str) -> str:
    """Write the tables of a study from the runs that are there, and where these come from."""
    check_format(format)
    if not store.folder.is_dir() and study.runs(scope):
        raise InputError(
            f"There is no folder {store.folder}; name the one that has the runs, or make them "
            f"with: cgmvae bench {study.name}"
        )
    found = study.tables(scope, Results(store))
    return render([*found, *study_origin(study, scope, store)], format)


def study_origin(study: Study, scope: Scope, store: Store) -> list[Table]:
    """Return a table of the environments that the runs were made in."""
    counts: dict[tuple[str, ...], int] = {}
    fields = ("date", "device", "commit", "cgmvae", "torch")
    for spec in unique(study.runs(scope)):
        environment = store.environment(spec)
        if environment is not None:
            # An installed package has no commit.
            key = tuple(str(environment.get(name) or "–") for name in fields)
            counts[key] = counts.get(key, 0) + 1
    if not counts:
        return []
    rows = [[*key, str(n)] for key, n in sorted(counts.items())]
    command = f"Made by `{describe_command(study, scope)}`."
    return [Table("Where the runs were made", [*fields, "runs"], rows, [command])]


def describe_command(study: Study, scope: Scope) -> str:
    """Return the command that makes a study of this scope.

    Examples
    --------
    >>> from cgmvae.studies.studies import find_study
    >>> describe_command(find_study("main"), Scope(quick=True, seeds=(0, 1)))
    'cgmvae bench main --quick --seeds 0,1'
    """
    words = ["cgmvae", "bench", study.name]
    if scope.quick:
        words.append("--quick")
    for option in ("data", "methods", "splits", "seeds"):
        chosen = getattr(scope, option)
        if chosen is not None:
            words += [f"--{option}", ",".join(map(str, chosen))]
    return shlex.join(words)
