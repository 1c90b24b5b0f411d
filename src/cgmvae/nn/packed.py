"""Layers with a leading member axis: many small networks trained as one.

Every tensor is (n_members, n_rows, width). A layer applies to each member its own weights, in one
batched matrix product. Dropout draws from :class:`~cgmvae.nn.rng.RandomStreams`; without streams a
layer evaluates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cgmvae.nn import cuda
from cgmvae.nn.rng import RandomStreams
from cgmvae.nn.sparse import SparseRows, sparse_affine


class PackedLinear(nn.Module):
    """An affine map for each member.

    Weights start uniform in ±1/√n_in, as torch's own linear layer does. ``name`` is that of the
    layer among all draws of a network.
    """

    training_weight: Tensor | None = None
    """What a GPU multiplies by in training instead of ``weight``: the same numbers, padded with
    rows of zeros to a multiple of ``TILE``, possibly in bfloat16."""

    def __init__(
        self, n_in: int, n_out: int, streams: RandomStreams, name: str, *, dtype: torch.dtype
    ) -> None:
        super().__init__()
        bound = n_in**-0.5
        self.weight, self.bias = (
            nn.Parameter(streams.uniform_weights(f"{name}.{own}", *shape, bound=bound, dtype=dtype))
            for own, shape in (("weight", (n_in, n_out)), ("bias", (n_out,)))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (n_members, n_rows, n_in) to (n_members, n_rows, n_out)."""
        weight = self.weight_in_use()
        return cuda.affine(_fitting(x, weight), weight, self.bias)

    def weight_in_use(self) -> Tensor:
        """Return the matrix to multiply by: in training, the one that gradients are taken for."""
        in_training = self.training_weight is not None and torch.is_grad_enabled()
        return cast(Tensor, self.training_weight if in_training else self.weight)


class PackedLayerNorm(nn.Module):
    """Layer normalization with each member's own gain and shift."""

    def __init__(
        self, n_members: int, width: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(n_members, width, dtype=dtype, device=device))
        self.shift = nn.Parameter(torch.zeros(n_members, width, dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last axis of (n_members, n_rows, width)."""
        if len(x) == 1:  # torch's kernel takes the gain and shift of a single member along
            return F.layer_norm(x, x.shape[-1:], self.gain.view(-1), self.shift.view(-1))
        normal = F.layer_norm(x, x.shape[-1:])
        return torch.addcmul(self.shift[:, None, :], normal, self.gain[:, None, :])

    def residual(
        self, x: Tensor, message: Tensor, streams: RandomStreams | None, name: str, rate: Tensor
    ) -> Tensor:
        """Normalize ``x`` plus a message, of which entries are dropped where there are streams.

        Both are (n_members, n_rows, width); ``name`` is that of the draw.
        """
        if cuda.usable(message) and (streams is None or streams.fuses(message)):
            dropping = None if streams is None else streams.dropping(name, rate)
            return cuda.residual(x, message, self.gain, self.shift, dropping)
        return self(x + (message if streams is None else streams.dropout(name, message, rate)))


class _NormalizedReLU(torch.autograd.Function):
    """Layer normalization, ReLU and dropout on a CPU, in half of the passes that autograd makes.

    ReLU and a positive factor can change places, so that gain and shift take up the scale of what
    dropout keeps, and the output tells where the gradient passes.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gain: Tensor, shift: Tensor, kept: Tensor, scales: Tensor
    ) -> Tensor:
        gain, shift = (gain * scales)[:, None, :], (shift * scales)[:, None, :]
        normal = x - x.mean(-1, keepdim=True)
        variance = torch.linalg.vector_norm(normal, dim=-1, keepdim=True).square_() / x.shape[-1]
        inverse = variance.add_(_NORM_EPSILON).rsqrt_()
        output = torch.addcmul(shift, normal.mul_(inverse), gain).relu_().mul_(kept)
        ctx.save_for_backward(normal, inverse, gain, scales, output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        normal, inverse, gain, scales, output = ctx.saved_tensors
        dx = torch.ops.aten.threshold_backward(gradient, output, 0)
        product = dx * normal
        dgain, dshift = product.sum(1).mul_(scales), dx.sum(1).mul_(scales)
        along = torch.mul(dx.mul_(gain), normal, out=product).mean(-1, keepdim=True)
        dx.sub_(dx.mean(-1, keepdim=True)).addcmul_(normal, along, value=-1).mul_(inverse)
        return dx, dgain, dshift, None, None


#: Added to variances by torch's layer normalization, and by ours.
_NORM_EPSILON = 1e-5

ACTIVATIONS = {"relu": torch.relu, "leaky_relu": F.leaky_relu}

#: Lower bound of norms, as in ``torch.nn.functional.normalize``.
MIN_NORM = 1e-12

#: A GPU's matrix products are fast for sizes that are multiples of this.
TILE = 8

#: Slope of each activation below 0.
_SLOPES = {"relu": 0.0, "leaky_relu": 0.01}


class PackedMLP(nn.Module):
    """Hidden layers (affine, optional normalization, activation, dropout) and an affine output.

    Parameters
    ----------
    widths : sequence of int
        Width of the input, of each hidden layer, and of the output.
    streams : RandomStreams
        Source of the initial weights.
    name : str
        Name of the network among all draws; its layers append their numbers.
    layer_norm : bool
        Whether hidden layers are normalized.
    activation : {"relu", "leaky_relu"}
        Activation of the hidden layers.
    """

    def __init__(
        self,
        widths: Sequence[int],
        streams: RandomStreams,
        name: str,
        *,
        layer_norm: bool,
        activation: str,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            PackedLinear(n_in, n_out, streams, f"{name}.{i}", dtype=dtype)
            for i, (n_in, n_out) in enumerate(itertools.pairwise(widths))
        )
        self.norms = nn.ModuleList(
            PackedLayerNorm(streams.n_members, width, dtype=dtype, device=streams.device)
            for width in (widths[1:-1] if layer_norm else ())
        )
        self.name = name
        self.activation, self.slope = ACTIVATIONS[activation], _SLOPES[activation]

    def forward(
        self,
        x: Tensor | SparseRows,
        streams: RandomStreams | None,
        rate: Tensor,
        *,
        more: Tensor | None = None,
    ) -> Tensor:
        """Map (n_members, n_rows, widths[0]) to (n_members, n_rows, widths[-1]).

        Parameters
        ----------
        x : Tensor or SparseRows, (n_members, n_rows, n_columns)
        streams : RandomStreams or None
            Source of dropout; None for evaluation.
        rate : Tensor, (n_members,)
            Dropout of the hidden layers.
        more : Tensor, (n_members, n_rows, n_more), optional
            Further columns, after those of ``x``.
        """
        if isinstance(x, Tensor) and more is not None:
            x, more = torch.cat([x, more], dim=-1), None
        *hidden, last = self.layers
        for i, layer in enumerate(hidden):
            norm = self.norms[i] if self.norms else None
            x = self._hidden(f"{self.name}.{i}", layer, norm, x, more, streams, rate)
            more = None
        return _affine(last, x, more)

    def _hidden(
        self,
        name: str,
        layer: Any,
        norm: Any,
        x: Tensor | SparseRows,
        more: Tensor | None,
        streams: RandomStreams | None,
        rate: Tensor,
    ) -> Tensor:
        """Apply an affine map, normalization, activation and dropout."""
        if isinstance(x, Tensor) and norm is not None and streams is not None and streams.fuses(x):
            weight = layer.weight_in_use()
            product, dropping = torch.bmm(_fitting(x, weight), weight), streams.dropping(name, rate)
            return cuda.hidden(product, layer.bias, norm.gain, norm.shift, dropping, self.slope)
        x = _affine(layer, x, more)
        if norm is not None and streams is not None and streams.draws_masks(x) and not self.slope:
            kept, scales = streams.kept(name, *x.shape[1:], rate=rate, dtype=x.dtype)
            return _NormalizedReLU.apply(x, norm.gain, norm.shift, kept, scales)
        x = self.activation(x if norm is None else norm(x))
        return x if streams is None else streams.dropout(name, x, rate)


def _affine(layer: Any, x: Tensor | SparseRows, more: Tensor | None) -> Tensor:
    if isinstance(x, SparseRows):
        return sparse_affine(x, more, layer.weight, layer.bias)
    return layer(x)


def _fitting(x: Tensor, weight: Tensor) -> Tensor:
    """Return ``x`` in the precision of the weights, with columns of zeros for their last rows."""
    spare = weight.shape[1] - x.shape[-1]
    if not torch.is_autocast_enabled(x.device.type):  # otherwise torch chooses the precision
        x = x.to(weight.dtype)
    return F.pad(x, (0, spare)) if spare else x


def layers_for_training(module: nn.Module) -> Iterator[PackedLinear]:
    """Return the layers that can have a ``training_weight``: those of normalized networks."""
    for part in module.modules():
        if isinstance(part, PackedMLP) and len(part.norms):
            yield from part.layers  # type: ignore[misc]


def inner_products(x: Tensor, labels: Tensor) -> Tensor:
    """Return the inner products of all rows with all labels, (n_members, n_rows, n_labels).

    Parameters
    ----------
    x : Tensor, (n_members, n_rows, width)
    labels : Tensor, (n_members, n_labels, width)
    """
    return torch.bmm(x, _in_tiles(labels, 1).mT)[..., : labels.shape[1]]


def inner_products_and_cosines(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return both of all rows with all labels, each (n_members, n_rows, n_labels).

    The gradients of norms and of products are one pass over ``x``, (n_members, n_rows, width).
    """
    return _Scores.apply(x, labels)


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        padded = _in_tiles(labels, 1)
        inner = torch.bmm(x, padded.mT)[..., : labels.shape[1]]
        of_rows, of_labels = (
            torch.linalg.vector_norm(part, dim=-1, keepdim=True).clamp_(min=MIN_NORM)
            for part in (x, labels)
        )
        norms = of_rows * of_labels.mT
        cosines = inner / norms
        ctx.save_for_backward(x, padded, of_rows, of_labels, norms, cosines)
        return inner, cosines

    @staticmethod
    def backward(ctx: Any, dinner: Tensor, dcosines: Tensor) -> tuple[Tensor, Tensor]:
        x, padded, of_rows, of_labels, norms, cosines = ctx.saved_tensors
        dinner = _in_tiles(torch.addcdiv(dinner, dcosines, norms), 2)
        turned = dcosines * cosines
        along_rows = turned.sum(2, keepdim=True) / of_rows / of_rows
        along_labels = turned.sum(1).unsqueeze(2) / of_labels / of_labels
        dx = (x * along_rows).baddbmm_(dinner, padded, beta=-1)
        n_labels = norms.shape[2]
        dlabels = padded[:, :n_labels] * along_labels
        return dx, dlabels.baddbmm_(dinner.mT[:, :n_labels], x, beta=-1)


def _in_tiles(matrices: Tensor, axis: int) -> Tensor:
    """Fill up an axis with zeros to a multiple of ``TILE`` on a GPU."""
    spare = -matrices.shape[axis] % TILE if matrices.is_cuda else 0
    padding = (0, spare) if axis == 2 else (0, 0, 0, spare)
    return F.pad(matrices, padding) if spare else matrices


def hold_numbers(module: nn.Module, like: Tensor, **numbers: Sequence[float]) -> None:
    """Register buffers with one number per member, (n_members,), that are not saved.

    ``like`` gives their device and type.
    """
    for name, values in numbers.items():
        tensor = torch.as_tensor(values, dtype=like.dtype, device=like.device)
        module.register_buffer(name, tensor, persistent=False)


def keep_members(module: nn.Module, numbers: Tensor) -> None:
    """Drop all members but these from a packed module."""
    for parameter in module.parameters():  # of tied weights only one
        parameter.data = parameter.data[numbers]
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, buffer[numbers])
