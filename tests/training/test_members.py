from dataclasses import replace

import numpy as np
import pytest
import torch

from cgmvae.training.members import Member, column, weight_tensors


def member(**changes) -> Member:
    plain = Member(
        seed=1,
        train_rows=np.arange(4),
        validation_rows=np.arange(4, 6),
        weights={"kl": 0.5},
        learning_rate=1e-3,
        weight_decay=0.0,
        dropout=0.1,
        input_dropout=0.0,
    )
    return replace(plain, **changes)


def test_column_keeps_the_order_of_the_members():
    assert column([member(seed=3), member(seed=1)], "seed") == [3, 1]


def test_weights_of_terms_that_some_members_leave_out():
    members = [member(weights={"kl": 0.5, "b": 0.0}), member(weights={"a": 2.0, "b": 0.0})]
    weights = weight_tensors(members, dtype=torch.float64, device=torch.device("cpu"))
    assert list(weights) == ["kl", "a"]
    assert weights["kl"].tolist() == [0.5, 0.0]
    assert weights["a"].tolist() == [0.0, 2.0]
    assert weights["a"].dtype == torch.float64


def test_the_fingerprint_repeats():
    assert member().fingerprint() == member(train_rows=np.arange(4)).fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 2},
        {"train_rows": np.array([0, 1, 3, 2])},
        {"validation_rows": np.arange(5, 7)},
        {"weights": {"kl": 0.6}},
        {"learning_rate": 2e-3},
        {"weight_decay": 0.1},
        {"dropout": 0.2},
        {"input_dropout": 0.2},
        {"settings": {"temperature": 0.1}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_field_is_part_of_the_fingerprint(changes):
    assert member(**changes).fingerprint() != member().fingerprint()
