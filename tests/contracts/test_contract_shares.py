"""Processes with shards of a batch together compute the terms of the whole batch."""

import numpy as np
import pytest
import torch
from quick_estimators import NAMES, OWN, quick

from cgmvae.data import make_survey
from cgmvae.methods.packed import Fit, PackedClassifier, make_pack
from cgmvae.model import network as cgmvae_network
from cgmvae.nn.batch import BatchShard
from cgmvae.training import rows as training_rows
from cgmvae.training.plan import TrainingConfig
from cgmvae.training.step import PackedStep

CPU = torch.device("cpu")
N_ROWS, N_SHARES = 8, 3
NETWORKS = [name for name in NAMES if isinstance(quick(name), PackedClassifier)]
SIZES = OWN["CGMVAEClassifier"]["settings"]
VARIANTS = [
    {"skip_dropout": 0.4, "n_draws": 2},
    {"alignment": "triplet", "label_relu": True},
    {"prior": "label-sum", "reconstruction": "gaussian"},
    {"correlation": "covariance", "covariance_rank": 3},
    {"correlation": "graph", "label_branch": True},
]


def survey(**changes):
    return make_survey(60, 40, 9, **({"unknown_share": 0.1, "seed": 2} | changes))[0]


def terms(model, data):
    """Return the terms of a batch, and those of its shards put together."""
    model.set_params(n_members=2)
    held = data.rows(np.arange(40, 60))
    fit = Fit(*model._prepare(data.X[:40], data.rows(np.arange(40)), (held.X, held), None, None))
    network, members, rows = make_pack([model], [fit]).assemble(np.arange(2))
    streams = PackedStep(network, members, TrainingConfig(), CPU).streams
    order = torch.arange(2 * N_ROWS).reshape(2, N_ROWS)
    order[1, -1] = order[1, 0]
    weight = torch.ones(2, N_ROWS)
    streams.seek([3, 5])
    whole = network.terms(rows.batch(order, weight), streams)
    together = {name: torch.full_like(term, torch.nan) for name, term in whole.items()}
    for first in range(N_SHARES):
        streams.shard = BatchShard(first, N_SHARES, N_ROWS)
        streams.seek([3, 5])
        batch = rows.shard(order, weight, streams.shard)
        for name, term in network.terms(batch, streams).items():
            together[name][:, streams.shard.rows] = term
    return whole, together


def assert_same(found):
    whole, together = found
    for name, term in whole.items():
        torch.testing.assert_close(together[name], term, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", [name for name in NETWORKS if name != "C2AE"])
def test_terms_of_shards_equal_those_of_the_batch(method):
    model = quick(method, dropout=0.3, input_dropout=0.2)
    assert not model.whole_batches
    assert_same(terms(model, survey()))


def test_a_method_with_whole_batches_declares_it():
    whole, together = terms(quick("C2AE"), survey())
    assert quick("C2AE").whole_batches
    assert (whole["constraint"] - together["constraint"]).abs().max() > 1e-2


@pytest.mark.parametrize("settings", VARIANTS, ids=lambda settings: "-".join(settings))
def test_shards_of_network_variants(settings):
    model = quick("CGMVAEClassifier", dropout=0.3, input_dropout=0.2, settings=SIZES | settings)
    assert_same(terms(model, survey()))


@pytest.mark.parametrize("sampled_labels", [0, 3])
@pytest.mark.parametrize("n_labels", [9, 40])
def test_shards_with_many_labels(monkeypatch, sampled_labels, n_labels):
    monkeypatch.setattr(cgmvae_network, "MANY_LABELS", 2)
    settings = SIZES | {"sampled_labels": sampled_labels}
    model = quick("CGMVAEClassifier", dropout=0.3, settings=settings)
    data = make_survey(60, 12, n_labels, unknown_share=0.1, cardinality=2.0, seed=2)[0]
    assert_same(terms(model, data))


@pytest.mark.parametrize(
    "own", [{"skip_dropout": 0.4}, {"reconstruction": "gaussian", "reconstruction_weight": 0.1}]
)
def test_shards_of_sparse_batches(monkeypatch, own):
    monkeypatch.setattr(training_rows, "_WIDE", 10)
    settings = SIZES | own
    model = quick("CGMVAEClassifier", dropout=0.3, input_dropout=0.3, settings=settings)
    assert_same(terms(model, survey(feature_density=0.05, group_strength=0.0)))
