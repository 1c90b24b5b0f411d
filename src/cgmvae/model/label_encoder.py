"""From label embeddings to the labels' Gaussians in the latent space (section 2.2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cgmvae.nn.gaussian import Gaussian
from cgmvae.nn.noise import Noise
from cgmvae.nn.packed import PackedMLP


class LabelEncoder(nn.Module):
    """Learnable label embeddings w_i^l, and one network that maps each to (μ_i, σ_i²).

    A background component stands for rows that have none of the labels.

    Parameters
    ----------
    n_labels, embedding_dim, latent_dim : int
        L, E and d.
    hidden : sequence of int
        Widths of the hidden layers.
    relu_first : bool
        Whether embeddings pass a ReLU and dropout before the network, as hidden units do.
    noise : Noise
        Where first weights come from; embeddings start normal with variance scale²/E.
    """

    def __init__(
        self,
        n_labels: int,
        embedding_dim: int,
        latent_dim: int,
        hidden: Sequence[int],
        noise: Noise,
        *,
        scale: float,
        relu_first: bool,
        layer_norm: bool,
        activation: str,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        first = noise.normal(n_labels, embedding_dim, dtype=dtype) * (scale * embedding_dim**-0.5)
        self.embeddings = nn.Parameter(first)
        widths = (embedding_dim, *hidden, 2 * latent_dim)
        self.network = PackedMLP(
            widths, noise, layer_norm=layer_norm, activation=activation, dtype=dtype
        )
        shape = (noise.n_members, 2 * latent_dim)
        self.background = nn.Parameter(torch.zeros(shape, dtype=dtype, device=noise.device))
        self.relu_first = relu_first

    def forward(self, noise: Noise | None, rate: Tensor) -> Gaussian:
        """Return the Gaussians of the labels and, last, of the background, (M, L + 1, d)."""
        output = self._encode(self.embeddings, noise, rate)
        return Gaussian.from_output(torch.cat([output, self.background[:, None]], dim=1))

    def of_set(self, positive: Tensor, noise: Noise | None, rate: Tensor) -> Gaussian:
        """Return one Gaussian for each row's label set, from the sum of its embeddings.

        The unimodal prior of earlier models: ``positive`` (M, B, L) gives (M, B, d).
        """
        summed = torch.bmm(positive.to(self.embeddings.dtype), self.embeddings)
        return Gaussian.from_output(self._encode(summed, noise, rate))

    def _encode(self, embeddings: Tensor, noise: Noise | None, rate: Tensor) -> Tensor:
        if self.relu_first:
            embeddings = torch.relu(embeddings)
            embeddings = embeddings if noise is None else noise.dropout(embeddings, rate)
        return self.network(embeddings, noise, rate)
