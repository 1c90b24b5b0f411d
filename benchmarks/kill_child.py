"""A command in a process of its own that is killed at a moment, for ``benchmarks/kills.py``."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kill_commands import Command

#: What Python tells of that changes files.
_OPERATIONS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")


class Moment(NamedTuple):
    """When a child is killed; never, where all are None."""

    seconds: float | None = None
    operation: int | None = None
    """Number of the operation on a file of the folder."""
    n_bytes: int | None = None
    """How far a file may grow."""


NEVER = Moment()


class Ended(NamedTuple):
    """What became of a child."""

    code: int
    """Negative where a signal ended it."""
    seconds: float
    operations: list[str]
    """On files of its folder, in order, as far as they were noted."""
    printed: str


def run(command: Command, folder: Path, moment: Moment = NEVER) -> Ended:
    """Run a command in a child that works in the folder and is killed at the moment."""
    log, output = folder.with_suffix(".log"), folder.with_suffix(".out")
    for path in (log, output):  # a child may be killed before it opens them
        path.write_text("")
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        _work(command, folder, moment)
    if moment.seconds is not None:
        time.sleep(moment.seconds)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    seconds = time.perf_counter() - start
    return Ended(code, seconds, log.read_text().splitlines(), output.read_text())


def _work(command: Command, folder: Path, moment: Moment) -> None:
    """Do what a child does, and end it."""
    code = 1
    try:
        os.chdir(folder)
        output = folder.with_suffix(".out").open("w")
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        _watch(folder, moment)
        command.work()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def _watch(folder: Path, moment: Moment) -> None:
    """Note operations on files of the folder, and let this process be killed at the moment."""
    log, seen = folder.with_suffix(".log").open("w", buffering=1), 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in _OPERATIONS or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = folder / os.fsdecode(arguments[event == "os.rename"])
        if not path.is_relative_to(folder):
            return
        seen += 1
        if moment.n_bytes is None:
            log.write(f"{event} {path.relative_to(folder)}\n")
        if seen == moment.operation:
            os.kill(os.getpid(), signal.SIGKILL)

    if moment.n_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which ends the process
        resource.setrlimit(resource.RLIMIT_FSIZE, (moment.n_bytes, moment.n_bytes))
    sys.addaudithook(hook)
