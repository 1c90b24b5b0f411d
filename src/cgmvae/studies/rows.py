"""The rows of a run: its data set, its split, and the training labels that it may know."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cgmvae.data import MultiLabelDataset, load_dataset, make_split
from cgmvae.data.mapped import dense
from cgmvae.data.splits import Split
from cgmvae.errors import InputError
from cgmvae.studies.spec import RunSpec


class Parts(NamedTuple):
    """The rows of one run."""

    split: Split
    train: MultiLabelDataset
    validation: MultiLabelDataset
    test: MultiLabelDataset


@lru_cache(maxsize=2)
def _dataset(name: str) -> MultiLabelDataset:
    return load_dataset(name, download=False)


def load_parts(spec: RunSpec) -> Parts:
    """Return the rows of a run; labels are hidden in the training rows only.

    Rows without a positive label are dropped, as in the paper.
    """
    data = _dataset(spec.data)
    kind = "random" if data.groups is None else "group"
    kind = "official" if spec.official else kind
    share = spec.train_fraction
    split = make_split(data, kind, seed=spec.split, train_fraction=share, drop_empty=True)
    train, validation, test = (
        data.rows(rows) for rows in (split.train, split.validation, split.test)
    )
    if spec.hidden_labels:
        train = hide_labels(train, spec.hidden_labels, spec.split)
    return Parts(split, train, validation, test)


def hide_labels(rows: MultiLabelDataset, fraction: float, seed: int) -> MultiLabelDataset:
    """Return the rows with a random fraction of their labels made unknown."""
    if not 0 <= fraction < 1:
        raise InputError(f"hidden_labels is {fraction}; it must be at least 0 and below 1.")
    hidden = np.random.default_rng(seed).random(rows.Y.shape) < fraction
    if rows.unknown is not None:
        hidden = hidden | dense(rows.unknown)
    labels = np.where(hidden, 0, dense(rows.Y)).astype(np.uint8)
    return replace(rows, Y=labels, unknown=hidden)
