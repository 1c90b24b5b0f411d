"""Layers with a leading member axis: many small networks trained as one.

Every tensor is (n_members, n_rows, width). A layer applies to each member its own weights, in one
batched matrix product. Dropout takes its random numbers from a :class:`~cgmvae.nn.noise.Noise`; no
noise means evaluation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cgmvae.nn import fused
from cgmvae.nn.noise import CounterNoise, GeneratorNoise, Noise
from cgmvae.nn.perceptron import TrainedPerceptron, Weights, perceptron
from cgmvae.nn.sparse_rows import SparseRows, sparse_affine


class Placed(nn.Module):
    """A module whose largest parameter has a place for its gradient in a processor's training."""

    def __init__(self) -> None:
        super().__init__()
        #: The place: one a step, or none.
        self.gradient_places: list[Tensor] = []

    @property
    def placed(self) -> nn.Parameter:
        """The parameter."""
        raise NotImplementedError

    def take_place(self) -> Tensor | None:
        """Return where the gradient of this use goes; a second use in a step finds no place."""
        return self.gradient_places.pop() if self.gradient_places else None


class PackedLinear(Placed):
    """An affine map for each member.

    Weights start uniform in ±1/√n_in, as torch's own linear layer does.
    """

    training_weight: Tensor | None = None
    """What an accelerator's training takes products with in place of ``weight``: the same numbers,
    with rows of zeros up to a multiple of ``TILE``, in bfloat16 if wished."""

    def __init__(self, n_in: int, n_out: int, noise: Noise, *, dtype: torch.dtype) -> None:
        super().__init__()
        bound = n_in**-0.5
        self.weight = nn.Parameter((noise.uniform(n_in, n_out, dtype=dtype) * 2 - 1) * bound)
        self.bias = nn.Parameter((noise.uniform(n_out, dtype=dtype) * 2 - 1) * bound)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n_members, n_rows, n_in) to (n_members, n_rows, n_out)."""
        weight = self.weight_in_use()
        return fused.affine(_fitting(x, weight), weight, self.bias)

    @property
    def placed(self) -> nn.Parameter:
        """The weight."""
        return self.weight

    def weight_in_use(self) -> Tensor:
        """Return the matrix of products: in training, the one that gradients are taken for."""
        in_training = self.training_weight is not None and torch.is_grad_enabled()
        return cast(Tensor, self.training_weight if in_training else self.weight)


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

#: Numbers that an accelerator's matrix product takes at a time: it is slow with what is left over.
TILE = 8

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

    def forward(
        self,
        x: Tensor | SparseRows,
        noise: Noise | None,
        rate: Tensor,
        *,
        beside: Tensor | None = None,
    ) -> Tensor:
        """Map (n_members, n_rows, widths[0]) to (n_members, n_rows, widths[-1]).

        ``rate`` (n_members,) is the dropout of the hidden layers; without ``noise`` there is none.
        Columns ``beside`` those of ``x`` come after them.
        """
        if isinstance(x, SparseRows):
            return self._of_sparse(x, beside, noise, rate)
        if beside is not None:
            x = torch.cat([x, beside], dim=-1)
        if isinstance(noise, GeneratorNoise) and x.device.type == "cpu":
            return self._trained(x, self._masks(x, noise, rate))
        return self._evaluated(x, noise, rate, first=0)

    def of_member(self, x: Tensor, place: int, noise: GeneratorNoise, rate: Tensor) -> Tensor:
        """Do the same with the network of one member on a processor in training.

        ``x`` is (1, n_rows, widths[0]), and ``noise`` and ``rate`` are the member's own.
        """
        masks = self._masks(x, noise, rate)
        return self._trained(x, masks, members=slice(place, place + 1))

    def _masks(self, x: Tensor | SparseRows, noise: Noise, rate: Tensor) -> tuple[Tensor, ...]:
        """Draw what dropout multiplies the hidden layers by."""
        layers: list[Any] = [*self.layers]
        widths = [layer.bias.shape[1] for layer in layers[:-1]]
        return noise.masks(x.shape[1], *widths, rate=rate, dtype=layers[0].bias.dtype)

    def _evaluated(self, x: Tensor, noise: Noise | None, rate: Tensor, *, first: int) -> Tensor:
        """Apply the layers from the first of these on."""
        *before, last = self.layers
        for i, layer in enumerate(before[first:], start=first):
            x = self._hidden(layer, self.norms[i] if self.norms else None, x, noise, rate)
        return last(x)

    def _trained(
        self,
        x: Tensor,
        masks: Sequence[Tensor],
        *,
        started: bool = False,
        members: slice | None = None,
    ) -> Tensor:
        """Apply all layers, or where ``x`` has passed the first, all others, in training."""
        layers, norms = self._weights()
        layers = layers[int(started) :]
        parts: list[Any] = [*self.layers[int(started) :]]
        places = [layer.take_place() for layer in parts]
        if members is not None and len(layers[0][0]) > 1:
            layers = [(weight[members], bias[members]) for weight, bias in layers]
            norms = [(gain[members], shift[members]) for gain, shift in norms]
            places = [None] * len(layers)
        weights = Weights(layers, norms)
        return perceptron(x, weights, masks=masks, slope=self.slope, places=places, started=started)

    def _weights(self) -> Weights:
        layers: list[Any] = [*self.layers]
        norms: list[Any] = [*self.norms]
        return Weights(
            [(layer.weight, layer.bias) for layer in layers],
            [(norm.gain, norm.shift) for norm in norms],
        )

    def by_hand(self, places: Mapping[nn.Parameter, Tensor]) -> TrainedPerceptron:
        """Return the network for training on a processor without autograd.

        ``places`` are those of the gradients. It is of use as long as parameters stay where they
        are, whatever their numbers.
        """
        weights = self._weights()

        def those(of: Callable[[Any], Tensor]) -> Weights:
            return Weights(*([(of(a), of(b)) for a, b in pairs] for pairs in weights))

        return TrainedPerceptron(those(lambda p: p.detach()), those(places.__getitem__), self.slope)

    def _of_sparse(
        self, x: SparseRows, beside: Tensor | None, noise: Noise | None, rate: Tensor
    ) -> Tensor:
        """Apply the first layer to sparse rows, and the others to what it gives."""
        layer: Any = self.layers[0]
        hidden = sparse_affine(x, beside, layer.weight, layer.bias, place=layer.take_place())
        if len(self.layers) == 1:
            return hidden
        if noise is not None:
            return self._trained(hidden, self._masks(x, noise, rate), started=True)
        hidden = self.activation(self.norms[0](hidden) if self.norms else hidden)
        return self._evaluated(hidden, noise, rate, first=1)

    def _hidden(
        self, layer: Any, norm: Any, x: Tensor, noise: Noise | None, rate: Tensor
    ) -> Tensor:
        if norm is not None and isinstance(noise, CounterNoise) and noise.fuses(x):
            weight = layer.weight_in_use()
            product, dropping = torch.bmm(_fitting(x, weight), weight), noise.dropping(rate)
            return fused.hidden(product, layer.bias, norm.gain, norm.shift, dropping, self.slope)
        x = layer(x)
        x = self.activation(x if norm is None else norm(x))
        return x if noise is None else noise.dropout(x, rate)


def _fitting(x: Tensor, weight: Tensor) -> Tensor:
    """Return ``x`` in the precision of the weights, with columns of zeros for their last rows."""
    spare = weight.shape[1] - x.shape[-1]
    return F.pad(x.to(weight.dtype), (0, spare)) if spare else x.to(weight.dtype)


def layers_for_training(module: nn.Module) -> Iterator[PackedLinear]:
    """Return the layers that can have a ``training_weight``: those of normalised networks."""
    for part in module.modules():
        if isinstance(part, PackedMLP) and len(part.norms):
            yield from part.layers  # type: ignore[misc]


def inner_products(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inner products of all rows with all labels, and the norms of the rows.

    Together they need one pass less over ``x``, which is wide, than apart.

    Parameters
    ----------
    x : Tensor, (n_members, n_rows, width)
    labels : Tensor, (n_members, n_labels, width)

    Returns
    -------
    inner : Tensor, (n_members, n_rows, n_labels)
    norms : Tensor, (n_members, n_rows)
    """
    n_labels = labels.shape[1]
    if x.is_cuda:
        labels = F.pad(labels, (0, 0, 0, -n_labels % TILE))
    inner, norms = _InnerProducts.apply(x, labels)
    return inner[..., :n_labels], norms


class _InnerProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        norms = torch.linalg.vector_norm(x, dim=-1)
        ctx.save_for_backward(x, labels, norms)
        ctx.set_materialize_grads(False)
        return torch.bmm(x, labels.transpose(1, 2)), norms

    @staticmethod
    def backward(ctx: Any, dinner: Tensor | None, dnorms: Tensor | None) -> Any:
        x, labels, norms = ctx.saved_tensors
        dx = dlabels = None
        if dnorms is not None:
            dx = x * torch.where(norms > 0, dnorms / norms, 0.0)[..., None]
        if dinner is not None:
            dlabels = torch.bmm(dinner.transpose(1, 2), x)
            dx = torch.bmm(dinner, labels) if dx is None else dx.baddbmm_(dinner, labels)
        return dx, dlabels


def hold_numbers(module: nn.Module, like: Tensor, **numbers: Sequence[float]) -> None:
    """Give a module buffers of one number a member, (n_members,), which its file does not hold.

    ``like`` tells where they are and of which type.
    """
    for name, values in numbers.items():
        tensor = torch.as_tensor(values, dtype=like.dtype, device=like.device)
        module.register_buffer(name, tensor, persistent=False)


def keep_members(module: nn.Module, places: Tensor) -> None:
    """Leave all members but these out of a packed module, whose tensors have them as first axis."""
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            parameter.data = parameter.data[places]
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, buffer[places])
