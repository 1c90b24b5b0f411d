"""Iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011): every label in every part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.mapped import MappedRows
from cgmvae.errors import InputError


def stratify(
    positives: sp.csr_array, sizes: Sequence[int], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Deal rows to parts of fixed sizes, the label with the fewest rows left always first.

    The sizes are Sechidis et al.'s desired sizes, but kept exactly: a full part takes no more
    rows. Without that the sizes drift where most labels are rare (0.73, 0.14, 0.13 instead of
    0.8, 0.1, 0.1 for 5,000 labels of 2,000 rows).

    Parameters
    ----------
    positives : CSR array of bool, (n_samples, n_labels)
    sizes : sequence of int, (n_parts,)
        Rows of each part; they add up to ``n_samples``.
    rng : numpy Generator

    Returns
    -------
    part : array of int64, (n_samples,)
    """
    n_samples, n_labels = positives.shape
    part = np.full(n_samples, -1, dtype=np.int64)
    room = list(sizes)
    columns = positives.tocsc()
    left = np.diff(columns.indptr).astype(np.int64)  # (n_labels,) rows still to deal
    wanted = np.outer(left, np.asarray(sizes) / max(1, n_samples))  # (n_labels, n_parts)
    tie_break = rng.random(n_labels)
    priority = np.where(left > 0, left + tie_break, np.inf)
    while left.any():
        label = int(priority.argmin())
        rows = columns.indices[columns.indptr[label] : columns.indptr[label + 1]]
        rows = rng.permutation(rows[part[rows] < 0])
        part[rows] = _deal(len(rows), wanted[label], room, rng)
        owners, labels = _cells_of(positives, rows)
        np.subtract.at(wanted, (labels, part[owners]), 1)
        np.subtract.at(left, labels, 1)
        priority[labels] = np.where(left[labels] > 0, left[labels] + tie_break[labels], np.inf)
    rest = rng.permutation(np.flatnonzero(part < 0))
    part[rest] = _deal(len(rest), room, room, rng)
    return part


def _deal(
    n_rows: int, wanted: Sequence[float], room: list[int], rng: np.random.Generator
) -> list[int]:
    """Give each row to the part that wants it most, then has most room; ``room`` is updated."""
    want = [float(value) for value in wanted]
    open_parts = [part for part in rng.permutation(len(room)).tolist() if room[part] > 0]
    dealt = []
    for _ in range(n_rows):
        part = max(open_parts, key=lambda part: (want[part], room[part]))
        dealt.append(part)
        want[part] -= 1
        room[part] -= 1
        if room[part] == 0:
            open_parts.remove(part)
    return dealt


def _cells_of(matrix: sp.csr_array, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the row and the column of every stored cell of these rows."""
    starts, ends = matrix.indptr[rows], matrix.indptr[rows + 1]
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    cells = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    return np.repeat(rows, lengths), matrix.indices[cells]


def positive_cells(Y: Any) -> sp.csr_array:
    """Return the cells that are 1, as a CSR array of bool, whatever form the labels have."""
    if Y.ndim != 2:
        raise InputError(f"The labels must be a table of two dimensions, not {Y.ndim}.")
    if isinstance(Y, np.ndarray):
        blocks = [sp.csr_array(block == 1) for _, block in MappedRows(Y).blocks()]
        return sp.csr_array(sp.vstack(blocks, format="csr")) if blocks else sp.csr_array(Y == 1)
    positives = sp.csr_array(Y).copy()
    positives.sum_duplicates()
    positives.data = positives.data == 1
    positives.eliminate_zeros()
    return positives
