"""Fixtures that every part of the tests shares."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import arff
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import settings

from cgmvae.data import MultiLabelDataset, make_survey
from cgmvae.data.mapped import dense
from cgmvae.methods import out_of_fold
from cgmvae.training import checkpoint

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("default", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_configure(config: pytest.Config) -> None:
    """Let labels be constant or unknown without a warning: many tests are about such labels."""
    for name in ("LabelWarning", "UnlabeledRowsWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::cgmvae.methods.inputs.{name}")


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules, which stay: it runs in many tests."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture(scope="session")
def write_arff() -> Callable[[MultiLabelDataset, Path], None]:
    """Return a function that lets liac-arff write a data set, with the labels as last columns."""

    def write(data: MultiLabelDataset, path: Path) -> None:
        Y = np.array([["0", "1"]], object)[0][dense(data.Y)]
        if data.unknown is not None:
            Y[dense(data.unknown)] = None
        rows = np.hstack([dense(data.X).astype(np.float64).astype(object), Y])
        rows[rows != rows] = None
        table = rows.tolist()
        if sp.issparse(data.X):
            cells = (enumerate(row) for row in table)
            table = [{i: cell for i, cell in row if cell not in (0, "0")} for row in cells]
        attributes = [(name, "NUMERIC") for name in data.feature_names]
        attributes += [(name, ["0", "1"]) for name in data.label_names]
        text = arff.dumps({"relation": "toy", "attributes": attributes, "data": table})
        Path(path).write_text(text, encoding="utf-8")

    return write


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
        patch.setattr(checkpoint, "MIN_SECONDS", 0.0)
        patch.setattr(checkpoint, "MAX_FRACTION", np.inf)
        yield


@pytest.fixture
def survey() -> MultiLabelDataset:
    """Return 120 rows with 6 features and 5 labels, which a test may change as it likes."""
    data, _ = make_survey(120, 6, 5, seed=0)
    return data
