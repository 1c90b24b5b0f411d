"""What known labels of a row say about its other labels, beyond what its features say.

A multivariate probit around the model's own probabilities: label i is present if a_i + e_i > 0,
where Φ(a_i) is the probability by the features, and e_i = b_i · u + noise has variance 1. The
factors u ~ N(0, I) are shared by the labels of a row, and stand for what its features leave open. A
known label says on which side of −a_i its e_i lies: little if the label was expected, much if it is
a surprise. That is replaced by a Gaussian observation of the same mean and variance, so that u has
a Gaussian posterior in closed form for any number of known labels, and so has every other e_i.

The loadings b are learned from rows that are scored out of fold: some of their labels are given,
drawn from all or from those that are present, and the others predicted.
``docs/results/unlabelled.md`` says what that gains.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgmvae.data.mapped import dense
from cgmvae.methods.inputs import Rows
from cgmvae.preparation.components import leading_directions

#: Most factors; there are at most half as many as labels.
_MOST_FACTORS = 16

#: Most of a label's variance that factors explain.
_MOST_EXPLAINED = 0.95

#: Probabilities are taken to be at least this far from 0 and 1.
_MARGIN = 1e-6

#: The variance that is left to e of a known label, at least and at most.
_VARIANCES = (1e-3, 0.999)

#: Steps of Adam, rows of each, the learning rate at the start, and the share of the initial
#: loadings, which are those of the residuals, that is kept.
_STEPS, _BATCH, _RATE, _START = 200, 256, 0.02, 0.7

#: The share of rows of which only present labels are given; of those, at most this share.
_ONLY_PRESENT, _MOST_PRESENT = 0.3, 0.6

#: Given labels of every second row are at most this many.
_FEW = 5

#: The share of the rows, or of their groups, that decides whether anything was learned; most of
#: these rows, and most rows and cells that are learned from.
_HELD_OUT, _MOST_HELD, _MOST_ROWS, _CELLS = 0.2, 2000, 50_000, 2**25

#: Rows whose labels are predicted at a time.
_BLOCK = 512


class LabelFactors(NamedTuple):
    """What was learned about the labels of a model."""

    loadings: NDArray[np.float32]
    """b, (n_labels, n_factors)"""
    strengths: NDArray[np.float32]
    """Logarithms of how much a known label counts: present and absent ones, and present ones if no
    absent one is known; then how much the labels that are not known lose in that case, (4,)"""

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return the arrays that it is stored in, by name."""
        return {f"label_factors.{name}": part for name, part in self._asdict().items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], n_labels: int) -> LabelFactors | None:
        """Take the arrays out of those of a model; None if there are none."""
        parts = [arrays.pop(f"label_factors.{name}", None) for name in cls._fields]
        if all(part is None for part in parts):
            return None
        loadings, strengths = (np.zeros(0) if part is None else part for part in parts)
        if loadings.ndim != 2 or len(loadings) != n_labels or strengths.shape != (4,):
            raise ValueError("its label factors are not those of its labels")
        found = loadings.astype(np.float32)
        if not (found**2).sum(1).max() < 1 or not np.isfinite(strengths).all():
            raise ValueError("its label factors explain more than there is")
        return cls(found, strengths.astype(np.float32))

    def condition(
        self,
        scores: NDArray[np.floating],
        positive: NDArray[np.bool_],
        given: NDArray[np.bool_],
    ) -> NDArray[np.floating]:
        """Return probabilities given some labels, present or absent.

        Parameters
        ----------
        scores : array, (n_rows, n_labels)
            Probabilities by the features.
        positive, given : array of bool, (n_rows, n_labels)
            Which labels are present, and which are known.
        """
        loadings, strengths = map(torch.from_numpy, self)
        found = np.array(scores)
        for row in range(0, len(scores), _BLOCK):
            part = slice(row, row + _BLOCK)
            task = _Task.of(scores[part], positive[part])
            shown = torch.from_numpy(np.ascontiguousarray(given[part]))
            changed = torch.special.ndtr(task.predict(shown, loadings, strengths)).numpy()
            # Rows of which nothing is known keep their probabilities to the last digit.
            found[part] = np.where(given[part].any(1, keepdims=True), changed, scores[part])
        return found


class _Task(NamedTuple):
    """Rows whose labels are known or predicted, each (n_rows, n_labels)."""

    expected: Tensor
    """a, the probit of the probability"""
    seen: Tensor
    """What the label itself, once known, observes of e"""
    noise: Tensor
    """The variance of that observation"""
    positive: Tensor

    @classmethod
    def of(
        cls,
        scores: NDArray[np.floating],
        positive: NDArray[np.bool_],
        device: torch.device | str = "cpu",
    ) -> _Task:
        """Replace the truncated normal distributions of e by Gaussian observations."""
        p = torch.as_tensor(np.asarray(scores, np.float64)).clamp(_MARGIN, 1 - _MARGIN)
        present = torch.as_tensor(positive)
        a = torch.special.ndtri(p)
        sign = torch.where(present, 1.0, -1.0)
        # Mean and variance of a standard normal e with sign · (a + e) > 0.
        density = -0.5 * a.square() - 0.5 * math.log(2 * math.pi)
        mean = sign * torch.exp(density - torch.special.log_ndtr(sign * a))
        variance = (1 - mean * (mean + a)).clamp(*_VARIANCES)
        noise = variance / (1 - variance)
        seen = mean / (1 - variance)
        parts = (part.to(device, torch.float32) for part in (a, seen, noise))
        return cls._make([*parts, present.to(device)])

    def take(self, rows: Tensor) -> _Task:
        """Return some rows."""
        return _Task._make(part[rows] for part in self)

    def predict(self, given: Tensor, loadings: Tensor, strengths: Tensor) -> Tensor:
        """Return the probits of all labels if some are given, (n_rows, n_labels)."""
        explained = loadings.square().sum(1)
        n_factors = loadings.shape[1]
        only_present = ~(given & ~self.positive).any(1, keepdim=True)
        of_present = torch.where(only_present, strengths[2], strengths[0])
        strength = torch.where(self.positive, of_present, strengths[1]).exp()
        precision = given * strength / (1 - explained + self.noise)
        pairs = (loadings[:, :, None] * loadings[:, None, :]).flatten(1)
        # The posterior of u.
        information = (precision @ pairs).unflatten(1, (n_factors, n_factors))
        root = torch.linalg.cholesky(information + torch.eye(n_factors, device=given.device))
        mean = torch.cholesky_solve(((precision * self.seen) @ loadings)[..., None], root)[..., 0]
        variance = torch.cholesky_inverse(root).flatten(1) @ pairs.T + 1 - explained
        # If only present labels are named, these are a share of them, and the others are rarer.
        expected = torch.special.ndtr(self.expected).sum(1, keepdim=True)
        named = (given.sum(1, keepdim=True) / expected.clamp(min=1.0)).clamp(max=0.9)
        shift = torch.where(only_present, strengths[3] * torch.log1p(-named), 0.0)
        return (self.expected + shift + mean @ loadings.T) / variance.sqrt()

    def losses(self, given: Tensor, counted: Tensor, *learned: Tensor) -> Tensor:
        """Return the cross-entropy of each row's labels that count and are not given, (n_rows,)."""
        probits = self.predict(given, *learned)
        right = torch.special.log_ndtr(torch.where(self.positive, probits, -probits))
        return -(right * (counted & ~given)).sum(1)


def learn_factors(
    rows: Rows, scores: NDArray[np.floating], *, seed: int, device: torch.device | str = "cpu"
) -> LabelFactors | None:
    """Return what known labels say about the others, or None if they say nothing.

    That is decided on whole groups of rows that nothing was learned from.

    Parameters
    ----------
    rows : Rows
        Their labels and groups; features are not used.
    scores : array, (n_rows, n_labels)
        Probabilities by models that were not trained on the row.
    seed : int
        Of the choice of given labels.
    """
    n_labels = rows.labels.shape[1]
    if n_labels < 2:
        return None
    rng = np.random.default_rng(seed)
    most = min(_MOST_ROWS, max(1, _CELLS // n_labels))
    chosen = rng.permutation(rows.labels.shape[0])[:most]
    labels = dense(rows.labels[chosen]).astype(bool)
    known = np.ones_like(labels) if rows.unknown is None else ~dense(rows.unknown[chosen])
    labels &= known
    groups = np.arange(len(chosen)) if rows.groups is None else rows.groups[chosen]
    _, group = np.unique(groups, return_inverse=True)
    held = (rng.random(group.max() + 1) < _HELD_OUT)[group]
    train, judged = np.flatnonzero(~held), np.flatnonzero(held)[:_MOST_HELD]
    if len(train) == 0 or len(judged) == 0:
        return None
    task = _Task.of(scores[chosen], labels, device)
    counted = torch.as_tensor(known, device=device)

    def draw(numbers: NDArray[np.int64]) -> tuple[_Task, Tensor, Tensor]:
        """Return rows, which of their labels are given, and which count."""
        given = _given_labels(labels[numbers], known[numbers], rng)
        where = torch.as_tensor(numbers, device=device)
        return task.take(where), torch.as_tensor(given, device=device), counted[where]

    start = _residual_loadings(task.take(torch.as_tensor(train, device=device)), counted[~held])
    loadings = (_START * start).to(device).requires_grad_()
    strengths = torch.tensor([0.0, 0.0, 0.0, 0.5], device=device, requires_grad=True)
    optimizer = torch.optim.Adam([loadings, strengths], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS)
    with torch.enable_grad():
        for _ in range(_STEPS):
            own, given, of_known = draw(rng.choice(train, _BATCH))
            optimizer.zero_grad()
            n_predicted = (of_known & ~given).sum().clamp(min=1)
            (own.losses(given, of_known, loadings, strengths).sum() / n_predicted).backward()
            optimizer.step()
            schedule.step()
            loadings.data = _bounded(loadings.data)
    with torch.no_grad():
        own, given, of_known = draw(judged)
        plain = own.losses(given, of_known, torch.zeros_like(loadings), strengths)
        gain = (plain - own.losses(given, of_known, loadings, strengths)).cpu().numpy()
    by_group = np.bincount(group[judged], gain)
    if not by_group.sum() > 2 * np.linalg.norm(by_group):  # two standard errors
        return None
    return LabelFactors(*(part.detach().cpu().numpy() for part in (loadings, strengths)))


def _given_labels(
    labels: NDArray[np.bool_], known: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw which labels of each row are given: some of all, or some of the present ones."""
    n_rows, n_labels = labels.shape

    def share(of: NDArray[np.int64] | int, most: float) -> NDArray[np.floating]:
        few = np.minimum(1.0, rng.integers(1, _FEW + 1, (n_rows, 1)) / np.maximum(1, of))
        return np.where(rng.random((n_rows, 1)) < 0.5, most * rng.random((n_rows, 1)), few)

    of_all = rng.random(labels.shape) < share(n_labels, 1.0)
    of_present = labels & (rng.random(labels.shape) < share(labels.sum(1)[:, None], _MOST_PRESENT))
    only_present = rng.random((n_rows, 1)) < _ONLY_PRESENT
    return known & np.where(only_present, of_present, of_all)


def _residual_loadings(task: _Task, counted: Tensor) -> Tensor:
    """Return loadings that reproduce the correlations of what was seen of e.

    The mean of e given its label correlates less than e itself, by the share of its variance that
    the label tells, for which correlations are corrected; noise has no part in the others.
    """
    n_labels = task.positive.shape[1]
    n_factors = min(_MOST_FACTORS, max(1, n_labels // 2))
    told = task.seen / (1 + task.noise) * counted  # the mean of e given the label
    of_label = told.square().sum(0) / counted.sum(0).clamp(min=1)
    root = len(told) ** 0.5 * of_label.clamp(min=1e-3)
    sizes, directions = leading_directions((told / root).double().cpu().numpy(), n_factors)
    own = torch.from_numpy(directions * sizes).float()
    # The squares on the diagonal are not correlations, and make rare labels look important.
    return _bounded(own * of_label.cpu().sqrt()[:, None])


def _bounded(loadings: Tensor) -> Tensor:
    """Return loadings that explain no more of a label's variance than is allowed."""
    explained = loadings.square().sum(1, keepdim=True).clamp(min=1e-12)
    return loadings * (_MOST_EXPLAINED / explained).clamp(max=1.0).sqrt()
