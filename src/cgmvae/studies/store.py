"""The folder of runs: each run is written atomically, and made by one process at a time.

::

    FOLDER/runs/KEY/     spec.json · split.json · environment.json · report.json
                         predictions.npz · similarity.npy (where the method has one) · DONE
    FOLDER/errors/KEY.json   why a run failed; it is tried again next time
    FOLDER/locks/KEY     file lock of the process that makes the run
    FOLDER/checkpoints/  states of the packs in training, from which a killed study resumes

Several processes, on one machine or on several that share the folder, may work on the same studies.
The operating system releases the locks of a process that ends, however it ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from cgmvae.data.files import atomic_folder, atomic_path, make_folder
from cgmvae.data.splits import Split
from cgmvae.errors import InputError

if TYPE_CHECKING:
    from cgmvae.studies.spec import RunSpec

DONE = "DONE"


@dataclass(frozen=True)
class RunRecord:
    """Everything that is stored of a run."""

    split: Split
    environment: dict[str, Any]
    report: dict[str, Any]
    predictions: dict[str, NDArray[np.floating]]
    """Scores of the validation and the test rows, (n_samples, n_labels)."""
    similarity: NDArray[np.floating] | None = None
    """Similarity of the labels, (n_labels, n_labels), for methods that have one."""


class Store:
    """Runs in a folder, which is created with the first run.

    The folder may be on a disk that several machines share, if it supports file locks.
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
            raise InputError(f"{self.folder} is a file; give a folder for the runs.")

    def run_folder(self, spec: RunSpec) -> Path:
        """Return the folder of a run, which may not exist yet."""
        return self.folder / "runs" / spec.key

    def is_done(self, spec: RunSpec) -> bool:
        """Return whether the run is stored and complete."""
        return (self.run_folder(spec) / DONE).exists()

    def report(self, spec: RunSpec) -> dict[str, Any] | None:
        """Return the report of a run, or None if it is not done."""
        return self._read(spec, "report.json")

    def environment(self, spec: RunSpec) -> dict[str, Any] | None:
        """Return where and with what versions a run was made, or None if it is not done."""
        return self._read(spec, "environment.json")

    def _read(self, spec: RunSpec, name: str) -> dict[str, Any] | None:
        return _read_json(self.run_folder(spec) / name) if self.is_done(spec) else None

    def predictions(self, spec: RunSpec) -> dict[str, NDArray[np.floating]]:
        """Return the ``validation`` and ``test`` scores of a run that is done."""
        path = self.run_folder(spec) / "predictions.npz"
        with _reading(path), np.load(path) as stored:
            return dict(stored)

    def similarity(self, spec: RunSpec) -> NDArray[np.floating]:
        """Return the label similarity of a run that is done, (n_labels, n_labels)."""
        path = self.run_folder(spec) / "similarity.npy"
        with _reading(path):
            return np.load(path)

    def write(self, spec: RunSpec, record: RunRecord) -> None:
        """Store a run; its folder appears complete. The caller holds its lock."""
        folder = self.run_folder(spec)
        shutil.rmtree(folder, ignore_errors=True)  # without DONE
        parts = {"spec": asdict(spec), "environment": record.environment, "report": record.report}
        make_folder(folder.parent)
        with atomic_folder(folder) as temporary:
            record.split.save(temporary / "split.json")
            for name, content in parts.items():
                (temporary / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
            np.savez(temporary / "predictions.npz", **record.predictions)  # type: ignore[arg-type]
            if record.similarity is not None:
                np.save(temporary / "similarity.npy", record.similarity)
            (temporary / DONE).touch()
        self._error_path(spec).unlink(missing_ok=True)

    def error(self, spec: RunSpec) -> str | None:
        """Return why a run failed, or None."""
        path = self._error_path(spec)
        return None if self.is_done(spec) or not path.exists() else _read_json(path)["message"]

    def write_error(self, spec: RunSpec, message: str, details: str = "") -> None:
        """Store why a run failed."""
        path = self._error_path(spec)
        record = {"spec": asdict(spec), "message": message, "details": details}
        make_folder(path.parent)
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(record, indent=1) + "\n")

    def _error_path(self, spec: RunSpec) -> Path:
        return self.folder / "errors" / f"{spec.key}.json"

    def checkpoint(self, pack: Sequence[RunSpec], code: str) -> Path:
        """Return the file for the state of runs that are trained together, by this code.

        A state is not resumed by other code: the runs would be the result of both.
        """
        return make_folder(self.folder / "checkpoints") / f"{_name(pack)}-{code}"

    def remove_checkpoints(self, pack: Sequence[RunSpec]) -> None:
        """Remove the states of runs that are stored now, by whatever code."""
        for path in (self.folder / "checkpoints").glob(f"{_name(pack)}-*"):
            path.unlink(missing_ok=True)

    @contextmanager
    def claim(self, specs: Sequence[RunSpec]) -> Iterator[bool]:
        """Lock all these runs, and yield whether this process got every lock.

        Another process may have made the runs just before, so check again whether they are done.
        """
        with ExitStack() as held:
            yield all(self._lock(key, held) for key in sorted(spec.key for spec in specs))

    def _lock(self, key: str, held: ExitStack) -> bool:
        """Lock a run until ``held`` is closed; return False if another process has the lock."""
        path = make_folder(self.folder / "locks") / key
        try:
            held.enter_context(FileLock(path).acquire(blocking=False))
        except Timeout:
            return False
        except OSError as error:
            raise InputError(
                f"Cannot write {path} ({error.strerror or error}); "
                "check the permissions, or choose another folder."
            ) from error
        return True

    def is_claimed(self, spec: RunSpec) -> bool:
        """Return whether a process holds the lock of a run.

        In a folder that this process cannot write to, locks cannot be seen: False.
        """
        if not (self.folder / "locks" / spec.key).exists():
            return False
        try:
            with ExitStack() as held:
                return not self._lock(spec.key, held)
        except InputError:
            return False


def _name(pack: Sequence[RunSpec]) -> str:
    """Return a short name of a pack."""
    keys = " ".join(spec.key for spec in pack)
    return hashlib.blake2b(keys.encode(), digest_size=8).hexdigest()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Say what to do about a file of a run that is missing or damaged."""
    again = f"remove {path.parent} and run the study again."
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; {again}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is damaged; {again}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); {again}") from error


def _read_json(path: Path) -> dict[str, Any]:
    with _reading(path):
        found = json.loads(path.read_text())
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
    return found
