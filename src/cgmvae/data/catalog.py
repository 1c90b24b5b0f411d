"""The known data sets: what they are, where they come from, and where their files are looked for.

The facts are in ``catalog.toml`` beside this file. :func:`load_dataset` finds a data set by name,
reads it with :mod:`cgmvae.data.readers`, fetching it first with :mod:`cgmvae.data.download` where
its publisher offers plain files, and checks that it is what the catalog says.
"""

from __future__ import annotations

import difflib
import os
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from cgmvae.data import readers
from cgmvae.data.dataset import TEST, TRAIN, MultiLabelDataset, split_unknown
from cgmvae.data.download import Progress, checksum_of, download, recorded_checksum
from cgmvae.data.stacked import stacked
from cgmvae.errors import InputError


@dataclass(frozen=True)
class Original:
    """One file of the publisher, at a public address."""

    address: str
    role: str
    """``data``, ``train``, ``test``, or ``labels`` for the XML file that names the labels."""
    sha256: str = ""

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return self.address.rpartition("/")[2]


@dataclass(frozen=True)
class ExpectedStatistics:
    """What the data set must be; what is 0 is not known and not checked."""

    samples: int = 0
    features: int = 0
    labels: int = 0
    cardinality: Decimal = Decimal(0)
    """Mean labels per row, true to one unit of its last digit."""


@dataclass(frozen=True)
class PaperRow:
    """The row of the paper's table of data sets, as printed there."""

    samples: int
    labels: int
    mean_labels_per_sample: Decimal
    median_labels_per_sample: int
    max_labels_per_sample: int
    mean_samples_per_label: Decimal


@dataclass(frozen=True)
class CatalogEntry:
    """What is known of one data set."""

    name: str
    title: str
    domain: str
    source: str
    """Public page, or repository with commit."""
    licence: str
    file: str
    """Path inside the folder that ``CGMVAE_DATA`` names."""
    statistics: ExpectedStatistics
    sha256: str = ""
    """Checksum of the file; empty where no one file is the known one."""
    embedded: str = ""
    """Name of the file in the package, where the package carries the data set."""
    recipe: str = ""
    """How the file is made, where nobody publishes it as it is read."""
    groups: str = ""
    """Array of the file that says which rows belong together."""
    options: tuple[tuple[str, Any], ...] = ()
    """What the reader of the file's format must be told."""
    downloads: tuple[Original, ...] = ()
    paper: PaperRow | None = None


@cache
def _catalog() -> dict[str, CatalogEntry]:
    text = (resources.files("cgmvae.data") / "catalog.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text, parse_float=Decimal)
    return {name: _entry(name, table) for name, table in tables.items()}


def _entry(name: str, table: dict[str, Any]) -> CatalogEntry:
    fields = {
        **table,
        "statistics": ExpectedStatistics(**table["statistics"]),
        "options": tuple(table.get("options", {}).items()),
        "downloads": tuple(Original(**original) for original in table.get("downloads", ())),
        "paper": PaperRow(**table["paper"]) if "paper" in table else None,
    }
    return CatalogEntry(name=name, **fields)


def entries() -> dict[str, CatalogEntry]:
    """Return the known data sets by name, those of the paper first."""
    return dict(_catalog())


def find_entry(name: str) -> CatalogEntry:
    """Return the entry of a name; case does not matter, nor whether ``-`` or ``_`` is written."""
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

    It is looked for in the package, in the folder that ``CGMVAE_DATA`` names, and in the cache
    (``CGMVAE_CACHE``, else ``cgmvae`` in ``XDG_CACHE_HOME`` or ``~/.cache``); then its original
    files are fetched into the cache, where its publisher offers them.

    Parameters
    ----------
    name : str
        A name of :func:`entries`, such as ``"yeast"`` or ``"nus-vec"``.
    download : bool
        Whether files may be fetched.
    progress : callable, optional
        Called during a download with the bytes so far and the bytes in all (or None).

    Returns
    -------
    MultiLabelDataset

    Raises
    ------
    InputError
        When the name is not known, the data cannot be had, or it is not what the catalog says.

    Warns
    -----
    UserWarning
        When the file is not the very one that the catalog knows.

    Examples
    --------
    >>> yeast = load_dataset("yeast")
    >>> yeast.X.shape, yeast.Y.shape
    ((2417, 103), (2417, 14))
    >>> round(yeast.describe().mean_labels_per_sample, 2)
    4.24
    """
    entry = find_entry(name)
    place, files = next(_places(entry), ("", ()))
    if not files:
        if not (download and entry.downloads):
            raise _unreachable(entry, "is not here")
        files = _fetch(entry, progress)
    if place != "embedded":
        _warn_unless_known(entry, files)
    dataset = replace(_read(entry, files), name=entry.name)
    _check_statistics(entry, dataset, files[0])
    return dataset


def locate(name: str) -> Path | None:
    """Return the file that :func:`load_dataset` would read first, or None if there is none yet."""
    return next((files[0] for _, files in _places(find_entry(name))), None)


def availability(name: str) -> str:
    """Say where a data set is.

    Returns
    -------
    str
        ``embedded`` (in the package), ``here`` (in the folder that ``CGMVAE_DATA`` names),
        ``cached``, ``to download``, or ``by hand`` where the file must be fetched or made.
    """
    entry = find_entry(name)
    place = next((place for place, _ in _places(entry)), None)
    return place or ("to download" if entry.downloads else "by hand")


def cache_folder() -> Path:
    """Return the folder that downloads go to; it need not exist yet."""
    if folder := os.environ.get("CGMVAE_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cgmvae"


def _places(entry: CatalogEntry) -> Iterator[tuple[str, tuple[Path, ...]]]:
    """Yield where the data set is, best place first, with the files to read there."""
    if entry.embedded:
        path = resources.files("cgmvae.data") / "embedded" / entry.embedded
        yield "embedded", (Path(str(path)),)
    data_folder = os.environ.get("CGMVAE_DATA")
    folders = {"here": Path(data_folder) if data_folder else None, "cached": cache_folder()}
    for place, folder in folders.items():
        if folder is None:
            continue
        own = folder / entry.name / f"{entry.name}.npz"
        for files in ((folder / entry.file,), (own,), _originals(entry, folder)):
            if files and all(path.is_file() for path in files):
                yield place, files


def _originals(entry: CatalogEntry, folder: Path) -> tuple[Path, ...]:
    return tuple(folder / entry.name / original.file_name for original in entry.downloads)


def _fetch(entry: CatalogEntry, progress: Progress | None) -> tuple[Path, ...]:
    files = _originals(entry, cache_folder())
    try:
        files[0].parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unreachable(entry, f"cannot be stored ({error})") from error
    for path, original in zip(files, entry.downloads, strict=True):
        if path.is_file():
            continue
        try:
            download(original.address, path, sha256=original.sha256, progress=progress)
        except InputError as error:
            problem = str(error).partition("; ")[0]
            raise _unreachable(entry, f"is not here, and {problem}") from error
    return files


def _unreachable(entry: CatalogEntry, problem: str) -> InputError:
    folder = os.environ.get("CGMVAE_DATA") or "not set now"
    originals = " and ".join(str(path) for path in _originals(entry, Path()))
    wanted = f"{entry.file}, or {originals}," if originals else entry.file
    how = "; 'cgmvae data list --json' tells how it is made" if entry.recipe else ""
    return InputError(
        f"The data set {entry.name!r} {problem}; put {wanted} (from {entry.source}{how}) into the "
        f"folder that CGMVAE_DATA names ({folder}) or into {cache_folder()}."
    )


def _read(entry: CatalogEntry, files: tuple[Path, ...]) -> MultiLabelDataset:
    if files[0].suffix == ".npz":
        groups = {"groups": entry.groups} if entry.groups else {}
        return readers.read(files[0], **groups)
    if files[0].name in {original.file_name for original in entry.downloads}:
        return _read_originals(entry, files)
    return readers.read(files[0], **dict(entry.options))


def _read_originals(entry: CatalogEntry, files: tuple[Path, ...]) -> MultiLabelDataset:
    """Read the one data file, or the train file and the test file one after the other."""
    by_role = {original.role: path for original, path in zip(entry.downloads, files, strict=True)}
    xml: dict[str, Any] = {"xml": by_role["labels"]} if "labels" in by_role else {}
    if "data" in by_role:
        return readers.read(by_role["data"], **xml)
    return _joined(readers.read(by_role["train"], **xml), readers.read(by_role["test"], **xml))


def _joined(train: MultiLabelDataset, test: MultiLabelDataset) -> MultiLabelDataset:
    for names in ("feature_names", "label_names"):
        if getattr(train, names) != getattr(test, names):
            raise InputError(
                "The train file and the test file have different columns; fetch both again."
            )
    codes = np.array([TRAIN, TEST], dtype=np.uint8)
    Y, unknown = split_unknown(stacked([train.targets(), test.targets()]))
    return replace(
        train,
        X=stacked([train.X, test.X]),
        Y=Y,
        unknown=unknown,
        official_split=np.repeat(codes, [train.n_samples, test.n_samples]),
    )


def _warn_unless_known(entry: CatalogEntry, files: tuple[Path, ...]) -> None:
    known = {original.file_name: original.sha256 for original in entry.downloads}
    known[Path(entry.file).name] = entry.sha256
    for path in files:
        expected = known.get(path.name) or recorded_checksum(path)
        if expected and checksum_of(path) != expected:
            warnings.warn(
                f"{path} is not the file that the catalog knows as {entry.name!r} (its checksum "
                "differs), so results may not compare with those of others.",
                UserWarning,
                stacklevel=3,
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
            f"{cardinality:.6f} labels a row where the catalog says {expected.cardinality}"
        )
    if differences:
        raise InputError(
            f"{path} is not the data set {entry.name!r}: it has {', '.join(differences)}; "
            "fetch or make the file again, or read it as a file of your own."
        )
