"""What known labels of a row say about its other labels, beyond what its features say.

Each label, present or absent, changes the log-odds of every other by an amount of its own. The
amounts are learned from rows that are scored out of fold, a random part of whose labels is given
and the rest predicted, so that they fit any number of known labels;
``docs/results/unlabelled.md`` says what that gains.
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

#: Weights of the squared amounts, from which held-out rows choose; the last leaves nothing of them.
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
    """1 for given labels that are present, then for those that are absent, (n_rows, 2 n_labels)"""
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

    def fit(self, penalty: float) -> Tensor:
        """Return the amounts that minimize cross-entropy and penalty."""
        effects = self.odds.new_zeros(self.shown.shape[1], self.odds.shape[1])
        if math.isinf(penalty):
            return effects
        effects.requires_grad_()
        optimizer = torch.optim.LBFGS([effects], max_iter=_STEPS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            total = self.entropy(effects) + penalty * effects.square().sum()
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
    label i adds. The strength of the penalty is chosen on whole groups of rows that were left out,
    and the amounts are 0 if no strength helps there.

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
        on_device(np.hstack([labels & given, ~labels & given])),
        on_device(labels),
        on_device(known & ~given) / n_copies,
    )
    groups = np.arange(n_rows) if rows.groups is None else np.unique_inverse(rows.groups)[1]
    held_out = rng.random(groups.max() + 1)[groups[chosen]] < _HELD_OUT
    held = torch.as_tensor(held_out, device=device)
    train, judged = task.take(~held), task.take(held)
    best = min(PENALTIES, key=lambda penalty: float(judged.entropy(train.fit(penalty))))
    return task.fit(best).cpu().numpy().reshape(2, n_labels, n_labels)


def condition(
    scores: NDArray[np.floating],
    effects: NDArray[np.float32],
    positive: NDArray[np.bool_],
    given: NDArray[np.bool_],
) -> NDArray[np.floating]:
    """Return probabilities given some labels, bool (n_rows, n_labels), present or absent."""
    present, absent = effects
    changed = (positive & given) @ present + (~positive & given) @ absent
    return expit(log_odds(scores) + changed).astype(scores.dtype)
