"""The device that a training runs on, and its memory."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from cgmvae.errors import InputError


def find_device(name: str = "auto") -> torch.device:
    """Return the device of that name; ``auto`` is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise _no_device(name) from error
    if device.type not in ("cpu", "cuda"):
        raise _no_device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("No CUDA device can be used here; use the device cpu or auto.")
    return device


def _no_device(name: str) -> InputError:
    return InputError(f"There is no device {name!r}; use auto, cpu or cuda.")


def machine_memory() -> int | None:
    """Return the memory of this machine or of its container in bytes; None if it does not tell."""
    if not hasattr(os, "sysconf"):  # Windows
        return None
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of control groups, v2 and v1
        with suppress(OSError, ValueError):
            limits.append(int(Path("/sys/fs/cgroup", name).read_text()))
    return min(limits)


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Let a GPU round float32 matrix products to TF32 inside the block."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def free_memory() -> None:
    """Give back the GPU memory of trainings that are over."""
    gc.collect()
    if torch.cuda.is_available():
        # Each stream that a training used keeps a workspace for matrix products.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
