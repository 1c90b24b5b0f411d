from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest

from cgmvae.errors import InputError
from cgmvae.preparation.declarations import as_declared, plain


@dataclass
class Record:
    whole: int = 1
    number: float = 1.0
    switch: bool = False
    name: str = ""
    choice: Literal["a", "b"] = "a"
    maybe: int | None = None
    sizes: tuple[int, ...] = ()
    perhaps: tuple[int, ...] | None = None
    pairs: Any = None
    settings: Mapping[str, Any] | None = None
    members: Sequence[Mapping[str, float]] | None = None
    made_: int = field(default=0, init=False)


GOOD = {
    "whole": [0, -3, 2.0, 10**30],
    "number": [0, 0.5, float("inf")],
    "switch": [True, False, 0, 1],
    "name": ["", "owl"],
    "choice": ["a", "b"],
    "maybe": [None, 3],
    "sizes": [(), (1, 2)],
    "perhaps": [None, (3,)],
    "pairs": [None, [("a", 1)], {"a": (1, (2,))}, "owl"],
    "settings": [None, {}, {"hidden": (1, 2), "inner": {"deep": ((1,),)}}],
    "members": [None, [], [{"dropout": 0.1}]],
}
BAD = {
    "whole": [None, 0.5, "1", [1], float("nan"), float("inf")],
    "number": [None, "1", [1.0], {}],
    "switch": [None, 2, "yes"],
    "name": [None, 3, ["owl"]],
    "choice": ["c", None, ["a"], 0],
    "maybe": ["", 0.5],
    "sizes": [None, 3, ["a"], "ab", [[1]]],
    "perhaps": [3, ["a"]],
    "settings": [[], "owl", 3],
    "members": [{}, [3], [{"dropout": "owl"}]],
    "made_": [1],
    "other": [1],
    "__class__": ["owl"],
}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, each in GOOD.items() for v in each])
def test_what_is_declared_comes_back_from_json(name, value):
    assert as_declared(Record, {name: plain(value)}) == {name: value}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, each in BAD.items() for v in each])
def test_what_is_not_declared_is_refused(name, value):
    with pytest.raises(ValueError, match="parameter"):
        as_declared(Record, {name: value})


def test_numbers_of_numpy_become_plain():
    made = plain({"a": np.float32(0.5), 3: (np.int64(2), np.bool_(True)), "c": np.eye(2)})
    assert made == {"a": 0.5, "3": [2, True], "c": [[1.0, 0.0], [0.0, 1.0]]}
    with pytest.raises(InputError, match="cannot be kept"):
        plain({"a": object()})


@pytest.mark.parametrize("values", [None, [], "owl", 3])
def test_what_is_no_record_is_refused(values):
    with pytest.raises(ValueError, match="not a record"):
        as_declared(Record, values)
