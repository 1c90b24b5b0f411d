"""Piecewise-linear encoding: its definition, what it leaves alone, and how it is stored."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.data.mapped import MappedRows
from cgmvae.preparation.piecewise import PiecewiseLinear


def test_each_column_rises_through_its_quantile_bin(rng):
    X = rng.exponential(size=(500, 2))
    encoding = PiecewiseLinear(4).fit(X)
    found = encoding.transform(X)
    np.testing.assert_array_equal(found[:, :2], X)
    for i, row in enumerate(X[:20]):
        expected = []
        for column, value in enumerate(row):
            edges = np.quantile(X[:, column], [0, 0.25, 0.5, 0.75, 1])
            for low, high in itertools.pairwise(edges):
                expected.append(min(1.0, max(0.0, (value - low) / (high - low))))
        np.testing.assert_allclose(found[i, 2:], expected)


def test_few_values_constants_and_sparse_rows_are_left_alone(rng):
    X = np.column_stack(
        [rng.integers(0, 10, 300), np.ones(300), rng.normal(size=300), np.r_[np.zeros(290), 1:11]]
    )
    encoding = PiecewiseLinear(8).fit(X)
    assert set(encoding.feature_) == {2}
    sparse = sp.csr_array(X)
    unchanged = PiecewiseLinear(8).fit(sparse)
    assert unchanged.transform(sparse) is sparse
    assert PiecewiseLinear(1).fit(X).n_columns == 0


def test_the_narrowest_bins_of_float32_stay_finite():
    """Beside one huge value all others are next to nothing, and edges between them rounded."""
    X = np.append(np.arange(30) * np.finfo(np.float32).smallest_subnormal, 1e4)[:, None]
    found = PiecewiseLinear(64).fit(X).transform(X.astype(np.float32))
    assert found.shape[1] > 20
    assert np.isfinite(found).all()
    assert found[-1, 1:].tolist() == [1] * (found.shape[1] - 1)


def test_rows_on_disk_are_encoded_when_they_are_read(rng):
    X = rng.normal(size=(50, 3))
    encoding = PiecewiseLinear(8).fit(X)
    lazy = encoding.transform(MappedRows(X))
    assert isinstance(lazy, MappedRows)
    np.testing.assert_array_equal(lazy.gather(np.arange(50)), encoding.transform(X))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("feature", [0, 9, 1], "features that it does not have"),
        ("upper", [1.0, 1.0, -5.0], "not intervals"),
        ("lower", [0.0, 1.0], "different lengths"),
        ("lower", [np.nan, 0.0, 0.0], "not intervals"),
    ],
)
def test_bins_that_cannot_be_are_rejected(name, value, reason):
    state = {
        "feature": np.array([0, 1, 1]),
        "lower": np.array([0.0, 0.0, 1.0]),
        "upper": np.array([1.0, 1.0, 2.0]),
    }
    with pytest.raises(ValueError, match=reason):
        PiecewiseLinear.from_state(state | {name: np.array(value)}, n_features=2)
