"""How far rows lie outside the training rows, in columns of numbers."""

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae import BinaryRelevance
from cgmvae.data.columns import as_columns
from cgmvae.data.mapped import MappedRows
from cgmvae.errors import InputError
from cgmvae.preparation.ranges import TrainingRanges


def brute_force(train, new):
    """Return the excess of each value, one by one."""
    found = np.zeros(new.shape)
    for (i, j), value in np.ndenumerate(new):
        known = train[:, j][~np.isnan(train[:, j])]
        if not known.size or np.isnan(value):
            continue
        low, high = known.min(), known.max()
        beyond = low - value if value < low else max(0.0, value - high)
        found[i, j] = beyond / ((high - low) or 1.0)
    return found


@pytest.mark.parametrize("mapped", [False, True])
def test_the_distance_to_the_range_as_a_share_of_it(rng, mapped):
    train, new = rng.normal(size=(40, 5)), 3 * rng.normal(size=(30, 5))
    train[:, 1], train[:, 2] = 4.0, np.nan  # constant, and always missing
    train[rng.random(train.shape) < 0.1] = np.nan
    new[rng.random(new.shape) < 0.1] = np.nan
    ranges = TrainingRanges.of(MappedRows(train) if mapped else train)
    excess = ranges.excess(MappedRows(new) if mapped else new)
    np.testing.assert_allclose(excess, brute_force(train, new))
    assert (excess > 0).any()
    assert not ranges.excess(train).any()


def test_only_columns_of_numbers_count():
    table = {"height": [1.0, 3.0, 2.0], "habitat": ["bog", "fen", "bog"]}
    ranges = TrainingRanges.of(as_columns(table))
    new = as_columns({"height": [4.0, 2.0], "habitat": ["mire", "fen"]})
    assert ranges.excess(new).tolist() == [[0.5, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    "features",
    [sp.csr_array(np.eye(4)), np.full((4, 2), np.nan), as_columns({"habitat": ["bog", "fen"]})],
)
def test_nothing_has_a_range(features):
    assert TrainingRanges.of(features) is None


def test_a_model_on_sparse_rows_says_that_it_cannot_tell(rng):
    X = sp.csr_array(rng.random((40, 3)))
    model = BinaryRelevance().fit(X, rng.integers(0, 2, (40, 2)))
    with pytest.raises(InputError, match="cannot say how new a row is"):
        model.novelty(X)
