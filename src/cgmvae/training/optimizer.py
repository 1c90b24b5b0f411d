"""Adam over a whole pack: each member with its own rate, decay and clipping.

Weights, moments and a processor's gradients are rows of flat buffers (:mod:`cgmvae.training.flat`);
an accelerator's gradients are read where autograd left them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from cgmvae.nn import fused
from cgmvae.training.flat import FlatParameters


def gradient_norms(gradients: Sequence[Tensor]) -> Tensor:
    """Return the norm of each member's whole gradient, (n_members,); not finite if a part is."""
    if fused.usable(gradients[0]):
        return fused.square_sums(gradients).sqrt()
    # A dot product passes over memory twice as fast as torch's norm of each row.
    members = zip(*(gradient.unbind() for gradient in gradients), strict=True)
    dots = [torch.stack([part.dot(part) for part in own]) for own in members]
    return torch.stack(dots).sum(1).sqrt_()


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
        self._decays = self.weight_decay[:, 0].tolist()
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
        n = self.flat.n_decayed_parts
        self.n_steps += active[:, None]
        steps = self.n_steps.to(torch.float32)
        rates, shrinks = rate.tolist(), [1.0] * len(rate) if shrink is None else shrink.tolist()
        for i, is_active in enumerate(active.tolist()):
            if not is_active:
                continue
            own = [[gradient[i] for gradient in gradients], *self._own[i]]
            if shrinks[i] < 1:
                torch._foreach_mul_(own[0], shrinks[i])
            for group, decay in ((slice(0, n), self._decays[i]), (slice(n, None), 0.0)):
                gradient, values, mean, square = (parts[group] for parts in own)
                if not values:
                    continue
                update(
                    values,
                    gradient,
                    mean,
                    square,
                    [],
                    [steps[i, 0]] * len(values),
                    lr=rates[i],
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
                rounded=copy if i < self.flat.n_decayed_parts else None,
                betas=self.betas,
                epsilon=self.epsilon,
                decayed=i < self.flat.n_decayed_parts,
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
