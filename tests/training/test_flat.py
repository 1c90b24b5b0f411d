"""Gradients of flat parameters against those that autograd returns."""

import numpy as np
import pytest
import torch
from torch import Tensor

from cgmvae.model.network import CGMVAENetwork, NetworkConfig
from cgmvae.nn.batch import Batch
from cgmvae.nn.noise import make_noise
from cgmvae.training.optimizer import FlatParameters

N_ROWS, N_FEATURES, N_LABELS = 9, 5, 4


def _network(n_members: int, **config) -> CGMVAENetwork:
    return CGMVAENetwork(
        NetworkConfig(
            embedding_dim=6,
            latent_dim=3,
            label_hidden=(7,),
            feature_hidden=(7, 8),
            decoder_hidden=(7,),
            **config,
        ),
        N_FEATURES,
        np.zeros((n_members, N_LABELS)),
        make_noise(range(n_members), "cpu"),
        dropout=[0.3] * n_members,
        input_dropout=[0.1] * n_members,
        temperature=[0.5] * n_members,
        dtype=torch.float64,
    )


def _loss(network: CGMVAENetwork, n_members: int, step: int) -> Tensor:
    draw = torch.Generator().manual_seed(step)
    positive = torch.rand(n_members, N_ROWS, N_LABELS, generator=draw) < 0.4
    batch = Batch(
        torch.randn(n_members, N_ROWS, N_FEATURES, generator=draw, dtype=torch.float64),
        positive,
        torch.ones_like(positive),
        torch.ones(n_members, N_ROWS, dtype=torch.float64),
    )
    noise = make_noise(range(n_members), "cpu")
    noise.seek([step] * n_members)
    return sum((term.sum() for term in network.terms(batch, noise).values()), torch.zeros(()))


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize(
    "config",
    [
        {},
        # Networks that are used more than once in a step: the decoder here, the label encoder next.
        {"n_draws": 2, "label_branch": True},
        {"prior": "label-sum", "label_branch": True, "reconstruction": "gaussian"},
        {"correlation": "graph", "layer_norm": False},
    ],
)
def test_gradients_of_every_step_are_autograds(n_members, config):
    network, plain = _network(n_members, **config), _network(n_members, **config)
    flat = FlatParameters(network)
    for step in (1, 2):
        found = torch.cat(flat.gradients(_loss(network, n_members, step)), dim=1)
        named = dict(plain.named_parameters())
        gradients = torch.autograd.grad(
            _loss(plain, n_members, step), [named[name] for name in flat.names]
        )
        expected = torch.cat([gradient.reshape(n_members, -1) for gradient in gradients], dim=1)
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
