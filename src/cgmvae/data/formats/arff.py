"""ARFF in the dialects of Mulan (label names in an XML file) and MEKA (``-C`` in the relation).

The header is read by :mod:`cgmvae.data.formats.arff_header`, the labels are chosen by
:mod:`cgmvae.data.formats.arff_labels`, the rows are read by :mod:`cgmvae.data.formats.arff_rows`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import TEST, TRAIN, Matrix, MultiLabelDataset, split_unknown
from cgmvae.data.files import atomic_path, create_binary, data_name, open_text
from cgmvae.data.formats.arff_header import (
    Attribute,
    Header,
    error_at,
    quoted,
    read_header,
    without_options,
)
from cgmvae.data.formats.arff_labels import label_columns, write_label_names, xml_path
from cgmvae.data.formats.arff_rows import Rows, read_rows
from cgmvae.data.formats.conventions import (
    labels_as_stored,
    number_texts,
)
from cgmvae.errors import InputError

#: Rows that are turned into text at once.
_BATCH = 1024

#: Characters that XML cannot hold, and halves of surrogate pairs, which UTF-8 cannot.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def read(
    path: str | os.PathLike[str],
    *,
    labels: Sequence[str] | None = None,
    label_count: int | None = None,
    xml: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> MultiLabelDataset:
    """Read an ARFF file with dense, sparse or mixed rows.

    Numeric attributes, nominal ones whose values are all numbers, and the pairs yes/no,
    true/false, y/n and t/f (as 1/0) become one column. Any other nominal feature becomes one 0/1
    column for each value, named ``attribute=value``. A value that a sparse row leaves out is 0,
    or the first value of a nominal attribute. ``?`` is NaN in a feature (in each of its columns)
    and unknown in a label.

    The labels are those of the option given (at most one); else of ``-C n`` in the relation's
    name; else of an XML file beside: same name, or that name without ``-train`` or ``-test``.
    They always stand in the order of the ARFF file's attributes.

    Parameters
    ----------
    path : path
        The file, possibly compressed with gzip or bzip2.
    labels : sequence of str, optional
        The names of the label attributes.
    label_count : int, optional
        As in MEKA: the first n attributes are labels, or the last n when it is -n.
    xml : path, optional
        Mulan's XML file of label names; nested labels count like the others.
    name : str, optional
        The data set's name; by default the file's.

    Returns
    -------
    MultiLabelDataset
        X float32, CSR when any row of the file is sparse. Y dense, or CSR when X is and there are
        more than :data:`~cgmvae.data.formats.conventions.DENSE_LABELS_LIMIT` labels.
        ``-split-number k`` in the relation's name makes the first k rows the official training
        rows and the others the test rows.
    """
    path = Path(path)
    with open_text(path) as text:
        header = read_header(text, path)
        chosen = label_columns(header, path, labels=labels, label_count=label_count, xml=xml)
        others = sorted(set(range(len(header.attributes))).difference(chosen))
        _check_types(header, set(chosen), path)
        rows = read_rows(text, header, path)
    X, feature_names = _features(rows.values, others, header.attributes)
    Y, unknown = _labels(rows, chosen, header, path)
    return MultiLabelDataset(
        X,
        Y,
        label_names=[header.names[column] for column in chosen],
        feature_names=feature_names,
        unknown=unknown,
        official_split=_official_split(header, len(rows.lines), path),
        name=name or data_name(path),
    )


def write(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set in Mulan's form: an ARFF file and, beside it, an XML file of label names.

    Features come first and are numeric, labels are ``{0,1}``, ``?`` stands for what is missing
    or unknown; rows are sparse when X is. Every float32 reads back as it was. Groups and the
    official split have no place in this form and are left out. When writing fails, neither file
    is left behind.
    """
    path = Path(path)
    for name in (dataset.name, *dataset.feature_names, *dataset.label_names):
        if _UNWRITABLE.search(name):
            raise InputError(f"The name {name!r} holds a character that XML cannot; rename it.")
    both = set(dataset.feature_names).intersection(dataset.label_names)
    if both:
        raise InputError(
            f"{min(both)!r} names a feature and a label; ARFF needs one of them renamed."
        )
    with atomic_path(path) as arff, atomic_path(xml_path(path)) as xml:
        write_label_names(dataset.label_names, xml)
        with create_binary(arff) as file:
            file.writelines(map(str.encode, chain(_header_texts(dataset), _row_texts(dataset))))


def _check_types(header: Header, labels: set[int], path: Path) -> None:
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


def _features(
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


def _labels(
    rows: Rows, columns: list[int], header: Header, path: Path
) -> tuple[Matrix, Matrix | None]:
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


def _official_split(header: Header, n_samples: int, path: Path) -> NDArray[np.uint8] | None:
    n_train = header.option("split-number")
    if n_train is None:
        return None
    if not 1 <= n_train <= n_samples:
        raise InputError(
            f"{path} states -split-number {n_train} but has {n_samples:,} rows; "
            "fetch it again, or remove that option from the relation's name."
        )
    return np.where(np.arange(n_samples) < n_train, TRAIN, TEST).astype(np.uint8)


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
