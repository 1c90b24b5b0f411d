"""What an accelerator does in one pass over memory instead of many: Triton kernels.

A hidden layer (normalisation, activation, dropout) and Adam's update are bound by memory: done
operation by operation they read and write each number some twenty times. The kernels compute the
same functions as :mod:`cgmvae.nn.packed` and :mod:`cgmvae.training.optimizer` do, dropout's random
bits included. Triton comes with torch for CUDA; where it is missing, nothing here is used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a processor alone
    triton = None

#: The widest hidden layer that one program holds.
MAX_WIDTH = 8192

#: Rows whose share of the gradients of gain and shift one program sums.
_ROWS = 8

#: The ``eps`` of torch's layer normalisation.
_EPSILON = 1e-5

_UPDATE_BLOCK = 1024


def usable(tensor: Tensor) -> bool:
    """Return whether kernels can take this tensor."""
    return triton is not None and tensor.is_cuda and tensor.dtype == torch.float32


if triton is not None:

    @triton.jit
    def _mixed(x):  # type: ignore[no-untyped-def]
        """Scramble as ``cgmvae.nn.noise._mixed`` does."""
        x = (x ^ ((x >> 16) & 0xFFFF)) * 0x21F0AAAD
        x = (x ^ ((x >> 15) & 0x1FFFF)) * 0x735A2D97
        return x ^ ((x >> 15) & 0x1FFFF)

    @triton.jit
    def _kept(position, key, limit):  # type: ignore[no-untyped-def]
        """Return whether dropout keeps a position, from the bits of ``CounterNoise.half_words``."""
        word = _mixed(_mixed((position >> 1) ^ key) + key)
        half = tl.where((position & 1) == 0, word << 16, word) >> 16
        return half >= limit

    @triton.jit
    def _hidden_forward(  # type: ignore[no-untyped-def]
        x_at,
        bias_at,
        y_at,
        center_at,
        spread_at,
        gain_at,
        shift_at,
        keys_at,
        limits_at,
        scales_at,
        n_rows,
        width,
        epsilon,
        slope,
        BLOCK: tl.constexpr,
    ):
        row, member = tl.program_id(0), tl.program_id(1)
        columns = tl.arange(0, BLOCK)
        inside = columns < width
        place = (member.to(tl.int64) * n_rows + row) * width + columns
        x = tl.load(x_at + place, mask=inside, other=0.0)
        x += tl.load(bias_at + member * width + columns, mask=inside, other=0.0)
        center = tl.sum(x, axis=0) / width
        distance = tl.where(inside, x - center, 0.0)
        spread = 1.0 / tl.sqrt(tl.sum(distance * distance, axis=0) / width + epsilon)
        gain = tl.load(gain_at + member * width + columns, mask=inside, other=0.0)
        shift = tl.load(shift_at + member * width + columns, mask=inside, other=0.0)
        y = distance * spread * gain + shift
        y = tl.where(y > 0, y, y * slope)
        key, limit = tl.load(keys_at + member), tl.load(limits_at + member)
        kept = _kept(row * width + columns, key, limit)
        y = tl.where(kept, y * tl.load(scales_at + member), 0.0)
        tl.store(y_at + place, y, mask=inside)
        tl.store(center_at + member * n_rows + row, center)
        tl.store(spread_at + member * n_rows + row, spread)

    @triton.jit
    def _hidden_backward(  # type: ignore[no-untyped-def]
        dy_at,
        x_at,
        bias_at,
        dx_at,
        center_at,
        spread_at,
        gain_at,
        shift_at,
        sums_at,
        keys_at,
        limits_at,
        scales_at,
        n_rows,
        width,
        slope,
        ROWS: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        part, member = tl.program_id(0), tl.program_id(1)
        columns = tl.arange(0, BLOCK)
        inside = columns < width
        bias = tl.load(bias_at + member * width + columns, mask=inside, other=0.0)
        gain = tl.load(gain_at + member * width + columns, mask=inside, other=0.0)
        shift = tl.load(shift_at + member * width + columns, mask=inside, other=0.0)
        key, limit = tl.load(keys_at + member), tl.load(limits_at + member)
        scale = tl.load(scales_at + member)
        dbias = tl.zeros([BLOCK], dtype=tl.float32)
        dgain = tl.zeros([BLOCK], dtype=tl.float32)
        dshift = tl.zeros([BLOCK], dtype=tl.float32)
        for row in range(part * ROWS, tl.minimum(part * ROWS + ROWS, n_rows)):
            place = (member.to(tl.int64) * n_rows + row) * width + columns
            center = tl.load(center_at + member * n_rows + row)
            spread = tl.load(spread_at + member * n_rows + row)
            x = tl.load(x_at + place, mask=inside, other=0.0)
            normal = tl.where(inside, (x + bias - center) * spread, 0.0)
            dy = tl.load(dy_at + place, mask=inside, other=0.0)
            dy = tl.where(_kept(row * width + columns, key, limit), dy * scale, 0.0)
            dy = tl.where(normal * gain + shift > 0, dy, dy * slope)
            dgain += dy * normal
            dshift += dy
            dnormal = dy * gain
            drift = tl.sum(dnormal, axis=0) / width
            stretch = tl.sum(dnormal * normal, axis=0) / width
            dx = spread * (dnormal - drift - normal * stretch)
            dbias += dx
            tl.store(dx_at + place, dx, mask=inside)
        n_parts, n_members = tl.num_programs(0), tl.num_programs(1)
        sums_at += (member * n_parts + part) * width + columns
        tl.store(sums_at, dbias, mask=inside)
        tl.store(sums_at + n_members * n_parts * width, dgain, mask=inside)
        tl.store(sums_at + 2 * n_members * n_parts * width, dshift, mask=inside)

    @triton.jit
    def _drop(  # type: ignore[no-untyped-def]
        x_at, y_at, keys_at, limits_at, scales_at, n, BLOCK: tl.constexpr
    ):
        member = tl.program_id(1)
        position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = position < n
        place = member.to(tl.int64) * n + position
        x = tl.load(x_at + place, mask=inside, other=0.0)
        kept = _kept(position, tl.load(keys_at + member), tl.load(limits_at + member))
        y = tl.where(kept, x * tl.load(scales_at + member), 0.0)
        tl.store(y_at + place, y, mask=inside)

    @triton.jit
    def _adam(  # type: ignore[no-untyped-def]
        values_at,
        mean_at,
        square_at,
        gradient_at,
        scalars_at,
        n,
        stride,
        fresh_mean,
        fresh_square,
        epsilon,
        DECAYED: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        member = tl.program_id(1)
        scalars = scalars_at + member * 6
        if tl.load(scalars) != 0.0:
            columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            inside = columns < n
            place = member.to(tl.int64) * stride + columns
            gradient = tl.load(gradient_at + member.to(tl.int64) * n + columns, mask=inside)
            value = tl.load(values_at + place, mask=inside)
            mean = tl.load(mean_at + place, mask=inside)
            square = tl.load(square_at + place, mask=inside)
            gradient *= tl.load(scalars + 1)
            if DECAYED:
                gradient += value * tl.load(scalars + 2)
                value *= tl.load(scalars + 3)
            mean += (gradient - mean) * fresh_mean
            square += (gradient * gradient - square) * fresh_square
            root = tl.sqrt(square) * tl.load(scalars + 5) + epsilon
            tl.store(values_at + place, value - tl.load(scalars + 4) * mean / root, mask=inside)
            tl.store(mean_at + place, mean, mask=inside)
            tl.store(square_at + place, square, mask=inside)


class Dropping(NamedTuple):
    """What a kernel needs to drop as ``Noise.dropout`` does, each (n_members,)."""

    keys: Tensor
    """Of the random bits, int32."""
    limits: Tensor
    """What 16 signed bits must reach to be kept, int32."""
    scales: Tensor
    """What is kept is multiplied by this."""


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropping: Dropping) -> Tensor:
        ctx.dropping = dropping
        return _dropped(x, dropping)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return _dropped(dy, ctx.dropping), None


def _dropped(x: Tensor, dropping: Dropping) -> Tensor:
    x = x.contiguous()
    y, n = torch.empty_like(x), x[0].numel()
    grid = (triton.cdiv(n, _UPDATE_BLOCK), len(x))
    _drop[grid](x, y, *dropping, n, BLOCK=_UPDATE_BLOCK)
    return y


def drop(x: Tensor, dropping: Dropping) -> Tensor:
    """Drop entries of ``x``, (n_members, n_rows, width)."""
    return _Dropout.apply(x, dropping)


class _Hidden(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        bias: Tensor,
        gain: Tensor,
        shift: Tensor,
        dropping: Dropping,
        slope: float,
    ) -> Tensor:
        x = x.contiguous()
        n_members, n_rows, width = x.shape
        y = torch.empty_like(x)
        center, spread = x.new_empty(2, n_members, n_rows)
        block = triton.next_power_of_2(width)
        _hidden_forward[(n_rows, n_members)](
            x,
            bias,
            y,
            center,
            spread,
            gain,
            shift,
            *dropping,
            n_rows,
            width,
            _EPSILON,
            slope,
            BLOCK=block,
            num_warps=_warps(block),
        )
        ctx.save_for_backward(x, bias, center, spread, gain, shift)
        ctx.dropping, ctx.slope = dropping, slope
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, bias, center, spread, gain, shift = ctx.saved_tensors
        n_members, n_rows, width = x.shape
        n_parts = -(-n_rows // _ROWS)
        dx = torch.empty_like(x)
        sums = x.new_empty(3, n_members, n_parts, width)
        block = triton.next_power_of_2(width)
        _hidden_backward[(n_parts, n_members)](
            dy.contiguous(),
            x,
            bias,
            dx,
            center,
            spread,
            gain,
            shift,
            sums,
            *ctx.dropping,
            n_rows,
            width,
            ctx.slope,
            ROWS=_ROWS,
            BLOCK=block,
            num_warps=_warps(block),
        )
        return dx, *sums.sum(2), None, None


def _warps(block: int) -> int:
    return min(8, max(1, block // 256))


def hidden(
    x: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, dropping: Dropping, slope: float
) -> Tensor:
    """Add a bias, normalise, activate and drop: a hidden layer of ``PackedMLP`` in one pass.

    Parameters
    ----------
    x : Tensor, (n_members, n_rows, width)
        The matrix product of the layer.
    bias, gain, shift : Tensor, (n_members, width)
    dropping : Dropping
    slope : float
        Of the activation below 0: 0 for ReLU.
    """
    vectors = (part.contiguous() for part in (bias, gain, shift))
    return _Hidden.apply(x, *vectors, dropping, slope)


def update(
    values: Tensor,
    mean: Tensor,
    square: Tensor,
    gradient: Tensor,
    scalars: Tensor,
    *,
    betas: tuple[float, float],
    epsilon: float,
    decayed: bool,
) -> None:
    """Update some columns of flat buffers by Adam, in place.

    Parameters
    ----------
    values, mean, square : Tensor, (n_members, n)
        Views of the flat buffers.
    gradient : Tensor, (n_members, n)
    scalars : Tensor, (n_members, 6)
        Whether the member is active, the factor of its gradient, its L2 weight, the factor of its
        weights, its step size, and the factor of the root of the square.
    """
    n_members, n = values.shape
    _adam[(triton.cdiv(n, _UPDATE_BLOCK), n_members)](
        values,
        mean,
        square,
        gradient.contiguous(),
        scalars,
        n,
        values.stride(0),
        1 - betas[0],
        1 - betas[1],
        epsilon,
        DECAYED=decayed,
        BLOCK=_UPDATE_BLOCK,
        num_warps=4,
    )
