"""Training on a GPU follows training on a CPU."""

import numpy as np
import pytest
import torch

from cgmvae.data import make_survey
from cgmvae.methods import CGMVAEClassifier
from cgmvae.nn import rng as rng_module
from cgmvae.nn.rng import CounterStreams
from cgmvae.training.rows import TrainingRows
from cgmvae.training.step import Recorded

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

SIZES = {
    "feature_hidden": (32, 16),
    "label_hidden": (16,),
    "decoder_hidden": (32,),
    "latent_dim": 4,
}

#: Rounding differences grow with the learning rate, whatever computes the steps.
LEARNING_RATE = 1e-3


def fit(device: str, **changes):
    data, _ = make_survey(400, 8, 6, unknown_share=0.1, seed=0)
    model = CGMVAEClassifier(
        n_members=3,
        epochs=6,
        embedding_dim=16,
        learning_rate=LEARNING_RATE,
        device=device,
        random_state=0,
    )
    model.set_params(**model.as_parameters(SIZES | changes))
    return model.fit(data.X, data)


@pytest.fixture
def counted(monkeypatch):
    """Make the CPU draw the same random numbers as the GPU."""
    monkeypatch.setattr(rng_module, "GeneratorStreams", CounterStreams)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layer_norm": False},
        {"optimizer": "adam"},
        {"decoder_dropout": False},
        {"n_draws": 2, "own_kl_draw": True},
        {"label_branch": True, "normalize_labels": False},
        {"alignment": "triplet"},
        {"first_stage": 0.5},
    ],
)
def test_loss_curves_agree(counted, changes):
    curves = [fit(device, **changes).history_ for device in ("cpu", "cuda")]
    for name, series in curves[0].items():
        np.testing.assert_allclose(series, curves[1][name], rtol=2e-2, atol=5e-3, err_msg=name)


def test_a_member_is_the_same_alone_and_in_a_pack():
    data, _ = make_survey(400, 8, 6, seed=0)
    weights = []
    for n_members in (1, 5):
        model = CGMVAEClassifier(
            n_members=n_members,
            n_folds=5,
            epochs=4,
            embedding_dim=16,
            learning_rate=LEARNING_RATE,
            network=SIZES,
            random_state=0,
        )
        model.fit(data.X, data.Y)
        weights.append(torch.cat([p[0].detach().flatten() for p in model.network_.parameters()]))
    assert float((weights[0] - weights[1]).norm() / weights[0].norm()) < 1e-3


def test_bfloat16_trains_as_well():
    exact, rounded = (fit("cuda", precision=precision) for precision in ("tf32", "bf16"))
    for name, series in exact.history_.items():
        np.testing.assert_allclose(series, rounded.history_[name], rtol=0.1, atol=0.05)
    assert any(not np.array_equal(a, rounded.history_[n]) for n, a in exact.history_.items())


def test_it_does_not_matter_who_gathers_the_batches(monkeypatch):
    alone = fit("cuda").history_
    monkeypatch.setattr(TrainingRows, "on_device", False)
    for name, series in fit("cuda").history_.items():
        np.testing.assert_allclose(series, alone[name], rtol=1e-3, atol=1e-4)


def test_steps_are_recorded(monkeypatch):
    recorded = []
    record = Recorded._record

    def counted_record(self, work):
        record(self, work)
        recorded.append(self._graph is not None)

    monkeypatch.setattr(Recorded, "_record", counted_record)
    fit("cuda")
    assert len(recorded) >= 2  # the step and the validation
    assert all(recorded)


def test_a_member_that_fails_stops_alone():
    data, _ = make_survey(400, 8, 6, seed=0)
    rates = [{"learning_rate": 1e-3}, {"learning_rate": 1e30}]
    model = CGMVAEClassifier(
        members=rates, epochs=4, embedding_dim=16, network=SIZES, device="cuda", random_state=0
    )
    with pytest.warns(UserWarning, match="Member 1 stopped in epoch"):
        model.fit(data.X, data.Y)
    assert np.isfinite(model.predict_proba(data.X)).all()
