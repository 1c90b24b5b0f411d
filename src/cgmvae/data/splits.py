"""Splits into training, validation and test rows: random, by group, stratified, or official.

All evaluation uses a :class:`Split` from :func:`make_split`. An estimator that needs validation
rows takes them from its training rows with :func:`holdout`.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import TEST, TRAIN, VALIDATION, MultiLabelDataset, as_places, row_values
from cgmvae.data.files import atomic_path
from cgmvae.data.mapped import MappedRows
from cgmvae.errors import InputError

Indices = NDArray[np.int64]
Fractions = Sequence[float]

_PARTS = ("train", "validation", "test")
_KINDS = ("random", "group", "stratified", "official")

#: Tolerance of the sum of the fractions: far above rounding errors, far below one row in a million.
_SUM_TOLERANCE = 1e-8

#: Decimals to which the sum of two fractions is rounded, so that 0.7 + 0.2 gives the same as 0.9.
_CUT_DECIMALS = 12

#: Blocks in space that hold rows, at least, unless their size is given: a tenth of them are enough
#: test blocks for intervals.
_MIN_BLOCKS = 100

#: Names of columns that look like latitude and longitude, in small letters alone.
_COORDINATES = (
    "(decimal)?lat(itude)?|(utm)?northing",
    "(decimal)?(lon|lng|long(itude)?)|(utm)?easting",
)


@dataclass(frozen=True, eq=False)
class Split:
    """The training, validation and test rows of a data set.

    Parameters
    ----------
    train, validation, test : array of int64
        Row indices without repetition; only ``train`` must not be empty. Training rows are in a
        seeded random order, so the first ones are a random sample of all.
    kind : str
        How the split was made; see :func:`make_split`.
    seed : int
    train_fraction : float
        Fraction of the training rows that was kept.

    Examples
    --------
    >>> split = Split([2, 0], [3], [1], kind="random", seed=0, train_fraction=1.0)
    >>> split.train
    array([2, 0])
    """

    train: Indices
    validation: Indices
    test: Indices
    kind: str
    seed: int
    train_fraction: float

    def __post_init__(self) -> None:
        for part in _PARTS:
            try:
                rows = np.asarray(getattr(self, part))
            except (ValueError, OverflowError):
                rows = np.empty((0, 0))
            if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
                raise InputError(f"The {part} rows must be a flat list of integer row indices.")
            object.__setattr__(self, part, rows.astype(np.int64))
        rows = np.concatenate([self.train, self.validation, self.test])
        if len(self.train) == 0:
            raise InputError("The split has no training rows; make it again from the data.")
        if rows.min() < 0:
            raise InputError(f"The split holds the row {rows.min()}; row indices start at 0.")
        if len(np.unique(rows)) != len(rows):
            raise InputError("The split holds a row more than once; make it again from the data.")

    def parts(
        self, dataset: MultiLabelDataset
    ) -> tuple[MultiLabelDataset, MultiLabelDataset | None, MultiLabelDataset | None]:
        """Return the training, validation and test data; None for an empty part."""
        last = max(int(rows.max(initial=0)) for rows in (self.train, self.validation, self.test))
        if last >= dataset.n_samples:
            raise InputError(
                f"The split holds the row {last:,}, but '{dataset.name}' has {dataset.n_samples:,} "
                "rows; use the data that it was made from."
            )
        validation, test = (
            dataset.rows(rows) if len(rows) else None for rows in (self.validation, self.test)
        )
        return dataset.rows(self.train), validation, test

    def equals(self, other: Split) -> bool:
        """Return whether the other split has the same rows in the same order, made the same way."""
        return self._record() == other._record()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the split as JSON; the write is atomic."""
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(self._record()) + "\n", encoding="utf-8")

    def _record(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "seed": self.seed,
            "train_fraction": self.train_fraction,
            **{part: getattr(self, part).tolist() for part in _PARTS},
        }


def check_kind(kind: str) -> None:
    """Reject a kind of split that there is not."""
    if kind not in _KINDS:
        raise InputError(f"There is no split {kind!r}; use one of {', '.join(_KINDS)}.")


def make_split(
    dataset: MultiLabelDataset,
    kind: str = "random",
    *,
    seed: int = 0,
    fractions: Fractions = (0.8, 0.1, 0.1),
    train_fraction: float = 1.0,
    drop_empty: bool = False,
) -> Split:
    """Split the rows of a data set into training, validation and test rows.

    Parameters
    ----------
    dataset : MultiLabelDataset
    kind : {"random", "group", "stratified", "official"}
        ``random`` cuts a seeded permutation of the rows, ``group`` one of the groups, so that all
        rows of a group are in the same part. ``stratified`` gives each part its share of every
        label by iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011), with the part
        sizes of ``random``. ``official`` is the publisher's split; if that has no validation rows,
        they are drawn from its training rows in the ratio of the first two fractions.
    seed : int
    fractions : three floats
        Fractions of training, validation and test rows (groups, for ``group``). They add up to 1;
        0 leaves a part out.
    train_fraction : float
        Fraction of the training rows to keep, above 0. With the same seed, a smaller fraction keeps
        a subset of the rows of a larger one: training rows are in a seeded order, which is the
        permutation itself for ``random`` and a shuffle of the rows, not of whole groups, for the
        other kinds.
    drop_empty : bool
        Whether to leave rows without a known positive label out of every part, which is the paper's
        protocol. A model of the other rows only does not know how frequent a label is.

    Returns
    -------
    Split
        Indices into the rows of ``dataset``, of which dropped rows keep theirs.

    Examples
    --------
    >>> data = MultiLabelDataset(np.zeros((10, 1)), np.ones((10, 2)))
    >>> split = make_split(data, seed=3)
    >>> split.train, split.validation, split.test
    (array([5, 4, 1, 2, 9, 6, 7, 0]), array([3]), array([8]))
    """
    check_kind(kind)
    _check_seed(seed)
    if len(fractions) != len(_PARTS):
        raise InputError(
            f"There are {len(fractions)} fractions; give three: training, validation, test."
        )
    usable = fractions[0] > 0 and min(fractions) >= 0
    if not usable or not math.isclose(sum(fractions), 1, abs_tol=_SUM_TOLERANCE):
        raise InputError(
            f"The fractions {tuple(fractions)} must add up to 1, with none below 0 and some rows "
            "for training."
        )
    if not 0 < train_fraction <= 1:
        raise InputError(f"train_fraction is {train_fraction}; it must be above 0 and at most 1.")
    rows = np.arange(dataset.n_samples, dtype=np.int64)
    if drop_empty:
        rows = nonempty_rows(dataset.Y)
        if len(rows) == 0:
            raise InputError(
                f"No row of '{dataset.name}' has a positive label, so dropping empty rows leaves "
                "none; check which columns are labels."
            )
    parts = _parts(dataset, kind, rows, fractions, seed)
    for part, share, name in zip(parts, fractions, _PARTS, strict=True):
        if share > 0 and len(part) == 0:
            raise InputError(
                f"A {kind} split of {len(rows):,} rows by {tuple(fractions)} leaves no {name} "
                "rows; use more rows, fewer or smaller groups, or other fractions."
            )
    train, validation, test = parts
    n_train = max(1, int(train_fraction * len(train)))
    return Split(train[:n_train], validation, test, kind, int(seed), float(train_fraction))


def nonempty_rows(Y: Any) -> Indices:
    """Return the indices of the rows with a known positive label."""
    return np.flatnonzero(np.asarray(Y.sum(axis=1, dtype=np.int64)).ravel())


def holdout(Y: Any, fraction: float, *, seed: int, groups: Any = None) -> tuple[Indices, Indices]:
    """Hold out some of the training rows: whole groups if groups are given, otherwise stratified.

    Parameters
    ----------
    Y : array or sparse array, (n_samples, n_labels)
        Labels; NaN where unknown.
    fraction : float
        Fraction of the rows, or of the groups, to hold out; at least one is held out and one left.
    seed : int
    groups : array, (n_samples,), optional

    Returns
    -------
    train, held : arrays of int64
        Row indices in ascending order.

    Examples
    --------
    >>> train, held = holdout(np.repeat([[1, 0], [0, 1]], 10, axis=0), 0.2, seed=0)
    >>> len(train), (held < 10).sum(), (held >= 10).sum()
    (16, np.int64(2), np.int64(2))
    """
    _check_seed(seed)
    if not 0 < fraction < 1:
        raise InputError(f"The fraction to hold out is {fraction}; it must be between 0 and 1.")
    n, what = Y.shape[0], "rows"
    if groups is not None:
        what = "groups"
        n, group = group_numbers(row_values(groups, what, n))
    if n < 2:
        raise InputError(f"Holding out needs at least two {what}, but there are {n}; give more.")
    n_held = min(n - 1, max(1, round(fraction * n)))
    if groups is None:
        part = stratify(positive_cells(Y), (n - n_held, n_held), np.random.default_rng(seed))
    else:
        part = (_permutation(n, seed) < n_held).astype(np.int64)[group]
    return np.flatnonzero(part == 0), np.flatnonzero(part == 1)


def spatial_blocks(coordinates: Any, size: float | None = None) -> NDArray[np.int64]:
    """Return the block of each row on a square grid in space, (n_samples,), to be used as groups.

    Rows near each other are alike, so random rows make a model look better than it is in places
    where nobody has been. As ``groups`` of a data set or of ``fit``, blocks stay together in a fold
    and in a split of kind ``group``.

    Parameters
    ----------
    coordinates : array, (n_samples, 2)
        In any unit; in degrees, blocks are as wide as high in degrees.
    size : float, optional
        Width of a block, in that unit; it should be further than rows are alike. By default the
        largest width, reduced by a quarter at a time, at which at least 100 blocks hold rows, or
        half as many as there are rows if these are fewer.

    Examples
    --------
    >>> spatial_blocks([[0.1, 0.2], [0.9, 0.3], [5.0, 0.1]], size=1.0).tolist()
    [0, 0, 1]
    """
    places = as_places(coordinates)
    if size is not None and not size > 0:
        raise InputError(f"The size of a block is {size}; it must be above 0.")
    places = places - places.min(axis=0, initial=np.inf)
    if size is not None:
        return _cells(places, size)
    enough = min(_MIN_BLOCKS, len(np.unique(places, axis=0)) // 2)
    width = max(float(places.max(initial=0)), np.finfo(float).tiny)
    while len(np.unique(blocks := _cells(places, width))) < enough:
        width *= 0.75
    return blocks


def find_coordinates(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of columns that look like latitude and longitude; None if none do.

    Examples
    --------
    >>> find_coordinates(["elevation", "Longitude", "decimalLatitude"])
    ('decimalLatitude', 'Longitude')
    """
    found = [
        [name for name in names if re.fullmatch(pattern, re.sub("[^a-z]", "", name.lower()))]
        for pattern in _COORDINATES
    ]
    return (found[0][0], found[1][0]) if all(len(each) == 1 for each in found) else None


def _cells(places: NDArray[np.float64], size: float) -> NDArray[np.int64]:
    """Return the number of the grid cell of each place, in the order of the grid."""
    cells = np.floor(places / size).astype(np.int64)
    return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _parts(
    dataset: MultiLabelDataset, kind: str, rows: Indices, fractions: Fractions, seed: int
) -> list[Indices]:
    """Return the training, validation and test rows among ``rows``."""
    rng = np.random.default_rng(seed)
    if kind == "random":
        return np.split(rows[_permutation(len(rows), seed)], _cuts(len(rows), fractions))
    if kind == "official":
        if dataset.official_split is None:
            raise InputError(
                f"'{dataset.name}' has no official split; use random, group or stratified."
            )
        codes = dataset.official_split[rows]
        train, validation, test = (rows[codes == code] for code in (TRAIN, VALIDATION, TEST))
        train = rng.permutation(train)
        if len(validation) == 0:
            n_validation = round(len(train) * fractions[1] / (fractions[0] + fractions[1]))
            train, validation = np.split(train, [len(train) - n_validation])
        return [train, validation, test]
    if kind == "stratified":
        sizes = np.diff([0, *_cuts(len(rows), fractions), len(rows)]).tolist()
        part = stratify(positive_cells(dataset.Y[rows]), sizes, np.random.default_rng(seed))
    elif dataset.groups is None:
        raise InputError(
            f"'{dataset.name}' has no groups to split by; give it groups, or split at random."
        )
    else:
        n_groups, group = group_numbers(dataset.groups[rows])
        rank = np.argsort(_permutation(n_groups, seed))
        part = np.searchsorted(_cuts(n_groups, fractions), rank, side="right")[group]
    return [rng.permutation(rows[part == 0]), rows[part == 1], rows[part == 2]]


def _permutation(n: int, seed: int) -> Indices:
    # The legacy generator, because the published splits are defined by it.
    return np.random.RandomState(seed).permutation(n)


def _cuts(n: int, fractions: Fractions) -> list[int]:
    return [int(fractions[0] * n), int(round(fractions[0] + fractions[1], _CUT_DECIMALS) * n)]


def group_numbers(groups: Any) -> tuple[int, Indices]:
    """Return the number of groups, and the index of each row's group in sorted order."""
    try:
        names, numbers = np.unique(np.asarray(groups), return_inverse=True)
    except TypeError as error:
        raise InputError(
            "The groups cannot be sorted; make them all numbers or all text."
        ) from error
    return len(names), numbers


def stratify(
    positives: sp.csr_array, sizes: Sequence[int], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Distribute rows over parts of fixed sizes by iterative stratification.

    The algorithm of Sechidis, Tsoumakas and Vlahavas (2011) always continues with the label that
    has the fewest rows left. Here the part sizes are exact: a full part receives no more rows.
    Without that, the sizes drift when most labels are rare (0.73, 0.14, 0.13 instead of 0.8, 0.1,
    0.1 for 5,000 labels of 2,000 rows).

    ``positives`` is a CSR array of bool, (n_samples, n_labels); the sizes, (n_parts,), add up to
    ``n_samples``. Returns the part of each row, (n_samples,).
    """
    n_samples, n_labels = positives.shape
    part = np.full(n_samples, -1, dtype=np.int64)
    room = list(sizes)
    columns = positives.tocsc()
    left = np.diff(columns.indptr).astype(np.int64)  # (n_labels,) rows still to assign
    wanted = np.outer(left, np.asarray(sizes) / max(1, n_samples))  # (n_labels, n_parts)
    tie_break = rng.random(n_labels)
    priority = np.where(left > 0, left + tie_break, np.inf)
    while left.any():
        label = int(priority.argmin())
        rows = columns.indices[columns.indptr[label] : columns.indptr[label + 1]]
        rows = rng.permutation(rows[part[rows] < 0])
        part[rows] = _assign(len(rows), wanted[label], room, rng)
        cells = positives[rows]
        labels = cells.indices
        np.subtract.at(wanted, (labels, np.repeat(part[rows], np.diff(cells.indptr))), 1)
        np.subtract.at(left, labels, 1)
        priority[labels] = np.where(left[labels] > 0, left[labels] + tie_break[labels], np.inf)
    rest = rng.permutation(np.flatnonzero(part < 0))
    part[rest] = _assign(len(rest), room, room, rng)
    return part


def _assign(
    n_rows: int, wanted: Sequence[float], room: list[int], rng: np.random.Generator
) -> list[int]:
    """Assign each row to the part that needs it most, then has most room; ``room`` is updated."""
    want = [float(value) for value in wanted]
    open_parts = [part for part in rng.permutation(len(room)).tolist() if room[part] > 0]
    assigned = []
    for _ in range(n_rows):
        part = max(open_parts, key=lambda part: (want[part], room[part]))
        assigned.append(part)
        want[part] -= 1
        room[part] -= 1
        if room[part] == 0:
            open_parts.remove(part)
    return assigned


def positive_cells(Y: Any) -> sp.csr_array:
    """Return which labels are 1, as a CSR array of bool, from dense or sparse labels."""
    if Y.ndim != 2:
        raise InputError(f"The labels must have two dimensions, not {Y.ndim}.")
    if isinstance(Y, np.ndarray):
        blocks = [sp.csr_array(block == 1) for _, block in MappedRows(Y).blocks()]
        return sp.csr_array(sp.vstack(blocks, format="csr")) if blocks else sp.csr_array(Y == 1)
    positives = sp.csr_array(Y).copy()
    positives.sum_duplicates()
    positives.data = positives.data == 1
    positives.eliminate_zeros()
    return positives


def _check_seed(seed: int) -> None:
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise InputError(f"The seed is {seed}; it must be an integer from 0 to 2³² − 1.")
