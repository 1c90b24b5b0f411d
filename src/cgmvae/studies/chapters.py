"""The whole paper as one folder of pages: which study makes which table, in how much time.

::

    FOLDER/README.md    what is where, what was run, and what is missing
    FOLDER/NAME.md      a chapter: its tables, figures, and where its runs were made
    FOLDER/NAME.csv     the cells of its tables
    FOLDER/paper.json   command, commit, date, device, and seconds of all calls
    FOLDER/runs/        the runs, from which the same command resumes
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cgmvae.data import catalog
from cgmvae.data.files import atomic_path, make_folder, read_json
from cgmvae.errors import InputError
from cgmvae.studies import find_study
from cgmvae.studies.commands import (
    GPU_JOBS,
    Progress,
    Status,
    make_runs,
    missing_runs,
    study_origin,
    study_status,
    uses_gpu,
)
from cgmvae.studies.interpret import GROUPS
from cgmvae.studies.limits import TimeLimit, TimeLimits
from cgmvae.studies.results import Results
from cgmvae.studies.runner import STOPPED, describe_environment
from cgmvae.studies.spec import (
    Job,
    Scope,
    Study,
    StudyFigure,
    is_available,
    is_network,
    make_jobs,
    unique,
    why_missing,
)
from cgmvae.studies.store import Store
from cgmvae.studies.tables import render
from cgmvae.training.engine import SERIAL, Engine

#: Minutes for all chapters, in full and quick.
MINUTES, QUICK_MINUTES = 30.0, 10.0

#: The least time of a round, and the least limit of a job: with equal shares that are shorter than
#: a training nothing would be finished.
_LEAST_ROUND, _LEAST_LIMIT = 2.0, 20.0

#: How many equal shares of the time a job may take in the first round, since most take less, and
#: by how much this grows with each round.
_GENEROUS, _GROWTH = 3, 4

#: Splits that are scored, none of them the one that settings are chosen on, and seeds of models.
_SPLITS, _SEEDS, _QUICK_SPLITS = (1, 2, 3), (0,), (1, 2)

#: Comparisons of the ablation that the paper has: Table 5 and Table 7.
_COMPARISONS = ("parts", "modules")

#: Draws a figure into a file.
Draw = Callable[[StudyFigure, Path], None]


class Chapter(NamedTuple):
    """A page: what the paper has, the study that makes it, and how much of it is run."""

    name: str
    """Of the page."""
    title: str
    """The tables and figures of the paper."""
    study: str
    full: Scope
    quick: Scope
    alone: bool = False
    """Whether jobs run one after the other, because their seconds are the result."""
    data: Callable[[str], bool] = lambda _: True
    """Whether the chapter can have a data set."""

    def scope(self, *, quick: bool, data: Sequence[str] | None) -> Scope:
        """Return what is run of it, on these data sets if any are given."""
        own = self.quick if quick else self.full
        if data is None:
            return own
        return replace(own, data=tuple(filter(self.data, data)))


def _has_official_split(data: str) -> bool:
    return catalog.find_entry(data).official_split


_FULL = Scope(splits=_SPLITS, seeds=_SEEDS, tuning="equal")
_QUICK = Scope(
    quick=True, data=("yeast", "scene"), splits=_QUICK_SPLITS, seeds=_SEEDS, tuning="few"
)

CHAPTERS = (
    Chapter("data", "Table 4: the data sets", "stats", Scope(), Scope()),
    Chapter(
        "methods",
        "Tables 1 to 3: ten methods, five metrics, three protocols; splits of 80, 10 and 10%",
        "main-tuned",
        _FULL,
        _QUICK,
    ),
    Chapter(
        "methods_official",
        "Tables 1 to 3 on the publishers' test rows",
        "main-tuned",
        replace(_FULL, split="official"),
        replace(_QUICK, split="official", data=("yeast",), methods=("cgmvae", "mlknn", "asl")),
        data=_has_official_split,
    ),
    Chapter(
        "ablation",
        "Table 5: parts of the model; Table 7: covariance and GNN in place of the contrastive term",
        "ablation",
        replace(_FULL, splits=None, comparisons=_COMPARISONS),
        replace(_QUICK, data=("yeast",), comparisons=_COMPARISONS),
    ),
    Chapter(
        "fewer_data",
        "Table 6: half the rows; Figures 2 and 5 to 7: fewer rows",
        "fewer-data",
        Scope(seeds=_SEEDS),
        Scope(quick=True, methods=("cgmvae", "mpvae", "c2ae")),
    ),
    Chapter("time", "Table 8: seconds", "timing", Scope(), Scope(quick=True), alone=True),
    Chapter(
        "similarity",
        "Figures 3 and 4: which labels are similar",
        "interpret",
        Scope(seeds=_SEEDS),
        Scope(quick=True),
        data=GROUPS.__contains__,
    ),
)

#: What a page of ``--quick`` says of itself.
QUICK_NOTE = (
    "This is the quick version: it shows that everything runs, and decides nothing. It has two "
    "data sets (yeast and scene; most chapters have yeast alone), two splits in place of three to "
    "ten, and searches of 3 settings in place of 24. Methods with their authors' settings are left "
    "out. On the publishers' test rows and with fewer rows it has some of the methods, in the "
    "ablation the network `tuned` alone, and label similarities are those after three epochs."
)


@dataclass(frozen=True)
class Paper:
    """One call of the command: a folder, and how much of the paper is made."""

    folder: Path
    quick: bool = False
    data: tuple[str, ...] | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        """Check the data sets before anything is computed."""
        if self.data is not None:
            names = Scope(data=self.data).data or ()
            object.__setattr__(self, "data", names)
            if absent := [name for name in names if not is_available(name)]:
                raise InputError(f"{absent[0]} is {why_missing(absent[0])}.")
        if self.minutes is not None and not self.minutes > 0:
            raise InputError(f"minutes is {self.minutes}; give a positive number.")

    @property
    def store(self) -> Store:
        """The runs."""
        return Store(self.folder / "runs")

    @property
    def command(self) -> str:
        """The command that makes this folder; its name is left out."""
        words = ["cgmvae", "paper"]
        words += ["--quick"] if self.quick else []
        words += ["--data", ",".join(self.data)] if self.data else []
        words += [] if self.minutes is None else ["--minutes", f"{self.minutes:g}"]
        return shlex.join(words)

    def chapters(self) -> list[tuple[Chapter, Study, Scope]]:
        """Return the chapters that have data, with their studies and scopes."""
        found = []
        for chapter in CHAPTERS:
            scope = chapter.scope(quick=self.quick, data=self.data)
            if scope.data != ():
                found.append((chapter, find_study(chapter.study), scope))
        return found

    def make(
        self,
        engine: Engine = SERIAL,
        *,
        device: str = "auto",
        draw: Draw | None = None,
        on_progress: Callable[[str, Progress], None] = lambda *_: None,
    ) -> list[str]:
        """Run what is missing within the time, write the pages, and return what is missing still.

        All chapters are run together, so that networks have the GPU while other methods have the
        cores beside it; then those whose jobs run alone. The shortest jobs are first. In the first
        round each may take a few times its equal share of the time; in later ones more, and
        searches may be cut.
        """
        minutes = self.minutes or (QUICK_MINUTES if self.quick else MINUTES)
        begin = time.time()
        end = begin + 60 * minutes
        make_folder(self.folder)
        record = self._record(device)
        before, n_round = record["seconds"], 0
        self._write_record(record)
        while n_round == 0 or (self._waiting(None) and end - time.time() > _LEAST_ROUND):
            for alone, title in ((False, "paper"), (True, "time")):
                if not (jobs := self._waiting(alone)):
                    continue
                own = SERIAL if alone else engine
                left = (end - time.time()) * len(jobs) / len(self._waiting(None))
                make_runs(
                    [spec for job in jobs for spec in job],
                    self.store,
                    own,
                    device=device,
                    limits=_limits(jobs, own, device, left, n_round),
                    on_progress=partial(on_progress, title),
                )
            record["seconds"] = round(before + time.time() - begin, 1)
            self._write_pages(record, None)
            n_round += 1
        return self.write_pages(draw)

    def write_pages(self, draw: Draw | None = None) -> list[str]:
        """Write the pages from the runs that are there, and return what is missing."""
        path = self.folder / "paper.json"
        if not path.exists():
            raise InputError(f"There are no runs in {self.folder}; leave out --pages-only first.")
        self._write_pages(read_json(path, advice="remove it"), draw)
        return [
            f"{chapter.name}: {sum(status) - status.done} of {sum(status)} runs"
            for chapter, study, scope in self.chapters()
            if (status := study_status(study, scope, self.store)).done < sum(status)
        ]

    def _waiting(self, alone: bool | None) -> list[Job]:
        """Return the jobs that are not done and may still be; of all chapters or of a kind."""
        runs = [
            spec
            for chapter, study, scope in self.chapters()
            if alone in (None, chapter.alone)
            for spec in study.runs(scope)
            if (self.store.error(spec) or STOPPED).startswith(STOPPED)
        ]
        jobs = make_jobs(unique(runs))
        return [job for job in jobs if not all(map(self.store.is_done, job))]

    def _record(self, device: str) -> dict[str, Any]:
        """Return the origin of the folder, with the seconds of earlier calls."""
        path = self.folder / "paper.json"
        earlier = read_json(path, advice="remove it") if path.exists() else {}
        environment = describe_environment(device)
        seconds = float(earlier.get("seconds", 0.0))
        return {"command": self.command, **environment, "seconds": seconds}

    def _write_record(self, record: Mapping[str, Any]) -> None:
        self._write("paper.json", json.dumps(record, indent=1) + "\n")

    def _write_pages(self, record: Mapping[str, Any], draw: Draw | None) -> None:
        self._write_record(record)
        for chapter, study, scope in self.chapters():
            self._write_page(chapter, study, scope, record, draw)
        self._write_index(record)

    def _write(self, name: str, text: str) -> None:
        with atomic_path(self.folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def _write_page(
        self,
        chapter: Chapter,
        study: Study,
        scope: Scope,
        record: Mapping[str, Any],
        draw: Draw | None,
    ) -> None:
        results = Results(scope, self.store)
        found = [table for table in study.tables(results) if table.rows]
        pictures = []
        for figure in study.figures(results) if draw else ():
            assert draw is not None
            name = f"{chapter.name}_{figure.name}.png"
            draw(figure, self.folder / name)
            pictures.append(f"![{figure.name}]({name})\n")
        origin = study_origin(study, scope, self.store, self.command)
        more = [*origin, *missing_runs(study, scope, self.store)]
        done = _done(study_status(study, scope, self.store))
        made = f"{_made(record)}; {done}."
        notes = [f"{QUICK_NOTE}\n"] if self.quick else []
        notes.append(f"{made} The cells of the tables: [{chapter.name}.csv]({chapter.name}.csv).\n")
        text = [f"# {chapter.title}\n", *notes, *pictures, render([*found, *more], "md")]
        self._write(f"{chapter.name}.md", "\n".join(text))
        self._write(f"{chapter.name}.csv", f"# {made}\n{render([*found, *more], 'csv')}")

    def _write_index(self, record: Mapping[str, Any]) -> None:
        rows = []
        for chapter, study, scope in self.chapters():
            page = f"[{chapter.name}.md]({chapter.name}.md)"
            done = _done(study_status(study, scope, self.store))
            rows.append(f"| {chapter.title} | {page} | {done} |")
        text = [
            "# The paper's tables and figures\n",
            *([f"{QUICK_NOTE}\n"] if self.quick else []),
            f"{_made(record)}.\n",
            "Time is limited for every method: a search stops after half of it and takes the best "
            "setting so far, and a method that takes longer has no numbers; its row says so. The "
            "same command resumes what is missing, with as much time again.\n",
            "| in the paper | page | runs |",
            "|---|---|---|",
            *rows,
            "",
        ]
        self._write("README.md", "\n".join(text))


def _made(record: Mapping[str, Any]) -> str:
    return (
        f"Made {record['date']} by `{record['command']}` on {record['device']}, commit "
        f"{record['commit'] or 'unknown'}, torch {record['torch']}, in {record['seconds']:.0f} s "
        "of all calls together"
    )


def _done(status: Status) -> str:
    return f"{status.done} of {sum(status)} runs" if sum(status) else "no runs"


def _limits(
    jobs: Sequence[Job], engine: Engine, device: str, seconds: float, n_round: int
) -> TimeLimits:
    """Return the limits of jobs that have these seconds, in a round: 0 is the first."""
    n_networks = sum(is_network(job[0].method) for job in jobs)
    n_others, at_a_time = len(jobs) - n_networks, engine.n_jobs
    shares = [at_a_time / len(jobs)] * 2
    if uses_gpu(engine, device):
        beside = max(1, at_a_time - GPU_JOBS)
        shares = [
            min(at_a_time, GPU_JOBS) / max(1, n_networks),
            beside / max(1, n_others) if n_others else 0.0,
        ]
    end = time.time() + seconds
    cut = n_round > 0
    return TimeLimits(
        *(
            TimeLimit(max(_LEAST_LIMIT, seconds * share * _GENEROUS * _GROWTH**n_round), end, cut)
            for share in shares
        )
    )
