"""Nearest rows against scikit-learn and a plain sort."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from cgmvae.methods import nearest
from cgmvae.methods.nearest import NearestRows, smallest


@pytest.fixture
def clustered(rng):
    """Return 900 rows around 30 points."""
    centers = rng.normal(size=(30, 12)) * 3
    return centers[rng.integers(0, 30, 900)] + rng.normal(size=(900, 12))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("held", [1, 1 << 20])
def test_dense_rows_equal_scikit_learn(clustered, monkeypatch, dtype, held):
    monkeypatch.setattr(nearest, "_HELD_DISTANCES", held)
    rows, queries = clustered[:700].astype(dtype), clustered[700:].astype(dtype)
    expected = NearestNeighbors(n_neighbors=10).fit(rows)
    np.testing.assert_array_equal(
        NearestRows(rows).find(queries, 10), expected.kneighbors(queries, return_distance=False)
    )
    np.testing.assert_array_equal(
        NearestRows(rows).find(rows, 10, np.arange(700)),
        expected.kneighbors(return_distance=False),  # each row without itself
    )


def test_sparse_rows_equal_dense_rows(rng):
    X = rng.random((300, 40)) * (rng.random((300, 40)) < 0.2)
    expected = NearestRows(X[:200]).find(X, 7)
    for rows in (X, sp.csr_array(X)):
        for queries in (X, sp.csr_array(X)):
            np.testing.assert_array_equal(NearestRows(rows[:200]).find(queries, 7), expected)


def test_ties_go_to_the_first_rows(rng):
    rows = np.repeat(rng.normal(size=(3, 5)), 40, axis=0)  # a standardized tie is one to rounding
    expected = [[0, 1, 2, 3], [40, 41, 42, 43], [80, 81, 82, 83]]
    for offset in (0.0, 1e6):
        search = NearestRows(rows + offset)
        np.testing.assert_array_equal(search.find(rows[::40] + offset, 4), expected)
        one_by_one = [search.find(row[None] + offset, 4)[0] for row in rows[::40]]
        np.testing.assert_array_equal(one_by_one, expected)
    own = np.array([1, 41, 82])
    np.testing.assert_array_equal(
        search.find(rows[own] + offset, 3, own), [[0, 2, 3], [40, 42, 43], [80, 81, 83]]
    )


def test_distances_that_differ_by_rounding_are_ties(rng):
    binary = rng.random((300, 9)) < 0.5
    rows = (binary - binary.mean(0)) / binary.std(0)  # few distances, each of many pairs
    distances = ((rows[:, None] - rows) ** 2).sum(axis=2).round(9)
    expected = np.argsort(distances, axis=1, kind="stable")[:, :12]
    search = NearestRows(rows)
    np.testing.assert_array_equal(search.find(rows, 12), expected)
    np.testing.assert_array_equal([search.find(row[None], 12)[0] for row in rows], expected)


def test_rows_equal_up_to_rounding_are_ties(rng):
    points = rng.normal(size=(3, 50))
    last_digit = 1 + rng.integers(-1, 2, (120, 50)) * np.finfo(np.float64).eps
    rows = np.repeat(points, 40, axis=0) * last_digit
    found = NearestRows(rows).find(points[1:], 4)  # the first is the origin, where digits are many
    np.testing.assert_array_equal(found, [[40, 41, 42, 43], [80, 81, 82, 83]])


def test_extreme_values_have_neighbors():
    rows = np.array([[0.0], [1e30], [2e30], [1e-30]])
    assert (np.sort(NearestRows(rows).find(rows, 4), axis=1) == np.arange(4)).all()


def test_missing_neighbors_are_minus_one(rng):
    rows = rng.normal(size=(3, 2))
    found = NearestRows(rows).find(rows, 5, np.array([0, -1, 2]))
    assert (np.sort(found, axis=1)[:, 2:] >= 0).sum(axis=1).tolist() == [2, 3, 2]
    assert (found[[0, 2], 2:] == -1).all()
    assert (found[:, 3:] == -1).all()
    assert NearestRows(rows).find(rows, 0).shape == (3, 0)


@pytest.mark.parametrize("n_columns", [1, 7, 2000])
def test_smallest_equals_a_stable_sort(rng, n_columns):
    for levels in (3, 40, 10**9):
        values = rng.integers(0, levels, (50, n_columns)).astype(np.float32)
        for n in (1, 3, 10):
            expected = np.argsort(values, axis=1, kind="stable")[:, :n]
            found, columns = smallest(values, n)
            np.testing.assert_array_equal(columns, expected)
            np.testing.assert_array_equal(found, np.take_along_axis(values, expected, axis=1))


def test_a_nearly_equal_row_is_tied_with_an_equal_one(rng):
    point = rng.normal(size=50)
    rows = np.stack([np.zeros(50), point * (1 + 1e-7), point])
    np.testing.assert_array_equal(NearestRows(rows).find(point[None], 2), [[1, 2]])
