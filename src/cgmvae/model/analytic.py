"""Terms of the objective together with their gradients, for training on a processor.

They are those of :mod:`cgmvae.model.objective`, which says what they are and which their tests
compare them with. Operation by operation, autograd makes some two hundred small calls for them,
each of which costs more than its arithmetic. Here a term is told how much it counts in each row,
and gives its gradient along with it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cgmvae.nn.gaussian import Gaussian
from cgmvae.nn.products import times_transposed

#: Norms are at least this, as in the cosines of ``objective``.
_TINY = 1e-12

#: The logarithm of what has no share; finite, so that a row without any share has numbers too.
_NEVER = -1e30


class Divergence(NamedTuple):
    """The KL of each row, and the gradient of its weighted sum."""

    kl: Tensor
    """(n_members, n_rows)"""
    d_z: Tensor
    """Of the draw, where ε stays and mean and variance move it, (n_members, n_rows, d)"""
    d_log_variance: Tensor
    """Of each dimension of the posterior beside that, (n_members, n_rows, 1)"""
    d_components: Gaussian
    """(n_members, n_components, d)"""


def kl_to_mixture(
    z: Tensor,
    epsilon: Tensor,
    log_variance: Tensor,
    components: Gaussian,
    chosen: Tensor,
    weight: Tensor,
) -> Divergence:
    """Return what ``objective.kl_to_mixture`` returns, and its gradients.

    Parameters
    ----------
    z, epsilon, log_variance : Tensor, (n_members, n_rows, d)
        A draw from the posterior, μ + σ ε, the ε that it came from, and log σ².
    components : Gaussian, (n_members, n_components, d)
    chosen : Tensor of bool, (n_members, n_rows, n_components)
    weight : Tensor, (n_members, n_rows)
        How much each row counts.
    """
    dtype, n_chosen = z.dtype, chosen.sum(-1)
    has_prior = n_chosen > 0
    # log q(z|x), of which (z − μ)² / σ² = ε² does not move: it leaves −½ for each log σ².
    own = torch.addcmul(log_variance, epsilon, epsilon).sum(-1)
    # log p(z|y) in float64, its quadratic forms as one product of (z², z) and (−½/σ², μ/σ²).
    z = z.double()
    powers = torch.cat([z * z, z], dim=-1)
    centers, log_spreads = (part.double() for part in components)
    precision = torch.exp(-log_spreads)
    scaled = centers * precision
    constant = torch.addcmul(log_spreads, centers, scaled).sum(-1).mul_(-0.5)
    forms = torch.cat([-0.5 * precision, scaled], dim=-1)
    log_p = torch.baddbmm(constant[:, None], powers, forms.mT).masked_fill_(~chosen, _NEVER)
    highest = log_p.amax(-1, keepdim=True)
    density = log_p.sub_(highest).exp_()
    total = density.sum(-1, keepdim=True)
    log_total = torch.log(total / n_chosen.clamp(min=1)[..., None]).add_(highest)[..., 0]
    # What each component has of its row's density, and of the row's weight.
    weight = weight * has_prior
    share = density.mul_(weight[..., None] / total)
    # To each row from the components: Σ share (z − μ) / σ².
    square, line = torch.bmm(share, forms).chunk(2, dim=-1)
    d_z = torch.addcmul(line, z, square, value=2).neg_()
    # To each component from the rows, through Σ share, Σ share z² and Σ share z.
    part = share.sum(1)[..., None]
    squares, sums = torch.bmm(share.mT, powers).chunk(2, dim=-1)
    away = part * centers - sums
    spread = torch.addcmul(squares, centers, away - sums)
    d_log_spreads = torch.addcmul(part, precision, spread, value=-1).mul_(0.5)
    return Divergence(
        torch.where(has_prior, -log_total - 0.5 * own, 0.0).to(dtype),
        d_z.to(dtype),
        -0.5 * weight[..., None],
        Gaussian(away.mul_(precision).to(dtype), d_log_spreads.to(dtype)),
    )


class LabelTerms(NamedTuple):
    """The terms that score embeddings, and the gradients of their weighted sums."""

    contrastive: Tensor
    """(n_members, n_rows)"""
    cross_entropy: Tensor
    """(n_members, n_rows)"""
    d_embedding: Tensor
    """(n_members, n_rows, width)"""
    d_bias: Tensor
    """(n_members, n_labels)"""


def contrastive_and_cross_entropy(
    embedding: Tensor,
    labels: Tensor,
    bias: Tensor | None,
    temperature: Tensor,
    *,
    positive: Tensor,
    known: Tensor,
    weights: tuple[Tensor, Tensor],
    place: Tensor,
) -> LabelTerms:
    """Return the two terms that score feature embeddings against label embeddings, Eq. 6 and 7.

    Parameters
    ----------
    embedding : Tensor, (n_members, n_rows, width)
        Used up: the memory becomes that of its gradient.
    labels : Tensor, (n_members, n_labels, width)
    bias : Tensor, (n_members, n_labels), optional
        What the logits of the cross-entropy have beside the inner products.
    temperature : Tensor, (n_members,)
        What the cosines of the contrastive term are divided by.
    positive, known : Tensor of bool, (n_members, n_rows, n_labels)
    weights : two of Tensor, (n_members, n_rows)
        How much the contrastive term and the cross-entropy of each row count.
    place : Tensor, (n_members, n_labels, width)
        Where the gradient of the labels goes.
    """
    of_contrastive, of_entropy = weights
    inner, unknown = times_transposed(embedding, labels), ~known
    rows = torch.linalg.vector_norm(embedding, dim=-1, keepdim=True)
    columns = torch.linalg.vector_norm(labels, dim=-1, keepdim=True)
    scale = columns.clamp(min=_TINY).mT * temperature[:, None, None]
    scale = (rows.clamp(min=_TINY) * scale).reciprocal_()
    similarity = inner * scale
    contrastive, d_similarity = _contrastive(similarity, positive, unknown, of_contrastive)
    logits = inner if bias is None else inner.add_(bias[:, None])
    cross_entropy, d_logits = _cross_entropy(logits, positive, unknown, of_entropy)
    d_bias = d_logits.sum(1)
    d_inner = d_logits.addcmul_(d_similarity, scale)
    # A longer row or label has smaller cosines.
    longer = d_similarity.mul_(similarity)
    torch.mul(labels, _of_norms(longer.sum(1, keepdim=True).mT, columns), out=place)
    place.baddbmm_(d_inner.mT, embedding)
    d_embedding = embedding.mul_(_of_norms(longer.sum(2, keepdim=True), rows))
    return LabelTerms(contrastive, cross_entropy, d_embedding.baddbmm_(d_inner, labels), d_bias)


def _contrastive(
    similarity: Tensor, positive: Tensor, unknown: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the term, (M, B), and the derivatives by the similarities, (M, B, L)."""
    n_positive = positive.sum(-1, keepdim=True)
    part = positive / n_positive.clamp(min=1).to(similarity.dtype)
    log_share = torch.log_softmax(similarity.masked_fill(unknown, _NEVER), dim=-1)
    term = (part * log_share).sum(-1).neg_()
    # A row without a positive label has no term.
    return term, log_share.exp_().sub_(part).mul_(weight[..., None] * (n_positive > 0))


def _cross_entropy(
    logits: Tensor, positive: Tensor, unknown: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the term, (M, B), and the derivatives by the logits, (M, B, L)."""
    sign = 1 - 2 * positive.to(logits.dtype)
    signed = logits * sign
    loss = F.softplus(signed).masked_fill_(unknown, 0.0).sum(-1)
    return loss, torch.sigmoid(signed).mul_(sign).masked_fill_(unknown, 0.0).mul_(weight[..., None])


def _of_norms(longer: Tensor, norms: Tensor) -> Tensor:
    """Return what vectors are multiplied by in their gradients, (M, n, 1); 0 where they are 0."""
    return torch.where(norms > _TINY, -longer / (norms * norms), 0.0)
