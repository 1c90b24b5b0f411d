"""One step of a pack against plain autograd and torch's own optimizer."""

from dataclasses import replace

import numpy as np
import torch
from test_loop import CPU, N_FEATURES, N_LABELS, plain_member, survey_rows, weights_of

from cgmvae.model.network import CGMVAENetwork
from cgmvae.model.presets import PRESETS
from cgmvae.nn.rng import make_streams
from cgmvae.training.plan import Planner, TrainingConfig, column
from cgmvae.training.step import EpochInput, PackedStep, Recorded, StepInput

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
PRESET_TERMS = [name for name, weight in PRESET.weights().items() if weight]


def build(members=MEMBERS, **changes):
    return CGMVAENetwork(
        replace(CONFIG, **changes),
        N_FEATURES,
        np.zeros((len(members), N_LABELS)),
        make_streams(column(members, "seed"), CPU),
        dropout=column(members, "dropout"),
        input_dropout=column(members, "input_dropout"),
        temperature=[member.settings["temperature"] for member in members],
        dtype=torch.float64,
    )


def made_batch(n_members=3):
    """Return rows, some of weight 0, and their weights."""
    order = torch.arange(12 * n_members).reshape(n_members, 12)
    weight = torch.ones(order.shape, dtype=torch.float64)
    weight[:, -1], weight[-1, 4:] = 0.0, 0.0
    return survey_rows(0.2).batch(order, weight), weight


def noise_of_step():
    streams = make_streams(column(MEMBERS, "seed"), CPU)
    streams.seek([1, 2, 3])
    return streams


def one_step(network, members=MEMBERS):
    """Take a step on rows of which some have weight 0; return weights, terms and failures."""
    step = PackedStep(network, members, TrainingConfig(), CPU)
    step.start_epoch(torch.ones(len(members), dtype=torch.bool), lambda term: 1.0)
    batch, _ = made_batch(len(members))
    rates = torch.full((len(members),), 1e-2, dtype=torch.float64)
    numbers = torch.arange(1, len(members) + 1, dtype=torch.int32)
    step.take(StepInput(batch, rates, numbers, torch.tensor(0)))
    return weights_of(network), torch.stack(list(step.sums.values())), step.failed_at


def test_the_loss_is_the_weighted_sum_of_the_mean_terms():
    """Eq. 8, by plain autograd and torch's optimizer, one member at a time."""
    found, sums, _ = one_step(build())
    batch, weight = made_batch()
    for i, member in enumerate(MEMBERS):
        network = build()
        terms = network.terms(batch, noise_of_step())
        share = weight[i] / weight[i].sum()
        means = {name: (term[i] * share).sum() for name, term in terms.items()}
        loss = sum(member.weights[name] * mean for name, mean in means.items())
        matrices = [p for p in network.parameters() if p.dim() > 2]
        others = [p for p in network.parameters() if p.dim() <= 2]
        groups = [
            {"params": matrices, "weight_decay": member.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=1e-2)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(network.parameters()), TrainingConfig().clip)
        optimizer.step()
        torch.testing.assert_close(found[i], weights_of(network)[i], rtol=1e-6, atol=1e-8)
        expected = torch.stack([means[name].detach() for name in PRESET_TERMS])
        torch.testing.assert_close(sums[:, i], expected, rtol=1e-9, atol=1e-12)


def test_a_term_without_weight_is_omitted():
    members = [replace(member, weights={"cross_entropy": 1.0}) for member in MEMBERS]
    _, sums, _ = one_step(build(), members)
    assert len(sums) == 1


def test_a_recorded_step_finds_its_own_batch(monkeypatch):
    """What a GPU replays takes the same steps; here it is called."""
    monkeypatch.setattr(Recorded, "__call__", lambda self, work: work())
    rows, found = survey_rows(0.2), []
    planned = zip(
        Planner(MEMBERS, TrainingConfig(batch_size=8)).epoch(0),
        (torch.int64, torch.float64, torch.float64, torch.int32),
        strict=True,
    )
    epoch = EpochInput(*(torch.from_numpy(part).to(dtype) for part, dtype in planned))
    for records in (False, True):
        network = build()
        step = PackedStep(network, MEMBERS, TrainingConfig(), CPU)
        step._records = records
        for _ in range(2):
            step.start_epoch(torch.ones(len(MEMBERS), dtype=torch.bool), lambda term: 1.0)
            step.take_epoch(rows, epoch)
        found.append((weights_of(network), *step.sums.values(), step.adam.n_steps))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
