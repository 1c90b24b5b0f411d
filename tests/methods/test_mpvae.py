"""MPVAE: its terms against plain computations, and recovery of a covariance."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.distributions import Independent, Normal, kl_divergence

from cgmvae.methods import REGISTRY
from cgmvae.methods.mpvae import MPVAE, MPVAEConfig, MPVAENetwork
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import GeneratorStreams

CONFIG = MPVAEConfig(
    latent_dim=3,
    hidden_dim=6,
    covariance_rank=2,
    n_draws=5,
    ranking_slope=5.0,
    ranking_of="marginals",
    decoder_input="xz",
    layer_norm=True,
)
TERMS = ("kl", "cross_entropy", "ranking", "label_cross_entropy", "label_ranking")
#: Weights of the authors' code for yeast.
AUTHORS = {
    "cross_entropy_weight": 0.1,
    "label_cross_entropy_weight": 0.1,
    "ranking_weight": 20.0,
    "label_ranking_weight": 20.0,
}
TINY = {
    "n_members": 2,
    "epochs": 4,
    "batch_size": 32,
    "learning_rate": 1e-2,
    "hidden_dim": 16,
    "latent_dim": 4,
    "device": "cpu",
    "random_state": 0,
}


def make_network(n_labels=4, **changes):
    """Return a network of two members in float64, with factors large enough to matter."""
    network = MPVAENetwork(
        dataclasses.replace(CONFIG, **changes),
        5,
        np.linspace(-1, 1, 2 * n_labels).reshape(2, n_labels),
        GeneratorStreams([0, 1]),
        dropout=[0.0, 0.0],
        input_dropout=[0.0, 0.0],
        dtype=torch.float64,
    )
    network.covariance.factors.data *= 10
    return network


@pytest.fixture
def batch(rng):
    """Return six rows: all known, some unknown, no positive, no negative, nothing known."""
    known = rng.random((2, 6, 4)) < 0.7
    known[:, :3] = True
    known[:, 5] = False
    positive = rng.random((2, 6, 4)) < 0.5
    positive[:, 1], positive[:, 2] = False, True
    return Batch(
        torch.from_numpy(rng.normal(size=(2, 6, 5))),
        torch.from_numpy(positive & known),
        torch.from_numpy(known),
        torch.ones(2, 6, dtype=torch.float64),
    )


def planted(n_rows, strength, seed=1, n_labels=8):
    """Draw from a multivariate probit on linear features; return X, Y and its correlations."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    slopes = rng.normal(size=(4, n_labels))
    factors = strength * rng.normal(size=(n_labels, 2))
    noise = rng.normal(size=(n_rows, 2)) @ factors.T + rng.normal(size=(n_rows, n_labels))
    covariance = np.eye(n_labels) + factors @ factors.T
    deviation = np.sqrt(np.diag(covariance))
    return X, (X @ slopes + noise > 0.3).astype(int), covariance / np.outer(deviation, deviation)


def off_diagonal(matrix):
    return matrix[np.triu_indices(len(matrix), 1)]


class TestProbit:
    def fixed(self, **changes):
        """Return a network whose m is the bias for every z, and m and Σ of member 0."""
        network = make_network(**changes)
        for parameter in network.decoder.layers[-1].parameters():
            parameter.data.zero_()
        mean = network.label_bias[0].detach().numpy()
        return network, mean, network.covariance.matrix()[0].detach().numpy()

    def test_marginals_equal_the_closed_form(self, batch):
        network, mean, sigma = self.fixed()
        p = network(batch.features)[0].detach().numpy()
        expected = norm.cdf(mean / np.sqrt(np.diag(sigma)))
        np.testing.assert_allclose(p, np.tile(expected, (6, 1)), rtol=1e-12)

    def test_rank_zero_means_no_covariance(self, batch):
        network = make_network(covariance_rank=0)
        terms = network.terms(batch, None)
        p = network(batch.features).detach()
        chance = torch.where(batch.positive, p, 1 - p).log().masked_fill(~batch.known, 0).sum(-1)
        torch.testing.assert_close(-terms["cross_entropy"].detach(), chance)
        np.testing.assert_array_equal(network.covariance.matrix()[0], np.eye(4))

    def test_rank_is_at_most_the_number_of_labels(self):
        assert make_network(covariance_rank=64).covariance.factors.shape == (2, 4, 4)


def streams():
    return GeneratorStreams([5, 6])


class TestTerms:
    def test_kl_goes_from_labels_to_features(self, batch):
        network = make_network()
        y, x = (
            network.encode_labels(batch.features, batch.positive, batch.known),
            network.encode(batch.features),
        )
        q, p = (Independent(Normal(g.mean, torch.exp(g.log_variance / 2)), 1) for g in (y, x))
        expected, reverse = kl_divergence(q, p), kl_divergence(p, q)
        found = network.terms(batch, streams())["kl"]
        torch.testing.assert_close(found[:, :5], expected[:, :5])
        assert (expected - reverse).abs().min() > 1e-3

    @pytest.mark.parametrize("ranking_of", ["marginals", "draws"])
    def test_ranking_equals_a_double_loop(self, batch, ranking_of):
        network = make_network(ranking_of=ranking_of)
        terms = network.terms(batch, None)
        y, x = (
            network.encode_labels(batch.features, batch.positive, batch.known),
            network.encode(batch.features),
        )
        spread = np.sqrt(1 + (network.covariance.factors.detach().numpy() ** 2).sum(-1))
        for name, z in (("ranking", x.mean), ("label_ranking", y.mean)):
            m = network.decode(batch.features, z).detach().numpy()
            p = norm.cdf(m / spread[:, None] if ranking_of == "marginals" else m)
            for member, row in itertools.product(range(2), range(6)):
                has, known = batch.positive[member, row], batch.known[member, row]
                losses = [
                    np.exp(-5 * (p[member, row, i] - p[member, row, j])) / 5
                    for i in torch.nonzero(has).ravel().tolist()
                    for j in torch.nonzero(known & ~has).ravel().tolist()
                ]
                expected = np.mean(losses) if losses else 0.0
                assert terms[name][member, row].item() == pytest.approx(expected, rel=1e-12)

    def test_an_unknown_label_is_encoded_as_zero(self, batch):
        network = make_network()
        signs = torch.where(batch.positive, 1.0, -1.0).double().masked_fill(~batch.known, 0.0)
        expected = network.label_encoder(signs, None, network.dropout)[..., :3]
        torch.testing.assert_close(
            network.encode_labels(batch.features, batch.positive, batch.known).mean, expected
        )
        flipped = batch.positive ^ ~batch.known
        torch.testing.assert_close(
            network.encode_labels(batch.features, flipped, batch.known).mean, expected
        )

    def test_a_row_without_known_labels_has_no_gradient(self, batch):
        network = make_network()
        terms = network.terms(batch, streams())
        assert sum(terms[name][:, 5].abs().sum() for name in TERMS) == 0
        total = torch.stack([terms[name][:, 5].sum() for name in TERMS]).sum()
        gradients = torch.autograd.grad(total, list(network.parameters()), materialize_grads=True)
        assert all((gradient == 0).all() for gradient in gradients)

    @pytest.mark.parametrize("changes", [{}, {"decoder_input": "z"}, {"ranking_of": "draws"}])
    def test_every_parameter_receives_a_finite_gradient(self, batch, changes):
        network = make_network(**changes)
        for scale in (1, 1e4):
            terms = network.terms(batch._replace(features=batch.features * scale), streams())
            assert terms.keys() == set(TERMS)
            torch.stack([terms[name].sum() for name in TERMS]).sum().backward()
            for name, parameter in network.named_parameters():
                assert torch.isfinite(parameter.grad).all()
                assert (parameter.grad.reshape(2, -1) != 0).any(1).all(), name

    def test_initial_marginals_are_the_label_frequencies(self, survey):
        network = make_network()
        for parameter in network.decoder.layers[-1].parameters():
            parameter.data.zero_()
        network.covariance.factors.data.zero_()
        expected = torch.sigmoid(torch.linspace(-1, 1, 8, dtype=torch.float64)).view(2, 1, 4)
        torch.testing.assert_close(network(torch.zeros(2, 1, 5, dtype=torch.float64)), expected)


class TestCovariance:
    def similarity(self, X, Y, **changes):
        plan = {"n_members": 1, "epochs": 8, "batch_size": 128, "learning_rate": 0.02}
        model = MPVAE(**(TINY | plan | {"dropout": 0.0} | changes))
        return off_diagonal(model.fit(X, Y).label_similarity())

    def test_a_planted_covariance_is_recovered(self):
        X, Y, correlation = planted(3000, 1.2)
        truth = off_diagonal(correlation)
        raw = np.corrcoef(off_diagonal(np.corrcoef(Y.T)), truth)[0, 1]
        found = self.similarity(X, Y)
        assert np.corrcoef(found, truth)[0, 1] > 0.9 > raw + 0.1
        assert np.polyfit(truth, found, 1)[0] > 0.5
        assert not self.similarity(X, Y, covariance_rank=0, epochs=1).any()

    def test_ranking_draws_removes_the_covariance(self):
        X, Y, _ = planted(3000, 1.2)
        found = self.similarity(X, Y, **AUTHORS, ranking_of="draws")
        assert np.abs(found).max() < 0.02

    def test_similarity_is_the_mean_correlation_over_members(self, survey):
        model = MPVAE(**TINY).fit(survey.X, survey)
        factors = model.network_.covariance.factors.detach().numpy()
        covariances = [np.eye(5) + each @ each.T for each in factors]
        deviations = [np.sqrt(np.diag(each)) for each in covariances]
        expected = [c / np.outer(d, d) for c, d in zip(covariances, deviations, strict=True)]
        np.testing.assert_allclose(model.label_similarity(), np.mean(expected, 0), atol=1e-6)
        np.testing.assert_allclose(
            model.label_similarity(normalize=False), np.mean(covariances, 0), rtol=1e-5
        )


class TestEstimator:
    def test_every_weight_has_an_effect(self, survey):
        parameters = TINY | {"n_members": 1, "epochs": 2}
        expected = MPVAE(**parameters).fit(survey.X, survey.Y).predict_proba(survey.X)
        for name in TERMS:
            model = MPVAE(**parameters, **{f"{name}_weight": 0.0}).fit(survey.X, survey.Y)
            assert name not in model.history_
            assert np.abs(model.predict_proba(survey.X) - expected).max() > 1e-4

    def test_the_authors_setting(self, survey):
        original = REGISTRY["mpvae"].original
        assert original.items() > AUTHORS.items()
        model = MPVAE(**(dict(original) | TINY | {"n_members": 1})).fit(survey.X, survey.Y)
        config = model.network_.config
        assert (config.label_input, config.ranking_of, config.layer_norm) == ("xy", "draws", False)
        positive = torch.zeros(1, 1, 5, dtype=torch.bool)
        encoded = [
            model.network_.encode_labels(torch.full((1, 1, 6), x), positive, ~positive).mean
            for x in (0.0, 1.0)
        ]
        assert not torch.equal(*encoded)  # the features are seen too
