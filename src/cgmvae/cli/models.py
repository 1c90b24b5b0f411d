"""Models that commands make, load and save, and where each model comes from.

``fit`` and ``search`` store the provenance of a model in its file, the *origin*: which data, which
split, which command and which versions. ``describe`` prints it, and ``report`` reads the data and
reproduces the split from it.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import platform
import re
import shlex
import sys
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from cgmvae import __version__
from cgmvae.cli import console
from cgmvae.cli.arguments import (
    COLUMN_OPTIONS,
    Source,
    flag_of,
    is_reading_option,
    parse_settings,
)
from cgmvae.data import Columns, MultiLabelDataset, make_split
from cgmvae.data.files import is_unicode
from cgmvae.data.readers import svmlight
from cgmvae.data.readers.options import LABEL_OPTIONS
from cgmvae.data.splits import Split, positive_cells
from cgmvae.declared import fits
from cgmvae.errors import InputError, listed
from cgmvae.evaluation import METRIC_TITLES

#: The form of a device's name; whether it can be used, torch knows.
_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]+)?")

#: Number of categories that a warning names.
_NAMED = 5

#: From which distance to the range of its column, as a share of the range's width, a value is far
#: outside, and which share of such rows is usual between sites of the same survey.
FAR_OUTSIDE, USUAL_SHARE = 0.25, 0.01

#: Singular and plural of each column type.
_COLUMN_TYPES = {
    "number": ("number", "numbers"),
    "category": ("category", "categories"),
    "date": ("date", "dates"),
    "text": ("text column", "text columns"),
}


def make_model(
    method: str,
    parameters: Mapping[str, Any],
    settings: Sequence[str] = (),
    *,
    keep_training_rows: bool = True,
) -> Any:
    """Return an unfitted model of a method; ``settings`` are further ``NAME=VALUE``.

    Parameters that are None keep their defaults; any other that the method lacks is rejected. In a
    blend, what all methods have is set for the blend, and anything else for its C-GMVAE.
    """
    from cgmvae.methods import find_method

    found = find_method(method)
    given = {name: value for name, value in parameters.items() if value is not None}
    device = given.get("device", "auto")
    if not _DEVICE.fullmatch(device):  # before torch is imported to say the same
        raise InputError(f"There is no device {device!r}; use auto, cpu or cuda.")
    from cgmvae.methods import BlendClassifier, CGMVAEClassifier, MultiLabelClassifier
    from cgmvae.training.device import find_device

    find_device(device)
    if found.estimator is BlendClassifier:
        shared = {field.name for field in dataclasses.fields(MultiLabelClassifier)}
        own = {name: given.pop(name) for name in shared & given.keys()}
        network = _configured(CGMVAEClassifier(), "C-GMVAE", given, settings)
        return BlendClassifier(auto_network=network, keep_training_rows=keep_training_rows, **own)
    if found.keeps_rows and not keep_training_rows:
        raise InputError(f"{found.title} keeps training rows; choose a method that keeps none.")
    return _configured(found.estimator(), found.title, given, settings)


def _configured(model: Any, title: str, given: Mapping[str, Any], settings: Sequence[str]) -> Any:
    """Return a model with parameters, and settings that were written ``NAME=VALUE``."""
    if unknown := [name for name in given if name not in model.get_params()]:
        raise InputError(f"{flag_of(unknown[0])} does not apply to {title}; leave it out.")
    read = parse_settings(settings, type(model))
    return model.set_params(**given, **model.as_parameters(read))


def trained_in_epochs(model: Any) -> Any:
    """Return the part of a model, not fitted, whose training takes epochs; None if none does."""
    part = getattr(model, "auto_network", model)
    return part if "checkpoint" in part.get_params() else None


def load_model(path: str) -> tuple[Any, tuple[str, ...] | None]:
    """Return a model and the names of its columns, by which the commands match them."""
    from cgmvae.methods import load

    model = load(path)
    # They pass arrays, about which scikit-learn would warn if the model was fitted on a data frame.
    model.__dict__.pop("feature_names_in_", None)
    return model, model.input_names_


def save_model(model: Any, path: str) -> None:
    """Save a model, and delete its training checkpoint."""
    from cgmvae.training.checkpoint import Checkpoint

    model.save(path)
    Checkpoint(f"{path}.checkpoint").remove()


def match_features(
    found: Sequence[str], wanted: Sequence[str] | None, n_features: int
) -> NDArray[np.int64]:
    """Return the index of each of a model's features among the columns of the data, (n_features,).

    If the names ``wanted`` by the model are not known, the columns are used in order. A column that
    the model does not know causes a warning.
    """
    if wanted is None:
        if len(found) != n_features:
            raise InputError(
                f"The model takes {n_features:,} feature columns, whose names it does not know, "
                f"but the data has {len(found):,}; give the columns that it was fitted with."
            )
        return np.arange(n_features)
    indices = {name: index for index, name in enumerate(found)}
    if missing := [name for name in wanted if name not in indices]:
        raise InputError(
            f"The data lacks {len(missing):,} of the model's {n_features:,} feature columns: "
            f"{listed(missing)}; add them under these names."
        )
    known = set(wanted)
    if extra := [name for name in found if name not in known]:
        console.print_warning(f"Columns that the model does not know are ignored: {listed(extra)}.")
    return np.array([indices[name] for name in wanted], np.int64)


class Novelties:
    """What no training row of a model had, counted over blocks of rows.

    Categories, and numbers far outside the range of their column.
    """

    def __init__(self, model: Any) -> None:
        self._preparation, self._ranges = model.pipeline_.columns, model.pipeline_.ranges
        self._names = model.input_names_ or model.prepared_names()
        self._categories: dict[str, Counter[str]] = {}
        self._n_rows = self._n_outside = 0
        self._furthest = (FAR_OUTSIDE, 0, 0.0)

    def count(self, X: Any) -> None:
        """Count what is new in some rows."""
        if self._preparation is not None and isinstance(X, Columns):
            for column, counts in self._preparation.unseen(X).items():
                self._categories.setdefault(column, Counter()).update(counts)
        if self._ranges is not None:
            excess = self._ranges.excess(X)
            self._n_rows += len(excess)
            self._n_outside += int((excess.max(axis=1) > FAR_OUTSIDE).sum())
            row, place = divmod(int(np.argmax(excess)), excess.shape[1])
            if excess[row, place] > self._furthest[0]:
                value = X.values[place][row] if isinstance(X, Columns) else X[row, place]
                self._furthest = float(excess[row, place]), place, float(value)

    def warn(self) -> None:
        """Print a warning per column of new categories, and one of rows outside the ranges."""
        for column, counts in self._categories.items():
            shown = ", ".join(f"{name!r} ({n:,})" for name, n in counts.most_common(_NAMED))
            more = f" and {len(counts) - _NAMED:,} more" if len(counts) > _NAMED else ""
            console.print_warning(
                f"The column {column!r} has categories that the model was not fitted with, by "
                f"number of rows: {shown}{more}; it has learned nothing about them, so check their "
                "spelling."
            )
        if self._n_outside > USUAL_SHARE * self._n_rows:
            _, place, value = self._furthest
            assert self._ranges is not None
            low, high = self._ranges.bounds[:, place]
            console.print_warning(
                f"{self._n_outside:,} of {self._n_rows:,} rows "
                f"{'lie' if self._n_outside != 1 else 'lies'} outside the training rows by more "
                f"than {FAR_OUTSIDE:.0%} of a column's range, furthest in "
                f"{self._names[place]!r} ({value:g}, where training has {low:g} to {high:g}); "
                "predictions there are extrapolated."
            )


def columns_record(model: Any) -> list[dict[str, Any]] | None:
    """Return the type and preparation of each column, for JSON; None if the data was numeric."""
    if model.pipeline_.columns is None:
        return None
    return [row._asdict() for row in model.pipeline_.columns.describe()]


def columns_text(record: list[dict[str, Any]]) -> str:
    """Return how many columns of each type became how many features."""
    counts = Counter(row["kind"] for row in record)
    types = [
        f"{counts[type_]:,} {singular if counts[type_] == 1 else plural}"
        for type_, (singular, plural) in _COLUMN_TYPES.items()
        if counts[type_]
    ]
    return f"{', '.join(types)}: {sum(row['n_features'] for row in record):,} features."


def expert_record(expert: Any, kept_rows: int) -> dict[str, Any]:
    """Return what an expert of a blend is, how much it counts and how good it is, for JSON."""
    return dataclasses.asdict(expert) | {"training_rows": kept_rows}


def print_experts(experts: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of experts."""
    rows = [
        [
            each["name"],
            each["kind"],
            f"{each['weight']:.2f}" if each["weight"] else "dropped",
            console.metric_text(each["score"]),
            "" if each["gain"] is None else f"{each['gain']:+.3f}",
        ]
        for each in experts
    ]
    console.print_table(
        "Experts of the blend, on training rows that they did not learn from",
        ["name", "expert", "weight", "alone", "adds"],
        rows,
        caption="'alone' is the mean of the five metrics of the expert by itself; 'adds' is how "
        "much of the blend's mean would be lost without it.",
    )


def training_rows_text(n_rows: int, experts: Sequence[Mapping[str, Any]] | None) -> str:
    """Return a sentence on the training rows that a model file contains."""
    kinds = [each["kind"] for each in experts or () if each["training_rows"]]
    of = f" ({', '.join(kinds)})" if kinds else ""
    return f"The file contains {f'{n_rows:,}' if n_rows else 'no'} training rows{of}."


# --- Provenance ---------------------------------------------------------------------------------

#: Packages whose versions can change the result of a training.
_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn")


class _Data(TypedDict):
    source: str
    format: str | None
    options: Mapping[str, Any]
    name: str
    n_samples: int
    n_features: int
    n_labels: int
    n_positive: int
    labels_checksum: int


class _PartSizes(TypedDict):
    train: int
    validation: int
    test: int


class _Split(TypedDict):
    kind: str
    seed: int
    fractions: Sequence[float]
    train_fraction: float
    drop_empty: bool
    rows: _PartSizes


class _Origin(TypedDict):
    """The types of an origin record; a file from a stranger may hold anything in its place."""

    data: _Data
    split: _Split | None
    n_fitted: int
    command: str
    versions: Mapping[str, str]
    date: str
    seconds: float | None


_Metrics = TypedDict("_Metrics", dict.fromkeys(METRIC_TITLES, float | None))  # type: ignore[misc]


def origin_record(
    source: Source,
    dataset: MultiLabelDataset,
    split: Split | None,
    seconds: float | None = None,
    *,
    drop_empty: bool = False,
) -> dict[str, Any]:
    """Return what is needed to reproduce a model, for JSON.

    Parameters
    ----------
    source, dataset
        The data as named on the command line, and what was read from it.
    split : Split, optional
        Made by :func:`~cgmvae.data.make_split` with its defaults but for ``drop_empty``; None if
        all rows were used.
    seconds : float, optional
        Duration of the training, unless an earlier training was resumed.
    """
    made = None
    if split is not None:
        defaults = inspect.signature(make_split).parameters
        made = {
            "kind": split.kind,
            "seed": split.seed,
            "fractions": list(defaults["fractions"].default),
            "train_fraction": split.train_fraction,
            "drop_empty": drop_empty,
            "rows": {part: len(getattr(split, part)) for part in ("train", "validation", "test")},
        }
    return {
        "data": {
            "source": source.name,
            "format": source.format,
            "options": _found_options(source),
            "name": dataset.name,
            **_shape(dataset),
        },
        "split": made,
        "n_fitted": _n_fitted(dataset, split),
        "command": current_command(),
        "versions": {"cgmvae": __version__, "python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in _PACKAGES},
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "seconds": None if seconds is None else round(seconds, 1),
    }


def _n_fitted(dataset: MultiLabelDataset, split: Split | None) -> int:
    """Return how many rows a model is fitted on: those with a label that are not for the test."""
    unknown = dataset.unknown
    if split is not None:
        rows = np.concatenate([split.train, split.validation])
        unknown = None if unknown is None else unknown[rows]
    n_rows = dataset.n_samples if split is None else len(rows)
    if unknown is None:
        return n_rows
    return int((np.asarray(unknown.sum(axis=1)).ravel() < dataset.n_labels).sum())


def _found_options(source: Source) -> dict[str, Any]:
    """Return the reading options that were given, and what a few new rows would not show again."""
    options = dict(source.options)
    if not source.in_catalog and source.reader().name == "svmlight":
        options.setdefault("zero_based", svmlight.is_zero_based(source.name))
    return options


def current_command() -> str:
    """Return the command line of this process, quoted for a shell."""
    return shlex.join(["cgmvae", *sys.argv[1:]])


def valid_origin(origin: Any) -> Mapping[str, Any] | None:
    """Return a record that has the form of :func:`origin_record`, and None for any other."""
    return origin if fits(origin, _Origin) else None


def recorded_source(origin: Mapping[str, Any]) -> Source:
    """Return the data that a model was fitted on, as named at the time."""
    data = origin["data"]
    options = {n: v for n, v in data["options"].items() if is_reading_option(n, v)}
    return Source(data["source"], data["format"], options)


def as_recorded(source: Source, origin: Any) -> Source:
    """Return data that is read as the data of a model's origin was, see :func:`read_like`."""
    origin = valid_origin(origin)
    return source if origin is None else read_like(source, recorded_source(origin))


def read_like(source: Source, recorded: Source) -> Source:
    """Return data that is read as other data was, except for what was given.

    What the file does not have is left out: options of another format, and columns. So are which
    columns are labels, because their names are known, and an encoding if other data is UTF-8.
    """
    if source.in_catalog:
        return source
    if Path(source.name).suffix == Path(recorded.name).suffix:
        source = replace(source, format=source.format or recorded.format)
    accepted = source.reader().options
    options = {name: value for name, value in recorded.options.items() if name in accepted}
    for name in ("labels", "label_prefix", "label_count"):
        options.pop(name, None)
    if "encoding" in options and source.name != recorded.name and is_unicode(source.name):
        del options["encoding"]
    if {*LABEL_OPTIONS} & {*source.options}:
        options = {name: value for name, value in options.items() if name not in LABEL_OPTIONS}
    table = replace(source, options=options | dict(source.options)).table()
    known = set() if table is None else {*table.all_names}
    row, _, label = options.get("long", "").partition(",")
    if row and label not in known:  # the table has one row per identifier now
        options.setdefault("id", row)
    for name in COLUMN_OPTIONS & {*options} if known else ():
        value = options[name]
        if isinstance(value, list):
            options[name] = [column for column in value if column in known]
        elif not {*(value.split(",") if name in ("long", "coordinates") else [value])} <= known:
            del options[name]
    for name, other in (("groups", "coordinates"), ("coordinates", "groups")):
        if name in source.options:
            options.pop(other, None)
    if "coordinates" not in {**options, **source.options}:
        options.pop("block_size", None)
    return replace(source, options=options | dict(source.options))


def source_to_read(model: str, origin: Mapping[str, Any] | None, given: Source | None) -> Source:
    """Return the data to read: what was given, otherwise what the model was fitted on."""
    if given is not None:
        return as_recorded(given, origin)
    if origin is None:
        raise InputError(
            f"{model} does not record which data it was fitted on; name the data after the model."
        )
    stored = recorded_source(origin)
    if not stored.in_catalog and not Path(stored.name).exists():
        raise InputError(
            f"{stored.name}, which {model} was fitted on, no longer exists; name the data after "
            "the model."
        )
    return stored


def same_data(origin: Mapping[str, Any], dataset: MultiLabelDataset) -> bool:
    """Return whether a data set is the recorded one, as far as its rows and their labels tell.

    The same rows in another order, or without the groups that they were split by, are not. Columns
    do not count: one that identifies the rows may have been set aside.
    """
    needed = {"group": dataset.groups, "official": dataset.official_split}
    if origin["split"] is not None and needed.get(origin["split"]["kind"], 0) is None:
        return False
    shape = _shape(dataset)
    return all(origin["data"].get(n) == shape[n] for n in shape if n != "n_features")


def recorded_split(origin: Mapping[str, Any], dataset: MultiLabelDataset) -> Split:
    """Reproduce the recorded split of the data."""
    given = {name: origin["split"][name] for name in _Split.__annotations__ if name != "rows"}
    return make_split(dataset, **given | {"fractions": tuple(given["fractions"])})


def recorded_test_rows(
    origin: Mapping[str, Any] | None, dataset: MultiLabelDataset
) -> NDArray[np.int64] | None:
    """Return the recorded test rows of the data; None if it is other data or has none."""
    if origin is None or origin["split"] is None or not same_data(origin, dataset):
        return None
    return recorded_split(origin, dataset).test


def recorded_metrics(origin: Mapping[str, Any]) -> dict[str, float | None] | None:
    """Return the metrics on the test rows, or out of fold without these; None if not recorded."""
    metrics = origin.get("metrics")
    return metrics if fits(metrics, _Metrics) else None


def _shape(dataset: MultiLabelDataset) -> dict[str, int]:
    return {
        "n_samples": dataset.n_samples,
        "n_features": dataset.n_features,
        "n_labels": dataset.n_labels,
        "n_positive": int(dataset.Y.sum(dtype=np.int64)),
        "labels_checksum": _checksum(dataset),
    }


def _checksum(dataset: MultiLabelDataset) -> int:
    """Return a checksum of which labels are positive in which row."""
    cells = positive_cells(dataset.Y)
    parts = (np.ascontiguousarray(part, "<i8").data for part in (cells.indptr, cells.indices))
    return zlib.crc32(b"".join(parts))
