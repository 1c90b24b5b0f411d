"""Contrastive term and cross-entropy of many labels, block by block, with their own gradient.

Both terms need the inner product of every row with every label and nothing else of that size, so
it is made for a block of labels at a time, forward and again backward: no tensor of rows × labels
is kept. What it computes is :func:`~cgmvae.model.objective.cross_entropy` and
:func:`~cgmvae.model.objective.contrastive` of the same products, which stay the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Labels whose products with the rows of a batch are held at a time.
LABEL_BLOCK = 4096

#: Below this norm an embedding has no direction.
_TINY = 1e-12


class LabelLosses(NamedTuple):
    """One number a row, (n_members, n_rows)."""

    cross_entropy: Tensor
    contrastive: Tensor


def label_losses(
    embedding: Tensor,
    labels: Tensor,
    bias: Tensor,
    positive: Tensor,
    known: Tensor,
    *,
    temperature: Tensor,
    stands_for: Tensor | None = None,
    place: Tensor | None = None,
) -> LabelLosses:
    """Return the two terms of each row.

    Parameters
    ----------
    embedding : Tensor, (n_members, n_rows, width)
        Of the rows.
    labels : Tensor, (n_members, n_labels, width)
        Embeddings of the labels; the contrastive term compares directions alone.
    bias : Tensor, (n_members, n_labels)
        Added to the inner products for cross-entropy.
    positive, known : Tensor of bool, (n_members, n_rows, n_labels)
    temperature : Tensor, (n_members,)
        Of the contrastive term.
    stands_for : Tensor, (n_members, n_labels), optional
        How many labels each one stands for, where they are a sample of all.
    place : Tensor of the shape of ``labels``, optional
        Where their gradient goes; None for a new tensor.
    """
    # Not by autograd, whose gradient would be a second tensor of the size of the labels.
    lengths = torch.linalg.vector_norm(labels.detach(), dim=-1).clamp(min=_TINY)
    sizes = torch.linalg.vector_norm(embedding, dim=-1).clamp(min=_TINY) * temperature[:, None]
    weight = torch.ones_like(bias) if stands_for is None else stands_for.to(bias.dtype)
    return LabelLosses(
        *_LabelLosses.apply(place, embedding, labels, bias, sizes, lengths, positive, known, weight)
    )


class _Block(NamedTuple):
    """What is made of one block of labels."""

    part: slice
    inner: Tensor
    signed: Tensor
    """The logit, turned round for a positive label."""
    similarity: Tensor
    """Cosine over temperature, −inf for unknown labels."""


def _blocks(
    embedding: Tensor,
    labels: Tensor,
    bias: Tensor,
    sizes: Tensor,
    lengths: Tensor,
    positive: Tensor,
    known: Tensor,
) -> Iterator[_Block]:
    for start in range(0, labels.shape[1], LABEL_BLOCK):
        part = slice(start, start + LABEL_BLOCK)
        inner = torch.bmm(embedding, labels[:, part].transpose(1, 2))
        logits = inner + bias[:, None, part]
        signed = torch.where(positive[..., part], -logits, logits)
        similarity = (inner / lengths[:, None, part]).div_(sizes[..., None])
        yield _Block(part, inner, signed, similarity.masked_fill_(~known[..., part], -torch.inf))


class _LabelLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, place: Tensor | None, *given: Tensor) -> tuple[Tensor, Tensor]:
        *made_of, weight = given
        ctx.place = place
        positive, known = made_of[-2:]
        n_positive = positive.sum(-1)
        anchored = n_positive > 0
        entropy = torch.zeros_like(made_of[3])
        attraction, total = torch.zeros_like(entropy), torch.full_like(entropy, -torch.inf)
        for block in _blocks(*made_of):
            own = weight[:, None, block.part]
            losses = F.softplus(block.signed).mul_(own)
            entropy += losses.masked_fill_(~known[..., block.part], 0.0).sum(-1)
            total = torch.logaddexp(total, torch.logsumexp(block.similarity + own.log(), dim=-1))
            attraction += block.similarity.masked_fill(~positive[..., block.part], 0.0).sum(-1)
        attraction /= n_positive.clamp(min=1)
        ctx.save_for_backward(*given, total, n_positive)
        return entropy, torch.where(anchored, total - attraction, 0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_entropy: Tensor, d_contrastive: Tensor) -> Any:
        *made_of, weight, total, n_positive = ctx.saved_tensors
        embedding, labels, bias, sizes, lengths, positive, known = made_of
        # Of a positive label's share in the attraction; rows without one have no gradient.
        pull = torch.where(n_positive > 0, d_contrastive, 0.0)[..., None]
        share = pull / n_positive.clamp(min=1)[..., None]
        total = torch.where(n_positive > 0, total, 0.0)[..., None]
        d_embedding, d_sizes = torch.zeros_like(embedding), torch.zeros_like(sizes)
        d_bias = torch.empty_like(bias)
        d_labels = torch.empty_like(labels) if ctx.place is None else ctx.place
        for part, inner, signed, similarity in _blocks(*made_of):
            own, is_positive = weight[:, None, part], positive[..., part]
            d_logits = torch.sigmoid(signed).mul_(own).mul_(d_entropy[..., None])
            d_logits = torch.where(is_positive, -d_logits, d_logits)
            d_logits.masked_fill_(~known[..., part], 0.0)
            d_bias[:, part] = d_logits.sum(1)
            chosen = torch.exp(similarity - total).mul_(own).mul_(pull)
            d_similarity = torch.where(is_positive, chosen - share, chosen)
            d_cosine = d_similarity / sizes[..., None]
            weighed = d_cosine * inner
            # A longer label has smaller cosines; one without direction has none.
            longer = -weighed.sum(1) / lengths[:, part] ** 3
            longer.masked_fill_(lengths[:, part] <= _TINY, 0.0)
            d_sizes -= (weighed / lengths[:, None, part]).sum(-1) / sizes
            d_inner = d_logits.add_(d_cosine.div_(lengths[:, None, part]))
            d_embedding.baddbmm_(d_inner, labels[:, part])
            torch.mul(labels[:, part], longer[..., None], out=d_labels[:, part])
            d_labels[:, part].baddbmm_(d_inner.transpose(1, 2), embedding)
        return None, d_embedding, d_labels, d_bias, d_sizes, None, None, None, None
