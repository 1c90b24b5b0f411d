"""Random numbers per member: the others of a pack never change what a member draws.

A pack trains many members at once; a member must end with the same weights as if it were alone. So
each member has random streams of its own. Every draw has a name, and its numbers depend only on the
member's seed, its step and that name: a network that skips a draw gets the same numbers in the
others. :class:`GeneratorStreams` holds one torch generator per member (fast on a CPU),
:class:`CounterStreams` computes every number from (seed, step, name, position) by a hash, for all
members in one pass (fast on a GPU).
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgmvae.nn import cuda

#: Dropout compares 16 random bits with the rate, which is exact to 1 / 65,536.
_LEVELS = 1 << 16

#: Odd constants (of the golden ratio) that keep the seeds of neighboring steps far apart.
_STRIDE, _STRIDE_32 = 0x9E3779B97F4A7C15, -0x61C88647


class RandomStreams(ABC):
    """Random tensors with a leading axis of members.

    Each draw of a step has a name of its own; a name that is drawn twice raises ``ValueError``.
    What is computed several times in a step draws :meth:`within` parts of other names.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.seeds = tuple(int(seed) for seed in seeds)
        self.device = torch.device(device)
        self._part = ""
        self._drawn: set[int] = set()

    @property
    def n_members(self) -> int:
        """Number of members."""
        return len(self.seeds)

    @abstractmethod
    def half_words(self, name: str, *shape: int) -> Tensor:
        """Return random int16 values of all bit patterns, (n_members, *shape)."""

    @abstractmethod
    def uniform(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return uniform numbers in [0, 1), (n_members, *shape)."""

    @abstractmethod
    def normal(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return standard normal numbers, (n_members, *shape)."""

    def uniform_weights(self, name: str, *shape: int, bound: float, dtype: torch.dtype) -> Tensor:
        """Return initial weights that are uniform in ±bound, (n_members, *shape)."""
        return (self.uniform(name, *shape, dtype=dtype) * 2 - 1) * bound

    def normal_weights(self, name: str, *shape: int, scale: float, dtype: torch.dtype) -> Tensor:
        """Return initial weights that are normal with this deviation, (n_members, *shape)."""
        return self.normal(name, *shape, dtype=dtype) * scale

    @abstractmethod
    def seek(self, steps: Sequence[int] | NDArray[np.integer] | Tensor) -> None:
        """Go to a step of each member, (n_members,), where every name can be drawn again.

        What is drawn after that depends only on the member's seed, its step and the name of the
        draw: there is no state to save, and a member that skips steps loses nothing.
        """

    def within(self, part: str) -> Self:
        """Return streams for a part of this step, whose name precedes those of its draws."""
        inner = copy.copy(self)
        inner._part = f"{self._part}{part}/"
        return inner

    def _key(self, name: str) -> int:
        """Return the key of a draw, 32 bits; raise if this step has drawn it."""
        key = _name_key(self._part + name)
        if key in self._drawn:
            raise ValueError(
                f"{self._part + name!r} is drawn twice in a step; give each draw its own name."
            )
        self._drawn.add(key)
        return key

    def dropout(self, name: str, x: Tensor, rate: Tensor) -> Tensor:
        """Drop entries of ``x``, (n_members, n_rows, width), with each member's own rate.

        ``rate`` is (n_members,); what is kept is divided by the probability of keeping it.
        """
        if self.fuses(x):
            return cuda.drop(x, self.dropping(name, rate))
        return x * self.mask(name, *x.shape[1:], rate=rate, dtype=x.dtype)

    def mask(
        self, name: str, n_rows: int, width: int, *, rate: Tensor, dtype: torch.dtype
    ) -> Tensor:
        """Return the factors of dropout, (n_members, n_rows, width).

        0 for a dropped entry, and the inverse of the probability of keeping it for the others.
        """
        kept, scales = self.kept(name, n_rows, width, rate=rate, dtype=dtype)
        return kept.mul_(scales[:, :, None])

    def kept(
        self, name: str, n_rows: int, width: int, *, rate: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Return 1 for kept entries and 0 for others, and the scale of what is kept.

        They are (n_members, n_rows, width) and (n_members, 1).
        """
        limits, scales = _dropping(tuple(rate.tolist()), rate.dtype, dtype, rate.device)
        # In place: torch vectorizes comparisons to integers, but not to booleans.
        kept = self.half_words(name, n_rows * width).ge_(limits).to(dtype)
        return kept.view(self.n_members, n_rows, width), scales

    def draws_masks(self, x: Tensor) -> bool:
        """Return whether a hidden layer on a CPU takes its mask from :meth:`kept`."""
        return x.device.type == "cpu"

    def fuses(self, x: Tensor) -> bool:
        """Return whether a kernel can drop entries of ``x``."""
        return cuda.usable(x)

    def draw(self, name: str) -> cuda.Draw:
        """Return what a kernel needs to compute the random bits of a draw."""
        raise NotImplementedError("Kernels need random numbers that are computed on the GPU.")

    def dropping(self, name: str, rate: Tensor) -> cuda.Dropping:
        """Return what a kernel needs to drop with the random bits of a draw."""
        return *self.draw(name), rate.to(torch.float32)


class GeneratorStreams(RandomStreams):
    """One torch generator per member, seeded anew for each draw; the fast choice on a CPU."""

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        super().__init__(seeds, device)
        self._keys = [stream_seed(seed, "streams") for seed in self.seeds]
        self._generators = [torch.Generator(self.device) for _ in self.seeds]
        self.seek([0] * self.n_members)

    def seek(self, steps: Sequence[int] | NDArray[np.integer] | Tensor) -> None:
        """Go to a step of each member, (n_members,), where every name can be drawn again."""
        numbers = steps.tolist() if isinstance(steps, Tensor | np.ndarray) else steps
        pairs = zip(self._keys, numbers, strict=True)
        self._step_keys = [key + number * _STRIDE for key, number in pairs]
        self._drawn.clear()

    def _seeded(self, name: str) -> Iterator[torch.Generator]:
        """Return each member's generator, seeded by its step and the name of the draw."""
        key = self._key(name)
        for step_key, generator in zip(self._step_keys, self._generators, strict=True):
            yield generator.manual_seed((step_key ^ key) % 2**63)

    def half_words(self, name: str, *shape: int) -> Tensor:
        """Return random int16 values of all bit patterns, (n_members, *shape)."""
        n = math.prod(shape)
        words = torch.empty(self.n_members, -(-n // 4), dtype=torch.int64, device=self.device)
        for row, generator in zip(words, self._seeded(name), strict=True):
            row.random_(-(2**63), None, generator=generator)
        return words.view(torch.int16)[:, :n].reshape(self.n_members, *shape)

    def uniform(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return uniform numbers in [0, 1), (n_members, *shape)."""
        out = torch.empty(self.n_members, *shape, dtype=dtype, device=self.device)
        for row, generator in zip(out, self._seeded(name), strict=True):
            row.uniform_(generator=generator)
        return out

    def normal(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return standard normal numbers, (n_members, *shape)."""
        out = torch.empty(self.n_members, *shape, dtype=dtype, device=self.device)
        for row, generator in zip(out, self._seeded(name), strict=True):
            row.normal_(generator=generator)
        return out


class CounterStreams(RandomStreams):
    """Random numbers computed from (member's seed, step, name of the draw, position).

    The cost is a few passes of integer arithmetic, whatever the number of members.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        super().__init__(seeds, device)
        keys = [stream_seed(seed, "streams") % 2**32 for seed in self.seeds]
        signed = np.array(keys, np.uint32).view(np.int32)
        self._keys = torch.from_numpy(signed).to(self.device)[:, None]
        self.seek([0] * self.n_members)

    def seek(self, steps: Sequence[int] | NDArray[np.integer] | Tensor) -> None:
        """Go to a step of each member, (n_members,), where every name can be drawn again."""
        steps = torch.as_tensor(steps, dtype=torch.int32, device=self.device)
        self._step_keys = _mixed(self._keys ^ _mixed(steps[:, None] * _STRIDE_32))
        self._drawn.clear()

    def draw(self, name: str) -> cuda.Draw:
        """Return what a kernel needs to compute the random bits of a draw."""
        offset = (self._key(name) + 2**31) % 2**32 - 2**31
        return self._step_keys[:, 0], offset

    def _words(self, name: str, n: int) -> Tensor:
        """Return 32 random bits for each member and position, int32 (n_members, n)."""
        step_keys, offset = self.draw(name)
        keys = _mixed(step_keys[:, None] + offset)
        return _mixed(_mixed(torch.arange(n, dtype=torch.int32, device=self.device) ^ keys) + keys)

    def half_words(self, name: str, *shape: int) -> Tensor:
        """Return random int16 values of all bit patterns, (n_members, *shape)."""
        n = math.prod(shape)
        words = self._words(name, -(-n // 2)).contiguous().view(torch.int16)
        return words[:, :n].reshape(self.n_members, *shape)

    def uniform(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return uniform numbers in [0, 1), with 24 random bits each, (n_members, *shape)."""
        bits = (self._words(name, math.prod(shape)) >> 8) & 0xFFFFFF
        return (bits.to(dtype) / (1 << 24)).reshape(self.n_members, *shape)

    def normal(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return standard normal numbers (Box and Muller's method), (n_members, *shape)."""
        n = math.prod(shape)
        u = self.uniform(name, 2, -(-n // 2), dtype=dtype)
        radius = torch.sqrt(-2 * torch.log1p(-u[:, 0]))
        angle = 2 * math.pi * u[:, 1]
        both = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1)
        return both[:, :n].reshape(self.n_members, *shape)


class TorchStreams(RandomStreams):
    """A single member that draws from torch's own generators, as other modules do.

    ``torch.manual_seed`` makes it repeatable. Neither steps nor names matter.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        super().__init__((0,), device)

    def seek(self, steps: Sequence[int] | NDArray[np.integer] | Tensor) -> None:
        """Do nothing: torch's generators go on."""

    def within(self, part: str) -> Self:
        """Return these streams: torch's generators have no names."""
        return self

    def half_words(self, name: str, *shape: int) -> Tensor:
        """Return random int16 values of all bit patterns, (1, *shape)."""
        half = _LEVELS // 2
        return torch.randint(-half, half, (1, *shape), dtype=torch.int16, device=self.device)

    def uniform(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return uniform numbers in [0, 1), (1, *shape)."""
        return torch.rand(1, *shape, dtype=dtype, device=self.device)

    def normal(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return standard normal numbers, (1, *shape)."""
        return torch.randn(1, *shape, dtype=dtype, device=self.device)

    def dropout(self, name: str, x: Tensor, rate: Tensor) -> Tensor:
        """Drop entries of ``x``, (1, n_rows, width), without reading the rate on the host."""
        return x * (torch.rand_like(x) >= rate) / (1 - rate)

    def draws_masks(self, x: Tensor) -> bool:
        """Return False: a mask asks for the rate on the host."""
        return False

    def fuses(self, x: Tensor) -> bool:
        """Return False: kernels compute random numbers of their own."""
        return False


@lru_cache(maxsize=16)
def _dropping(
    rates: tuple[float, ...], rate_dtype: torch.dtype, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the least 16 signed random bits that are kept, and the factor of what is kept.

    Both are (n_members, 1). They are computed once for the rates of a pack.
    """
    rate = torch.tensor(rates, dtype=rate_dtype, device=device)[:, None]
    limit = (rate * _LEVELS).round_().sub_(_LEVELS // 2)  # exact: a power of 2
    return limit.clamp_(max=_LEVELS // 2 - 1).to(torch.int16), (1 - rate).reciprocal_().to(dtype)


def _mixed(x: Tensor) -> Tensor:
    """Scramble 32-bit integers: xor-shift and multiply rounds, every bit reaching every other."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x21F0AAAD
    x = (x ^ ((x >> 15) & 0x1FFFF)) * 0x735A2D97
    return x ^ ((x >> 15) & 0x1FFFF)


@cache
def _name_key(name: str) -> int:
    """Return 32 bits for the name of a draw."""
    return int(np.random.SeedSequence([*name.encode()]).generate_state(1)[0])


def within(streams: RandomStreams | None, part: str) -> RandomStreams | None:
    """Return streams for a part of the step, if there are any."""
    return None if streams is None else streams.within(part)


def make_streams(seeds: Sequence[int], device: torch.device | str) -> RandomStreams:
    """Return the kind of streams that is fast on the device."""
    on_cpu = torch.device(device).type == "cpu"
    return (GeneratorStreams if on_cpu else CounterStreams)(seeds, device)


def stream_seed(seed: int, purpose: str) -> int:
    """Derive the seed of one of a member's streams from the member's seed."""
    words = np.random.SeedSequence([seed, *purpose.encode()]).generate_state(2)
    return int(words[0]) << 31 ^ int(words[1])
