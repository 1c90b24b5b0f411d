"""Presets: their numbers, and gradients of all parameters."""

import dataclasses

import numpy as np
import pytest
import torch

from cgmvae.errors import InputError
from cgmvae.model.network import CGMVAENetwork
from cgmvae.model.presets import (
    LARGE_BATCHES,
    MANY_COLUMNS,
    MANY_ROWS,
    PRESETS,
    VERY_MANY_ROWS,
    for_data,
)
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import CounterStreams
from cgmvae.training.plan import TrainingConfig

SEEDS = (3, 4)
N_FEATURES, N_LABELS = 6, 4
EMPTY = 1

every_preset = pytest.mark.parametrize("name", PRESETS)


def _small(name, dtype=torch.float64):
    preset = PRESETS[name]
    config = dataclasses.replace(
        preset.network,
        embedding_dim=16,
        latent_dim=4,
        label_hidden=(10, 9),
        feature_hidden=(8, 10, 9),
        decoder_hidden=(12,) * len(preset.network.decoder_hidden),
    )
    return CGMVAENetwork(
        config,
        N_FEATURES,
        np.zeros((len(SEEDS), N_LABELS)),
        CounterStreams(SEEDS),
        dropout=[preset.dropout] * 2,
        input_dropout=[preset.input_dropout] * 2,
        temperature=[preset.temperature] * 2,
        terms=[term for term, weight in preset.weights().items() if weight],
        dtype=dtype,
    )


def _loss(name, network, batch, **changes):
    weights = PRESETS[name].weights() | changes
    terms = network.terms(batch, CounterStreams(SEEDS))
    return sum(weights[term] * value.mean(1).sum() for term, value in terms.items())


@pytest.fixture
def batch(rng):
    shape = (len(SEEDS), 24, N_LABELS)
    known = torch.from_numpy(rng.random(shape) < 0.9)
    positive = torch.from_numpy(rng.random(shape) < 0.4) & known
    positive[:, EMPTY], known[:, EMPTY] = False, True
    positive[:, 2], known[:, 2] = False, False
    positive[:, 3], known[:, 3] = True, True
    features = torch.from_numpy(rng.normal(size=(*shape[:2], N_FEATURES)))
    return Batch(features, positive, known, torch.ones(shape[:2], dtype=torch.float64))


class TestNumbers:
    def test_paper(self):
        preset = PRESETS["paper"]
        network = preset.network
        assert preset.contrastive_weight == 1  # α
        assert preset.cross_entropy_weight == 0.5  # β
        assert preset.kl_weight == preset.reconstruction_weight == 1
        assert network.embedding_dim == 2048
        assert network.latent_dim == 64
        assert network.label_hidden == (512, 256)
        assert network.feature_hidden == (256, 512, 256)
        assert network.decoder_hidden == (512, 512)
        assert network.decoder_input == "z"
        assert network.prior == "mixture"
        assert network.alignment == "contrastive"
        assert network.normalise_labels
        assert network.reconstruction == "gaussian"
        assert not network.label_bias
        assert not network.layer_norm
        assert not network.label_branch
        assert network.n_draws == 1
        training = TrainingConfig(**preset.training)
        assert training.optimizer == "adam"
        assert training.epochs == 100
        assert training.batch_size == 128

    def test_released(self):
        preset = PRESETS["released"]
        network = preset.network
        assert network.embedding_dim == 2048
        assert network.decoder_hidden == (512,)
        assert network.decoder_input == "xz"
        assert (network.activation, network.embedding_activation) == ("relu", "leaky_relu")
        assert network.label_relu
        assert network.unit_norm
        assert not network.label_bias
        assert not network.layer_norm
        assert not network.normalise_labels
        assert not network.decoder_dropout
        assert network.n_draws == 2
        assert network.own_kl_draw
        assert network.label_branch
        assert network.prior == "mixture"
        assert preset.cross_entropy_weight == 0.5
        assert preset.contrastive_weight == 1
        assert preset.kl_weight == 6
        assert preset.reconstruction_weight == 0
        assert preset.temperature == 1
        assert preset.dropout == 0.5
        assert preset.input_dropout == 0
        assert preset.learning_rate == 2e-3
        assert preset.weight_decay == 1e-5
        training = TrainingConfig(**preset.training)
        assert training.optimizer == "adam"
        assert training.decay_all
        assert training.epochs == 90
        assert training.schedule == "warm-restarts"
        assert (training.restart_epochs, training.restart_factor) == (50, 2)
        assert training.floor_learning_rate == 2e-4
        assert training.selection == "macro_f1"


class TestSizeOfTheData:
    def test_tuned_has_less_dropout_for_very_many_dense_rows(self):
        few = for_data("tuned", VERY_MANY_ROWS - 1, sparse=False)
        many = for_data("tuned", VERY_MANY_ROWS, sparse=False)
        assert (few.dropout, few.input_dropout) == (0.2, 0.1)
        assert many == dataclasses.replace(few, dropout=0.1, input_dropout=0.0)

    def test_tuned_has_narrow_layers_and_few_epochs_for_very_many_sparse_rows(self):
        few, many = (
            for_data("tuned", n_rows, sparse=True, n_columns=MANY_COLUMNS)
            for n_rows in (VERY_MANY_ROWS - 1, VERY_MANY_ROWS)
        )
        hidden = {"feature_hidden": (64,), "decoder_hidden": (192,)}
        network = dataclasses.replace(few.network, **hidden)
        assert many == dataclasses.replace(
            few,
            network=network,
            dropout=0.1,
            learning_rate=4e-3,
            training={**few.training, "batch_size": 256, "epochs": 15, "patience": 5},
        )
        few_columns = for_data("tuned", VERY_MANY_ROWS, sparse=True, n_columns=MANY_COLUMNS - 1)
        assert few_columns == dataclasses.replace(few, dropout=0.1)
        wide = {"sparse": True, "n_columns": MANY_COLUMNS}
        numbers = (20_000, 30_000, 10**6)
        epochs = [for_data("tuned", n, **wide).training["epochs"] for n in numbers]
        assert epochs == [15, 10, 5]

    def test_tuned_is_larger_for_many_or_sparse_rows_and_stops_early_with_few(self):
        few = for_data("tuned", LARGE_BATCHES - 1, sparse=False)
        sparse = for_data("tuned", MANY_ROWS, sparse=True)
        many = for_data("tuned", MANY_ROWS, sparse=False)
        layers = {"feature_hidden": (384,), "decoder_hidden": (384,)}
        assert many.network == dataclasses.replace(
            few.network, embedding_dim=256, latent_dim=64, decoder_hidden=(384, 384)
        )
        assert sparse.network == dataclasses.replace(many.network, **layers, label_scale=1.0)
        assert (sparse.learning_rate, many.learning_rate) == (2e-3, 4e-3)
        assert sparse.training == many.training
        assert (few.training["patience"], many.training["patience"]) == (10, None)

    def test_few_sparse_rows_have_narrow_layers(self):
        few, medium = (for_data("tuned", LARGE_BATCHES - i, sparse=True) for i in (1, 0))
        narrow = {"feature_hidden": (64,), "decoder_hidden": (192,)}
        assert few.network == dataclasses.replace(medium.network, **narrow)

    def test_few_rows_are_seen_more_often(self):
        def plan(n_rows, **more):
            training = for_data("tuned", n_rows, sparse=False, **more).training
            return training["epochs"], training["patience"]

        assert [plan(n) for n in (10, 300, 1000)] == [(240, 40), (200, 33), (60, 10)]
        assert plan(300, n_unlabelled=5000) == (30, 10)
        assert plan(LARGE_BATCHES) == (25, 10)

    def test_few_rows_of_bits_are_learned_with_more_dropout(self):
        def dropouts(n_rows, **more):
            preset = for_data("tuned", n_rows, **more)
            return preset.dropout, preset.input_dropout

        assert dropouts(300, sparse=True, binary=True) == (0.5, 0.5)
        bits, words = (for_data("tuned", 1400, sparse=True, binary=b) for b in (True, False))
        assert (bits.training["patience"], words.training["patience"]) == (6, 10)
        assert bits.network == dataclasses.replace(words.network, latent_dim=32)
        others = [dropouts(300, sparse=True), dropouts(300, sparse=False, binary=True)]
        others.append(dropouts(LARGE_BATCHES, sparse=True, binary=True))
        assert others == [(0.2, 0.1)] * 3

    def test_batches_of_dense_rows_grow(self):
        medium = for_data("tuned", LARGE_BATCHES, sparse=False)
        assert (medium.training["batch_size"], medium.learning_rate) == (256, 8e-3)
        assert medium.network == PRESETS["tuned"].network

    def test_the_contrastive_term_counts_more_with_enough_dense_rows(self):
        def contrast(n_rows, *, sparse):
            preset = for_data("tuned", n_rows, sparse=sparse)
            return preset.contrastive_weight, preset.temperature

        assert contrast(LARGE_BATCHES - 1, sparse=False) == (0.3, 0.2)
        assert contrast(LARGE_BATCHES, sparse=False) == (1.0, 0.4)
        assert contrast(VERY_MANY_ROWS, sparse=False) == (1.0, 0.4)
        assert contrast(VERY_MANY_ROWS, sparse=True) == (0.3, 0.2)

    @pytest.mark.parametrize("name", ["paper", "released"])
    def test_other_presets_do_not_depend_on_the_data(self, name):
        assert for_data(name, 10 * MANY_ROWS, sparse=False) is PRESETS[name]

    def test_an_unknown_preset_is_rejected(self):
        with pytest.raises(InputError, match=r"'tuend'.*paper, released, tuned"):
            for_data("tuend", 10, sparse=False)


class TestLearning:
    @every_preset
    def test_every_parameter_of_every_member_receives_gradient(self, name, batch):
        network = _small(name)
        _loss(name, network, batch).backward()
        for parameter, values in network.named_parameters():
            assert values.grad is not None, parameter
            assert torch.isfinite(values.grad).all(), parameter
            for member in values.grad:
                assert bool((member != 0).any()), parameter

    @every_preset
    def test_only_rows_without_labels_train_the_background(self, name, batch):
        network = _small(name)
        background = network.label_encoder.background
        (gradient,) = torch.autograd.grad(_loss(name, network, batch), background)
        assert bool((gradient != 0).all())
        # Row 2, which knows nothing, decodes the background's mean in the label branch.
        rows = [i for i in range(24) if bool(batch.positive[:, i].any(-1).all())]
        assert len(rows) > 8
        labeled = Batch(*(part[:, rows] for part in batch))
        (gradient,) = torch.autograd.grad(_loss(name, network, labeled), background)
        assert torch.equal(gradient, torch.zeros_like(gradient))

    @every_preset
    def test_every_weight_has_an_effect(self, name, batch):
        network = _small(name)
        parameters = list(network.parameters())
        before = torch.autograd.grad(_loss(name, network, batch), parameters)
        for term in network.functions:
            doubled = {term: 2 * PRESETS[name].weights()[term]}
            after = torch.autograd.grad(_loss(name, network, batch, **doubled), parameters)
            assert not all(torch.allclose(a, b) for a, b in zip(before, after, strict=True)), term
