"""Triton kernels, called by :mod:`cgmvae.nn.cuda`; importing this needs Triton.

Arguments that end in ``_at`` are addresses. Numbers are computed in float32, and read and written
in float32 or bfloat16, whichever the tensors have.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _mixed(x):
    """Scramble as ``cgmvae.nn.rng._mixed`` does."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x21F0AAAD
    x = (x ^ ((x >> 15) & 0x1FFFF)) * 0x735A2D97
    return x ^ ((x >> 15) & 0x1FFFF)


@triton.jit
def _key(keys_at, member, offset):
    """Return a member's key of a draw, as ``CounterStreams._words`` does."""
    return _mixed(tl.load(keys_at + member) + offset)


@triton.jit
def _word(position, key):
    """Return 32 random bits, as ``CounterStreams._words`` does."""
    return _mixed(_mixed(position ^ key) + key)


@triton.jit
def _unit(position, key):
    """Return a uniform number in [0, 1), as ``CounterStreams.uniform`` does."""
    return ((_word(position, key) >> 8) & 0xFFFFFF).to(tl.float32) * (1.0 / 16777216.0)


@triton.jit
def _limit(rate):
    """Return what 16 signed bits must reach to be kept, as ``cgmvae.nn.rng._dropping`` does."""
    wanted = rate * 65536.0
    nearest = tl.floor(wanted + 0.5)
    is_odd = nearest - 2.0 * tl.floor(nearest * 0.5) > 0.5
    nearest = tl.where((nearest - wanted == 0.5) & is_odd, nearest - 1.0, nearest)
    return tl.minimum(nearest - 32768.0, 32767.0).to(tl.int32)


@triton.jit
def _kept(position, key, limit):
    """Return whether dropout keeps a position, from the bits of ``CounterStreams.half_words``."""
    word = _word(position >> 1, key)
    half = tl.where((position & 1) == 0, word << 16, word) >> 16
    return half >= limit


@triton.jit(do_not_specialize=["offset"])
def hidden_forward(
    x_at,
    bias_at,
    y_at,
    center_at,
    spread_at,
    gain_at,
    shift_at,
    keys_at,
    offset,
    rates_at,
    n_rows,
    width,
    epsilon,
    slope,
    BLOCK: tl.constexpr,
):
    """Add a bias, normalize, activate, drop; one row per program."""
    row, member = tl.program_id(0), tl.program_id(1)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    at = (member.to(tl.int64) * n_rows + row) * width + columns
    x = tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(bias_at + member * width + columns, mask=inside, other=0.0)
    center = tl.sum(x, axis=0) / width
    distance = tl.where(inside, x - center, 0.0)
    spread = 1.0 / tl.sqrt(tl.sum(distance * distance, axis=0) / width + epsilon)
    gain = tl.load(gain_at + member * width + columns, mask=inside, other=0.0)
    shift = tl.load(shift_at + member * width + columns, mask=inside, other=0.0)
    y = distance * spread * gain + shift
    y = tl.where(y > 0, y, y * slope)
    rate = tl.load(rates_at + member)
    kept = _kept(row * width + columns, _key(keys_at, member, offset), _limit(rate))
    tl.store(y_at + at, tl.where(kept, y * (1.0 / (1.0 - rate)), 0.0), mask=inside)
    tl.store(center_at + member * n_rows + row, center)
    tl.store(spread_at + member * n_rows + row, spread)


@triton.jit(do_not_specialize=["offset"])
def hidden_backward(
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
    offset,
    rates_at,
    n_rows,
    width,
    slope,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Give the gradients of what ``hidden_forward`` does; some rows a program."""
    part, member = tl.program_id(0), tl.program_id(1)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    bias = tl.load(bias_at + member * width + columns, mask=inside, other=0.0)
    gain = tl.load(gain_at + member * width + columns, mask=inside, other=0.0)
    shift = tl.load(shift_at + member * width + columns, mask=inside, other=0.0)
    rate, key = tl.load(rates_at + member), _key(keys_at, member, offset)
    limit, scale = _limit(rate), 1.0 / (1.0 - rate)
    dbias = tl.zeros([BLOCK], dtype=tl.float32)
    dgain = tl.zeros([BLOCK], dtype=tl.float32)
    dshift = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(part * ROWS, tl.minimum(part * ROWS + ROWS, n_rows)):
        at = (member.to(tl.int64) * n_rows + row) * width + columns
        center = tl.load(center_at + member * n_rows + row)
        spread = tl.load(spread_at + member * n_rows + row)
        x = tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32)
        normal = tl.where(inside, (x + bias - center) * spread, 0.0)
        dy = tl.load(dy_at + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.where(_kept(row * width + columns, key, limit), dy * scale, 0.0)
        dy = tl.where(normal * gain + shift > 0, dy, dy * slope)
        dgain += dy * normal
        dshift += dy
        dnormal = dy * gain
        drift = tl.sum(dnormal, axis=0) / width
        stretch = tl.sum(dnormal * normal, axis=0) / width
        dx = spread * (dnormal - drift - normal * stretch)
        dbias += dx
        tl.store(dx_at + at, dx, mask=inside)
    n_parts, n_members = tl.num_programs(0), tl.num_programs(1)
    sums_at += (member * n_parts + part) * width + columns
    tl.store(sums_at, dbias, mask=inside)
    tl.store(sums_at + n_members * n_parts * width, dgain, mask=inside)
    tl.store(sums_at + 2 * n_members * n_parts * width, dshift, mask=inside)


@triton.jit(do_not_specialize=["offset"])
def drop(x_at, y_at, keys_at, offset, rates_at, n, BLOCK: tl.constexpr):
    """Drop numbers as ``RandomStreams.dropout`` does."""
    member = tl.program_id(1)
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < n
    at = member.to(tl.int64) * n + position
    x = tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32)
    rate = tl.load(rates_at + member)
    kept = _kept(position, _key(keys_at, member, offset), _limit(rate))
    tl.store(y_at + at, tl.where(kept, x * (1.0 / (1.0 - rate)), 0.0), mask=inside)


@triton.jit(do_not_specialize=["offset"])
def uniform(y_at, keys_at, offset, n, BLOCK: tl.constexpr):
    """Draw as ``CounterStreams.uniform`` does."""
    member = tl.program_id(1)
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    number = _unit(position, _key(keys_at, member, offset))
    tl.store(y_at + member.to(tl.int64) * n + position, number, mask=position < n)


@triton.jit(do_not_specialize=["offset"])
def normal(y_at, keys_at, offset, n, half, BLOCK: tl.constexpr):
    """Draw as ``CounterStreams.normal`` does: two numbers from two."""
    member = tl.program_id(1)
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = _key(keys_at, member, offset)
    radius = tl.sqrt(-2.0 * tl.log(1.0 - _unit(position, key)))
    angle = 6.283185307179586 * _unit(position + half, key)
    y_at += member.to(tl.int64) * n + position
    tl.store(y_at, radius * tl.cos(angle), mask=position < half)
    second = (position < half) & (position + half < n)
    tl.store(y_at + half, radius * tl.sin(angle), mask=second)


@triton.jit
def square_sums(x_at, sums_at, n, n_sums, first, BLOCK: tl.constexpr):
    """Sum the squares of a member's numbers, a block a program."""
    block, member = tl.program_id(0), tl.program_id(1)
    position = block * BLOCK + tl.arange(0, BLOCK)
    at = member.to(tl.int64) * n + position
    x = tl.load(x_at + at, mask=position < n, other=0.0).to(tl.float32)
    tl.store(sums_at + member * n_sums + first + block, tl.sum(x * x, axis=0))


@triton.jit
def adam(
    values_at,
    mean_at,
    square_at,
    gradient_at,
    rounded_at,
    scalars_at,
    n,
    stride,
    fresh_mean,
    fresh_square,
    epsilon,
    DECAYED: tl.constexpr,
    ROUNDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Update weights and moments; see ``cuda.update`` for the scalars."""
    member = tl.program_id(1)
    scalars = scalars_at + member * 6
    if tl.load(scalars) != 0.0:
        columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = columns < n
        at = member.to(tl.int64) * stride + columns
        gradient = tl.load(gradient_at + member.to(tl.int64) * n + columns, mask=inside)
        gradient = gradient.to(tl.float32) * tl.load(scalars + 1)
        value = tl.load(values_at + at, mask=inside)
        mean = tl.load(mean_at + at, mask=inside)
        square = tl.load(square_at + at, mask=inside)
        if DECAYED:
            gradient += value * tl.load(scalars + 2)
            value *= tl.load(scalars + 3)
        mean += (gradient - mean) * fresh_mean
        square += (gradient * gradient - square) * fresh_square
        root = tl.sqrt(square) * tl.load(scalars + 5) + epsilon
        value -= tl.load(scalars + 4) * mean / root
        tl.store(values_at + at, value, mask=inside)
        tl.store(mean_at + at, mean, mask=inside)
        tl.store(square_at + at, square, mask=inside)
        if ROUNDED:
            tl.store(rounded_at + at, value, mask=inside)
