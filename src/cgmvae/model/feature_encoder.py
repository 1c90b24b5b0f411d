"""From features to the posterior q(z|x) in the latent space."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cgmvae.nn.gaussian import Gaussian
from cgmvae.nn.noise import Noise
from cgmvae.nn.packed import PackedMLP
from cgmvae.nn.sparse_rows import SparseRows


class FeatureEncoder(nn.Module):
    """A network that maps each row's features to (μ(x), σ²(x))."""

    def __init__(
        self,
        n_features: int,
        latent_dim: int,
        hidden: Sequence[int],
        noise: Noise,
        *,
        layer_norm: bool,
        activation: str,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.network = PackedMLP(
            (n_features, *hidden, 2 * latent_dim),
            noise,
            layer_norm=layer_norm,
            activation=activation,
            dtype=dtype,
        )

    def forward(self, features: Tensor | SparseRows, noise: Noise | None, rate: Tensor) -> Gaussian:
        """Map (M, B, n_features) to the posterior of each row, (M, B, latent_dim)."""
        return Gaussian.from_output(self.network(features, noise, rate))
