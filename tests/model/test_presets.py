"""Presets: their numbers, what a fit builds, and gradients of all parameters."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from cgmvae.errors import InputError
from cgmvae.methods import CGMVAEClassifier
from cgmvae.model.network import CGMVAENetwork
from cgmvae.model.presets import PRESETS
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import CounterStreams
from cgmvae.training import pack as pack_module
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


#: What the paper and the authors' released code say.
NUMBERS = {
    "paper": {
        "contrastive_weight": 1, "cross_entropy_weight": 0.5, "kl_weight": 1,  # α, β
        "reconstruction_weight": 1, "optimizer": "adam", "epochs": 100, "batch_size": 128,
        "embedding_dim": 2048, "latent_dim": 64, "label_hidden": (512, 256),
        "feature_hidden": (256, 512, 256), "decoder_hidden": (512, 512), "decoder_input": "z",
        "prior": "mixture", "alignment": "contrastive", "normalize_labels": True,
        "reconstruction": "gaussian", "label_bias": False, "layer_norm": False,
        "label_branch": False, "n_draws": 1,
    },
    "released": {
        "contrastive_weight": 1, "cross_entropy_weight": 0.5, "kl_weight": 6,
        "reconstruction_weight": 0, "temperature": 1, "dropout": 0.5, "input_dropout": 0,
        "learning_rate": 2e-3, "weight_decay": 1e-5, "optimizer": "adam", "decay_all": True,
        "epochs": 90, "schedule": "warm-restarts", "restart_epochs": 50, "restart_factor": 2,
        "floor_learning_rate": 2e-4, "selection": "macro_f1", "embedding_dim": 2048,
        "decoder_hidden": (512,), "decoder_input": "xz", "activation": "relu",
        "embedding_activation": "leaky_relu", "label_relu": True, "unit_norm": True,
        "label_bias": False, "layer_norm": False, "normalize_labels": False,
        "decoder_dropout": False, "n_draws": 2, "own_kl_draw": True, "label_branch": True,
        "prior": "mixture",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_others(name):
    preset, found = PRESETS[name], {}
    for part in (TrainingConfig(**preset.training), preset.network, preset):
        found |= {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    assert found.items() >= NUMBERS[name].items()


class TestWhatAFitBuilds:
    """By the number of rows, and whether their features are sparse, or all 0 or 1."""

    @pytest.fixture
    def fit(self, monkeypatch):
        """Return a function that fits for one epoch; plans of training are kept in its ``plan``."""
        train = pack_module.train

        def shortened(network, members, rows, config, **more):
            fitted.plan = config
            return train(network, members, rows, dataclasses.replace(config, epochs=1), **more)

        monkeypatch.setattr(pack_module, "train", shortened)

        def fitted(n_rows, kind="dense", n_columns=12, **parameters):
            rng = np.random.default_rng(0)
            if kind == "dense":
                X = rng.normal(size=(n_rows, n_columns))
            else:
                shape, n_stored = (n_rows, n_columns), 3 * n_rows
                values = np.ones(n_stored) if kind == "bits" else rng.random(n_stored)
                columns = rng.permuted(np.tile(np.arange(9), (n_rows, 1)), axis=1)[:, :3].ravel()
                X = sp.csr_array((values, columns, np.arange(0, n_stored + 1, 3)), shape)
            Y = rng.integers(0, 2, (n_rows, 3))
            return CGMVAEClassifier(n_members=1, random_state=0, **parameters).fit(X, Y)

        return fitted

    @pytest.mark.parametrize(
        ("n_rows", "kind", "sizes", "dropouts", "training", "contrastive"),
        [
            (60, "dense", (128, 32, (192, 192)), (0.2, 0.1), (240, 128, 24, 4e-3), (0.3, 0.2)),
            (5_000, "dense", (181, 45, (272, 272)), (0.1, 0.0), (50, 256, 6, 8e-3), (1.0, 0.4)),
            (10_000, "dense", (256, 64, (384, 384)), (0.1, 0.0), (50, 256, 6, 8e-3), (1.0, 0.4)),
            (60, "bits", (256, 64, (192,)), (0.5, 0.5), (240, 128, 24, 2e-3), (0.3, 0.2)),
            (1_600, "counts", (256, 64, (192,)), (0.2, 0.1), (38, 200, 6, 3.125e-3), (0.3, 0.2)),
            (6_000, "bits", (256, 64, (192,)), (0.1, 0.1), (20, 512, 4, 4e-3), (0.3, 0.2)),
        ],
    )
    def test_members(self, fit, n_rows, kind, sizes, dropouts, training, contrastive):
        model = fit(n_rows, kind)
        config, plan, (own,) = model.network_.config, fit.plan, model.member_settings_
        assert (config.embedding_dim, config.latent_dim, config.decoder_hidden) == sizes
        assert config.feature_hidden == (64,)
        assert config.label_scale == (0.3 if kind == "dense" else 1.0)
        assert (own["dropout"], own["input_dropout"]) == pytest.approx(dropouts, abs=1e-4)
        found = plan.epochs, plan.batch_size, plan.patience, own["learning_rate"]
        assert found == pytest.approx(training)
        weight, temperature = own["weights"]["contrastive"], model.network_.temperature.item()
        assert (weight, temperature) == pytest.approx(contrastive, abs=1e-3)

    @pytest.mark.parametrize(
        ("n_rows", "n_columns", "encoding", "n_bins", "width"),
        [
            (70, 7, "auto", 8, 63),
            (70, 8, "auto", 8, 64),
            (70, 800, "piecewise-linear", 8, 64),
            (5_000, 20, "auto", 16, 340),
            (70, 70, "standard", 0, 64),
        ],
    )
    def test_bins_and_components(self, fit, n_rows, n_columns, encoding, n_bins, width):
        pipeline = fit(n_rows, "dense", n_columns, encoding=encoding).pipeline_
        assert pipeline.bins.n_columns == n_bins * n_columns
        assert pipeline.n_columns == width

    @pytest.mark.parametrize("name", ["paper", "released"])
    def test_other_presets_do_not_depend_on_the_data(self, fit, name):
        small = {"label_hidden": (8,), "feature_hidden": (8,), "decoder_hidden": (8,)}
        for n_rows in (60, 6_000):
            model = fit(n_rows, preset=name, embedding_dim=8, network=small)
            expected = dataclasses.replace(PRESETS[name].network, embedding_dim=8, **small)
            assert model.network_.config == expected
            assert fit.plan == TrainingConfig(**PRESETS[name].training)
            (own,) = model.member_settings_
            dropouts = own["dropout"], own["input_dropout"]
            assert dropouts == (PRESETS[name].dropout, PRESETS[name].input_dropout)

    def test_an_unknown_preset_is_rejected(self, survey):
        with pytest.raises(InputError, match=r"'tuend'.*paper, released, tuned"):
            CGMVAEClassifier("tuend").fit(survey.X, survey.Y)


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
