"""Structures over labels: read in order, refused where they are none."""

import itertools

import numpy as np
import pytest

from cgmvae.errors import InputError
from cgmvae.methods.label_structure import LabelStructure, given_structure


def test_parents_come_first(rng):
    for _ in range(20):
        names = rng.permutation(9)
        edges = [(names[i], names[j]) for i, j in itertools.combinations(range(9), 2)]
        edges = [edges[i] for i in rng.choice(len(edges), 12, replace=False)]
        structure = LabelStructure.from_edges(edges, 9)
        place = {label: i for i, label in enumerate(structure.order)}
        assert sorted(structure.order) == list(range(9))
        assert all(place[parent] < place[child] for parent, child in edges)
        assert structure.edges == sorted((int(a), int(b)) for a, b in edges)
        assert structure.is_ordered()


def test_children_follow_soon():
    pairs = [(i, i + 5) for i in range(5)]
    structure = LabelStructure.from_edges(pairs, 10)
    assert structure.order == (0, 5, 1, 6, 2, 7, 3, 8, 4, 9)
    assert structure.last_needed() == [1, 3, 5, 7, 9, 1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("parents", "order"),
    [
        (((), (0,)), (1, 0)),
        (((), (0,)), (0, 0)),
        (((), (7,)), (0, 1)),
        (((), (0, 7)), (0, 1)),
        (((), (), (1, 0)), (0, 1, 2)),
    ],
)
def test_an_order_that_is_none(parents, order):
    assert not LabelStructure(parents, order).is_ordered()


def test_a_structure_is_given_by_name_or_index():
    names = ("owl", "hawk", "wren")
    expected = LabelStructure(((), (0,), (0, 1)), (0, 1, 2))
    for structure in (
        [("owl", "hawk"), ("hawk", "wren"), ("owl", "wren")],
        [[0, 1], [1, 2], [0, 2], [0, 2]],
        np.array([[0, 1], [1, 2], [0, 2]]),
        [("owl", 1), (np.int64(1), "wren"), (0, "wren")],
    ):
        assert given_structure(structure, names) == expected
    assert given_structure([], names).edges == []


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        ([(0, 1), (1, 2), (2, 0)], "cycle"),
        ([(1, 1)], "cycle"),
        ([("owl", "eagle")], "'eagle'"),
        ([(0, 3)], "3"),
        ([(0, -1)], "-1"),
        ([(0, 1.0)], "1.0"),
        ([(0, 1, 2)], "pairs"),
        (5, "pairs"),
    ],
)
def test_a_structure_that_is_none_is_refused(structure, message):
    with pytest.raises(InputError, match=message):
        given_structure(structure, ("owl", "hawk", "wren"))
