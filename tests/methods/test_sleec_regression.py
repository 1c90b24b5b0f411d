"""Maps of SLEEC against ridge regression and a generic solver of the same cost."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.linear_model import Ridge

from cgmvae.methods.sleec_regression import fit_regressor, outer_gram, shrink

LONG = {"penalty": 1.0, "iterations": 5000, "tolerance": 1e-12}


def cost(regressor, features, z, weights, l2_weight, l1_weight):
    predicted = features @ regressor
    return (
        (weights[:, None] * (z - predicted) ** 2).sum()
        + l2_weight * (regressor**2).sum()
        + l1_weight * (weights[:, None] * np.abs(predicted)).sum()
    )


def problem(rng, n_rows=12, n_features=4, dim=2):
    features = rng.standard_normal((n_rows, n_features))
    return features, rng.standard_normal((n_rows, dim)), rng.uniform(0.5, 2, n_rows)


def generic_solution(features, z, weights, l2_weight, l1_weight):
    """Solve the dual problem, whose only constraints are bounds: μ|v| is the most of μsv, |s| ≤ 1.

    For given signs s the best regressor is ridge regression's of z − μs/2.
    """
    ridge = Ridge(l2_weight, fit_intercept=False, solver="cholesky")

    def best(signs):
        return ridge.fit(features, z - l1_weight * signs.reshape(z.shape) / 2, weights).coef_.T

    def negative_dual(signs):
        regressor = best(signs)
        slope = l1_weight * weights[:, None] * (features @ regressor)
        value = cost(regressor, features, z, weights, l2_weight, 0.0)
        return -value - slope.ravel() @ signs, -slope.ravel()

    found = minimize(
        negative_dual,
        np.zeros(z.size),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-1, 1)] * z.size,
        options={"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-10},
    )
    return best(found.x)


@pytest.mark.parametrize("n_features", [4, 20])
@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_without_l1_it_is_ridge_regression(rng, n_features, form):
    features, z, weights = problem(rng, 12, n_features)
    found = fit_regressor(form(features), z, weights, l2_weight=0.7, l1_weight=0.0, **LONG)
    ridge = Ridge(0.7, fit_intercept=False, solver="cholesky").fit(features, z, weights)
    np.testing.assert_allclose(found, ridge.coef_.T, atol=1e-8)
    nearly = fit_regressor(form(features), z, weights, l2_weight=0.7, l1_weight=1e-9, **LONG)
    np.testing.assert_allclose(nearly, found, atol=1e-7)


@pytest.mark.parametrize("l1_weight", [0.05, 0.5, 1.5])
@pytest.mark.parametrize("penalty", [0.3, 1.0, 4.0])
def test_it_is_what_a_generic_solver_finds(rng, l1_weight, penalty):
    data = problem(rng)
    weights = {"l2_weight": 0.7, "l1_weight": l1_weight}
    found = fit_regressor(*data, **weights, **(LONG | {"penalty": penalty}))
    expected = generic_solution(*data, **weights)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert cost(found, *data, **weights) <= cost(expected, *data, **weights) + 1e-8


@pytest.mark.parametrize("n_features", [4, 20])
def test_no_small_change_costs_less(rng, n_features):
    data = problem(rng, 12, n_features)
    weights = {"l2_weight": 0.7, "l1_weight": 0.8}
    found = fit_regressor(*data, **weights, **LONG)
    for size in (1e-1, 1e-3, 1e-4):
        change = size * rng.standard_normal((50, *found.shape))
        costs = [cost(found + each, *data, **weights) for each in change]
        assert min(costs) > cost(found, *data, **weights)


def test_l1_makes_predicted_embeddings_sparse(rng):
    features, z, weights = problem(rng, 12, 20)  # as many features as it takes
    shares = []
    for l1_weight in (0.0, 0.5, 2.0, 10.0):
        found = fit_regressor(features, z, weights, l2_weight=0.01, l1_weight=l1_weight, **LONG)
        shares.append((np.abs(features @ found) < 1e-6).mean())
    assert shares[0] == 0
    assert shares[0] < shares[1] < shares[2] < shares[3] == 1


def test_a_whole_weight_is_a_repeated_row(rng):
    features, z, _ = problem(rng)
    counts = rng.integers(1, 4, 12)
    rows = np.repeat(np.arange(12), counts)
    settings = {"l2_weight": 0.7, "l1_weight": 0.5} | LONG
    weighted = fit_regressor(features, z, counts.astype(float), **settings)
    repeated = fit_regressor(features[rows], z[rows], np.ones(len(rows)), **settings)
    np.testing.assert_allclose(weighted, repeated, atol=1e-8)


def test_it_ends_once_nothing_changes(rng, monkeypatch):
    data = problem(rng)
    settings = {"l2_weight": 0.7, "l1_weight": 0.5, "penalty": 1.0}
    calls = []
    monkeypatch.setattr(
        "cgmvae.methods.sleec_regression.shrink", lambda *a: calls.append(1) or shrink(*a)
    )
    fit_regressor(*data, **settings, iterations=3)
    assert len(calls) == 3
    rough = fit_regressor(*data, **settings, iterations=5000)
    assert 3 < len(calls) - 3 < 500
    exact = fit_regressor(*data, **settings, iterations=5000, tolerance=1e-12)
    np.testing.assert_allclose(rough, exact, atol=1e-2)


def test_nothing_to_predict(rng):
    features, z, weights = problem(rng)
    found = fit_regressor(features, 0 * z, weights, l2_weight=0.7, l1_weight=0.5, **LONG)
    assert not found.any()


def test_products_of_rows_in_blocks(rng, monkeypatch):
    monkeypatch.setattr("cgmvae.methods.sleec_regression.BLOCK_ROWS", 7)
    matrix = sp.random_array((40, 30), density=0.2, rng=rng, format="csr")
    np.testing.assert_allclose(outer_gram(matrix), matrix.toarray() @ matrix.toarray().T)


def test_values_move_towards_zero():
    found = shrink(np.array([-3.0, -1.0, 0.5, 2.0]), 1.0)
    np.testing.assert_array_equal(found, [-2, 0, 0, 1])
