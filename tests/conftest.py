"""Fixtures that every part of the tests shares."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

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
