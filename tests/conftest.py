"""Fixtures that every part of the tests shares."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from cgmvae.data import MultiLabelDataset, make_survey

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("default", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of real data sets, or skip the test where there is none."""
    folder = os.environ.get("CGMVAE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("CGMVAE_DATA does not name a folder with the real data sets")
    return Path(folder)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Give each worker one thread; there are as many workers as cores."""
    torch.set_num_threads(1)


@pytest.fixture
def survey() -> MultiLabelDataset:
    """Return 120 rows with 6 features and 5 labels, which a test may change as it likes."""
    data, _ = make_survey(120, 6, 5, seed=0)
    return data
