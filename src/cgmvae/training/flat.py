"""All parameters of a packed module as one tensor, and on a processor all gradients as another.

:mod:`cgmvae.training.optimizer` passes over them in a few calls, whatever the number of layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from cgmvae.nn import fused
from cgmvae.nn.packed import TILE, Placed, layers_for_training

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
        ends = itertools.accumulate(sizes[n:], initial=self.n_decayed)
        self._starts = [*(columns.start for columns in self._columns[:n]), *ends][: len(sizes)]
        for parameter, place in zip(self.parameters, self._places(self.values), strict=True):
            place.copy_(parameter.detach())
            parameter.data = place
        #: How many of the parts decay.
        self.n_decayed_parts = n
        self._gradient: _FlatGradient | None = None
        if first.device.type == "cpu":
            self._join_parts(module, width)
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

    def _join_parts(self, module: nn.Module, width: int) -> None:
        """Make one part of all matrices, and have their gradients side by side as they are."""
        bounds = (0, self.n_decayed, width)
        self._columns = [slice(a, b) for a, b in itertools.pairwise(bounds) if a < b]
        self.n_decayed_parts = min(self.n_matrices, 1)
        values = torch.zeros_like(self.values)
        places = dict(zip(self.parameters, self._places(values), strict=True))
        self._gradient = _FlatGradient(values, places, module)

    def _give_training_weights(self) -> None:
        """Give layers what they take products with, and gradients are then taken for."""
        parts = self.parts(self.values if self.rounded is None else self.rounded)
        places = {id(parameter): i for i, parameter in enumerate(self.parameters)}
        for layer in self._layers:
            i = places[id(layer.weight)]
            leaf = parts[i].view(len(parts[i]), -1, layer.weight.shape[2]).requires_grad_()
            self._leaves[i] = layer.training_weight = leaf

    def _places(self, flat: Tensor) -> list[Tensor]:
        """Return views of a tensor like ``values``, one a parameter."""
        return [
            flat[:, start : start + shape[1:].numel()].view(shape)
            for start, shape in zip(self._starts, self.shapes, strict=True)
        ]

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Return views of a tensor like ``values``: the matrices, then all the rest together.

        A part takes the time of a call, and most parameters are short. On an accelerator, where
        gradients are apart, each matrix is a part.
        """
        return [flat[:, columns] for columns in self._columns]

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Return d loss / d parts, each (n_members, n), 0 for those it does not use."""
        found = torch.autograd.grad(loss, self._leaves, allow_unused=True, materialize_grads=True)
        if self._gradient is not None:
            return self.parts(self._gradient.gathered(found))
        flat = [gradient.reshape(gradient.shape[0], -1) for gradient in found]
        matrices, rest = flat[: self.n_matrices], flat[self.n_matrices :]
        return [*matrices, torch.cat(rest, dim=1)] if rest else matrices

    def gradient_places(self) -> dict[nn.Parameter, Tensor]:
        """Return where a processor's gradients go, for a network that writes them by hand."""
        assert self._gradient is not None
        return dict(zip(self.parameters, self._gradient.places, strict=True))

    def written(self) -> list[Tensor]:
        """Return what was written to all the places, as :meth:`gradients` does."""
        assert self._gradient is not None
        return self.parts(self._gradient.values)

    def joined(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return gradients of the parts as one tensor like ``values``."""
        joined = torch.zeros_like(self.values)
        for part, gradient in zip(self.parts(joined), gradients, strict=True):
            part.copy_(gradient)
        return joined

    def in_one(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return what :meth:`gradients` gave as one tensor like ``values``, a copy if need be."""
        return self.joined(gradients) if self._gradient is None else self._gradient.values

    def set(self, values: Tensor) -> None:
        """Change all weights."""
        self.values.copy_(values)
        if self.rounded is not None:
            with torch.no_grad():
                self.rounded.copy_(values)

    def release(self) -> None:
        """Let the module take its products with its own weights again, and keep no gradients."""
        for layer in self._layers:
            layer.training_weight = None
        if self._gradient is not None:
            self._gradient.withdraw()


class _FlatGradient:
    """The gradients of all parameters as one tensor, in which modules find the places of theirs.

    Memory that is new in each step has a processor's system clear it first, which takes as long as
    Adam's update.
    """

    def __init__(
        self, values: Tensor, places: Mapping[nn.Parameter, Tensor], module: nn.Module
    ) -> None:
        self.values, self.places = values, list(places.values())
        takers = (part for part in module.modules() if isinstance(part, Placed))
        self._offers = [(taker, places[taker.placed]) for taker in takers]
        self._offer()

    def gathered(self, found: Sequence[Tensor]) -> Tensor:
        """Return the tensor, with what is not there yet copied to its place."""
        pairs = zip(self.places, found, strict=True)
        away = [pair for pair in pairs if pair[0].data_ptr() != pair[1].data_ptr()]
        if away:
            torch._foreach_copy_([place for place, _ in away], [found for _, found in away])
        self._offer()
        return self.values

    def _offer(self) -> None:
        for taker, place in self._offers:
            taker.gradient_places[:] = (place,)

    def withdraw(self) -> None:
        """Leave nobody a place."""
        for taker, _ in self._offers:
            taker.gradient_places.clear()


def _tiles(n: int) -> int:
    return -(-n // TILE) * TILE
