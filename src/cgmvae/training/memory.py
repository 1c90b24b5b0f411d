"""Packs that are too large for an accelerator's memory: smaller ones, one after the other.

:func:`~cgmvae.methods.together.train_together` divides members so, and the search settings.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

import torch

from cgmvae.errors import InputError

Result = TypeVar("Result")


class _Slices(Protocol):
    """A list or an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> Self: ...


Items = TypeVar("Items", bound=_Slices)


def in_parts(work: Callable[[Items], Result], items: Items) -> list[Result]:
    """Do work on all items at once, or on parts of them where the accelerator has no room for all.

    A part that is too large is halved, and those that follow are as small; a warning says so once.

    Parameters
    ----------
    work : callable
        Does the same for some items as for all; what it leaves unfinished is forgotten.
    items : list or array
        At least one. Where there is no room for a single one, an :class:`InputError` says so.

    Returns
    -------
    list
        What the work returned for each part, in order.
    """
    found: list[Result] = []
    start, size = 0, len(items)
    while start < len(items):
        part = items[start : start + size]
        if size < len(items):
            free_memory()
        try:
            found.append(work(part))
            start += len(part)
            continue
        except torch.cuda.OutOfMemoryError as error:
            if len(part) == 1:
                raise _too_small(error) from error
        # Here the error is forgotten, and with it all that its frames held.
        if size == len(items):
            warnings.warn(
                f"The accelerator has no memory for a pack of {size:,}; smaller ones are trained "
                "one after the other.",
                stacklevel=2,
            )
        size = -(-len(part) // 2)
    return found


def free_memory() -> None:
    """Give back what trainings that are over held of the accelerator's memory."""
    gc.collect()
    if torch.cuda.is_available():
        # Each stream that a training used keeps room for matrix products, and there are many.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


def _too_small(error: Any) -> InputError:
    said = str(error).partition(". ")[0]
    return InputError(
        f"The accelerator has too little memory for a single model ({said}); take a smaller "
        "network or batch, or device cpu."
    )
