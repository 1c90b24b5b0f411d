"""What known labels of a row say about its other labels, beyond what its features say.

Each label, present or absent, changes the log-odds of every other by an amount of its own. The
amounts are learned from rows that are scored out of fold, a random part of whose labels is given
and the rest predicted, so that they fit any number of known labels;
``docs/results/unlabelled.md`` says what that gains.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cgmvae.data.mapped import dense
from cgmvae.evaluation.calibration import log_odds
from cgmvae.methods.inputs import Rows

#: Rows to learn from: few rows are repeated, with other labels given, and of many a part will do.
_MOST_COPIES, _ROWS = 8, 2**15

#: Weight of the squared amounts: a normal prior of variance ½. On yeast .3 to 3 are alike.
_PENALTY = 1.0

#: Steps of L-BFGS; the loss is convex.
_STEPS = 50


def learn_effects(
    rows: Rows, scores: NDArray[np.floating], *, seed: int, device: torch.device | str = "cpu"
) -> NDArray[np.float32]:
    """Return what each given label adds to the log-odds of the others, (2, n_labels, n_labels).

    The first matrix is of labels that are present, the second of absent ones; row i holds what
    label i adds.

    Parameters
    ----------
    rows : Rows
        Their labels; features are not used.
    scores : array, (n_rows, n_labels)
        Probabilities by models that were not trained on the row.
    seed : int
        Of the choice of given labels.
    """
    n_rows, n_labels = rows.labels.shape
    rng = np.random.default_rng(seed)
    n_copies = min(_MOST_COPIES, max(1, _ROWS // n_rows))
    chosen = np.tile(rng.permutation(n_rows)[:_ROWS], n_copies)
    labels = dense(rows.labels[chosen]).astype(bool)
    known = np.ones_like(labels) if rows.unknown is None else ~dense(rows.unknown[chosen])
    given = known & (rng.random(labels.shape) < rng.random((len(labels), 1)))

    def on_device(values: NDArray[np.bool_]) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=device)

    positive, predicted = on_device(labels), on_device(known & ~given)
    shown = on_device(np.hstack([labels & given, ~labels & given]))
    odds = torch.as_tensor(log_odds(scores[chosen]), dtype=torch.float32, device=device)
    effects = torch.zeros(2 * n_labels, n_labels, device=device, requires_grad=True)
    optimizer = torch.optim.LBFGS([effects], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = odds + shown @ effects
        entropy = ((F.softplus(logits) - positive * logits) * predicted).sum() / n_copies
        total = entropy + _PENALTY * effects.square().sum()
        total.backward()
        return total

    with torch.enable_grad():
        optimizer.step(loss)
    return effects.detach().cpu().numpy().reshape(2, n_labels, n_labels)


def condition(
    scores: NDArray[np.floating],
    effects: NDArray[np.float32],
    positive: NDArray[np.bool_],
    given: NDArray[np.bool_],
) -> NDArray[np.floating]:
    """Return probabilities given some labels, bool (n_rows, n_labels), present or absent."""
    present, absent = effects
    changed = (positive & given) @ present + (~positive & given) @ absent
    return (1 / (1 + np.exp(-(log_odds(scores) + changed)))).astype(scores.dtype)
