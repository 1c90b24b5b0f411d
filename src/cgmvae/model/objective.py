"""The objective, Eq. 4 to 7: every loss term, and the table from which training takes them.

Terms are pure functions. They return one unweighted value per member and row, (n_members, n_rows):
sums over latent dimensions (KL), features (reconstruction) or known labels (cross-entropy).
:class:`~cgmvae.training.step.PackedStep` weighs them, averages them over rows and adds them up
(Eq. 8). To add a term, write its function, add it to :data:`TERMS`, and give it a weight.

Unknown labels never contribute. With P the known positive and U the unknown labels of a row:
cross-entropy skips U; U is left out of the denominator of the contrastive term; the mixture prior
uses P, or the background component if P and U are empty; if P is empty and U is not, the KL and the
contrastive term are 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cgmvae.nn import cuda
from cgmvae.nn.gaussian import (
    Gaussian,
    log_density,
    mixture_log_density,
)
from cgmvae.nn.packed import MIN_NORM, inner_products


class ScoredLabels(NamedTuple):
    """The labels that a network scored: all of them, or those of a batch and a sample of the rest.

    Shapes are (n_members, n_rows, n_labels) unless noted.
    """

    positive: Tensor
    """Whether the label is known to apply."""
    known: Tensor
    """Whether it is known if the label applies."""
    counts: Tensor | None = None
    """How many labels each scored label stands for, (n_members, n_labels); None for one each."""


class View(NamedTuple):
    """One decoding of each row: from a draw of z, or from the row's label Gaussians."""

    embedding: Tensor
    """w_x^f, (n_members, n_rows, embedding_dim)"""
    inner: Tensor
    """Inner products with the label embeddings, (n_members, n_rows, n_labels)"""
    logits: Tensor
    """The same with the label biases added."""
    cosines: Tensor | None = None
    """The same of vectors of norm 1, if they have been computed already."""


class Outputs(NamedTuple):
    """What the network computes for a batch, and all that the terms need."""

    features: Tensor | None
    """What is to be reconstructed, (n_members, n_rows, n_features)"""
    reconstructed: Tensor | None
    """Output of the reconstruction network, of the same shape."""
    posterior: Gaussian
    """q(z|x), (n_members, n_rows, latent_dim)"""
    z: Tensor
    """A draw from it, for the KL."""
    prior: Gaussian | None
    """Components of the mixture, (n_members, n_components, latent_dim); one Gaussian per row for
    a unimodal prior; None for N(0, I)."""
    chosen: Tensor | None
    """Which components form each row's prior, bool (n_members, n_rows, n_components); None if the
    prior is not a mixture."""
    views: tuple[View, ...]
    """Decodings whose predictions are trained."""
    aligned: tuple[View, ...]
    """Decodings whose embeddings are aligned with the label embeddings."""
    label_embeddings: Tensor
    """w_i^l of the scored labels, (n_members, n_labels, embedding_dim)"""
    labels: ScoredLabels
    temperature: Tensor
    """τ, (n_members,)"""
    cosine: bool = True
    """Whether the contrastive term compares cosines; otherwise inner products."""
    bernoulli: bool = False
    """Whether features are reconstructed as Bernoulli variables; otherwise as Gaussians."""
    shared_noise: Tensor | None = None
    """Draws of the probit's shared noise, (n_members, n_draws, n_rows, n_labels)"""
    triplet_draws: Tensor | None = None
    """Uniform numbers that pick each row's triplet, (n_members, n_rows, n_labels)"""


def chosen_components(positive: Tensor, known: Tensor) -> Tensor:
    """Return which components form each row's prior, (M, B, L + 1).

    The positive labels; the background (last) if a row is known to have no label; none if it has
    no known positive label but an unknown one.
    """
    # Deviation D10: the paper does not say what prior a row without labels has.
    background = (known > positive).all(-1, keepdim=True)  # every label is known not to apply
    return torch.cat([positive, background], dim=-1)


def kl_to_mixture(z: Tensor, posterior: Gaussian, components: Gaussian, chosen: Tensor) -> Tensor:
    """One-sample estimate of KL(q(z|x) ‖ p(z|y)), Eq. 4; it may be negative.

    Parameters
    ----------
    z : Tensor, (n_members, n_rows, latent_dim)
        Drawn from the posterior.
    posterior : Gaussian, (n_members, n_rows, latent_dim)
    components : Gaussian, (n_members, n_components, latent_dim)
        The Gaussians of the labels and of the background.
    chosen : Tensor of bool, (n_members, n_rows, n_components)
        The components of each row's prior; a row without any scores 0.
    """
    if cuda.usable(z):
        return cuda.kl_to_mixture(z, posterior, components, chosen)
    divergence = log_density(z, posterior) - mixture_log_density(z, components, chosen)
    return torch.where(chosen.any(-1), divergence, 0.0).to(z.dtype)


def kl_to_gaussian(posterior: Gaussian, prior: Gaussian) -> Tensor:
    """KL between diagonal Gaussians, summed over dimensions, for priors that are not a mixture."""
    gap = posterior.log_variance - prior.log_variance
    distance = (posterior.mean - prior.mean) ** 2 * torch.exp(-prior.log_variance)
    return 0.5 * (torch.exp(gap) - 1 - gap + distance).sum(-1)


def gaussian_reconstruction(features: Tensor, predicted: Tensor) -> Tensor:
    """−log p(x|z) for real features with unit variance, up to its constant, Eq. 5."""
    return (0.5 * (features - predicted) ** 2).sum(-1)


def bernoulli_reconstruction(features: Tensor, logits: Tensor) -> Tensor:
    """−log p(x|z) for features between 0 and 1, Eq. 5."""
    return F.binary_cross_entropy_with_logits(logits, features, reduction="none").sum(-1)


def cosine_similarity(
    embedding: Tensor, label_embeddings: Tensor, inner: Tensor | None = None
) -> Tensor:
    """Return the cosines of rows and labels, (n_members, n_rows, n_labels); 0 if a norm is 0.

    Parameters
    ----------
    embedding : Tensor, (n_members, n_rows, width)
    label_embeddings : Tensor, (n_members, n_labels, width)
    inner : Tensor, (n_members, n_rows, n_labels), optional
        Their inner products, if these have been computed already.
    """
    if inner is None:
        inner = inner_products(embedding, label_embeddings)
    rows = torch.linalg.vector_norm(embedding, dim=-1).clamp(min=MIN_NORM)
    columns = torch.linalg.vector_norm(label_embeddings, dim=-1).clamp(min=MIN_NORM)
    return inner / (rows[:, :, None] * columns[:, None, :])


def contrastive(
    similarity: Tensor, positive: Tensor, known: Tensor, counts: Tensor | None = None
) -> Tensor:
    """Mean over the positive labels of −log softmax(similarity), Eq. 6; 0 without positives.

    ``similarity`` is already divided by the temperature. With ``counts``, (n_members, n_labels),
    the denominator is an unbiased estimate of the sum over all labels.
    """
    if counts is None and cuda.fuses_labels(similarity):
        return cuda.label_loss(similarity, positive, known, contrastive=True)
    n_positive = positive.sum(-1)
    anchored = n_positive > 0
    # A row without positives may have no known label: −inf, and no gradient. Its logits become 0.
    logits = similarity if counts is None else similarity + counts.log()[:, None, :]
    logits = logits.masked_fill(~known, -torch.inf).masked_fill(~anchored[..., None], 0.0)
    attraction = similarity.masked_fill(~positive, 0.0).sum(-1) / n_positive.clamp(min=1)
    return torch.where(anchored, torch.logsumexp(logits, dim=-1) - attraction, 0.0)


def triplet(
    similarity: Tensor, positive: Tensor, known: Tensor, draws: Tensor, *, gap: float = 1.0
) -> Tensor:
    """Hinge on one positive and one negative label of each row (appendix A.1).

    Embeddings have unit norm, so a squared distance is 2 − 2·cosine; ``similarity`` is the cosine.
    ``draws``, uniform and of the same shape, pick the two labels. 0 if the row lacks either.
    """
    negative = known & ~positive
    pick_positive = torch.where(positive, draws, -1.0).argmax(-1, keepdim=True)
    pick_negative = torch.where(negative, draws, -1.0).argmax(-1, keepdim=True)
    closer = similarity.gather(-1, pick_negative) - similarity.gather(-1, pick_positive)
    both = positive.any(-1) & negative.any(-1)
    # Deviation D11: the appendix prints the sum of both distances.
    return torch.where(both, F.relu(gap + 2 * closer.squeeze(-1)), 0.0)


def ranking(scores: Tensor, positive: Tensor, known: Tensor) -> Tensor:
    """Mean over pairs of exp(negative's score − positive's score); 0 if the row has no pair.

    The mean of the products is the product of the means, so no tensor of pairs is formed.
    """
    negative = known & ~positive
    # Masked before the exponential: multiplying by 0 would turn an overflow into NaN.
    rise = torch.exp(scores.masked_fill(~negative, -torch.inf)).sum(-1)
    fall = torch.exp(-scores.masked_fill(~positive, torch.inf)).sum(-1)
    return rise * fall / (negative.sum(-1) * positive.sum(-1)).clamp(min=1)


def cross_entropy(
    logits: Tensor, positive: Tensor, known: Tensor, counts: Tensor | None = None
) -> Tensor:
    """Binary cross-entropy summed over the known labels, Eq. 7 with the sign of a loss.

    With ``counts``, (n_members, n_labels), an unbiased estimate of the sum over all labels.
    """
    if counts is None and cuda.fuses_labels(logits):
        return cuda.label_loss(logits, positive, known, contrastive=False)
    # −log σ(l) = softplus(−l) for positives, −log(1 − σ(l)) = softplus(l) for negatives.
    losses = F.softplus(torch.where(positive, -logits, logits))
    if counts is not None:
        losses = losses * counts[:, None, :]
    return losses.masked_fill(~known, 0.0).sum(-1)


def probit_likelihood(shifted: Tensor, positive: Tensor, known: Tensor) -> Tensor:
    """−log of the mean over draws of ∏ Φ(± logit), the product over the known labels.

    Parameters
    ----------
    shifted : Tensor, (n_members, n_draws, n_rows, n_labels)
        Logits with draws of the shared noise added.
    positive, known : Tensor of bool, (n_members, n_rows, n_labels)
    """
    signed = torch.where(positive[:, None], shifted, -shifted)
    log_p = torch.special.log_ndtr(signed).masked_fill(~known[:, None], 0.0).sum(-1)
    return math.log(shifted.shape[1]) - torch.logsumexp(log_p, dim=1)


def _total(parts: Iterable[Tensor]) -> Tensor:
    """Add up tensors of one shape."""
    return functools.reduce(torch.add, parts)


def _mean(parts: Iterable[Tensor]) -> Tensor:
    """Return the mean of tensors of one shape."""
    first, *others = parts
    return _total([first, *others]) / (1 + len(others)) if others else first


def _kl_term(out: Outputs) -> Tensor:
    """Eq. 4, for the mixture and for the priors that it is compared with."""
    if out.prior is None:
        zeros = torch.zeros_like(out.z)
        return kl_to_gaussian(out.posterior, Gaussian(zeros, zeros))
    if out.chosen is None:
        has_prior = chosen_components(out.labels.positive, out.labels.known).any(-1)
        return torch.where(has_prior, kl_to_gaussian(out.posterior, out.prior), 0.0)
    return kl_to_mixture(out.z, out.posterior, out.prior, out.chosen)


def _reconstruction_term(out: Outputs) -> Tensor:
    """Eq. 5."""
    assert out.features is not None
    assert out.reconstructed is not None
    loss = bernoulli_reconstruction if out.bernoulli else gaussian_reconstruction
    return loss(out.features, out.reconstructed)


def _cosines(out: Outputs, view: View) -> Tensor:
    if view.cosines is not None:
        return view.cosines
    return cosine_similarity(view.embedding, out.label_embeddings, view.inner)


def _contrastive_term(out: Outputs) -> Tensor:
    """Eq. 6, the mean over the aligned views: each view of a row is an anchor."""
    similarities = (_cosines(out, view) if out.cosine else view.inner for view in out.aligned)
    temperature = out.temperature[:, None, None]
    return _mean(contrastive(each / temperature, *out.labels) for each in similarities)


def _triplet_term(out: Outputs) -> Tensor:
    """In place of Eq. 6; without draws, which is evaluation, the first label of each kind."""
    positive, known, _ = out.labels
    draws = torch.zeros_like(out.views[0].inner) if out.triplet_draws is None else out.triplet_draws
    return _mean(triplet(_cosines(out, view), positive, known, draws) for view in out.aligned)


def _ranking_term(out: Outputs) -> Tensor:
    """In place of Eq. 6."""
    positive, known, _ = out.labels
    return _mean(ranking(torch.sigmoid(v.logits), positive, known) for v in out.aligned)


def _cross_entropy_term(out: Outputs) -> Tensor:
    """Eq. 7, added up over the views."""
    return _total(cross_entropy(view.logits, *out.labels) for view in out.views)


def _probit_term(out: Outputs) -> Tensor:
    """In place of Eq. 7, with the labels' covariance."""
    assert out.shared_noise is not None
    positive, known, _ = out.labels
    shifted = (view.logits[:, None] + out.shared_noise for view in out.views)
    return _total(probit_likelihood(each, positive, known) for each in shifted)


#: Every term by the name of its weight.
TERMS: dict[str, Callable[[Outputs], Tensor]] = {
    "kl": _kl_term,
    "reconstruction": _reconstruction_term,
    "contrastive": _contrastive_term,
    "cross_entropy": _cross_entropy_term,
    # What studies put in place of the contrastive term and of cross-entropy.
    "triplet": _triplet_term,
    "ranking": _ranking_term,
    "probit": _probit_term,
}
