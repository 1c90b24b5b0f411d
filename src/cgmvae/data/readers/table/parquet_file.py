"""What a Parquet file says about itself: how large it is and, where it is ours, its labels."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any, get_args

from cgmvae.data import files
from cgmvae.data.columns import Columns
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.kinds import Kind
from cgmvae.data.readers.table.arrow import GROUP_COLUMN
from cgmvae.data.readers.table.columns import TableOptions
from cgmvae.errors import InputError

#: Where a Parquet file of ours keeps the names of its label columns, as a JSON list, and the name
#: of its group column, where it has one; and what its features hold, where not all are numbers.
LABELS_KEY, GROUPS_KEY, KINDS_KEY = b"cgmvae.labels", b"cgmvae.groups", b"cgmvae.kinds"

#: The fewest bytes that a cell of a Parquet file takes once it is read.
_CELL_BYTES = 4


def metadata_of(dataset: MultiLabelDataset) -> dict[bytes, str]:
    """Return what a file of ours says about its columns."""
    metadata = {LABELS_KEY: json.dumps(dataset.label_names)}
    if dataset.groups is not None:
        metadata[GROUPS_KEY] = GROUP_COLUMN
    if isinstance(dataset.X, Columns):
        metadata[KINDS_KEY] = json.dumps(dataset.X.by_name())
    return metadata


def completed(
    options: TableOptions, stored: dict[bytes, bytes], path: os.PathLike[str]
) -> TableOptions:
    """Add what a Parquet file of ours says about its own columns."""
    if options.kinds is None and KINDS_KEY in stored:
        options = replace(options, kinds=_stored_kinds(stored, path))
    if options.names_labels() or LABELS_KEY not in stored:
        return options
    labels = _parsed(stored[LABELS_KEY])
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError(f"{path} has damaged stored names of its labels; name them with labels.")
    return replace(
        options,
        labels=labels,
        blank_labels=options.blank_labels or "unknown",
        groups=options.groups or own_groups(stored),
    )


def own_groups(stored: dict[bytes, bytes]) -> str | None:
    """Return the name of the group column of a file of ours; None where it has none."""
    name = stored.get(GROUPS_KEY)
    return None if name is None else name.decode(errors="replace")


def _parsed(text: bytes) -> Any:
    """Return the values of a JSON text; None where it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _stored_kinds(stored: dict[bytes, bytes], path: os.PathLike[str]) -> dict[str, Kind]:
    kinds = _parsed(stored[KINDS_KEY])
    if not isinstance(kinds, dict) or not all(kind in get_args(Kind) for kind in kinds.values()):
        raise InputError(f"{path} has damaged stored kinds of its columns; write it again.")
    return kinds


def check_size(path: os.PathLike[str], metadata: Any) -> None:
    """Refuse a file that would take more memory than is accepted, before it is read."""
    n_bytes = unpacked_bytes(metadata)
    if n_bytes > files.UNPACKED_LIMIT:
        raise InputError(
            f"{path} unpacks to {n_bytes:,} bytes, more than the {files.UNPACKED_LIMIT:,} that are "
            "accepted; unpack it with 'cgmvae data convert' to a folder *.mapped, and use that."
        )


def unpacked_bytes(metadata: Any) -> int:
    """Return how many bytes a file takes at least once it is read, by its own statement."""
    stated = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return int(max(stated, metadata.num_rows * metadata.num_columns * _CELL_BYTES))
