"""Gradients of the whole network written by hand against autograd through ``terms``."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from cgmvae.model import by_hand
from cgmvae.model import network as cgmvae_network
from cgmvae.model.network import TERMS, CGMVAENetwork, NetworkConfig
from cgmvae.nn.batch import Batch
from cgmvae.nn.gaussian import LOG_VARIANCE_RANGE
from cgmvae.nn.noise import GeneratorNoise
from cgmvae.nn.row_share import RowShare
from cgmvae.nn.sparse_rows import SparseRows

SEEDS, STEPS = (2, 7, 1), (3, 8, 5)
N_ROWS, N_FEATURES, N_LABELS = 9, 7, 5
DOUBLE = torch.float64
SMALL = NetworkConfig(
    embedding_dim=10,
    latent_dim=3,
    label_hidden=(8, 6),
    feature_hidden=(9, 5),
    decoder_hidden=(12,),
)

#: Networks whose gradients are written by hand.
FORMS = [
    {},
    {"layer_norm": False},
    {"activation": "leaky_relu"},
    {"label_bias": False},
    {"decoder_input": "z"},
    {"skip_dropout": 0.3},
    {"label_scale": 0.3, "embedding_dim": 1, "latent_dim": 1},
    {"label_hidden": (), "feature_hidden": (), "decoder_hidden": ()},
    {"label_hidden": (), "activation": "leaky_relu", "layer_norm": False},
    {"feature_hidden": (), "decoder_hidden": (6, 4, 11), "skip_dropout": 0.3},
    {"decoder_hidden": (), "decoder_input": "z", "feature_hidden": (6, 4, 11)},
    {"layer_norm": False, "skip_dropout": 0.3, "label_bias": False, "label_hidden": (4,)},
]

#: Other values of all settings that these networks have in common.
OTHERS = {
    "prior": ["standard", "label-sum"],
    "alignment": ["triplet", "ranking"],
    "correlation": ["covariance", "graph"],
    "embedding_activation": ["relu", "leaky_relu"],
    "unit_norm": [True],
    "label_relu": [True],
    "label_branch": [True],
    "decoder_dropout": [False],
    "normalise_labels": [False],
    "n_draws": [2],
    "sampled_labels": [3],
}

every_size = pytest.mark.parametrize("n_members", [1, 3])
every_form = pytest.mark.parametrize("changes", FORMS, ids=lambda changes: "-".join(changes))
every_kind = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


def _network(n_members=3, *, terms=TERMS, dtype=DOUBLE, **changes):
    """Build a network whose weights are not those it starts with, some of which are 0 or 1."""
    odds = np.random.default_rng(5).normal(size=(n_members, N_LABELS))
    network = CGMVAENetwork(
        dataclasses.replace(SMALL, **changes),
        N_FEATURES,
        odds,
        GeneratorNoise(SEEDS[:n_members]),
        dropout=(0.3, 0.0, 0.5)[:n_members],
        input_dropout=(0.1, 0.4, 0.0)[:n_members],
        temperature=(0.1, 0.5, 1.0)[:n_members],
        terms=terms,
        dtype=dtype,
    )
    draw = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw, dtype=dtype))
        # Log-variances on both sides of their bounds.
        network.label_encoder.background[:, -1] = 9.0
        network.feature_encoder.network.layers[-1].bias[:, -1] = LOG_VARIANCE_RANGE[0]
    return network


def _sparse(features):
    """The same rows without their zeros."""
    n_members, n_rows, n_columns = features.shape
    stored = features != 0
    bounds = torch.nn.functional.pad(stored.sum(-1).flatten().cumsum(0), (1, 0))
    starts = torch.stack([bounds[i * n_rows : (i + 1) * n_rows + 1] for i in range(n_members)])
    return SparseRows(features[stored], stored.nonzero()[:, 2], starts, n_columns)


def _batch(n_members=3, *, sparse=False, seed=4, dtype=DOUBLE):
    """Rows of every kind: without labels, of unknown labels, of weight 0, without features."""
    draw = torch.Generator().manual_seed(seed)
    shape = (n_members, N_ROWS, N_LABELS)
    positive, known = torch.rand(shape, generator=draw) < 0.4, torch.ones(shape, dtype=torch.bool)
    positive[:, 1] = False  # without labels
    positive[:, 2], known[:, 2, 2:] = False, False  # perhaps without
    known[:, 3] = False  # of nothing known
    positive[:, 4] = True
    positive[:, 5, 1], known[:, 5, 3:] = True, False
    features = torch.randn(n_members, N_ROWS, N_FEATURES, generator=draw, dtype=dtype)
    features *= torch.rand(features.shape, generator=draw) < 0.6
    features[:, 6] = 0.0
    weight = torch.rand(n_members, N_ROWS, generator=draw, dtype=dtype)
    weight[:, 7], weight[0, 0] = 0.0, 0.0
    return Batch(_sparse(features) if sparse else features, positive & known, known, weight)


def _weights(batch):
    """How much each term of each row counts."""
    return {name: (0.3 + i) * batch.weight for i, name in enumerate(by_hand.TERMS)}


def _noise(n_members, share=None):
    noise = GeneratorNoise(SEEDS[:n_members])
    noise.share = share
    noise.seek(STEPS[:n_members])
    return noise


def _places(network):
    return {p: torch.full_like(p, torch.nan) for p in network.parameters()}


def _found(network, batch, noise, weights=None):
    """The terms, and the gradient of each parameter."""
    places = _places(network)
    terms = network.by_hand(places)(batch, noise, weights or _weights(batch))
    return terms, list(places.values())


def _expected(network, batch, noise):
    terms = network.terms(batch, noise)
    total = sum((weight * terms[name]).sum() for name, weight in _weights(batch).items())
    return terms, torch.autograd.grad(total, list(network.parameters()))


def _assert_same(found, expected, network, *, rtol=1e-9, atol=1e-11):
    (terms, gradients), (its_terms, its_gradients) = found, expected
    assert set(terms) == set(its_terms)
    for name, term in its_terms.items():
        torch.testing.assert_close(terms[name], term, rtol=rtol, atol=atol)
    names = [name for name, _ in network.named_parameters()]
    for name, ours, its in zip(names, gradients, its_gradients, strict=True):
        torch.testing.assert_close(
            ours, its, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )


@every_kind
@every_size
@every_form
def test_terms_and_gradients_are_those_of_autograd(changes, n_members, sparse):
    network, batch = _network(n_members, **changes), _batch(n_members, sparse=sparse)
    assert network.takes_sparse_rows
    found = _found(network, batch, _noise(n_members))
    _assert_same(found, _expected(network, batch, _noise(n_members)), network)


def test_the_rows_above_are_of_every_kind():
    """Otherwise they would show little."""
    network, batch = _network(), _batch()
    with torch.no_grad():
        output = network.feature_encoder.network(batch.features, None, network.dropout)
        terms = network.terms(batch, _noise(3))
    beyond = output[..., 3:] < LOG_VARIANCE_RANGE[0]
    assert 0 < int(beyond.sum()) < beyond.numel()
    assert bool((terms["kl"][:, [2, 3]] == 0).all())
    assert bool((terms["kl"][:, [1, 4]] != 0).all())
    assert bool((terms["contrastive"][:, [1, 2, 3]] == 0).all())
    assert bool((terms["cross_entropy"][:, 3] == 0).all())
    rates = network.dropout, network.input_dropout, network.temperature
    assert all(len(set(rate.tolist())) == 3 for rate in rates)


@pytest.mark.parametrize("term", by_hand.TERMS)
def test_each_term_alone_may_count(term):
    network, batch = _network(skip_dropout=0.3), _batch()
    weights = _weights(batch)
    weights = {name: weight * (name == term) for name, weight in weights.items()}
    found = _found(network, batch, _noise(3), weights)
    terms = network.terms(batch, _noise(3))
    gradients = torch.autograd.grad(
        (weights[term] * terms[term]).sum(),
        list(network.parameters()),
        allow_unused=True,
        materialize_grads=True,
    )
    _assert_same(found, (terms, gradients), network)


def test_labels_that_are_all_known_may_be_written_once():
    batch = _batch()
    once = torch.ones(1, 1, N_LABELS, dtype=torch.bool).expand_as(batch.positive)
    network, batch = _network(), batch._replace(known=once)
    _assert_same(_found(network, batch, _noise(3)), _expected(network, batch, _noise(3)), network)


@every_size
def test_single_precision_follows_autograd(n_members):
    single = torch.float32
    network, batch = _network(n_members, dtype=single), _batch(n_members, dtype=single)
    found = _found(network, batch, _noise(n_members))
    expected = _expected(network, batch, _noise(n_members))
    assert {part.dtype for part in (*found[0].values(), *found[1])} == {single}
    _assert_same(found, expected, network, rtol=1e-3, atol=1e-4)


@every_kind
def test_a_member_that_fails_fails_alone(sparse):
    network, batch = _network(), _batch(sparse=sparse)
    clean = _found(network, batch, _noise(3))
    with torch.no_grad():
        network.decoder.network.layers[0].bias[0] = torch.nan
    terms, gradients = _found(network, batch, _noise(3))
    assert bool(gradients[0][0].isnan().any())
    found, before = (*terms.values(), *gradients), (*clean[0].values(), *clean[1])
    assert all(torch.equal(ours[1:], its[1:]) for ours, its in zip(found, before, strict=True))


@every_kind
def test_nothing_is_left_from_one_batch_to_the_next(sparse):
    network = _network(skip_dropout=0.3)
    places = _places(network)
    gradients = network.by_hand(places)
    batches = [_batch(sparse=sparse), _batch(sparse=sparse, seed=11), _batch(sparse=sparse)]
    results = []
    for batch in batches:
        terms = gradients(batch, _noise(3), _weights(batch))
        results.append([*terms.values(), *(place.clone() for place in places.values())])
    assert not all(map(torch.equal, results[0], results[1]))
    assert all(map(torch.equal, results[0], results[2]))


def test_weights_may_change_where_they_are():
    network, batch = _network(), _batch()
    places = _places(network)
    gradients = network.by_hand(places)
    gradients(batch, _noise(3), _weights(batch))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.2).add_(0.05)
    terms = gradients(batch, _noise(3), _weights(batch))
    expected = _expected(network, batch, _noise(3))
    _assert_same((terms, places.values()), expected, network)


@pytest.mark.parametrize("changes", [{}, {"decoder_input": "z"}, {"decoder_hidden": ()}])
@every_kind
def test_weights_and_rows_are_left_alone(changes, sparse):
    network, batch = _network(**changes), _batch(sparse=sparse)
    weights, held = _weights(batch), list(batch.features[:3]) if sparse else [batch.features]
    held += [*batch[1:], *weights.values(), *network.parameters(), *network.buffers()]
    before = [part.detach().clone() for part in held]
    _found(network, batch, _noise(3), weights)
    assert all(map(torch.equal, held, before))


@every_kind
@pytest.mark.parametrize("n_shares", [2, 4])
def test_gradients_of_shares_add_up(n_shares, sparse):
    network, batch = _network(skip_dropout=0.3), _batch(sparse=sparse)
    whole = _found(network, batch, _noise(3))
    together = {name: torch.full_like(term, torch.nan) for name, term in whole[0].items()}
    sums = [torch.zeros_like(gradient) for gradient in whole[1]]
    for first in range(n_shares):
        share = RowShare(first, n_shares, N_ROWS)
        features = batch.features.take(share) if sparse else batch.features[:, share.rows]
        own = Batch(features, *(part[:, share.rows] for part in batch[1:]))
        terms, gradients = _found(network, own, _noise(3, share))
        for name, term in terms.items():
            together[name][:, share.rows] = term
        for total, gradient in zip(sums, gradients, strict=True):
            total += gradient
    _assert_same((together, sums), whole, network)


class TestApplies:
    @pytest.mark.parametrize(
        ("name", "value"),
        [(name, value) for name, values in OTHERS.items() for value in values],
    )
    def test_other_settings_are_autograds(self, name, value):
        network = _network(**{name: value})
        assert network.by_hand(_places(network)) is None

    @pytest.mark.parametrize("left_out", by_hand.TERMS)
    def test_a_network_without_one_of_the_terms_is_autograds(self, left_out):
        network = _network(terms=[term for term in TERMS if term != left_out])
        assert network.by_hand(_places(network)) is None

    @pytest.mark.parametrize("kind", ["gaussian", "bernoulli"])
    def test_a_network_with_a_reconstruction_is_autograds(self, kind):
        network = _network(reconstruction=kind)
        assert network.by_hand(_places(network)) is None
        untrained = _network(reconstruction=kind, terms=by_hand.TERMS)
        assert untrained.by_hand(_places(untrained)) is not None

    @pytest.mark.parametrize("few", [True, False])
    def test_very_many_labels_are_autograds(self, monkeypatch, few):
        monkeypatch.setattr(cgmvae_network, "MANY_LABELS", N_LABELS + few)
        network = _network()
        assert (network.by_hand(_places(network)) is not None) == few

    def test_every_switch_of_the_network_is_looked_at(self):
        """One that is added belongs to ``FORMS``, or to the settings that are autograd's."""
        assert set(OTHERS) == set(by_hand._SETTINGS)
        varied = set(itertools.chain(*FORMS))
        elsewhere = {"reconstruction", "covariance_rank", "covariance_draws"}
        names = {field.name for field in dataclasses.fields(NetworkConfig)}
        assert names == set(OTHERS) | varied | elsewhere
