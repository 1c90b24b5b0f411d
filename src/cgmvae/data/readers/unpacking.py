"""Tables that are larger than the memory, unpacked into folders that training can read from.

The labels are read first, and kept; then the features go from the table into the folder of
:mod:`cgmvae.data.readers.mapped`, a block of rows at a time. ``cgmvae data convert`` does so with
CSV and Parquet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np

from cgmvae.data import files
from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.data.kinds import Kind
from cgmvae.data.mapped import BLOCK_BYTES
from cgmvae.data.readers import mapped
from cgmvae.data.readers.blocks import open_blocks
from cgmvae.data.readers.blocks.table import TableBlocks
from cgmvae.data.readers.table import parquet_file
from cgmvae.data.readers.table.cells import dataset_of
from cgmvae.data.readers.table.columns import ColumnRoles, TableOptions, choose_roles
from cgmvae.data.stacked import stacked
from cgmvae.errors import InputError

#: The formats that are unpacked.
TABLES = ("csv", "parquet")


def unpack(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    progress: Callable[[int, float | None], None] = lambda *_: None,
    **options: Any,
) -> MultiLabelDataset:
    """Write a table as a new mapped folder, and return the data set that it holds.

    All features must be numbers. What takes memory are the labels and groups.

    Parameters
    ----------
    path : path
        A CSV or Parquet file.
    target : path
        The folder; when something fails, it is not there.
    format : {"csv", "parquet"}, optional
        By default the file's suffix tells.
    progress : callable
        Told after each block how many rows are written, and what share of the file that is.
    **options
        Those of :func:`cgmvae.data.readers.table.read_csv`.
    """
    blocks = open_blocks(path, format, **options)
    assert isinstance(blocks, TableBlocks)
    told = _table_options(blocks, options)
    roles = choose_roles(blocks.all_names, told)
    _refuse_other_kinds(roles, told)
    place = {name: i for i, name in enumerate(blocks.column_names)}
    places = [place[name] for name in roles.features]
    n_rows = max(1, BLOCK_BYTES // (np.dtype(np.float32).itemsize * len(places)))
    labels = _read_labels(blocks, roles, told, n_rows)
    mapped.write_blocks(
        labels,
        _told(blocks, blocks.read(places, n_rows=n_rows), progress),
        target,
        feature_names=roles.features,
        dtype=np.dtype(np.float32),
    )
    return mapped.read(target)


def _told(
    blocks: TableBlocks, parts: Iterable[Any], progress: Callable[[int, float | None], None]
) -> Iterator[Any]:
    """Pass on the features of the blocks, and tell of each that was taken."""
    n_rows = 0
    for features in parts:
        yield features
        n_rows += features.shape[0]
        progress(n_rows, blocks.share_read())


def _table_options(blocks: TableBlocks, given: dict[str, Any]) -> TableOptions:
    known = {field.name for field in fields(TableOptions)}
    options = TableOptions(**{name: value for name, value in given.items() if name in known})
    kinds: tuple[Kind, ...] = ("text", "category", "date")
    named = {kind: given.get(kind, ()) for kind in kinds}
    options = options.with_kinds(given.get("kinds"), named)
    return parquet_file.completed(options, blocks.stored, blocks.path)


def _refuse_other_kinds(roles: ColumnRoles, options: TableOptions) -> None:
    kinds = {**(options.kinds or {}), **dict(options.named_kinds)}
    for name in roles.features:
        if (kind := kinds.get(name, "number")) != "number":
            raise InputError(
                f"mapped holds numbers only, and the column {name!r} is of the kind {kind}; drop "
                "the column, or leave the table as it is."
            )


def _read_labels(
    blocks: TableBlocks, roles: ColumnRoles, options: TableOptions, n_rows: int
) -> MultiLabelDataset:
    """Return a data set that has all labels and groups, and no features."""
    singles = [name for name in (options.groups, options.label_sets) if name is not None]
    tables = blocks.tables([*roles.labels, *singles], n_rows=n_rows)
    if options.label_sets is not None:  # only all sets together tell which labels there are
        import pyarrow as pa

        tables = iter([pa.concat_tables(tables)])
    no_features = ColumnRoles((), roles.labels)
    parts = [
        dataset_of(
            table,
            no_features,
            options,
            name=files.data_name(blocks.path),
            text_is_parsed=blocks.text_is_parsed,
        )
        for table in tables
    ]
    all_known = all(part.unknown is None for part in parts)
    return replace(
        parts[0],
        X=np.zeros((sum(part.n_samples for part in parts), 0), np.float32),
        Y=stacked([part.Y for part in parts]),
        unknown=None if all_known else stacked([_mask(part) for part in parts]),
        groups=None if options.groups is None else np.concatenate([_groups(p) for p in parts]),
    )


def _mask(part: MultiLabelDataset) -> Matrix:
    return np.zeros(part.Y.shape, bool) if part.unknown is None else part.unknown


def _groups(part: MultiLabelDataset) -> Any:
    assert part.groups is not None
    return part.groups
