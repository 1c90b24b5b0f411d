"""The weights of experts: how much the log-odds of each count beside those of the others.

The probability of label l of a row is the logistic function of

    Σ_k w_k o_kl + d + s_l,        w_k ≥ 0,

with o_kl the log-odds of expert k, d a constant, and s_l a shift of the label. They have the least
log-loss of all known labels of rows that the experts did not learn from. Weights are shrunk toward
equal shares, which matters where rows are few, and shifts toward 0, as far as the labels differ
less in what they need than chance alone would make them differ (empirical Bayes).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cgmvae.data.mapped import dense
from cgmvae.evaluation.calibration import log_odds
from cgmvae.evaluation.protocols import Scored, evaluate
from cgmvae.methods.inputs import Rows
from cgmvae.methods.out_of_fold import assign_folds

#: Weight of the squared distances of weights from equal shares, beside the log-loss of all cells in
#: total: what few cells say is outweighed, what many say is not.
WEIGHT_PENALTY = 10.0

#: The penalty of shifts that is tried first, and how often it may be estimated anew, until it
#: changes by less than this part.
FIRST_PENALTY, MAX_ESTIMATES, SETTLED = 20.0, 12, 0.1

#: An expert is dropped unless it lowers the log-loss by more than this many standard errors. The
#: metrics that are reported say less: thresholds make them noisy, and by them helpful experts are
#: dropped.
MIN_GAIN = 1.0

#: Folds that are weighed by the others.
N_FOLDS = 5

#: Cells of all labels that weights are learned on; of more rows, a sample.
MAX_CELLS = 1 << 20

#: Newton's method ends after so many steps, or when the loss falls by less than this part of it.
MAX_STEPS, TOLERANCE = 50, 1e-9

#: The smallest step, and what keeps curvatures above 0.
_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Combination:
    """What the log-odds of experts are multiplied by, and what is added."""

    weights: NDArray[np.float64]
    """(n_experts,)"""
    shifts: NDArray[np.float64]
    """What is added to the weighted sum for each label, (n_labels,)"""

    def of_log_odds(self, odds: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
        """Return the combined log-odds of one array per expert, each (n_rows, n_labels)."""
        total = np.tile(self.shifts, (len(odds[0]), 1))
        for weight, own in zip(self.weights, odds, strict=True):
            total += weight * own
        return total

    def apply(self, scores: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
        """Return the combined probabilities of the experts' probabilities."""
        return expit(self.of_log_odds([log_odds(each) for each in scores]))


def learn_combination(
    labels: NDArray[np.integer],
    odds: Sequence[NDArray[np.floating]],
    known: NDArray[np.bool_] | None = None,
    *,
    weight_penalty: float = WEIGHT_PENALTY,
    shift_penalty: float | None = None,
) -> Combination:
    """Return the weights and shifts of least penalized log-loss.

    Parameters
    ----------
    labels : array, (n_rows, n_labels)
        0 or 1.
    odds : sequence of array, each (n_rows, n_labels)
        Log-odds of each expert.
    known : array of bool, (n_rows, n_labels), optional
        The cells that count; all of them by default.
    weight_penalty : float
        Of the squared distances of weights from ``1 / n_experts``.
    shift_penalty : float, optional
        Of the squared shifts; that of :func:`estimate_penalty` by default.
    """
    if shift_penalty is None:
        shift_penalty = estimate_penalty(labels, odds, known)
    penalties = weight_penalty, shift_penalty
    weights, shifts = _least_loss(labels, odds, known, penalties, _equal_shares(labels, odds))
    return Combination(weights[:-1], shifts + weights[-1])


def estimate_penalty(
    labels: NDArray[np.integer],
    odds: Sequence[NDArray[np.floating]],
    known: NDArray[np.bool_] | None = None,
) -> float:
    """Return the penalty of shifts, one over their variance among labels; rows as above.

    After each fit the variance is the mean of their squares, plus what is uncertain of them.
    """
    penalty, start = FIRST_PENALTY, _equal_shares(labels, odds)
    for _ in range(MAX_ESTIMATES):
        start = _least_loss(labels, odds, known, (WEIGHT_PENALTY, penalty), start)
        weights, shifts = start
        p = expit(shifts + sum(w * own for w, own in zip(weights, (*odds, 1.0), strict=True)))
        curvature = (p * (1 - p)).sum(axis=0, where=True if known is None else known)
        before, penalty = penalty, float(1 / np.mean(shifts**2 + 1 / (curvature + penalty)))
        if abs(penalty - before) < SETTLED * before:
            break
    return penalty


#: Weights, with the constant as their last, and shifts.
_Solution: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]


def _equal_shares(labels: NDArray[Any], odds: Sequence[Any]) -> _Solution:
    return np.append(np.full(len(odds), 1 / len(odds)), 0), np.zeros(labels.shape[1])


def _least_loss(
    labels: NDArray[np.integer],
    odds: Sequence[NDArray[np.floating]],
    known: NDArray[np.bool_] | None,
    penalties: tuple[float, float],
    start: _Solution,
) -> _Solution:
    """Return the solution of least penalized log-loss; penalties are of weights and of shifts."""
    weight_penalty, shift_penalty = penalties
    counted = np.ones(labels.shape) if known is None else known.astype(np.float64)
    terms = [*(own * counted for own in odds), counted]
    true = labels * counted
    equal, _ = _equal_shares(labels, odds)
    penalty = np.append(np.full(len(odds), weight_penalty), 0)

    def loss(weights: NDArray[np.float64], shifts: NDArray[np.float64]) -> _Loss:
        """Return the loss and its slopes; ``weights`` has the constant as its last."""
        z = shifts + sum(w * term for w, term in zip(weights, terms, strict=True))
        excess = counted * expit(z) - true
        value = float((counted * np.logaddexp(0, z) - true * z).sum())
        value += float(penalty @ (weights - equal) ** 2 + shift_penalty * shifts @ shifts) / 2
        own = np.array([np.vdot(term, excess) for term in terms]) + penalty * (weights - equal)
        return _Loss(value, own, excess.sum(axis=0) + shift_penalty * shifts, z)

    weights, shifts = start
    now = loss(weights, shifts)
    for _ in range(MAX_STEPS):
        # Newton's step for the weights that are not held at 0; each shift depends on these alone.
        p = expit(now.z)
        curvature = counted * p * (1 - p)
        bent = [curvature * term for term in terms]
        mixed = np.array([each.sum(axis=0) for each in bent])
        of_shifts = curvature.sum(axis=0) + shift_penalty + _TINY
        whole = np.array([[np.vdot(a, b) for b in terms] for a in bent]) + np.diag(penalty + _TINY)
        free = (weights > 0) | (now.of_weights < 0)
        free[-1] = True
        reduced = whole - (mixed / of_shifts) @ mixed.T
        right = now.of_weights - (mixed / of_shifts) @ now.of_shifts
        step = np.zeros(len(weights))
        step[free] = -np.linalg.solve(reduced[np.ix_(free, free)], right[free])
        shift_step = -(now.of_shifts + step @ mixed) / of_shifts
        size, before = 1.0, now.value
        while size > _TINY:
            moved = weights + size * step
            moved[:-1] = moved[:-1].clip(0)
            now = loss(moved, shifts + size * shift_step)
            if now.value <= before:
                break
            size /= 2
        weights, shifts = moved, shifts + size * shift_step
        if before - now.value <= TOLERANCE * before:
            break
    return weights, shifts


@dataclass(frozen=True)
class ExpertRecord:
    """What an expert is, how much it counts, and how good it is."""

    name: str
    kind: str
    """What it is, in words"""
    weight: float
    """What its log-odds are multiplied by; 0 if it was dropped"""
    score: float
    """Mean of the paper's five metrics by itself, on rows that it did not learn from"""
    gain: float | None
    """How much lower this mean is for the blend without it; None if it is the only one"""


class _Loss(NamedTuple):
    value: float
    of_weights: NDArray[np.float64]
    """Slopes, (n_experts + 1,); the last is that of the constant"""
    of_shifts: NDArray[np.float64]
    """(n_labels,)"""
    z: NDArray[np.float64]
    """Log-odds, (n_rows, n_labels)"""


class Weighed(NamedTuple):
    """Experts with their weights."""

    names: list[str]
    """Of the experts that were not dropped"""
    combination: Combination
    """Of these, in the same order"""
    scores: NDArray[np.float64]
    """Probabilities of the rows, each fold weighed by the others, (n_rows, n_labels)"""
    alone: dict[str, float]
    """Mean of the paper's five metrics of each expert by itself"""
    gains: dict[str, float]
    """How much lower that mean was for a blend without the expert, when it was dropped or kept;
    empty for a single expert"""


def weigh_experts(
    rows: Rows,
    scores: Mapping[str, NDArray[np.floating]],
    *,
    keep: Collection[str] = (),
    metric: str = "micro_f1",
    seed: int = 0,
) -> Weighed:
    """Learn the weights of experts, and drop those that do not help.

    The expert that helps least is dropped first. What it helps is how much it lowers the log-loss
    of rows that did not choose the weights, in standard errors.

    Parameters
    ----------
    rows : Rows
        Labels, groups and so on of the rows; their features are not used.
    scores : mapping of str to array, each (n_rows, n_labels)
        Probabilities of the rows by each expert, which did not learn from them.
    keep : collection of str
        Experts that are not dropped.
    metric : str
        The metric that thresholds are learned for where metrics are compared.
    seed : int
        Of folds and samples.
    """
    odds = {name: log_odds(each) for name, each in scores.items()}
    task = _Task(rows, list(odds.values()), metric, seed)
    names = list(scores)
    gains: dict[str, float] = {}
    blended = task.cross_fitted([odds[name] for name in names])
    while len(names) > 1:
        without = {
            name: task.cross_fitted([odds[other] for other in names if other != name])
            for name in names
        }
        value = task.mean_metric(blended)
        gains |= {name: value - task.mean_metric(fewer) for name, fewer in without.items()}
        helps = {
            name: task.gain(blended, fewer) for name, fewer in without.items() if name not in keep
        }
        if not helps or min(helps.values()) > MIN_GAIN:
            break
        least = min(helps, key=helps.__getitem__)
        names.remove(least)
        blended = without[least]
    return Weighed(
        names,
        task.learn([odds[name] for name in names], np.arange(len(blended))),
        blended,
        {name: task.mean_metric(np.asarray(each)) for name, each in scores.items()},
        gains,
    )


class _Task:
    """Rows on which experts are weighed."""

    def __init__(
        self, rows: Rows, odds: Sequence[NDArray[np.float64]], metric: str, seed: int
    ) -> None:
        self.labels, self.metric, self.seed = dense(rows.labels), metric, seed
        self.unknown = None if rows.unknown is None else dense(rows.unknown)
        self.groups = rows.groups
        self.fold = assign_folds(rows, N_FOLDS, seed)
        self.n_learned = max(1, MAX_CELLS // self.labels.shape[1])
        everything = np.arange(len(self.labels))
        self.shift_penalty = estimate_penalty(*self._learned_from(odds, everything))

    def _learned_from(
        self, odds: Sequence[NDArray[np.float64]], rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], list[NDArray[np.float64]], NDArray[np.bool_] | None]:
        """Return labels, log-odds and known cells of these rows, or of a sample of them."""
        if len(rows) > self.n_learned:
            rows = np.random.default_rng(self.seed).choice(rows, self.n_learned, replace=False)
        known = None if self.unknown is None else ~self.unknown[rows]
        return self.labels[rows], [own[rows] for own in odds], known

    def learn(self, odds: Sequence[NDArray[np.float64]], rows: NDArray[np.int64]) -> Combination:
        """Return the combination that these rows, or a sample of them, choose."""
        return learn_combination(*self._learned_from(odds, rows), shift_penalty=self.shift_penalty)

    def cross_fitted(self, odds: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return blended probabilities, each fold weighed by the others."""
        blended = np.empty(self.labels.shape)
        for k in range(self.fold.max() + 1):
            inside, outside = np.flatnonzero(self.fold == k), np.flatnonzero(self.fold != k)
            found = self.learn(odds, outside)
            blended[inside] = expit(found.of_log_odds([own[inside] for own in odds]))
        return blended

    def gain(self, scores: NDArray[np.float64], fewer: NDArray[np.float64]) -> float:
        """Return by how many standard errors probabilities have a lower log-loss than others."""
        difference = self._log_losses(fewer) - self._log_losses(scores)
        _, group = np.unique(
            np.arange(len(scores)) if self.groups is None else self.groups, return_inverse=True
        )
        spread = np.bincount(group, difference - difference.mean())
        return float(difference.sum() / max(np.linalg.norm(spread), np.finfo(float).tiny))

    def _log_losses(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log-loss of each row, in total over its known labels, (n_rows,)."""
        losses = np.logaddexp(0, np.where(self.labels, -1, 1) * log_odds(scores))
        if self.unknown is not None:
            losses[self.unknown] = 0
        return losses.sum(axis=1)

    def mean_metric(self, scores: NDArray[np.floating]) -> float:
        """Return the mean of the five metrics, with one threshold for all of them."""
        rows = Scored(self.labels, scores, self.unknown)
        return float(np.mean(evaluate(rows, rows, metric=self.metric).values()))
