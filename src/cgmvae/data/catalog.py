"""The catalog of known data sets: what they are, where they come from, and how they are loaded.

The entries are in ``catalog.toml`` beside this file. :func:`load_dataset` finds a data set by name,
downloads it if its publisher offers plain files and they are not on this machine, reads it with
:mod:`cgmvae.data.readers`, and checks that it is what the catalog says.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any
from urllib.parse import urlsplit

import numpy as np

from cgmvae.data import readers
from cgmvae.data.dataset import TEST, TRAIN, MultiLabelDataset, stack_datasets
from cgmvae.data.files import atomic_path
from cgmvae.errors import InputError, one_line, warn

#: Called with the bytes downloaded so far and, if the server states it, the total.
Progress = Callable[[int, int | None], None]

#: Upper limit of the bytes of a download, far above any file of the catalog.
DOWNLOAD_LIMIT = 4 * 2**30

#: Seconds to wait for a server.
TIMEOUT = 30.0

#: Digits of a git blob id; a SHA-256 has more.
_GIT_DIGITS = 40

_CHUNK = 1 << 18


@dataclass(frozen=True)
class Original:
    """One file of the publisher, at a public address."""

    address: str
    role: str
    """``data``, ``train``, ``test``, ``labels`` for the XML file that names the labels, or
    ``index`` for row numbers that the reader finds beside the data."""
    checksum: str
    """SHA-256, or the git blob id where only that is known; see :func:`checksum_of`."""

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return self.address.rpartition("/")[2]


@dataclass(frozen=True)
class ExpectedStatistics:
    """Expected statistics of the data set; a 0 is unknown and not checked."""

    samples: int = 0
    features: int = 0
    labels: int = 0
    cardinality: Decimal = Decimal(0)
    """Mean labels per row, accurate to one unit of its last digit."""


@dataclass(frozen=True)
class PaperRow:
    """The row of the paper's table of data sets, as printed there."""

    samples: int
    labels: int
    mean_labels_per_sample: Decimal
    median_labels_per_sample: int
    max_labels_per_sample: int
    mean_samples_per_label: Decimal

    @property
    def training_share(self) -> float:
        """The share of the rows from which the mean samples per label must come."""
        cells = self.samples * self.mean_labels_per_sample
        return float(self.labels * self.mean_samples_per_label / cells)


@dataclass(frozen=True)
class CatalogEntry:
    """Facts about one data set."""

    name: str
    title: str
    domain: str
    source: str
    """Public page, or repository with commit."""
    license: str
    file: str
    """Path relative to the folder ``CGMVAE_DATA``."""
    statistics: ExpectedStatistics
    sha256: str = ""
    """Checksum of the file; empty if several versions of the file are in use."""
    embedded: str = ""
    """Name of the file in the package, if the data set is shipped with it."""
    recipe: str = ""
    """How to make the file, if it is not published in the form that is read."""
    official_split: bool = False
    """Whether the publisher has split the data set into training and test rows."""
    groups: str = ""
    """Array of the file that holds the groups of the rows."""
    options: tuple[tuple[str, Any], ...] = ()
    """Options for the reader of the file's format."""
    downloads: tuple[Original, ...] = ()
    paper: PaperRow | None = None


@cache
def entries() -> Mapping[str, CatalogEntry]:
    """Return the known data sets by name, those of the paper first."""
    text = (resources.files("cgmvae.data") / "catalog.toml").read_text(encoding="utf-8")
    found = {}
    for name, table in tomllib.loads(text, parse_float=Decimal).items():
        table["statistics"] = ExpectedStatistics(**table["statistics"])
        table["options"] = tuple(table.get("options", {}).items())
        table["downloads"] = tuple(Original(**each) for each in table.get("downloads", ()))
        table["paper"] = PaperRow(**table["paper"]) if "paper" in table else None
        found[name] = CatalogEntry(name=name, **table)
    return MappingProxyType(found)


def find_entry(name: str) -> CatalogEntry:
    """Return the entry of a name, ignoring case and the difference between ``-`` and ``_``."""
    known = entries()
    wanted = name.strip().lower().replace("-", "_").replace(" ", "_")
    if wanted in known:
        return known[wanted]
    close = difflib.get_close_matches(wanted, known, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"choose one of {', '.join(known)}."
    raise InputError(f"There is no data set {name!r} in the catalog; {hint}")


def load_dataset(
    name: str, *, download: bool = True, progress: Progress | None = None
) -> MultiLabelDataset:
    """Load a data set of the catalog.

    It is searched in the package, in the folder ``CGMVAE_DATA``, and in the cache
    (:func:`cache_folder`); if it is in none of them, its original files are downloaded into the
    cache, provided that its publisher offers them.

    Parameters
    ----------
    name : str
        A name of :func:`entries`, such as ``"yeast"`` or ``"nus-vec"``.
    download : bool
        Whether files may be downloaded.
    progress : callable, optional
        Called during a download with the bytes so far and the total (or None).

    Warns
    -----
    UserWarning
        If the checksum of the file differs from the catalog.

    Examples
    --------
    >>> yeast = load_dataset("yeast")
    >>> yeast.X.shape, yeast.Y.shape
    ((2417, 103), (2417, 14))
    >>> round(yeast.describe().mean_labels_per_sample, 2)
    4.24
    """
    entry = find_entry(name)
    origin, files = next(_locations(entry), ("", ()))
    if not files:
        if not (download and entry.downloads):
            raise _unavailable(entry, "is not on this machine")
        files = _download_originals(entry, progress)
    if origin != "embedded":
        _warn_about_checksums(entry, files)
    dataset = replace(_read(entry, files), name=entry.name)
    _check_statistics(entry, dataset, files[0])
    return dataset


def locate(name: str) -> Path | None:
    """Return the first file that :func:`load_dataset` would read, or None if there is none yet."""
    return next((files[0] for _, files in _locations(find_entry(name))), None)


def availability(name: str) -> str:
    """Return where a data set is.

    ``embedded`` (in the package), ``here`` (in the folder ``CGMVAE_DATA``), ``cached``,
    ``to download``, or ``by hand`` if the user must fetch or make the file.
    """
    entry = find_entry(name)
    origin = next((origin for origin, _ in _locations(entry)), None)
    return origin or ("to download" if entry.downloads else "by hand")


def download(name: str, *, progress: Progress | None = None) -> tuple[Path, ...]:
    """Download the publisher's files of a data set into the cache, and return their paths.

    Files that are in the cache already are kept.
    """
    entry = find_entry(name)
    if not entry.downloads:
        raise _unavailable(entry, "cannot be downloaded")
    return _download_originals(entry, progress)


def cache_folder() -> Path:
    """Return the folder for downloads: ``CGMVAE_CACHE``, or the user's cache folder.

    It need not exist yet.
    """
    if folder := os.environ.get("CGMVAE_CACHE"):
        return Path(folder)
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise InputError(
            "The cache folder is unknown without platformdirs; set CGMVAE_CACHE, or install it "
            'with pip install "cgmvae[download]".'
        ) from error
    return user_cache_path("cgmvae", appauthor=False)


def _locations(entry: CatalogEntry) -> Iterator[tuple[str, tuple[Path, ...]]]:
    """Yield where the data set is, in order of preference, with the files to read there."""
    if entry.embedded:
        path = resources.files("cgmvae.data") / "embedded" / entry.embedded
        yield "embedded", (Path(str(path)),)
    for origin in ("here", "cached"):
        named = os.environ.get("CGMVAE_DATA") if origin == "here" else cache_folder()
        if named:
            folder = Path(named)
            own = folder / entry.name / f"{entry.name}.npz"
            originals = _originals(entry, folder)
            # A file of the publisher is not read without the others.
            alone = () if folder / entry.file in originals else (folder / entry.file,)
            for files in (alone, (own,), originals):
                if files and all(path.is_file() for path in files):
                    yield origin, files


def _originals(entry: CatalogEntry, folder: Path) -> tuple[Path, ...]:
    return tuple(folder / entry.name / original.file_name for original in entry.downloads)


def _download_originals(entry: CatalogEntry, progress: Progress | None) -> tuple[Path, ...]:
    files = _originals(entry, cache_folder())
    try:
        files[0].parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unavailable(entry, f"cannot be stored ({error})") from error
    for path, original in zip(files, entry.downloads, strict=True):
        if path.is_file():
            continue
        try:
            fetch(original.address, path, checksum=original.checksum, progress=progress)
        except InputError as error:
            problem = str(error).partition("; ")[0]
            raise _unavailable(entry, f"is not on this machine, and {problem}") from error
    return files


def _unavailable(entry: CatalogEntry, problem: str) -> InputError:
    folder = os.environ.get("CGMVAE_DATA") or "not set"
    originals = " and ".join(str(path) for path in _originals(entry, Path()))
    wanted = f"{entry.file}, or {originals}," if originals else entry.file
    if entry.file in originals:
        wanted = originals
    recipe = "; 'cgmvae data list --json' shows its recipe" if entry.recipe else ""
    return InputError(
        f"The data set {entry.name!r} {problem}; put {wanted} (from {entry.source}{recipe}) into "
        f"the folder CGMVAE_DATA ({folder}) or into {cache_folder()}."
    )


def _read(entry: CatalogEntry, files: tuple[Path, ...]) -> MultiLabelDataset:
    if files[0].suffix == ".npz":
        groups = {"groups": entry.groups} if entry.groups else {}
        return readers.read(files[0], **groups)
    if files[0].name not in {original.file_name for original in entry.downloads}:
        return readers.read(files[0], **dict(entry.options))
    by_role = {original.role: path for original, path in zip(entry.downloads, files, strict=True)}
    xml: dict[str, Any] = {"xml": by_role["labels"]} if "labels" in by_role else {}
    if "data" in by_role:
        return readers.read(by_role["data"], **xml, **dict(entry.options))
    train, test = (readers.read(by_role[part], **xml) for part in ("train", "test"))
    if (train.feature_names, train.label_names) != (test.feature_names, test.label_names):
        raise InputError(
            "The train file and the test file have different columns; download both again."
        )
    split = np.repeat(np.array([TRAIN, TEST], np.uint8), [train.n_samples, test.n_samples])
    return replace(stack_datasets([train, test]), official_split=split)


def _warn_about_checksums(entry: CatalogEntry, files: tuple[Path, ...]) -> None:
    known = {Path(entry.file).name: entry.sha256}
    known |= {original.file_name: original.checksum for original in entry.downloads}
    for path in files:
        expected = known.get(path.name)
        if expected and checksum_of(path, n_digits=len(expected)) != expected:
            warn(
                f"{path} is not the file of {entry.name!r} in the catalog (its checksum differs), "
                "so results may not be comparable to published ones.",
            )


def _check_statistics(entry: CatalogEntry, dataset: MultiLabelDataset, path: Path) -> None:
    expected, found = entry.statistics, dataset.describe()
    differences = [
        f"{getattr(found, field):,} {field} where the catalog says {number:,}"
        for field in ("samples", "features", "labels")
        if (number := getattr(expected, field)) and getattr(found, field) != number
    ]
    cardinality = Decimal(found.mean_labels_per_sample)
    last_digit = Decimal(1).scaleb(int(expected.cardinality.as_tuple().exponent))
    if expected.cardinality and abs(cardinality - expected.cardinality) >= last_digit:
        differences.append(
            f"{cardinality:.6f} labels per row where the catalog says {expected.cardinality}"
        )
    if differences:
        raise InputError(
            f"{path} is not the data set {entry.name!r}: it has {', '.join(differences)}; "
            "download or make the file again, or load it as a file of your own."
        )


def fetch(
    address: str,
    target: str | os.PathLike[str],
    *,
    checksum: str,
    progress: Progress | None = None,
) -> Path:
    """Download a file; ``target`` appears complete and checked, or not at all.

    Parameters
    ----------
    address : str
        A URL that begins with ``https:`` or ``http:``; what arrives is checked in either case.
    target : path
        Path of the new file; its folder must exist.
    checksum : str
        Of the file, as :func:`checksum_of` returns it.
    progress : callable, optional
        Called with the bytes so far and the total, which is None if unknown.
    """
    if urlsplit(address).scheme not in ("https", "http"):
        raise InputError(
            f"{address} cannot be downloaded; an address must begin with https: or http:."
        )
    with atomic_path(target) as temporary:
        with temporary.open("wb") as file:
            _transfer(address, _Sink(address, file, progress))
        found = checksum_of(temporary, n_digits=len(checksum))
        if found != checksum.lower():
            raise InputError(
                f"{address} has the checksum {found[:12]}… where {checksum[:12]}… was expected; "
                "download it again, or check whether the publisher has changed it."
            )
    return Path(target)


class _Sink:
    """Where a download goes: counts the bytes, and reports progress.

    pooch sees it both as a file and as a progress bar, whose ``total`` it sets to the size of what
    the server sends.
    """

    total = 0

    def __init__(self, address: str, file: IO[bytes], progress: Progress | None) -> None:
        self._address, self._file, self._progress = address, file, progress
        self._n_bytes = 0

    def write(self, chunk: bytes) -> None:
        self._n_bytes += len(chunk)
        if max(self._n_bytes, self.total) > DOWNLOAD_LIMIT:
            raise InputError(
                f"{self._address} is larger than {DOWNLOAD_LIMIT:,} bytes; "
                "download it yourself if you trust it."
            )
        self._file.write(chunk)
        if self._progress is not None:
            self._progress(self._n_bytes, self.total or None)

    update = reset = close = flush = lambda self, *_: None


def _transfer(address: str, sink: _Sink) -> None:
    """Copy what is at an address into the sink."""
    try:
        from pooch import HTTPDownloader  # type: ignore[import-untyped]
    except ImportError as error:
        raise InputError(
            'Downloads need pooch; install it with pip install "cgmvae[download]".'
        ) from error
    # Without compression, so that the total is that of the file.
    headers = {"Accept-Encoding": "identity"}
    responses: list[Any] = []
    download = HTTPDownloader(
        progressbar=sink,
        chunk_size=_CHUNK,
        timeout=TIMEOUT,
        headers=headers,
        hooks={"response": lambda response, **_: responses.append(response)},
    )
    try:
        download(address, sink, None)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        reason = one_line(error) or type(error).__name__
        raise InputError(
            f"{address} cannot be downloaded ({reason}); check the connection and try again, or "
            "download it yourself."
        ) from error
    finally:
        for response in responses:  # pooch leaves a connection open when the sink raises
            response.close()


def checksum_of(path: str | os.PathLike[str], *, n_digits: int = 64) -> str:
    """Return the checksum of a file with so many hexadecimal digits.

    64 digits are the SHA-256; 40 are the git blob id, the SHA-1 of ``blob``, the size and the bytes
    as git computes it, which can be looked up without having the file.
    """
    path = Path(path)
    start = hashlib.sha256()
    if n_digits == _GIT_DIGITS:
        start = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: start).hexdigest()
