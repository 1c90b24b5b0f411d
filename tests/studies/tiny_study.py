"""A study of real runs that takes seconds, and processes that work on it.

As a script it reads orders, one JSON object per line, and carries out each in child processes; they
start quickly, since this process has loaded the library already. The fields of an order::

    folder      of the store
    children    number of processes that work on the study at the same time (1)
    kill_after  seconds after which the first of them is killed
    kill_at     index of the file operation in the folder at which the child kills itself
    write       only write one made-up run, and train nothing
    log         a file to which each child appends the runs that it trains

The answer is a list of the children's exit codes, negative where a signal ended them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cgmvae.data.splits import Split
from cgmvae.evaluation import PAPER_METRICS
from cgmvae.studies import runner
from cgmvae.studies.commands import run_study
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, Scope, Study
from cgmvae.studies.store import RunRecord, Store
from cgmvae.studies.tables import Table, render

SIZES = {"feature_hidden": [16], "label_hidden": [16], "decoder_hidden": [16], "latent_dim": 4}
NETWORKS: dict[str, dict[str, Any]] = {
    "cgmvae": {"n_members": 1, "epochs": 3, "embedding_dim": 16, **SIZES},
    "asl": {"n_members": 2, "epochs": 3, "hidden_dim": 16},
}

#: Fraction of the training rows: 97 of yeast, so that a run takes a fraction of a second.
SHARE = 0.05


def runs(_: Scope) -> list[RunSpec]:
    single = [RunSpec("yeast", "mlknn", split, train_fraction=SHARE) for split in (0, 1, 2)]
    packs = [
        RunSpec("yeast", method, split, seed, train_fraction=SHARE, settings=settings)
        for method, settings in NETWORKS.items()
        for split, seed in ((0, 0), (0, 1), (1, 0))
    ]
    return single + packs


def tables(results: Results) -> list[Table]:
    """Return every metric of every run, to the last digit."""
    rows = []
    for spec in runs(results.scope):
        report = results.store.report(spec)
        values = ["–"] * 5 if report is None else report["metrics"]["validation"].values()
        rows.append([spec.key, *map(str, values)])
    return [Table("Tiny", ["run", *PAPER_METRICS], rows)]


STUDY = Study("tiny", runs, tables)


def written(store: Store) -> str:
    """Return the tables, without the date and the commit of the runs."""
    return render(tables(Results(Scope(), store)), "md")


def texts(table: Table) -> list[list[str]]:
    """Return the rows of a table without marks."""
    return [[getattr(cell, "text", cell) for cell in row] for row in table.rows]


def made_up(spec: RunSpec) -> RunRecord:
    """Return a run that was not trained."""
    return RunRecord(
        split=Split([0, 1], [2], [3], kind="random", seed=spec.split, train_fraction=1.0),
        environment={"date": "today"},
        report={"metrics": {}, "seed": spec.seed},
        predictions={"validation": np.ones((1, 2)), "test": np.zeros((1, 2))},
        similarity=np.eye(2, dtype=np.float32),
    )


def main() -> None:
    _answer("ready")
    for line in sys.stdin:
        _answer(_obey(json.loads(line)))


def _answer(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _obey(order: dict[str, Any]) -> list[int]:
    children = [_fork(order) for _ in range(order.get("children", 1))]
    if "kill_after" in order:
        time.sleep(order["kill_after"])
        os.kill(children[0], signal.SIGKILL)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _fork(order: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        code = _work(order)
    finally:
        os._exit(code)


def _work(order: dict[str, Any]) -> int:
    store = Store(order["folder"])
    if "log" in order:
        _log_trainings(order["log"])
    if "kill_at" in order:
        _kill_self_at(order["kill_at"], str(store.folder))
    if order.get("write"):
        spec = runs(Scope())[0]
        with store.claim([spec]) as held:
            store.write(spec, made_up(spec))
        return 0 if held else 1
    failed = run_study(STUDY, Scope(), store, device="cpu")
    return 1 if failed else 0


def _log_trainings(path: str) -> None:
    train = runner.make_records

    def logged(job: Any, **options: Any) -> Any:
        with Path(path).open("a") as log:
            log.write("".join(f"{spec.key}\n" for spec in job))
        return train(job, **options)

    runner.make_records = logged


def _kill_self_at(wanted: int, folder: str) -> None:
    """Kill this process before its n-th operation on a file of the folder."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if arguments and str(arguments[0]).startswith(folder):
            seen += 1
            if seen == wanted:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    main()
