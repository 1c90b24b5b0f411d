"""Layers with a leading member axis: many small networks trained as one.

Every tensor is (n_members, n_rows, width). A layer applies to each member its own weights, in one
batched matrix product. Dropout takes its random numbers from a :class:`~cgmvae.nn.noise.Noise`; no
noise means evaluation.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cgmvae.nn import fused
from cgmvae.nn.noise import CounterNoise, Noise


class PackedLinear(nn.Module):
    """An affine map for each member.

    Weights start uniform in ±1/√n_in, as torch's own linear layer does.
    """

    def __init__(self, n_in: int, n_out: int, noise: Noise, *, dtype: torch.dtype) -> None:
        super().__init__()
        bound = n_in**-0.5
        self.weight = nn.Parameter((noise.uniform(n_in, n_out, dtype=dtype) * 2 - 1) * bound)
        self.bias = nn.Parameter((noise.uniform(n_out, dtype=dtype) * 2 - 1) * bound)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n_members, n_rows, n_in) to (n_members, n_rows, n_out)."""
        return torch.baddbmm(self.bias[:, None, :], x, self.weight)


class PackedLayerNorm(nn.Module):
    """Layer normalisation with each member's own gain and shift."""

    def __init__(
        self, n_members: int, width: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(n_members, width, dtype=dtype, device=device))
        self.shift = nn.Parameter(torch.zeros(n_members, width, dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis of (n_members, n_rows, width)."""
        normal = F.layer_norm(x, x.shape[-1:])
        return torch.addcmul(self.shift[:, None, :], normal, self.gain[:, None, :])


ACTIVATIONS = {"relu": torch.relu, "leaky_relu": F.leaky_relu}

#: Slopes of the activations below 0.
_SLOPES = {"relu": 0.0, "leaky_relu": 0.01}


class PackedMLP(nn.Module):
    """Hidden layers (affine, normalisation if wished, activation, dropout) and an affine output.

    Parameters
    ----------
    widths : sequence of int
        Width of the input, of each hidden layer, and of the output.
    noise : Noise
        Where the first weights come from.
    layer_norm : bool
        Whether hidden layers are normalised.
    activation : {"relu", "leaky_relu"}
        Of the hidden layers.
    """

    def __init__(
        self,
        widths: Sequence[int],
        noise: Noise,
        *,
        layer_norm: bool,
        activation: str,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            PackedLinear(n_in, n_out, noise, dtype=dtype)
            for n_in, n_out in itertools.pairwise(widths)
        )
        self.norms = nn.ModuleList(
            PackedLayerNorm(noise.n_members, width, dtype=dtype, device=noise.device)
            for width in (widths[1:-1] if layer_norm else ())
        )
        self.activation, self.slope = ACTIVATIONS[activation], _SLOPES[activation]

    def forward(self, x: Tensor, noise: Noise | None, rate: Tensor) -> Tensor:
        """Map (n_members, n_rows, widths[0]) to (n_members, n_rows, widths[-1]).

        ``rate`` (n_members,) is the dropout of the hidden layers; without ``noise`` there is none.
        """
        *hidden, last = self.layers
        for i, layer in enumerate(hidden):
            x = self._hidden(layer, self.norms[i] if self.norms else None, x, noise, rate)
        return last(x)

    def _hidden(
        self, layer: Any, norm: Any, x: Tensor, noise: Noise | None, rate: Tensor
    ) -> Tensor:
        if norm is not None and isinstance(noise, CounterNoise) and fused.usable(x):
            product, dropping = torch.bmm(x, layer.weight), noise.dropping(rate)
            return fused.hidden(product, layer.bias, norm.gain, norm.shift, dropping, self.slope)
        x = layer(x)
        x = self.activation(x if norm is None else norm(x))
        return x if noise is None else noise.dropout(x, rate)


def keep_members(module: nn.Module, places: Tensor) -> None:
    """Leave all members but these out of a packed module, whose tensors have them as first axis."""
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            parameter.data = parameter.data[places]
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, buffer[places])
