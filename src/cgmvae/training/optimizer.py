"""Adam over a whole pack: every member with its own learning rate, weight decay and clipping.

:class:`FlatParameters` lays the parameters of a packed module out as one tensor, so that a step is
a few passes over memory whatever the number of layers. On a CPU torch's fused Adam updates one
member after the other; on a GPU one kernel updates all (:mod:`cgmvae.nn.cuda`).

The gradient of a matrix for wide sparse features has only the rows that a batch uses. Adam still
updates all rows, since momentum and weight decay move the others too. To gather the rows in use,
let them make up for the steps that they have missed, and write them back took longer than a pass of
the fused kernel over all, even if a batch uses one row in eight of 20,000.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cgmvae.nn import cuda
from cgmvae.nn.packed import TILE, layers_for_training

#: On a GPU each matrix starts at a multiple of this many numbers: products of aligned matrices are
#: up to twice as fast.
_ALIGNMENT = 64

#: Numbers of a matrix for sparse features that are updated at once: its gradient is mostly zeros,
#: and those of a block stay in the CPU's cache.
_BLOCK = 1 << 18


class RowGradient(NamedTuple):
    """The gradient of a matrix of which a batch uses some rows; that of the others is 0."""

    rows: tuple[Tensor, ...]
    """The rows that each member uses, int64 (n_used,)"""
    values: tuple[Tensor, ...]
    """Their gradients, (n_used, width)"""

    @classmethod
    def of(cls, gradient: Tensor) -> RowGradient:
        """Take a sparse tensor, (n_members, n_rows, width), apart."""
        gradient = gradient.coalesce()
        members, rows = gradient.indices()
        counts = torch.bincount(members, minlength=len(gradient)).tolist()
        return cls(rows.split(counts), gradient.values().split(counts))

    def unbind(self) -> list[Tensor]:
        """Return the numbers of each member in one dimension, as a tensor's method does."""
        return [own.view(-1) for own in self.values]

    def blocks(self, member: int, size: int, zeros: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Return where blocks of a member's gradient of ``size`` numbers lie, and their contents.

        They are written into ``zeros``, which is 0 again before the next block.
        """
        # NumPy copies whole rows, where torch goes from number to number.
        rows, values = self.rows[member].numpy(), self.values[member].numpy()
        width = values.shape[1]
        n_rows = len(zeros) // width
        matrix = zeros[: n_rows * width].view(n_rows, width).numpy()
        for first in range(0, size // width, n_rows):
            start, end = np.searchsorted(rows, [first, first + n_rows])
            matrix[rows[start:end] - first] = values[start:end]
            where = slice(first * width, min((first + n_rows) * width, size))
            block = zeros[: where.stop - where.start]
            yield where, block
            block.zero_()  # erasing the rows one by one takes longer


class FlatParameters:
    """All parameters of a packed module as one (n_members, n_columns) tensor that they share.

    Matrices (three dimensions, the member axis included) come first, in ``n_decayed`` columns;
    weight decay usually spares the rest, biases and normalization. Columns without a
    parameter, between aligned matrices, are 0.

    Parameters
    ----------
    module : nn.Module
        Its parameters become views.
    half : bool
        Whether a GPU multiplies by weights rounded to bfloat16 in normalized networks, with
        gradients in bfloat16 too. The weights that are updated stay float32.
    """

    def __init__(self, module: nn.Module, *, half: bool = False) -> None:
        encoder = getattr(module, "row_encoder", None)
        slow = set() if encoder is None else set(encoder.parameters())
        named = sorted(
            module.named_parameters(), key=lambda item: (item[1].dim() < 3, item[1] in slow)
        )
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self.shapes = [parameter.shape for parameter in self.parameters]
        self.n_matrices = n = sum(parameter.dim() >= 3 for parameter in self.parameters)
        n_slow = sum(parameter in slow for parameter in self.parameters[n:])
        #: The vectors of the network, and those of its row encoder.
        self._vectors = [slice(n, len(named) - n_slow), slice(len(named) - n_slow, len(named))]
        self._vectors = [group for group in self._vectors if group.stop > group.start]
        firsts = [*range(n), *(group.start for group in self._vectors)]
        #: Whether each part belongs to the row encoder, which may have a learning rate of its own.
        self.of_encoder = [self.parameters[i] in slow for i in firsts]
        first = self.parameters[0]
        self._layers = list(layers_for_training(module)) if cuda.usable(first) else []
        sizes = [parameter[0].numel() for parameter in self.parameters]
        self._columns, self.n_decayed, width = self._lay_out(sizes)
        self.values = first.detach().new_zeros(len(first), width)
        ends = itertools.accumulate(sizes[n:], initial=self.n_decayed)
        self._starts = [*(columns.start for columns in self._columns[:n]), *ends][: len(sizes)]
        for parameter, view in zip(self.parameters, self._views(self.values), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
        self.rounded = self.values.bfloat16() if half and self._layers else None
        #: The parts of the module that choose by themselves what is computed in bfloat16.
        self._halved = [part for part in module.modules() if hasattr(part, "in_half")]
        for part in self._halved:
            part.in_half = half  # type: ignore[assignment]
        self._leaves: list[Tensor] = list(self.parameters)
        self._set_training_weights()

    def _lay_out(self, sizes: list[int]) -> tuple[list[slice], int, int]:
        """Return the columns of each part, the end of the matrices, and the number of columns.

        On a GPU matrices start at whole tiles, and those of layers have rows in tiles.
        """
        step = _ALIGNMENT if self.parameters[0].is_cuda else 1
        padded = {id(layer.weight): _tiles(layer.weight.shape[1]) for layer in self._layers}
        columns, end = [], 0
        for parameter, size in zip(self.parameters[: self.n_matrices], sizes, strict=False):
            rows = padded.get(id(parameter))
            width = size if rows is None else rows * parameter.shape[2]
            columns.append(slice(end, end + width))
            end += -(-width // step) * step
        n_decayed = end
        for group in self._vectors:
            columns.append(slice(end, end + sum(sizes[group])))
            end = columns[-1].stop
        return columns, n_decayed, -(-end // step) * step

    def _set_training_weights(self) -> None:
        """Give layers the weights that a GPU multiplies by, and that gradients are taken for."""
        parts = self.parts(self.values if self.rounded is None else self.rounded)
        index = {id(parameter): i for i, parameter in enumerate(self.parameters)}
        for layer in self._layers:
            i = index[id(layer.weight)]
            leaf = parts[i].view(len(parts[i]), -1, layer.weight.shape[2]).requires_grad_()
            self._leaves[i] = layer.training_weight = leaf

    def _views(self, flat: Tensor) -> list[Tensor]:
        """Return views of a tensor like ``values``, one per parameter."""
        return [
            flat[:, start : start + shape[1:].numel()].view(shape)
            for start, shape in zip(self._starts, self.shapes, strict=True)
        ]

    def mask(self, names: Collection[str]) -> Tensor:
        """Return which columns of a tensor like ``values`` belong to these parameters."""
        mask = torch.zeros_like(self.values[:1], dtype=torch.bool)
        for name, start, shape in zip(self.names, self._starts, self.shapes, strict=True):
            mask[:, start : start + shape[1:].numel()] = name in names
        return mask

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Return the matrices in a tensor like ``values``, and last all vectors together.

        Each is (n_members, n). Most parameters are short, and a part costs a call.
        """
        return [flat[:, columns] for columns in self._columns]

    def gradients(self, loss: Tensor) -> list[Any]:
        """Return d loss / d parts, each (n_members, n); 0 for unused parameters.

        The gradient of a matrix for sparse features is a :class:`RowGradient`.
        """
        found = torch.autograd.grad(loss, self._leaves, allow_unused=True, materialize_grads=True)
        flat: list[Any] = [
            RowGradient.of(each) if each.is_sparse else each.reshape(each.shape[0], -1)
            for each in found
        ]
        return flat[: self.n_matrices] + [torch.cat(flat[group], 1) for group in self._vectors]

    def set(self, values: Tensor) -> None:
        """Replace all weights."""
        self.values.copy_(values)
        if self.rounded is not None:
            with torch.no_grad():
                self.rounded.copy_(values)

    def release(self) -> None:
        """Let the module multiply by its own weights again, in their precision."""
        for layer in self._layers:
            layer.training_weight = None
        for part in self._halved:
            part.in_half = False  # type: ignore[assignment]


def _tiles(n: int) -> int:
    return -(-n // TILE) * TILE


def gradient_norms(gradients: Sequence[Any]) -> Tensor:
    """Return the norm of each member's whole gradient, (n_members,); not finite if a part is."""
    if cuda.usable(gradients[-1]):
        return cuda.square_sums(gradients).sqrt()
    # A dot product passes over memory twice as fast as torch's norm of each row.
    members = zip(*(gradient.unbind() for gradient in gradients), strict=True)
    dots = [torch.stack([part.dot(part) for part in own]) for own in members]
    return torch.stack(dots).sum(1).sqrt_()


#: How fast Adam forgets both moments, and what is added to the root of the second.
_BETAS, _EPSILON = (0.9, 0.999), 1e-8


class PackedAdam:
    """Adam or AdamW with one learning rate and weight decay per member.

    Parameters
    ----------
    flat : FlatParameters
        What is updated.
    weight_decay : sequence of float, (n_members,)
        Decoupled (AdamW) or added to the gradient (Adam).
    kind : {"adamw", "adam"}
    decay_all : bool
        Whether weight decay applies to biases and normalization too.
    clip : float or None
        Bound of each member's gradient norm.
    """

    def __init__(
        self,
        flat: FlatParameters,
        weight_decay: Sequence[float],
        *,
        kind: Literal["adamw", "adam"] = "adamw",
        decay_all: bool = False,
        clip: float | None = None,
    ) -> None:
        self.flat, self.kind, self.clip = flat, kind, clip
        self.mean = torch.zeros_like(flat.values)
        self.square = torch.zeros_like(flat.values)
        self.n_steps = torch.zeros(
            len(flat.values), 1, dtype=torch.float64, device=flat.values.device
        )
        self.weight_decay = flat.values.new_tensor(list(weight_decay))[:, None]
        self._decays = self.weight_decay[:, 0].tolist()
        #: Weight decay applies to this many of the first parts.
        self._n_decayed = flat.n_matrices + decay_all
        #: What the learning rates are multiplied by for the row encoder, (n_members,)
        self.encoder_factor = torch.ones_like(self.weight_decay[:, 0])
        self._parts = [flat.parts(each) for each in (flat.values, self.mean, self.square)]
        #: The same of each part and member: weights and both moments.
        self._rows = [
            list(zip(*(each.unbind() for each in part), strict=True))
            for part in zip(*self._parts, strict=True)
        ]
        self._zeros = flat.values.new_zeros(0)
        self._betas = self.n_steps.new_tensor(_BETAS)

    def state(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return moments and numbers of steps, which change in place."""
        return self.mean, self.square, self.n_steps

    def step(
        self, gradients: list[Any], norms: Tensor, learning_rate: Tensor, active: Tensor
    ) -> None:
        """Update the active members; the others keep weights and moments.

        Parameters
        ----------
        gradients : list of Tensor and RowGradient
            As ``FlatParameters.gradients`` returns them; they may be overwritten.
        norms : Tensor, (n_members,)
            Their norms.
        learning_rate : Tensor, (n_members,)
        active : Tensor of bool, (n_members,)
            A member with a gradient that is not finite must not be active.
        """
        step = self._step_fused if cuda.usable(self.flat.values) else self._step_by_member
        step(gradients, norms, learning_rate, active)

    def _step_by_member(
        self, gradients: list[Any], norms: Tensor, rate: Tensor, active: Tensor
    ) -> None:
        """Update with torch's fused kernel, which passes over memory once.

        Members with the same learning rate and weight decay are updated in one call.
        """
        self.n_steps += active[:, None]
        steps = self.n_steps.squeeze(1).to(torch.float32).unbind()
        rates = rate.tolist(), (rate * self.encoder_factor).tolist()
        shrinks = [1.0] * len(rate)
        if self.clip is not None:
            shrinks = (self.clip / norms).tolist()
        updates: dict[tuple[float, float], list[tuple[Tensor, ...]]] = {}
        members = active.nonzero().squeeze(1).tolist()
        for number, (gradient, rows) in enumerate(zip(gradients, self._rows, strict=True)):
            by_row = isinstance(gradient, RowGradient)
            found = gradient.values if by_row else gradient.unbind()
            for i in members:
                if shrinks[i] < 1:
                    found[i].mul_(shrinks[i])
                decay = self._decays[i] if number < self._n_decayed else 0.0
                key = rates[self.flat.of_encoder[number]][i], decay
                if not by_row:
                    updates.setdefault(key, []).append((found[i], *rows[i], steps[i]))
                    continue
                for where, block in gradient.blocks(i, len(rows[i][0]), self._zeros_for(found[i])):
                    self._update([(block, *(each[where] for each in rows[i]), steps[i])], *key)
        for key, listed in updates.items():
            self._update(listed, *key)

    def _update(self, listed: list[tuple[Tensor, ...]], rate: float, decay: float) -> None:
        """Update weights and moments; each item has gradient, weights, moments and step."""
        update = torch._fused_adamw_ if self.kind == "adamw" else torch._fused_adam_
        gradients, values, means, squares, steps = map(list, zip(*listed, strict=True))
        update(
            values,
            gradients,
            means,
            squares,
            [],
            steps,
            lr=rate,
            beta1=_BETAS[0],
            beta2=_BETAS[1],
            weight_decay=decay,
            eps=_EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def _zeros_for(self, rows: Tensor) -> Tensor:
        """Return zeros for a block of a matrix, always in the same memory."""
        if len(self._zeros) < rows.shape[1]:
            self._zeros = rows.new_zeros(max(_BLOCK, rows.shape[1]))
        return self._zeros

    def _step_fused(
        self, gradients: list[Tensor], norms: Tensor, rate: Tensor, active: Tensor
    ) -> None:
        """Update all members in one pass over a GPU's memory."""
        self.n_steps += active[:, None]
        powers = self._betas**self.n_steps
        rates = rate, (rate * self.encoder_factor if any(self.flat.of_encoder) else rate)
        rounded = self.flat.rounded
        copies = [None] * len(gradients) if rounded is None else self.flat.parts(rounded)
        for i, (gradient, values, mean, square, copy) in enumerate(
            zip(gradients, *self._parts, copies, strict=True)
        ):
            cuda.update(
                values,
                mean,
                square,
                gradient,
                (active, norms, powers, rates[self.flat.of_encoder[i]], self.weight_decay),
                rounded=copy if i < self.flat.n_matrices else None,
                clip=self.clip,
                betas=_BETAS,
                epsilon=_EPSILON,
                decayed=i < self._n_decayed,
                decoupled=self.kind == "adamw",
            )
