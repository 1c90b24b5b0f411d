"""Inference in a Bayesian network over labels whose conditional probabilities differ by row.

``logits`` holds, for every member, row and label, the log-odds of the label for each of the 2^P
combinations of its parents' values, (n_members, n_rows, n_labels, 2^P): the first parent is the
highest bit, and the bits of parents that a label does not have are 0.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cgmvae.methods.label_structure import LabelStructure

#: So many labels may wait for children in an exact sum; a table of 2^12 values is kept for a row.
WIDEST = 12


def marginals(logits: Tensor, structure: LabelStructure, *, widest: int = WIDEST) -> Tensor:
    """Return the probability of each label, (n_members, n_rows, n_labels).

    Labels are taken in their order, and the joint distribution of those that have children to come
    is carried along: the sum over all label sets is exact. Where more than ``widest`` labels wait,
    the first of them goes on with its own probability, as if independent of the others.
    """
    last = structure.last_needed()
    joint = torch.ones_like(logits[..., 0, 0])  # one axis more for each label that waits
    waiting: list[int] = []
    found: dict[int, Tensor] = {}
    for place, label in enumerate(structure.order):
        positive = _given_waiting(logits[..., label, :], structure.parents[label], waiting, found)
        joint = torch.stack([joint * (1 - positive), joint * positive], dim=-1)
        found[label] = joint[..., 1].flatten(2).sum(-1) if waiting else joint[..., 1]
        waiting = [*waiting, label]
        kept = [each for each in waiting if last[each] > place][-widest:] if widest else []
        gone = [2 + axis for axis, each in enumerate(waiting) if each not in kept]
        joint = joint.sum(gone) if gone else joint
        waiting = kept
    return torch.stack([found[label] for label in range(len(found))], dim=-1).clamp(0, 1)


def _given_waiting(
    logits: Tensor, parents: tuple[int, ...], waiting: list[int], found: dict[int, Tensor]
) -> Tensor:
    """Return a label's probability given the labels that wait: an axis of 2, or 1, for each."""
    n = len(parents)
    positive = torch.sigmoid(logits).unflatten(-1, (*[2] * n, -1))[..., 0]
    for axis, parent in reversed(list(enumerate(parents, start=2))):
        if parent not in waiting:
            share = found[parent].reshape(*positive.shape[:2], *[1] * (positive.dim() - 3))
            absent, present = positive.unbind(axis)
            positive = absent * (1 - share) + present * share
    # Parents and waiting labels are in the same order.
    return positive.reshape(*positive.shape[:2], *(2 if w in parents else 1 for w in waiting))


def log_joint(logits: Tensor, structure: LabelStructure, label_sets: Tensor) -> Tensor:
    """Return log p(y|x) of label sets, (n_members, n_rows, n_sets).

    ``label_sets`` are bool, (n_members or 1, n_rows, n_sets, n_labels).
    """
    parts = []
    for label in structure.order:
        chosen = _log_odds(logits, structure, label_sets, label)
        parts.append(F.logsigmoid(torch.where(label_sets[..., label], chosen, -chosen)))
    return torch.stack(parts).sum(0)


def likely_label_sets(logits: Tensor, structure: LabelStructure, beam_width: int) -> Tensor:
    """Return label sets of high probability, bool (n_members, n_rows, n_sets, n_labels).

    A beam goes along the order of the labels and keeps the ``beam_width`` most probable beginnings;
    with 2^L of them nothing is left out, with one the search is greedy.
    """
    *shape, n_labels, _ = logits.shape
    label_sets = torch.zeros(*shape, 1, n_labels, dtype=torch.bool, device=logits.device)
    score = torch.zeros(*shape, 1, dtype=logits.dtype, device=logits.device)
    for label in structure.order:
        log_odds = _log_odds(logits, structure, label_sets, label)
        both = torch.cat([score + F.logsigmoid(-log_odds), score + F.logsigmoid(log_odds)], -1)
        score, chosen = both.topk(min(beam_width, both.shape[-1]), dim=-1)
        n = log_odds.shape[-1]
        places = (chosen % n)[..., None].expand(*shape, -1, n_labels)
        label_sets = label_sets.gather(-2, places)
        label_sets[..., label] = chosen >= n
    return label_sets


def _log_odds(logits: Tensor, structure: LabelStructure, label_sets: Tensor, label: int) -> Tensor:
    """Return the log-odds of a label in label sets that know its parents, (M, B, n_sets)."""
    highest = logits.shape[-1] // 2
    shape = (*logits.shape[:2], label_sets.shape[2])
    code = torch.zeros(shape, dtype=torch.int64, device=logits.device)
    for k, parent in enumerate(structure.parents[label]):
        code = code + label_sets[..., parent] * (highest >> k)
    return logits[..., label, :].gather(-1, code)
