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
        settings = SIZES | dict(changes.pop("settings", {}))
        plan = PLAN | {"device": "cpu", "random_state": 0}
        return CGMVAEClassifier(**(plan | changes), settings=settings)

    return make


@pytest.fixture(scope="session")
def fitted() -> CGMVAEClassifier:
    """Return three fitted members with names, without votes; tests must not change them."""
    data, _ = make_survey(120, 6, 5, seed=0)
    model = CGMVAEClassifier(
        **(PLAN | {"n_members": 3}), n_neighbors=0, device="cpu", random_state=0, settings=SIZES
    )
    return model.fit(data.X, data)
