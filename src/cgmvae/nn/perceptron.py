"""A whole packed network in training on a processor, as one function with its own gradient.

Operation by operation autograd passes over every intermediate, and each of some two hundred calls
costs more than its arithmetic. Written as one function, hidden layers work in place and keep what
the gradient needs. It computes what :class:`~cgmvae.nn.packed.PackedMLP` computes otherwise, which
stays the way of evaluation and export; :mod:`cgmvae.nn.fused` is the accelerator's counterpart.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: The ``eps`` of torch's layer normalisation.
_EPSILON = 1e-5

#: The gradient of an activation, from that of its result, what is activated, and the slope below 0.
_leaky_relu_backward = torch.ops.aten.leaky_relu_backward

#: Two tensors that belong to one layer.
Pair = tuple[Tensor, Tensor]


def perceptron(
    x: Tensor,
    layers: Sequence[Pair],
    norms: Sequence[Pair],
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
    layers : sequence of pairs
        Weight, (n_members, n_in, n_out), and bias, (n_members, n_out), of each layer to apply.
    norms : sequence of pairs
        Gain and shift, (n_members, n_out), of each hidden layer, or nothing without normalisation.
    masks : sequence of Tensor, (n_members, n_rows, n_out)
        What dropout multiplies each hidden layer by.
    slope : float
        Of the activation below 0: 0 for ReLU.
    places : sequence of Tensor, (n_members, n_in, n_out), optional
        Where the gradient of each weight goes; None for a new tensor.
    started : bool
        Whether ``x`` has passed the first affine map.
    """
    plan = _Plan(slope, places or [None] * len(layers), int(started))
    return _Perceptron.apply(x, plan, tuple(masks), *itertools.chain(*layers, *norms))


class _Plan(NamedTuple):
    """What belongs to a network and is no tensor of it."""

    slope: float
    places: Sequence[Tensor | None]
    """One a layer."""
    n_before: int
    """Affine maps that were applied before."""


class _Perceptron(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, plan: _Plan, masks: tuple[Tensor, ...], *flat: Tensor
    ) -> Tensor:
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        layers, norms = pairs[: len(plan.places)], pairs[len(plan.places) :]
        inputs, factors, kept = [], [], []
        active = x if plan.n_before else _affine(x, layers[0])
        for i, mask in enumerate(masks):
            if norms:
                kept.append(active)
                active, *moments = _normalised(active, norms[i])
                kept += moments
            # Activation and dropout together: what each number is multiplied by, there and back.
            factors.append(_leaky_relu_backward(mask, active, plan.slope, False))
            inputs.append(active * factors[-1] if active is x else active.mul_(factors[-1]))
            active = _affine(inputs[-1], layers[i + 1 - plan.n_before])
        if not plan.n_before:
            inputs.insert(0, x)
        ctx.save_for_backward(*flat, *factors, *inputs, *kept)
        ctx.plan = plan
        return active

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> Any:
        (_, places, n_before), saved = ctx.plan, iter(ctx.saved_tensors)
        n = len(places)
        n_norms = (len(ctx.needs_input_grad) - 3) // 2 - n
        weights, _ = _pairs(saved, n)
        gains, shifts = _pairs(saved, n_norms)
        n_hidden = n - 1 + n_before
        factors, inputs = list(itertools.islice(saved, n_hidden)), list(itertools.islice(saved, n))
        kept = list(zip(saved, saved, saved, strict=True))
        of_layers: list[Tensor] = []
        of_norms: list[Tensor] = []
        for i in reversed(range(n)):
            d_weight = torch.bmm(inputs[i].transpose(1, 2), d_out, out=places[i])
            of_layers[:0] = d_weight, d_out.sum(1)
            hidden: int = i - 1 + n_before
            if hidden < 0:
                break
            d_out = torch.bmm(d_out, weights[i].transpose(1, 2)).mul_(factors[hidden])
            if kept:
                norm = gains[hidden], shifts[hidden]
                d_out, *of_norm = _normalised_gradients(d_out, *kept[hidden], norm)
                of_norms[:0] = of_norm
        d_x = d_out if n_before else None
        if not n_before and ctx.needs_input_grad[0]:
            d_x = torch.bmm(d_out, weights[0].transpose(1, 2))
        return d_x, None, None, *of_layers, *of_norms


def _pairs(saved: Any, n: int) -> tuple[list[Tensor], list[Tensor]]:
    """Take the first and the second tensors of n pairs."""
    both = list(itertools.islice(saved, 2 * n))
    return both[::2], both[1::2]


def _affine(x: Tensor, layer: Pair) -> Tensor:
    weight, bias = layer
    return torch.baddbmm(bias[:, None], x, weight)


def _normalised(x: Tensor, norm: Pair) -> tuple[Tensor, Tensor, Tensor]:
    """Return layer normalisation, and each row's mean and inverse deviation, (M, B, 1)."""
    gain, shift = norm
    if x.shape[0] == 1:  # torch's kernel takes one gain and one shift along
        return torch.native_layer_norm(x, x.shape[-1:], gain[0], shift[0], _EPSILON)
    normal, center, spread = torch.native_layer_norm(x, x.shape[-1:], None, None, _EPSILON)
    return normal.mul_(gain[:, None]).add_(shift[:, None]), center, spread


def _normalised_gradients(
    d_out: Tensor, x: Tensor, center: Tensor, spread: Tensor, norm: Pair
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with respect to what is normalised, the gain and the shift."""
    gradients, width = torch.ops.aten.native_layer_norm_backward, x.shape[-1:]
    gain, shift = norm
    if x.shape[0] == 1:
        wanted = [True, True, True]
        d_x, d_gain, d_shift = gradients(d_out, x, width, center, spread, gain[0], shift[0], wanted)
        return d_x, d_gain[None], d_shift[None]
    d_gain = (x - center).mul_(spread).mul_(d_out).sum(1)
    d_shift = d_out.sum(1)
    d_normal = d_out.mul_(gain[:, None])
    d_x, _, _ = gradients(d_normal, x, width, center, spread, None, None, [True, False, False])
    return d_x, d_gain, d_shift
