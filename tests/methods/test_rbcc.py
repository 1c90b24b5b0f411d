"""RBCC: the cell against torch's own, conditionals of parents only, whole label sets, members."""

import copy
import itertools
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
from cgmvae.methods.rbcc import RBCC
from cgmvae.methods.rbcc_network import RBCCConfig, RBCCNetwork
from cgmvae.nn.batch import Batch
from cgmvae.nn.noise import GeneratorNoise

#: 4 has an ancestor, 0, that is no parent; 3 has three parents; 1 has no child.
EDGES = [(0, 2), (0, 3), (2, 3), (1, 3), (2, 4)]
CHAIN = [(4, 3), (3, 2), (2, 1), (1, 0)]

ALL_SETS = np.array(list(itertools.product([0, 1], repeat=5)))


def make_network(*edges, n_members=2, n_parents=3):
    """Return a network in float64 whose biases and weights are far from their start."""
    noise = GeneratorNoise(range(n_members))
    config = RBCCConfig(state_dim=6, hidden_dim=7, n_parents=n_parents)
    network = RBCCNetwork(
        config,
        4,
        noise.normal(5, dtype=torch.float64).numpy(),
        noise,
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


def test_the_cell_is_torch_s_own_in_a_plain_loop():
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


def test_a_label_depends_on_its_parents_and_on_no_other():
    network = make_network(EDGES)
    features, positive, known = make_rows()
    before = network.forced_logits(features, positive, known)
    for other, label in itertools.product(range(5), range(5)):
        flipped = positive.clone()
        flipped[..., other] ^= True
        change = network.forced_logits(features, flipped, known)[..., label] != before[..., label]
        assert change.all() if (other, label) in EDGES else not change.any()


def test_the_features_count_for_every_label():
    network = make_network(EDGES)
    features, positive, known = make_rows()
    before = network.forced_logits(features, positive, known)
    assert (network.forced_logits(features + 1, positive, known) != before).all()


def test_a_parent_that_is_not_known_is_not_read():
    network = make_network(EDGES)
    features, positive, known = make_rows()
    known[:, 4, 2] = False
    found = network.forced_logits(features, positive, known)
    flipped = positive.clone()
    flipped[:, 4, 2] ^= True
    torch.testing.assert_close(
        network.forced_logits(features, flipped, known), found, rtol=0, atol=0
    )
    without = make_network([edge for edge in EDGES if edge[0] != 2])
    expected = without.forced_logits(features, positive, known)
    torch.testing.assert_close(found[:, 4], expected[:, 4])
    assert (found[:, 3, [3, 4]] != expected[:, 3, [3, 4]]).all()


def test_tables_hold_what_forced_labels_give():
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
    monkeypatch.setattr("cgmvae.methods.rbcc_network._SCORED_STATES", 200)
    assert len(list(network.table_blocks(features))) == 5
    torch.testing.assert_close(network(features), whole)


def test_members_with_structures_of_their_own():
    network = make_network(EDGES, CHAIN, n_members=4)
    features, positive, known = make_rows(n_members=4)
    found = {tuple(s.edges): members.tolist() for s, members in network.structures()}
    assert found == {tuple(sorted(EDGES)): [0, 2], tuple(sorted(CHAIN)): [1, 3]}
    p = network(features)
    logits = network.forced_logits(features, positive, known)
    for edges, members in ((EDGES, [0, 2]), (CHAIN, [1, 3])):
        alike = make_network(edges, n_members=4)
        torch.testing.assert_close(alike(features)[members], p[members])
        expected = alike.forced_logits(features, positive, known)
        torch.testing.assert_close(logits[members], expected[members])


def test_every_parameter_receives_a_finite_gradient():
    network = make_network(EDGES)
    features, positive, known = make_rows()
    known[:, 0] = False
    batch = Batch(features, positive & known, known, torch.ones(2, 9))
    terms = network.terms(batch, GeneratorNoise([0, 1]))
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


def test_label_sets_have_probabilities_that_add_up(fitted, survey):
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


def test_probabilities_of_label_sets_are_means_of_the_members(fitted, survey):
    with torch.no_grad():
        (x,) = fitted._blocks(fitted._scaled_features(survey.X))
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


def test_labels_that_only_each_other_explain():
    """Two labels are one coin, and the features say nothing: a chain knows, no marginal does."""
    rng = np.random.default_rng(0)
    X, coin = rng.normal(size=(600, 3)), rng.random(600) < 0.5
    Y = np.column_stack([coin, coin, rng.random(600) < 0.5])
    model = quick(epochs=15).fit(X[:400], Y[:400])
    assert {frozenset(edge) for edge in model.edges_} == {frozenset(("label_0", "label_1"))}
    found = model.mode(X[400:])
    np.testing.assert_array_equal(found[:, 0], found[:, 1])
    alone = quick(epochs=15, max_parents=0).fit(X[:400], Y[:400])
    assert alone.edges_ == []
    gain = model.log_probability(X[400:], Y[400:]) - alone.log_probability(X[400:], Y[400:])
    assert gain.mean() == pytest.approx(np.log(2), abs=0.15)


def test_models_with_other_structures_end_together_as_alone(survey):
    rng = np.random.default_rng(0)
    X = np.tile(survey.X, (2, 1))
    models = [quick(random_state=seed, n_members=seed) for seed in (1, 2)]
    data = []
    for pairs in ((0, 1), (2, 3)):
        Y = np.tile(survey.Y, (2, 1))
        Y[:, pairs[1]] = Y[:, pairs[0]] ^ (rng.random(240) < 0.05)
        data.append((X[:180], Y[:180], (X[180:], Y[180:])))
    alone = [clone(model) for model in models]
    fit_together(models, data)
    assert models[0].edges_ != models[1].edges_
    for model, single, (X, Y, held) in zip(models, alone, data, strict=True):
        single.fit(X, Y, validation_data=held)
        assert model.edges_ == single.edges_
        np.testing.assert_allclose(
            model.predict_proba(survey.X), single.predict_proba(survey.X), atol=1e-4
        )
        np.testing.assert_array_equal(model.best_epoch_, single.best_epoch_)


@pytest.mark.parametrize(
    "other",
    [
        {"structure": CHAIN},
        {"max_parents": 1},
        {"n_restarts": 1},
        {"state_dim": 8},
        {"hidden_dim": 8},
    ],
)
def test_only_alike_networks_are_fitted_together(survey, other):
    data = [(survey.X, survey.Y, None)] * 2
    with pytest.raises(InputError, match="fitted together"):
        fit_together([quick(), quick(**other)], data)


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


def test_a_structure_that_was_given_is_kept(fitted, survey, tmp_path):
    names = fitted.label_names_
    assert fitted.edges_ == [(names[a], names[b]) for a, b in sorted(EDGES)]
    fitted.save(tmp_path / "model")
    loaded = cgmvae.load(tmp_path / "model")
    assert loaded.edges_ == fitted.edges_
    again = clone(loaded).set_params(random_state=0, device="cpu").fit(survey.X, survey.Y)
    np.testing.assert_array_equal(again.predict_proba(survey.X), fitted.predict_proba(survey.X))


def test_a_damaged_structure_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    tensors, description = read_tensors(tmp_path / "model")
    tensors = {name: array.copy() for name, array in tensors.items()}
    tensors["fitted.parents"][:, 0, 0] = 3  # a cycle
    write_tensors(tmp_path / "model", tensors, description)
    with pytest.raises(InputError, match="damaged"):
        cgmvae.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_parents": -1}, "max_parents is -1"),
        ({"n_restarts": -1}, "n_restarts is -1"),
        ({"max_parents": 9, "structure": [(i, 9) for i in range(9)]}, "9 parents"),
        ({"state_dim": 0}, "state_dim is 0"),
        ({"hidden_dim": 0}, "hidden_dim is 0"),
        ({"structure": [("label_0", "owl")]}, "'owl'"),
        ({"structure": [(0, 1), (1, 0)]}, "cycle"),
    ],
)
def test_what_cannot_be_is_refused_before_training(parameters, message):
    data, _ = cgmvae.make_survey(40, 3, 10, seed=0)
    with pytest.raises(InputError, match=message):
        quick(**parameters, progress=lambda *_: pytest.fail("it was trained")).fit(data.X, data.Y)


def test_too_many_labels_are_refused(rng):
    with pytest.raises(InputError, match="at most 100 labels"):
        quick().fit(rng.normal(size=(20, 3)), rng.integers(0, 2, (20, 101)))


def degenerate(survey):
    nothing, everything = np.zeros((120, 5)), survey.Y.astype(np.float64)
    everything[:, 2] = np.nan
    rows = np.where(np.eye(120, 5, dtype=bool), np.nan, survey.Y)
    rows[:, 4] = np.nan  # no row is fully known
    return {
        "one label": (survey.X, survey.Y[:, :1]),
        "no positive label": (survey.X, nothing),
        "all unknown for a label": (survey.X, everything),
        "no row that knows all labels": (survey.X, rows),
        "constant features": (np.ones((120, 6)), survey.Y),
    }


@pytest.mark.parametrize("case", sorted(degenerate(cgmvae.make_survey(120, 6, 5, seed=0)[0])))
def test_degenerate_rows(survey, case):
    X, Y = degenerate(survey)[case]
    model = quick().fit(X, Y)
    p = model.predict_proba(X)
    assert p.shape == Y.shape
    assert np.isfinite(p).all()
    assert np.isfinite(model.log_probability(X, model.mode(X))).all()
    for name, series in model.history_.items():
        assert np.isfinite(series).all(), name
