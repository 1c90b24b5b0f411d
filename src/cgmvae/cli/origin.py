"""Where a model comes from: written into its file by ``fit`` and ``search``, read by ``report``."""

from __future__ import annotations

import importlib.metadata
import inspect
import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from cgmvae import __version__
from cgmvae.cli.sources import Source
from cgmvae.data import MultiLabelDataset, make_split
from cgmvae.data.splits import Split

#: The packages whose versions can change what a training gives.
_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn")

_PARTS = ("train", "validation", "test")

#: What the parts of a record are made of.
_DATA = {
    "source": str,
    "format": str | None,
    "options": dict,
    "name": str,
    "n_samples": int,
    "n_features": int,
    "n_labels": int,
    "n_positive": int,
}
_SPLIT = {
    "kind": str,
    "seed": int,
    "fractions": list,
    "train_fraction": float | int,
    "drop_unlabelled": bool,
    "rows": dict.fromkeys(_PARTS, int),
}
_RECORD = {
    "data": _DATA,
    "split": dict | None,
    "command": str,
    "versions": dict,
    "date": str,
    "seconds": float | int | None,
}


def origin_record(
    source: Source,
    dataset: MultiLabelDataset,
    split: Split | None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Return what leads from the data to a model again, as JSON can hold it.

    Parameters
    ----------
    source : Source
        As it was named on the command line.
    dataset : MultiLabelDataset
        What was read from it.
    split : Split, optional
        Made by :func:`~cgmvae.data.make_split` with its defaults; None where all rows were used.
    seconds : float, optional
        How long the training took, where all of it was in this run.
    """
    return {
        "data": {
            "source": source.name,
            "format": source.format,
            "options": dict(source.options),
            "name": dataset.name,
            **_shape(dataset),
        },
        "split": None if split is None else _describe_split(split),
        "command": shlex.join(["cgmvae", *sys.argv[1:]]),
        "versions": _versions(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "seconds": None if seconds is None else round(seconds, 1),
    }


def known_origin(origin: Any) -> Mapping[str, Any] | None:
    """Return the record of :func:`origin_record`; None for any other, as a stranger may write."""
    if not _has_shape(origin, _RECORD):
        return None
    return origin if origin["split"] is None or _has_shape(origin["split"], _SPLIT) else None


def _has_shape(value: Any, shape: Any) -> bool:
    if not isinstance(shape, dict):
        return isinstance(value, shape)
    if not isinstance(value, dict):
        return False
    return all(name in value and _has_shape(value[name], shape[name]) for name in shape)


def recorded_source(origin: Mapping[str, Any]) -> Source:
    """Return the data that a model was fitted on, as it was named then."""
    data = origin["data"]
    return Source(data["source"], data["format"], dict(data["options"]))


def same_data(origin: Mapping[str, Any], dataset: MultiLabelDataset) -> bool:
    """Tell whether a data set has the size and the labels of the one that was recorded."""
    return all(origin["data"].get(name) == value for name, value in _shape(dataset).items())


def recorded_split(origin: Mapping[str, Any], dataset: MultiLabelDataset) -> Split:
    """Make the recorded split of the data again."""
    split = origin["split"]
    return make_split(
        dataset,
        split["kind"],
        seed=split["seed"],
        fractions=tuple(split["fractions"]),
        train_fraction=split["train_fraction"],
        drop_unlabelled=split["drop_unlabelled"],
    )


def _describe_split(split: Split) -> dict[str, Any]:
    parameters = inspect.signature(make_split).parameters
    return {
        "kind": split.kind,
        "seed": split.seed,
        "fractions": list(parameters["fractions"].default),
        "train_fraction": split.train_fraction,
        "drop_unlabelled": parameters["drop_unlabelled"].default,
        "rows": {part: len(getattr(split, part)) for part in _PARTS},
    }


def _shape(dataset: MultiLabelDataset) -> dict[str, int]:
    return {
        "n_samples": dataset.n_samples,
        "n_features": dataset.n_features,
        "n_labels": dataset.n_labels,
        "n_positive": int(dataset.Y.sum(dtype=np.int64)),
    }


def _versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {"cgmvae": __version__, "python": platform.python_version(), **found}
