"""What the contract tests share: modules of this folder, one core, a small survey."""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from cgmvae.data import MultiLabelDataset, make_survey

sys.path.insert(0, str(Path(__file__).parent))

from quick_estimators import NAMES, quick


def pytest_generate_tests(metafunc):
    """Run a test that asks for ``name`` once for every method."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", NAMES)


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
    """Return 120 rows with 6 features and 5 labels, which a test may change as it likes."""
    data = _survey()
    return MultiLabelDataset(
        data.X.copy(), data.Y.copy(), label_names=data.label_names, name="survey"
    )


@cache
def _fitted(name: str):
    return quick(name).fit(_survey().X, _survey().Y)


@pytest.fixture
def fitted(name):
    """Return a method fitted on the survey; tests must not change it."""
    model = _fitted(name)
    before = model.predict_proba(_survey().X)
    yield model
    assert np.array_equal(model.predict_proba(_survey().X), before), "the test changed the model"
