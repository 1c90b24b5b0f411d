"""What known labels of a row say about its other labels, beyond what its features say.

Each label, present or absent, changes the log-odds of every other by an amount of its own. Labels
that are present repeat one another, and what the features say: their amounts are added up and
divided by the root of their number. The amounts are learned from rows that are scored out of fold,
a random part of whose labels is given and the rest predicted, so that they fit any number of known
labels. They start from a share of the log-odds of co-occurrence, since few rows say little about
a million pairs of labels; ``docs/results/unlabelled.md`` says what that gains.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from cgmvae.data.mapped import dense
from cgmvae.evaluation.calibration import log_odds
from cgmvae.methods.inputs import Rows

#: Rows to learn from: few rows are repeated, with other labels given, and of many a part will do.
_MOST_COPIES, _CELLS = 8, 2**22

#: Shares of the log-odds of co-occurrence that amounts may start from.
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)

#: Weights of squared differences from the start, from which held-out rows choose; with the last,
#: the amounts stay there.
PENALTIES = (1.0, 10.0, 100.0, 1000.0, math.inf)

#: The share of the rows, or of their groups, that chooses the weight.
_HELD_OUT = 0.2

#: Steps of L-BFGS; the loss is convex.
_STEPS = 50


class _Task(NamedTuple):
    """Rows with some of their labels given, on a device."""

    odds: Tensor
    """Log-odds of the labels by the model, (n_rows, n_labels)"""
    shown: Tensor
    """How much given labels count that are present, and then those that are absent, (n_rows,
    2 n_labels); see :func:`_shown`"""
    positive: Tensor
    """The labels, (n_rows, n_labels)"""
    predicted: Tensor
    """1 for known labels that are not given, (n_rows, n_labels)"""

    def take(self, rows: Tensor) -> _Task:
        """Return the rows that are marked."""
        return _Task(*(part[rows] for part in self))

    def entropy(self, effects: Tensor) -> Tensor:
        """Return the cross-entropy of the labels that are predicted."""
        logits = self.odds + self.shown @ effects
        return ((F.softplus(logits) - self.positive * logits) * self.predicted).sum()

    def fit(self, start: Tensor, penalty: float) -> Tensor:
        """Return the amounts that minimize cross-entropy and penalty, (2 n_labels, n_labels)."""
        if math.isinf(penalty):
            return start
        effects = start.clone().requires_grad_()
        optimizer = torch.optim.LBFGS([effects], max_iter=_STEPS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            total = self.entropy(effects) + penalty * (effects - start).square().sum()
            total.backward()
            return total

        with torch.enable_grad():
            optimizer.step(loss)
        return effects.detach()


def learn_effects(
    rows: Rows, scores: NDArray[np.floating], *, seed: int, device: torch.device | str = "cpu"
) -> NDArray[np.float32]:
    """Return what each given label adds to the log-odds of the others, (2, n_labels, n_labels).

    The first matrix is of labels that are present, the second of absent ones; row i holds what
    label i adds. Where amounts start and how far they may go from there is chosen on whole groups
    of rows that were left out; they are 0 if nothing else helps there.

    Parameters
    ----------
    rows : Rows
        Their labels and groups; features are not used.
    scores : array, (n_rows, n_labels)
        Probabilities by models that were not trained on the row.
    seed : int
        Of the choice of given labels.
    """
    n_rows, n_labels = rows.labels.shape
    rng = np.random.default_rng(seed)
    most = max(1, _CELLS // n_labels)
    n_copies = min(_MOST_COPIES, max(1, most // n_rows))
    chosen = np.tile(rng.permutation(n_rows)[:most], n_copies)
    labels = dense(rows.labels[chosen]).astype(bool)
    known = np.ones_like(labels) if rows.unknown is None else ~dense(rows.unknown[chosen])
    given = known & (rng.random(labels.shape) < rng.random((len(labels), 1)))

    def on_device(values: NDArray[Any]) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=device)

    task = _Task(
        on_device(log_odds(scores[chosen])),
        on_device(_shown(labels, given)),
        on_device(labels),
        on_device(known & ~given) / n_copies,
    )
    groups = np.arange(n_rows) if rows.groups is None else np.unique_inverse(rows.groups)[1]
    held_groups = rng.random(groups.max() + 1) < _HELD_OUT
    held = torch.as_tensor(held_groups[groups[chosen]], device=device)
    train, judged = task.take(~held), task.take(held)
    ratios = on_device(_co_occurrence(rows, ~held_groups[groups]))
    share = min(SHARES, key=lambda share: float(judged.entropy(share * ratios)))
    start = share * ratios
    best = min(PENALTIES, key=lambda penalty: float(judged.entropy(train.fit(start, penalty))))
    start = share * on_device(_co_occurrence(rows, np.ones(n_rows, dtype=bool)))
    return task.fit(start, best).cpu().numpy().reshape(2, n_labels, n_labels)


def _co_occurrence(rows: Rows, chosen: NDArray[np.bool_]) -> NDArray[np.floating]:
    """Return how the log-odds of each label differ in rows with each other one.

    (2 n_labels, n_labels); the second half, of absent labels, which say little, is 0.
    """
    labels = rows.labels[chosen].astype(np.float32)
    together = dense(labels.T @ labels)
    counts = together.diagonal()
    with_each, in_all = counts[:, None], np.full_like(counts, labels.shape[0])
    if rows.unknown is not None:  # unknown labels are 0 among the labels
        known = 1 - dense(rows.unknown[chosen]).astype(np.float32)
        with_each, in_all = dense(labels.T @ known), known.sum(0)

    def of_counts(positive: NDArray[Any], total: NDArray[Any]) -> NDArray[Any]:
        return np.log(positive + 1) - np.log(total - positive + 1)

    change = of_counts(together, with_each) - of_counts(counts, in_all)
    np.fill_diagonal(change, 0.0)
    return np.vstack([change, np.zeros_like(change)])


def _shown(positive: NDArray[np.bool_], given: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return how much each given label counts, first if it is present, (n_rows, 2 n_labels)."""
    present = positive & given
    weight = np.sqrt(np.maximum(1, present.sum(1, keepdims=True)))
    return np.hstack([present / weight, ~positive & given]).astype(np.float32)


def condition(
    scores: NDArray[np.floating],
    effects: NDArray[np.float32],
    positive: NDArray[np.bool_],
    given: NDArray[np.bool_],
) -> NDArray[np.floating]:
    """Return probabilities given some labels, bool (n_rows, n_labels), present or absent."""
    changed = _shown(positive, given) @ np.concatenate(effects)
    return expit(log_odds(scores) + changed).astype(scores.dtype)
