"""The whole paper as one folder of pages: which study makes which table, in how much time.

::

    FOLDER/README.md    what is where, what was run, and what is missing
    FOLDER/NAME.md      a chapter: its tables, figures, and where its runs were made
    FOLDER/NAME.csv     the cells of its tables
    FOLDER/paper.json   command, commit, date, device, and seconds by chapter
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
    missing_runs,
    run_study,
    study_origin,
    study_status,
)
from cgmvae.studies.interpret import GROUPS
from cgmvae.studies.limits import TimeLimit
from cgmvae.studies.results import Results
from cgmvae.studies.runner import STOPPED, describe_environment
from cgmvae.studies.spec import (
    Scope,
    Study,
    StudyFigure,
    is_available,
    make_jobs,
    unique,
    why_missing,
)
from cgmvae.studies.store import Store
from cgmvae.studies.tables import render
from cgmvae.training.device import find_device
from cgmvae.training.engine import SERIAL, Engine

#: Minutes for all chapters, in full and quick.
MINUTES, QUICK_MINUTES = 30.0, 10.0

#: The least time of a job, and of a chapter that is tried again: in less, hardly data are read.
_LEAST_SECONDS = 2.0

#: How many times its equal share of the time a job may take in the first round, and after it.
_FIRST, _GENEROUS = 0.3, 5.0

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
_QUICK_NOTE = (
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

        A chapter has a share of the time that is left, by the number of its missing jobs. In the
        first round each of them has a part of its own share, so that what is fast is done; then up
        to a few times its share, since most are done, and searches may be cut.
        """
        minutes = self.minutes or (QUICK_MINUTES if self.quick else MINUTES)
        end = time.time() + 60 * minutes
        make_folder(self.folder)
        record = self._record(device)
        n_round, is_stopped = 0, True
        while is_stopped:
            is_stopped, chapters = False, self.chapters()
            while chapters:
                n_jobs = [len(_jobs(study, scope, self.store)) for _, study, scope in chapters]
                chapter, study, scope = chapters.pop(0)
                if n_round and not n_jobs[0]:
                    continue
                own = SERIAL if chapter.alone else engine
                start = time.time()
                share = (end - start) * n_jobs[0] / max(1, sum(n_jobs))
                if n_round and share < _LEAST_SECONDS:
                    continue
                part = _GENEROUS if n_round else _FIRST
                seconds = part * share * _at_a_time(own, device) / max(1, n_jobs[0])
                failed = run_study(
                    study,
                    scope,
                    self.store,
                    own,
                    device=device,
                    time_limit=TimeLimit(
                        max(seconds, _LEAST_SECONDS), start + share, cuts_searches=n_round > 0
                    ),
                    on_progress=partial(on_progress, chapter.name),
                )
                errors = map(self.store.error, failed)
                is_stopped |= any(each is None or each.startswith(STOPPED) for each in errors)
                before = record["seconds"].get(chapter.name, 0.0)
                record["seconds"][chapter.name] = round(before + time.time() - start, 1)
                self._write("paper.json", json.dumps(record, indent=1) + "\n")
                self._write_page(chapter, study, scope, record, draw)
                self._write_index(record)
            n_round += 1
        found = [
            (chapter.name, study_status(study, scope, self.store))
            for chapter, study, scope in self.chapters()
        ]
        return [
            f"{name}: {sum(status) - status.done} of {sum(status)} runs"
            for name, status in found
            if status.done < sum(status)
        ]

    def _record(self, device: str) -> dict[str, Any]:
        """Return the origin of the folder, with the seconds of earlier calls."""
        path = self.folder / "paper.json"
        earlier = read_json(path, advice="remove it") if path.exists() else {}
        environment = describe_environment(device)
        return {
            "command": self.command,
            **environment,
            "seconds": {name: float(own) for name, own in earlier.get("seconds", {}).items()},
        }

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
        made = _made(record, chapter.name)
        notes = [f"{_QUICK_NOTE}\n"] if self.quick else []
        notes.append(f"{made} The cells of the tables: [{chapter.name}.csv]({chapter.name}.csv).\n")
        text = [f"# {chapter.title}\n", *notes, *pictures, render([*found, *more], "md")]
        self._write(f"{chapter.name}.md", "\n".join(text))
        self._write(f"{chapter.name}.csv", f"# {made}\n{render([*found, *more], 'csv')}")

    def _write_index(self, record: Mapping[str, Any]) -> None:
        rows = []
        for chapter, study, scope in self.chapters():
            status = study_status(study, scope, self.store)
            done = f"{status.done} of {sum(status)}" if sum(status) else "no runs"
            seconds = record["seconds"].get(chapter.name)
            page = f"[{chapter.name}.md]({chapter.name}.md)"
            cells = [chapter.title, page, done, "–" if seconds is None else f"{seconds:.0f}"]
            rows.append(f"| {' | '.join(cells)} |")
        total = sum(record["seconds"].values())
        made = (
            f"Made {record['date']} by `{record['command']}` on {record['device']}, commit "
            f"{record['commit'] or 'unknown'}, torch {record['torch']}, in {total:.0f} s of all "
            "calls together."
        )
        text = [
            "# The paper's tables and figures\n",
            *([f"{_QUICK_NOTE}\n"] if self.quick else []),
            f"{made}\n",
            "Time is limited for every method: a search stops after half of it and takes the best "
            "setting so far, and a method that takes longer has no numbers; its row says so. The "
            "same command resumes what is missing, with as much time again.\n",
            "| in the paper | page | runs | seconds |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
        self._write("README.md", "\n".join(text))


def _made(record: Mapping[str, Any], chapter: str) -> str:
    return (
        f"Made {record['date']} by `{record['command']}` on {record['device']}, commit "
        f"{record['commit'] or 'unknown'}, in {record['seconds'][chapter]:.0f} s."
    )


def _jobs(study: Study, scope: Scope, store: Store) -> list[Any]:
    jobs = make_jobs(unique(study.runs(scope)))
    return [job for job in jobs if not all(map(store.is_done, job))]


def _at_a_time(engine: Engine, device: str) -> int:
    """Return how many jobs run side by side; few networks share a GPU."""
    on_gpu = engine.kind != "joblib" and find_device(device).type == "cuda"
    return min(engine.n_jobs, GPU_JOBS) if on_gpu else engine.n_jobs
