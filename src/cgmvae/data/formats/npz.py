"""NumPy archives: the library's own format, which keeps every field of a data set exactly.

An archive holds ``X`` and ``Y``, each either dense or as the four arrays of a CSR matrix
(``X_data``, ``X_indices``, ``X_indptr``, ``X_shape``); an unknown label is 255. The keys
``label_names``, ``feature_names``, ``group`` and ``official_split`` are optional; others are
ignored. Pickled objects are never loaded, and no array is loaded before its header has been
compared with what the archive holds.
"""

from __future__ import annotations

import lzma
import os
import struct
import tokenize
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data import files
from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.data.formats.conventions import COLUMNS_LIMIT
from cgmvae.errors import InputError

#: The value of a label that nobody knows.
UNKNOWN = 255

_CSR_PARTS = ("data", "indices", "indptr", "shape")

#: What zipfile and NumPy raise at a damaged file; a RuntimeError is a password, or a compression
#: or a version that they do not know.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    EOFError,
    SyntaxError,
    TypeError,
    OSError,
    ValueError,
    RuntimeError,
)

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
    with _Archive(path) as archive:
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


class _Archive:
    """The arrays of an ``.npz`` file, each checked before it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except _DAMAGE as error:
            raise _not_an_archive(path) from error
        self._members = {
            info.filename.removesuffix(".npy"): info
            for info in self._zip.infolist()
            if info.filename.endswith(".npy")
        }
        self._loaded_bytes = 0

    def __enter__(self) -> _Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def array(self, key: str) -> NDArray[Any]:
        """Load one array."""
        info = self._members[key]
        self._loaded_bytes += info.file_size
        if self._loaded_bytes > files.UNPACKED_LIMIT:
            raise InputError(
                f"{self.path} unpacks to more than {files.UNPACKED_LIMIT:,} bytes, which is not "
                "accepted; divide the data into several files."
            )
        try:
            with self._zip.open(info) as file:
                self._check_header(key, file, info.file_size)
            with self._zip.open(info) as file:
                return np.lib.format.read_array(file, allow_pickle=False)
        except InputError:
            raise
        except _DAMAGE as error:
            raise InputError(
                f"The array {key!r} of {self.path} is damaged ({error}); fetch the file again."
            ) from error

    def matrix(self, key: str) -> Matrix:
        """Load a dense matrix, or a CSR one from its four parts."""
        if key in self:
            return self.array(key)
        parts = [f"{key}_{part}" for part in _CSR_PARTS]
        missing = [part for part in parts if part not in self]
        if len(missing) == len(parts):
            raise InputError(
                f"{self.path} has no array {key!r} and no sparse {', '.join(parts)}; it must hold "
                "the features as X and the labels as Y."
            )
        if missing:
            raise InputError(f"{self.path} has a sparse {key} without {', '.join(missing)}.")
        return _csr(*(self.array(part) for part in parts), key=key, path=self.path)

    def names(self, key: str) -> tuple[str, ...]:
        """Load the names of the columns; none where the key is absent."""
        if key not in self:
            return ()
        names = self.array(key)
        if names.dtype.kind == "S":
            names = np.char.decode(names, "utf-8", "replace")
        if names.ndim != 1 or names.dtype.kind != "U":
            raise InputError(f"The array {key!r} of {self.path} must be a list of names.")
        return tuple(names.tolist())

    def _check_header(self, key: str, file: IO[bytes], n_bytes: int) -> None:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise ValueError(f"version {version} of the array format")
        shape, _, dtype = read_header(file)
        if dtype.hasobject:
            raise InputError(
                f"The array {key!r} of {self.path} holds Python objects, which are never loaded; "
                "save it as numbers or text."
            )
        # A text of width 0 takes no bytes, and could state any number of rows.
        stated = prod(shape) * max(dtype.itemsize, 1)
        held = n_bytes - file.tell()
        if stated != held or min(shape, default=0) < 0:
            raise InputError(
                f"The array {key!r} of {self.path} states {stated:,} bytes and holds {held:,}; "
                "fetch the file again."
            )


def _not_an_archive(path: Path) -> InputError:
    with path.open("rb") as file:
        begins_as_zip = file.read(2) == b"PK"
    if begins_as_zip:
        return InputError(f"{path} is a damaged or incomplete archive; fetch the file again.")
    return InputError(
        f"{path} is not an npz archive; name its format, or save it with numpy.savez."
    )


def _csr(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    shape: NDArray[Any],
    *,
    key: str,
    path: Path,
) -> sp.csr_array:
    if any(part.ndim != 1 or part.dtype.kind not in "iu" for part in (indices, indptr, shape)):
        raise InputError(
            f"The indices and the shape of the sparse {key} of {path} must be integers."
        )
    if shape.shape != (2,) or shape.min() < 0 or shape[1] > COLUMNS_LIMIT:
        raise InputError(
            f"The sparse {key} of {path} states the shape {shape.tolist()}; it must have rows, and "
            f"at most {COLUMNS_LIMIT:,} columns."
        )
    try:
        matrix = sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"The sparse {key} of {path} is malformed ({error}).") from error
    if not matrix.has_canonical_format:
        matrix.sort_indices()
        # SciPy keeps the flag of a matrix as it was before the indices were sorted.
        matrix = sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
        if not matrix.has_canonical_format:
            raise InputError(f"The sparse {key} of {path} has two values for the same cell.")
    return matrix


def _known_labels(Y: Matrix) -> tuple[Matrix, Matrix | None]:
    """Separate labels with 255 for unknown into 0/1 labels and the mask of the unknown ones."""
    values = Y.data if sp.issparse(Y) else Y
    if values.dtype.kind not in "fiub" or not (values == UNKNOWN).any():
        return Y, None
    if not sp.issparse(Y):
        return np.where(values == UNKNOWN, 0, values), values == UNKNOWN
    labels, unknown = Y.copy(), Y.copy()
    labels.data[values == UNKNOWN] = 0
    unknown.data = values == UNKNOWN
    unknown.eliminate_zeros()
    return labels, unknown


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
    return {f"{key}_{part}": value for part, value in zip(_CSR_PARTS, values, strict=True)}


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
