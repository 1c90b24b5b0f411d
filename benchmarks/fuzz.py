"""What the readers do with files that are damaged, fabricated or malicious.

    python benchmarks/fuzz.py --inputs 100000
    python benchmarks/fuzz.py --replay arff 4711

Each input is one file: first the files of a pool as they are, then damaged ones
(``fuzz_inputs.py``). A reader may read it or reject it with an
:class:`~cgmvae.errors.InputError`; anything else is a finding, which is kept in a folder with its
input, and makes the exit status 1: another exception, a crash, or a reader that takes more than
``--seconds`` of CPU time (or ten times as long in all) or more than ``--megabytes`` of memory. The
readers run in child processes, which the operating system ends if they exceed the limits.
"""

from __future__ import annotations

import bz2
import gzip
import itertools
import mmap
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from fuzz_inputs import (
    Edit,
    arff_files,
    in_archive,
    in_description,
    label_files,
    matrices,
    mutate,
    npy,
    tables,
    tensor_files,
    texts,
    written,
)
from measurement import (
    MIB,
    exit_code,
    hypothesis_files_in,
    make_parser,
    print_header,
    print_row,
    start_child,
)

from cgmvae.data import make_survey, readers
from cgmvae.data.readers.arff import read_label_names
from cgmvae.data.serialization import read_tensors
from cgmvae.errors import InputError
from cgmvae.methods import METHODS, load
from cgmvae.methods.inputs import Fit
from cgmvae.methods.neural import begin_fit, make_pack
from cgmvae.training import checkpoint as states
from cgmvae.training.checkpoint import Checkpoint

#: Indices of the counts that a child process shares with its parent.
_SEED, _READ, _REJECTED, _OTHER, _SLOWEST, _MEMORY = range(6)

#: Findings of one kind that are kept; the others are only counted.
_KEPT = 3

#: How often a file of a format that may be compressed is compressed: one in this many.
_ONE_COMPRESSED_IN = 20


@dataclass(frozen=True)
class Reader:
    """Something that reads files, and its inputs."""

    suffix: str
    pool: Callable[[int], list[bytes]]
    """Returns valid files, given how many to draw."""
    read: Callable[[Path, Random], object]
    words: Sequence[bytes] = ()
    """What has a meaning in its files."""
    edits: Sequence[Edit] = (mutate,)
    compressed: bool = False
    """Whether its files may be compressed with gzip or bzip2."""


_SURVEY = make_survey(40, 4, 5, seed=0)[0]
_COUNTS = {"n_members": 2, "epochs": 2, "batch_size": 16, "n_restarts": 1, "n_learners": 2, "k": 3}
_WIDTHS = {"embedding_dim": 8, "hidden_dim": 8, "latent_dim": 4, "state_dim": 8}
_QUICK = _COUNTS | _WIDTHS | {"device": "cpu", "random_state": 0}
_SIZES = {"feature_hidden": (8,), "label_hidden": (8,), "decoder_hidden": (8,)}


def _quick(name: str, **changes: Any) -> Any:
    """Return a small, unfitted model of the class of this name."""
    parameters = METHODS[name]().get_params()
    given = {key: value for key, value in _QUICK.items() if key in parameters} | changes
    return METHODS[name](**given, **({"network": _SIZES} if "network" in parameters else {}))


def models(n: int) -> list[bytes]:
    """Return model files of every method and threshold rule, or of a few if ``n`` is small."""
    found = []
    kinds = itertools.product(("global", "per-label", "top-k"), METHODS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        for rule, name in itertools.islice(kinds, 1 + n // 3):
            _quick(name, threshold_rule=rule).fit(_SURVEY.X, _SURVEY.Y).save(path)
            found.append(path.read_bytes())
    return found


#: Trainings here save their state after every epoch, in child processes too.
states.MIN_SECONDS, states.MAX_FRACTION = 0.0, np.inf


@cache
def _prepared() -> tuple[Any, Fit]:
    model = _quick("CGMVAEClassifier", n_members=1)
    return model, begin_fit(model, _SURVEY.X, _SURVEY.Y)


def _trained(checkpoint: Path, progress: Any = None) -> object:
    model, fit = _prepared()
    return make_pack([model.set_params(checkpoint=checkpoint, progress=progress)], [fit]).train()


def checkpoints(n: int) -> list[bytes]:
    """Return the state after each epoch of one training."""
    with tempfile.TemporaryDirectory() as folder:
        path, found = Path(folder, "state"), []
        _trained(path, lambda *_: found.append(path.read_bytes()))
        return found


def _read_checkpoint(path: Path, rng: Random) -> object:
    # Most damage is found by loading alone, which takes less time than preparing a training.
    return None if Checkpoint(path).load(_fingerprint()) is None else _trained(path)


@cache
def _fingerprint() -> Any:
    """Return what distinguishes the training from others."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state")
        _trained(path)
        return read_tensors(path)[1]


_TABLE_OPTIONS: tuple[dict[str, Any], ...] = (
    *(
        {},
        {},
        {"label_count": 1},
        {"label_count": -1, "blank_labels": "unknown"},
        {"label_sets": "labels"},
    ),
    *({"label_prefix": "l", "counts": "presence"}, {"labels": ["l1"], "groups": "group"}),
)


def _read_table(path: Path, rng: Random) -> object:
    return readers.read(path, **rng.choice(_TABLE_OPTIONS))


def _read_released(path: Path, rng: Random) -> object:
    if rng.random() < 0.7:
        return readers.read(path, n_labels=rng.choice((1, 2)), meta_offset=rng.choice((0, 1)))
    matrix = path.with_name("whole.npy")
    matrix.write_bytes(npy(np.tile([1.0, 0.0, 0.5], (4, 1))))
    path.with_name("whole_test_idx.npy").write_bytes(path.read_bytes())
    return readers.read(matrix, n_labels=1)


def _read_model(path: Path, rng: Random) -> object:
    model = load(path)
    if model.n_features_in_ == _SURVEY.n_features:
        scores, labels = model.predict_proba(_SURVEY.X[:2]), model.predict(_SURVEY.X[:2])
        if not (((scores >= 0) & (scores <= 1)).all() and np.isin(labels, (0, 1)).all()):
            raise ValueError("These are not probabilities and labels.")
        if len(set(model.label_names_)) < scores.shape[1]:
            raise ValueError("Two labels have the same name.")
    return model


_ARFF_WORDS = (
    *(b"@relation 'a: -C 1'\n", b"@relation x\n", b"@attribute a numeric\n", b"@data\n", b"0,1\n"),
    *(b"@attribute 'l 1' {0,1}\n", b"@attribute b {x,'y z'}\n", b"{0 1,1 x}\n", b"?,", b"% c\n"),
    *(b"@attribute d date\n", b"@attribute s string\n", b"-split-number 1", b"@end", b"REAL", b"{"),
)
_SVM_WORDS = (
    *(b"1,2 1:0.5 3:1\n", b"0 ", b" 7:nan", b"# note\n", b"2 3 4\n", b"\n", b"-1,", b"qid:1 "),
    *(b"1:1e39", b"999999999:1 ", b",", b":"),
)
_CSV_WORDS = (
    *(b"a,b,l1,labels\n", b"0.5,1,0,x;y\n", b"group", b'"a\n""b"', b",", b"\n", b"NA", b"true"),
    *(b"2024-01-31", b"31/01/2024", b"1e5", b";", b"l1"),
)
_XML_WORDS = (
    *(b'<label name="a">', b"</label>", b"<labels>", b"</labels>", b"<!DOCTYPE a []>", b"&#0;"),
    *(b"<?xml version='1.0' encoding='utf-16'?>", b"&amp;", b"<![CDATA[", b"]]>", b"<!--"),
)
_NPY_WORDS = (
    *(b"'descr': '|O'", b"'<f8'", b"'fortran_order': True", b"'shape': (9999999999,)", b"(2, -1)"),
    *(b"(1, 2, 3)", b"__import__", b"9" * 60, b"(" * 200, b"\x93NUMPY\x03\x00", b"\x93NUMPY"),
)

READERS = {
    "arff": Reader(
        ".arff",
        lambda n: arff_files(n) + texts(_ARFF_WORDS, n),
        lambda path, rng: readers.read(path, label_count=rng.choice((None, 1, -1, -2))),
        _ARFF_WORDS,
        compressed=True,
    ),
    "label-xml": Reader(
        ".xml",
        lambda n: label_files(n) + texts(_XML_WORDS, n),
        lambda path, rng: read_label_names(path),
        _XML_WORDS,
        compressed=True,
    ),
    "svmlight": Reader(
        ".svm",
        lambda n: written(".svm", n) + texts(_SVM_WORDS, n),
        lambda path, rng: readers.read(path, n_labels=rng.choice((None, 4))),
        _SVM_WORDS,
        compressed=True,
    ),
    "csv": Reader(
        ".csv",
        lambda n: written(".csv", n) + texts(_CSV_WORDS, n),
        _read_table,
        _CSV_WORDS,
        compressed=True,
    ),
    "parquet": Reader(".parquet", lambda n: written(".parquet", n) + tables(n), _read_table),
    "npz": Reader(
        ".npz",
        partial(written, ".npz"),
        lambda path, rng: readers.read(path),
        _NPY_WORDS,
        (mutate, in_archive, in_archive),
    ),
    "released": Reader(".npy", matrices, _read_released, _NPY_WORDS),
    "tensors": Reader(
        ".bin",
        tensor_files,
        lambda path, rng: read_tensors(path),
        edits=(mutate, in_description),
    ),
    "model": Reader(".cgmvae", models, _read_model, edits=(mutate, in_description, in_description)),
    "checkpoint": Reader(
        ".checkpoint", checkpoints, _read_checkpoint, edits=(mutate, in_description)
    ),
}


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
        """Return the content and suffix of an input, and the generator for further choices."""
        rng = Random(f"{self.name} {number}")
        suffix = self.reader.suffix
        if number < len(self.pool):
            return self.pool[number], suffix, rng
        content, other = rng.choice(self.pool), rng.choice(self.pool)
        content = rng.choice(self.reader.edits)(content, other, self.reader.words, rng)
        if self.reader.compressed and rng.randrange(_ONE_COMPRESSED_IN) == 0:
            ending, compress = rng.choice(((".gz", gzip.compress), (".bz2", bz2.compress)))
            content, suffix = compress(content), suffix + ending
            if rng.random() < 0.5:
                content = rng.choice(self.reader.edits)(content, content, (), rng)
        return content, suffix, rng


def make_pool(name: str, folder: Path, n: int) -> list[bytes]:
    """Make a reader's pool in a child process: threads that it leaves behind must not be forked."""
    path = folder / "pool"
    if exit_code(start_child(lambda: path.write_bytes(pickle.dumps(READERS[name].pool(n))))) != 0:
        raise SystemExit(f"The pool of {name} could not be made.")
    return pickle.loads(path.read_bytes())


def read_inputs(trial: Trial, counts: np.ndarray, last: int, folder: Path) -> None:
    """Read inputs up to the last; the shared counts always say which one is being read."""
    warnings.simplefilter("ignore")
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)  # which ends the process
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + trial.megabytes * MIB
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    while counts[_SEED] < last:
        number = int(counts[_SEED])
        _read_one(trial, number, counts, folder)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        counts[_MEMORY] = max(counts[_MEMORY], (peak - start) / 1024)
        counts[_SEED] = number + 1


@contextmanager
def nothing_ignored() -> Iterator[None]:
    """Raise exceptions of callbacks, which Python would print and ignore."""
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
        counts[_REJECTED] += 1
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
    """Let the system end this process after this CPU time or ten times it; 0 is no limit."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


def keep(trial: Trial, number: int, kind: str, text: str) -> None:
    """Write an input and what it caused to the findings, unless there are enough of its kind."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    if len(list(trial.folder.glob(f"{trial.name}-{kind}-*.txt"))) >= _KEPT:
        return
    content, suffix, _ = trial.input(number)
    name = f"{trial.name}-{kind}-{number}"
    (trial.folder / f"{name}{suffix}").write_bytes(content)
    (trial.folder / f"{name}.txt").write_text(text)


def run(trial: Trial, n_inputs: int, folder: Path) -> np.ndarray:
    """Read all inputs, in a new child whenever one has died; return the counts."""
    counts = np.frombuffer(mmap.mmap(-1, 8 * 6), np.float64)
    while counts[_SEED] < n_inputs:
        code = exit_code(start_child(lambda: read_inputs(trial, counts, n_inputs, folder)))
        if code != 0:
            kind = signal.Signals(-code).name if code < 0 else f"exit-{code}"
            keep(trial, int(counts[_SEED]), kind, f"The process ended with {kind}.\n")
            counts[_OTHER] += 1
            counts[_SEED] += 1
    return counts


def report(name: str, counts: np.ndarray) -> None:
    """Print one row of the table."""
    numbers = (f"{int(counts[i]):,}" for i in (_SEED, _READ, _REJECTED, _OTHER))
    print_row(name, *numbers, f"{counts[_SLOWEST]:.2f} s", f"{counts[_MEMORY]:.0f} MiB")


def main(argv: Sequence[str] | None = None) -> int:
    """Try the readers and print the outcomes, or replay one input."""
    parser = make_parser(__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="per reader")
    parser.add_argument("--readers", nargs="*", default=list(READERS), choices=list(READERS))
    parser.add_argument("--seconds", type=float, default=10.0, help="limit per input")
    parser.add_argument("--megabytes", type=int, default=1024, help="limit beyond the start")
    parser.add_argument("--findings", type=Path, default=Path("fuzz_findings"))
    parser.add_argument("--replay", nargs=2, metavar=("READER", "NUMBER"))
    options = parser.parse_args(argv)
    n_inputs, n_drawn = (30, 10) if options.quick else (options.inputs, 1000)
    torch.set_num_threads(1)
    shared_memory = Path("/dev/shm")
    parent = shared_memory if shared_memory.is_dir() else None
    with tempfile.TemporaryDirectory(dir=parent) as temporary, hypothesis_files_in(Path(temporary)):
        folder = Path(temporary)
        findings = folder / "findings" if options.quick else options.findings
        limits = (options.seconds, options.megabytes, findings)
        if options.replay:
            name, number = options.replay
            trial = Trial(name, make_pool(name, folder, n_drawn), *limits)
            content, suffix, rng = trial.input(int(number))
            (folder / f"input{suffix}").write_bytes(content)
            print(trial.reader.read(folder / f"input{suffix}", rng))
            return 0
        headings = ("inputs", "read", "rejected", "anything else", "slowest", "memory beyond start")
        print_header("reader", *headings)
        n_findings = 0
        for name in options.readers:
            counts = run(Trial(name, make_pool(name, folder, n_drawn), *limits), n_inputs, folder)
            report(name, counts)
            n_findings += int(counts[_OTHER])
        for path in sorted(findings.glob("*.txt")) if options.quick else ():
            print(f"{path.name}: {path.read_text()}", file=sys.stderr)
    return int(n_findings > 0)


if __name__ == "__main__":
    sys.exit(main())
