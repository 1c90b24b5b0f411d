"""Networks from model files: built only after what the file claims was held against its arrays.

Sizes in a description from a stranger could ask for a network that no memory holds. So a network is
first built without memory, its tensors are compared with the arrays, and then it is built again and
filled. :class:`~cgmvae.methods.packed.PackedClassifier` restores itself so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.nn.rng import RandomStreams
from cgmvae.preparation.declarations import as_declared

#: What a size may be in any network, however small: draws and ranks are no axes of its arrays.
_SMALL = 1 << 16


def read_config(record: type, values: Any, n_weights: int) -> Any:
    """Return the sizes and switches of a network that has no more than so many weights."""
    config = as_declared(record, values)
    for name, value in config.items():
        sizes = value if isinstance(value, tuple) else (value,)
        numbers = [size for size in sizes if isinstance(size, int | float)]
        if not all(0 <= number <= max(n_weights, _SMALL) for number in numbers):
            raise ValueError(f"its {name!r} is below 0, or larger than all of its arrays")
    return record(**config)


def fill_network(
    build: Callable[[RandomStreams], nn.Module],
    arrays: Mapping[str, NDArray[Any]],
    *,
    n_members: int,
    device: torch.device,
) -> nn.Module:
    """Build a network whose tensors are these arrays; raise where it would have others.

    Parameters
    ----------
    build : callable
        Returns the network, given where its first weights come from.
    arrays : mapping of str to array
        The network's state, and more.
    n_members : int
        Length of the first axis.
    device : torch.device
        Where the network is to be.
    """
    for name, tensor in build(_Blank(n_members, "meta", len(arrays))).state_dict().items():
        stored = torch.from_numpy(arrays[name])
        if stored.shape != tensor.shape or stored.dtype != tensor.dtype:
            raise ValueError(f"the weights {name!r} have another shape or type")
    network = build(_Blank(n_members, device, len(arrays)))
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            tensor.copy_(torch.from_numpy(arrays[name]))
    return network


class _Blank(RandomStreams):
    """Zeros in place of first weights, for no more tensors than there are arrays."""

    def __init__(self, n_members: int, device: torch.device | str, n_tensors: int) -> None:
        super().__init__(range(n_members), device)
        self._n_left = n_tensors

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return zeros, (n_members, *shape)."""
        self._n_left -= 1
        if self._n_left < 0:
            raise ValueError("its network has more tensors than it has arrays")
        return torch.zeros(self.n_members, *shape, dtype=dtype, device=self.device)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return zeros, (n_members, *shape)."""
        return self.uniform(*shape, dtype=dtype)

    def half_words(self, *shape: int) -> Tensor:
        """Return zeros, (n_members, *shape)."""
        return self.uniform(*shape, dtype=torch.int16)

    def seek(self, steps: Sequence[int] | NDArray[np.integer] | Tensor) -> None:
        """Do nothing: all steps are alike."""

    def section(self, number: int) -> None:
        """Do nothing: all parts of a step are alike."""
