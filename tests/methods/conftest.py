"""A C-GMVAE that fits the small survey quickly."""

import pytest

from cgmvae.data import make_survey
from cgmvae.methods import CGMVAEClassifier

SIZES = {"feature_hidden": (16,), "label_hidden": (16,), "decoder_hidden": (16,), "latent_dim": 4}
PLAN = {"n_members": 2, "epochs": 4, "batch_size": 32, "learning_rate": 1e-2, "embedding_dim": 16}


@pytest.fixture
def tiny():
    """Return a function that creates a tiny, unfitted C-GMVAE."""

    def make(**changes) -> CGMVAEClassifier:
        model = CGMVAEClassifier(device="cpu", random_state=0)
        return model.set_params(**model.as_parameters(PLAN | SIZES | changes))

    return make


@pytest.fixture(scope="session")
def fitted() -> CGMVAEClassifier:
    """Return three fitted members with names; tests must not change them."""
    data, _ = make_survey(120, 6, 5, seed=0)
    model = CGMVAEClassifier(device="cpu", random_state=0)
    model.set_params(**model.as_parameters(PLAN | SIZES | {"n_members": 3}))
    return model.fit(data.X, data)
