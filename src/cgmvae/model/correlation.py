"""What the paper replaces its contrastive module with, to compare: a covariance or a graph.

:class:`LabelCovariance` turns the logits into a multivariate probit whose latent noise is shared
between labels, as in MPVAE; :class:`LabelGraph` lets label embeddings exchange messages along the
labels' co-occurrence before the inner products.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cgmvae.nn.noise import Noise
from cgmvae.nn.packed import PackedLinear


class LabelCovariance(nn.Module):
    """Multivariate probit with covariance I + V Vᵀ, V of low rank.

    Given shared noise ε, labels are independent with probability Φ(logit + V ε); without it each
    label has probability Φ(logit / √(1 + ‖V_i‖²)).
    """

    def __init__(self, n_labels: int, rank: int, noise: Noise, *, dtype: torch.dtype) -> None:
        super().__init__()
        scale = 0.1 * rank**-0.5
        self.factors = nn.Parameter(noise.normal(n_labels, rank, dtype=dtype) * scale)

    def marginal(self, logits: Tensor) -> Tensor:
        """Return the probability of each label, (M, B, L)."""
        spread = torch.sqrt(1 + (self.factors**2).sum(-1))[:, None, :]
        return torch.special.ndtr(logits / spread)

    def negative_log_likelihood(
        self, logits: Tensor, positive: Tensor, known: Tensor, noise: Noise | None, n_draws: int
    ) -> Tensor:
        """Return −log P(known labels | x), estimated from draws of the shared noise, (M, B)."""
        likelihoods = []
        for _ in range(n_draws if noise is not None else 1):
            shifted = logits
            if noise is not None:
                rank = self.factors.shape[-1]
                shared = noise.normal(logits.shape[1], rank, dtype=logits.dtype)
                shifted = torch.baddbmm(logits, shared, self.factors.transpose(1, 2))
            signed = torch.where(positive, shifted, -shifted)
            log_p = torch.special.log_ndtr(signed).masked_fill(~known, 0.0)
            likelihoods.append(log_p.sum(-1))
        return math.log(len(likelihoods)) - torch.logsumexp(torch.stack(likelihoods), dim=0)


class LabelGraph(nn.Module):
    """Two rounds of messages between labels that occur together, added to their embeddings."""

    def __init__(self, n_labels: int, width: int, noise: Noise, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.first = PackedLinear(width, width, noise, dtype=dtype)
        self.second = PackedLinear(width, width, noise, dtype=dtype)
        nobody = torch.zeros(noise.n_members, n_labels, n_labels, dtype=dtype, device=noise.device)
        self.register_buffer("edges", nobody)

    edges: Tensor

    def connect(self, cooccurrence: Tensor) -> None:
        """Set the graph from counts of rows that have both labels, (M, L, L).

        An edge weighs the share of one label's rows that have the other, 1 for a label and itself;
        each label's incoming edges are scaled to add up to 1.
        """
        counts = cooccurrence.to(self.edges)
        own = torch.diagonal(counts, dim1=1, dim2=2).clamp(min=1)
        share = counts / own[:, None, :]
        torch.diagonal(share, dim1=1, dim2=2).fill_(1.0)
        self.edges.copy_(share / share.sum(-1, keepdim=True))

    def forward(self, embeddings: Tensor) -> Tensor:
        """Map label embeddings, (M, L, E), to those that know their neighbours."""
        hidden = torch.relu(self.first(torch.bmm(self.edges, embeddings)))
        return embeddings + self.second(torch.bmm(self.edges, hidden))
