"""Inference in label networks against sums and searches over all label sets."""

import itertools
import math

import numpy as np
import pytest
import torch

from cgmvae.methods.label_structure import LabelStructure
from cgmvae.methods.rbcc_inference import likely_label_sets, log_joint, marginals

#: Two ways from 0 to 5; 3 has three parents, 4 none and no children.
EDGES = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (3, 5), (1, 5)]
TREE = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]

ALL_SETS = torch.tensor(list(itertools.product([False, True], repeat=6)))


def make(edges=EDGES, n_rows=4, n_parents=3, scale=2.0):
    structure = LabelStructure.from_edges(edges, 6)
    generator = torch.Generator().manual_seed(0)
    shape = (2, n_rows, 6, 2**n_parents)
    return structure, scale * torch.randn(shape, generator=generator, dtype=torch.float64)


def conditional(logits, structure, label, values):
    """Return p(label | its parents' values), values by label, in plain steps."""
    n_parents = int(math.log2(len(logits[label])))
    code = 0
    for k, parent in enumerate(structure.parents[label]):
        code += int(values[parent]) * 2 ** (n_parents - 1 - k)
    return 1 / (1 + math.exp(-logits[label][code]))


def joint(logits, structure, values):
    p = 1.0
    for label, value in enumerate(values):
        positive = conditional(logits, structure, label, values)
        p *= positive if value else 1 - positive
    return p


def joints(logits, structure):
    """Return p(y|x) of all label sets in plain steps, (2, n_rows, 64)."""
    return np.array(
        [
            [[joint(row, structure, values) for values in ALL_SETS.tolist()] for row in member]
            for member in logits.tolist()
        ]
    )


@pytest.mark.parametrize("n_parents", [3, 4])
def test_the_joint_is_the_product_of_the_conditionals(n_parents):
    structure, logits = make(n_parents=n_parents)
    found = log_joint(logits, structure, ALL_SETS.expand(1, 4, -1, -1)).exp()
    np.testing.assert_allclose(found, joints(logits, structure), atol=1e-12)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-12)


@pytest.mark.parametrize("edges", [EDGES, TREE, []])
def test_marginals_are_sums_over_all_label_sets(edges):
    structure, logits = make(edges)
    expected = joints(logits, structure) @ ALL_SETS.double().numpy()
    np.testing.assert_allclose(marginals(logits, structure), expected, atol=1e-12)


def test_in_a_tree_nothing_needs_to_wait():
    structure, logits = make(TREE)
    exact = marginals(logits, structure)
    np.testing.assert_allclose(marginals(logits, structure, widest=0), exact, atol=1e-12)


def test_labels_that_cannot_wait_are_taken_as_independent():
    structure, logits = make()
    found = marginals(logits, structure, widest=0)
    for member, row in itertools.product(range(2), range(4)):
        tables, p = logits[member, row].tolist(), {}
        for label in structure.order:
            parents, p[label] = structure.parents[label], 0.0
            for values in itertools.product([0, 1], repeat=len(parents)):
                chosen = dict(zip(parents, values, strict=True))
                share = math.prod(p[j] if chosen[j] else 1 - p[j] for j in parents)
                p[label] += share * conditional(tables, structure, label, chosen)
        expected = [p[label] for label in range(6)]
        np.testing.assert_allclose(found[member, row], expected, atol=1e-12)
    exact = marginals(logits, structure)
    errors = [float((marginals(logits, structure, widest=w) - exact).abs().max()) for w in range(4)]
    assert errors[0] > 0.01
    assert errors[3] < 1e-12
    assert errors[2] > 1e-12


def test_a_beam_of_full_width_finds_the_mode():
    structure, logits = make(n_rows=30)
    best = joints(logits, structure).argmax(-1)
    for width in (32, 64, 1000):
        found = likely_label_sets(logits, structure, width)
        assert found.shape[2] == min(width, 64)
        np.testing.assert_array_equal(found[:, :, 0], ALL_SETS[best])
    every = likely_label_sets(logits, structure, 64)
    assert len(torch.unique(every[0, 0], dim=0)) == 64


def test_a_beam_of_one_is_greedy():
    structure, logits = make(n_rows=30)
    found = likely_label_sets(logits, structure, 1)
    differs = 0
    for member, row in itertools.product(range(2), range(30)):
        tables, values = logits[member, row].tolist(), [0] * 6
        for label in structure.order:
            values[label] = conditional(tables, structure, label, values) > 0.5
        assert found[member, row, 0].tolist() == values
        every = [joint(tables, structure, each) for each in ALL_SETS.tolist()]
        differs += joint(tables, structure, values) < max(every) - 1e-12
    assert differs > 0


def test_a_beam_sees_what_greed_does_not():
    """A first step that is a little less probable leads to a label set that is much more so."""
    structure = LabelStructure.from_edges([(0, 1)], 2)
    logits = torch.tensor([[[[0.2, 0.2], [5.0, 0.1]]]])
    assert likely_label_sets(logits, structure, 1)[0, 0, 0].tolist() == [True, True]
    assert likely_label_sets(logits, structure, 2)[0, 0, 0].tolist() == [False, True]


def test_extreme_log_odds_stay_finite():
    structure, logits = make(scale=1e4)
    logits = logits.float()
    p = marginals(logits, structure)
    assert torch.isfinite(p).all()
    assert ((p >= 0) & (p <= 1)).all()
    label_sets = likely_label_sets(logits, structure, 4)
    assert torch.isfinite(log_joint(logits, structure, label_sets)).all()
