"""One core, a small survey, and a C-GMVAE that learns it within a moment."""

from functools import cache

import pytest
import torch

from cgmvae.data import MultiLabelDataset, make_survey
from cgmvae.methods import CGMVAEClassifier

SIZES = {"feature_hidden": (16,), "label_hidden": (16,), "decoder_hidden": (16,), "latent_dim": 4}
PLAN = {"n_members": 2, "epochs": 4, "batch_size": 32, "learning_rate": 1e-2, "embedding_dim": 16}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def _survey() -> MultiLabelDataset:
    data, _ = make_survey(120, 6, 5, seed=0)
    return data


@pytest.fixture
def survey() -> MultiLabelDataset:
    """Return 120 rows with 6 features and 5 labels; a test must not change them."""
    return _survey()


@pytest.fixture
def tiny():
    """Return a function that makes a tiny, unfitted C-GMVAE; settings go by name, too."""

    def make(**changes) -> CGMVAEClassifier:
        settings = SIZES | dict(changes.pop("settings", {}))
        plan = PLAN | {"device": "cpu", "random_state": 0}
        return CGMVAEClassifier(**(plan | changes), settings=settings)

    return make


@pytest.fixture(scope="session")
def fitted() -> CGMVAEClassifier:
    """Return a fitted C-GMVAE of three members, with names; tests must not change it."""
    data = _survey()
    model = CGMVAEClassifier(
        **(PLAN | {"n_members": 3}), device="cpu", random_state=0, settings=SIZES
    )
    return model.fit(data.X, data)
