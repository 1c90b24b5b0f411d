"""Products of rows with a processor's weights, by whichever library is fast.

Torch takes matrix products from Intel's MKL and offers oneDNN's beside them, with the bias added on
the way. On an AMD EPYC oneDNN is up to a fourth faster with large matrices, and slower with small
ones; on an Intel Xeon it is no faster with any, and up to twice as slow
(``benchmarks/products.py``). It knows one matrix at a time in single precision, so several members,
and doubles, go to MKL.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_mkldnn: Any = torch.ops.mkldnn


def _is_of_amd() -> bool:
    """Return whether the processor is AMD's."""
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="ignore")
    except OSError:  # not Linux
        return "AMD" in platform.processor()


#: Whether torch has come with oneDNN, and the processor is one where it pays.
_HAS_ONEDNN = (
    torch.backends.mkldnn.is_available() and hasattr(_mkldnn, "_linear_pointwise") and _is_of_amd()
)

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
