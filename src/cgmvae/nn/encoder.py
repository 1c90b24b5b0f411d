"""Encoders of one's own: any module, with a copy of its weights for every member.

Rows of any shape travel as columns of a matrix, as all rows do; a :class:`RowLayout` says how they
are laid out. An :class:`EncoderStack` gives them their shape back, and applies each member's copy
of the encoder.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from cgmvae.errors import InputError
from cgmvae.nn.rng import RandomStreams

#: Whole numbers up to this size are exact in float32, the type of the matrix.
_MAX_WHOLE = 2**24

#: Name of the only tensor of rows that are not a mapping.
ONLY = ""


@dataclass(frozen=True)
class RowLayout:
    """Names, shapes per row and types of the tensors that make up rows.

    Examples
    --------
    >>> rows = {"ids": torch.arange(6).view(2, 3), "scale": torch.tensor([0.5, 2.0])}
    >>> layout = RowLayout.of(rows)
    >>> layout.flat(rows)
    array([[0. , 1. , 2. , 0.5],
           [3. , 4. , 5. , 2. ]], dtype=float32)
    >>> layout.rows(torch.from_numpy(layout.flat(rows)))["scale"]
    tensor([0.5000, 2.0000])
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    def __post_init__(self) -> None:
        whole = all(size >= 0 for shape in self.shapes for size in shape)
        if not len(self.names) == len(self.shapes) == len(self.dtypes) or not whole:
            raise ValueError("the layout of its rows is inconsistent")
        for dtype in self.dtypes:
            _whole_type(dtype)

    @classmethod
    def of(cls, rows: Any) -> RowLayout:
        """Return the layout of rows: a tensor, an array, or a mapping of them by name."""
        parts = as_tensors(rows)
        return cls(
            tuple(parts),
            tuple(tuple(part.shape[1:]) for part in parts.values()),
            tuple(str(part.dtype).removeprefix("torch.") for part in parts.values()),
        )

    @property
    def width(self) -> int:
        """Number of columns."""
        return sum(math.prod(shape) for shape in self.shapes)

    def flat(self, rows: Any) -> NDArray[np.float32]:
        """Return rows as a matrix, (n_rows, width); raise if they are laid out otherwise."""
        parts = as_tensors(rows)
        found = RowLayout.of(rows)
        if found != self:
            raise InputError(
                f"Some rows have the shape {found._described()}, others {self._described()}; pad "
                "or crop them to one shape, and use one type."
            )
        for part in parts.values():
            if not torch.isfinite(part).all():
                raise InputError("The rows hold NaN or infinite values; replace them.")
            if not part.is_floating_point() and part.numel() and part.abs().max() > _MAX_WHOLE:
                raise InputError(f"The rows hold whole numbers above {_MAX_WHOLE:,}.")
        columns = [part.reshape(len(part), -1).to(torch.float32) for part in parts.values()]
        return torch.cat(columns, dim=1).numpy()

    def rows(self, matrix: Tensor) -> Any:
        """Return the rows of a matrix, (n_rows, width), in their own shape and type."""
        sizes = [math.prod(shape) for shape in self.shapes]
        parts = {
            # Floating-point numbers stay in the precision of the network.
            name: part.reshape(len(part), *shape).to(_whole_type(dtype) or part.dtype)
            for name, shape, dtype, part in zip(
                self.names, self.shapes, self.dtypes, matrix.split(sizes, dim=1), strict=True
            )
        }
        return parts[ONLY] if self.names == (ONLY,) else parts

    def _described(self) -> str:
        return ", ".join(
            f"{name} {shape} {dtype}".strip()
            for name, shape, dtype in zip(self.names, self.shapes, self.dtypes, strict=True)
        )


def as_tensors(rows: Any) -> dict[str, Tensor]:
    """Return the tensors of rows by name; raise if they are something else."""
    named = rows if isinstance(rows, Mapping) else {ONLY: rows}
    try:
        parts = {str(name): torch.as_tensor(part).detach().cpu() for name, part in named.items()}
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            "The rows for the encoder must be a tensor, an array or a mapping of them; give a "
            "collate function that makes them of other rows."
        ) from error
    if not parts or any(part.dim() == 0 for part in parts.values()):
        raise InputError("The rows for the encoder must have an axis of rows.")
    return parts


def _whole_type(name: str) -> torch.dtype | None:
    """Return the type of that name, None for floating-point numbers."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or dtype.is_complex:
        raise ValueError(f"rows cannot have the type {name!r}")
    return None if dtype.is_floating_point else dtype


def encode(encoder: Callable[..., Any], rows: Any) -> Tensor:
    """Return what an encoder makes of rows, (n_rows, width); a mapping names its arguments."""
    encoded = encoder(**rows) if isinstance(rows, Mapping) else encoder(rows)
    if not isinstance(encoded, Tensor) or encoded.dim() != 2:
        found = tuple(encoded.shape) if isinstance(encoded, Tensor) else type(encoded).__name__
        raise InputError(
            f"The encoder returns {found} for a batch; it must return a tensor of shape "
            "(n_rows, width)."
        )
    return encoded


class StandardizedEncoder(nn.Module):
    """An encoder whose features get mean 0 and variance 1, as scaling does to other features.

    The statistics are those of batch normalization.
    """

    def __init__(self, encoder: nn.Module, width: int) -> None:
        super().__init__()
        self.encoder, self.norm = encoder, nn.BatchNorm1d(width, affine=False)

    def forward(self, *rows: Any, **named: Any) -> Tensor:
        """Return the features of a batch, (n_rows, width)."""
        return self.norm(self.encoder(*rows, **named))


class EncoderStack(nn.Module):
    """One copy of an encoder per member; weights and buffers have a leading member axis.

    Weights that the encoder itself does not train (``requires_grad`` is False) are not trained.

    Parameters
    ----------
    encoders : sequence of nn.Module
        One per member, of the same form; they are not changed.
    layout : RowLayout
        How rows are laid out.
    """

    def __init__(self, encoders: Sequence[nn.Module], layout: RowLayout) -> None:
        super().__init__()
        self.layout = layout
        self.module = copy.deepcopy(encoders[0])
        #: Names of the statistics, which change without a gradient.
        self._statistics: set[str] = set()
        stacked: dict[Tensor, Tensor] = {}  # weights that are tied stay tied
        originals = zip(*(encoder.modules() for encoder in encoders), strict=True)
        for (path, part), same in zip(list(self.module.named_modules()), originals, strict=True):
            tensors = part.named_parameters(recurse=False), part.named_buffers(recurse=False)
            for name, tensor in list(itertools.chain(*tensors)):
                if tensor not in stacked:
                    stacked[tensor] = self._stacked(tensor, [getattr(each, name) for each in same])
                kept = name not in part._non_persistent_buffers_set
                delattr(part, name)
                if isinstance(stacked[tensor], nn.Parameter):
                    setattr(part, name, stacked[tensor])
                else:
                    part.register_buffer(name, stacked[tensor], persistent=kept)
                if isinstance(stacked[tensor], nn.Parameter) and not tensor.requires_grad:
                    self._statistics.add(f"{path}.{name}" if path else name)

    @staticmethod
    def _stacked(tensor: Tensor, same: Sequence[Tensor]) -> Tensor:
        together = torch.stack([each.detach() for each in same])
        # Statistics such as those of batch normalization are vectors; as parameters they are kept
        # and restored with the weights of the best epoch. Adam leaves them alone: their gradient
        # is 0, and vectors do not decay.
        is_buffer = not isinstance(tensor, nn.Parameter)
        is_statistic = is_buffer and tensor.dim() == 1 and tensor.is_floating_point()
        return nn.Parameter(together) if tensor.requires_grad or is_statistic else together

    def forward(self, matrix: Tensor, streams: RandomStreams | None = None) -> Tensor:
        """Map rows as columns of a matrix, (M, B, layout.width), to features, (M, B, width).

        With ``streams`` the encoder is in training mode. On a CPU, its own random numbers are then
        seeded by each member's stream.
        """
        self.module.train(streams is not None)
        seeds: list[int] | None = None
        if streams is not None and matrix.device.type == "cpu":
            seeds = (streams.uniform("row_encoder", 1) * _MAX_WHOLE).long().view(-1).tolist()
        features = []
        with torch.random.fork_rng(devices=[], enabled=seeds is not None):
            for i, own in enumerate(matrix):
                if seeds is not None:
                    torch.default_generator.manual_seed(seeds[i])
                features.append(encode(partial(self._call, i), self.layout.rows(own)))
        return torch.stack(features)

    def _call(self, member: int, *rows: Any, **named: Any) -> Any:
        weights = {
            name: (tensor.detach() if name in self._statistics else tensor)[member]
            for name, tensor in itertools.chain(
                self.module.named_parameters(), self.module.named_buffers()
            )
        }
        return functional_call(self.module, weights, rows, named)

    def state_of(self, member: int) -> dict[str, Tensor]:
        """Return a copy of the state dict of one member's encoder."""
        return {name: each[member].clone() for name, each in self.module.state_dict().items()}
