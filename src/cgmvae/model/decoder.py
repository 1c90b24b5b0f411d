"""From a latent sample to the feature embedding w_x^f, and to the features themselves."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cgmvae.nn.noise import Noise
from cgmvae.nn.packed import ACTIVATIONS, PackedMLP
from cgmvae.nn.sparse_rows import SparseRows


class Decoder(nn.Module):
    """Maps z, or (x, z), to the feature embedding (section 2.2.2).

    Parameters
    ----------
    n_in, embedding_dim : int
        Width of the input (latent_dim, or n_features + latent_dim) and E.
    hidden : sequence of int
        Widths of the hidden layers.
    output_activation : {"none", "relu", "leaky_relu"}
        Of the embedding.
    unit_norm : bool
        Whether embeddings are scaled to norm 1, after that.
    """

    def __init__(
        self,
        n_in: int,
        embedding_dim: int,
        hidden: Sequence[int],
        noise: Noise,
        *,
        layer_norm: bool,
        activation: str,
        output_activation: str,
        unit_norm: bool,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.unit_norm = unit_norm
        self.output_activation = ACTIVATIONS.get(output_activation)
        self.network = PackedMLP(
            (n_in, *hidden, embedding_dim),
            noise,
            layer_norm=layer_norm,
            activation=activation,
            dtype=dtype,
        )

    def forward(
        self,
        inputs: Tensor | SparseRows,
        noise: Noise | None,
        rate: Tensor,
        *,
        beside: Tensor | None = None,
    ) -> Tensor:
        """Map (M, B, n_in) to embeddings, (M, B, E); columns ``beside`` the inputs come last."""
        embedding = self.network(inputs, noise, rate, beside=beside)
        if self.output_activation is not None:
            embedding = self.output_activation(embedding)
        return F.normalize(embedding, dim=-1) if self.unit_norm else embedding
