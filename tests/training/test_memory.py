"""Work that is too large for an accelerator is done in parts, which together are the whole."""

import itertools

import numpy as np
import pytest
import torch

from cgmvae.errors import InputError
from cgmvae.training.memory import in_parts

FULL = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. More words.")


class Work:
    """Doubles numbers, with room for some of them."""

    def __init__(self, room: int) -> None:
        self.room, self.sizes = room, []

    def __call__(self, items):
        self.sizes.append(len(items))
        if len(items) > self.room:
            raise FULL
        return [2 * item for item in items]


def test_all_at_once_where_there_is_room():
    work = Work(7)
    assert in_parts(work, np.arange(7)) == [[0, 2, 4, 6, 8, 10, 12]]
    assert work.sizes == [7]


@pytest.mark.parametrize(("room", "sizes"), [(4, [7, 4, 3]), (2, [7, 4, 2, 2, 2, 1]), (3, None)])
def test_parts_are_as_small_as_they_must_be_and_keep_their_order(room, sizes):
    work = Work(room)
    with pytest.warns(UserWarning, match="no memory for a pack of 7") as told:
        found = in_parts(work, list(range(7)))
    assert list(itertools.chain(*found)) == [0, 2, 4, 6, 8, 10, 12]
    assert len(told) == 1
    assert sizes is None or work.sizes == sizes


def test_no_room_for_one_is_one_sentence():
    with pytest.raises(InputError, match=r"\(CUDA out of memory\); take a smaller"):
        in_parts(Work(0), [1])
    with pytest.warns(UserWarning, match="no memory"), pytest.raises(InputError, match="single"):
        in_parts(Work(0), [1, 2])


def test_other_errors_are_raised():
    def fail(items):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_parts(fail, [1, 2])
