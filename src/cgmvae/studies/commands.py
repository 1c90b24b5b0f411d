"""The commands of a study: run what is missing, show the status, write tables."""

from __future__ import annotations

import json
import math
import shlex
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock

from cgmvae.data.files import atomic_path, make_folder, read_json
from cgmvae.errors import InputError
from cgmvae.studies.limits import OutOfTime, TimeLimits, limited
from cgmvae.studies.results import Results
from cgmvae.studies.runner import Outcome, run_job, write_errors
from cgmvae.studies.spec import (
    SELECTIONS,
    Job,
    RunSpec,
    Scope,
    Study,
    expected_work,
    is_available,
    is_network,
    make_jobs,
    unique,
    why_missing,
)
from cgmvae.studies.store import Store
from cgmvae.studies.tables import FORMATS, Table, number, render
from cgmvae.training.device import find_device
from cgmvae.training.engine import SERIAL, Engine, Report, run

#: How often a job whose process was killed is tried again.
RETRIES = 2

#: Networks that are trained on one GPU at a time: more of them slow each other down.
GPU_JOBS = 2

#: Seconds after the end of the time after which processes are ended.
_GRACE_SECONDS = 5.0

#: Seconds between checks of runs that another process makes.
_POLL_SECONDS = 1.0


def make_scope(
    *,
    quick: bool = False,
    data: str | None = None,
    methods: str | None = None,
    splits: str | None = None,
    seeds: str | None = None,
    split: str = "random",
    comparisons: str | None = None,
) -> Scope:
    """Return a scope from comma-separated texts."""

    def words(text: str | None) -> tuple[str, ...] | None:
        return None if text is None else tuple(word.strip() for word in text.split(","))

    def integers(text: str | None) -> tuple[int, ...] | None:
        try:
            return None if text is None else tuple(int(word) for word in text.split(","))
        except ValueError as error:
            raise InputError(f"{text!r} is not a list of integers; write 0,1,2.") from error

    numbers = integers(splits), integers(seeds)
    return Scope(quick, words(data), words(methods), *numbers, split, words(comparisons))


def remember_scope(study: Study, scope: Scope, store: Store) -> None:
    """Add a scope to the one that the folder has for a study, for :func:`remembered_scope`.

    Of two scopes with the same kind of splits and both quick or not, the union is kept; otherwise
    the newer one.
    """
    path = _scope_path(study.name, store)
    make_folder(path.parent)
    with FileLock(path.with_suffix(".lock")):
        if path.exists():
            scope = _union(_read_scope(path), scope)
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(asdict(scope), indent=1) + "\n", encoding="utf-8")


def remembered_scope(name: str, store: Store) -> Scope:
    """Return the scope with which a study was run in a folder, the full one by default."""
    path = _scope_path(name, store)
    return _read_scope(path) if path.exists() else Scope()


def _scope_path(name: str, store: Store) -> Path:
    return store.folder / "studies" / f"{name}.json"


def _read_scope(path: Path) -> Scope:
    found = read_json(path, advice="remove it and run the study again")
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
    }
    return Scope(**fields)


def _union(old: Scope, new: Scope) -> Scope:
    if (old.quick, old.split) != (new.quick, new.split):
        return new
    fields: dict[str, Any] = {}
    for name in SELECTIONS:
        one, other = getattr(old, name), getattr(new, name)
        fields[name] = None if None in (one, other) else (*one, *other)
    return replace(new, **fields)


@dataclass
class Progress:
    """The progress of a study."""

    done: int
    """Number of stored runs."""
    total: int
    running: list[Job] = field(default_factory=list)
    """Jobs in progress, on this machine."""
    elsewhere: list[Job] = field(default_factory=list)
    """Jobs that another process works on."""
    failed: list[RunSpec] = field(default_factory=list)
    """Runs that failed; the store has the reasons."""


class Status(NamedTuple):
    """Numbers of runs of a study by state."""

    done: int
    running: int
    failed: int
    missing: int


def run_study(
    study: Study,
    scope: Scope,
    store: Store,
    engine: Engine = SERIAL,
    *,
    device: str = "auto",
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> list[RunSpec]:
    """Make the missing runs of a study, and return those that failed; see :func:`make_runs`."""
    return make_runs(study.runs(scope), store, engine, device=device, on_progress=on_progress)


def make_runs(
    runs: Sequence[RunSpec],
    store: Store,
    engine: Engine = SERIAL,
    *,
    device: str = "auto",
    limits: TimeLimits | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> list[RunSpec]:
    """Make the missing ones of some runs, and return those that failed.

    When its time is over a job is stopped; see :func:`~cgmvae.studies.runner.run_job`. Processes
    that do not notice are ended.

    Jobs that run side by side start with the longest, so that none of them is left alone at the
    end; with limits of time with the shortest, so that most are done, and on a GPU with networks,
    which only some of the processes may train. Other processes may work on the same runs at the
    same time, on other machines too. The store has the reasons of failures.
    """
    runs = unique(runs)
    progress = Progress(0, len(runs))
    on_gpu = uses_gpu(engine, device)

    def report() -> None:
        progress.done = sum(map(store.is_done, runs))
        on_progress(progress)

    def make(jobs: Sequence[Job]) -> None:
        def start(number: int) -> None:
            if jobs[number] not in progress.running:  # it is, after its process was killed
                progress.running.append(jobs[number])
            report()

        def give_up(number: int, reason: str) -> Outcome:
            write_errors(jobs[number], store, f"{reason}. This was attempt {RETRIES + 1}.")
            return "failed"

        outcomes = run(
            partial(
                _run_in_folder,
                folder=str(store.folder.absolute()),
                device=device,
                limits=limits,
            ),
            jobs,
            engine,
            on_start=start,
            on_killed=give_up,
            retries=RETRIES,
            may_start=partial(may_start, on_gpu=on_gpu),
        )
        left = None
        if limits is not None and engine.kind == "spawn":
            left = limits.networks.end + _GRACE_SECONDS - time.time()
        with suppress(OutOfTime), limited(left), closing(outcomes):
            for number, outcome in outcomes:
                job = jobs[number]
                if job in progress.running:
                    progress.running.remove(job)
                if outcome == "busy":
                    progress.elsewhere.append(job)
                elif outcome == "failed":
                    progress.failed += [spec for spec in job if not store.is_done(spec)]
                report()

    waiting = [job for job in make_jobs(runs) if not all(map(store.is_done, job))]
    if limits is not None:
        waiting.sort(key=lambda job: (on_gpu and not is_network(job[0].method), expected_work(job)))
    elif engine.n_jobs > 1:
        waiting.sort(key=expected_work, reverse=True)
    report()
    while waiting:
        progress.elsewhere = []
        make(waiting)
        waiting = [job for job in progress.elsewhere if not all(map(store.is_done, job))]
        if waiting:
            time.sleep(_POLL_SECONDS)
    report()
    return progress.failed


def uses_gpu(engine: Engine, device: str) -> bool:
    """Return whether networks share the GPU of this machine."""
    return engine.kind != "joblib" and find_device(device).type == "cuda"


def may_start(job: Job, running: Sequence[Job], *, on_gpu: bool) -> bool:
    """Return whether a job may start beside those that run: few networks share a GPU."""
    n_networks = sum(is_network(own[0].method) for own in running)
    return not (on_gpu and is_network(job[0].method)) or n_networks < GPU_JOBS


def _run_in_folder(
    job: Job, report: Report, *, folder: str, device: str, limits: TimeLimits | None
) -> Outcome:
    limit = None
    if limits is not None:
        limit = limits.networks if is_network(job[0].method) else limits.others
    return run_job(job, Store(folder), device=device, time_limit=limit)


def study_status(study: Study, scope: Scope, store: Store) -> Status:
    """Count the runs of a study by state."""

    def state(spec: RunSpec) -> str:
        if store.is_done(spec):
            return "done"
        if store.is_claimed(spec):
            return "running"
        return "missing" if store.error(spec) is None else "failed"

    counts = Counter(map(state, unique(study.runs(scope))))
    return Status(*(counts[name] for name in Status._fields))


def describe_failures(runs: Sequence[RunSpec], store: Store) -> list[str]:
    """Return why runs failed, one line for all splits and seeds with the same reason."""
    reasons = Counter(
        (spec.method, spec.data, reason)
        for spec in unique(runs)
        if (reason := store.error(spec)) is not None
    )
    return [
        f"{method} on {data} ({n} run{'s' if n > 1 else ''}): {reason}"
        for (method, data, reason), n in reasons.items()
    ]


def study_tables(study: Study, scope: Scope, store: Store, format: str) -> str:
    """Return the text of a study's tables from the stored runs, and of their origin."""
    if format not in FORMATS:
        raise InputError(f"There is no format {format!r}; choose one of {', '.join(FORMATS)}.")
    if not store.folder.is_dir() and study.runs(scope):
        raise InputError(
            f"There is no folder {store.folder}; choose the folder of the runs, or make them with: "
            f"cgmvae bench {study.name}"
        )
    found = [table for table in study.tables(Results(scope, store)) if table.rows]
    more = (*study_origin(study, scope, store), *missing_runs(study, scope, store))
    return render([*found, *more], format)


def missing_runs(study: Study, scope: Scope, store: Store) -> list[Table]:
    """Return a table of what a study lacks: runs by data set, and data sets.

    With it goes an estimate of how long they would take, by the time that the same methods took on
    other data for as many rows and labels.
    """
    missing = [job for job in make_jobs(study.runs(scope)) if not all(map(store.is_done, job))]
    missing.sort(key=lambda job: job[0].data)
    speeds = _speeds(store, study.runs(scope))
    rows = []
    for data, jobs in groupby(missing, lambda job: job[0].data):
        own = list(jobs)
        runs = [spec for job in own for spec in job if not store.is_done(spec)]
        minutes = [speeds.get(_kind(job), math.nan) * expected_work(job) / 60 for job in own]
        known = float(np.nansum(minutes)) if not np.isnan(minutes).all() else math.nan
        at_least = "≥ " if np.isnan(minutes).any() and not math.isnan(known) else ""
        rows.append([data, _counted(runs), at_least + number(known, 1)])
    for data in study.data(scope):
        if not is_available(data):
            rows.append([data, why_missing(data), ""])
    note = (
        "Minutes: one job after the other, of the methods that were run on some data; by the "
        "seconds of these runs, times rows and labels."
    )
    columns = ["data", "missing runs", "estimated minutes"]
    return [Table("Not run yet", columns, rows, [note] if missing else [])] if rows else []


def _kind(job: Job) -> tuple[str, Any]:
    """Return a method and its preset, whose networks differ much in size."""
    return job[0].method, job[0].settings.get("preset")


def _speeds(store: Store, runs: Sequence[RunSpec]) -> dict[tuple[str, Any], float]:
    """Return the seconds per expected work of the methods that have runs, with their searches."""
    seconds: dict[tuple[str, Any], float] = {}
    work: dict[tuple[str, Any], float] = {}
    for job in make_jobs(runs):
        if (report := store.report(job[0])) is not None:
            own = report.get("seconds", {}), report.get("tuned") or {}
            spent = own[0].get("fit", math.nan) + own[1].get("seconds", 0.0)
            if not math.isnan(spent):  # of a training that was resumed
                kind = _kind(job)
                seconds[kind] = seconds.get(kind, 0.0) + spent
                work[kind] = work.get(kind, 0.0) + expected_work(job)
    return {kind: seconds[kind] / work[kind] for kind in seconds}


def _counted(runs: Sequence[RunSpec]) -> str:
    counts = Counter(spec.method for spec in runs)
    return ", ".join(f"{method}: {n}" for method, n in counts.items())


def study_origin(
    study: Study, scope: Scope, store: Store, command: str | None = None
) -> list[Table]:
    """Return a table of the environments in which the runs were made, and by which command."""
    fields = ("date", "device", "commit", "cgmvae", "torch")
    environments = filter(None, map(store.environment, unique(study.runs(scope))))
    # An installed package has no commit.
    counts = Counter(tuple(str(own.get(name) or "–") for name in fields) for own in environments)
    if not counts:
        return []
    rows = [[*key, str(n)] for key, n in sorted(counts.items())]
    note = f"Made by `{command or describe_command(study, scope)}`."
    return [Table("Where the runs were made", [*fields, "runs"], rows, [note])]


def describe_command(study: Study, scope: Scope) -> str:
    """Return the command that runs a study with this scope.

    Examples
    --------
    >>> from cgmvae.studies import find_study
    >>> describe_command(find_study("main"), Scope(quick=True, seeds=(0, 1)))
    'cgmvae bench main --quick --seeds 0,1'
    """
    words = ["cgmvae", "bench", study.name]
    if scope.quick:
        words.append("--quick")
    if scope.official:
        words += ["--split", scope.split]
    for option in SELECTIONS:
        chosen = getattr(scope, option)
        if chosen is not None:
            words += [f"--{option}", ",".join(map(str, chosen))]
    return shlex.join(words)
