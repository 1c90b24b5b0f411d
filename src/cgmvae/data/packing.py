"""Files packed with gzip or bzip2: unpacked with mistrust, packed to the same bytes each time.

:mod:`cgmvae.data.files` opens and creates files through it; nothing else does.
"""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cgmvae.errors import InputError

#: How far a gzip file may go beyond the size it states before it is called a lie. Files that are
#: joined from several members state the size of the last one only; their members are small.
_STATED_SLACK = 64 * 2**20

#: The size is stated modulo 4 GiB. A gzip file of this packed size or more may hold more than that,
#: since tables of text pack to a sixtieth or so at best.
_WRAPPED_FROM = 64 * 2**20

#: Unpacked bytes that are held at a time.
_CHUNK = 1 << 20

#: Packed bytes that are taken at a time. What follows a gzip member is copied once for each member
#: in it, so that a file of many small members asks for little at a time.
_PACKED_CHUNK = 1 << 14

_GZIP = zlib.MAX_WBITS | 16


def unpacked(path: Path, limit: int) -> IO[bytes]:
    """Open a packed file for reading what it unpacks to, which may be ``limit`` bytes at most."""
    chunks = _UNPACKERS[path.suffix.lower()](path, limit)
    return io.BufferedReader(_Chunks(_clear_errors(path, chunks)), _CHUNK)


@contextmanager
def packed(file: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    """Give a stream that packs what is written into ``file``, as the suffix asks.

    A gzip file states neither its name nor the time, so that the same data gives the same bytes.
    """
    stream: Any = (
        gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        if suffix.lower() == ".gz"
        else bz2.BZ2File(file, "wb")
    )
    with stream:
        yield stream


class _Chunks(io.RawIOBase):
    """A readable stream over an iterator of byte strings."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        n = min(len(buffer), len(self._rest))
        buffer[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        return n

    def close(self) -> None:
        self._chunks.close()  # type: ignore[attr-defined]
        super().close()


def _gunzip(path: Path, limit: int) -> Iterator[bytes]:
    """Unpack a gzip file, stopping at the first byte that is far beyond what it states."""
    bound, produced = _stated_bound(path, limit), 0
    with path.open("rb") as file:
        unpacker, pending = zlib.decompressobj(_GZIP), file.read(_PACKED_CHUNK)
        while pending:
            chunk = unpacker.decompress(pending, _CHUNK)
            produced += len(chunk)
            if produced > bound:
                raise _too_large(path, produced)
            yield chunk
            if not unpacker.eof:
                pending = unpacker.unconsumed_tail or file.read(_PACKED_CHUNK)
            elif pending := _after_padding(unpacker.unused_data, file):
                bound = limit  # another member: the stated size is not the whole
                unpacker = zlib.decompressobj(_GZIP)
        if not unpacker.eof:
            raise EOFError("the compressed data ends too early")


def _stated_bound(path: Path, limit: int) -> int:
    """Return the most bytes that a gzip file of one member may unpack to, by its own statement."""
    n_packed = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, n_packed - 4))
        stated = int.from_bytes(file.read(4), "little")
    if n_packed >= _WRAPPED_FROM:
        stated += 2**32
    return min(limit, stated + _STATED_SLACK)


def _after_padding(pending: bytes, file: IO[bytes]) -> bytes:
    """Return the start of the next member, which zeros may precede; nothing where none follows."""
    while not (rest := pending.lstrip(b"\0")) and (pending := file.read(_PACKED_CHUNK)):
        pass
    return rest


def _bunzip2(path: Path, limit: int) -> Iterator[bytes]:
    produced = 0
    with bz2.open(path) as file:
        while chunk := file.read(_CHUNK):
            produced += len(chunk)
            if produced > limit:
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

#: The suffixes of packed files.
SUFFIXES = tuple(_UNPACKERS)
