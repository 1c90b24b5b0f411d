"""Training and prediction on wide sparse features equal those on dense features."""

import numpy as np
import pytest

from cgmvae.data import make_survey
from cgmvae.methods.cgmvae import CGMVAEClassifier
from cgmvae.training import rows as training_rows

PLAIN = {
    "epochs": 3,
    "embedding_dim": 16,
    "n_members": 2,
    "dropout": 0.0,
    "input_dropout": 0.0,
    "random_state": 0,
    "device": "cpu",
    "network": {
        "feature_hidden": (16,),
        "label_hidden": (16,),
        "decoder_hidden": (16,),
        "skip_dropout": 0.0,
    },
}


@pytest.fixture(scope="module")
def survey():
    return make_survey(300, 40, 6, feature_density=0.05, group_strength=0.0, seed=3)[0]


@pytest.fixture
def wide(monkeypatch):
    """Treat the survey's few features as wide."""
    monkeypatch.setattr(training_rows, "_WIDE", 10)


def scores(survey, **parameters):
    model = CGMVAEClassifier(**PLAIN | parameters)
    held = survey.rows(np.arange(200, 300))
    model.fit(survey.X[:200], survey.Y[:200], validation_data=(held.X, held.Y))
    return model, model.predict_proba(survey.X)


#: Reconstructs features.
PAPER = {
    "preset": "paper",
    "network": {"feature_hidden": (8,), "decoder_hidden": (8,)},
}


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"training": {"optimizer": "adam", "first_stage": 0.5}},
        PAPER,
    ],
)
def test_sparse_and_dense_batches_train_the_same_model(survey, monkeypatch, own):
    dense_batches, expected = scores(survey, **own)
    monkeypatch.setattr(training_rows, "_WIDE", 10)
    sparse_batches, found = scores(survey, **own)
    np.testing.assert_allclose(found, expected, atol=2e-4)
    np.testing.assert_allclose(sparse_batches.predict_proba(survey.X.toarray()), found, atol=1e-5)
    assert (sparse_batches.best_epoch_ == dense_batches.best_epoch_).all()


@pytest.mark.usefixtures("wide")
def test_a_member_is_the_same_alone_and_in_a_pack(survey):
    noisy = {
        "dropout": 0.3,
        "input_dropout": 0.2,
        "network": PLAIN["network"] | {"skip_dropout": 0.3},
    }
    members = [{"learning_rate": 1e-3}, {"learning_rate": 3e-3}, {"learning_rate": 5e-3}]
    pack, _ = scores(survey, members=members, **noisy)
    alone, _ = scores(survey, members=members[:1], **noisy)
    for name, weights in alone.network_.state_dict().items():
        found = pack.network_.state_dict()[name][:1]
        np.testing.assert_allclose(found, weights, atol=1e-5)
