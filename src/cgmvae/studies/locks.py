"""Locks that several processes see, on one machine or on several that share a folder.

The operating system frees the lock of a process that ended, however it ended: there is nothing to
clean up. POSIX systems alone have them. :mod:`cgmvae.studies.store` gives each run one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cgmvae.errors import InputError


@contextmanager
def lock(path: Path) -> Iterator[bool]:
    """Give whether this block got the lock, which it holds until it ends, or its process does.

    Parameters
    ----------
    path : Path
        A file that stands for the lock. It stays: a process that removed it could lock a file that
        others no longer see.
    """
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise _unusable(path, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except BlockingIOError:
            held = False
        except OSError as error:
            raise _unusable(path, error) from error
        yield held


def is_locked(path: Path) -> bool:
    """Tell whether a process holds the lock; it need not be writable for this one."""
    import fcntl

    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such lock, or one that nobody can take
        return False
    return False


def _unusable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"Cannot lock {path} ({error.strerror or error}); "
        "check the space and the permissions, or choose another folder."
    )
