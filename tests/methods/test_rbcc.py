"""RBCC: inference against enumeration, the network and the estimator."""

import copy
import itertools
import math
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

import cgmvae
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods import fit_together
from cgmvae.methods.label_structure import LabelStructure
from cgmvae.methods.neural import member_blocks
from cgmvae.methods.rbcc import (
    RBCC,
    RBCCConfig,
    RBCCNetwork,
    likely_label_sets,
    log_joint,
    marginals,
)
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import GeneratorStreams

#: Two ways from 0 to 5; 3 has three parents, 4 none and no children.
DIAMOND = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (3, 5), (1, 5)]
TREE = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]

SETS_OF_SIX = torch.tensor(list(itertools.product([False, True], repeat=6)))


def make(edges=DIAMOND, n_rows=4, n_parents=3, scale=2.0):
    structure = LabelStructure.from_edges(edges, 6)
    generator = torch.Generator().manual_seed(0)
    shape = (2, n_rows, 6, 2**n_parents)
    return structure, scale * torch.randn(shape, generator=generator, dtype=torch.float64)


def conditional(logits, structure, label, values):
    """Return p(label | values of its parents) without vectorization."""
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
    """Return p(y|x) of all label sets without vectorization, (2, n_rows, 64)."""
    return np.array(
        [
            [[joint(row, structure, values) for values in SETS_OF_SIX.tolist()] for row in member]
            for member in logits.tolist()
        ]
    )


@pytest.mark.parametrize("n_parents", [3, 4])
def test_the_joint_is_the_product_of_the_conditionals(n_parents):
    structure, logits = make(n_parents=n_parents)
    found = log_joint(logits, structure, SETS_OF_SIX.expand(1, 4, -1, -1)).exp()
    np.testing.assert_allclose(found, joints(logits, structure), atol=1e-12)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-12)


@pytest.mark.parametrize("edges", [DIAMOND, TREE, []])
def test_marginals_are_sums_over_all_label_sets(edges):
    structure, logits = make(edges)
    expected = joints(logits, structure) @ SETS_OF_SIX.double().numpy()
    np.testing.assert_allclose(marginals(logits, structure), expected, atol=1e-12)


def test_labels_beyond_the_limit_are_treated_as_independent():
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
        np.testing.assert_array_equal(found[:, :, 0], SETS_OF_SIX[best])
    every = likely_label_sets(logits, structure, 64)
    assert len(torch.unique(every[0, 0], dim=0)) == 64


def test_a_beam_finds_what_greedy_search_misses():
    """A slightly less probable first step leads to a much more probable label set."""
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


#: 4 has an ancestor, 0, that is no parent; 3 has three parents; 1 has no child.
EDGES = [(0, 2), (0, 3), (2, 3), (1, 3), (2, 4)]
CHAIN = [(4, 3), (3, 2), (2, 1), (1, 0)]

ALL_SETS = np.array(list(itertools.product([0, 1], repeat=5)))


def make_network(*edges, n_members=2, n_parents=3):
    """Return a network in float64 with large weights."""
    streams = GeneratorStreams(range(n_members))
    config = RBCCConfig(state_dim=6, hidden_dim=7, n_parents=n_parents)
    network = RBCCNetwork(
        config,
        4,
        streams.normal("log_odds", 5, dtype=torch.float64).numpy(),
        streams,
        dropout=[0.3] * n_members,
        input_dropout=[0.1] * n_members,
        dtype=torch.float64,
    )
    structures = [LabelStructure.from_edges(each, 5) for each in edges]
    network.connect(structures * (n_members // len(structures)))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(3)
    return network


def make_rows(n_rows=9, n_members=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n_members, n_rows, 4, generator=generator, dtype=torch.float64)
    positive = torch.rand(n_members, n_rows, 5, generator=generator) < 0.5
    return features, positive, torch.ones_like(positive)


def quick(**changes):
    plan = {"epochs": 4, "batch_size": 32, "learning_rate": 1e-2, "n_members": 2}
    return RBCC(
        **(plan | {"state_dim": 16, "device": "cpu", "random_state": 0, "n_restarts": 2} | changes)
    )


@pytest.fixture(scope="module")
def fitted():
    """Return a model of two members with a given structure; tests must not change it."""
    data, _ = cgmvae.make_survey(120, 6, 5, seed=0)
    return quick(structure=EDGES, epochs=6).fit(data.X, data.Y)


def test_the_cell_equals_torch_gru_cell():
    network = make_network(EDGES, CHAIN)
    features, positive, known = make_rows()
    known[0, 3, 2] = known[1, 2, 3] = False
    found = network.forced_logits(features, positive, known)
    for m, edges in enumerate((EDGES, CHAIN)):
        cell = torch.nn.GRUCell(6, 6, dtype=torch.float64)
        with torch.no_grad():
            for name, source in (("ih", network.input), ("hh", network.recurrent)):
                getattr(cell, f"weight_{name}").copy_(source.weight[m].T)
                getattr(cell, f"bias_{name}").copy_(source.bias[m])
        start = torch.tanh(network.encoder(features, None, network.dropout))[m]
        structure = LabelStructure.from_edges(edges, 5)
        for row, label in itertools.product(range(9), range(5)):
            state = start[row]
            for parent in structure.parents[label]:
                if known[m, row, parent]:
                    value = network.value_embeddings[m, int(positive[m, row, parent]), parent]
                    state = cell(value + network.label_embeddings[m, label], state)
            expected = state @ network.output[m, label] + network.label_bias[m, label]
            torch.testing.assert_close(found[m, row, label], expected)


def test_tables_equal_forced_logits():
    network = make_network(EDGES, CHAIN)
    features, _, known = make_rows(3)
    tables = network.tables(features)
    assert tables.shape == (2, 3, 5, 8)
    for values in itertools.product([False, True], repeat=5):
        positive = torch.tensor(values).expand(2, 3, 5)
        expected = network.forced_logits(features, positive, known)
        for m, edges in enumerate((EDGES, CHAIN)):
            structure = LabelStructure.from_edges(edges, 5)
            for label in range(5):
                parents = structure.parents[label]
                code = sum(values[parent] << (2 - k) for k, parent in enumerate(parents))
                torch.testing.assert_close(tables[m, :, label, code], expected[m, :, label])


def test_blocks_of_rows_change_nothing(monkeypatch):
    network = make_network(EDGES, CHAIN)
    features, _, _ = make_rows()
    whole = network(features)
    monkeypatch.setattr("cgmvae.methods.rbcc._SCORED_STATES", 200)
    assert len(list(network.table_blocks(features))) == 5
    torch.testing.assert_close(network(features), whole)


def test_every_parameter_receives_a_finite_gradient():
    network = make_network(EDGES)
    features, positive, known = make_rows()
    known[:, 0] = False
    batch = Batch(features, positive & known, known, torch.ones(2, 9))
    terms = network.terms(batch, GeneratorStreams([0, 1]))
    assert terms.keys() == {"cross_entropy"}
    assert (terms["cross_entropy"][:, 0] == 0).all()
    terms["cross_entropy"].sum().backward()
    for name, parameter in network.named_parameters():
        gradient = parameter.grad
        assert torch.isfinite(gradient).all(), name
        assert (gradient.flatten(1).abs().sum(1) > 0).all(), name


def enumerated(model, X):
    """Return the probability of every label set, (n_samples, 32)."""
    return np.exp(
        [model.log_probability(X, np.tile(each, (len(X), 1))) for each in ALL_SETS]
    ).T.astype(np.float64)


def test_probabilities_of_label_sets_sum_to_one(fitted, survey):
    model = copy.deepcopy(fitted)
    with torch.no_grad():
        model.network_.value_embeddings.mul_(30)  # parents must matter
    p = enumerated(model, survey.X)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(survey.X), p @ ALL_SETS, atol=1e-5)


def test_the_mode_is_the_most_probable_of_all_label_sets(fitted, survey):
    p = enumerated(fitted, survey.X)
    full = copy.deepcopy(fitted).set_params(beam_width=32)
    found = full.mode(survey.X)
    assert found.dtype.kind == "i"
    np.testing.assert_array_equal(found, ALL_SETS[p.argmax(1)])
    full.beam_width = 1
    greedy = np.exp(full.log_probability(survey.X, full.mode(survey.X)))
    assert (greedy <= p.max(1) + 1e-6).all()
    full.beam_width = 0
    with pytest.raises(InputError, match="beam_width is 0"):
        full.mode(survey.X)


def test_the_most_probable_set_as_the_prediction(fitted, survey):
    likely = clone(fitted).set_params(prediction="most probable set").fit(survey.X, survey.Y)
    assert np.array_equal(likely.predict(survey.X), likely.mode(survey.X))
    assert not np.array_equal(likely.predict(survey.X), fitted.predict(survey.X))


def test_probabilities_of_label_sets_are_means_of_the_members(fitted, survey):
    with torch.no_grad():
        (x,) = member_blocks(fitted.network_, fitted.inputs(survey.X))
        labels = torch.as_tensor(survey.Y).bool().expand(2, -1, -1)
        logits = fitted.network_.forced_logits(x, labels, torch.ones_like(labels))
        each = torch.where(labels, logits, -logits).sigmoid().prod(-1)
    assert (each[0] - each[1]).abs().max() > 1e-2
    for Y in (survey.Y, sp.csr_array(survey.Y)):
        np.testing.assert_allclose(fitted.log_probability(survey.X, Y), each.mean(0).log(), 1e-4)


def test_a_label_set_must_be_whole(fitted, survey):
    Y = survey.Y.astype(np.float64)
    with pytest.raises(InputError, match="119"):
        fitted.log_probability(survey.X, Y[:119])
    Y[3, 2] = np.nan
    with pytest.raises(InputError, match="unknown"):
        fitted.log_probability(survey.X, Y)


def test_labels_explained_only_by_each_other():
    """Two labels are always equal and do not depend on the features: only a chain predicts this."""
    rng = np.random.default_rng(0)
    X, coin = rng.normal(size=(600, 3)), rng.random(600) < 0.5
    Y = np.column_stack([coin, coin, rng.random(600) < 0.5])
    model = quick(epochs=15, n_members=4, encoding="standard").fit(X[:400], Y[:400])
    assert {frozenset(edge) for edge in model.edges_} == {frozenset(("label_0", "label_1"))}
    found = model.mode(X[400:])
    np.testing.assert_array_equal(found[:, 0], found[:, 1])
    alone = quick(epochs=15, n_members=4, max_parents=0, encoding="standard").fit(X[:400], Y[:400])
    assert alone.edges_ == []
    gain = model.log_probability(X[400:], Y[400:]) - alone.log_probability(X[400:], Y[400:])
    assert gain.mean() == pytest.approx(np.log(2), abs=0.15)


def test_joint_fits_keep_their_own_structures(survey):
    rng = np.random.default_rng(0)
    X = np.tile(survey.X, (2, 1))
    models = [quick(random_state=seed, n_members=seed) for seed in (1, 2)]
    data = []
    for pairs in ((0, 1), (2, 3)):
        Y = np.tile(survey.Y, (2, 1))
        Y[:, pairs[1]] = Y[:, pairs[0]] ^ (rng.random(240) < 0.05)
        data.append((X[:180], Y[:180], (X[180:], Y[180:])))
    fit_together(models, data)
    for model, pair in zip(models, (("label_0", "label_1"), ("label_2", "label_3")), strict=True):
        assert set(pair) in map(set, model.edges_)
    assert models[0].edges_ != models[1].edges_


def test_a_model_needs_pgmpy_for_nothing_but_learning_a_structure(survey, tmp_path, monkeypatch):
    model = quick().fit(survey.X, survey.Y)
    model.save(tmp_path / "model")
    for module in ("base", "causal_discovery", "structure_score"):
        monkeypatch.setitem(sys.modules, f"pgmpy.{module}", None)
    loaded = cgmvae.load(tmp_path / "model")
    assert loaded.edges_ == model.edges_ != []
    np.testing.assert_array_equal(loaded.predict_proba(survey.X), model.predict_proba(survey.X))
    np.testing.assert_array_equal(loaded.mode(survey.X), model.mode(survey.X))
    quick(structure=EDGES).fit(survey.X, survey.Y)
    with pytest.raises(InputError, match=r"cgmvae\[rbcc\]"):
        quick().fit(survey.X, survey.Y)


def test_a_given_structure_is_saved(fitted, survey, tmp_path):
    names = fitted.label_names_
    assert fitted.edges_ == [(names[a], names[b]) for a, b in sorted(EDGES)]
    fitted.save(tmp_path / "model")
    loaded = cgmvae.load(tmp_path / "model")
    assert loaded.edges_ == fitted.edges_
    again = clone(loaded).set_params(random_state=0, device="cpu").fit(survey.X, survey.Y)
    np.testing.assert_array_equal(again.predict_proba(survey.X), fitted.predict_proba(survey.X))


def test_a_damaged_structure_is_rejected(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    tensors, description = read_tensors(tmp_path / "model")
    tensors = {name: array.copy() for name, array in tensors.items()}
    tensors["fitted.parents"][:, 0, 0] = 3  # a cycle
    write_tensors(tmp_path / "model", tensors, description)
    with pytest.raises(InputError, match="damaged"):
        cgmvae.load(tmp_path / "model")
