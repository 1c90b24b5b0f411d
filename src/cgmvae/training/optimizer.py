"""Adam over a whole pack: each member with its own rate, decay and clipping.

Weights and moments are rows of flat buffers; gradients are read where autograd left them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from cgmvae.nn import fused
from cgmvae.nn.packed import TILE, layers_for_training

#: On an accelerator each matrix starts at a multiple of so many numbers: its matrix products are
#: up to twice as fast where memory is aligned.
_ALIGNMENT = 64


class FlatParameters:
    """All parameters of a packed module as one (n_members, n_columns) tensor that they share.

    Matrices (three dimensions, a member's own included) come first; weight decay, which spares
    biases and normalisation, applies to the first ``n_decayed`` columns. Columns that no parameter
    has, between aligned matrices, are 0.

    Parameters
    ----------
    module : nn.Module
        Its parameters become views.
    half : bool
        Whether an accelerator takes the products of normalised networks with weights rounded to
        bfloat16, whose gradients then are bfloat16 too. The weights that are updated stay float32.
    """

    def __init__(self, module: nn.Module, *, half: bool = False) -> None:
        named = sorted(module.named_parameters(), key=lambda item: item[1].dim() < 3)
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self.shapes = [parameter.shape for parameter in self.parameters]
        self.n_matrices = n = sum(parameter.dim() >= 3 for parameter in self.parameters)
        first = self.parameters[0]
        self._layers = list(layers_for_training(module)) if fused.usable(first) else []
        sizes = [parameter[0].numel() for parameter in self.parameters]
        self._columns, self.n_decayed, width = self._lay_out(sizes)
        self.values = first.detach().new_zeros(len(first), width)
        starts = [columns.start for columns in self._columns[:n]]
        starts += itertools.accumulate(sizes[n:-1], initial=self.n_decayed) if sizes[n:] else []
        for parameter, start, size in zip(self.parameters, starts, sizes, strict=True):
            place = self.values[:, start : start + size]
            place.copy_(parameter.detach().reshape(len(parameter), -1))
            parameter.data = place.view(parameter.shape)
        self.rounded = self.values.bfloat16() if half and self._layers else None
        self._leaves: list[Tensor] = list(self.parameters)
        self._give_training_weights()

    def _lay_out(self, sizes: list[int]) -> tuple[list[slice], int, int]:
        """Return the columns of each part, where the matrices end, and how many columns there are.

        On an accelerator matrices start at whole tiles, and those of layers have rows in tiles.
        """
        step = _ALIGNMENT if self.parameters[0].is_cuda else 1
        padded = {id(layer.weight): _tiles(layer.weight.shape[1]) for layer in self._layers}
        columns, end = [], 0
        for parameter, size in zip(self.parameters[: self.n_matrices], sizes, strict=False):
            rows = padded.get(id(parameter))
            width = size if rows is None else rows * parameter.shape[2]
            columns.append(slice(end, end + width))
            end += -(-width // step) * step
        rest = sum(sizes[self.n_matrices :])
        if rest:
            columns.append(slice(end, end + rest))
        return columns, end, -(-(end + rest) // step) * step

    def _give_training_weights(self) -> None:
        """Give layers what they take products with, and gradients are then taken for."""
        parts = self.parts(self.values if self.rounded is None else self.rounded)
        places = {id(parameter): i for i, parameter in enumerate(self.parameters)}
        for layer in self._layers:
            i = places[id(layer.weight)]
            leaf = parts[i].view(len(parts[i]), -1, layer.weight.shape[2]).requires_grad_()
            self._leaves[i] = layer.training_weight = leaf

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Return views of a tensor like ``values``: each matrix, then all the rest together.

        A part takes the time of a call, and most parameters are short.
        """
        return [flat[:, columns] for columns in self._columns]

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Return d loss / d parts, each (n_members, n), 0 for those it does not use."""
        found = torch.autograd.grad(loss, self._leaves, allow_unused=True, materialize_grads=True)
        flat = [gradient.reshape(gradient.shape[0], -1) for gradient in found]
        matrices, rest = flat[: self.n_matrices], flat[self.n_matrices :]
        return [*matrices, torch.cat(rest, dim=1)] if rest else matrices

    def joined(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return gradients of the parts as one tensor like ``values``."""
        joined = torch.zeros_like(self.values)
        for part, gradient in zip(self.parts(joined), gradients, strict=True):
            part.copy_(gradient)
        return joined

    def set(self, values: Tensor) -> None:
        """Change all weights."""
        self.values.copy_(values)
        if self.rounded is not None:
            with torch.no_grad():
                self.rounded.copy_(values)

    def release(self) -> None:
        """Let the module take its products with its own weights again."""
        for layer in self._layers:
            layer.training_weight = None


def _tiles(n: int) -> int:
    return -(-n // TILE) * TILE


def gradient_norms(gradients: Sequence[Tensor]) -> Tensor:
    """Return the norm of each member's whole gradient, (n_members,); not finite if a part is."""
    if fused.usable(gradients[0]):
        return fused.square_sums(gradients).sqrt()
    norms = [torch.linalg.vector_norm(gradient, dim=1) for gradient in gradients]
    return torch.linalg.vector_norm(torch.stack(norms), dim=0)


class PackedAdam:
    """Adam or AdamW with one learning rate and weight decay a member.

    Parameters
    ----------
    flat : FlatParameters
        What is updated.
    weight_decay : sequence of float, (n_members,)
        Decoupled (AdamW) or added to the gradient (Adam).
    kind : {"adamw", "adam"}
    clip : float or None
        Bound of each member's gradient norm.
    """

    def __init__(
        self,
        flat: FlatParameters,
        weight_decay: Sequence[float],
        *,
        kind: Literal["adamw", "adam"] = "adamw",
        clip: float | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self.flat, self.kind, self.clip = flat, kind, clip
        self.betas, self.epsilon = betas, epsilon
        self.mean = torch.zeros_like(flat.values)
        self.square = torch.zeros_like(flat.values)
        self.n_steps = torch.zeros(
            len(flat.values), 1, dtype=torch.float64, device=flat.values.device
        )
        self.weight_decay = flat.values.new_tensor(list(weight_decay))[:, None]
        self._parts = [flat.parts(each) for each in (flat.values, self.mean, self.square)]
        one_by_one = range(len(flat.values) if flat.values.device.type == "cpu" else 0)
        self._own = [[[part[i] for part in parts] for parts in self._parts] for i in one_by_one]

    def state(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return moments and numbers of steps, which change in place."""
        return self.mean, self.square, self.n_steps

    def step(
        self, gradients: list[Tensor], norms: Tensor, learning_rate: Tensor, active: Tensor
    ) -> None:
        """Update the members that are active; the others keep weights and moments.

        Parameters
        ----------
        gradients : list of Tensor
            As ``FlatParameters.gradients`` gives them; they are used up.
        norms : Tensor, (n_members,)
            Their norms.
        learning_rate : Tensor, (n_members,)
        active : Tensor of bool, (n_members,)
            A member with a gradient that is not finite must not be active.
        """
        shrink = None if self.clip is None else self.clip / norms.clamp(min=self.clip)
        if self.flat.values.device.type == "cpu":
            self._step_by_member(gradients, shrink, learning_rate, active)
        elif fused.usable(self.flat.values):
            self._step_fused(gradients, shrink, learning_rate, active)
        else:
            self._step_at_once(gradients, shrink, learning_rate, active)

    def _step_by_member(
        self, gradients: list[Tensor], shrink: Tensor | None, rate: Tensor, active: Tensor
    ) -> None:
        """Update with torch's own fused kernel, which passes once over a processor's memory."""
        update = torch._fused_adamw_ if self.kind == "adamw" else torch._fused_adam_
        n = self.flat.n_matrices
        for i in active.nonzero().squeeze(1).tolist():
            own = [[gradient[i] for gradient in gradients], *self._own[i]]
            if shrink is not None and bool(shrink[i] < 1):
                torch._foreach_mul_(own[0], float(shrink[i]))
            self.n_steps[i] += 1
            step = self.n_steps[i].to(torch.float32)
            groups = (slice(0, n), float(self.weight_decay[i])), (slice(n, None), 0.0)
            for group, decay in groups:
                gradient, values, mean, square = (parts[group] for parts in own)
                if not values:
                    continue
                update(
                    values,
                    gradient,
                    mean,
                    square,
                    [],
                    [step] * len(values),
                    lr=float(rate[i]),
                    beta1=self.betas[0],
                    beta2=self.betas[1],
                    weight_decay=decay,
                    eps=self.epsilon,
                    amsgrad=False,
                    maximize=False,
                )

    def _step_fused(
        self, gradients: list[Tensor], shrink: Tensor | None, rate: Tensor, active: Tensor
    ) -> None:
        """Update all members in one pass over an accelerator's memory."""
        on = active[:, None]
        self.n_steps += on
        corrections = [1 - beta ** self.n_steps.clamp(min=1) for beta in self.betas]
        decoupled = self.kind == "adamw"
        decay = self.weight_decay.double()
        ones = torch.ones_like(decay)
        columns = (
            on,
            ones if shrink is None else shrink[:, None],
            0 * ones if decoupled else decay,
            1 - rate[:, None] * decay if decoupled else ones,
            rate[:, None] / corrections[0],
            corrections[1].rsqrt(),
        )
        scalars = torch.cat([column.to(torch.float32) for column in columns], dim=1)
        rounded = self.flat.rounded
        copies = [None] * len(gradients) if rounded is None else self.flat.parts(rounded)
        for i, (gradient, values, mean, square, copy) in enumerate(
            zip(gradients, *self._parts, copies, strict=True)
        ):
            fused.update(
                values,
                mean,
                square,
                gradient,
                scalars,
                rounded=copy if i < self.flat.n_matrices else None,
                betas=self.betas,
                epsilon=self.epsilon,
                decayed=i < self.flat.n_matrices,
            )

    def _step_at_once(
        self, gradients: list[Tensor], shrink: Tensor | None, rate: Tensor, active: Tensor
    ) -> None:
        """Update all members in a few operations, whatever their number."""
        dtype, on = self.flat.values.dtype, active[:, None]
        gradient = self.flat.joined(gradients)
        if shrink is not None:
            gradient.mul_(shrink[:, None])
        gradient.masked_fill_(~on, 0.0)
        self.n_steps += on
        steps = self.n_steps.clamp(min=1)
        correction = [1 - beta**steps for beta in self.betas]
        rate = torch.where(on, rate[:, None], 0.0)
        size = (rate.double() / correction[0]).to(dtype)
        root = correction[1].sqrt().to(dtype)
        fresh = [on.to(dtype) * (1 - beta) for beta in self.betas]
        values = self.flat.values
        matrices = slice(0, self.flat.n_decayed)
        if self.kind == "adam":
            gradient[:, matrices].addcmul_(values[:, matrices], on * self.weight_decay)
        else:
            values[:, matrices].mul_(1 - (rate * self.weight_decay).to(dtype))
        self.mean.lerp_(gradient, fresh[0].expand_as(gradient))
        self.square.lerp_(gradient.square_(), fresh[1].expand_as(gradient))
        torch.sqrt(self.square, out=gradient).div_(root).add_(self.epsilon)
        values.sub_(torch.div(self.mean, gradient, out=gradient).mul_(size))
