"""Fits give the probabilities that are kept; see ``cases.py`` for how to renew them."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cases import CASES, KEPT, TOLERANCE, embedded


@pytest.mark.parametrize("name", CASES)
def test_probabilities_are_those_that_are_kept(name, request):
    if not embedded(name):
        request.getfixturevalue("data_folder")
    with np.load(KEPT) as kept:
        np.testing.assert_allclose(CASES[name](), kept[name], atol=TOLERANCE)
