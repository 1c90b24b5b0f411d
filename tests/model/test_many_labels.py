"""With many labels the terms use the labels of the batch or a sample, and stay the same."""

import numpy as np
import pytest
import torch

from cgmvae.model import network
from cgmvae.model.network import CGMVAENetwork, NetworkConfig
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import GeneratorStreams

M, B, L, D = 2, 6, 12, 5
SIZES = {
    "embedding_dim": 7,
    "latent_dim": 3,
    "label_hidden": (6, 5),
    "feature_hidden": (6,),
    "decoder_hidden": (6,),
}


def made_network(dropout=0.0, seeds=(1, 2), **settings):
    streams = GeneratorStreams(seeds)
    odds = np.linspace(-1, 1, L)[None].repeat(len(seeds), 0)
    rates = [dropout] * len(seeds)
    return CGMVAENetwork(
        NetworkConfig(**SIZES, **settings),
        D,
        odds,
        streams,
        dropout=rates,
        input_dropout=[0.0] * len(seeds),
        temperature=[0.1 * seed for seed in seeds],
        dtype=torch.float64,
    )


def made_batch():
    generator = torch.Generator().manual_seed(0)
    known = torch.rand(M, B, L, generator=generator) < 0.9
    positive = (torch.rand(M, B, L, generator=generator) < 0.15) & known
    positive[0, 0], known[0, 0] = False, True  # nothing applies: the background
    positive[1, 1], known[1, 1, 3] = False, False  # nothing is known to apply
    positive[1, 2, 4] = known[1, 2, 4] = True
    features = torch.randn(M, B, D, dtype=torch.float64, generator=generator)
    return Batch(features, positive, known, torch.ones(M, B))


def terms_of(model, batch, seeds=(1, 2)):
    streams = GeneratorStreams(seeds)
    streams.seek([3] * len(seeds))
    return model.terms(batch, streams)


def test_terms_equal_those_of_all_labels(monkeypatch):
    model, batch = made_network(), made_batch()
    expected = terms_of(model, batch)
    monkeypatch.setattr(network, "MANY_LABELS", 2)
    found = terms_of(model, batch)
    assert found.keys() == expected.keys()
    for name, term in expected.items():
        torch.testing.assert_close(found[name], term, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("term", ["kl", "contrastive", "cross_entropy"])
def test_each_term_has_the_same_gradient(monkeypatch, term):
    model, batch = made_network(label_relu=True), made_batch()
    parameters = list(model.parameters())

    def gradients():
        streams = GeneratorStreams((1, 2))
        total = model.terms(batch, streams)[term].square().sum()
        return torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True)

    expected = gradients()
    monkeypatch.setattr(network, "MANY_LABELS", 2)
    for a, b in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_a_member_is_the_same_alone_and_in_a_pack(monkeypatch):
    monkeypatch.setattr(network, "MANY_LABELS", 2)
    batch = made_batch()
    batch.positive[0, :, 3:] = False  # this member scores fewer labels, and its sample is filled
    batch.positive[0, 3, 0] = batch.known[0, 3, 0] = True  # up with the first label
    n_present = batch.positive.any(1).sum(1)
    assert 1 < n_present[0] < n_present[1] - 2
    both = made_network(dropout=0.4, sampled_labels=4)
    in_pack = terms_of(both, batch)
    for i, seed in enumerate((1, 2)):
        alone = made_network(dropout=0.4, seeds=(seed,), sampled_labels=4)
        own = Batch(*(part[i : i + 1] for part in batch))
        for name, term in terms_of(alone, own, seeds=(seed,)).items():
            torch.testing.assert_close(in_pack[name][i : i + 1], term, rtol=1e-10, atol=1e-10)


def test_a_sample_contains_the_labels_of_the_batch():
    present = torch.zeros(10, dtype=torch.bool)
    present[[2, 7]] = True
    labels, counts = network.sample_others(present, torch.rand(10), 4)
    assert labels[:2].tolist() == [2, 7]
    assert len(set(labels.tolist())) == 6
    assert counts.tolist() == [1, 1, 2, 2, 2, 2]
    labels, counts = network.sample_others(present, torch.rand(10), 99)
    assert sorted(labels.tolist()) == list(range(10))
    assert counts.tolist() == [1] * 10


def test_sampled_cross_entropy_is_unbiased():
    """The same step, dropout and z included, with a sample of the labels and with all of them."""
    models, batch = [made_network(sampled_labels=3), made_network()], made_batch()
    errors = []
    with torch.no_grad():
        for step in range(600):
            streams = GeneratorStreams((1, 2))
            streams.seek([step, step])
            sampled = models[0].terms(batch, streams)["cross_entropy"]
            streams.seek([step, step])
            errors.append(sampled - models[1].terms(batch, streams)["cross_entropy"])
    mean, spread = torch.stack(errors).mean(0), torch.stack(errors).std(0)
    assert (mean.abs() <= 5 * spread / len(errors) ** 0.5 + 1e-9).all()
    assert spread.max() > 0
