"""The asymmetric loss against a plain loop and cross-entropy; its network."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cgmvae.methods.asl import ASLConfig, AsymmetricNetwork, asymmetric_loss
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import make_streams


def scored(logits, positive, known=None, *, gammas=(0.0, 4.0), margin=0.05):
    known = torch.ones_like(positive) if known is None else known
    numbers = [torch.as_tensor(value, dtype=logits.dtype) for value in (*gammas, margin)]
    names = ("gamma_positive", "gamma_negative", "margin")
    return asymmetric_loss(logits, positive, known, **dict(zip(names, numbers, strict=True)))


@pytest.fixture
def labeled(rng):
    """Return logits, positives and known labels of 2 members, 7 rows and 5 labels."""
    shape = (2, 7, 5)
    logits = torch.from_numpy(rng.normal(size=shape) * 4)
    return (
        logits,
        torch.from_numpy(rng.random(shape) < 0.4),
        torch.from_numpy(rng.random(shape) < 0.7),
    )


def plain(logits, positive, known, gammas, margin):
    total = torch.zeros(logits.shape[:2], dtype=torch.float64)
    for member, row, label in np.ndindex(*logits.shape):
        p = 1 / (1 + math.exp(-float(logits[member, row, label])))
        if positive[member, row, label]:
            cost = -((1 - p) ** gammas[0]) * math.log(p)
        else:
            p = max(p - margin, 0.0)
            cost = -(p ** gammas[1]) * math.log(1 - p)
        total[member, row] += cost if known[member, row, label] else 0.0
    return total


@pytest.mark.parametrize(
    ("gammas", "margin"), [((0.0, 4.0), 0.05), ((0.5, 0.3), 0.5), ((1.0, 2.0), 0.0)]
)
def test_equals_a_plain_loop(labeled, gammas, margin):
    expected = plain(*labeled, gammas, margin)
    torch.testing.assert_close(scored(*labeled, gammas=gammas, margin=margin), expected)
    logits, positive, known = labeled
    single = scored(logits.float(), positive, known, gammas=gammas, margin=margin)
    torch.testing.assert_close(single, expected.float(), rtol=1e-5, atol=1e-6)


def test_without_focusing_and_margin_equals_cross_entropy(labeled):
    logits, positive, known = labeled
    expected = F.binary_cross_entropy_with_logits(logits, positive.double(), reduction="none")
    found = scored(logits, positive, known, gammas=(0.0, 0.0), margin=0.0)
    torch.testing.assert_close(found, (expected * known).sum(-1))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 4.0])
def test_an_easy_negative_has_no_loss(gamma):
    p = torch.tensor([0.001, 0.05, 0.1999, 0.2001, 0.3], dtype=torch.float64)
    logits = torch.logit(p)[:, None].requires_grad_()
    negative = torch.zeros(5, 1, dtype=torch.bool)
    loss = scored(logits, negative, gammas=(0.0, gamma), margin=0.2)
    loss.sum().backward()
    assert loss[:3].tolist() == [0, 0, 0]
    assert logits.grad[:3, 0].tolist() == [0, 0, 0]
    assert (loss[3:] > 0).all()
    assert (logits.grad[3:, 0] > 0).all()
    assert (scored(logits, negative, gammas=(0.0, gamma), margin=0.0) > 0).all()


def test_gradients_match_the_paper():
    """They flow through the focusing factor; a constant factor would have another gradient."""
    p, gamma, margin = torch.linspace(0.06, 0.99, 40, dtype=torch.float64), 4.0, 0.05
    logits = torch.logit(p)[:, None].requires_grad_()
    scored(logits, torch.zeros(40, 1, dtype=torch.bool), margin=margin).sum().backward()
    shifted = p - margin
    bracket = 1 / (1 - shifted) - gamma * torch.log(1 - shifted) / shifted
    expected = p * (1 - p) * shifted**gamma * bracket
    torch.testing.assert_close(logits.grad[:, 0], expected)
    constant = p * (1 - p) * shifted**gamma / (1 - shifted)
    assert (expected > 1.5 * constant).all()
    # What is surely wrong may be labeled wrongly: beyond some point the gradient falls.
    assert 0 < int(expected.argmax()) < 39


@pytest.mark.parametrize(("gammas", "margin"), [((0.0, 4.0), 0.05), ((0.3, 0.3), 0.0)])
@pytest.mark.parametrize("value", [-1e30, -110.0, -17.0, 17.0, 110.0, 1e4])
def test_extreme_logits_have_finite_losses_and_gradients(gammas, margin, value):
    positive = torch.tensor([[True], [False]])
    for dtype in (torch.float32, torch.float64):
        logits = torch.full((2, 1), value, dtype=dtype, requires_grad=True)
        loss = scored(logits, positive, gammas=gammas, margin=margin)
        loss.sum().backward()
        assert torch.isfinite(loss).all()
        assert torch.isfinite(logits.grad).all()
        if dtype is torch.float32:
            single, slope = loss.double(), logits.grad.double()
    torch.testing.assert_close(single, loss, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(slope, logits.grad, rtol=1e-5, atol=1e-6)


def network(settings, seeds=(3, 4), **sizes):
    n_members = len(seeds)
    log_odds = np.linspace(-2, 1, n_members * 5).reshape(n_members, 5)
    config = ASLConfig(**({"n_hidden": 2, "hidden_dim": 8, "layer_norm": True} | sizes))
    return AsymmetricNetwork(config, 6, log_odds, make_streams(seeds, "cpu"), **settings)


def settings_of(n_members, **changes):
    names = ("dropout", "input_dropout", "gamma_positive", "gamma_negative", "margin")
    values = dict(zip(names, (0.2, 0.1, 0.5, 4.0, 0.05), strict=True)) | changes
    return {name: np.broadcast_to(value, n_members).tolist() for name, value in values.items()}


@pytest.mark.parametrize("layer_norm", [True, False])
def test_every_parameter_receives_a_gradient(labeled, rng, layer_norm):
    _, positive, known = labeled
    packed = network(settings_of(2), layer_norm=layer_norm)
    features = torch.from_numpy(rng.normal(size=(2, 7, 6))).float()
    batch = Batch(features, positive & known, known, torch.ones(2, 7))
    terms = packed.terms(batch, make_streams([3, 4], "cpu"))
    assert {name: term.shape for name, term in terms.items()} == {"asymmetric": (2, 7)}
    terms["asymmetric"].sum().backward()
    for name, parameter in packed.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        assert (parameter.grad != 0).flatten(1).any(1).all(), name


def test_members_have_their_own_loss(labeled, rng):
    _, positive, known = labeled
    own = {"gamma_positive": [0.0, 2.0], "gamma_negative": [4.0, 1.0], "margin": [0.3, 0.0]}
    packed = network(settings_of(2, **own))
    features = torch.from_numpy(rng.normal(size=(2, 7, 6))).float()
    batch = Batch(features, positive & known, known, torch.ones(2, 7))
    found = packed.terms(batch, None)["asymmetric"]
    logits = packed.logits(features)
    for i in range(2):
        gammas = own["gamma_positive"][i], own["gamma_negative"][i]
        arguments = (logits[i], positive[i] & known[i], known[i])
        expected = scored(*arguments, gammas=gammas, margin=own["margin"][i])
        torch.testing.assert_close(found[i], expected)


def test_probabilities_are_not_shifted_and_biases_start_at_the_log_odds(rng):
    packed = network(settings_of(2))
    features = torch.from_numpy(rng.normal(size=(2, 7, 6))).float()
    torch.testing.assert_close(packed(features), torch.sigmoid(packed.logits(features)))
    bias = packed.mlp.layers[-1].bias.detach().numpy()
    np.testing.assert_allclose(bias.ravel(), np.linspace(-2, 1, 10), rtol=1e-6)
