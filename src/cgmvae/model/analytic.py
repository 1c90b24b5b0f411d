"""Terms of the objective with gradients of their own, for training on a processor.

They are those of :mod:`cgmvae.model.objective`, which says what they are and which their tests
compare them with. Operation by operation, autograd makes some two hundred small calls for them,
each of which costs more than its arithmetic.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from cgmvae.nn.gaussian import Gaussian

#: Norms are at least this, as in the cosines of ``objective``.
_TINY = 1e-12

#: The logarithm of what has no share; finite, so that a row without any share has numbers too.
_NEVER = -1e30


def kl_to_mixture(z: Tensor, posterior: Gaussian, components: Gaussian, chosen: Tensor) -> Tensor:
    """Return what ``objective.kl_to_mixture`` returns, (n_members, n_rows)."""
    return _KLToMixture.apply(chosen, z, *posterior, *components)


def contrastive_and_cross_entropy(
    embedding: Tensor,
    labels: Tensor,
    bias: Tensor | None,
    temperature: Tensor,
    *,
    positive: Tensor,
    known: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the two terms that score feature embeddings against label embeddings, Eq. 6 and 7.

    Parameters
    ----------
    embedding : Tensor, (n_members, n_rows, width)
    labels : Tensor, (n_members, n_labels, width)
    bias : Tensor, (n_members, n_labels), optional
        What the logits of the cross-entropy have beside the inner products.
    temperature : Tensor, (n_members,)
        What the cosines of the contrastive term are divided by.
    positive, known : Tensor of bool, (n_members, n_rows, n_labels)

    Returns
    -------
    contrastive, cross_entropy : Tensor, (n_members, n_rows)
    """
    return _LabelTerms.apply(embedding, labels, bias, temperature, positive, known)


class _KLToMixture(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, chosen: Tensor, z: Tensor, mean: Tensor, log_variance: Tensor, *components: Tensor
    ) -> Tensor:
        ctx.dtype, n_chosen = z.dtype, chosen.sum(-1)
        z, log_variance = z.double(), log_variance.double()
        gap = z - mean
        pull = gap * torch.exp(-log_variance)
        own = torch.addcmul(log_variance, gap, pull).sum(-1)
        # (z², z) and (1/σ², −2 μ/σ²): quadratic forms as one product.
        powers = torch.cat([z * z, z], dim=-1)
        centers, log_spreads = (part.double() for part in components)
        forms, constant = _quadratic_forms(centers, log_spreads)
        log_p = torch.baddbmm(constant[:, None], powers, forms.transpose(1, 2)).mul_(-0.5)
        log_p.masked_fill_(~chosen, _NEVER)
        total = torch.logsumexp(log_p, dim=-1, keepdim=True)
        share = log_p.sub_(total).exp_()
        ctx.save_for_backward(gap, pull, powers, forms, centers, share, n_chosen)
        divergence = torch.log(n_chosen.clamp(min=1).double()) - 0.5 * own - total[..., 0]
        return torch.where(n_chosen > 0, divergence, 0.0).to(ctx.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> Any:
        gap, pull, powers, forms, centers, share, n_chosen = ctx.saved_tensors
        d_out = (d_out * (n_chosen > 0)).double()[..., None]
        share, d_mean = share * d_out, pull * d_out
        d_log_variance = torch.addcmul(-d_out, d_mean, gap).mul_(0.5)
        # To each row from the components, Σ share (z − μ) / σ², less the pull of its own.
        precision, _ = forms.chunk(2, dim=-1)
        square, line = torch.bmm(share, forms).chunk(2, dim=-1)
        _, z = powers.chunk(2, dim=-1)
        d_z = torch.addcmul(0.5 * line - d_mean, z, square)
        # To each component from the rows, through Σ share, Σ share z² and Σ share z.
        weight = share.sum(1)[..., None]
        squares, sums = torch.bmm(share.transpose(1, 2), powers).chunk(2, dim=-1)
        away = weight * centers - sums
        spread = torch.addcmul(squares, centers, away - sums)
        d_log_spreads = torch.addcmul(weight, precision, spread, value=-1).mul_(0.5)
        found = (d_z, d_mean, d_log_variance, away.mul_(precision), d_log_spreads)
        return None, *(gradient.to(ctx.dtype) for gradient in found)


def _quadratic_forms(centers: Tensor, log_spreads: Tensor) -> tuple[Tensor, Tensor]:
    """Return what (z², z) is multiplied with, (M, C, 2 d), and what is added to it, (M, C).

    The sum is −2 log N(z | μ, σ²) without d log 2π, which cancels in a divergence.
    """
    precision = torch.exp(-log_spreads)
    scaled = centers * precision
    constant = torch.addcmul(log_spreads, centers, scaled).sum(-1)
    return torch.cat([precision, -2 * scaled], dim=-1), constant


class _LabelTerms(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        labels: Tensor,
        bias: Tensor | None,
        temperature: Tensor,
        positive: Tensor,
        known: Tensor,
    ) -> tuple[Tensor, Tensor]:
        inner, unknown = torch.bmm(x, labels.transpose(1, 2)), ~known
        rows = torch.linalg.vector_norm(x, dim=-1)
        columns = torch.linalg.vector_norm(labels, dim=-1)
        scale = (columns.clamp(min=_TINY) * temperature[:, None])[:, None]
        scale = (rows.clamp(min=_TINY)[..., None] * scale).reciprocal_()
        similarity = inner * scale
        contrastive, d_similarity = _contrastive(similarity, positive, unknown)
        logits = inner if bias is None else inner + bias[:, None]
        cross_entropy, d_logits = _cross_entropy(logits, positive, unknown)
        ctx.save_for_backward(x, labels, rows, columns, scale, similarity, d_similarity, d_logits)
        return contrastive, cross_entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_contrastive: Tensor, d_cross_entropy: Tensor) -> Any:
        x, labels, rows, columns, scale, similarity, d_similarity, d_logits = ctx.saved_tensors
        d_similarity = d_similarity * d_contrastive[..., None]
        d_logits = d_logits * d_cross_entropy[..., None]
        d_inner = torch.addcmul(d_logits, d_similarity, scale)
        # A longer row or label has smaller cosines.
        longer = d_similarity.mul_(similarity)
        d_x = x * _of_norms(longer.sum(2), rows)
        d_labels = labels * _of_norms(longer.sum(1), columns)
        d_x.baddbmm_(d_inner, labels)
        d_labels.baddbmm_(d_inner.transpose(1, 2), x)
        d_bias = d_logits.sum(1) if ctx.needs_input_grad[2] else None
        return d_x, d_labels, d_bias, None, None, None


def _contrastive(similarity: Tensor, positive: Tensor, unknown: Tensor) -> tuple[Tensor, Tensor]:
    """Return the term, (M, B), and its derivatives by the similarities, (M, B, L)."""
    n_positive = positive.sum(-1, keepdim=True)
    anchored = n_positive > 0
    logits = similarity.masked_fill(unknown, _NEVER)
    total = torch.logsumexp(logits, dim=-1, keepdim=True)
    weight = positive / n_positive.clamp(min=1).to(similarity.dtype)
    attraction = (similarity * weight).sum(-1, keepdim=True)
    slope = logits.sub_(total).exp_().sub_(weight).masked_fill_(~anchored, 0.0)
    return torch.where(anchored, total - attraction, 0.0)[..., 0], slope


def _cross_entropy(logits: Tensor, positive: Tensor, unknown: Tensor) -> tuple[Tensor, Tensor]:
    """Return the term, (M, B), and its derivatives by the logits, (M, B, L)."""
    signed = torch.where(positive, -logits, logits)
    loss, slope = F.softplus(signed).masked_fill_(unknown, 0.0), torch.sigmoid(signed)
    return loss.sum(-1), torch.where(positive, -slope, slope).masked_fill_(unknown, 0.0)


def _of_norms(longer: Tensor, norms: Tensor) -> Tensor:
    """Return what vectors are multiplied by in their gradients, (M, n, 1); 0 where they are 0."""
    return torch.where(norms > _TINY, -longer / (norms * norms), 0.0)[..., None]
