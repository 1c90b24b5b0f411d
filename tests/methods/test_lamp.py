"""LaMP: messages against plain loops, the label graph, and the estimator."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from torch.nn.functional import binary_cross_entropy_with_logits

import cgmvae
from cgmvae.methods import fit_together, lamp
from cgmvae.methods.inputs import Rows
from cgmvae.methods.lamp import LaMP, LaMPConfig, LaMPNetwork, MessagePassing, label_graph
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import GeneratorStreams

SIZES = {"embedding_dim": 8, "hidden_dim": 6, "n_heads": 2, "n_steps": 2, "n_components": 3}
N_LABELS, N_FEATURES, N_ROWS = 4, 5, 3
NO_DROPOUT = torch.zeros(2, dtype=torch.float64)


def make_network(edges=None, seeds=(1, 2), n_labels=N_LABELS, kind=GeneratorStreams, **changes):
    """Return a network in float64, with a bias that is not zero and all labels connected."""
    log_odds = np.stack([np.linspace(-1, seed, n_labels) for seed in seeds])
    network = LaMPNetwork(
        LaMPConfig(**(SIZES | changes)),
        N_FEATURES,
        log_odds,
        kind(seeds),
        dropout=[0.1 * seed for seed in seeds],
        input_dropout=[0.2] * len(seeds),
        dtype=torch.float64,
    )
    edges = torch.ones(n_labels, n_labels, dtype=torch.bool) if edges is None else edges
    network.connect(torch.as_tensor(edges).expand_as(network.edges))
    return network


def make_batch(n_members=2, n_labels=N_LABELS, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(1, N_ROWS, N_FEATURES)).repeat(n_members, 0)
    known = rng.random((1, N_ROWS, n_labels)).repeat(n_members, 0) < 0.7
    positive = known & (rng.random((1, N_ROWS, n_labels)).repeat(n_members, 0) < 0.5)
    weight = np.ones((n_members, N_ROWS))
    return Batch(*(torch.from_numpy(part) for part in (features, positive, known, weight)))


def random_states(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def some_edges(n_nodes, n_neighbors):
    """Return the edges of two members; the first node of the second one has no neighbors."""
    edges = torch.from_numpy(np.random.default_rng(1).random((2, n_nodes, n_neighbors)) < 0.6)
    edges[1, 0] = False
    assert edges.any(-1).sum() == 2 * n_nodes - 1
    return edges


def plain(tensor):
    return tensor.detach().numpy()


def plain_layer_norm(x, layer, member):
    normal = (x - x.mean()) / math.sqrt(x.var() + 1e-5)
    return normal * plain(layer.gain)[member] + plain(layer.shift)[member]


def plain_round(layer, member, nodes, neighbors, edges):
    """One round of messages in one row, with a loop over nodes, heads and neighbors."""
    query, key, value = (plain(w)[member] for w in (layer.query, layer.key, layer.value))
    width = nodes.shape[1] // layer.n_heads
    out = []
    for i, node in enumerate(nodes):
        heard = np.zeros(nodes.shape[1])
        listens = [j for j in range(len(neighbors)) if edges is None or edges[i, j]]
        for head in range(layer.n_heads):
            part = slice(head * width, (head + 1) * width)
            asked = (node @ query)[part]
            scores = [asked @ (neighbors[j] @ key)[part] / math.sqrt(width) for j in listens]
            total = sum(math.exp(score) for score in scores)
            for j, score in zip(listens, scores, strict=True):
                heard[part] += math.exp(score) / total * (neighbors[j] @ value)[part]
        output = layer.output
        message = heard @ plain(output.weight)[member] + plain(output.bias)[member]
        state = node + message if listens else node
        state = plain_layer_norm(state, layer.message_norm, member)
        first, second = layer.update.layers
        hidden = np.maximum(state @ plain(first.weight)[member] + plain(first.bias)[member], 0)
        update = hidden @ plain(second.weight)[member] + plain(second.bias)[member]
        out.append(plain_layer_norm(state + update, layer.update_norm, member))
    return np.stack(out)


class TestAgainstLoops:
    @pytest.mark.parametrize("fused", [False, True])
    @pytest.mark.parametrize(("n_heads", "all_to_all"), [(1, False), (4, True)])
    def test_a_round_of_messages(self, fused, n_heads, all_to_all, monkeypatch):
        monkeypatch.setattr(lamp, "_FEW_NEIGHBORS", 0 if fused else 64)
        config = LaMPConfig(**(SIZES | {"n_heads": n_heads}))
        layer = MessagePassing(config, GeneratorStreams([1, 2]), "round", dtype=torch.float64)
        nodes, neighbors = random_states(2, 3, 4, 8), random_states(2, 3, 5, 8)
        edges = None if all_to_all else some_edges(4, 5)
        given = None if edges is None else edges[:, None]
        found = plain(layer(nodes, neighbors, given, None, NO_DROPOUT))
        for member in range(2):
            for row in range(3):
                expected = plain_round(
                    layer,
                    member,
                    nodes[member, row].numpy(),
                    neighbors[member, row].numpy(),
                    None if edges is None else edges[member].numpy(),
                )
                np.testing.assert_allclose(found[member, row], expected, rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize(
        "changes",
        [
            {"n_steps": 1},
            {"n_steps": 3, "component_messages": True},
            {"n_steps": 2, "component_messages": True, "n_words": 3},
        ],
    )
    def test_the_network(self, changes):
        n_steps = changes["n_steps"]
        edges = torch.eye(N_LABELS, dtype=torch.bool)
        edges[0, 2] = edges[3, 1] = True
        network, batch = make_network(edges, **changes), make_batch()
        batch.features[:, 0] = -1.0  # a row without words
        p = plain(network(batch.features))
        terms = {name: plain(term) for name, term in network.terms(batch, None).items()}
        for member in range(2):
            for row in range(N_ROWS):
                logits = plain_logits(network, member, batch.features[member, row].numpy())
                np.testing.assert_allclose(p[member, row], 1 / (1 + np.exp(-logits[-1])))
                losses = [plain_cross_entropy(each, batch, member, row) for each in logits]
                assert len(losses) == 2 * n_steps
                assert terms["cross_entropy"][member, row] == pytest.approx(losses[-1])
                assert terms["intermediate"][member, row] == pytest.approx(sum(losses[:-1]))


def plain_logits(network, member, features):
    """Return the logits of one row after each round of messages."""
    if network.config.n_words:
        columns = [j for j in np.argsort(-features) if features[j] > 0][: network.config.n_words]
        split = plain(network.words)[member, columns]
        split = split * (features[columns] / features.max())[:, None]
    else:
        components = network.components
        split = features @ plain(components.weight)[member] + plain(components.bias)[member]
        split = split.reshape(network.config.n_components, network.config.embedding_dim)
    nodes, logits = plain(network.label_embeddings)[member], []
    edges = network.edges[member].numpy()
    layers = list(zip(network.from_components, network.from_labels, strict=True))
    for step, (hear_input, hear_labels) in enumerate(layers):
        if network.config.component_messages and len(split):
            split = plain_round(network.between_components[step], member, split, split, None)
        for layer, from_labels in ((hear_input, False), (hear_labels, True)):
            heard, where = (nodes, edges) if from_labels else (split, None)
            nodes = plain_round(layer, member, nodes, heard, where)
            products = (nodes * plain(network.readout)[member]).sum(1)
            logits.append(products + plain(network.label_bias)[member])
    return logits


def plain_cross_entropy(logits, batch, member, row):
    known = batch.known[member, row]
    losses = binary_cross_entropy_with_logits(
        torch.from_numpy(logits), batch.positive[member, row].double(), reduction="none"
    )
    return float(losses[known].sum())


class TestGraph:
    def test_a_node_without_neighbors_gets_no_message_and_finite_gradients(self):
        layer = MessagePassing(
            LaMPConfig(**SIZES), GeneratorStreams([1, 2]), "round", dtype=torch.float64
        )
        edges = some_edges(4, 4)
        nodes = random_states(2, 3, 4, 8).requires_grad_()
        states = layer(nodes, nodes, edges[:, None], None, NO_DROPOUT)
        alone = layer.message_norm(nodes[:, :, 0])
        alone = layer.update_norm(alone + layer.update(alone, None, NO_DROPOUT))
        torch.testing.assert_close(states[1, :, 0], alone[1])
        assert (states[0, :, 0] != alone[0]).all()
        states.square().sum().backward()
        assert all(p.grad.isfinite().all() for p in layer.parameters())
        again = layer(nodes, nodes, edges[:, None], None, NO_DROPOUT)
        heard = torch.autograd.grad(again[1, 0, 0, 0], nodes)
        assert heard[0][1, 0, 0].abs().min() > 0
        assert heard[0][1, 0, 1:].abs().max() == 0

    @pytest.mark.parametrize("sparse", [False, True])
    def test_the_prior_graph_uses_known_labels(self, rng, sparse):
        labels = (rng.random((40, 9)) < 0.15).astype(np.uint8)
        unknown = rng.random((40, 9)) < 0.3
        expected = np.eye(9, dtype=bool)
        for row in range(40):
            for i in range(9):
                for j in range(9):
                    both = labels[row, i] and labels[row, j]
                    known = not unknown[row, i] and not unknown[row, j]
                    if both and known:
                        expected[i, j] = True
        form = sp.csr_array if sparse else np.asarray
        features = np.zeros((40, 1))
        rows = Rows(features, form(labels), form(unknown))
        np.testing.assert_array_equal(label_graph("prior", rows), expected)
        assert label_graph("prior", rows._replace(unknown=None)).sum() > expected.sum()
        assert not expected.all()

    def test_graphs_by_name_and_given(self, rng):
        rows = Rows(np.zeros((2, 1)), np.zeros((2, 3), np.uint8))
        assert label_graph("full", rows).all()
        assert not label_graph("edgeless", rows).any()
        np.testing.assert_array_equal(label_graph("prior", rows), np.eye(3))
        given = [[0, 1, 0], [0, 0, 0], [1, 1, 1]]
        for form in (list, np.array, lambda table: np.array(table, float)):
            np.testing.assert_array_equal(label_graph(form(given), rows), np.array(given, bool))


class TestNetwork:
    @pytest.mark.parametrize("n_words", [0, 3])
    def test_every_parameter_receives_a_gradient(self, n_words):
        network, batch = make_network(component_messages=True, n_words=n_words), make_batch()
        terms = network.terms(batch, GeneratorStreams([1, 2]))
        torch.stack(list(terms.values())).sum().backward()
        for name, parameter in network.named_parameters():
            assert parameter.grad.isfinite().all(), name
            assert (parameter.grad.abs().flatten(1).amax(1) > 1e-9).all(), name

    def test_input_dropout_is_active_in_training_only(self):
        network, batch = make_network(), make_batch()
        network.dropout.zero_()
        still = network.terms(batch, None)["cross_entropy"]
        assert (network.terms(batch, GeneratorStreams([1, 2]))["cross_entropy"] != still).all()
        network.input_dropout.zero_()
        noisy = network.terms(batch, GeneratorStreams([1, 2]))["cross_entropy"]
        torch.testing.assert_close(noisy, still)

    @pytest.mark.parametrize("silent", ["message", "update"])
    def test_dropout_is_active_in_training_only(self, silent):
        layer = MessagePassing(
            LaMPConfig(**SIZES), GeneratorStreams([1, 2]), "round", dtype=torch.float64
        )
        last = layer.output if silent == "message" else layer.update.layers[-1]
        with torch.no_grad():
            last.weight.zero_()
            last.bias.zero_()
        nodes, rate = random_states(2, 3, 4, 8), torch.tensor([0.0, 0.9])
        still = layer(nodes, nodes, None, None, rate)
        noisy = layer(nodes, nodes, None, GeneratorStreams([1, 2]), rate)
        torch.testing.assert_close(noisy[0], still[0])
        assert (noisy[1] != still[1]).any(-1).all()

    def test_rows_are_scored_in_blocks_that_bound_the_memory(self, monkeypatch):
        network, features = make_network(), random_states(2, 11, N_FEATURES)
        whole, sizes = network(features), []
        states = network.states
        monkeypatch.setattr(lamp, "_SCORED_NODES", 3 * 2 * N_LABELS + 1)
        monkeypatch.setattr(network, "states", lambda x: sizes.append(x.shape[1]) or states(x))
        torch.testing.assert_close(network(features), whole)
        assert sizes == [3, 3, 3, 2]
        monkeypatch.setattr(lamp, "_SCORED_NODES", 1)
        torch.testing.assert_close(network(features), whole)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("n_labels", [4, 83])
@pytest.mark.parametrize("n_words", [0, 3])
def test_a_gpu_passes_messages_in_bfloat16(n_labels, n_words):
    network = make_network(n_labels=n_labels, n_words=n_words, component_messages=True)
    network.edges[0, 1] = False
    network.connected = False
    batch, found = make_batch(n_labels=n_labels), []
    weights = torch.randn(2, 2, N_ROWS, dtype=torch.float64)
    for device, dtype, in_half in (
        ("cpu", torch.float64, False),
        ("cuda", torch.float32, False),
        ("cuda", torch.float32, True),
    ):
        network.to(device, dtype).in_half = in_half
        given = Batch(*(part.to(device) for part in batch))
        given = given._replace(features=given.features.to(dtype))
        terms = torch.stack(list(network.terms(given, None).values()))
        gradients = torch.autograd.grad(
            terms, list(network.parameters()), weights.to(terms), allow_unused=True
        )
        found.append([part.cpu().double() for part in (terms, *gradients)])
    for other, tolerance in ((found[1], 1e-4), (found[2], 0.1)):
        for a, b in zip(other, found[0], strict=True):
            assert (a - b).norm() <= tolerance * b.norm() + 1e-9


def tiny(**changes):
    settings = {
        "n_members": 2,
        "epochs": 3,
        "batch_size": 32,
        "learning_rate": 1e-2,
        "embedding_dim": 8,
        "n_heads": 2,
        "n_components": 2,
        "device": "cpu",
        "random_state": 0,
    }
    return LaMP(**(settings | changes))


class TestEstimator:
    def test_joint_fits_keep_their_own_graphs(self, survey):
        Y = survey.Y.copy()
        Y[:, :2] = np.eye(2, dtype=Y.dtype)[np.arange(120) % 2]  # never together
        other = survey.Y.copy()
        other[:, :2] = 1
        held = survey.X[90:], survey.Y[90:]
        data = [(survey.X[:70], Y[:70], held), (survey.X[20:90], other[20:90], held)]
        models = [tiny(random_state=1), tiny(random_state=2, n_members=1, dropout=0.4)]
        fit_together(models, data)
        assert not models[0].label_graph_[0, 1]
        assert models[1].label_graph_[0, 1]

    def test_a_given_graph_is_used_and_saved(self, survey, tmp_path):
        edges = np.zeros((5, 5), bool)
        edges[0, 1] = edges[3, 3] = edges[4, 0] = True
        model = tiny(graph=edges.astype(float).tolist()).fit(survey.X, survey.Y)
        np.testing.assert_array_equal(model.label_graph_, edges)
        given = model.graph
        model.save(tmp_path / "model")
        assert model.graph is given
        loaded = cgmvae.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.label_graph_, edges)
        np.testing.assert_array_equal(loaded.network_.edges, model.network_.edges)
        np.testing.assert_array_equal(loaded.predict_proba(survey.X), model.predict_proba(survey.X))
        again = clone(loaded).set_params(random_state=0).fit(survey.X, survey.Y)
        np.testing.assert_array_equal(again.predict_proba(survey.X), model.predict_proba(survey.X))

    def test_the_words_of_sparse_features_are_nodes(self, survey):
        X = sp.csr_array(np.abs(survey.X) * (survey.X > 0))
        model = tiny(n_words=4).fit(X, survey.Y)
        assert model.network_.config.n_words == 4
        assert model.network_.words.shape[1] == 6
        assert tiny().fit(survey.X, survey.Y).network_.words is None
        assert tiny(components="affine").fit(X, survey.Y).network_.words is None

    def test_intermediate_weight(self, survey):
        models = [tiny(intermediate_weight=w).fit(survey.X, survey.Y) for w in (0, 2)]
        assert "intermediate" not in models[0].history_
        first, *_, last = models[1].history_["intermediate"].mean(1)
        assert last < first
        difference = models[0].predict_proba(survey.X) - models[1].predict_proba(survey.X)
        assert np.abs(difference).max() > 1e-3
