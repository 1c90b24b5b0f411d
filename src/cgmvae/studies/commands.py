"""The studies by name, and their commands: run what is missing, show the status, write tables.

``cgmvae bench`` and ``python -m cgmvae.studies`` are two thin front ends of these functions.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from cgmvae.errors import InputError
from cgmvae.studies import claims, fewer_data, interpret, regimes, timing, unlabelled
from cgmvae.studies.ablation import ABLATION, REPLACEMENT
from cgmvae.studies.decide import DECIDE, DECIDE_MODULES, DECIDE_REGIMES, MAIN_TUNED
from cgmvae.studies.engines import Engine, local_engine, ray_engine
from cgmvae.studies.paper_tables import MAIN, PEER_STUDY, STATS
from cgmvae.studies.results import Results
from cgmvae.studies.spec import Job, RunSpec, Scope, Study, make_jobs, unique
from cgmvae.studies.store import Store
from cgmvae.studies.tables import FORMATS, Table, render

_FIRST = (MAIN, MAIN_TUNED, STATS, ABLATION, REPLACEMENT)
_DECIDING = (DECIDE, DECIDE_MODULES, DECIDE_REGIMES)
_OTHERS = (module.STUDY for module in (fewer_data, unlabelled, claims, regimes, timing, interpret))

STUDIES: Mapping[str, Study] = {
    study.name: study for study in (*_FIRST, *_DECIDING, *_OTHERS, PEER_STUDY)
}

ENGINES = ("local", "ray")

#: Seconds between checks of runs that another process makes.
_POLL_SECONDS = 1.0


def find_study(name: str) -> Study:
    """Return the study of this name."""
    if name not in STUDIES:
        raise InputError(f"There is no study {name!r}; choose one of {', '.join(STUDIES)}.")
    return STUDIES[name]


def make_scope(
    *,
    quick: bool = False,
    data: str | None = None,
    methods: str | None = None,
    splits: str | None = None,
    seeds: str | None = None,
    split: str = "random",
) -> Scope:
    """Return a scope from comma-separated texts."""

    def words(text: str | None) -> tuple[str, ...] | None:
        return None if text is None else tuple(word.strip() for word in text.split(","))

    def integers(text: str | None) -> tuple[int, ...] | None:
        try:
            return None if text is None else tuple(int(word) for word in text.split(","))
        except ValueError as error:
            raise InputError(f"{text!r} is not a list of integers; write 0,1,2.") from error

    return Scope(quick, words(data), words(methods), integers(splits), integers(seeds), split)


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
            "Only the engine ray takes an address or GPUs per job; choose it, or leave them out."
        )
    return local_engine(workers=1 if workers is None else workers, device=device)


@dataclass
class Progress:
    """The progress of a study."""

    done: int
    """Number of stored runs."""
    total: int
    running: list[Job] = field(default_factory=list)
    """Jobs in progress, as far as the engine knows."""
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
    engine: Engine,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> list[RunSpec]:
    """Make the missing runs of a study, and return those that failed.

    Other processes may do the same at the same time. The store has the reasons of failures.
    """
    runs = unique(study.runs(scope))
    progress = Progress(0, len(runs))

    def report() -> None:
        progress.done = sum(map(store.is_done, runs))
        on_progress(progress)

    waiting = [job for job in make_jobs(runs) if not all(map(store.is_done, job))]
    report()
    while waiting:
        progress.elsewhere = []
        with ExitStack() as stack:
            events = engine(waiting, store)
            if hasattr(events, "close"):  # Ctrl-C must not leave processes behind
                stack.callback(events.close)
            for job, what in events:
                if job in progress.running:
                    progress.running.remove(job)
                if what == "started":
                    progress.running.append(job)
                elif what == "busy":
                    progress.elsewhere.append(job)
                elif what == "failed":
                    progress.failed += [spec for spec in job if not store.is_done(spec)]
                report()
        waiting = [job for job in progress.elsewhere if not all(map(store.is_done, job))]
        if waiting:
            time.sleep(_POLL_SECONDS)
    report()
    return progress.failed


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
    found = study.tables(Results(scope, store))
    return render([*found, *study_origin(study, scope, store)], format)


def study_origin(study: Study, scope: Scope, store: Store) -> list[Table]:
    """Return a table of the environments in which the runs were made."""
    fields = ("date", "device", "commit", "cgmvae", "torch")
    environments = filter(None, map(store.environment, unique(study.runs(scope))))
    # An installed package has no commit.
    counts = Counter(tuple(str(own.get(name) or "–") for name in fields) for own in environments)
    if not counts:
        return []
    rows = [[*key, str(n)] for key, n in sorted(counts.items())]
    command = f"Made by `{describe_command(study, scope)}`."
    return [Table("Where the runs were made", [*fields, "runs"], rows, [command])]


def describe_command(study: Study, scope: Scope) -> str:
    """Return the command that runs a study with this scope.

    Examples
    --------
    >>> describe_command(find_study("main"), Scope(quick=True, seeds=(0, 1)))
    'cgmvae bench main --quick --seeds 0,1'
    """
    words = ["cgmvae", "bench", study.name]
    if scope.quick:
        words.append("--quick")
    if scope.official:
        words += ["--split", scope.split]
    for option in ("data", "methods", "splits", "seeds"):
        chosen = getattr(scope, option)
        if chosen is not None:
            words += [f"--{option}", ",".join(map(str, chosen))]
    return shlex.join(words)
