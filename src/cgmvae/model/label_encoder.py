"""From label embeddings to the labels' Gaussians in the latent space (section 2.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cgmvae.nn.gaussian import Gaussian
from cgmvae.nn.noise import GeneratorNoise, Noise
from cgmvae.nn.packed import PackedMLP, Placed


class LabelEncoder(Placed):
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

    @property
    def placed(self) -> nn.Parameter:
        """The embeddings."""
        return self.embeddings

    def forward(self, noise: Noise | None, rate: Tensor) -> Gaussian:
        """Return the Gaussians of the labels and, last, of the background, (M, L + 1, d)."""
        with nullcontext() if noise is None else noise.undivided():
            output = self._encode(self.embeddings, noise, rate)
        return Gaussian.from_output(torch.cat([output, self.background[:, None]], dim=1))

    def of_labels(
        self, labels: Sequence[Tensor], noise: GeneratorNoise, rate: Tensor
    ) -> tuple[list[Gaussian], Tensor]:
        """Return the Gaussians of some labels and, last, of the background, (n + 1, d) a member.

        In training on a processor, where most of very many labels are in no row of a batch.
        ``labels`` are each member's own, int64 (n,). Returns the embeddings too, (M, L, E), for
        others to use: what they have as gradient takes up that of the few.
        """
        shared, *chosen = _WithRows.apply(self.embeddings, *labels)
        found = []
        for place, own in enumerate(chosen):
            alone, own_rate = noise.of_member(place), rate[place : place + 1]
            embeddings = self._first(own[None], alone, own_rate)
            output = self.network.of_member(embeddings, place, alone, own_rate)
            with_background = torch.cat([output[0], self.background[place, None]])
            found.append(Gaussian.from_output(with_background))
        return found, shared

    def of_set(self, positive: Tensor, noise: Noise | None, rate: Tensor) -> Gaussian:
        """Return one Gaussian for each row's label set, from the sum of its embeddings.

        The unimodal prior of earlier models: ``positive`` (M, B, L) gives (M, B, d).
        """
        summed = torch.bmm(positive.to(self.embeddings.dtype), self.embeddings)
        return Gaussian.from_output(self._encode(summed, noise, rate))

    def _encode(self, embeddings: Tensor, noise: Noise | None, rate: Tensor) -> Tensor:
        return self.network(self._first(embeddings, noise, rate), noise, rate)

    def _first(self, embeddings: Tensor, noise: Noise | None, rate: Tensor) -> Tensor:
        """Return what enters the network for embeddings."""
        if not self.relu_first:
            return embeddings
        embeddings = torch.relu(embeddings)
        return embeddings if noise is None else noise.dropout(embeddings, rate)


class _WithRows(torch.autograd.Function):
    """A matrix a member, and some of its rows: autograd would make each a gradient of full size."""

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*rows)
        ctx.shape = matrices.shape
        return matrices.view_as(matrices), *(
            matrix[own] for matrix, own in zip(matrices, rows, strict=True)
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_matrices: Tensor, *d_rows: Tensor) -> Any:
        rows = ctx.saved_tensors
        for matrix, own, gradient in zip(d_matrices, rows, d_rows, strict=True):
            matrix.index_add_(0, own, gradient)
        return d_matrices, *(None for _ in rows)
