"""Commands killed at random moments: what is lost, damaged, or comes out differently.

    python benchmarks/kills.py --kills 200

Each trial starts ``cgmvae fit``, ``search``, ``bench``, ``data convert`` or the saving of a model
in a fresh folder in which an earlier result stands, and kills it: by the clock, at a moment drawn
over what the command takes; at a file operation; or at a byte of a file, by a limit of its size.
Then every file must be whole or marked as unfinished, and what was finished must be as it was. The
same command is run again to its end, and its result is compared with that of a run that nothing
disturbed. Children are forked from a process that has loaded the library, so that the moments fall
into the work.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fuzz import in_child
from kill_child import Moment, run
from kill_commands import COMMANDS, Command, damage, fill

from cgmvae.data.files import TEMPORARY_SUFFIX

#: How a moment may be drawn, and how often.
WAYS = ("clock", "clock", "operation", "byte")

PHASES = ("before start", "in work", "in writing")


class Reference(NamedTuple):
    """A run that nothing disturbed."""

    result: Any
    names: list[str]
    """Files and folders in the end."""
    seconds: float
    operations: int
    largest: int
    """Bytes of the largest file that it wrote."""


def undisturbed(command: Command, folder: Path) -> Reference:
    """Run a command to its end, twice, and make sure that it comes out the same."""
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
    """Return all files but those that are marked as unfinished."""
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
    """What one kill did."""

    phase: str
    damaged: list[str]
    lost: list[str]
    """What was finished, and was changed by the kill or made again by the second run."""
    kept: float
    """Share of the work that the second run had not to do."""
    equal: bool


def trial(command: Command, folder: Path, reference: Reference, moment: Moment) -> Outcome | None:
    """Kill a command and run it again; None where it had ended before."""
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
    """Return what is never made twice: packs of a search, runs of a study."""
    runs = {str(Path(name).parent) for name in files if name.endswith("/DONE")}
    return runs | {name for name in files if "/pack_" in name and name.endswith(".json")}


def phase_of(folder: Path, before: dict[str, bytes]) -> str:
    """Tell from what a killed command left what it was doing."""
    if any(name.endswith(TEMPORARY_SUFFIX) for name in names(folder)):
        return "in writing"
    return "before start" if contents(folder) == before else "in work"


def report(name: str, outcomes: list[Outcome]) -> None:
    """Print one row of the table."""
    phases = Counter(outcome.phase for outcome in outcomes)
    cells = [phases[phase] for phase in PHASES]
    cells += [sum(bool(outcome.lost) for outcome in outcomes)]
    cells += [sum(bool(outcome.damaged) for outcome in outcomes)]
    kept = [outcome.kept for outcome in outcomes]
    resumed = f"{sum(share > 0 for share in kept)} (median {statistics.median(kept):.0%} done)"
    equal = f"{sum(outcome.equal for outcome in outcomes)} of {len(outcomes)}"
    row = [name, len(outcomes), *cells, resumed, equal]
    print(f"| {' | '.join(map(str, row))} |", flush=True)
    for outcome in outcomes:
        for line in (*outcome.damaged, *outcome.lost):
            print(f"  {name}: {line}", file=sys.stderr)


def main() -> None:
    """Kill the commands in turn, and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="of all commands together")
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS), choices=list(COMMANDS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(arguments.seed)
    print(f"| command | kills | {' | '.join(PHASES)} | lost | damaged | resumed | equal result |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        (folder / "start").mkdir()
        if in_child(lambda: fill(folder / "start")) != 0:
            raise SystemExit("The folder to start from could not be filled.")
        for number, name in enumerate(arguments.commands):
            here = folder / name
            here.mkdir()
            (here / "start").symlink_to(folder / "start")
            reference = undisturbed(COMMANDS[name], here)
            outcomes: list[Outcome] = []
            share = (arguments.kills + number) // len(arguments.commands)
            while len(outcomes) < share:
                outcome = trial(COMMANDS[name], here, reference, draw(reference, rng))
                outcomes += [] if outcome is None else [outcome]
            report(name, outcomes)


if __name__ == "__main__":
    main()
