"""Fetching one file from a public address, whole and checked, or not at all.

Used by :mod:`cgmvae.data.catalog`, which knows the addresses.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

from cgmvae.data.files import atomic_path
from cgmvae.errors import InputError, one_line

#: Called with the bytes that have arrived and, where the server says it, the bytes in all.
Progress = Callable[[int, int | None], None]

#: The most bytes that a download may have, far above any file of the catalog.
SIZE_LIMIT = 4 * 2**30

#: Seconds without an answer after which a server counts as out of reach.
TIMEOUT = 30.0

#: The file beside the downloads that holds the checksum of each at its first download.
CHECKSUMS = "SHA256SUMS"

_SCHEMES = ("https", "http", "file")

_CHUNK = 1 << 18


def download(
    address: str,
    target: str | os.PathLike[str],
    *,
    sha256: str = "",
    progress: Progress | None = None,
) -> Path:
    """Fetch a file; when that fails, nothing is left behind and ``target`` is as it was.

    Parameters
    ----------
    address : str
        An address that begins with ``https:``, ``http:`` or ``file:``.
    target : path
        Where the file goes; its folder must exist.
    sha256 : str
        The file's checksum. When it is empty, the checksum is recorded in ``SHA256SUMS`` beside
        the target at the first download, and later downloads must agree with it.
    progress : callable, optional
        Called with the bytes so far and the bytes in all, the latter None when not known.

    Returns
    -------
    Path
        The target.

    Raises
    ------
    InputError
        When the address cannot be reached, the body is cut short or too large, or the checksum
        differs.
    """
    target = Path(target)
    _check_scheme(address, _SCHEMES)
    expected = sha256.lower() or recorded_checksum(target)
    with atomic_path(target) as temporary:
        checksum = _fetch(address, temporary, progress)
        if expected and checksum != expected:
            raise InputError(
                f"{address} has the checksum {checksum[:12]}… where {expected[:12]}… was expected; "
                f"fetch it again, or remove its line from {target.parent / CHECKSUMS} "
                "if the publisher has changed it."
            )
    if not expected:
        _record_checksum(target, checksum)
    return target


def checksum_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recorded_checksum(path: Path) -> str:
    """Return what ``SHA256SUMS`` beside a file says of it, or nothing."""
    return _read_checksums(path.parent / CHECKSUMS).get(path.name, "")


def _check_scheme(address: str, allowed: tuple[str, ...]) -> None:
    if urlsplit(address).scheme not in allowed:
        raise InputError(
            f"{address} cannot be fetched; an address must begin with "
            f"{' or '.join(f'{scheme}:' for scheme in allowed)}."
        )


def _fetch(address: str, target: Path, progress: Progress | None) -> str:
    """Write what the address gives to ``target`` and return its checksum."""
    digest, done = hashlib.sha256(), 0
    with _network_errors(address), urllib.request.urlopen(address, timeout=TIMEOUT) as response:
        if urlsplit(address).scheme == "https":
            _check_scheme(response.url, ("https",))
        total = _stated_size(response)
        with target.open("wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                _check_size(address, done, total)
                if progress is not None:
                    progress(done, total)
    if total is not None and done < total:
        raise InputError(
            f"{address} ended after {done:,} of {total:,} bytes; "
            "check the connection and try again."
        )
    return digest.hexdigest()


def _stated_size(response: http.client.HTTPResponse) -> int | None:
    stated = response.headers.get("Content-Length", "")
    return int(stated) if stated.isdecimal() else None


def _check_size(address: str, done: int, total: int | None) -> None:
    if max(done, total or 0) > SIZE_LIMIT:
        raise InputError(
            f"{address} is larger than {SIZE_LIMIT:,} bytes; fetch it by hand if you trust it."
        )


@contextmanager
def _network_errors(address: str) -> Iterator[None]:
    """Turn what the network, the server or the disk can do into one sentence."""
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, InputError):
            raise
        if isinstance(error, HTTPError):
            error.close()
        reason = one_line(error) or type(error).__name__
        raise InputError(
            f"{address} cannot be fetched ({reason}); check the connection, or fetch it by hand."
        ) from error


def _read_checksums(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = (line.split(maxsplit=1) for line in text.splitlines())
    return {words[1].lstrip("*"): words[0].lower() for words in lines if len(words) == 2}


def _record_checksum(target: Path, checksum: str) -> None:
    path = target.parent / CHECKSUMS
    checksums = {**_read_checksums(path), target.name: checksum}
    lines = (f"{value}  {name}\n" for name, value in sorted(checksums.items()))
    with atomic_path(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
