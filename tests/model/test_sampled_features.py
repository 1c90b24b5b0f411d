"""Eq. 5 of sparse rows: the features of the batch, and a sample that stands for the others."""

import itertools

import numpy as np
import pytest
import torch

from cgmvae.model.network import CGMVAENetwork, NetworkConfig
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import GeneratorStreams
from cgmvae.nn.sparse import SparseRows

L, D = 3, 9
SIZES = {
    "embedding_dim": 7,
    "latent_dim": 3,
    "label_hidden": (6,),
    "feature_hidden": (6,),
    "decoder_hidden": (6, 5),
}
#: The columns that each row has, of two members; together 4 and 3 of the 9.
COLUMNS = (((1, 4), (4, 5, 8), ()), ((0, 2), (2,), (2, 3)))


def made_network(seeds=(1, 2), **settings):
    return CGMVAENetwork(
        NetworkConfig(**SIZES, **{"reconstruction": "gaussian"} | settings),
        D,
        np.zeros((len(seeds), L)),
        GeneratorStreams(seeds),
        dropout=[0.4] * len(seeds),
        input_dropout=[0.0] * len(seeds),
        temperature=[0.1] * len(seeds),
        dtype=torch.float64,
    )


def made_batch(members=COLUMNS):
    generator = torch.Generator().manual_seed(0)
    rows = [row for member in members for row in member]
    bounds = torch.tensor([0, *map(len, rows)]).cumsum(0)
    starts = torch.stack([bounds[3 * i : 3 * i + 4] for i in range(len(members))])
    columns = torch.tensor(list(itertools.chain(*rows)), dtype=torch.int64)
    values = torch.rand(len(columns), dtype=torch.float64, generator=generator)
    positive = torch.zeros(len(members), 3, L, dtype=torch.bool)
    positive[..., 0] = True
    known, weight = torch.ones_like(positive), torch.ones(len(members), 3)
    return Batch(SparseRows(values, columns, starts, D), positive, known, weight)


def dense(batch):
    return batch._replace(features=batch.features.dense())


def terms_of(network, batch, streams=None):
    streams = streams or GeneratorStreams((1, 2)[: len(batch.positive)])
    streams.seek([3] * streams.n_members)
    return network.terms(batch, streams)


class PickingStreams(GeneratorStreams):
    """Draws that pick given features of a single member."""

    picked = ()

    def uniform(self, *shape, dtype=torch.float32):
        numbers = super().uniform(*shape, dtype=dtype)
        if shape == (D,):
            numbers[:, list(self.picked)] -= 1
        return numbers


@pytest.mark.parametrize("reconstruction", ["gaussian", "bernoulli"])
def test_terms_and_gradients_equal_those_of_dense_rows_if_all_features_are_sampled(reconstruction):
    network = made_network(reconstruction=reconstruction, sampled_features=D)
    batch, parameters = made_batch(), list(network.parameters())
    pairs = [terms_of(network, each) for each in (batch, dense(batch))]
    for name, term in pairs[0].items():
        torch.testing.assert_close(term, pairs[1][name], rtol=1e-12, atol=1e-12)
    sums = [terms["reconstruction"].square().sum() for terms in pairs]
    found, expected = (
        torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True)
        for total in sums
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.to_dense(), b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reconstruction", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("n_sampled", [1, 2])
def test_the_mean_over_all_samples_is_the_sum_over_all_features(reconstruction, n_sampled):
    network = made_network((1,), reconstruction=reconstruction, sampled_features=n_sampled)
    batch, streams, found = made_batch(COLUMNS[:1]), PickingStreams((1,)), []
    for streams.picked in itertools.combinations((0, 2, 3, 6, 7), n_sampled):
        found.append(terms_of(network, batch, streams)["reconstruction"])
    expected = terms_of(network, dense(batch))["reconstruction"]
    torch.testing.assert_close(torch.stack(found).mean(0), expected, rtol=1e-12, atol=1e-12)
    assert (torch.stack(found).std(0) > 0).all()


def test_only_the_weights_of_the_sample_get_a_gradient():
    network, batch = made_network(), made_batch()
    total = terms_of(network, batch)["reconstruction"].sum()
    (gradient,) = torch.autograd.grad(total, network.reconstruction.layers[-1].weight)
    members, features = gradient.indices()
    # By default as many others as the batch has.
    assert members.bincount().tolist() == [8, 6]
    assert {1, 4, 5, 8} <= set(features[members == 0].tolist())
    assert {0, 2, 3} <= set(features[members == 1].tolist())


def test_a_member_is_the_same_alone_and_in_a_pack():
    in_pack = terms_of(made_network(), made_batch())
    alone = terms_of(made_network((1,)), made_batch(COLUMNS[:1]))
    for name, term in alone.items():
        torch.testing.assert_close(in_pack[name][:1], term, rtol=1e-10, atol=1e-10)


def test_rows_without_any_feature_are_reconstructed():
    found = terms_of(made_network(), made_batch((((), (), ()), ((), (), ()))))
    assert (found["reconstruction"] > 0).all()


def test_an_evaluation_reconstructs_all_features():
    network, batch = made_network(sampled_features=1), made_batch()
    found, expected = network.terms(batch, None), network.terms(dense(batch), None)
    torch.testing.assert_close(found["reconstruction"], expected["reconstruction"])
