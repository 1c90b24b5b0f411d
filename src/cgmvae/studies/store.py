"""Where runs are kept: a folder each, written whole or not at all, claimed by one process.

::

    FOLDER/runs/KEY/     spec.json · split.json · environment.json · report.json
                         predictions.npz · similarity.npy (where the method has one) · DONE
    FOLDER/errors/KEY.json   why a run could not be made; it is tried again next time
    FOLDER/locks/KEY     held by the process that makes the run (:mod:`cgmvae.studies.locks`)

Several processes, on one machine or on several that share the folder, may work on the same studies.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.files import atomic_path
from cgmvae.data.splits import Split
from cgmvae.errors import InputError
from cgmvae.studies.locks import is_locked, lock
from cgmvae.studies.spec import RunSpec

DONE = "DONE"


@dataclass(frozen=True)
class RunRecord:
    """What a run leaves behind."""

    split: Split
    environment: dict[str, Any]
    report: dict[str, Any]
    predictions: dict[str, NDArray[np.floating]]
    """Scores of the validation and the test rows, (n_samples, n_labels)."""
    similarity: NDArray[np.floating] | None = None
    """How alike labels are, (n_labels, n_labels), where the method says."""


class Store:
    """Runs in a folder, which is made when the first of them is written.

    Parameters
    ----------
    folder : path
        Local, or shared by machines with POSIX locks.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            is_file = self.folder.exists() and not self.folder.is_dir()
        except OSError as error:
            raise InputError(
                f"{self.folder} cannot be read ({error.strerror}); choose another folder."
            ) from error
        if is_file:
            raise InputError(f"{self.folder} is a file; name a folder for the runs.")

    def check_writable(self) -> None:
        """Make the folder, and refuse one in which nothing can be written."""
        with _writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass

    def place(self, spec: RunSpec) -> Path:
        """Return the folder of a run, which may not be there yet."""
        return self.folder / "runs" / spec.key

    def is_done(self, spec: RunSpec) -> bool:
        """Tell whether the run is there, whole."""
        return (self.place(spec) / DONE).exists()

    def report(self, spec: RunSpec) -> dict[str, Any] | None:
        """Return the report of a run, or None if it is not done."""
        return _read(self.place(spec) / "report.json") if self.is_done(spec) else None

    def environment(self, spec: RunSpec) -> dict[str, Any] | None:
        """Return where and with what a run was made, or None if it is not done."""
        return _read(self.place(spec) / "environment.json") if self.is_done(spec) else None

    def predictions(self, spec: RunSpec) -> dict[str, NDArray[np.floating]]:
        """Return the scores of a run that is done: ``validation`` and ``test``."""
        path = self.place(spec) / "predictions.npz"
        with _reading(path), np.load(path) as stored:
            return dict(stored)

    def similarity(self, spec: RunSpec) -> NDArray[np.floating]:
        """Return the label similarity of a run that is done, (n_labels, n_labels)."""
        path = self.place(spec) / "similarity.npy"
        with _reading(path):
            return np.load(path)

    def write(self, spec: RunSpec, record: RunRecord) -> None:
        """Keep a run; its folder appears with everything in it. The caller holds its lock."""
        place = self.place(spec)
        unfinished = place.with_name(f"{place.name}.unfinished")
        for old in (unfinished, place):  # left by a process that was killed, or without DONE
            shutil.rmtree(old, ignore_errors=True)
        try:
            with _writing(place):
                unfinished.mkdir(parents=True)
                _write_parts(unfinished, spec, record)
                unfinished.rename(place)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        self._error_place(spec).unlink(missing_ok=True)

    def error(self, spec: RunSpec) -> str | None:
        """Return why a run could not be made, or None."""
        path = self._error_place(spec)
        return None if self.is_done(spec) or not path.exists() else _read(path)["message"]

    def write_error(self, spec: RunSpec, message: str, details: str = "") -> None:
        """Keep why a run could not be made."""
        path = self._error_place(spec)
        record = {"spec": spec.to_dict(), "message": message, "details": details}
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(record, indent=1) + "\n")

    def _error_place(self, spec: RunSpec) -> Path:
        return self.folder / "errors" / f"{spec.key}.json"

    @contextmanager
    def claim(self, specs: Sequence[RunSpec]) -> Iterator[bool]:
        """Take the locks of all these runs; give whether this process got them all.

        The runs may have been made by another process just before: look again.
        """
        with ExitStack() as held:
            yield all(
                held.enter_context(lock(self._lock_place(key)))
                for key in sorted(spec.key for spec in specs)
            )

    def is_claimed(self, spec: RunSpec) -> bool:
        """Tell whether a process holds the lock of a run."""
        return is_locked(self._lock_place(spec.key))

    def _lock_place(self, key: str) -> Path:
        return self.folder / "locks" / key


def _write_parts(folder: Path, spec: RunSpec, record: RunRecord) -> None:
    """Write all files of a run, the mark that it is whole last."""
    record.split.save(folder / "split.json")
    contents = {"spec": spec.to_dict(), "environment": record.environment, "report": record.report}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    np.savez(folder / "predictions.npz", **record.predictions)  # type: ignore[arg-type]
    if record.similarity is not None:
        np.save(folder / "similarity.npy", record.similarity)
    for path in folder.iterdir():  # a machine that goes down must not leave DONE beside less
        with path.open("rb") as file:
            os.fsync(file.fileno())
    (folder / DONE).touch()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"Cannot write {path} ({error.strerror or error}); "
            "check the space and the permissions, or choose another folder."
        ) from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Say what to do about a part of a run that is missing or damaged."""
    again = f"remove {path.parent} and run the study again."
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; {again}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is damaged; {again}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); {again}") from error


def _read(path: Path) -> dict[str, Any]:
    with _reading(path):
        found = json.loads(path.read_text())
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
    return found
