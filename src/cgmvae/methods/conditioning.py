"""Which labels come together beyond what the features say, and what known labels say of the others.

A multivariate probit around the model's own probabilities: label i is present if a_i + e_i > 0,
where Φ(a_i) is the probability by the features, and e_i = b_i · u + noise has variance 1. The
factors u ~ N(0, I) are shared by the labels of a row, and stand for what its features leave open. A
known label says on which side of −a_i its e_i lies: little if the label was expected, much if it is
a surprise. That is replaced by a Gaussian observation of the same mean and variance, so that u has
a Gaussian posterior in closed form for any number of known labels, and so has every other e_i.

The loadings b are those with which whole label sets are most likely, learned from rows that are
scored out of fold, and kept if they make the label sets of rows held out more likely. Then four
strengths correct how much a known label counts: some labels of a row are given, and the others
predicted. :mod:`cgmvae.methods.communities` draws label sets from this.
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

#: Most factors; there are at most half as many as labels. Of 4, 8 and 16, on the birds, plants and
#: vegetation of Norberg et al. (600 rows of 141 to 242 labels) and on yeast, eight were best or
#: within .1 nats a row out of fold.
_MAX_FACTORS = 8

#: The squares of all loadings are multiplied by half of this and added to the negative
#: log-likelihood of all rows. From 15 to 40 are alike there; without it, rows held out are less
#: likely with factors than without.
_PENALTY = 30.0

#: Most of a label's variance that factors explain.
_MAX_EXPLAINED = 0.95

#: Probabilities are taken to be at least this far from 0 and 1.
_MARGIN = 1e-6

#: The variance that is left to e of a known label, at least and at most.
_VARIANCES = (1e-3, 0.999)

#: Steps of Adam, rows of each, the learning rate at the start, and the share of the initial
#: loadings, which are those of the residuals, that is kept.
_STEPS, _BATCH, _RATE, _START = 50, 512, 0.05, 0.7

#: Draws of the factors of a row in each step, after so many steps to their mode from that of the
#: row's last visit; and where label sets are judged.
_DRAWS, _TO_MODE = 2, 2
_DRAWS_TO_JUDGE = 16

#: Steps to the mode of the factors from their mean.
_FROM_MEAN = 8

#: A step to the mode takes labels to be no further on the wrong side than this: float32 cannot
#: divide densities beyond.
_TAIL = -30.0

#: Steps that learn the strengths, rows of each, and their learning rate.
_STRENGTH_STEPS, _STRENGTH_BATCH, _STRENGTH_RATE = 40, 128, 0.05

#: The share of rows of which only present labels are given; of those, at most this share.
_ONLY_PRESENT, _MAX_PRESENT = 0.3, 0.6

#: Given labels of every second row are at most this many.
_FEW = 5

#: The share of the rows, or of their groups, that decides whether anything was learned; most of
#: these rows, and most rows and cells that are learned from.
_HELD_OUT, _MAX_HELD, _MAX_ROWS, _CELLS = 0.2, 2000, 50_000, 2**25

#: Cells (draws × rows × labels) of which a likelihood is computed at a time.
_LIKELIHOOD_CELLS = 2**22

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
        a, present = probits(scores), torch.as_tensor(positive)
        sign = torch.where(present, 1.0, -1.0)
        # Mean and variance of a standard normal e with sign · (a + e) > 0.
        density = -0.5 * a.square() - 0.5 * math.log(2 * math.pi)
        mean = sign * torch.exp(density - torch.special.log_ndtr(sign * a))
        variance = (1 - mean * (mean + a)).clamp(*_VARIANCES)
        noise = variance / (1 - variance)
        seen = mean / (1 - variance)
        parts = (part.to(device, torch.float32) for part in (a, seen, noise))
        return cls._make([*parts, present.to(device)])

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


class LogLikelihood(NamedTuple):
    """Log-likelihoods of label sets, estimated from draws of the factors."""

    value: NDArray[np.float64]
    """(n_samples,)"""
    standard_error: NDArray[np.float64]
    """Of the draws, (n_samples,); 0 where labels are independent"""


def label_set_log_likelihood(
    scores: NDArray[np.floating],
    labels: NDArray[np.bool_],
    known: NDArray[np.bool_],
    loadings: NDArray[np.floating],
    *,
    n_draws: int,
    seed: int,
) -> LogLikelihood:
    """Return the log-likelihood of the known labels of each row together.

    Factors are drawn from the normal distribution at their mode given the labels, and weighted.
    Without loadings, (n_labels, 0), labels are independent.
    """
    found, errors = np.zeros(len(scores)), np.zeros(len(scores))
    b = torch.as_tensor(np.asarray(loadings, np.float32))
    generator = torch.Generator().manual_seed(seed)
    n_draws = n_draws if b.shape[1] else 1
    size = max(1, _LIKELIHOOD_CELLS // (n_draws * scores.shape[1]))
    for row in range(0, len(scores), size):
        part = slice(row, row + size)
        sides = _Sides.of(scores[part], labels[part], known[part])
        start = b.new_zeros(len(sides.expected), b.shape[1])
        draws = sides.draw_factors(b, start, _FROM_MEAN, n_draws, generator)
        weights = (sides.log_likelihood(b, draws.factors) + draws.log_ratio).double()
        value = torch.logsumexp(weights, 0) - math.log(n_draws)
        found[part] = value.numpy()
        if n_draws > 1:
            errors[part] = ((weights - value).exp().std(0) / n_draws**0.5).numpy()
    return LogLikelihood(found, errors)


class _Draws(NamedTuple):
    """Factors of rows, drawn from a normal distribution at their mode given the labels."""

    factors: Tensor
    """u, (n_draws, n_rows, n_factors)"""
    log_ratio: Tensor
    """Logarithm of the density of N(0, I) at them over that of their own, (n_draws, n_rows)"""
    mode: Tensor
    """(n_rows, n_factors)"""


class _Sides(NamedTuple):
    """Rows whose known labels say on which side of −a each e lies, each (n_rows, n_labels)."""

    expected: Tensor
    """a, the probit of the probability"""
    sign: Tensor
    """1 for a present label, −1 for an absent one, 0 for one that is not known"""

    @classmethod
    def of(
        cls,
        scores: NDArray[np.floating],
        labels: NDArray[np.bool_],
        known: NDArray[np.bool_],
        device: torch.device | str = "cpu",
    ) -> _Sides:
        """Return rows with these probabilities and labels."""
        sign = np.where(known, np.where(labels, 1, -1), 0).astype(np.float32)
        return cls(probits(scores).to(device, torch.float32), torch.as_tensor(sign, device=device))

    def log_likelihood(self, loadings: Tensor, factors: Tensor) -> Tensor:
        """Return that of each row's labels, given factors (n_draws, n_rows, n_factors)."""
        rest = (1 - loadings.square().sum(1)).sqrt()
        inside = (self.expected + factors @ loadings.T) / rest
        return (torch.special.log_ndtr(self.sign * inside) * self.sign.abs()).sum(-1)

    def draw_factors(
        self, loadings: Tensor, mode: Tensor, n_steps: int, n_draws: int, generator: torch.Generator
    ) -> _Draws:
        """Follow the factors to their mode by Newton's method, and draw around it."""
        n_factors = loadings.shape[1]
        rest = (1 - loadings.square().sum(1)).sqrt()
        slopes, expected = loadings / rest[:, None], self.expected / rest
        pairs = (slopes[:, :, None] * slopes[:, None, :]).flatten(1)
        identity = torch.eye(n_factors, device=mode.device)
        for _ in range(n_steps):
            inside = (self.sign * (expected + mode @ slopes.T)).clamp(min=_TAIL)
            density = -0.5 * inside.square() - 0.5 * math.log(2 * math.pi)
            ratio = torch.exp(density - torch.special.log_ndtr(inside))
            curvature = ratio * (ratio + inside) * self.sign.abs()
            information = (curvature @ pairs).unflatten(1, (n_factors, n_factors)) + identity
            root = torch.linalg.cholesky(information)
            slope = (self.sign * ratio) @ slopes - mode
            mode = mode + torch.cholesky_solve(slope[..., None], root)[..., 0]
        normal = torch.randn(
            (n_draws, *mode.shape), generator=generator, device=generator.device
        ).to(mode)
        spread = torch.linalg.solve_triangular(root.mT, normal[..., None], upper=True)
        factors = mode + spread[..., 0]
        log_ratio = 0.5 * (normal.square() - factors.square()).sum(-1)
        return _Draws(factors, log_ratio - root.diagonal(dim1=-2, dim2=-1).log().sum(-1), mode)


def probits(scores: NDArray[np.floating]) -> Tensor:
    """Return a, the probits of probabilities, which are kept away from 0 and 1."""
    p = torch.as_tensor(np.asarray(scores, np.float64)).clamp(_MARGIN, 1 - _MARGIN)
    return torch.special.ndtri(p)


def observed_by_labels(scores: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return what each label would observe of its e: present, with which variance, and absent.

    For a row with these probabilities, (n_labels,); the result is (4, n_labels).
    """
    parts = []
    for is_present in (True, False):
        task = _Task.of(scores[None], np.full((1, len(scores)), is_present))
        parts += [task.seen[0].numpy(), task.noise[0].numpy()]
    return np.stack(parts)


def learn_factors(
    rows: Rows, scores: NDArray[np.floating], *, seed: int, device: torch.device | str = "cpu"
) -> LabelFactors | None:
    """Return what labels share beyond their probabilities, or None if they share nothing.

    That is decided on whole groups of rows that nothing was learned from.

    Parameters
    ----------
    rows : Rows
        Their labels and groups; features are not used.
    scores : array, (n_rows, n_labels)
        Probabilities by models that were not trained on the row.
    seed : int
        Of the rows that are held out, the draws of factors, and the choice of given labels.
    """
    n_labels = rows.labels.shape[1]
    if n_labels < 2:
        return None
    rng = np.random.default_rng(seed)
    most = min(_MAX_ROWS, max(1, _CELLS // n_labels))
    chosen = rng.permutation(rows.labels.shape[0])[:most]
    labels = dense(rows.labels[chosen]).astype(bool)
    known = np.ones_like(labels) if rows.unknown is None else ~dense(rows.unknown[chosen])
    labels &= known
    groups = np.arange(len(chosen)) if rows.groups is None else rows.groups[chosen]
    _, group = np.unique(groups, return_inverse=True)
    held = (rng.random(group.max() + 1) < _HELD_OUT)[group]
    most = min(_MAX_HELD, max(1, _LIKELIHOOD_CELLS // n_labels))
    train, judged = np.flatnonzero(~held), np.flatnonzero(held)[:most]
    if len(train) == 0 or len(judged) == 0:
        return None
    own = scores[chosen]
    loadings = _learn_loadings(own[train], labels[train], known[train], seed, device)
    both = (
        label_set_log_likelihood(
            own[judged], labels[judged], known[judged], b, n_draws=_DRAWS_TO_JUDGE, seed=seed
        ).value
        for b in (loadings.cpu().numpy(), np.zeros((n_labels, 0)))
    )
    by_group = np.bincount(group[judged], np.subtract(*both))
    if not by_group.sum() > 2 * np.linalg.norm(by_group):  # two standard errors
        return None
    strengths = _learn_strengths(own[train], labels[train], known[train], loadings, rng)
    return LabelFactors(*(part.cpu().numpy() for part in (loadings, strengths)))


def _learn_loadings(
    scores: NDArray[np.floating],
    labels: NDArray[np.bool_],
    known: NDArray[np.bool_],
    seed: int,
    device: torch.device | str,
) -> Tensor:
    """Return the loadings with which label sets are most likely, by stochastic EM.

    The gradient of a row's log-likelihood is the mean, over its factors given its labels, of that
    given the factors; the mean is over weighted draws.
    """
    sides = _Sides.of(scores, labels, known, device)
    counted = sides.sign != 0
    start = _residual_loadings(_Task.of(scores, labels, device), counted)
    loadings = (_START * start).to(device).requires_grad_()
    n_rows, n_factors = len(labels), loadings.shape[1]
    modes = sides.expected.new_zeros(n_rows, n_factors)
    generator = torch.Generator(device).manual_seed(seed)
    optimizer = _Adam(loadings)
    for step in range(_STEPS):
        batch = torch.randperm(n_rows, generator=generator, device=generator.device)[:_BATCH]
        part = _Sides._make(each[batch] for each in sides)
        with torch.no_grad():
            draws = part.draw_factors(loadings, modes[batch], _TO_MODE, _DRAWS, generator)
            modes[batch] = draws.mode
        with torch.enable_grad():
            likelihood = part.log_likelihood(loadings, draws.factors)
            weights = torch.softmax(likelihood.detach() + draws.log_ratio, 0)
            penalty = 0.5 * _PENALTY / n_rows * loadings.square().sum()
            loss = penalty - (weights * likelihood).sum(0).mean()
        optimizer.step(loss, 0.5 * _RATE * (1 + math.cos(math.pi * step / _STEPS)))
        loadings.data = _bounded(loadings.data)
    return loadings.detach()


def _learn_strengths(
    scores: NDArray[np.floating],
    labels: NDArray[np.bool_],
    known: NDArray[np.bool_],
    loadings: Tensor,
    rng: np.random.Generator,
) -> Tensor:
    """Return how much known labels must count to predict the others best."""
    strengths = torch.tensor([0.0, 0.0, 0.0, 0.5], device=loadings.device, requires_grad=True)
    optimizer = _Adam(strengths)
    for _ in range(_STRENGTH_STEPS):
        batch = rng.choice(len(labels), _STRENGTH_BATCH)
        of_known = known[batch]
        given = _given_labels(labels[batch], of_known, rng)
        task = _Task.of(scores[batch], labels[batch], loadings.device)
        shown, counted = (torch.as_tensor(a, device=loadings.device) for a in (given, of_known))
        with torch.enable_grad():
            n_predicted = (counted & ~shown).sum().clamp(min=1)
            loss = task.losses(shown, counted, loadings, strengths).sum() / n_predicted
        optimizer.step(loss, _STRENGTH_RATE)
    return strengths.detach()


class _Adam:
    """Adam (Kingma and Ba 2015) for one tensor, with the constants that torch has.

    torch.optim.Adam imports torch's compiler, which takes over a second in the first fit.
    """

    def __init__(self, value: Tensor) -> None:
        self.value, self.n_steps = value, 0
        self.mean, self.square = (torch.zeros_like(value, requires_grad=False) for _ in range(2))

    @torch.no_grad()
    def step(self, loss: Tensor, rate: float) -> None:
        """Change the value against the gradient of the loss."""
        (gradient,) = torch.autograd.grad(loss, self.value)
        self.n_steps += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.lerp_(gradient.square(), 0.001)
        mean = self.mean / (1 - 0.9**self.n_steps)
        square = self.square / (1 - 0.999**self.n_steps)
        self.value.sub_(rate * mean / (square.sqrt() + 1e-8))


def _given_labels(
    labels: NDArray[np.bool_], known: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw which labels of each row are given: some of all, or some of the present ones."""
    n_rows, n_labels = labels.shape

    def share(of: NDArray[np.int64] | int, most: float) -> NDArray[np.floating]:
        few = np.minimum(1.0, rng.integers(1, _FEW + 1, (n_rows, 1)) / np.maximum(1, of))
        return np.where(rng.random((n_rows, 1)) < 0.5, most * rng.random((n_rows, 1)), few)

    of_all = rng.random(labels.shape) < share(n_labels, 1.0)
    of_present = labels & (rng.random(labels.shape) < share(labels.sum(1)[:, None], _MAX_PRESENT))
    only_present = rng.random((n_rows, 1)) < _ONLY_PRESENT
    return known & np.where(only_present, of_present, of_all)


def _residual_loadings(task: _Task, counted: Tensor) -> Tensor:
    """Return loadings that reproduce the correlations of what was seen of e.

    The mean of e given its label correlates less than e itself, by the share of its variance that
    the label tells, for which correlations are corrected; noise has no part in the others.
    """
    n_labels = task.positive.shape[1]
    n_factors = min(_MAX_FACTORS, max(1, n_labels // 2))
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
    return loadings * (_MAX_EXPLAINED / explained).clamp(max=1.0).sqrt()
