"""Commands killed at random moments: what is lost, damaged, or comes out differently.

    python benchmarks/kills.py --kills 200

Each trial starts ``cgmvae fit``, ``search``, ``bench``, ``data convert`` or the saving of a model
in a fresh folder that holds an earlier result, and kills it: by the clock, at a moment drawn from
the duration of the command; at a file operation; or at a byte of a file, by a limit on its size.
Then every file must be complete or marked as unfinished, and what was finished must be unchanged.
The same command is run again to its end, and its result is compared with that of an undisturbed
run. Children are forked from a process that has loaded the library, so that the kills hit the work
and not the imports. The exit status is 1 if anything was lost, damaged or different.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from measurement import exit_code, make_parser, print_header, print_row, start_child

from cgmvae import studies
from cgmvae.cli.main import run as run_cgmvae
from cgmvae.data import make_survey, readers
from cgmvae.data.files import TEMPORARY_SUFFIX
from cgmvae.data.serialization import read_tensors
from cgmvae.errors import InputError
from cgmvae.evaluation import PAPER_METRICS
from cgmvae.methods import CGMVAEClassifier, load
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, Study
from cgmvae.studies.store import Store
from cgmvae.studies.tables import Table
from cgmvae.training import checkpoint

#: The ways to draw a moment, the first twice as often.
WAYS = ("clock", "clock", "operation", "byte")

PHASES = ("before start", "in work", "in writing")

#: The audit events of Python that change files.
_OPERATIONS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")

# The commands

#: Content of an earlier result.
EARLIER = b"an earlier result\n"

EPOCHS, SEARCH_EPOCHS, N_PACKS = 24, 8, 4
SIZES = {"embedding_dim": 16, "latent_dim": 8, "label_hidden": [32], "decoder_hidden": [32]}
SETTINGS = tuple(f"--setting={name}={json.dumps(value)}" for name, value in SIZES.items())
SPACE = {"embedding_dim": [8, 12, 16, 20], "dropout": [0.1, 0.4]}

#: A study of real runs on a few rows of yeast, which ``cgmvae bench tiny`` runs.
RUNS = [
    RunSpec("yeast", method, split, seed, train_fraction=0.05, settings=settings)
    for method, settings in (("mlknn", {}), ("asl", {"n_members": 2, "epochs": 4}))
    for split in (0, 1)
    for seed in (0, 1)[: 1 if method == "mlknn" else 2]
]


def _tables(results: Results) -> list[Table]:
    rows = []
    for spec in RUNS:
        report = results.store.report(spec)
        metrics = {} if report is None else report["metrics"]["validation"]
        rows.append([spec.key, *(str(metrics.get(name)) for name in PAPER_METRICS)])
    return [Table("Tiny", ["run", *PAPER_METRICS], rows)]


TINY_STUDY = Study("tiny", lambda _: RUNS, _tables)


@dataclass(frozen=True)
class Command:
    """A command, as a user would give it in a folder that :func:`fill` has filled."""

    target: str
    """The file or folder that it makes."""
    work: Callable[[], object]
    result: Callable[[Path, str], Any]
    """What must not depend on a kill, from the folder and the printed text."""
    progress: Callable[[Path], tuple[int, int]]
    """How much of the work a folder keeps, and how much there is in all."""


def fill(folder: Path) -> None:
    """Put data, a model and earlier results into an empty folder."""
    data, _ = make_survey(400, 12, 6, seed=0)
    readers.write(data, folder / "data.npz")
    (folder / "space.json").write_text(json.dumps(SPACE))
    model = CGMVAEClassifier(n_members=2, epochs=1, device="cpu", random_state=0)
    model.fit(data.X, data).save(folder / "model.cgmvae")
    for command in COMMANDS.values():
        if Path(command.target).suffix:
            (folder / command.target).write_bytes(EARLIER)


def cgmvae(*arguments: str) -> Callable[[], object]:
    """Return the command with these arguments, to be run in a child process."""

    def work() -> None:
        sys.argv = ["cgmvae", *arguments]
        run_cgmvae()

    return work


def _save() -> None:
    load("model.cgmvae").save("saved.cgmvae")


def _weights(folder: Path, name: str) -> dict[str, bytes]:
    tensors, _ = read_tensors(folder / name)
    return {key: array.tobytes() for key, array in tensors.items()}


def _epoch(path: Path) -> int:
    states = [each for each in (path, Path(f"{path}.previous")) if each.exists()]
    return int(read_tensors(states[0])[0]["epoch"][0]) if states else 0


def _epochs(folder: Path) -> tuple[int, int]:
    return _epoch(folder / "fitted.cgmvae.checkpoint"), EPOCHS


def _epochs_of_packs(folder: Path) -> tuple[int, int]:
    kept = folder / "found.cgmvae.search"
    finished = len(list(kept.glob("pack_*.json"))) * SEARCH_EPOCHS
    states = (*kept.glob("*.checkpoint"), *kept.glob("*.checkpoint.previous"))
    begun = {Path(str(path).removesuffix(".previous")) for path in states}
    return finished + sum(map(_epoch, begun)), (N_PACKS + 1) * SEARCH_EPOCHS


def _done(folder: Path) -> tuple[int, int]:
    return sum(map(Store(folder / "runs").is_done, RUNS)), len(RUNS)


def _nothing(_: Path) -> tuple[int, int]:
    return 0, 1


def _json(printed: str) -> Any:
    """Return the JSON that was printed, on a slow machine after lines about the progress."""
    return json.loads(printed[printed.index("{") :])


_FIT = ("fit", "data.npz", "--out=fitted.cgmvae", "--members=2", f"--epochs={EPOCHS}", *SETTINGS)
_SEARCH = ("search", "data.npz", "--out=found.cgmvae", "--space=space.json", "--best=2", *SETTINGS)

COMMANDS = {
    "fit": Command(
        "fitted.cgmvae",
        cgmvae(*_FIT, "--overwrite", "--device=cpu", "--json"),
        lambda folder, printed: (
            _weights(folder, "fitted.cgmvae"),
            _json(printed)["metrics"],
        ),
        _epochs,
    ),
    "search": Command(
        "found.cgmvae",
        cgmvae(*_SEARCH, f"--epochs={SEARCH_EPOCHS}", "--overwrite", "--device=cpu", "--json"),
        lambda folder, printed: (_weights(folder, "found.cgmvae"), _json(printed)["best"]),
        _epochs_of_packs,
    ),
    "bench": Command(
        "runs",
        cgmvae("bench", "tiny", "--device=cpu"),
        lambda folder, printed: printed.partition("### Where the runs were made")[0],
        _done,
    ),
    "convert": Command(
        "table.csv",
        cgmvae("data", "convert", "data.npz", "table.csv", "--overwrite"),
        lambda folder, printed: (folder / "table.csv").read_bytes(),
        _nothing,
    ),
    "save": Command(
        "saved.cgmvae",
        _save,
        lambda folder, printed: (folder / "saved.cgmvae").read_bytes(),
        _nothing,
    ),
}


def damage(folder: Path) -> list[str]:
    """Return the files that are neither complete nor marked as unfinished."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_dir() or any(part.endswith(TEMPORARY_SUFFIX) for part in name.parts):
            continue
        try:
            _check_complete(path)
        except (InputError, ValueError, OSError) as error:
            found.append(f"{name}: {error}")
    for spec in RUNS:
        store = Store(folder / "runs")
        if store.is_done(spec) and not (store.report(spec) and store.predictions(spec)):
            found.append(f"runs/{spec.key}")
        if not store.is_done(spec) and store.run_folder(spec).exists():
            found.append(f"runs/{spec.key} is not marked as done")
    return found


def _check_complete(path: Path) -> None:
    if path.read_bytes() == EARLIER:
        return
    if path.suffix in (".cgmvae", ".checkpoint"):
        read_tensors(path)
    elif path.suffix == ".json":
        json.loads(path.read_text())
    elif path.name in ("data.npz", "table.csv"):
        labels = {"label_prefix": "species_"} if path.suffix == ".csv" else {}
        readers.read(path, **labels)


# A child process that is killed


class Moment(NamedTuple):
    """When a child is killed; never if all are None."""

    seconds: float | None = None
    operation: int | None = None
    """Number of the operation on a file of the folder."""
    n_bytes: int | None = None
    """How far a file may grow."""


NEVER = Moment()


class Ended(NamedTuple):
    """The end of a child."""

    code: int
    """Negative if a signal ended it."""
    seconds: float
    operations: list[str]
    """On files of its folder, in order, as far as they were recorded."""
    printed: str


def run(command: Command, folder: Path, moment: Moment = NEVER) -> Ended:
    """Run a command in a child process that works in the folder and is killed at the moment."""
    log, output = folder.with_suffix(".log"), folder.with_suffix(".out")
    for path in (log, output):  # a child may be killed before it opens them
        path.write_text("")

    def work() -> None:
        os.chdir(folder)
        with output.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        _watch(folder, moment)
        command.work()

    start = time.perf_counter()
    child = start_child(work)
    if moment.seconds is not None:
        time.sleep(moment.seconds)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    code, seconds = exit_code(child), time.perf_counter() - start
    return Ended(code, seconds, log.read_text().splitlines(), output.read_text())


def _watch(folder: Path, moment: Moment) -> None:
    """Record operations on files of the folder, and have this process killed at the moment."""
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


# Trials


class Reference(NamedTuple):
    """The result of undisturbed runs."""

    result: Any
    names: list[str]
    """Files and folders at the end."""
    seconds: float
    operations: int
    largest: int
    """Bytes of the largest file that it wrote."""


def undisturbed(command: Command, folder: Path) -> Reference:
    """Run a command to its end, twice, and check that the results are equal."""
    results = []
    for number in range(2):
        own = fresh(folder, f"whole{number}")
        before, ended = contents(own), run(command, own)
        if ended.code != 0:
            raise SystemExit(f"The command failed undisturbed: {ended.printed}")
        results.append(command.result(own, ended.printed))
    if results[0] != results[1]:
        raise SystemExit("Two undisturbed runs differ; there is nothing to compare with.")
    new = [text for name, text in contents(own).items() if before.get(name) != text]
    largest = max(map(len, new))
    return Reference(results[0], names(own), ended.seconds, len(ended.operations), largest)


def fresh(folder: Path, name: str) -> Path:
    """Return a copy of the folder that every trial starts from."""
    return Path(shutil.copytree(folder / "start", folder / name, dirs_exist_ok=False))


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files except those marked as unfinished."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and TEMPORARY_SUFFIX not in str(path.relative_to(folder))
    }


def names(folder: Path) -> list[str]:
    """Return the names of all files and folders."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def draw(reference: Reference, rng: random.Random) -> Moment:
    """Return a random moment."""
    way = rng.choice(WAYS)
    if way == "operation":
        return Moment(operation=rng.randint(1, reference.operations))
    if way == "byte":
        return Moment(n_bytes=rng.randrange(reference.largest))
    return Moment(seconds=rng.uniform(0, reference.seconds))


class Outcome(NamedTuple):
    """The effect of one kill."""

    phase: str
    damaged: list[str]
    lost: list[str]
    """What was finished, but was changed by the kill or made again by the second run."""
    kept: float
    """Share of the work that the second run did not have to do."""
    equal: bool


def trial(command: Command, folder: Path, reference: Reference, moment: Moment) -> Outcome | None:
    """Kill a command and run it again; None if it had ended before."""
    own = fresh(folder, "trial")
    try:
        before = contents(own)
        if run(command, own, moment).code == 0:
            return None
        phase, damaged, killed = phase_of(own, before), damage(own), contents(own)
        lost = [f"{name} changed" for name in before if killed.get(name) != before[name]]
        lost = [each for each in lost if each != f"{command.target} changed"]
        done, total = command.progress(own)
        again = run(command, own)
        made = {line for line in again.operations if line.startswith("os.rename")}
        lost += [f"{name} made again" for name in finished(killed) if f"os.rename {name}" in made]
        equal = again.code == 0 and command.result(own, again.printed) == reference.result
        left = set(names(own)) - set(reference.names)
        return Outcome(phase, damaged + sorted(left), lost, done / total, equal)
    finally:
        shutil.rmtree(own)


def finished(files: dict[str, bytes]) -> set[str]:
    """Return what must never be made twice: packs of a search, runs of a study."""
    runs = {str(Path(name).parent) for name in files if name.endswith("/DONE")}
    return runs | {name for name in files if "/pack_" in name and name.endswith(".json")}


def phase_of(folder: Path, before: dict[str, bytes]) -> str:
    """Return what a killed command was doing, judging by the files it left."""
    if any(name.endswith(TEMPORARY_SUFFIX) for name in names(folder)):
        return "in writing"
    return "before start" if contents(folder) == before else "in work"


def report(name: str, outcomes: list[Outcome]) -> bool:
    """Print one row of the table, and return whether all is well."""
    phases = Counter(outcome.phase for outcome in outcomes)
    lost, damaged = ([bool(getattr(o, what)) for o in outcomes] for what in ("lost", "damaged"))
    kept, equal = ([getattr(o, what) for o in outcomes] for what in ("kept", "equal"))
    print_row(
        name,
        len(outcomes),
        *(phases[phase] for phase in PHASES),
        sum(lost),
        sum(damaged),
        f"{sum(share > 0 for share in kept)} (median {statistics.median(kept):.0%} done)",
        f"{sum(equal)} of {len(outcomes)}",
    )
    for outcome in outcomes:
        for line in (*outcome.damaged, *outcome.lost):
            print(f"  {name}: {line}", file=sys.stderr)
    return all(equal) and not any(lost) and not any(damaged)


def main(argv: Sequence[str] | None = None) -> int:
    """Kill the commands in turn, and print the outcomes."""
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of all commands together")
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS), choices=list(COMMANDS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    if options.quick:
        options.kills = len(options.commands)
    torch.set_num_threads(1)
    # States after each epoch: the commands take seconds, and would otherwise save none.
    checkpoint.MIN_SECONDS, checkpoint.MAX_FRACTION = 0.0, math.inf
    studies.STUDIES = {"tiny": studies.Entry("A tiny study", f"{__name__}.TINY_STUDY")}
    rng, well = random.Random(options.seed), True
    print_header("command", "kills", *PHASES, "lost", "damaged", "resumed", "equal result")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        (folder / "start").mkdir()
        if exit_code(start_child(lambda: fill(folder / "start"))) != 0:
            raise SystemExit("The folder to start from could not be filled.")
        for number, name in enumerate(options.commands):
            own = folder / name
            own.mkdir()
            (own / "start").symlink_to(folder / "start")
            reference = undisturbed(COMMANDS[name], own)
            outcomes: list[Outcome] = []
            share = (options.kills + number) // len(options.commands)
            while len(outcomes) < share:
                outcome = trial(COMMANDS[name], own, reference, draw(reference, rng))
                outcomes += [] if outcome is None else [outcome]
            well &= report(name, outcomes)
    return int(not well)


if __name__ == "__main__":
    sys.exit(main())
