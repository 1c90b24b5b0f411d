"""Adam over a whole pack: each member with its own rate, decay and clipping.

Weights and moments are rows of flat buffers; gradients are read where autograd left them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from cgmvae.nn import fused


class FlatParameters:
    """All parameters of a packed module as one (n_members, n_parameters) tensor that they share.

    Matrices (three dimensions, a member's own included) come first; weight decay, which spares
    biases and normalisation, applies to the first ``n_decayed`` columns.
    """

    def __init__(self, module: nn.Module) -> None:
        named = sorted(module.named_parameters(), key=lambda item: item[1].dim() < 3)
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self.shapes = [parameter.shape for parameter in self.parameters]
        sizes = [parameter[0].numel() for parameter in self.parameters]
        self.ends = list(itertools.accumulate(sizes))
        self.n_matrices = sum(parameter.dim() >= 3 for parameter in self.parameters)
        self.n_decayed = sum(sizes[: self.n_matrices])
        self.values = torch.cat([p.detach().reshape(len(p), -1) for p in self.parameters], dim=1)
        for parameter, part in zip(self.parameters, self.parts(self.values), strict=True):
            parameter.data = part.view(parameter.shape)

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Return the columns of each parameter in a tensor like ``values``, as views."""
        return [flat[:, start:end] for start, end in itertools.pairwise([0, *self.ends])]

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Return d loss / d parameter, each (n_members, n), 0 for those it does not use."""
        found = torch.autograd.grad(
            loss, self.parameters, allow_unused=True, materialize_grads=True
        )
        return [gradient.reshape(gradient.shape[0], -1) for gradient in found]


def gradient_norms(gradients: Sequence[Tensor]) -> Tensor:
    """Return the norm of each member's whole gradient, (n_members,); not finite if a part is."""
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
        update = adamw if self.kind == "adamw" else adam
        matrices = self.flat.n_matrices
        for i in active.nonzero().squeeze(1).tolist():
            own = [[part[i] for part in parts] for parts in (gradients, *self._parts)]
            if shrink is not None and bool(shrink[i] < 1):
                torch._foreach_mul_(own[0], float(shrink[i]))
            groups = (slice(0, matrices), float(self.weight_decay[i])), (slice(matrices, None), 0.0)
            for group, decay in groups:
                gradient, values, mean, square = (parts[group] for parts in own)
                update(
                    values,
                    gradient,
                    mean,
                    square,
                    [],
                    [self.n_steps[i].to(torch.float32).clone() for _ in values],
                    amsgrad=False,
                    beta1=self.betas[0],
                    beta2=self.betas[1],
                    lr=float(rate[i]),
                    weight_decay=decay,
                    eps=self.epsilon,
                    maximize=False,
                    fused=True,
                )
            self.n_steps[i] += 1

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
        for i, (gradient, values, mean, square) in enumerate(
            zip(gradients, *self._parts, strict=True)
        ):
            fused.update(
                values,
                mean,
                square,
                gradient,
                scalars,
                betas=self.betas,
                epsilon=self.epsilon,
                decayed=i < self.flat.n_matrices,
            )

    def _step_at_once(
        self, gradients: list[Tensor], shrink: Tensor | None, rate: Tensor, active: Tensor
    ) -> None:
        """Update all members in a few operations, whatever their number."""
        dtype, on = self.flat.values.dtype, active[:, None]
        gradient = torch.cat(gradients, dim=1)
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
