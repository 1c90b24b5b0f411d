"""A multi-label data set: features, labels, names, unknown labels, groups, identifiers.

Everything that reads data (:mod:`cgmvae.data.readers`, :mod:`cgmvae.data.catalog`,
:mod:`cgmvae.data.synthetic`) ends in a :class:`MultiLabelDataset`; everything that trains or
evaluates starts from one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.columns import Columns
from cgmvae.data.mapped import MappedRows, as_mapped, check_finite, dense, float_type, vstack
from cgmvae.errors import InputError

#: A NumPy array or a SciPy CSR array, (n_samples, n_columns). SciPy ships no types, so a type
#: checker cannot tell the two apart.
Matrix: TypeAlias = Any

#: A matrix, or :class:`~cgmvae.data.columns.Columns` if not all features are numbers.
Features: TypeAlias = Any

#: Codes of ``MultiLabelDataset.official_split``.
TRAIN, TEST, VALIDATION = 0, 1, 2


@dataclass(frozen=True)
class DatasetStatistics:
    """Statistics of a data set; the first seven are the columns of the paper's table."""

    samples: int
    """Number of rows."""
    labels: int
    """Number of label columns."""
    mean_labels_per_sample: float
    """Mean number of known positive labels per row, the cardinality."""
    median_labels_per_sample: float
    max_labels_per_sample: int
    mean_samples_per_label: float
    """Mean number of known positive rows per label."""
    features: int
    density: float
    """Fraction of the known label values that are positive."""
    distinct_label_sets: int
    """Number of distinct sets of known positive labels."""
    rows_without_labels: int
    """Number of rows without a known positive label."""
    labels_without_rows: int
    """Number of labels that are positive in no row."""
    imbalance_ratio: float
    """Mean over the labels that occur of (rows of the most frequent label / rows of this one)."""
    unknown_share: float
    """Fraction of the label values that are unknown."""
    missing_share: float
    """Fraction of the feature values that are missing (NaN)."""
    feature_density: float
    """Fraction of the feature values that are not zero; only numbers can be zero."""


@dataclass(frozen=True, eq=False)
class MultiLabelDataset:
    """Features and labels of the same rows, with their names.

    Parameters
    ----------
    X : array or CSR array of float, Columns or MappedRows, (n_samples, n_features)
        Features; NaN where a value is missing. Columns of numbers only become an array.
    Y : array or CSR array of uint8, (n_samples, n_labels)
        Labels, 0 or 1; 0 where the label is unknown.
    label_names, feature_names : sequence of str
        Unique column names; by default ``label_0 …`` and ``feature_0 …``, or the names of the
        Columns.
    unknown : array or CSR array of bool, (n_samples, n_labels), optional
        True where it is unknown whether the label applies.
    groups : array, (n_samples,), optional
        Rows of the same group, such as a survey route, must not be split between training and test.
    ids : array, (n_samples,), optional
        Identifiers of the rows, as text: never a feature, but carried into predictions and lists of
        rows.
    coordinates : array, (n_samples, 2), optional
        Places of the rows, such as latitude and longitude, for maps. They are no features by
        themselves, and :func:`~cgmvae.data.splits.spatial_blocks` makes groups of them.
    official_split : array of int, (n_samples,), optional
        The publisher's own split: 0 train, 1 test, 2 validation.
    name : str
        A short name for messages and reports.

    Examples
    --------
    >>> data = MultiLabelDataset([[0.5], [2.0]], [[1, 0], [1, 1]], label_names=["owl", "hawk"])
    >>> data.describe().mean_labels_per_sample
    1.5
    >>> data.rows([1]).Y.tolist()
    [[1, 1]]
    """

    X: Features
    Y: Matrix
    label_names: Sequence[str] = ()
    feature_names: Sequence[str] = ()
    unknown: Matrix | None = None
    groups: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    coordinates: NDArray[Any] | None = None
    official_split: NDArray[Any] | None = None
    name: str = "data"

    def __post_init__(self) -> None:
        names = self.X.names if isinstance(self.X, Columns) else self.feature_names
        X, Y = as_features(self.X), _as_labels(self.Y)
        if X.shape[0] != Y.shape[0]:
            raise InputError(
                f"The features have {X.shape[0]:,} rows and the labels {Y.shape[0]:,}; "
                "they must describe the same rows."
            )
        if X.shape[0] == 0 or Y.shape[1] == 0:
            raise InputError("The data has no rows or no label columns; check the source.")
        unknown = None if self.unknown is None else _as_unknown(self.unknown, Y)
        set_ = object.__setattr__
        set_(self, "X", X)
        if unknown is not None and sp.issparse(Y):
            Y = _without_zeros(sp.csr_array(Y - Y.multiply(unknown)).astype(np.uint8))
        elif unknown is not None:
            Y = np.where(unknown, np.uint8(0), Y)
        set_(self, "Y", Y)
        set_(self, "unknown", unknown)
        set_(self, "label_names", column_names(self.label_names, "label", Y.shape[1]))
        set_(self, "feature_names", column_names(names, "feature", X.shape[1]))
        if self.groups is not None:
            set_(self, "groups", row_values(self.groups, "groups", X.shape[0]))
        if self.ids is not None:
            set_(self, "ids", row_values(self.ids, "ids", X.shape[0]).astype(np.str_))
        if self.coordinates is not None:
            set_(self, "coordinates", as_places(self.coordinates, X.shape[0]))
        if self.official_split is not None:
            set_(self, "official_split", _split_codes(self.official_split, X.shape[0]))

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of feature columns."""
        return int(self.X.shape[1])

    @property
    def n_labels(self) -> int:
        """Number of label columns."""
        return int(self.Y.shape[1])

    def rows(self, indices: Any) -> MultiLabelDataset:
        """Return the data set of these rows, in this order."""
        fields = ("X", "Y", "unknown", "groups", "ids", "coordinates", "official_split")
        present = {name: getattr(self, name) for name in fields}
        taken = {name: v[indices] for name, v in present.items() if v is not None}
        return replace(self, **taken)

    def count_copies(self, rows: Any, among: Any) -> int:
        """Return how many of some rows are also ``among`` others; both are indices.

        Copies have the same features and labels. Equal features that occur with different labels
        are a coincidence, as is the equality of a single feature. Rows that are mapped to a file
        are not compared.
        """
        if isinstance(self.X, MappedRows) or self.n_features < 2:
            return 0
        both = np.concatenate([rows, among])
        features, labels = _row_keys(self.X[both]), _row_keys(self.Y[both])
        found: dict[bytes, set[bytes]] = {}
        for key, own in zip(features, labels, strict=True):
            found.setdefault(key, set()).add(own)
        known = {key for key in features[len(rows) :] if len(found[key]) == 1}
        return sum(key in known for key in features[: len(rows)])

    def in_memory(self) -> MultiLabelDataset:
        """Return the data set with all features in memory."""
        return replace(self, X=np.asarray(self.X)) if isinstance(self.X, MappedRows) else self

    def targets(self) -> Matrix:
        """Return the labels as estimators expect them: with NaN where a label is unknown."""
        if self.unknown is None:
            return self.Y
        Y = self.Y.astype(np.float32)
        if sp.issparse(Y):
            return sp.csr_array(Y + self.unknown.astype(np.float32) * np.float32(np.nan))
        Y[dense(self.unknown)] = np.nan
        return Y

    def describe(self) -> DatasetStatistics:
        """Compute the statistics of the data set."""
        per_label, per_row = (
            np.asarray(self.Y.sum(axis=axis, dtype=np.int64)).ravel() for axis in (0, 1)
        )
        occurring = per_label[per_label > 0]
        n_cells = self.n_samples * self.n_labels
        n_unknown = 0 if self.unknown is None else int(self.unknown.sum())
        n_values = self.n_samples * self.n_features
        n_missing, n_nonzero = _cell_counts(self.X)
        if sp.issparse(self.Y):
            sets = {row.tobytes() for row in np.split(self.Y.indices, self.Y.indptr[1:-1])}
        else:
            sets = {row.tobytes() for row in np.packbits(self.Y, axis=1)}
        return DatasetStatistics(
            samples=self.n_samples,
            labels=self.n_labels,
            mean_labels_per_sample=float(per_row.mean()),
            median_labels_per_sample=float(np.median(per_row)),
            max_labels_per_sample=int(per_row.max()),
            mean_samples_per_label=float(per_label.mean()),
            features=self.n_features,
            density=int(per_row.sum()) / max(1, n_cells - n_unknown),
            distinct_label_sets=len(sets),
            rows_without_labels=int((per_row == 0).sum()),
            labels_without_rows=int((per_label == 0).sum()),
            imbalance_ratio=float((occurring.max() / occurring).mean()) if occurring.size else 0.0,
            unknown_share=n_unknown / n_cells,
            missing_share=n_missing / max(1, n_values),
            feature_density=n_nonzero / max(1, n_values),
        )


def _row_keys(X: Features) -> list[bytes]:
    """Return bytes per row that are equal where all features are, missing ones included."""
    if isinstance(X, Columns):
        codes = []
        for values in X.values:
            index: dict[Any, int] = {}
            cells = (
                np.where(np.isnan(values), np.inf, values) if values.dtype.kind == "f" else values
            )
            codes.append([index.setdefault(cell, len(index)) for cell in cells.tolist()])
        X = np.array(codes).T
    if sp.issparse(X):
        X = canonical(X)
        parts = [slice(*part) for part in pairwise(X.indptr)]
        return [X.indices[part].tobytes() + X.data[part].tobytes() for part in parts]
    return [row.tobytes() for row in np.ascontiguousarray(X)]


def split_unknown(Y: Any, code: float = np.nan) -> tuple[Matrix, Matrix | None]:
    """Separate labels into 0/1 labels and the mask of the unknown ones.

    Parameters
    ----------
    Y : array or CSR array, (n_samples, n_labels)
        0, 1, or the code of an unknown label.
    code : float

    Returns
    -------
    labels : array or CSR array of uint8, (n_samples, n_labels)
    unknown : array or CSR array of bool, or None if every label is known
    """
    table = _as_matrix(Y)
    values = table.data if sp.issparse(table) else table
    is_unknown = values != values if np.isnan(code) else values == code  # NaN is not itself
    if not np.any(is_unknown):
        return _as_labels(table), None
    if not sp.issparse(table):
        return _as_labels(np.where(is_unknown, 0, table)), is_unknown
    labels, unknown = table.copy(), table.copy()
    labels.data, unknown.data = np.where(is_unknown, 0, table.data), is_unknown
    return _as_labels(labels), _without_zeros(unknown)


def stack_datasets(parts: Sequence[MultiLabelDataset]) -> MultiLabelDataset:
    """Return the rows of all parts, without an official split; the columns must be the same."""
    Y, unknown = split_unknown(vstack([part.targets() for part in parts]))
    fields = ("groups", "ids", "coordinates")
    found = {name: [getattr(part, name) for part in parts] for name in fields}
    stacked: dict[str, Any]
    stacked = {n: None if each[0] is None else np.concatenate(each) for n, each in found.items()}
    X = vstack([part.X for part in parts])
    return replace(parts[0], X=X, Y=Y, unknown=unknown, official_split=None, **stacked)


def _as_matrix(values: Any) -> Matrix:
    return canonical(values) if sp.issparse(values) else np.asarray(values)


def canonical(values: Any) -> sp.csr_array:
    """Return a CSR array without duplicate entries; the argument is never changed."""
    matrix = sp.csr_array(values)
    if matrix.ndim == 2 and not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def csr_from_parts(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], *, shape: tuple[int, ...]
) -> sp.csr_array:
    """Build a CSR array from the parts that a file stores; raise a ValueError if they do not fit.

    SciPy does not check them: it would read outside an array that an index points past. The parts
    are the values, (n_values,), the column of each, and the row offsets, (n_rows + 1,).

    >>> parts = np.ones(1), np.array([2]), np.array([0, 0, 1])
    >>> csr_from_parts(*parts, shape=(2, 3)).toarray().tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if {part.ndim for part in (data, indices, indptr)} != {1} or len(data) != len(indices):
        raise ValueError("the parts of a sparse matrix differ in length")
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise ValueError("the indices of a sparse matrix are not integers")
    rises = len(indptr) == shape[0] + 1 and bool((indptr[1:] >= indptr[:-1]).all())
    if not rises or indptr[0] != 0 or indptr[-1] > len(indices):
        raise ValueError("the row offsets of a sparse matrix do not increase")
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        raise ValueError("an index of a sparse matrix is out of range")
    return sp.csr_array((data, indices, indptr), shape)


def with_short_indices(matrix: sp.csr_array) -> sp.csr_array:
    """Return a CSR array with 32-bit indices where these are enough; the values are not copied.

    Some functions of scikit-learn accept no others.
    """
    short = sp.get_index_dtype(maxval=max(matrix.nnz, *matrix.shape))
    indices, starts = (part.astype(short, copy=False) for part in (matrix.indices, matrix.indptr))
    return sp.csr_array((matrix.data, indices, starts), shape=matrix.shape)


def as_features(values: Any) -> Features:
    """Convert a table to features: numbers as float32 or float64, none of them infinite.

    Memory-mapped rows are not read; estimators check them for infinite values.
    """
    if (mapped := as_mapped(values)) is not None:
        return mapped
    if isinstance(values, Columns):
        numbers = values.as_matrix()
        if numbers is None:
            return values
        values = numbers
    X = _as_matrix(values)
    if X.ndim != 2:
        raise InputError(f"The features must have two dimensions, not {X.ndim}.")
    if X.dtype.kind not in "fiub":
        raise InputError("The features must be numbers; encode or drop the other columns.")
    X = X.astype(float_type(X.dtype), copy=False)
    if sp.issparse(X):
        X = with_short_indices(X)
    check_finite(X)
    return X


def _as_labels(table: Any) -> Matrix:
    Y = _as_matrix(table)
    if Y.ndim != 2:
        raise InputError(f"The labels must have two dimensions, not {Y.ndim}.")
    values = Y.data if sp.issparse(Y) else Y
    if values.dtype.kind not in "fiub":
        raise InputError("The labels must be 0 or 1; convert label names to columns first.")
    if not ((values == 0) | (values == 1)).all():
        odd = values[(values != 0) & (values != 1)][0]
        raise InputError(
            f"The labels must be 0, 1 or unknown, but one is {odd}; "
            "convert counts to presence, and mark unknown labels."
        )
    return _without_zeros(Y.astype(np.uint8))


def _as_unknown(unknown: Any, Y: Matrix) -> Matrix | None:
    unknown = _as_matrix(unknown)
    if unknown.shape != Y.shape:
        raise InputError(
            f"The mask of unknown labels has shape {unknown.shape} and the labels {Y.shape}; "
            "they must agree."
        )
    unknown = _without_zeros(unknown.astype(bool))
    if unknown.sum() == 0:
        return None
    return sp.csr_array(unknown) if sp.issparse(Y) else dense(unknown)


def _without_zeros(matrix: Matrix) -> Matrix:
    """Drop the explicit zeros of a CSR array in place; a dense array is returned unchanged."""
    if sp.issparse(matrix):
        matrix.eliminate_zeros()
    return matrix


def column_names(names: Sequence[str] | None, kind: str, n: int) -> tuple[str, ...]:
    """Return the checked names of ``n`` columns; ``kind_0``, ``kind_1`` … if none are given."""
    if names is None or len(names) == 0:
        return tuple(f"{kind}_{i}" for i in range(n))
    names = tuple(str(name) for name in names)
    if len(names) != n:
        raise InputError(
            f"There are {len(names):,} {kind} names for {n:,} {kind} columns; give one for each."
        )
    if len(set(names)) != n:
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise InputError(f"The {kind} name {twice!r} appears more than once; names must be unique.")
    return names


def row_values(values: Any, field: str, n_samples: int) -> NDArray[Any]:
    """Return a field with one value per row, (n_samples,), after checking its shape."""
    values = np.asarray(values)
    if values.shape != (n_samples,):
        raise InputError(
            f"'{field}' must have one value per row ({n_samples:,} rows), "
            f"but its shape is {values.shape}."
        )
    return values


def as_places(coordinates: Any, n_samples: int | None = None) -> NDArray[np.float64]:
    """Return coordinates as floats, (n_samples, 2), after checking that they are finite."""
    try:
        places = np.asarray(coordinates, np.float64)
    except (TypeError, ValueError):
        places = np.empty(0)
    n_rows = len(places) if n_samples is None else n_samples
    if places.shape != (n_rows, 2) or not np.isfinite(places).all():
        raise InputError("Coordinates must be two finite numbers for each row.")
    return places


def _split_codes(values: Any, n_samples: int) -> NDArray[Any]:
    codes = row_values(values, "official_split", n_samples)
    known = (TRAIN, TEST, VALIDATION)
    if codes.dtype.kind not in "fiub" or not np.isin(codes, known).all():
        odd = next((code for code in codes.tolist() if code not in known), "a Python object")
        raise InputError(
            f"'official_split' must be the number {TRAIN} (train), {TEST} (test) or {VALIDATION} "
            f"(validation) in each row, but one is {odd!r}; correct it."
        )
    return codes


def _cell_counts(X: Features) -> tuple[int, int]:
    """Return the number of missing values, and of values that are not zero."""
    if isinstance(X, Columns):
        n_zeros = sum(
            int((values == 0).sum())
            for values, kind in zip(X.values, X.kinds, strict=True)
            if kind == "number"
        )
        return int(X.missing().sum()), X.shape[0] * X.shape[1] - n_zeros
    n_missing = n_nonzero = 0
    for _, block in MappedRows.of(X).blocks():
        values = block.data if sp.issparse(block) else block
        n_missing += int(np.isnan(values).sum())
        n_nonzero += int(np.count_nonzero(values))
    return n_missing, n_nonzero
