"""Opening files that may be damaged or hostile, and writing files atomically.

Every reader opens its file with :func:`open_text`, :func:`open_binary` or :func:`read_json`, so
that a missing file, a folder, a damaged archive, a decompression bomb and a wrong encoding are
reported the same way everywhere. Every writer uses :func:`atomic_path` or :func:`atomic_folder`: a
target is either the complete new file or what it was before.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from cgmvae.errors import InputError, Sentence

#: Upper limit of the bytes that a compressed file may unpack to in memory: a guard against
#: decompression bombs, far above any data set of the catalog.
UNPACKED_LIMIT = 8 * 2**30

#: A compressed file may unpack to this many times its own size, but in any case to `_UNPACKED_FREE`
#: bytes; tables rarely compress better than that.
_UNPACKED_RATIO = 100
_UNPACKED_FREE = 2**30

#: Limits of the JSON in a file from a stranger: a value takes two bytes of text and up to a hundred
#: bytes of memory.
JSON_VALUE_LIMIT, JSON_DEPTH_LIMIT = 5_000_000, 32

#: Suffix of the hidden folders that hold files while they are written.
TEMPORARY_SUFFIX = ".unfinished"

#: Number of characters of a file's name that the name of its temporary folder repeats.
_SHOWN_CHARACTERS = 32

#: Name of the lock file in a temporary folder.
_LOCK = ".lock"

_BUFFER = 1 << 20

_DECOMPRESSORS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open}


def check_file(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` as a :class:`~pathlib.Path` to a readable file that is not empty."""
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
    """Open a file for reading bytes, decompressing ``.gz`` and ``.bz2``."""
    path = check_file(path)
    if not _is_compressed(path):
        return path.open("rb")
    return io.BufferedReader(_Decompressed(path), _BUFFER)


@contextmanager
def open_text(
    path: str | os.PathLike[str],
    *,
    newline: str | None = None,
    encoding: str = "utf-8-sig",
    advice: Sentence = ("save it as UTF-8, for example with iconv",),
) -> Iterator[IO[str]]:
    """Open a text file for reading, decompressing ``.gz`` and ``.bz2``.

    A byte that does not belong to the encoding raises an :class:`InputError` with the advice,
    wherever it occurs in the file; ``newline`` is that of :func:`open`.
    """
    with io.TextIOWrapper(open_binary(path), encoding=encoding, newline=newline) as text:
        try:
            yield text
        except UnicodeError as error:
            what = "UTF-8" if encoding == "utf-8-sig" else encoding
            where = ""
            if isinstance(error, UnicodeDecodeError):
                where = f" (byte {error.object[error.start]:#04x})"
            raise InputError(f"{path} is not {what} text{where}; ", *advice, ".") from error


def is_unicode(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is UTF-8 text, or UTF-16 text with its mark."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open_binary(path) as file:
        block = file.read(_BUFFER)
        if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return True
        try:
            while block:
                decoder.decode(block)
                block = file.read(_BUFFER)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def read_json(path: str | os.PathLike[str], *, advice: str) -> Any:
    """Read a JSON file; ``advice`` is what the error for a damaged file says to do."""
    path = check_file(path)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged, it is not JSON; {advice}.") from error


def parse_limited_json(text: bytes) -> Any:
    """Parse JSON from a stranger; raise a ValueError if it holds too many values or is too deep."""
    # Counting marks gives an upper bound of the values before any of them takes memory.
    if 1 + sum(text.count(mark) for mark in (b",", b"[", b"{", b":")) > JSON_VALUE_LIMIT:
        raise ValueError("it holds too many values")
    try:
        parsed = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    level: list[Any] = [parsed]
    for _ in range(JSON_DEPTH_LIMIT):
        level = [list(each.values()) if isinstance(each, dict) else each for each in level]
        level = [inner for each in level if isinstance(each, list) for inner in each]
        if not level:
            return parsed
    raise ValueError("it is nested too deeply")


class _Decompressed(io.RawIOBase):
    """The decompressed content of a file, with a limit on its size."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._limit = min(UNPACKED_LIMIT, _reasonable_size(path))
        self._n_bytes = 0
        self._stream = _DECOMPRESSORS[path.suffix.lower()](path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            n = int(self._stream.readinto(buffer))
        except (zlib.error, EOFError, OSError) as error:
            raise InputError(f"{self._path} is damaged ({error}); fetch the file again.") from error
        self._n_bytes += n
        if self._n_bytes > self._limit:
            raise InputError(
                f"{self._path} unpacks to more than the {self._limit:,} bytes that are accepted; "
                "unpack it yourself if you trust it."
            )
        return n

    def close(self) -> None:
        self._stream.close()
        super().close()


def _reasonable_size(path: str | os.PathLike[str]) -> int:
    """Return how many bytes a compressed file can be expected to unpack to at most."""
    return max(_UNPACKED_FREE, _UNPACKED_RATIO * Path(path).stat().st_size)


def check_unpacked(
    path: str | os.PathLike[str],
    n_bytes: int,
    *,
    in_blocks: bool = False,
    advice: Sentence = ("divide it into several files",),
) -> None:
    """Reject a file that states that it unpacks to more than fits into memory.

    A file that is read ``in_blocks`` may, unless that is far more than its size.
    """
    limit = max(UNPACKED_LIMIT, _reasonable_size(path)) if in_blocks else UNPACKED_LIMIT
    if n_bytes > limit:
        raise InputError(
            f"{path} unpacks to {n_bytes:,} bytes, more than the {limit:,} that are accepted; ",
            *advice,
            ".",
        )


@contextmanager
def create_binary(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Create a file for writing bytes, compressed if the suffix is ``.gz`` or ``.bz2``.

    The same content gives the same bytes: a gzip file stores neither its name nor the time.
    """
    path = Path(path)
    with path.open("wb") as file:
        if not _is_compressed(path):
            yield file
            return
        stream: Any = (
            gzip.GzipFile("", "wb", fileobj=file, mtime=0)
            if path.suffix.lower() == ".gz"
            else bz2.BZ2File(file, "wb")
        )
        with stream:
            yield stream


def data_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix that tells the format: ``a.arff.gz`` gives ``.arff``."""
    path = Path(path)
    return (path.with_suffix("") if _is_compressed(path) else path).suffix.lower()


def data_name(path: str | os.PathLike[str]) -> str:
    """Return the name without the suffixes: ``a.arff.gz`` gives ``a``."""
    path = Path(path)
    return (path.with_suffix("") if _is_compressed(path) else path).stem


def reject_compressed(path: str | os.PathLike[str], format: str) -> None:
    """Reject ``.gz`` and ``.bz2`` for a format that is compressed already."""
    if _is_compressed(Path(path)):
        raise InputError(
            f"{path} ends in {Path(path).suffix}, but {format} is compressed already; "
            "leave that suffix out."
        )


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() in _DECOMPRESSORS


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Create a folder and its parents, unless they exist."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"Cannot create the folder {path} ({error.strerror}); choose another one."
        ) from error
    return path


def check_new_file(path: Path) -> None:
    """Reject a path at which no file can be created: a folder, or one in a folder that is not."""
    try:
        has_parent, is_folder = path.parent.is_dir(), path.is_dir()
    except OSError as error:
        raise InputError(
            f"Cannot write {path} ({error.strerror}); choose another name or folder."
        ) from error
    if not has_parent:
        raise InputError(f"The folder {path.parent} does not exist; create it first.")
    if is_folder:
        raise InputError(f"{path} is a folder; name a file inside it.")


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path that replaces ``path`` when the block succeeds.

    When the block raises, ``path`` stays as it was and the temporary file is removed. A new file
    has the permissions of the old one, and the file that a symbolic link points to is replaced, not
    the link.
    """
    path = Path(path)
    target = _link_target(path)
    with _temporary_folder(target) as folder, _write_errors(path):
        temporary = folder / path.name  # a writer may look at the suffix
        yield temporary
        _flush_to_disk(temporary)
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
        _flush_folder(target.parent)


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give an empty folder that becomes the new folder ``path`` when the block succeeds.

    When the block raises, nothing of it remains. An existing ``path`` is never replaced.
    """
    target = Path(path)
    if os.path.lexists(target):
        raise InputError(f"{path} exists; name another folder, or remove it.")
    with _temporary_folder(target) as folder, _write_errors(target):
        temporary = folder / target.name
        temporary.mkdir()
        yield temporary
        for file in temporary.iterdir():
            _flush_to_disk(file)
        _flush_folder(temporary)
        temporary.rename(target)
        _flush_folder(target.parent)


@contextmanager
def _write_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"Cannot write {target} ({error.strerror or error}); "
            "check the free space and the permissions."
        ) from error


@contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    """Create a hidden folder beside ``path`` for files that are being written, and remove it.

    The process that writes holds a lock in the folder. The operating system releases the lock of a
    process that was killed, so the next writer of the same path recognizes what it left, and
    removes it. On a file system without locks, such folders stay; nothing reads them.
    """
    check_new_file(path)
    prefix = f".{path.name[:_SHOWN_CHARACTERS]}."
    _remove_abandoned(path.parent, prefix)
    try:
        folder = Path(tempfile.mkdtemp(TEMPORARY_SUFFIX, prefix, path.parent))
    except OSError as error:
        raise InputError(
            f"Cannot write into {path.parent} ({error.strerror}); choose another folder."
        ) from error
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        with suppress(OSError, NotImplementedError):  # a file system without locks
            stack.enter_context(FileLock(folder / _LOCK))
        folder.mkdir(mode=0o700, exist_ok=True)
        yield folder


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the temporary folders of processes that were killed."""
    name = re.compile(re.escape(prefix) + r"[a-z0-9_]{8}" + re.escape(TEMPORARY_SUFFIX))
    # Writing may work where listing, or locking, does not.
    with suppress(OSError, NotImplementedError), os.scandir(parent) as entries:
        for entry in entries:
            if not name.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
                continue
            if not Path(entry, _LOCK).exists():
                # Its process was killed before it locked the folder, or is just about to lock it,
                # and then creates it again.
                with suppress(OSError):
                    Path(entry).rmdir()
                continue
            with suppress(Timeout), FileLock(Path(entry, _LOCK), timeout=0):
                shutil.rmtree(entry, ignore_errors=True)


def _link_target(path: Path) -> Path:
    """Return the file that a symbolic link points to; any other path as it is."""
    try:
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError):  # a name that is too long, or links in a circle
        return path


def _flush_to_disk(path: Path) -> None:
    with path.open("r+b") as file:  # Windows only flushes files that are open for writing
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    """Write the names in a folder to disk, so that a renamed file survives a power failure."""
    with suppress(OSError):  # Windows opens no folders, and some file systems cannot flush them
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
