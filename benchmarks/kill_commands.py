"""The commands that ``benchmarks/kills.py`` kills: what they do, leave behind and get done."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cgmvae.cli.main import run as run_cgmvae
from cgmvae.data import make_survey, readers
from cgmvae.data.files import TEMPORARY_SUFFIX
from cgmvae.data.serialization import read_tensors
from cgmvae.errors import InputError
from cgmvae.evaluation import PAPER_METRICS
from cgmvae.methods import CGMVAEClassifier, load
from cgmvae.studies import commands
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, Study
from cgmvae.studies.store import Store
from cgmvae.studies.tables import Table

#: What stands in the place of a result before.
EARLIER = b"an earlier result\n"

EPOCHS, SEARCH_EPOCHS, N_PACKS = 24, 8, 4
SIZES = {"embedding_dim": 16, "latent_dim": 8, "label_hidden": [32], "decoder_hidden": [32]}
SETTINGS = tuple(f"--setting={name}={json.dumps(value)}" for name, value in SIZES.items())
SPACE = {"embedding_dim": [8, 12, 16, 20], "dropout": [0.1, 0.4]}

#: A study of real runs on a few rows of yeast, which ``cgmvae bench tiny`` runs here.
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


commands.STUDIES = {"tiny": Study("tiny", "A tiny study", lambda _: RUNS, _tables)}


@dataclass(frozen=True)
class Command:
    """One command, as a user would give it in a folder that :func:`fill` filled."""

    target: str
    """The file or folder that it makes."""
    work: Callable[[], object]
    result: Callable[[Path, str], Any]
    """What must not depend on a kill: made of the folder and of what was printed."""
    progress: Callable[[Path], tuple[int, int]]
    """How much of the work is kept in a folder, and how much there is."""


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
    """Return the command of these arguments, to be run in a process of its own."""

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
    return int(read_tensors(path)[0]["epoch"][0]) if path.exists() else 0


def _epochs(folder: Path) -> tuple[int, int]:
    return _epoch(folder / "fitted.cgmvae.checkpoint"), EPOCHS


def _epochs_of_packs(folder: Path) -> tuple[int, int]:
    kept = folder / "found.cgmvae.search"
    finished = len(list(kept.glob("pack_*.json"))) * SEARCH_EPOCHS
    return finished + sum(map(_epoch, kept.glob("*.checkpoint"))), (N_PACKS + 1) * SEARCH_EPOCHS


def _done(folder: Path) -> tuple[int, int]:
    return sum(map(Store(folder / "runs").is_done, RUNS)), len(RUNS)


def _nothing(_: Path) -> tuple[int, int]:
    return 0, 1


_FIT = ("fit", "data.npz", "--out=fitted.cgmvae", "--members=2", f"--epochs={EPOCHS}", *SETTINGS)
_SEARCH = ("search", "data.npz", "--out=found.cgmvae", "--space=space.json", "--best=2", *SETTINGS)

COMMANDS = {
    "fit": Command(
        "fitted.cgmvae",
        cgmvae(*_FIT, "--overwrite", "--device=cpu", "--json"),
        lambda folder, printed: (
            _weights(folder, "fitted.cgmvae"),
            json.loads(printed)["metrics"],
        ),
        _epochs,
    ),
    "search": Command(
        "found.cgmvae",
        cgmvae(*_SEARCH, f"--epochs={SEARCH_EPOCHS}", "--overwrite", "--device=cpu", "--json"),
        lambda folder, printed: (_weights(folder, "found.cgmvae"), json.loads(printed)["best"]),
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
        cgmvae("data", "convert", "data.npz", "table.csv"),
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
    """Return the files that are neither whole nor marked as unfinished."""
    found = []
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if path.is_dir() or any(part.endswith(TEMPORARY_SUFFIX) for part in place.parts):
            continue
        try:
            _check_whole(path)
        except (InputError, ValueError, OSError) as error:
            found.append(f"{place}: {error}")
    for spec in RUNS:
        store = Store(folder / "runs")
        if store.is_done(spec) and not (store.report(spec) and store.predictions(spec)):
            found.append(f"runs/{spec.key}")
        if not store.is_done(spec) and store.run_folder(spec).exists():
            found.append(f"runs/{spec.key} has no mark")
    return found


def _check_whole(path: Path) -> None:
    if path.read_bytes() == EARLIER:
        return
    if path.suffix in (".cgmvae", ".checkpoint"):
        read_tensors(path)
    elif path.suffix == ".json":
        json.loads(path.read_text())
    elif path.name in ("data.npz", "table.csv"):
        labels = {"label_prefix": "species_"} if path.suffix == ".csv" else {}
        readers.read(path, **labels)
