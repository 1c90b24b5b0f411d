"""The attributes of an ARFF file as the arrays of a data set: features, labels, official split.

:mod:`cgmvae.data.readers.arff.rows` gives one column of numbers for each attribute; here a category
becomes several, and the labels are set apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import TEST, TRAIN, Matrix, split_unknown
from cgmvae.data.readers.arff.header import Attribute, Header, error_at
from cgmvae.data.readers.arff.rows import Rows
from cgmvae.data.readers.conventions import labels_as_stored
from cgmvae.errors import InputError


def check_types(header: Header, labels: set[int], path: Path) -> None:
    """Refuse attributes that are neither numbers nor categories, and labels that are categories."""
    for column, attribute in enumerate(header.attributes):
        if attribute.kind not in ("numeric", "nominal"):
            raise InputError(
                f"The attribute {attribute.name!r} of {path} is of type {attribute.kind}; "
                "drop it, or encode it as numbers."
            )
        if column in labels and attribute.is_category:
            raise InputError(
                f"The label {attribute.name!r} of {path} has the values "
                f"{', '.join(attribute.values[:5])}; a label must be 0 or 1."
            )


def features_of(
    values: Matrix, columns: list[int], attributes: Sequence[Attribute]
) -> tuple[Matrix, list[str]]:
    """Return X (n_samples, n_features) and its names, with categories as 0/1 columns."""
    names = [
        [f"{a.name}={value}" for value in a.values] if a.is_category else [a.name]
        for a in (attributes[column] for column in columns)
    ]
    flat_names = [name for group in names for name in group]
    single = [column for column in columns if not attributes[column].is_category]
    if len(single) == len(columns):
        return values[:, columns], flat_names
    blocks: list[Any] = [values[:, single]]
    owners = list(single)
    for column in columns:
        if attributes[column].is_category:
            blocks.append(_one_hot(values[:, [column]], len(attributes[column].values)))
            owners.extend([column] * len(attributes[column].values))
    X = sp.hstack(blocks, format="csr") if sp.issparse(values) else np.hstack(blocks)
    return X[:, np.argsort(owners, kind="stable")], flat_names


def _one_hot(codes: Any, n_values: int) -> Matrix:
    """Turn codes (n_samples, 1) into 0/1 columns (n_samples, n_values), NaN where missing."""
    is_sparse = sp.issparse(codes)
    dense = codes.toarray() if is_sparse else codes
    columns = (dense == np.arange(n_values)).astype(np.float32)
    columns[np.isnan(dense[:, 0])] = np.nan
    return sp.csr_array(columns) if is_sparse else columns


def labels_of(
    rows: Rows, columns: list[int], header: Header, path: Path
) -> tuple[Matrix, Matrix | None]:
    """Return Y and the mask of its unknown labels, both (n_samples, n_labels)."""
    Y = rows.values[:, columns]
    cells = sp.coo_array(Y)
    odd = np.flatnonzero((cells.data != 1) & ~np.isnan(cells.data))
    if odd.size:
        at = odd[np.argmin(cells.coords[0][odd])]
        label = header.names[columns[cells.coords[1][at]]]
        raise error_at(
            path,
            int(rows.lines[cells.coords[0][at]]),
            f"the label {label!r} is {cells.data[at]:g}, but a label must be 0, 1 or ?; "
            "check which attributes are labels.",
        )
    return split_unknown(labels_as_stored(Y) if sp.issparse(Y) else Y)


def official_split_of(header: Header, n_samples: int, path: Path) -> NDArray[np.uint8] | None:
    """Return the split that ``-split-number`` of the relation states, None where it does not."""
    n_train = header.option("split-number")
    if n_train is None:
        return None
    if not 1 <= n_train <= n_samples:
        raise InputError(
            f"{path} states -split-number {n_train} but has {n_samples:,} rows; "
            "fetch it again, or remove that option from the relation's name."
        )
    return np.where(np.arange(n_samples) < n_train, TRAIN, TEST).astype(np.uint8)
