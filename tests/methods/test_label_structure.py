"""Label structures: given by the user, or learned from label rows."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from pgmpy.structure_score import BIC

from cgmvae.errors import InputError
from cgmvae.methods import label_structure
from cgmvae.methods.inputs import Rows
from cgmvae.methods.label_structure import (
    LabelStructure,
    distinct_label_sets,
    equivalent_edges,
    given_structure,
    learn_edges,
    learn_structures,
    local_bic,
)

#: 0 → 2 ← 1 is a v-structure; 2 → 3 → 4 follows from it; 5 is alone.
PLANTED = {(0, 2), (1, 2), (2, 3), (3, 4)}
TRIANGLE = [(0, 1), (0, 2), (1, 2), (2, 3), (4, 3)]


def simulate(n_rows, seed=0):
    """Draw labels from a Bayesian network with the planted edges."""
    rng = np.random.default_rng(seed)
    y = np.zeros((n_rows, 6), np.uint8)
    y[:, [0, 1, 5]] = rng.random((n_rows, 3)) < 0.4
    y[:, 2] = rng.random(n_rows) < np.array([0.1, 0.7, 0.8, 0.95])[y[:, 0] + 2 * y[:, 1]]
    y[:, 3] = rng.random(n_rows) < np.where(y[:, 2], 0.8, 0.2)
    y[:, 4] = rng.random(n_rows) < np.where(y[:, 3], 0.3, 0.9)
    return y


def rows_of(labels, **parts):
    return Rows(np.zeros((labels.shape[0], 1)), labels, **parts)


def learn(labels, max_parents=3, n_restarts=20, **parts):
    rows = rows_of(labels, **parts)
    (structure,) = learn_structures([rows], max_parents, n_restarts)
    return structure


def equivalence_class(edges):
    """Return skeleton and v-structures, which determine the likelihood of a structure."""
    skeleton = {frozenset(edge) for edge in edges}
    collisions = {
        (frozenset((a, b)), c)
        for (a, c), (b, d) in itertools.combinations(sorted(edges), 2)
        if c == d and frozenset((a, b)) not in skeleton
    }
    return skeleton, collisions


@pytest.mark.parametrize("seed", range(2))
def test_a_planted_structure_is_recovered(seed):
    found = learn(simulate(8000, seed))
    assert equivalence_class(found.edges) == equivalence_class(PLANTED)
    assert equivalence_class(PLANTED)[1] == {(frozenset((0, 1)), 2)}


def test_restarts_find_better_structures():
    def value(seed, n_restarts):
        label_sets, weights = distinct_label_sets(rows_of(simulate(8000, seed)))
        found = LabelStructure.from_edges(learn_edges(label_sets, weights, 3, n_restarts), 6)
        return sum(local_bic(label_sets, weights, *family) for family in enumerate(found.parents))

    gains = [value(seed, 20) - value(seed, 0) for seed in range(4)]
    assert min(gains) >= 0
    assert max(gains) > 1


def test_reversed_edges_keep_the_score(rng):
    label_sets, weights = distinct_label_sets(rows_of(simulate(300)))
    seen, values = set(), []
    for _ in range(40):
        edges = equivalent_edges(TRIANGLE, 6, rng)
        families = LabelStructure.from_edges(edges, 6).parents
        seen.add(tuple(edges))
        assert equivalence_class(edges) == equivalence_class(TRIANGLE)
        values.append(
            sum(local_bic(label_sets, weights, *family) for family in enumerate(families))
        )
    np.testing.assert_allclose(values, values[0], atol=1e-4)
    assert len(seen) == 6  # every order of the three that are connected with one another


def test_independent_labels_have_no_edges(rng):
    assert learn((rng.random((500, 6)) < 0.3).astype(np.uint8)).edges == []


def test_the_score_equals_pgmpy():
    labels = simulate(300)
    label_sets, weights = distinct_label_sets(rows_of(labels))
    assert len(label_sets) < 300
    reference = BIC(pd.DataFrame(labels.astype(int)))
    for label, parents in [(0, ()), (2, (0, 1)), (3, (0,)), (4, (1, 2, 5))]:
        expected = reference.local_score(label, parents)
        assert local_bic(label_sets, weights, label, parents) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("max_parents", [0, 1, 2])
def test_the_number_of_parents_is_limited(max_parents):
    found = learn(simulate(4000), max_parents)
    assert max(map(len, found.parents)) == max_parents


def test_rows_count_by_their_weight():
    labels = np.concatenate([simulate(2000, 1), simulate(2000, 2)[:, ::-1]])
    weights = np.repeat([1.0, 0.0], 2000)
    alone = learn(labels[:2000])
    assert learn(labels, weights=weights) == alone
    assert learn(labels, weights=1e-4 * weights) == alone
    assert learn(labels) != alone
    assert learn(labels, weights=np.repeat([1.0, 1e-9], 2000)) == alone


def test_rows_with_unknown_labels_are_ignored(rng):
    labels = simulate(3000)
    unknown = np.zeros(labels.shape, bool)
    unknown[1500:, 2] = True
    expected = learn(labels[:1500])
    for form in (np.asarray, sp.csr_array):
        assert learn(form(labels), unknown=form(unknown)) == expected
    labels[1500:] = rng.random((1500, 6)) < 0.5
    assert learn(labels, unknown=unknown) == expected
    assert learn(labels) != expected


def test_without_information_there_are_no_edges(monkeypatch):
    monkeypatch.setitem(sys.modules, "pgmpy.causal_discovery", None)
    labels = simulate(50)
    assert learn(labels, unknown=np.eye(50, 6, dtype=bool) | (np.arange(50) > 5)[:, None]) == (
        ((),) * 6,
        tuple(range(6)),
    )
    assert learn(np.ones((9, 3), np.uint8)).edges == []
    assert learn(labels[:, :1]).edges == []
    assert learn(labels, 0).edges == []


def test_constant_labels_have_no_edges():
    labels = simulate(2000)
    labels[:, 0], labels[:, 5] = 0, 1
    assert {0, 5}.isdisjoint(itertools.chain(*learn(labels).edges))


@pytest.mark.slow
def test_another_process_finds_the_same_structure(tmp_path):
    """The search iterates over sets, whose order may depend on the process, and scores may tie."""
    labels = simulate(400)[:, [0, 1, 2, 2, 3, 3]]
    np.save(tmp_path / "labels.npy", labels)
    code = (
        "import numpy as np\n"
        "from cgmvae.methods.inputs import Rows\n"
        "from cgmvae.methods.label_structure import learn_structures\n"
        "labels = np.load('labels.npy')\n"
        "print(learn_structures([Rows(labels, labels)], 3, 20)[0].edges)\n"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    output = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    ).stdout
    assert output.strip() == str(learn(labels).edges)


def test_equal_rows_share_one_search(monkeypatch):
    calls = []
    original = label_structure.learn_edges
    monkeypatch.setattr(
        label_structure, "learn_edges", lambda *given: calls.append(1) or original(*given)
    )
    first, second = simulate(200, 1), simulate(200, 2)
    rows = [rows_of(labels) for labels in (first, second, first[::-1])]
    structures = learn_structures(rows, 3, 2)
    assert len(calls) == 2
    assert structures[0] == structures[2] != structures[1]


def test_parents_precede_children(rng):
    for _ in range(20):
        names = rng.permutation(9)
        edges = [(names[i], names[j]) for i, j in itertools.combinations(range(9), 2)]
        edges = [edges[i] for i in rng.choice(len(edges), 12, replace=False)]
        structure = LabelStructure.from_edges(edges, 9)
        position = {label: i for i, label in enumerate(structure.order)}
        assert sorted(structure.order) == list(range(9))
        assert all(position[parent] < position[child] for parent, child in edges)
        assert structure.edges == sorted((int(a), int(b)) for a, b in edges)
        assert structure.is_ordered()
        for label, last in enumerate(structure.last_needed()):
            children = [position[child] for parent, child in edges if parent == label]
            assert last == max(children, default=position[label])


def test_children_follow_closely():
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
def test_invalid_orders_are_detected(parents, order):
    assert not LabelStructure(parents, order).is_ordered()


def test_structures_by_name_or_index():
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
        ([(0, 1.0)], "1.0"),
        ([(0, 1, 2)], "pairs"),
        (5, "pairs"),
    ],
)
def test_invalid_structures_are_rejected(structure, message):
    with pytest.raises(InputError, match=message):
        given_structure(structure, ("owl", "hawk", "wren"))
