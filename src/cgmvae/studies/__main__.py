"""``python -m cgmvae.studies``: the studies with the core packages only.

python -m cgmvae.studies main --quick --folder runs
python -m cgmvae.studies status --folder runs
python -m cgmvae.studies table main --folder runs --format md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cgmvae.errors import InputError
from cgmvae.studies.commands import (
    ENGINES,
    STUDIES,
    Progress,
    describe_failures,
    find_study,
    make_engine,
    make_scope,
    run_study,
    study_status,
    study_tables,
)
from cgmvae.studies.spec import SPLIT_KINDS, Scope, Study
from cgmvae.studies.store import Store
from cgmvae.studies.tables import FORMATS

#: Exit code after Ctrl-C, as in a shell.
_STOPPED = 130

#: Options of all commands that take comma-separated values.
_LISTS = ("data", "methods", "splits", "seeds")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cgmvae.studies", description="Run the studies with the core packages."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, study in STUDIES.items():
        run = commands.add_parser(name, help=study.title.replace("%", "%%"))
        _add_scope(run)
        run.add_argument("--engine", choices=ENGINES, default="local")
        run.add_argument("--workers", type=int, help="number of parallel jobs on this machine")
        run.add_argument("--address", help="address of a running Ray cluster")
        run.add_argument("--gpus", type=float, default=0, help="GPUs per Ray job")
        run.add_argument("--device", default="auto")
    for name, text in (("status", "state of the runs"), ("table", "tables of a study")):
        command = commands.add_parser(name, help=text)
        command.add_argument("study", nargs="?" if name == "status" else None)
        _add_scope(command)
        if name == "table":
            command.add_argument("--format", default="md", choices=tuple(FORMATS))
    return parser


def _add_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", default="runs", help="folder of the runs")
    parser.add_argument("--quick", action="store_true", help="a small version")
    for option in _LISTS:
        parser.add_argument(f"--{option}", help="comma-separated")
    parser.add_argument("--split", default=SPLIT_KINDS[0], choices=SPLIT_KINDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    given = _parser().parse_args(arguments)
    try:
        return _run(given)
    except InputError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped; run the same command to resume.", file=sys.stderr)
        return _STOPPED


def _run(given: argparse.Namespace) -> int:
    lists = {name: getattr(given, name) for name in _LISTS}
    scope = make_scope(quick=given.quick, split=given.split, **lists)
    store = Store(given.folder)
    if given.command == "status":
        for study in [find_study(given.study)] if given.study else STUDIES.values():
            counts = study_status(study, scope, store)._asdict().items()
            print(study.name, *(f"{n} {what}" for what, n in counts), sep=", ")
            _print_failures(study, scope, store)
        return 0
    if given.command == "table":
        print(study_tables(find_study(given.study), scope, store, given.format))
        return 0
    study = find_study(given.command)
    engine = make_engine(
        given.engine,
        workers=given.workers,
        address=given.address,
        gpus=given.gpus,
        device=given.device,
    )
    failed = run_study(study, scope, store, engine, on_progress=_print_progress)
    print(study_tables(study, scope, store, "md"))
    _print_failures(study, scope, store)
    return 1 if failed else 0


def _print_progress(progress: Progress) -> None:
    running = ", ".join(f"{job[0].method} on {job[0].data}" for job in progress.running)
    failed = f", {len(progress.failed)} failed" if progress.failed else ""
    now = f", now: {running}" if running else ""
    print(f"{progress.done} of {progress.total} runs{failed}{now}", file=sys.stderr, flush=True)


def _print_failures(study: Study, scope: Scope, store: Store) -> None:
    for line in describe_failures(study.runs(scope), store):
        print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
