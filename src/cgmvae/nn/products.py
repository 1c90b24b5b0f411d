"""Products of rows with a processor's weights, by whichever library is fast.

Torch takes matrix products from MKL and offers oneDNN's beside them, with the bias added on the
way. With large matrices oneDNN is up to a fourth faster, with small ones its call takes longer
(``benchmarks/products.py``, on an AMD EPYC). It knows one matrix at a time in single precision, so
several members, and doubles, go to MKL.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_mkldnn: Any = torch.ops.mkldnn

#: Whether torch has come with oneDNN.
_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(_mkldnn, "_linear_pointwise")

#: Numbers from which on a matrix, of rows or of weights, is large.
_LARGE = 1 << 18


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x · weight + bias, which autograd does not see.

    Parameters
    ----------
    x : Tensor, (n_members, n_rows, n_in)
    weight : Tensor, (n_members, n_in, n_out)
    bias : Tensor, (n_members, n_out)
    """
    if _suits(x, weight):
        return _linear(x, weight[0].T, bias[0])
    return torch.baddbmm(bias[:, None], x, weight)


def times_transposed(x: Tensor, weight: Tensor) -> Tensor:
    """Return x · weightᵀ, (n_members, n_rows, n_in), for x of (n_members, n_rows, n_out)."""
    return _linear(x, weight[0], None) if _suits(x, weight) else torch.bmm(x, weight.mT)


def _suits(x: Tensor, weight: Tensor) -> bool:
    large = max(x.numel(), weight.numel()) >= _LARGE and x.numel() > 0
    single = len(x) == 1 and x.dtype == torch.float32
    return _HAS_ONEDNN and large and single and bool(torch.backends.mkldnn.enabled)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return _mkldnn._linear_pointwise(x[0], weight, bias, "none", [], "")[None]
