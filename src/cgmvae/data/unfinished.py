"""Folders for files that are being written, beside the place that they will take.

A folder is locked by the process that writes in it. The operating system frees the lock of a
process that was killed, so that the next one that writes to the same place knows the folder for a
remnant and removes it, and never that of a process still at work. Without such locks (not on POSIX,
or a file system that has none) remnants stay; they are hidden, and nothing reads them.
:mod:`cgmvae.data.files` is the only user.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on POSIX
    fcntl = None  # type: ignore[assignment]

#: What the names of the folders end in.
SUFFIX = ".unfinished"

#: Characters of a file's name that its folder's name repeats: all may be too long.
_SHOWN = 32


@contextmanager
def unfinished_folder(path: Path) -> Iterator[Path]:
    """Make a folder for what will be at ``path``, and remove it in the end.

    Remnants of processes that were killed while they wrote to this path are removed, too. An
    OSError says that no folder can be made there.
    """
    _remove_remnants(path)
    folder, lock = _make(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _prefix(path: Path) -> str:
    return f".{path.name[:_SHOWN]}."


def _make(path: Path) -> tuple[Path, int | None]:
    """Return a new folder, and the descriptor that holds its lock where there are locks."""
    while True:
        folder = Path(tempfile.mkdtemp(SUFFIX, _prefix(path), path.parent))
        try:
            lock = _lock(folder, wait=True)
        except BaseException:  # Ctrl-C
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if folder.exists():
            return folder, lock
        # Before it was locked, another process took it for a remnant.
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, *, wait: bool) -> int | None:
    """Lock a folder and return the descriptor that holds the lock; None where that fails."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_remnants(path: Path) -> None:
    name = re.compile(re.escape(_prefix(path)) + r"[a-z0-9_]{8}" + re.escape(SUFFIX))
    with suppress(OSError):  # a folder that cannot be listed may still be written to
        for entry in os.scandir(path.parent):
            if name.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                _remove_unless_locked(Path(entry))


def _remove_unless_locked(folder: Path) -> None:
    lock = _lock(folder, wait=False)
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
