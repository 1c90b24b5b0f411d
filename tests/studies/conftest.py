"""Fixtures of the studies' tests: a tiny study, processes that work on it, and made-up runs."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for tiny_study

from tiny_study import STUDY, written
from tiny_study import made_up as made_up_record

from cgmvae.data import catalog
from cgmvae.evaluation import PAPER_METRICS, PROTOCOLS
from cgmvae.studies.commands import run_study
from cgmvae.studies.spec import RunSpec, Scope
from cgmvae.studies.store import Store


@pytest.fixture(scope="session")
def paper(data_folder) -> str:
    """Return the source of the paper, or skip the test where it is not beside the data."""
    path = data_folder.parent / "paper" / "cgmvae.tex"
    if not path.exists():
        pytest.skip("the paper's source is not beside the folder that CGMVAE_DATA names")
    return path.read_text()


@pytest.fixture(scope="session")
def whole_store(tmp_path_factory) -> Store:
    """Return the store of the uninterrupted tiny study; tests must not change it."""
    store = Store(tmp_path_factory.mktemp("whole"))
    assert run_study(STUDY, Scope(), store, device="cpu") == []
    return store


@pytest.fixture(scope="session")
def whole_table(whole_store) -> str:
    """Return the tables of the uninterrupted tiny study."""
    return written(whole_store)


@pytest.fixture(scope="session")
def order() -> Iterator[Callable[..., list[int]]]:
    """Return a function that sends orders to processes; see ``tiny_study``."""
    script = Path(__file__).with_name("tiny_study.py")
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def give(**wanted: Any) -> list[int]:
        process.stdin.write(json.dumps(wanted) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    with process:
        assert json.loads(process.stdout.readline()) == "ready"
        yield give
        process.stdin.close()


class MadeUpRuns:
    """A store of runs with known numbers."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)

    def keep(
        self,
        spec: RunSpec,
        score: float,
        *,
        oracle: float | None = None,
        environment: dict[str, Any] | None = None,
        similarity: Any = None,
        **more: Any,
    ) -> None:
        """Store a run with one score for all metrics, and another under ``test-oracle``.

        ``more`` is added to its report.
        """
        metrics = {protocol: dict.fromkeys(PAPER_METRICS, score) for protocol in PROTOCOLS}
        metrics["test-oracle"] = dict.fromkeys(PAPER_METRICS, score if oracle is None else oracle)
        report = {"metrics": metrics, **more}
        record = made_up_record(spec)
        changes = {"environment": environment or {}, "report": report, "similarity": similarity}
        self.store.write(spec, replace(record, **changes))


@pytest.fixture
def made_up(tmp_path) -> MadeUpRuns:
    """Return an empty store to which runs with known numbers can be added."""
    return MadeUpRuns(tmp_path / "made_up")


@pytest.fixture
def available(monkeypatch) -> Callable[..., None]:
    """Return a function that makes only the named data sets available to the studies."""

    def set_names(*names: str) -> None:
        monkeypatch.setattr(
            catalog, "locate", lambda name, *_: Path(name) if name in names else None
        )

    return set_names
