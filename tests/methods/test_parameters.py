"""Parameters are refused in one sentence of one form."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

from cgmvae.errors import InputError
from cgmvae.methods.parameters import check_choices, check_dropout, check_whole


@pytest.mark.parametrize("value", [0, -3, 2.5, 3.0, float("nan"), "3", None])
def test_what_is_no_count_is_named(value):
    check_whole(1, k=1, n=np.int64(7))
    with pytest.raises(InputError, match=f"n is {value}; it must be a whole number of at least 1"):
        check_whole(1, k=1, n=value)


def test_a_probability_of_dropping():
    check_dropout(first=0.0, second=0.999)
    with pytest.raises(InputError, match="second is 1; it must be at least 0 and below 1"):
        check_dropout(first=0.0, second=1)


@dataclass
class Record:
    kind: Literal["a", "b"] = "a"
    size: int = 3


def test_only_named_choices_are_looked_at():
    check_choices(Record, {"kind": "b", "size": "c", "other": "d"})
    for wrong in ("c", None, ["a"]):
        with pytest.raises(InputError, match=r"kind is .*; choose one of a, b"):
            check_choices(Record, {"kind": wrong})
