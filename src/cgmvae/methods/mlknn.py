"""ML-kNN: nearest neighbors and Bayes' rule for each label (Zhang and Zhou 2007).

Where the paper leaves a choice open: a label's neighbors, prior and counts come only from the rows
in which the label is known; an unknown label never counts as negative. If a label is known in
fewer than k + 1 rows, all but one of these are neighbors. Sample weights apply to priors and
counts, not to the choice of neighbors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.inputs import Rows
from cgmvae.methods.model_file import matrix_arrays, read_matrix
from cgmvae.methods.nearest import NearestRows

#: Rows whose neighbors are searched at a time, and label entries held in memory.
_BLOCK_ROWS, _HELD_CELLS = 2048, 1 << 22

#: The smallest number above one half.
_ABOVE_HALF = np.nextafter(0.5, 1.0)

#: The k neighbors with a known label are searched among at most this many times k candidates.
_MAX_MULTIPLE = 16


@dataclass(kw_only=True, eq=False, repr=False)
class MLkNN(MultiLabelClassifier):
    """Multi-label k-nearest neighbors.

    The number of a row's k nearest neighbors that have a label is evidence for the label: Bayes'
    rule turns the frequency of this number around training rows with the label, and around those
    without it, into the label's posterior probability. Thresholding at 0.5 is the paper's maximum a
    posteriori rule.

    Parameters
    ----------
    k : int
        Number of neighbors.
    s : float
        Smoothing of priors and counts; 1 is Laplace smoothing.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`.

    Attributes
    ----------
    features_, labels_, unknown_ : array or CSR array
        The scaled training rows; ``unknown_`` is None if all labels are known.
    n_neighbors_ : array, (n_labels,)
        Number of neighbors for each label: k, or fewer if the label is known in few rows.
    s_ : float
        Smoothing used in the fit.
    prior_ : array, (n_labels,)
        P(H1), the smoothed frequency of each label.
    counts_ : array, (2, n_labels, k + 1)
        Weight of the training rows without and with the label, c' and c in the paper, by the number
        of their neighbors that have it.
    posterior_ : array, (n_labels, k + 1)
        P(H1 | E_j), the probability of the label if j neighbors have it.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(300, 5, 6, seed=1)
    >>> model = MLkNN(k=5, random_state=0).fit(data.X, data.Y)
    >>> model.predict_proba(data.X).shape
    (300, 6)
    """

    k: int = 10
    s: float = 1.0

    def _fit_rows(self, train: Rows, validation: Rows, seed: int) -> None:
        if not 0 < self.s < np.inf:
            raise InputError(f"s is {self.s}; it must be above 0, because counts may be 0.")
        self.features_, self.labels_ = train.features, train.labels.copy()
        self.unknown_: Matrix = None if train.unknown is None else train.unknown.copy()
        self._choose_numbers(self.k)
        self.counts_ = self._count_evidence(train.row_weights())
        self.s_ = float(self.s)
        self.prior_, self.posterior_ = bayes(self.counts_, self.s_)

    def _choose_numbers(self, k: int) -> None:
        """Set the number of neighbors per label, and the number of candidates to search."""
        n_rows = self.features_.shape[0]
        n_known = np.full(self.n_labels_, n_rows)
        if self.unknown_ is not None:
            n_known -= np.asarray(self.unknown_.sum(axis=0)).ravel()
        self.n_neighbors_ = np.clip(n_known - 1, 0, k)
        # Twice what an average label needs for k known neighbors, so that few labels fall short.
        multiple = min(2 * n_rows / max(n_known.mean(), 1), _MAX_MULTIPLE)
        self._n_candidates = min(n_rows, int(np.ceil(multiple * k)))

    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        scores = np.empty((features.shape[0], self.n_labels_))
        for rows, counts in self._neighbor_counts(features):
            scores[rows] = self.posterior_[np.arange(self.n_labels_), counts]
        return scores

    def _count_evidence(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum the weights of training rows by label, its value and the count of neighbors."""
        shape = (2, self.n_labels_, self.k + 1)
        total = np.zeros(np.prod(shape))
        label = np.arange(self.n_labels_)
        for rows, counts in self._neighbor_counts(self.features_, among_themselves=True):
            cell = np.ravel_multi_index((dense(self.labels_[rows]), label, counts), shape)
            weight = np.broadcast_to(weights[rows, None], counts.shape)
            if self.unknown_ is not None:
                weight = np.where(dense(self.unknown_[rows]), 0.0, weight)
            total += np.bincount(cell.ravel(), weight.ravel(), minlength=len(total))
        return total.reshape(shape)

    def _neighbor_counts(
        self, features: Matrix, *, among_themselves: bool = False
    ) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Yield blocks of rows and how many neighbors have each label, (n_rows, n_labels).

        A training row is not its own neighbor.
        """
        search = NearestRows(self.features_)
        size = max(1, min(_BLOCK_ROWS, _HELD_CELLS // self.n_labels_))
        for start in range(0, features.shape[0], size):
            block = features[start : start + size]
            rows = slice(start, start + block.shape[0])
            own = np.arange(start, rows.stop) if among_themselves else np.full(block.shape[0], -1)
            count = self._count_known if self.unknown_ is None else self._count_with_unknown
            yield rows, count(search, block, own)

    def _count_known(
        self, search: NearestRows, features: Matrix, own: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        n_wanted = int(self.n_neighbors_.max())
        found = search.find(features, n_wanted, own)
        starts = np.arange(found.shape[0] + 1) * n_wanted
        shape = (found.shape[0], self.features_.shape[0])
        neighbors = sp.csr_array((np.ones(found.size, np.int64), found.ravel(), starts), shape)
        return dense(neighbors @ self.labels_)

    def _count_with_unknown(
        self, search: NearestRows, features: Matrix, own: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Count among the nearest rows in which each label is known.

        They are first searched among the nearest of all rows; a label that is known in too few of
        those gets a search among the rows in which it is known.
        """
        found = search.find(features, self._n_candidates, own)
        counts = np.empty((found.shape[0], self.n_labels_), np.int64)
        short = np.empty(counts.shape, bool)
        size = max(1, _HELD_CELLS // max(1, found.shape[1] * self.n_labels_))
        for start in range(0, len(found), size):
            part = slice(start, start + size)
            shape, rows = (*found[part].shape, self.n_labels_), found[part].ravel()
            known = ~dense(self.unknown_[rows]).reshape(shape) & (found[part] >= 0)[..., None]
            n_known = known.cumsum(axis=1, dtype=np.int32)
            counted = known & (n_known <= self.n_neighbors_)
            counts[part] = (dense(self.labels_[rows]).reshape(shape) & counted).sum(axis=1)
            short[part] = n_known[:, -1] < self.n_neighbors_
        for label in np.flatnonzero(short.any(axis=0)):
            asking = np.flatnonzero(short[:, label])
            rows = np.flatnonzero(~dense(self.unknown_[:, [label]]).ravel())
            index = np.full(self.features_.shape[0] + 1, -1)  # the last is for new rows
            index[rows] = np.arange(len(rows))
            n_wanted = int(self.n_neighbors_[label])
            among_known = NearestRows(self.features_[rows])
            nearest = among_known.find(features[asking], n_wanted, index[own[asking]])
            has_label = dense(self.labels_[:, [label]]).ravel()[rows]
            counts[asking, label] = has_label[nearest].sum(axis=1, dtype=np.int64)
        return counts

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays = {"counts": self.counts_}
        for name in ("features", "labels", "unknown"):
            arrays |= matrix_arrays(name, getattr(self, f"{name}_"))
        return arrays, {"n_rows": self.features_.shape[0], "s": self.s_}

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        n_rows, n_labels = int(description["n_rows"]), self.n_labels_
        shape = (n_rows, n_labels)
        self.features_ = read_matrix(
            arrays, "features", (n_rows, self.pipeline_.n_columns), np.floating
        )
        self.labels_ = read_matrix(arrays, "labels", shape, np.unsignedinteger)
        self.unknown_ = read_matrix(arrays, "unknown", shape, np.bool_, optional=True)
        stored = self.labels_.data if sp.issparse(self.labels_) else self.labels_
        if (stored > 1).any():
            raise ValueError("its labels are not 0 and 1")
        self.counts_, self.s_ = arrays["counts"], float(description["s"])
        if self.counts_.shape[:2] != (2, n_labels) or self.counts_.ndim != 3:
            raise ValueError("its counts do not match its labels")
        if not 0 < self.s_ < np.inf:
            raise ValueError("its smoothing is not above 0")
        self._choose_numbers(self.counts_.shape[2] - 1)
        self.prior_, self.posterior_ = bayes(self.counts_, self.s_)


def bayes(counts: NDArray[np.float64], s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return P(H1), (n_labels,), and P(H1 | E_j), (n_labels, k + 1), just above 0.5 for a tie."""
    n_rows = counts.sum(axis=2, keepdims=True)  # (2, n_labels, 1)
    prior = (s + n_rows) / (2 * s + n_rows.sum(axis=0))
    likelihood = (s + counts) / (s * counts.shape[2] + n_rows)
    without, having = prior * likelihood
    # A tie is in favor of the label, whether the rule is p ≥ 0.5 or p > 0.5.
    posterior = np.where(having == without, _ABOVE_HALF, having / (without + having))
    return prior[1, :, 0], posterior
