"""Packs too large for a GPU are trained in parts, and split among processes."""

import itertools

import numpy as np
import pytest
import torch

from cgmvae.errors import InputError
from cgmvae.training.pack import FittingParts, join_members

FULL = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. More words.")


def doubled(items, room):
    """Double numbers with limited memory; return the results and the sizes tried."""
    parts, sizes, found = FittingParts([items]), [], []
    for part in parts:
        sizes.append(len(part))
        try:
            if len(part) > room:
                raise FULL
            found.append([2 * item for item in part])
        except torch.cuda.OutOfMemoryError as error:
            parts.halve(error)
    return found, sizes


def test_one_part_if_memory_suffices():
    assert doubled(np.arange(7), 7) == ([[0, 2, 4, 6, 8, 10, 12]], [7])


@pytest.mark.parametrize(("room", "sizes"), [(4, [7, 4, 3]), (2, [7, 4, 2, 2, 2, 1]), (3, None)])
def test_parts_are_halved_and_keep_their_order(room, sizes):
    with pytest.warns(UserWarning, match="no memory for a pack of 7") as told:
        found, tried = doubled(list(range(7)), room)
    assert list(itertools.chain(*found)) == [0, 2, 4, 6, 8, 10, 12]
    assert len(told) == 1
    assert sizes is None or tried == sizes


def test_too_little_memory_for_one():
    with pytest.raises(InputError, match=r"\(CUDA out of memory\); use a smaller"):
        doubled([1], 0)
    with pytest.warns(UserWarning, match="no memory"), pytest.raises(InputError, match="single"):
        doubled([1, 2], 0)


def test_members_of_several_networks_are_joined_as_copies():
    networks = [torch.nn.BatchNorm1d(n) for n in (3, 4)]
    for k, network in enumerate(networks):
        network.weight.data = torch.arange(len(network.weight)) + 10.0 * k
        network.running_mean = network.weight.detach() + 100
        network.num_batches_tracked = network.weight.detach() * 0
    joined = join_members([(networks[0], np.array([2, 0])), (networks[1], np.array([1]))])
    assert joined.weight.tolist() == [2, 0, 11]
    assert joined.running_mean.tolist() == [102, 100, 111]
    joined.weight.data.zero_()
    assert networks[0].weight.tolist() == [0, 1, 2]
