"""What a GPU does in one pass over memory instead of many.

A hidden layer (normalization, activation, dropout) and Adam's update are bound by memory: done
operation by operation they read and write each number some twenty times. A draw of z and the terms
of the objective take some thirty small operations each. The kernels (:mod:`cgmvae.nn.kernels`)
compute the same functions as :mod:`cgmvae.nn.packed`, :mod:`cgmvae.nn.rng`,
:mod:`cgmvae.nn.gaussian`, :mod:`cgmvae.model.objective` and :mod:`cgmvae.training.optimizer`,
random bits included. Triton comes with torch for CUDA; without it, nothing here is used. What each
kernel gains is in ``docs/notebook/kernels.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

try:
    import triton

    from cgmvae.nn import kernels
except ImportError:  # torch for CPUs
    triton = None

#: Rows over which one program sums the gradients of gain and shift.
_ROWS = 8

#: Tiles of rows over which one program sums the gradients of gain and shift.
_TILES = 8

#: In place of keys, offset and rates where nothing is dropped.
_NOTHING = (None, 0, None)

#: The ``eps`` of torch's layer normalization.
_EPSILON = 1e-5

#: Numbers that one program processes.
_BLOCK, _SUM_BLOCK = 1024, 8192

#: From this many rows on, the gradient of a matrix is summed in parts of them, at most so many.
_TALL, _ROW_PARTS = 4096, 64

#: The most labels of a row that one program processes.
_MAX_LABELS = 4096


def usable(tensor: Tensor) -> bool:
    """Return whether kernels can take this tensor."""
    dtypes = (torch.float32, torch.bfloat16)
    return triton is not None and tensor.is_cuda and tensor.dtype in dtypes


#: What a kernel computes the random bits of a draw from: keys of the members' steps, int32
#: (n_members,), and the offset that is added to them. Dropout also needs the rates, float32
#: (n_members,).
Draw = tuple[Tensor, int]
Dropping = tuple[Tensor, int, Tensor]


class _Sample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean: Tensor, log_variance: Tensor, draw: Draw) -> Tensor:
        ctx.save_for_backward(log_variance)
        ctx.draw = draw
        return _sampled(mean, log_variance, draw, backward=False)

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> Any:
        (log_variance,) = ctx.saved_tensors
        return dz, _sampled(dz, log_variance, ctx.draw, backward=True), None


def _sampled(given: Tensor, log_variance: Tensor, draw: Draw, *, backward: bool) -> Tensor:
    y, n = torch.empty_like(log_variance), log_variance[0].numel()
    kernels.sample[triton.cdiv(n, _BLOCK), len(y)](
        given.contiguous(), log_variance, y, *draw, n, -(-n // 2), BACKWARD=backward, BLOCK=_BLOCK
    )
    return y


def sample(mean: Tensor, log_variance: Tensor, draw: Draw) -> Tensor:
    """Draw one z for each diagonal Gaussian, (n_members, n, latent_dim)."""
    return _Sample.apply(mean, log_variance.contiguous(), draw)


def _tile(n_rows: int, width: int) -> tuple[int, dict[str, int]]:
    """Return into how many parts rows are divided, and the launch parameters of each."""
    block = triton.next_power_of_2(width)
    rows = max(1, _BLOCK // block)
    return triton.cdiv(n_rows, rows), {"ROWS": rows, "BLOCK": block}


class _KL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        z, _, _, means, log_variances, chosen = tensors
        n_members, n_rows, width = z.shape
        kl, prior = z.new_empty(2, n_members, n_rows)
        slopes = z.new_empty(3, *z.shape)
        sizes = (n_rows, means.shape[1], width)
        n_parts, tile = _tile(n_rows, width)
        kernels.mixture_kl[n_parts, n_members](*tensors, kl, prior, slopes, *sizes, **tile)
        ctx.save_for_backward(z, means, log_variances, chosen, prior, slopes)
        return kl

    @staticmethod
    def backward(ctx: Any, dkl: Tensor) -> Any:
        *tensors, slopes = ctx.saved_tensors
        z, means = tensors[:2]
        gradients = means.new_empty(2, *means.shape)
        n_members, n_components, width = means.shape
        sizes = (z.shape[1], n_components, width)
        kernels.mixture_kl_backward[n_components, n_members](
            dkl.contiguous(), *tensors, gradients, *sizes, **_tile(z.shape[1], width)[1]
        )
        return *(slopes * dkl[..., None]), *gradients, None


def kl_to_mixture(
    z: Tensor, posterior: tuple[Tensor, Tensor], components: tuple[Tensor, Tensor], chosen: Tensor
) -> Tensor:
    """Return ``objective.kl_to_mixture``, (n_members, n_rows); Gaussians are (mean, log-variance).

    Squared distances are added up as they are, without products of matrices whose terms cancel, so
    that float32 is enough.
    """
    return _KL.apply(*(part.contiguous() for part in (z, *posterior, *components, chosen)))


class _LabelLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, positive: Tensor, known: Tensor, contrastive: bool) -> Tensor:
        n_members, n_rows, n_labels = x.shape
        loss, slopes = x.new_empty(n_members, n_rows), torch.empty_like(x)
        n_parts, tile = _tile(n_rows, n_labels)
        tensors, sizes = (x, positive, known, loss, slopes), (*known.stride(), n_rows, n_labels)
        kernels.label_loss[n_parts, n_members](*tensors, *sizes, CONTRASTIVE=contrastive, **tile)
        ctx.save_for_backward(slopes)
        return loss

    @staticmethod
    def backward(ctx: Any, dloss: Tensor) -> Any:
        (slopes,) = ctx.saved_tensors
        return slopes * dloss[..., None], None, None, None


def fuses_labels(x: Tensor) -> bool:
    """Return whether kernels can take rows of this many labels, (n_members, n_rows, n_labels)."""
    return usable(x) and x.dtype == torch.float32 and x.shape[2] <= _MAX_LABELS


def label_loss(x: Tensor, positive: Tensor, known: Tensor, *, contrastive: bool) -> Tensor:
    """Return ``objective.contrastive`` or ``objective.cross_entropy``, (n_members, n_rows)."""
    return _LabelLoss.apply(x.contiguous(), positive.contiguous(), known, contrastive)


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
    kernels.drop[triton.cdiv(n, _BLOCK), len(x)](x, y, *dropping, n, BLOCK=_BLOCK)
    return y


def drop(x: Tensor, dropping: Dropping) -> Tensor:
    """Drop entries of ``x``, (n_members, n_rows, width)."""
    return _Dropout.apply(x, dropping)


def _blocks(width: int) -> dict[str, int]:
    """Return the launch parameters of a program that processes whole rows."""
    block = triton.next_power_of_2(width)
    return {"BLOCK": block, "num_warps": min(8, max(1, block // 256))}


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
        center, spread = gain.new_empty(2, n_members, n_rows)
        tensors = (x, bias, y, center, spread, gain, shift)
        sizes = (gain.stride(0), n_rows, width, _EPSILON, slope)
        kernels.hidden_forward[n_rows, n_members](*tensors, *dropping, *sizes, **_blocks(width))
        ctx.save_for_backward(x, bias, center, spread, gain, shift)
        ctx.dropping, ctx.slope = dropping, slope
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, bias, center, spread, gain, shift = ctx.saved_tensors
        n_members, n_rows, width = x.shape
        n_parts = -(-n_rows // _ROWS)
        dx = torch.empty_like(x)
        sums = gain.new_empty(3, n_members, n_parts, width)
        tensors = (dy.contiguous(), x, bias, dx, center, spread, gain, shift, sums)
        sizes = (gain.stride(0), n_rows, width, ctx.slope)
        kernels.hidden_backward[n_parts, n_members](
            *tensors, *ctx.dropping, *sizes, ROWS=_ROWS, **_blocks(width)
        )
        return dx, *sums.sum(2), None, None


def hidden(
    x: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, dropping: Dropping, slope: float
) -> Tensor:
    """Add a bias, normalize, activate and drop: a hidden layer of ``PackedMLP`` in one pass.

    ``x``, (n_members, n_rows, width), is the matrix product of the layer, float32 or bfloat16, as
    the result then is; the vectors are (n_members, width). ``slope`` is that of the activation
    below 0: 0 for ReLU.
    """
    vectors = [bias, gain, shift]
    if len({part.stride() for part in vectors}) > 1:  # those of one network lie equally far apart
        vectors = [part.contiguous() for part in vectors]
    return _Hidden.apply(x, *vectors, dropping, slope)


class _Residual(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, message: Tensor, gain: Tensor, shift: Tensor, dropping: Dropping | None
    ) -> Tensor:
        n_members, n_rows, width = x.shape
        y = torch.empty_like(message)
        center, spread = gain.new_empty(2, n_members, n_rows)
        n_parts, tile = _tile(n_rows, width)
        kernels.residual_forward[n_parts, n_members](
            *(x, message, y, center, spread, gain, shift),
            *(_NOTHING if dropping is None else dropping),
            *(gain.stride(0), n_rows, width, _EPSILON),
            DROPS=dropping is not None,
            **tile,
        )
        ctx.save_for_backward(x, message, center, spread, gain)
        ctx.dropping = dropping
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, message, center, spread, gain = ctx.saved_tensors
        n_members, n_rows, width = x.shape
        dx, dmessage = torch.empty_like(x), torch.empty_like(message)
        n_tiles, tile = _tile(n_rows, width)
        n_parts = triton.cdiv(n_tiles, _TILES)
        sums = gain.new_empty(2, n_members, n_parts, width)
        kernels.residual_backward[n_parts, n_members](
            *(dy.contiguous(), x, message, dx, dmessage, center, spread, gain, sums),
            *(_NOTHING if ctx.dropping is None else ctx.dropping),
            *(gain.stride(0), n_rows, width),
            DROPS=ctx.dropping is not None,
            TILES=_TILES,
            **tile,
        )
        return dx, dmessage, *sums.sum(2), None


def residual(
    x: Tensor, message: Tensor, gain: Tensor, shift: Tensor, dropping: Dropping | None
) -> Tensor:
    """Drop entries of a message, add it to ``x`` and normalize, in one pass.

    Both are (n_members, n_rows, width), float32 or bfloat16; the result has the message's type. The
    vectors are (n_members, width).
    """
    vectors = [gain, shift]
    if gain.stride() != shift.stride():
        vectors = [part.contiguous() for part in vectors]
    return _Residual.apply(x.contiguous(), message.contiguous(), *vectors, dropping)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.bmm(x, weight, out_dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        dy = dy.to(x.dtype)
        return torch.bmm(dy, weight.transpose(1, 2)), torch.bmm(x.transpose(1, 2), dy)


class _TallAffine(torch.autograd.Function):
    """An affine map of so many rows that the gradients of matrix and bias are summed in parts.

    Few numbers that are each a sum over all rows would leave most of the GPU idle.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        if bias is None:
            return torch.bmm(x, weight)
        return torch.baddbmm(bias[:, None, :], x, weight)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        n_parts = math.gcd(x.shape[1], _ROW_PARTS)
        rows, slopes = (each.reshape(len(x) * n_parts, -1, each.shape[2]) for each in (x, dy))
        parts = torch.bmm(rows.mT, slopes).view(len(x), n_parts, *weight.shape[1:])
        dbias = None
        if ctx.needs_input_grad[2]:
            dbias = slopes.sum(1).view(len(x), n_parts, -1).sum(1)
        return torch.bmm(dy, weight.mT), parts.sum(1), dbias


def tall_affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return :func:`affine` of very many rows, in the precision of autocast where it is enabled."""
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    return _TallAffine.apply(x, weight, bias)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x · weight + bias, (n_members, n_rows, n_out).

    It is float32 even of weights in bfloat16, except under autocast.
    """
    if bias is not None and weight.dtype == torch.bfloat16:
        return _Product.apply(x, weight) + bias[:, None, :]
    if x.is_cuda and x.shape[1] >= _TALL:
        return tall_affine(x, weight, bias)
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias[:, None, :], x, weight)


def square_sums(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of squares of each member's numbers in parts (n_members, n), (n_members,)."""
    counts = [triton.cdiv(part.shape[1], _SUM_BLOCK) for part in parts]
    n_members = len(parts[0])
    sums = torch.empty(n_members, sum(counts), device=parts[0].device)
    first = 0
    for part, count in zip(parts, counts, strict=True):
        sizes = (part.shape[1], sums.shape[1], first)
        kernels.square_sums[count, n_members](
            part.contiguous(), sums, *sizes, BLOCK=_SUM_BLOCK, num_warps=8
        )
        first += count
    return sums.sum(1)


def update(
    values: Tensor,
    mean: Tensor,
    square: Tensor,
    gradient: Tensor,
    numbers: Sequence[Tensor],
    *,
    rounded: Tensor | None = None,
    clip: float | None,
    betas: tuple[float, float],
    epsilon: float,
    decayed: bool,
    decoupled: bool,
) -> None:
    """Update some columns of flat buffers, (n_members, n), by Adam, in place.

    The gradient is float32 or bfloat16. ``numbers`` of each member are: whether it is active, the
    norm of its gradient, its powers of both betas (float64), its learning rate and weight decay.
    ``rounded`` receives the new weights too, in bfloat16.
    """
    n_members, n = values.shape
    buffers = (values, mean, square, gradient.contiguous(), values if rounded is None else rounded)
    bound = torch.finfo(torch.float32).max if clip is None else clip
    sizes = (n, values.stride(0), bound, 1 - betas[0], 1 - betas[1], epsilon)
    kernels.adam[triton.cdiv(n, _BLOCK), n_members](
        *buffers,
        *numbers,
        *sizes,
        DECAYED=decayed,
        DECOUPLED=decoupled,
        ROUNDED=rounded is not None,
        BLOCK=_BLOCK,
        num_warps=4,
    )
