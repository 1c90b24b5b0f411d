"""Opening what people give us, and writing so that nothing is ever half there.

Every reader opens its file through :func:`open_text`, :func:`open_binary` or :func:`read_json`, so
that a missing file, a folder, a damaged or lying archive and text in another encoding are answered
alike everywhere. Every writer goes through :func:`atomic_path` or :func:`atomic_paths`.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from cgmvae.data import packing
from cgmvae.data.unfinished import unfinished_folder
from cgmvae.errors import InputError

#: The most bytes that a compressed file may unpack to: a guard against archives that are made to
#: fill the memory, far above any data set in the catalog.
UNPACKED_LIMIT = 8 * 2**30

#: How often a file may unpack to its own size where it is read in parts, and memory is no concern;
#: tables hardly pack better than that.
_UNPACKED_TIMES = 100


def check_file(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` as a :class:`~pathlib.Path` to a file that can be read and is not empty."""
    path = Path(path)
    try:
        if not path.exists():
            raise InputError(f"{path} does not exist; check the path.")
        if path.is_dir():
            raise InputError(f"{path} is a folder; name the file inside it.")
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty; fetch or write it again.")
        with path.open("rb"):
            return path
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path.") from error


def open_binary(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file for reading bytes, unpacking ``.gz`` and ``.bz2`` on the way."""
    path = check_file(path)
    if path.suffix.lower() not in packing.SUFFIXES:
        return path.open("rb")
    return packing.unpacked(path, UNPACKED_LIMIT)


def check_unpacked(path: str | os.PathLike[str], n_bytes: int) -> None:
    """Refuse a file that is read in parts and states that it unpacks to far more than its size."""
    limit = max(UNPACKED_LIMIT, _UNPACKED_TIMES * Path(path).stat().st_size)
    if n_bytes > limit:
        raise InputError(
            f"{path} unpacks to {n_bytes:,} bytes, more than the {limit:,} that are accepted; "
            "divide it into several files."
        )


@contextmanager
def create_binary(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Create a file for writing bytes, packing it as the suffix ``.gz`` or ``.bz2`` asks."""
    path = Path(path)
    with path.open("wb") as file:
        if path.suffix.lower() not in packing.SUFFIXES:
            yield file
            return
        with packing.packed(file, path.suffix) as stream:
            yield stream


@contextmanager
def open_text(path: str | os.PathLike[str], *, newline: str | None = None) -> Iterator[IO[str]]:
    """Open a UTF-8 text file for reading, unpacking ``.gz`` and ``.bz2`` on the way.

    A byte that is not UTF-8 raises an :class:`InputError` wherever in the file it is met;
    ``newline`` is that of :func:`open`.
    """
    with io.TextIOWrapper(open_binary(path), encoding="utf-8-sig", newline=newline) as text:
        try:
            yield text
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} is not UTF-8 text (byte {error.object[error.start]:#04x}); "
                "save it as UTF-8, for example with iconv."
            ) from error


def read_json(path: str | os.PathLike[str], *, advice: str) -> Any:
    """Read a JSON file; ``advice`` is what the error at a damaged one says to do."""
    path = check_file(path)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged, it is not JSON; {advice}.") from error


def data_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix that tells the format: ``a.arff.gz`` gives ``.arff``."""
    path = Path(path)
    if path.suffix.lower() in packing.SUFFIXES:
        path = path.with_suffix("")
    return path.suffix.lower()


def data_name(path: str | os.PathLike[str]) -> str:
    """Return the name without the suffixes: ``a.arff.gz`` gives ``a``."""
    path = Path(path)
    return (path.with_suffix("") if path.suffix.lower() in packing.SUFFIXES else path).stem


def refuse_packed(path: str | os.PathLike[str], format: str) -> None:
    """Refuse ``.gz`` and ``.bz2`` for a format that is compressed by itself."""
    suffix = Path(path).suffix
    if suffix.lower() in packing.SUFFIXES:
        raise InputError(
            f"{path} ends in {suffix}, but {format} is compressed by itself; leave that out."
        )


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder, and those that it lies in, unless it is there."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"Cannot make the folder {path} ({error.strerror}); choose another one."
        ) from error
    return path


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside ``path`` that takes its place when the block ends well.

    When the block raises, ``path`` is left as it was and the temporary file or folder is removed.
    """
    with atomic_paths(path) as (temporary,):
        yield temporary


@contextmanager
def atomic_paths(*paths: str | os.PathLike[str]) -> Iterator[list[Path]]:
    """Give temporary paths that take the places of ``paths`` when the block ends well.

    When the block raises, or one of the places cannot be taken, all of ``paths`` are left as they
    were. The places are taken one after the other, so that another process may see some of them
    new and some old for a moment. What stood in them is copied before, except in the last place:
    name the largest file last.
    """
    targets = [Path(path) for path in paths]
    with ExitStack() as stack:
        temporaries = [stack.enter_context(_folder_beside(path)) / path.name for path in targets]
        try:
            yield temporaries
            for temporary in temporaries:
                _flush_to_disk(temporary)
            _replace_all(temporaries, targets)
        except OSError as error:
            raise InputError(
                f"Cannot write {' and '.join(map(str, targets))} ({error.strerror or error}); "
                "check the space and the permissions."
            ) from error


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give an empty folder that becomes the new folder ``path`` when the block ends well.

    When the block raises, nothing is left of it. What is there already is never replaced.
    """
    target = Path(path)
    if os.path.lexists(target):
        raise InputError(f"{path} exists; name another folder, or remove it.")
    with _folder_beside(target) as beside:
        try:
            temporary = beside / target.name
            temporary.mkdir()
            yield temporary
            for file in temporary.iterdir():
                _flush_to_disk(file)
            temporary.rename(target)
        except OSError as error:
            raise InputError(
                f"Cannot write {path} ({error.strerror or error}); "
                "check the space and the permissions."
            ) from error


@contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """Make a folder for a temporary file beside ``path``, and remove it in the end."""
    try:
        has_folder, is_folder = path.parent.is_dir(), path.is_dir()
    except OSError as error:
        raise InputError(
            f"Cannot write {path} ({error.strerror}); choose another name or folder."
        ) from error
    if not has_folder:
        raise InputError(f"The folder {path.parent} does not exist; make it first.")
    if is_folder:
        raise InputError(f"{path} is a folder; name a file inside it.")
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(unfinished_folder(path))
        except OSError as error:
            raise InputError(
                f"Cannot write into {path.parent} ({error.strerror}); choose another folder."
            ) from error
        yield folder


def _replace_all(temporaries: list[Path], targets: list[Path]) -> None:
    """Move each temporary file to its target; where one cannot be moved, undo those before."""
    with ExitStack() as undo:
        for temporary, target in zip(temporaries, targets, strict=True):
            if target is not targets[-1]:
                undo.callback(_restore, target, _kept(target, temporary.parent))
            temporary.replace(target)
        undo.pop_all()


def _kept(path: Path, folder: Path) -> Path | None:
    """Copy a file into a new folder inside ``folder``; None where there is no file."""
    if not os.path.lexists(path):
        return None
    copy = Path(tempfile.mkdtemp(dir=folder)) / path.name
    return Path(shutil.copy2(path, copy, follow_symlinks=False))


def _restore(path: Path, kept: Path | None) -> None:
    if kept is None:
        path.unlink(missing_ok=True)
    else:
        kept.replace(path)


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
