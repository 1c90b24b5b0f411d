"""What the paper replaces its contrastive module with, to compare: a covariance or a graph.

:class:`LabelCovariance` turns the logits into a multivariate probit whose latent noise is shared
between labels, as in MPVAE; :class:`LabelGraph` lets label embeddings exchange messages along the
labels' co-occurrence before the inner products.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cgmvae.nn.packed import PackedLinear
from cgmvae.nn.rng import RandomStreams

# Deviation D24: the paper does not say which covariance and which GNN it means.


class LabelCovariance(nn.Module):
    """Multivariate probit with covariance I + V Vᵀ, V of low rank; rank 0 is the identity.

    Given shared noise ε, labels are independent with probability Φ(logit + V ε); without it each
    label has probability Φ(logit / √(1 + ‖V_i‖²)).
    """

    factors: Tensor

    def __init__(
        self, n_labels: int, rank: int, streams: RandomStreams, *, dtype: torch.dtype
    ) -> None:
        super().__init__()
        scale = 0.1 * max(rank, 1) ** -0.5
        first = streams.normal_weights(
            "covariance.factors", n_labels, rank, scale=scale, dtype=dtype
        )
        if rank > 0:
            self.factors = nn.Parameter(first)
        else:  # nothing to learn or to keep: a parameter must have elements
            self.register_buffer("factors", first, persistent=False)

    def matrix(self) -> Tensor:
        """Return the covariance I + V Vᵀ, (M, L, L)."""
        identity = torch.eye(self.factors.shape[1]).to(self.factors)
        return identity + torch.bmm(self.factors, self.factors.transpose(1, 2))

    def marginal(self, logits: Tensor) -> Tensor:
        """Return the probability of each label, (M, B, L)."""
        spread = torch.sqrt(1 + (self.factors**2).sum(-1))[:, None, :]
        return torch.special.ndtr(logits / spread)

    def shared_noise(self, n_rows: int, streams: RandomStreams | None, n_draws: int) -> Tensor:
        """Return draws of V ε for each row, (M, n_draws, n_rows, L); one of zeros in evaluation."""
        n_members, n_labels, rank = self.factors.shape
        if streams is None or rank == 0:
            return self.factors.new_zeros(n_members, 1, n_rows, n_labels)
        epsilon = streams.normal("covariance", n_draws, n_rows, rank, dtype=self.factors.dtype)
        drawn = torch.bmm(epsilon.flatten(1, 2), self.factors.transpose(1, 2))
        return drawn.view(n_members, n_draws, n_rows, n_labels)


class LabelGraph(nn.Module):
    """Two rounds of messages between labels that occur together, added to their embeddings."""

    def __init__(
        self, n_labels: int, width: int, streams: RandomStreams, *, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.first = PackedLinear(width, width, streams, "graph.first", dtype=dtype)
        self.second = PackedLinear(width, width, streams, "graph.second", dtype=dtype)
        no_edges = torch.zeros(
            streams.n_members, n_labels, n_labels, dtype=dtype, device=streams.device
        )
        self.register_buffer("edges", no_edges)

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
        """Map label embeddings, (M, L, E), to ones that depend on their neighbors too."""
        hidden = torch.relu(self.first(torch.bmm(self.edges, embeddings)))
        return embeddings + self.second(torch.bmm(self.edges, hidden))
