"""Opening what people give us, and writing so that nothing is ever half there.

Every reader opens its file through :func:`open_text` or :func:`open_binary`, so that a missing
file, a folder, a damaged or lying archive and text in another encoding are answered alike
everywhere. Every writer goes through :func:`atomic_path`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from cgmvae.errors import InputError

#: The most bytes that a compressed file may unpack to: a guard against archives that are made to
#: fill the memory, far above any data set in the catalog.
UNPACKED_LIMIT = 8 * 2**30

#: How far a gzip file may go beyond the size it states before it is called a lie. Files that are
#: joined from several members state the size of the last one only; their members are small.
_STATED_SLACK = 64 * 2**20

_CHUNK = 1 << 20


class _Chunks(io.RawIOBase):
    """A readable stream over an iterator of byte strings."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        n = min(len(buffer), len(self._rest))
        buffer[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        return n

    def close(self) -> None:
        self._chunks.close()  # type: ignore[attr-defined]
        super().close()


def _gunzip(path: Path) -> Iterator[bytes]:
    """Unpack a gzip file, stopping at the first byte that is far beyond what it states."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4))
        stated = int.from_bytes(file.read(4), "little")
        file.seek(0)
        bound = min(UNPACKED_LIMIT, stated + _STATED_SLACK)
        if path.stat().st_size > 2**30:  # the stated size is modulo 4 GiB
            bound = UNPACKED_LIMIT
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        produced = 0
        while packed := (unpacker.unconsumed_tail or file.read(_CHUNK)):
            while packed:
                chunk = unpacker.decompress(packed, _CHUNK)
                produced += len(chunk)
                if produced > bound:
                    raise _too_large(path, produced)
                yield chunk
                packed = b""
                if unpacker.eof and (rest := unpacker.unused_data.lstrip(b"\0")):
                    bound = UNPACKED_LIMIT  # a second member: the stated size is not the whole
                    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
                    packed = rest
        if not unpacker.eof:
            raise EOFError("the compressed data ends too early")


def _bunzip2(path: Path) -> Iterator[bytes]:
    produced = 0
    with bz2.open(path) as file:
        while chunk := file.read(_CHUNK):
            produced += len(chunk)
            if produced > UNPACKED_LIMIT:
                raise _too_large(path, produced)
            yield chunk


def _too_large(path: Path, n_bytes: int) -> InputError:
    return InputError(
        f"{path} unpacks to more than {n_bytes - 1:,} bytes, far more than it states or than is "
        "accepted; unpack it yourself if you trust it."
    )


def _clear_errors(path: Path, chunks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    except (zlib.error, EOFError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}); fetch the file again.") from error


_UNPACKERS = {".gz": _gunzip, ".bz2": _bunzip2}


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
    unpacker = _UNPACKERS.get(path.suffix.lower())
    if unpacker is None:
        return path.open("rb")
    return io.BufferedReader(_Chunks(_clear_errors(path, unpacker(path))), _CHUNK)


@contextmanager
def create_binary(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Create a file for writing bytes, packing it as the suffix ``.gz`` or ``.bz2`` asks.

    A gzip file states neither its name nor the time, so that the same data gives the same bytes.
    """
    path = Path(path)
    with path.open("wb") as file, ExitStack() as stack:
        packed: Any = file
        if path.suffix.lower() == ".gz":
            packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        elif path.suffix.lower() == ".bz2":
            packed = stack.enter_context(bz2.BZ2File(file, "wb"))
        yield packed


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


def data_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix that tells the format: ``a.arff.gz`` gives ``.arff``."""
    path = Path(path)
    if path.suffix.lower() in _UNPACKERS:
        path = path.with_suffix("")
    return path.suffix.lower()


def data_name(path: str | os.PathLike[str]) -> str:
    """Return the name without the suffixes: ``a.arff.gz`` gives ``a``."""
    path = Path(path)
    return (path.with_suffix("") if path.suffix.lower() in _UNPACKERS else path).stem


def refuse_packed(path: str | os.PathLike[str], format: str) -> None:
    """Refuse ``.gz`` and ``.bz2`` for a format that is compressed by itself."""
    suffix = Path(path).suffix
    if suffix.lower() in _UNPACKERS:
        raise InputError(
            f"{path} ends in {suffix}, but {format} is compressed by itself; leave that out."
        )


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside ``path`` that takes its place when the block ends well.

    When the block raises, ``path`` is left as it was and the temporary file or folder is removed.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"The folder {path.parent} does not exist; make it first.")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file inside it.")
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name[:32]}.", dir=path.parent))
    except OSError as error:
        raise InputError(
            f"Cannot write into {path.parent} ({error.strerror}); choose another folder."
        ) from error
    try:
        temporary = folder / path.name
        yield temporary
        _flush_to_disk(temporary)
        temporary.replace(path)
    except OSError as error:
        raise InputError(
            f"Cannot write {path} ({error.strerror or error}); check the space and the permissions."
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
