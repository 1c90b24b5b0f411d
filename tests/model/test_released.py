"""The preset ``released`` against numbers that the authors' released code computed.

``released_code.npz`` has what that code (JunwenBai/C-GMVAE, ``reg=gmvae``, ``nll_coeff=.5``,
without dropout, in training mode) returns in float64 for weights, rows and noise that a formula
gives (:func:`fill`): two cases, ``a`` with D = 12, L = 5, d = 8, E = 16 and ``b`` with D = 30,
L = 9, d = 16, E = 32.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cgmvae.errors import InputError
from cgmvae.methods import CGMVAEClassifier
from cgmvae.model.network import CGMVAENetwork
from cgmvae.model.presets import PRESETS
from cgmvae.model.released import load_released, released_checkpoint
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import GeneratorStreams

VALUES = np.load(Path(__file__).with_name("released_code.npz"))
LAYERS = (
    "fx1", "fx2", "fx3", "fx_mu", "fx_logvar", "fd_x1", "fd_x2.0",
    "fe0", "fe1", "fe2", "fe_mu", "fe_logvar",
)  # fmt: skip
PRESET = PRESETS["released"]


def fill(shape, k, scale=1.0):
    flat = scale * np.sin(0.37 * np.arange(np.prod(shape)) + k)
    return torch.from_numpy(flat.reshape(shape))


class _Noise(GeneratorStreams):
    """The noise of the two draws of z and of the KL's draw."""

    def normal(self, name, *shape, dtype):
        return fill(shape, 21 + ["z.0", "z.1", "z.kl"].index(name))[None]


class Case:
    """One of the two cases, with the network's record of the batch."""

    def __init__(self, name):
        self.values = {
            key.removeprefix(f"{name}."): VALUES[key] for key in VALUES if key.startswith(name)
        }
        x, y = (torch.from_numpy(self.values[key])[None] for key in "xy")
        latent_dim = self.values["posterior_mean"].shape[1]
        embedding_dim = self.values["feature_embedding_1"].shape[1]
        config = replace(PRESET.network, latent_dim=latent_dim, embedding_dim=embedding_dim)
        self.network = CGMVAENetwork(
            config,
            x.shape[2],
            np.zeros((1, y.shape[2])),
            GeneratorStreams([0]),
            dropout=[0.0],
            input_dropout=[0.0],
            temperature=[PRESET.temperature],
            terms=[name for name, weight in PRESET.weights().items() if weight],
            dtype=torch.float64,
        )
        self.checkpoint = {}
        shapes = {name: part.shape for name, part in released_checkpoint(self.network).items()}
        for n, layer in enumerate(LAYERS):
            n_in = shapes[f"{layer}.weight"][1]
            self.checkpoint[f"{layer}.weight"] = fill(
                shapes[f"{layer}.weight"], n, 1.2 / np.sqrt(n_in)
            )
            self.checkpoint[f"{layer}.bias"] = fill(shapes[f"{layer}.bias"], n + 0.5, 0.1)
        load_released(self.network, self.checkpoint)
        batch = Batch(
            x, y.bool(), torch.ones_like(y, dtype=torch.bool), torch.ones(y.shape[:2]).double()
        )
        self.x = x
        self.out = self.network.outputs(batch, _Noise([0]))
        self.terms = {name: f(self.out).mean() for name, f in self.network.functions.items()}
        self.total = sum(PRESET.weights()[name] * term for name, term in self.terms.items())

    def check(self, ours, name):
        np.testing.assert_allclose(ours.detach().squeeze(0), self.values[name], atol=1e-9, rtol=0)


@pytest.fixture(scope="module", params=["a", "b"])
def case(request):
    return Case(request.param)


class TestValues:
    def test_rows(self, case):
        case.check(fill(case.x.shape, 3.1), "x")

    def test_gaussians(self, case):
        case.check(case.out.posterior.mean, "posterior_mean")
        case.check(case.out.posterior.log_variance, "posterior_log_variance")
        case.check(case.out.prior.mean[:, :-1], "label_mean")
        case.check(case.out.prior.log_variance[:, :-1], "label_log_variance")

    def test_embeddings_and_logits(self, case):
        first, second, of_labels = case.out.views
        case.check(first.embedding, "feature_embedding_1")
        case.check(second.embedding, "feature_embedding_2")
        case.check(of_labels.embedding, "label_branch_embedding")
        case.check(first.logits, "logits_1")
        case.check(second.logits, "logits_2")
        case.check(of_labels.logits, "label_branch_logits")
        case.check(case.network(case.x), "probabilities_at_mean")

    def test_terms(self, case):
        case.check(case.terms["kl"][None], "kl")
        case.check(case.terms["contrastive"][None], "contrastive")
        views = case.out.views
        for name, view in (("nll_1", views[0]), ("nll_label_branch", views[2])):
            only = case.out._replace(views=(view,))
            case.check(case.network.functions["cross_entropy"](only).mean(1), name)
        case.check(case.total[None], "total")

    def test_gradients(self, case):
        network = case.network
        parameters = list(network.parameters())
        gradients = torch.autograd.grad(case.total, parameters, retain_graph=True)
        values = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.copy_(gradient)
            by_name = released_checkpoint(network)
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value)
        for name, gradient in by_name.items():
            case.check(gradient.norm()[None], f"gradient_norm.{name}")


class TestCheckpoint:
    def test_a_round_trip_has_the_same_names_and_values(self, case):
        found = released_checkpoint(case.network)
        assert found.keys() == case.checkpoint.keys()
        assert all(torch.equal(found[name], value) for name, value in case.checkpoint.items())

    def test_the_names_of_the_last_revision_are_read_too(self, case):
        later = {"fx1": "fx.0", "fe0": "label_lookup", "fd_x2.0": "fd.2"}
        renamed = {}
        for name, value in case.checkpoint.items():
            layer, _, kind = name.rpartition(".")
            renamed[f"{later.get(layer, layer)}.{kind}"] = value
        for parameter in case.network.parameters():
            parameter.data.zero_()
        load_released(case.network, renamed)
        found = released_checkpoint(case.network)
        assert all(torch.equal(found[name], value) for name, value in case.checkpoint.items())

    def test_what_does_not_fit_is_rejected_and_changes_nothing(self, case):
        before = released_checkpoint(case.network)
        short = {name: -value for name, value in case.checkpoint.items() if name != "fe2.bias"}
        with pytest.raises(InputError, match=r"no 'fe2\.bias'"):
            load_released(case.network, short)
        with pytest.raises(InputError, match=r"shape \(3,\) in the checkpoint"):
            load_released(case.network, short | {"fe2.bias": torch.zeros(3)})
        after = released_checkpoint(case.network)
        assert all(torch.equal(after[name], value) for name, value in before.items())

    def test_only_the_preset_released_has_these_weights(self, survey):
        model = CGMVAEClassifier(epochs=1, embedding_dim=8, n_members=1).fit(survey.X, survey.Y)
        with pytest.raises(InputError, match="preset='released'"):
            released_checkpoint(model.network_)


def test_label_embeddings_start_as_a_linear_layer_of_torch():
    network = Case("b").network
    fresh = CGMVAENetwork(
        network.config,
        30,
        np.zeros((1, 9)),
        GeneratorStreams([1]),
        dropout=[0.0],
        input_dropout=[0.0],
        temperature=[1.0],
    )
    start = released_checkpoint(fresh)
    for name in ("fe0.weight", "fe0.bias"):
        assert start[name].abs().max() <= 1 / 3
        assert start[name].std().item() == pytest.approx(1 / 3 / np.sqrt(3), rel=0.2)
