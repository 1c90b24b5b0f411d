"""NumPy archives: the library's own format, which keeps every field of a data set exactly.

An archive holds ``X`` and ``Y``, each either dense or as the four arrays of a CSR matrix
(``X_data``, ``X_indices``, ``X_indptr``, ``X_shape``); an unknown label is 255. The keys
``label_names``, ``feature_names``, ``group`` and ``official_split`` are optional; others are
ignored. Arrays are loaded with mistrust, in :mod:`cgmvae.data.readers.archive`.
"""

from __future__ import annotations

import os
import zipfile
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data import files
from cgmvae.data.dataset import Matrix, MultiLabelDataset, separate_unknown
from cgmvae.data.readers.archive import CSR_PARTS, Archive
from cgmvae.data.readers.conventions import refuse_columns
from cgmvae.errors import InputError

#: The value of a label that nobody knows.
UNKNOWN = 255

#: The earliest time that a zip file can state: the same data set gives the same bytes.
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)


def read(
    path: str | os.PathLike[str], *, groups: str = "group", name: str | None = None
) -> MultiLabelDataset:
    """Read a data set from an ``.npz`` archive.

    Parameters
    ----------
    path : path
        The archive.
    groups : str, default="group"
        The key of the groups, (n_samples,). Where ``"group"`` is absent there are no groups;
        any other key must be there.
    name : str, optional
        Name of the data set; by default that of the file.

    Examples
    --------
    >>> import tempfile
    >>> data = MultiLabelDataset([[0.5], [2.0]], [[1, 0], [1, 1]], label_names=["owl", "hawk"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(data, f"{folder}/birds.npz")
    ...     read(f"{folder}/birds.npz").label_names
    ('owl', 'hawk')
    """
    path = files.check_file(path)
    with Archive(path) as archive:
        if groups != "group" and groups not in archive:
            raise InputError(f"{path} has no array {groups!r} to take the groups from.")
        labels, unknown = _known_labels(archive.matrix("Y"))
        return MultiLabelDataset(
            X=archive.matrix("X"),
            Y=labels,
            unknown=unknown,
            label_names=archive.names("label_names"),
            feature_names=archive.names("feature_names"),
            groups=archive.array(groups) if groups in archive else None,
            official_split=archive.array("official_split") if "official_split" in archive else None,
            name=name or files.data_name(path),
        )


def write(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set to a compressed ``.npz`` archive; the same data gives the same bytes."""
    refuse_columns(dataset, "npz")
    files.refuse_packed(path, "npz")
    arrays = {
        **_parts("X", dataset.X),
        **_parts("Y", _coded_labels(dataset)),
        "label_names": _name_array(dataset.label_names),
        "feature_names": _name_array(dataset.feature_names),
    }
    if dataset.groups is not None:
        arrays["group"] = _plain(dataset.groups)
    if dataset.official_split is not None:
        arrays["official_split"] = dataset.official_split
    with files.atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for key, array in arrays.items():
            member = zipfile.ZipInfo(f"{key}.npy", _TIMESTAMP)
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _known_labels(Y: Matrix) -> tuple[Matrix, Matrix | None]:
    """Separate labels with 255 for unknown into 0/1 labels and the mask of the unknown ones."""
    return separate_unknown(Y, (Y.data if sp.issparse(Y) else Y) == UNKNOWN)


def _coded_labels(dataset: MultiLabelDataset) -> Matrix:
    if dataset.unknown is None:
        return dataset.Y
    if sp.issparse(dataset.Y):
        return sp.csr_array(dataset.Y + dataset.unknown.astype(np.uint8) * np.uint8(UNKNOWN))
    return np.where(np.asarray(dataset.unknown), np.uint8(UNKNOWN), dataset.Y)


def _parts(key: str, matrix: Matrix) -> dict[str, NDArray[Any]]:
    if not sp.issparse(matrix):
        return {key: matrix}
    values: tuple[NDArray[Any], ...]
    values = (matrix.data, matrix.indices, matrix.indptr, np.array(matrix.shape, dtype=np.int64))
    return {f"{key}_{part}": value for part, value in zip(CSR_PARTS, values, strict=True)}


def _name_array(names: Any) -> NDArray[Any]:
    array = np.array(names, dtype=np.str_)
    if array.tolist() != list(names):
        raise InputError("A name ends in the character NUL, which npz cannot keep; rename it.")
    return array


def _plain(groups: NDArray[Any]) -> NDArray[Any]:
    if groups.dtype != object:
        return groups
    plain = np.array(groups.tolist())
    if plain.dtype == object or plain.tolist() != groups.tolist():
        raise InputError("The groups are Python objects of several kinds; make them all text.")
    return plain
