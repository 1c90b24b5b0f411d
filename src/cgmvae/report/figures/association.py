"""How often labels occur together, counted on the rows that know both.

:mod:`~cgmvae.report.figures.cooccurrence` draws it against the similarity that a model learnt.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError

Measure = Literal["correlation", "lift"]

#: Rows added to those with both labels and to those expected, so that rare labels say little.
LIFT_PRIOR = 0.5


class PairCounts(NamedTuple):
    """Rows of each pair of labels among those that know both, each (n_labels, n_labels)."""

    both: NDArray[np.float64]
    first: NDArray[np.float64]
    """Rows with the label of the row of the table, whatever the other."""
    known: NDArray[np.float64]

    @property
    def second(self) -> NDArray[np.float64]:
        """Rows with the label of the column of the table, whatever the other."""
        return self.first.T


def pair_counts(labels: Matrix, unknown: Matrix | None = None) -> PairCounts:
    """Count how often labels occur, alone and together.

    Parameters
    ----------
    labels : array or CSR array, (n_samples, n_labels)
        0 or 1.
    unknown : array or CSR array of bool, (n_samples, n_labels), optional
    """
    Y = sp.csr_array(labels, dtype=np.float64)
    n_samples, n_labels = Y.shape
    both = (Y.T @ Y).toarray()
    if unknown is None:
        first = np.repeat(np.diag(both)[:, None], n_labels, axis=1)
        return PairCounts(both, first, np.full((n_labels, n_labels), float(n_samples)))
    mask = sp.csr_array(unknown, dtype=np.float64)
    alone = np.asarray(mask.sum(axis=0)).ravel()
    first = np.diag(both)[:, None] - (Y.T @ mask).toarray()
    known = n_samples - alone[:, None] - alone[None, :] + (mask.T @ mask).toarray()
    return PairCounts(both, first, known)


def association(counts: PairCounts, measure: Measure = "correlation") -> NDArray[np.float64]:
    """Return how strongly labels occur together, (n_labels, n_labels); NaN where not measurable.

    ``correlation`` is that of the two columns (φ); it needs both labels to vary. ``lift`` is the
    binary logarithm of the rows with both over those expected by chance, ``LIFT_PRIOR`` added to
    each; it needs both labels to occur.

    Examples
    --------
    >>> counts = pair_counts(np.array([[1, 1], [1, 1], [0, 0], [0, 0]]))
    >>> association(counts).tolist(), association(counts, "lift").round(3)[0].tolist()
    ([[1.0, 1.0], [1.0, 1.0]], [0.737, 0.737])
    """
    if measure not in get_args(Measure):
        raise InputError(f"There is no measure {measure!r}; choose correlation or lift.")
    both, first, known = counts
    second = counts.second
    with np.errstate(invalid="ignore", divide="ignore"):
        if measure == "lift":
            lift = np.log2((both + LIFT_PRIOR) / (first * second / known + LIFT_PRIOR))
            return np.where((first > 0) & (second > 0), lift, np.nan)
        spread = np.sqrt(first * (known - first) * second * (known - second))
        return np.where(spread > 0, (known * both - first * second) / spread, np.nan)
