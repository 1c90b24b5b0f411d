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
    stride,
    n_rows,
    width,
    epsilon,
    slope,
    BLOCK: tl.constexpr,
):
    """Add a bias, normalize, activate, drop; one row per program.

    The vectors of neighboring members are ``stride`` numbers apart.
    """
    row, member = tl.program_id(0), tl.program_id(1)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    at = (member.to(tl.int64) * n_rows + row) * width + columns
    x = tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32)
    vector = member.to(tl.int64) * stride + columns
    x += tl.load(bias_at + vector, mask=inside, other=0.0)
    center = tl.sum(x, axis=0) / width
    distance = tl.where(inside, x - center, 0.0)
    spread = 1.0 / tl.sqrt(tl.sum(distance * distance, axis=0) / width + epsilon)
    gain = tl.load(gain_at + vector, mask=inside, other=0.0)
    shift = tl.load(shift_at + vector, mask=inside, other=0.0)
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
    stride,
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
    vector = member.to(tl.int64) * stride + columns
    bias = tl.load(bias_at + vector, mask=inside, other=0.0)
    gain = tl.load(gain_at + vector, mask=inside, other=0.0)
    shift = tl.load(shift_at + vector, mask=inside, other=0.0)
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
    sums_at += (member.to(tl.int64) * n_parts + part) * width + columns
    size = n_members.to(tl.int64) * n_parts * width
    tl.store(sums_at, dbias, mask=inside)
    tl.store(sums_at + size, dgain, mask=inside)
    tl.store(sums_at + 2 * size, dshift, mask=inside)


@triton.jit
def _summed(x_at, message_at, at, inside, position, key, rate, DROPS: tl.constexpr):
    """Return rows and what is kept of their messages, added up, and which entries are kept."""
    message = tl.load(message_at + at, mask=inside, other=0.0).to(tl.float32)
    kept = inside
    if DROPS:
        kept = inside & _kept(position, key, _limit(rate))
        message = tl.where(kept, message * (1.0 / (1.0 - rate)), 0.0)
    return tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32) + message, kept


@triton.jit(do_not_specialize=["offset"])
def residual_forward(
    x_at,
    message_at,
    y_at,
    center_at,
    spread_at,
    gain_at,
    shift_at,
    keys_at,
    offset,
    rates_at,
    stride,
    n_rows,
    width,
    epsilon,
    DROPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Drop entries of a message, add it to a row, and normalize; some rows a program."""
    member, columns = tl.program_id(1).to(tl.int64), tl.arange(0, BLOCK)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < n_rows)[:, None] & (columns < width)[None, :]
    position = row[:, None] * width + columns[None, :]
    at = member * n_rows * width + position
    key, rate = 0, 0.0
    if DROPS:
        key, rate = _key(keys_at, tl.program_id(1), offset), tl.load(rates_at + member)
    x, _ = _summed(x_at, message_at, at, inside, position, key, rate, DROPS)
    center = tl.sum(x, axis=1) / width
    distance = tl.where(inside, x - center[:, None], 0.0)
    spread = 1.0 / tl.sqrt(tl.sum(distance * distance, axis=1) / width + epsilon)
    vector = member * stride + columns
    gain = tl.load(gain_at + vector, mask=columns < width, other=0.0)
    shift = tl.load(shift_at + vector, mask=columns < width, other=0.0)
    y = distance * spread[:, None] * gain[None, :] + shift[None, :]
    tl.store(y_at + at, y, mask=inside)
    tl.store(center_at + member * n_rows + row, center, mask=row < n_rows)
    tl.store(spread_at + member * n_rows + row, spread, mask=row < n_rows)


@triton.jit(do_not_specialize=["offset"])
def residual_backward(
    dy_at,
    x_at,
    message_at,
    dx_at,
    dmessage_at,
    center_at,
    spread_at,
    gain_at,
    sums_at,
    keys_at,
    offset,
    rates_at,
    stride,
    n_rows,
    width,
    DROPS: tl.constexpr,
    TILES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Give the gradients of what ``residual_forward`` does; some tiles of rows a program."""
    part, member, columns = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, BLOCK)
    gain = tl.load(gain_at + member * stride + columns, mask=columns < width, other=0.0)
    key, rate = 0, 0.0
    if DROPS:
        key, rate = _key(keys_at, tl.program_id(1), offset), tl.load(rates_at + member)
    dgain = tl.zeros([BLOCK], dtype=tl.float32)
    dshift = tl.zeros([BLOCK], dtype=tl.float32)
    for tile in range(TILES):
        row = (part * TILES + tile) * ROWS + tl.arange(0, ROWS)
        inside = (row < n_rows)[:, None] & (columns < width)[None, :]
        position = row[:, None] * width + columns[None, :]
        at = member * n_rows * width + position
        x, kept = _summed(x_at, message_at, at, inside, position, key, rate, DROPS)
        center = tl.load(center_at + member * n_rows + row, mask=row < n_rows, other=0.0)
        spread = tl.load(spread_at + member * n_rows + row, mask=row < n_rows, other=0.0)
        normal = tl.where(inside, (x - center[:, None]) * spread[:, None], 0.0)
        dy = tl.load(dy_at + at, mask=inside, other=0.0).to(tl.float32)
        dgain += tl.sum(dy * normal, axis=0)
        dshift += tl.sum(dy, axis=0)
        dnormal = dy * gain[None, :]
        drift = tl.sum(dnormal, axis=1) / width
        stretch = tl.sum(dnormal * normal, axis=1) / width
        dx = spread[:, None] * (dnormal - drift[:, None] - normal * stretch[:, None])
        tl.store(dx_at + at, dx, mask=inside)
        if DROPS:
            dx = tl.where(kept, dx * (1.0 / (1.0 - rate)), 0.0)
        tl.store(dmessage_at + at, dx, mask=inside)
    n_parts, n_members = tl.num_programs(0), tl.num_programs(1)
    sums_at += (member * n_parts + part) * width + columns
    tl.store(sums_at, dgain, mask=columns < width)
    size = n_members.to(tl.int64) * n_parts * width
    tl.store(sums_at + size, dshift, mask=columns < width)


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


@triton.jit
def _normal(position, half, key):
    """Return a normal number as ``CounterStreams.normal`` does: two of them from two others."""
    is_first = position < half
    pair = tl.where(is_first, position, position - half)
    radius = tl.sqrt(-2.0 * tl.log(1.0 - _unit(pair, key)))
    angle = 6.283185307179586 * _unit(pair + half, key)
    return radius * tl.where(is_first, tl.cos(angle), tl.sin(angle))


@triton.jit(do_not_specialize=["offset"])
def sample(
    given_at,
    log_variance_at,
    y_at,
    keys_at,
    offset,
    n,
    half,
    BACKWARD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Draw as ``Gaussian.sample`` does, given means; or give the gradient of log-variances."""
    member = tl.program_id(1)
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < n
    at = member.to(tl.int64) * n + position
    given = tl.load(given_at + at, mask=inside)
    log_variance = tl.load(log_variance_at + at, mask=inside)
    noise = tl.exp(0.5 * log_variance) * _normal(position, half, _key(keys_at, member, offset))
    tl.store(y_at + at, given * 0.5 * noise if BACKWARD else given + noise, mask=inside)


@triton.jit
def _density(gap, log_variance):
    """Return log-densities of rows without their constant, which cancels in the KL."""
    return -0.5 * tl.sum(gap * gap * tl.exp(-log_variance) + log_variance, axis=1)


@triton.jit
def mixture_kl(
    z_at,
    mean_at,
    log_variance_at,
    means_at,
    log_variances_at,
    chosen_at,
    kl_at,
    prior_at,
    slopes_at,
    n_rows,
    n_components,
    width,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Give ``objective.kl_to_mixture``, and its slopes for z and for the posterior.

    ``prior`` receives the log-density of the sum of the chosen components.
    """
    member, columns = tl.program_id(1).to(tl.int64), tl.arange(0, BLOCK)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real, row = row < n_rows, member * n_rows + row
    inside = real[:, None] & (columns < width)[None, :]
    own_at = row[:, None] * width + columns[None, :]
    z = tl.load(z_at + own_at, mask=inside, other=0.0)
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    n_chosen = tl.zeros([ROWS], tl.float32)
    dz = tl.zeros([ROWS, BLOCK], tl.float32)
    for i in range(n_components):
        at = (member * n_components + i) * width + columns
        gap = z - tl.load(means_at + at, mask=columns < width, other=0.0)[None, :]
        log_variance = tl.load(log_variances_at + at, mask=columns < width, other=0.0)[None, :]
        chosen = tl.load(chosen_at + row * n_components + i, mask=real, other=0) != 0
        density = tl.where(chosen, _density(gap, log_variance), float("-inf"))
        higher = tl.maximum(highest, density)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        shrink, weight = tl.exp(highest - base), tl.exp(density - base)
        total = total * shrink + weight
        dz = dz * shrink[:, None] + weight[:, None] * gap * tl.exp(-log_variance)
        n_chosen += chosen.to(tl.float32)
        highest = higher
    prior, any_chosen = highest + tl.log(total), n_chosen > 0
    gap = z - tl.load(mean_at + own_at, mask=inside, other=0.0)
    log_variance = tl.load(log_variance_at + own_at, mask=inside, other=0.0)
    value = _density(gap, log_variance) - prior + tl.log(n_chosen)
    tl.store(kl_at + row, tl.where(any_chosen, value, 0.0), mask=real)
    tl.store(prior_at + row, prior, mask=real)
    size = tl.num_programs(1).to(tl.int64) * n_rows * width
    any_chosen = any_chosen[:, None]
    dmean = gap * tl.exp(-log_variance)
    dz = tl.where(any_chosen, dz / total[:, None] - dmean, 0.0)
    tl.store(slopes_at + own_at, dz, mask=inside)
    tl.store(slopes_at + size + own_at, tl.where(any_chosen, dmean, 0.0), mask=inside)
    dlog_variance = tl.where(any_chosen, 0.5 * (gap * dmean - 1.0), 0.0)
    tl.store(slopes_at + 2 * size + own_at, dlog_variance, mask=inside)


@triton.jit
def mixture_kl_backward(
    dkl_at,
    z_at,
    means_at,
    log_variances_at,
    chosen_at,
    prior_at,
    gradients_at,
    n_rows,
    n_components,
    width,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Give the gradients of the KL for a component's mean and log-variance."""
    i, member = tl.program_id(0), tl.program_id(1).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    own_at = (member * n_components + i) * width + columns
    mean = tl.load(means_at + own_at, mask=columns < width, other=0.0)[None, :]
    log_variance = tl.load(log_variances_at + own_at, mask=columns < width, other=0.0)[None, :]
    dmean = tl.zeros([BLOCK], tl.float32)
    dlog_variance = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_rows, ROWS):
        row = start + tl.arange(0, ROWS)
        real, row = row < n_rows, member * n_rows + row
        inside = real[:, None] & (columns < width)[None, :]
        chosen = tl.load(chosen_at + row * n_components + i, mask=real, other=0) != 0
        z = tl.load(z_at + row[:, None] * width + columns[None, :], mask=inside, other=0.0)
        gap = z - mean
        weight = tl.exp(_density(gap, log_variance) - tl.load(prior_at + row, mask=real, other=0.0))
        weight = tl.where(chosen, weight * tl.load(dkl_at + row, mask=real, other=0.0), 0.0)
        scaled = weight[:, None] * gap * tl.exp(-log_variance)
        dmean -= tl.sum(scaled, axis=0)
        dlog_variance += 0.5 * tl.sum(weight[:, None] - scaled * gap, axis=0)
    tl.store(gradients_at + own_at, dmean, mask=columns < width)
    size = tl.num_programs(1).to(tl.int64) * n_components * width
    tl.store(gradients_at + size + own_at, dlog_variance, mask=columns < width)


@triton.jit
def label_loss(
    x_at,
    positive_at,
    known_at,
    loss_at,
    slope_at,
    known_member,
    known_row,
    known_label,
    n_rows,
    n_labels,
    CONTRASTIVE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Give ``objective.contrastive`` or ``objective.cross_entropy``, and its slopes.

    The three numbers after the addresses are the strides of ``known``.
    """
    member, column = tl.program_id(1).to(tl.int64), tl.arange(0, BLOCK)[None, :]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < n_rows)[:, None] & (column < n_labels)
    at = (member * n_rows + row)[:, None] * n_labels + column
    x = tl.load(x_at + at, mask=inside, other=0.0)
    positive = tl.load(positive_at + at, mask=inside, other=0) != 0
    known_at += member * known_member + row[:, None] * known_row + column * known_label
    known = tl.load(known_at, mask=inside, other=0) != 0
    if CONTRASTIVE:
        n_positive = tl.sum(positive.to(tl.float32), axis=1)
        anchored = n_positive > 0
        x = tl.where(anchored[:, None], x, 0.0)  # and all of it known, so that nothing is −inf
        logits = tl.where(known | ~anchored[:, None], x, float("-inf"))
        highest = tl.max(logits, axis=1)
        power = tl.exp(logits - highest[:, None])
        total = tl.sum(power, axis=1)
        share = tl.where(positive, 1.0 / n_positive[:, None], 0.0)
        loss = highest + tl.log(total) - tl.sum(tl.where(positive, x, 0.0) * share, axis=1)
        loss = tl.where(anchored, loss, 0.0)
        slope = tl.where(anchored[:, None], power / total[:, None] - share, 0.0)
    else:
        sign = tl.where(positive, -1.0, 1.0)
        power = tl.exp(-tl.abs(x))
        losses = tl.maximum(x * sign, 0.0) + tl.log(1.0 + power)
        loss = tl.sum(tl.where(known, losses, 0.0), axis=1)
        sigmoid = tl.where(x * sign > 0, 1.0, power) / (1.0 + power)
        slope = tl.where(known, sign * sigmoid, 0.0)
    tl.store(loss_at + member * n_rows + row, loss, mask=row < n_rows)
    tl.store(slope_at + at, slope, mask=inside)


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
    active_at,
    norms_at,
    powers_at,
    rates_at,
    decays_at,
    n,
    stride,
    clip,
    fresh_mean,
    fresh_square,
    epsilon,
    DECAYED: tl.constexpr,
    DECOUPLED: tl.constexpr,
    ROUNDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Update weights and moments of the active members."""
    member = tl.program_id(1)
    if tl.load(active_at + member) != 0:
        norm, rate = tl.load(norms_at + member), tl.load(rates_at + member)
        # float64 until here: 1 − 0.999^n has few digits left.
        first = (1.0 - tl.load(powers_at + 2 * member)).to(tl.float32)
        second = (1.0 - tl.load(powers_at + 2 * member + 1)).to(tl.float32)
        columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = columns < n
        at = member.to(tl.int64) * stride + columns
        gradient = tl.load(gradient_at + member.to(tl.int64) * n + columns, mask=inside)
        gradient = gradient.to(tl.float32) * (clip / tl.maximum(norm, clip))
        value = tl.load(values_at + at, mask=inside)
        mean = tl.load(mean_at + at, mask=inside)
        square = tl.load(square_at + at, mask=inside)
        if DECAYED:
            decay = tl.load(decays_at + member)
            if DECOUPLED:
                value *= 1.0 - rate * decay
            else:
                gradient += value * decay
        mean += (gradient - mean) * fresh_mean
        square += (gradient * gradient - square) * fresh_square
        root = tl.sqrt(square) * (1.0 / tl.sqrt(second)) + epsilon
        value -= rate / first * mean / root
        tl.store(values_at + at, value, mask=inside)
        tl.store(mean_at + at, mean, mask=inside)
        tl.store(square_at + at, square, mask=inside)
        if ROUNDED:
            tl.store(rounded_at + at, value, mask=inside)
