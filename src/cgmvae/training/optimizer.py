"""Adam over a whole pack: one flat buffer, each member with its own rate, decay and clipping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw


class FlatParameters:
    """All parameters of a packed module as one (n_members, n_parameters) tensor that they share.

    Matrices (three dimensions, a member's own included) come first, so that weight decay, which
    spares biases and normalisation, applies to the first ``n_decayed`` columns.
    """

    def __init__(self, module: nn.Module) -> None:
        named = sorted(module.named_parameters(), key=lambda item: item[1].dim() < 3)
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self.shapes = [parameter.shape for parameter in self.parameters]
        self.values = torch.cat([p.detach().reshape(len(p), -1) for p in self.parameters], dim=1)
        self.n_decayed = sum(p[0].numel() for p in self.parameters if p.dim() >= 3)
        self.gradient = torch.zeros_like(self.values)
        start = 0
        for parameter in self.parameters:
            end = start + parameter[0].numel()
            parameter.data = self.values[:, start:end].view(parameter.shape)
            start = end

    def collect_gradients(self, loss: Tensor) -> Tensor:
        """Return d loss / d parameters, (n_members, n_parameters); 0 for those it does not use."""
        gradients = torch.autograd.grad(
            loss, self.parameters, allow_unused=True, materialize_grads=True
        )
        flat = [gradient.reshape(gradient.shape[0], -1) for gradient in gradients]
        return torch.cat(flat, dim=1, out=self.gradient)


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

    def step(self, learning_rate: Tensor, active: Tensor) -> None:
        """Update the members that are active; the others keep weights and moments.

        Parameters
        ----------
        learning_rate : Tensor, (n_members,)
        active : Tensor of bool, (n_members,)
            A member with a gradient that is not finite must not be active.
        """
        if self.clip is not None:
            norm = torch.linalg.vector_norm(self.flat.gradient, dim=1, keepdim=True)
            shrink = self.clip / norm.clamp(min=self.clip)
            if self.flat.values.device.type != "cpu" or bool((shrink < 1).any()):
                self.flat.gradient.mul_(shrink)
        if self.flat.values.device.type == "cpu":
            self._step_by_member(learning_rate, active)
        else:
            self._step_at_once(learning_rate, active)

    def _step_by_member(self, learning_rate: Tensor, active: Tensor) -> None:
        """Update with torch's own fused kernel, which passes once over a processor's memory."""
        update = adamw if self.kind == "adamw" else adam
        decayed = slice(0, self.flat.n_decayed), slice(self.flat.n_decayed, None)
        for i in active.nonzero().squeeze(1).tolist():
            for part, decay in zip(decayed, (float(self.weight_decay[i]), 0.0), strict=True):
                update(
                    [self.flat.values[i, part]],
                    [self.flat.gradient[i, part]],
                    [self.mean[i, part]],
                    [self.square[i, part]],
                    [],
                    [self.n_steps[i].to(torch.float32)],
                    amsgrad=False,
                    beta1=self.betas[0],
                    beta2=self.betas[1],
                    lr=float(learning_rate[i]),
                    weight_decay=decay,
                    eps=self.epsilon,
                    maximize=False,
                    fused=True,
                )
            self.n_steps[i] += 1

    def _step_at_once(self, learning_rate: Tensor, active: Tensor) -> None:
        """Update all members in a few operations, whatever their number."""
        dtype, on = self.flat.values.dtype, active[:, None]
        self.flat.gradient.masked_fill_(~on, 0.0)
        self.n_steps += on
        steps = self.n_steps.clamp(min=1)
        correction = [1 - beta**steps for beta in self.betas]
        rate = torch.where(on, learning_rate[:, None], 0.0)
        size = (rate.double() / correction[0]).to(dtype)
        root = correction[1].sqrt().to(dtype)
        fresh = [on.to(dtype) * (1 - beta) for beta in self.betas]
        values, gradient = self.flat.values, self.flat.gradient
        decay = (rate * self.weight_decay).to(dtype)
        matrices = slice(0, self.flat.n_decayed)
        if self.kind == "adam":
            gradient[:, matrices].addcmul_(values[:, matrices], on * self.weight_decay)
        else:
            values[:, matrices].mul_(1 - decay)
        self.mean.lerp_(gradient, fresh[0].expand_as(gradient))
        self.square.lerp_(gradient.square_(), fresh[1].expand_as(gradient))
        torch.sqrt(self.square, out=gradient).div_(root).add_(self.epsilon)
        values.sub_(torch.div(self.mean, gradient, out=gradient).mul_(size))
