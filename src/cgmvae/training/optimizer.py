"""Adam over a whole pack: one flat buffer, each member with its own rate, decay and clipping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

#: Elements of all members that a processor updates at a time, so that they stay in its cache.
_CACHED_ELEMENTS = 1 << 16


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
        gradient, dtype = self.flat.gradient, self.flat.values.dtype
        on = active[:, None]
        gradient.masked_fill_(~on, 0.0)
        if self.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient.mul_(self.clip / norm.clamp(min=self.clip))
        self.n_steps += on
        steps = self.n_steps.clamp(min=1)
        correction = [1 - beta**steps for beta in self.betas]
        rate = torch.where(on, learning_rate[:, None], 0.0)
        size = (rate.double() / correction[0]).to(dtype)
        root = correction[1].sqrt().to(dtype)
        fresh = [on.to(dtype) * (1 - beta) for beta in self.betas]
        for part, decay in self._parts():
            self._update(part, size, root, fresh, rate.to(dtype) if decay else None)

    def _parts(self) -> list[tuple[slice, bool]]:
        """Return column ranges and whether each decays; short ones on a processor."""
        n_members, width = self.flat.values.shape
        length = width
        if self.flat.values.device.type == "cpu":
            length = max(1, _CACHED_ELEMENTS // n_members)
        bounds = [(0, self.flat.n_decayed, True), (self.flat.n_decayed, width, False)]
        return [
            (slice(start, min(start + length, end)), decay)
            for first, end, decay in bounds
            for start in range(first, end, length)
        ]

    def _update(
        self,
        part: slice,
        size: Tensor,
        root: Tensor,
        fresh: list[Tensor],
        decay_rate: Tensor | None,
    ) -> None:
        values, gradient = self.flat.values[:, part], self.flat.gradient[:, part]
        mean, square = self.mean[:, part], self.square[:, part]
        if decay_rate is not None and self.kind == "adam":
            gradient.addcmul_(values, self.weight_decay)
        elif decay_rate is not None:
            values.mul_(1 - decay_rate * self.weight_decay)
        mean.lerp_(gradient, fresh[0].expand_as(mean))
        square.lerp_(gradient.square_(), fresh[1].expand_as(square))
        torch.sqrt(square, out=gradient).div_(root).add_(self.epsilon)
        values.sub_(torch.div(mean, gradient, out=gradient).mul_(size))
