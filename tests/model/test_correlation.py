"""Alternatives to the contrastive module: multivariate probit and label graph."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from cgmvae.model.correlation import LabelCovariance, LabelGraph
from cgmvae.model.objective import probit_likelihood
from cgmvae.nn.rng import GeneratorStreams


@pytest.fixture
def covariance():
    module = LabelCovariance(3, 2, GeneratorStreams([0]), dtype=torch.float64)
    module.factors.data = torch.tensor([[[1.0, 0.2], [0.8, -0.4], [-0.5, 0.3]]]).double()
    return module


def likelihood(covariance, logits, positive, known, streams, n_draws):
    shared = covariance.shared_noise(logits.shape[1], streams, n_draws)
    return probit_likelihood(logits[:, None] + shared, positive, known)


class TestCovariance:
    def test_marginals_of_the_multivariate_normal(self, covariance):
        logits = torch.tensor([[[0.3, -1.2, 0.7]]], dtype=torch.float64)
        factors = covariance.factors[0].detach().numpy()
        variances = np.diag(np.eye(3) + factors @ factors.T)
        expected = norm.cdf(logits[0, 0].numpy() / np.sqrt(variances))
        np.testing.assert_allclose(covariance.marginal(logits)[0, 0].detach(), expected, rtol=1e-12)

    def test_likelihood_approaches_the_orthant_probability(self, covariance):
        logits = torch.tensor([[[0.3, -1.2, 0.7]]], dtype=torch.float64)
        positive = torch.tensor([[[True, False, True]]])
        factors = covariance.factors[0].detach().numpy()
        signs = np.array([1.0, -1.0, 1.0])
        sigma = np.outer(signs, signs) * (np.eye(3) + factors @ factors.T)
        exact = multivariate_normal(np.zeros(3), sigma).cdf(signs * logits[0, 0].numpy())
        value = likelihood(
            covariance, logits, positive, torch.ones_like(positive), GeneratorStreams([1]), 4000
        )
        assert float(torch.exp(-value).detach()) == pytest.approx(exact, rel=0.05)
        independent = norm.cdf(signs * logits[0, 0].numpy() / np.sqrt(np.diag(sigma))).prod()
        assert abs(exact - independent) > 0.1 * exact, "the labels of this test must be correlated"

    def test_unknown_labels_are_ignored(self, covariance):
        known = torch.tensor([[[True, False, True]]])
        positive = torch.tensor([[[True, False, False]]])
        values = [
            likelihood(
                covariance,
                torch.tensor([[[0.3, hidden, 0.7]]], dtype=torch.float64),
                positive,
                known,
                None,
                1,
            )
            for hidden in (0.0, 50.0, -1e4)
        ]
        assert values[0] == values[1] == values[2]
        expected = -norm.logcdf(0.3) - norm.logcdf(-0.7)
        assert float(values[0].detach()) == pytest.approx(expected, rel=1e-12)

    def test_without_covariance_draws_are_equal(self, covariance):
        covariance.factors.data.zero_()
        logits = torch.randn(1, 4, 3, dtype=torch.float64)
        positive = torch.zeros(1, 4, 3, dtype=torch.bool)
        known = torch.ones_like(positive)
        one = likelihood(covariance, logits, positive, known, None, 1)
        many = likelihood(covariance, logits, positive, known, GeneratorStreams([1]), 7)
        torch.testing.assert_close(one, many, rtol=1e-12, atol=1e-12)


class TestGraph:
    def make(self, counts):
        graph = LabelGraph(len(counts), 5, GeneratorStreams([3]), dtype=torch.float64)
        graph.connect(torch.tensor([counts], dtype=torch.float64))
        return graph

    def test_edges_are_fractions_that_sum_to_one(self):
        graph = self.make([[10, 5, 1], [5, 20, 0], [1, 0, 4]])
        share = np.array([[1, 5 / 20, 1 / 4], [5 / 10, 1, 0], [1 / 10, 0, 1]])
        np.testing.assert_allclose(graph.edges[0], share / share.sum(1, keepdims=True))

    def test_a_message_needs_an_edge(self):
        graph = self.make([[10, 5, 0, 0], [5, 20, 0, 0], [0, 0, 4, 2], [0, 0, 2, 9]])
        embeddings = torch.randn(1, 4, 5, dtype=torch.float64)
        before = graph(embeddings)
        changed = embeddings.clone()
        changed[0, 1] += 1
        moved = (graph(changed) - before).abs().sum(-1)[0] > 1e-12
        assert moved.tolist() == [True, True, False, False]

    def test_two_rounds_of_messages_are_added_to_the_embeddings(self):
        graph = self.make([[10, 5, 1], [5, 20, 0], [1, 0, 4]])
        embeddings = torch.randn(1, 3, 5, dtype=torch.float64)
        edges = graph.edges[0].numpy()
        (first, shift), (second, offset) = (
            (layer.weight[0].detach().numpy(), layer.bias[0].detach().numpy())
            for layer in (graph.first, graph.second)
        )
        hidden = np.maximum(edges @ embeddings[0].numpy() @ first + shift, 0)
        expected = embeddings[0].numpy() + edges @ hidden @ second + offset
        np.testing.assert_allclose(graph(embeddings)[0].detach(), expected, rtol=1e-12)

    def test_a_label_that_never_occurs_stays_finite(self):
        graph = self.make([[10, 0], [0, 0]])
        np.testing.assert_array_equal(graph.edges[0], np.eye(2))
