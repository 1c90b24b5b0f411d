"""A data set as the text of an ARFF file, features first, and the names that it cannot hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.readers.arff.header import quoted, without_options
from cgmvae.data.readers.conventions import number_texts
from cgmvae.errors import InputError

#: Rows that are turned into text at once.
_BATCH = 1024

#: Characters that XML cannot hold, and halves of surrogate pairs, which UTF-8 cannot.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def check_names(dataset: MultiLabelDataset) -> None:
    """Refuse names that ARFF or its XML cannot hold, and one that names two attributes."""
    for name in (dataset.name, *dataset.feature_names, *dataset.label_names):
        if _UNWRITABLE.search(name):
            raise InputError(f"The name {name!r} holds a character that XML cannot; rename it.")
    both = set(dataset.feature_names).intersection(dataset.label_names)
    if both:
        raise InputError(
            f"{min(both)!r} names a feature and a label; ARFF needs one of them renamed."
        )


def texts(dataset: MultiLabelDataset) -> Iterator[str]:
    """Yield the text of the whole file, piece by piece."""
    yield from _header_texts(dataset)
    yield from _row_texts(dataset)


def _header_texts(dataset: MultiLabelDataset) -> Iterator[str]:
    yield f"@relation {quoted(without_options(dataset.name))}\n\n"
    yield from (f"@attribute {quoted(name)} numeric\n" for name in dataset.feature_names)
    yield from (f"@attribute {quoted(name)} {{0,1}}\n" for name in dataset.label_names)
    yield "\n@data\n"


def _row_texts(dataset: MultiLabelDataset) -> Iterator[str]:
    texts = _sparse_texts if sp.issparse(dataset.X) else _dense_texts
    targets = dataset.targets()
    for start in range(0, dataset.n_samples, _BATCH):
        part = slice(start, start + _BATCH)
        yield from texts(dataset.X[part], targets[part])


def _dense_texts(X: Any, targets: Any) -> Iterator[str]:
    targets = targets if isinstance(targets, np.ndarray) else targets.toarray()
    labels = np.where(np.isnan(targets), "?", np.where(targets == 1, "1", "0"))
    for features, row in zip(number_texts(X, "?").tolist(), labels.tolist(), strict=True):
        yield ",".join(features + row) + "\n"


def _sparse_texts(X: Any, targets: Any) -> Iterator[str]:
    table = sp.hstack([X, sp.csr_array(targets)], format="csr")
    table.eliminate_zeros()
    texts = number_texts(table.data, "?")
    is_positive = (table.indices >= X.shape[1]) & ~np.isnan(table.data)
    texts[is_positive] = "1"  # a nominal value must be written as it is declared
    cells = [f"{i} {v}" for i, v in zip(table.indices.tolist(), texts.tolist(), strict=True)]
    for start, stop in pairwise(table.indptr.tolist()):
        yield "{" + ",".join(cells[start:stop]) + "}\n"
