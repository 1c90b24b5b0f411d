"""A step whose gradients the network writes by hand ends where autograd's does."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_loop import CPU, N_FEATURES, N_LABELS, PLAN, plain_member, survey_rows, weights_of

from cgmvae.model.network import CGMVAENetwork
from cgmvae.model.presets import PRESETS
from cgmvae.nn.noise import make_noise
from cgmvae.training.loop import train
from cgmvae.training.members import column
from cgmvae.training.plan import TrainingConfig
from cgmvae.training.step import PackedStep, StepInput

PRESET = PRESETS["tuned"]
CONFIG = replace(
    PRESET.network,
    embedding_dim=8,
    latent_dim=3,
    label_hidden=(6,),
    feature_hidden=(7, 5),
    decoder_hidden=(6,),
)
MEMBERS = [
    plain_member(1, weights=PRESET.weights()),
    plain_member(2, weights=PRESET.weights() | {"kl": 0.2}, dropout=0.5, learning_rate=3e-2),
    plain_member(3, weights=PRESET.weights(), train_rows=np.arange(1, 20), input_dropout=0.0),
]
FEW = replace(PLAN, epochs=3, patience=None)


def build(members=MEMBERS, **changes):
    return CGMVAENetwork(
        replace(CONFIG, **changes),
        N_FEATURES,
        np.zeros((len(members), N_LABELS)),
        make_noise(column(members, "seed"), CPU),
        dropout=column(members, "dropout"),
        input_dropout=column(members, "input_dropout"),
        temperature=[member.settings["temperature"] for member in members],
        dtype=torch.float64,
    )


def forbid_terms(network, monkeypatch):
    def forbidden(*_):
        raise AssertionError("autograd is not needed")

    monkeypatch.setattr(network, "terms", forbidden)


def leave_to_autograd(network, monkeypatch):
    monkeypatch.setattr(network, "by_hand", lambda places: None)


def one_step(network, members=MEMBERS):
    """Take a step, of rows of which some count for nothing; return weights, terms and failures."""
    step = PackedStep(network, members, TrainingConfig(), CPU)
    step.start_epoch(torch.ones(len(members), dtype=torch.bool), lambda term: 1.0)
    order = torch.arange(12 * len(members)).reshape(len(members), 12)
    weight = torch.ones(order.shape, dtype=torch.float64)
    weight[:, -1], weight[-1, 4:] = 0.0, 0.0
    batch = survey_rows(0.2).batch(order, weight)
    rates = torch.full((len(members),), 1e-2, dtype=torch.float64)
    numbers = torch.arange(1, len(members) + 1, dtype=torch.int32)
    step.take(StepInput(batch, rates, numbers, torch.tensor(0)))
    return weights_of(network), torch.stack(list(step.sums.values())), step.failed_at


def both_ways(monkeypatch, take, **changes):
    """Do the same by hand and by autograd; see to it that neither is the other."""
    results = []
    for prepare in (forbid_terms, leave_to_autograd):
        network = build(**changes)
        with monkeypatch.context() as patch:
            prepare(network, patch)
            results.append(take(network))
    return results


@pytest.mark.parametrize("changes", [{}, {"label_bias": False, "decoder_input": "z"}])
def test_a_step_of_the_default_preset_needs_no_autograd(monkeypatch, changes):
    before = weights_of(build(**changes))
    found, expected = both_ways(monkeypatch, one_step, **changes)
    assert not bool((found[0] == before).all(1).any())
    for ours, its in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, its, rtol=1e-9, atol=1e-12)


def drop_one(epoch, places, values):
    return places[places != 1] if epoch >= 2 else places


@pytest.mark.parametrize("keep", [None, drop_one], ids=["all", "one left out"])
@pytest.mark.parametrize("changes", [{}, {"first_stage": 0.4}, {"optimizer": "adam"}])
def test_a_training_ends_with_the_weights_of_autograd(monkeypatch, keep, changes):
    plan = replace(FEW, **changes)

    def take(network):
        result = train(network, MEMBERS, survey_rows(), plan, device=CPU, keep=keep)
        return weights_of(network), result

    (weights, result), (its_weights, its) = both_ways(monkeypatch, take)
    assert len(weights) == (3 if keep is None else 2)
    torch.testing.assert_close(weights, its_weights, rtol=1e-7, atol=1e-9)
    assert result.best_epoch.tolist() == its.best_epoch.tolist()
    for name, series in its.history.arrays().items():
        np.testing.assert_allclose(result.history.arrays()[name], series, rtol=1e-7)


def test_a_member_fails_alone_as_it_does_with_autograd():
    row = 30  # of the first two members
    rows, results = survey_rows(changed={row: np.nan}), []
    for by_hand in (True, False):
        network = build()
        if not by_hand:
            network.by_hand = lambda places: None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(network, MEMBERS, rows, FEW, device=CPU)
        results.append((weights_of(network), [str(each.message) for each in caught]))
    (weights, told), (its_weights, its_told) = results
    assert told == its_told
    assert [f"row {row}" in each for each in told] == [True, True]
    assert bool(torch.isfinite(weights).all())
    torch.testing.assert_close(weights, its_weights, rtol=1e-7, atol=1e-9)


def test_a_term_that_nobody_weighs_is_left_to_autograd(monkeypatch):
    members = [replace(member, weights={"cross_entropy": 1.0}) for member in MEMBERS]
    network, asked = build(), []
    terms = network.terms
    monkeypatch.setattr(network, "terms", lambda *given: asked.append(1) or terms(*given))
    _, sums, _ = one_step(network, members)
    assert asked
    assert len(sums) == 1
