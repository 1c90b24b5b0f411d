"""Shared by the contract tests: modules of this folder, and one fitted model per method."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from quick_estimators import NAMES, fitted_on


def pytest_generate_tests(metafunc):
    """Run a test that asks for ``name`` for every method, or for those that it names."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", getattr(metafunc.function, "names", NAMES))


@pytest.fixture
def fitted(name, survey):
    """Return a method fitted on the survey; tests must not change it."""
    model, rows = fitted_on(name, "survey"), survey.X.copy()
    before = model.predict_proba(rows)
    yield model
    assert np.array_equal(model.predict_proba(rows), before), "the test changed the model"
