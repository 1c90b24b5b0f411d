"""ARFF in the dialects of Mulan (label names in an XML file) and MEKA (``-C`` in the relation).

Reading goes through ``header`` (what is declared), ``labels`` (which attributes are labels),
``rows`` (the numbers) and ``arrays`` (features and labels); writing through ``text`` and
``labels``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.data.files import atomic_paths, create_binary, data_name, open_text
from cgmvae.data.readers.arff.arrays import check_types, features_of, labels_of, official_split_of
from cgmvae.data.readers.arff.header import Header, read_header
from cgmvae.data.readers.arff.labels import label_columns, write_label_names, xml_path
from cgmvae.data.readers.arff.rows import read_rows, rows_in_parts
from cgmvae.data.readers.arff.text import check_names, texts
from cgmvae.data.readers.conventions import refuse_columns

__all__ = ["read", "read_feature_names", "read_parts", "write"]


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
        more than :data:`~cgmvae.data.readers.conventions.DENSE_LABELS_LIMIT` labels.
        ``-split-number k`` in the relation's name makes the first k rows the official training
        rows and the others the test rows.
    """
    path = Path(path)
    with open_text(path) as text:
        header, chosen, others = _roles(text, path, labels, label_count, xml)
        rows = read_rows(text, header, path)
    X, feature_names = features_of(rows.values, others, header.attributes)
    Y, unknown = labels_of(rows, chosen, header, path)
    return MultiLabelDataset(
        X,
        Y,
        label_names=[header.names[column] for column in chosen],
        feature_names=feature_names,
        unknown=unknown,
        official_split=official_split_of(header, len(rows.lines), path),
        name=name or data_name(path),
    )


def read_feature_names(
    path: Path,
    *,
    labels: Sequence[str] | None = None,
    label_count: int | None = None,
    xml: str | os.PathLike[str] | None = None,
) -> list[str]:
    """Return the names of the features that :func:`read` gives, from the header alone."""
    with open_text(path) as text:
        header, _, others = _roles(text, path, labels, label_count, xml)
    no_rows = np.empty((0, len(header.attributes)))
    return features_of(no_rows, others, header.attributes)[1]


def read_parts(
    text: IO[str],
    path: Path,
    *,
    labels: Sequence[str] | None = None,
    label_count: int | None = None,
    xml: str | os.PathLike[str] | None = None,
) -> Iterator[Matrix]:
    """Yield the features that :func:`read` gives, some rows at a time; labels are only checked.

    A part is CSR when any of its own rows is sparse. The text is opened, at its beginning.
    """
    header, chosen, others = _roles(text, path, labels, label_count, xml)
    for rows in rows_in_parts(text, header, path):
        labels_of(rows, chosen, header, path)
        yield features_of(rows.values, others, header.attributes)[0]


def _roles(
    text: IO[str],
    path: Path,
    labels: Sequence[str] | None,
    label_count: int | None,
    xml: str | os.PathLike[str] | None,
) -> tuple[Header, list[int], list[int]]:
    """Read the header; return it, and the places of the labels and of the features."""
    header = read_header(text, path)
    chosen = label_columns(header, path, labels=labels, label_count=label_count, xml=xml)
    check_types(header, set(chosen), path)
    return header, chosen, sorted(set(range(len(header.attributes))).difference(chosen))


def write(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set in Mulan's form: an ARFF file and, beside it, an XML file of label names.

    Features come first and are numeric, labels are ``{0,1}``, ``?`` stands for what is missing
    or unknown; rows are sparse when X is. Every float32 reads back as it was. Groups and the
    official split have no place in this form and are left out. When writing fails, both files
    are left as they were.
    """
    refuse_columns(dataset, "arff")
    path = Path(path)
    check_names(dataset)
    with atomic_paths(xml_path(path), path) as (xml, arff):
        write_label_names(dataset.label_names, xml)
        with create_binary(arff) as file:
            file.writelines(map(str.encode, texts(dataset)))
