"""Fixtures that every part of the tests shares."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from cgmvae.data import MultiLabelDataset, make_survey
from cgmvae.methods import out_of_fold
from cgmvae.training import checkpoint

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("default", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_configure(config: pytest.Config) -> None:
    """Let labels be constant or unknown without a warning: many tests are about such labels."""
    for name in ("LabelWarning", "UnlabeledRowsWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::cgmvae.methods.inputs.{name}")


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


@pytest.fixture(autouse=True, scope="session")
def no_rows_are_few() -> Iterator[None]:
    """Take any number of rows for enough: most tests have few, and are of something else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(out_of_fold, "FEW_ROWS", 0)
        yield


@pytest.fixture
def rows_are_few(monkeypatch) -> None:
    """Let the fits of a test know what rows are few, as they do outside of the tests."""
    monkeypatch.setattr(out_of_fold, "FEW_ROWS", 200)


@pytest.fixture(autouse=True, scope="session")
def every_epoch_is_saved() -> Iterator[None]:
    """Save the state of a training after each epoch, for the tests that stop and resume one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "LEAST_SECONDS", 0.0)
        patch.setattr(checkpoint, "LARGEST_FRACTION", np.inf)
        yield


@pytest.fixture
def survey() -> MultiLabelDataset:
    """Return 120 rows with 6 features and 5 labels, which a test may change as it likes."""
    data, _ = make_survey(120, 6, 5, seed=0)
    return data
