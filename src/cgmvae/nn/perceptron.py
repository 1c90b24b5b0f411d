"""A whole packed network in training on a processor, with its own gradient.

Operation by operation autograd passes over every intermediate, and each of some two hundred calls
costs more than its arithmetic. Here hidden layers work in place and keep what the gradient needs.
It computes what :class:`~cgmvae.nn.packed.PackedMLP` computes otherwise, which stays the way of
evaluation and export; :mod:`cgmvae.nn.fused` is the accelerator's counterpart.

:func:`perceptron` is a function that autograd can differentiate. :class:`TrainedPerceptron` does
without autograd where the gradients of a whole network are written by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cgmvae.nn.products import affine, times_transposed
from cgmvae.nn.sparse_rows import SparseRows, sparse_gradients, sparse_product

#: The ``eps`` of torch's layer normalisation.
_EPSILON = 1e-5

#: The gradient of an activation, from that of its result, what is activated, and the slope below 0.
_leaky_relu_backward = torch.ops.aten.leaky_relu_backward

#: Two tensors that belong to one layer.
Pair = tuple[Tensor, Tensor]


class Weights(NamedTuple):
    """The parameters of a network, or the places of their gradients."""

    layers: Sequence[Pair]
    """Weight, (n_members, n_in, n_out), and bias, (n_members, n_out), of each layer"""
    norms: Sequence[Pair]
    """Gain and shift, (n_members, n_out), of each hidden layer; nothing without normalisation"""


def perceptron(
    x: Tensor,
    weights: Weights,
    *,
    masks: Sequence[Tensor],
    slope: float,
    places: Sequence[Tensor | None] | None = None,
    started: bool = False,
) -> Tensor:
    """Map (n_members, n_rows, n_in) to (n_members, n_rows, n_out).

    Parameters
    ----------
    x : Tensor, (n_members, n_rows, n_in)
        What comes in, or where that has ``started``, what the first affine map has made of it.
    weights : Weights
        Of the layers to apply.
    masks : sequence of Tensor, (n_members, n_rows, n_out)
        What dropout multiplies each hidden layer by.
    slope : float
        Of the activation below 0: 0 for ReLU.
    places : sequence of Tensor, (n_members, n_in, n_out), optional
        Where the gradient of each layer's weight goes; None for a new tensor.
    started : bool
        Whether ``x`` has passed the first affine map.
    """
    layers, norms = weights
    plan = _Plan(slope, places or [None] * len(layers), started)
    return _Perceptron.apply(x, plan, tuple(masks), *itertools.chain(*layers, *norms))


class TrainedPerceptron:
    """A network through which rows pass by hand: there, and back to the gradients' places.

    Parameters
    ----------
    weights : Weights
        Of all layers.
    places : Weights
        Where their gradients go.
    slope : float
        Of the activation below 0: 0 for ReLU.
    """

    def __init__(self, weights: Weights, places: Weights, slope: float) -> None:
        self.weights, self.places, self.slope = weights, places, slope

    @property
    def widths(self) -> list[int]:
        """Widths of the hidden layers, for which masks are needed."""
        return [weight.shape[1] for weight, _ in self.weights.layers[1:]]

    def __call__(
        self, x: Tensor | SparseRows, masks: Sequence[Tensor], *, beside: Tensor | None = None
    ) -> Passage:
        """Let (n_members, n_rows, n_in) pass; columns ``beside`` those of ``x`` come after them."""
        return Passage(self, x, masks, beside)


class Passage:
    """What has passed a network, and can be gone back.

    Attributes
    ----------
    output : Tensor, (n_members, n_rows, n_out)
    """

    def __init__(
        self,
        network: TrainedPerceptron,
        x: Tensor | SparseRows,
        masks: Sequence[Tensor],
        beside: Tensor | None,
    ) -> None:
        self._network, self._beside = network, beside
        (first, *layers), norms = network.weights
        if isinstance(x, SparseRows):
            product = sparse_product(x, beside, *first)
        else:
            x = x if beside is None else torch.cat([x, beside], dim=-1)
            product = affine(x, *first)
        self._x = x
        self._hidden = _Hidden(Weights(layers, norms), masks, network.slope)
        self.output = self._hidden.forward(product)

    def back(self, d_out: Tensor) -> None:
        """Write the gradients of all weights to their places."""
        (first, *layers), norms = self._network.places
        self._d_first = self._hidden.backward(d_out, Weights(layers, norms))
        if isinstance(self._x, SparseRows):
            sparse_gradients(self._x, self._beside, self._d_first, *first)
        else:
            _affine_gradients(self._x, self._d_first, first)

    def input_gradient(self, start: int = 0) -> Tensor:
        """Return the gradient of the input's columns from ``start`` on, having gone back."""
        weight, _ = self._network.weights.layers[0]
        return times_transposed(self._d_first, weight[:, start:])


class _Plan(NamedTuple):
    """What belongs to a network and is no tensor of it."""

    slope: float
    places: Sequence[Tensor | None]
    """One a layer."""
    started: bool


class _Perceptron(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, plan: _Plan, masks: tuple[Tensor, ...], *flat: Tensor
    ) -> Tensor:
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        layers, norms = pairs[: len(plan.places)], pairs[len(plan.places) :]
        product, after = x, layers
        if not plan.started:
            product, after = affine(x, *layers[0]), layers[1:]
        ctx.hidden = _Hidden(Weights(after, norms), masks, plan.slope)
        ctx.plan, ctx.x, ctx.weights = plan, x, Weights(layers, norms)
        return ctx.hidden.forward(product, keep=plan.started)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> Any:
        places = Weights(
            [
                (torch.empty_like(weight) if place is None else place, torch.empty_like(bias))
                for place, (weight, bias) in zip(ctx.plan.places, ctx.weights.layers, strict=True)
            ],
            [
                (torch.empty_like(gain), torch.empty_like(shift))
                for gain, shift in ctx.weights.norms
            ],
        )
        found = itertools.chain(*places.layers, *places.norms)
        if ctx.plan.started:
            return ctx.hidden.backward(d_out, places), None, None, *found
        (weight, _), (first, *after) = ctx.weights.layers[0], places.layers
        d_first = ctx.hidden.backward(d_out, Weights(after, places.norms))
        _affine_gradients(ctx.x, d_first, first)
        d_x = times_transposed(d_first, weight) if ctx.needs_input_grad[0] else None
        return d_x, None, None, *found


class _Hidden:
    """What follows the first affine map: one pass, with what its gradient needs.

    Parameters
    ----------
    weights : Weights
        Of the layers after the first, and of all normalisations.
    masks : sequence of Tensor, (n_members, n_rows, width)
    slope : float
    """

    def __init__(self, weights: Weights, masks: Sequence[Tensor], slope: float) -> None:
        self._weights, self._masks, self._slope = weights, masks, slope
        self._inputs: list[Tensor] = []
        self._factors: list[Tensor] = []
        self._moments: list[tuple[Tensor, Tensor, Tensor]] = []

    def forward(self, active: Tensor, *, keep: bool = False) -> Tensor:
        """Return the output for the first map's result, which is used up unless it is to keep."""
        layers, norms = self._weights
        for i, (layer, mask) in enumerate(zip(layers, self._masks, strict=True)):
            if norms:
                before = active
                active, center, spread = _normalised(before, norms[i])
                self._moments.append((before, center, spread))
            # Activation and dropout together: what each number is multiplied by, there and back.
            factor = _leaky_relu_backward(mask, active, self._slope, False)
            in_place = norms or i or not keep
            active = active.mul_(factor) if in_place else active * factor
            self._inputs.append(active)
            self._factors.append(factor)
            active = affine(active, *layer)
        return active

    def backward(self, d_out: Tensor, places: Weights) -> Tensor:
        """Write the weights' gradients to their places; return that of the first map's result."""
        layers, norms = self._weights
        for i in reversed(range(len(layers))):
            _affine_gradients(self._inputs[i], d_out, places.layers[i])
            d_out = times_transposed(d_out, layers[i][0]).mul_(self._factors[i])
            if norms:
                d_out = _normalised_gradients(d_out, self._moments[i], norms[i], places.norms[i])
        return d_out


def _affine_gradients(x: Tensor, d_out: Tensor, places: Pair) -> None:
    """Write the gradients of weight and bias to their places."""
    d_weight, d_bias = places
    torch.bmm(x.mT, d_out, out=d_weight)
    torch.sum(d_out, 1, out=d_bias)


def _normalised(x: Tensor, norm: Pair) -> tuple[Tensor, Tensor, Tensor]:
    """Return layer normalisation, and each row's mean and inverse deviation, (M, B, 1)."""
    gain, shift = norm
    if x.shape[0] == 1:  # torch's kernel takes one gain and one shift along
        return torch.native_layer_norm(x, x.shape[-1:], gain[0], shift[0], _EPSILON)
    normal, center, spread = torch.native_layer_norm(x, x.shape[-1:], None, None, _EPSILON)
    return normal.mul_(gain[:, None]).add_(shift[:, None]), center, spread


def _normalised_gradients(
    d_out: Tensor, moments: tuple[Tensor, Tensor, Tensor], norm: Pair, places: Pair
) -> Tensor:
    """Return the gradient of what is normalised; write those of gain and shift to their places.

    ``moments`` are what is normalised, and each row's mean and inverse deviation.
    """
    gradients = torch.ops.aten.native_layer_norm_backward
    (x, center, spread), (gain, shift), (d_gain, d_shift) = moments, norm, places
    width = x.shape[-1:]
    if x.shape[0] == 1:
        wanted = [True, True, True]
        d_x, *vectors = gradients(d_out, x, width, center, spread, gain[0], shift[0], wanted)
        d_gain.copy_(vectors[0])
        d_shift.copy_(vectors[1])
        return d_x
    torch.sum((x - center).mul_(spread).mul_(d_out), 1, out=d_gain)
    torch.sum(d_out, 1, out=d_shift)
    d_normal = d_out.mul_(gain[:, None])
    return gradients(d_normal, x, width, center, spread, None, None, [True, False, False])[0]
