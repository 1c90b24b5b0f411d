"""What the readers make of files that are damaged, made up or meant to harm.

    python benchmarks/fuzz.py --inputs 100000
    python benchmarks/fuzz.py --replay arff 4711

Each input is one file: the files of a pool as they are, then damaged ones (``fuzz_readers.py``,
``mutations.py``). A reader may read it or refuse it with an :class:`~cgmvae.errors.InputError`;
anything else is a finding, which is kept in a folder with its input: another exception, a crash, a
reader that takes more than ``--seconds`` of the processor (or ten times as long in all) or more
than ``--megabytes`` of memory. The readers run in child processes, which the operating system ends
when they go beyond the limits.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import mmap
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch
from fuzz_readers import READERS, Reader

from cgmvae.errors import InputError

#: Places in what a child and its parent share.
_SEED, _READ, _REFUSED, _OTHER, _SLOWEST, _MEMORY = range(6)

#: Findings of one kind that are kept; the others are counted.
_KEPT = 3

#: One in so many files of a format that may be compressed is.
_ONE_IN_PACKED = 20


@dataclass(frozen=True)
class Trial:
    """One reader with its pool, and the limits."""

    name: str
    pool: list[bytes]
    seconds: float
    megabytes: int
    folder: Path
    """Where findings are kept."""

    @property
    def reader(self) -> Reader:
        """Return the reader."""
        return READERS[self.name]

    def input(self, number: int) -> tuple[bytes, str, Random]:
        """Return the content and suffix of an input, and what further choices are drawn from."""
        rng = Random(f"{self.name} {number}")
        suffix = self.reader.suffix
        if number < len(self.pool):
            return self.pool[number], suffix, rng
        content, other = rng.choice(self.pool), rng.choice(self.pool)
        content = rng.choice(self.reader.edits)(content, other, self.reader.words, rng)
        if self.reader.packed and rng.randrange(_ONE_IN_PACKED) == 0:
            ending, compress = rng.choice(((".gz", gzip.compress), (".bz2", bz2.compress)))
            content, suffix = compress(content), suffix + ending
            if rng.random() < 0.5:
                content = rng.choice(self.reader.edits)(content, content, (), rng)
        return content, suffix, rng


def in_child(work: Callable[[], None]) -> int:
    """Run work in a process of its own; return its exit code, negative where a signal ended it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def pool_of(name: str, folder: Path) -> list[bytes]:
    """Make a reader's pool in a process of its own: threads that it leaves would not be forked."""
    path = folder / "pool"
    if in_child(lambda: path.write_bytes(pickle.dumps(READERS[name].pool()))) != 0:
        raise SystemExit(f"The pool of {name} could not be made.")
    return pickle.loads(path.read_bytes())


def read_inputs(trial: Trial, counts: np.ndarray, last: int, folder: Path) -> None:
    """Read inputs up to the last, noting the number of each before it is read."""
    warnings.simplefilter("ignore")
    for limit in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(limit, signal.SIG_DFL)  # which ends the process
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + trial.megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    while counts[_SEED] < last:
        number = int(counts[_SEED])
        _read_one(trial, number, counts, folder)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        counts[_MEMORY] = max(counts[_MEMORY], (peak - start) / 1024)
        counts[_SEED] = number + 1


@contextmanager
def nothing_ignored() -> Iterator[None]:
    """Raise what a callback raised in vain, which Python would print and pass over."""
    found: list[BaseException] = []
    sys.unraisablehook = lambda ignored: found.append(ignored.exc_value or RuntimeError())
    try:
        yield
    finally:
        sys.unraisablehook = sys.__unraisablehook__
        if found:
            raise found[0]


def _read_one(trial: Trial, number: int, counts: np.ndarray, folder: Path) -> None:
    content, suffix, rng = trial.input(number)
    path = folder / f"input{suffix}"
    path.write_bytes(content)
    limit_time(trial.seconds)
    begun = time.process_time()
    try:
        with nothing_ignored():
            trial.reader.read(path, rng)
        counts[_READ] += 1
    except InputError:
        counts[_REFUSED] += 1
    except Exception as error:
        limit_time(0)
        counts[_OTHER] += 1
        frame = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__}-{Path(frame.filename).stem}-{frame.lineno}"
        keep(trial, number, kind, traceback.format_exc())
    finally:
        limit_time(0)
    counts[_SLOWEST] = max(counts[_SLOWEST], time.process_time() - begun)


def limit_time(seconds: float) -> None:
    """Let the operating system end this process after so long; 0 is no limit."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


def keep(trial: Trial, number: int, kind: str, text: str) -> None:
    """Keep an input and what became of it, unless enough of its kind are kept."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    if len(list(trial.folder.glob(f"{trial.name}-{kind}-*.txt"))) >= _KEPT:
        return
    content, suffix, _ = trial.input(number)
    name = f"{trial.name}-{kind}-{number}"
    (trial.folder / f"{name}{suffix}").write_bytes(content)
    (trial.folder / f"{name}.txt").write_text(text)


def run(trial: Trial, n_inputs: int, folder: Path) -> np.ndarray:
    """Read all inputs, in a new child after each that ended one; return the counts."""
    counts = np.frombuffer(mmap.mmap(-1, 8 * 6), np.float64)
    while counts[_SEED] < n_inputs:
        code = in_child(lambda: read_inputs(trial, counts, n_inputs, folder))
        if code != 0:
            kind = signal.Signals(-code).name if code < 0 else f"exit-{code}"
            keep(trial, int(counts[_SEED]), kind, f"The process ended with {kind}.\n")
            counts[_OTHER] += 1
            counts[_SEED] += 1
    return counts


def report(name: str, counts: np.ndarray) -> None:
    """Print one row of the table."""
    n, read, refused, other = (f"{int(counts[i]):,}" for i in (_SEED, _READ, _REFUSED, _OTHER))
    slowest, memory = f"{counts[_SLOWEST]:.2f} s", f"{counts[_MEMORY]:.0f} MiB"
    print(f"| {name} | {n} | {read} | {refused} | {other} | {slowest} | {memory} |", flush=True)


def main() -> None:
    """Try the readers and print what became of their inputs, or replay one input."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="of each reader")
    parser.add_argument("--readers", nargs="*", default=list(READERS), choices=list(READERS))
    parser.add_argument("--seconds", type=float, default=10.0, help="limit of an input")
    parser.add_argument("--megabytes", type=int, default=1024, help="memory beyond the start's")
    parser.add_argument("--findings", type=Path, default=Path("fuzz_findings"))
    parser.add_argument("--replay", nargs=2, metavar=("READER", "NUMBER"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    limits = (arguments.seconds, arguments.megabytes, arguments.findings)
    shared_memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shared_memory if shared_memory.is_dir() else None))
    try:
        if arguments.replay:
            name, number = arguments.replay
            content, suffix, rng = Trial(name, pool_of(name, folder), *limits).input(int(number))
            (folder / f"input{suffix}").write_bytes(content)
            print(READERS[name].read(folder / f"input{suffix}", rng))
            return
        print(
            "| reader | inputs | read | refused | anything else | slowest | memory beyond start |"
        )
        print("|---|---|---|---|---|---|---|", flush=True)
        for name in arguments.readers:
            trial = Trial(name, pool_of(name, folder), *limits)
            report(name, run(trial, arguments.inputs, folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
