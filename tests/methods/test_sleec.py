"""SLEEC: embeddings, regressors and the estimator against plain loops."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import Ridge

import cgmvae
from cgmvae.errors import InputError
from cgmvae.methods import sleec
from cgmvae.methods.sleec import (
    SLEEC,
    Pairs,
    as_inputs,
    complete,
    fit_regressor,
    label_cosine,
    label_neighbors,
    outer_gram,
    shrink,
)


def some_labels(rng, n_rows=60, n_labels=8, density=0.3):
    return (rng.random((n_rows, n_labels)) < density).astype(float)


def observed(matrix, mask=None):
    """Return the pairs of a symmetric matrix selected by a symmetric mask."""
    mask = np.ones(matrix.shape, bool) if mask is None else mask
    first, second = np.nonzero(np.triu(mask))
    return Pairs(len(matrix), first, second, matrix[first, second])


def dense(pairs):
    """Return the mask and the values of pairs as full matrices."""
    shape = (pairs.n_rows, pairs.n_rows)
    mask, values = np.zeros(shape, bool), np.zeros(shape)
    for i, j, value in zip(pairs.first, pairs.second, pairs.values, strict=True):
        mask[i, j] = mask[j, i] = True
        values[i, j] = values[j, i] = value
    return mask, values


@pytest.mark.parametrize("with_unknown", [False, True])
def test_the_cosine_uses_labels_known_to_both(rng, with_unknown):
    labels = some_labels(rng)
    labels[:5] = 0
    unknown = (rng.random(labels.shape) < 0.3) & with_unknown
    labels[unknown] = 0
    mask = sp.csr_array(unknown.astype(float)) if with_unknown else None
    found = label_cosine(sp.csr_array(labels), mask, np.arange(10, 40))
    for i in range(10, 40):
        for j in range(60):
            both = ~unknown[i] & ~unknown[j]
            a, b = labels[i, both], labels[j, both]
            length = np.linalg.norm(a) * np.linalg.norm(b)
            expected = a @ b / length if length else 0.0
            assert found[i - 10, j] == pytest.approx(expected, abs=1e-12)


def test_pairs_are_those_of_the_nearest_rows(rng):
    labels = rng.random((70, 30))  # no two cosines agree
    labels /= np.linalg.norm(labels, axis=1, keepdims=True)
    as_if_counts = sp.csr_array(labels)
    pairs = label_neighbors(as_if_counts, None, 6, rng)
    mask, values = dense(pairs)
    cosine = label_cosine(as_if_counts, None, np.arange(70))
    np.fill_diagonal(cosine, np.inf)
    expected = np.zeros((70, 70), bool)
    for i in range(70):
        for j in sorted(range(70), key=lambda j, i=i: -cosine[i, j])[:6]:
            expected[i, j] = expected[j, i] = True
    np.testing.assert_array_equal(mask, expected)
    off = expected & ~np.eye(70, dtype=bool)
    np.testing.assert_allclose(values[off], cosine[off])
    keys = pairs.first * 70 + pairs.second
    assert (np.diff(keys) > 0).all()


def test_blocks_of_rows_give_the_same(rng, monkeypatch):
    labels = rng.random((70, 30))
    labels /= np.linalg.norm(labels, axis=1, keepdims=True)
    whole = label_neighbors(sp.csr_array(labels), None, 6, rng)
    z = rng.standard_normal((70, 4))
    residuals = whole.residuals(z)
    monkeypatch.setattr("cgmvae.methods.sleec.BLOCK_ROWS", 16)
    monkeypatch.setattr("cgmvae.methods.sleec.BLOCK_PAIRS", 50)
    parts = label_neighbors(sp.csr_array(labels), None, 6, rng)
    np.testing.assert_array_equal(parts.first, whole.first)
    np.testing.assert_array_equal(parts.second, whole.second)
    np.testing.assert_array_equal(parts.residuals(z), residuals)


def test_ties_are_broken_at_random(rng):
    labels = sp.csr_array(np.ones((400, 3)))
    mask, values = dense(label_neighbors(labels, None, 10, rng))
    assert values[mask].min() == pytest.approx(1)
    n_neighbors = mask.sum(axis=1)
    assert n_neighbors.min() >= 10
    assert n_neighbors.max() < 50  # all 400 for some, were the first rows chosen


@pytest.mark.parametrize("n_rows", [20, 150])
def test_full_observation_gives_the_truncated_eigendecomposition(rng, n_rows):
    vectors, _ = np.linalg.qr(rng.standard_normal((n_rows, n_rows)))
    values = np.concatenate([[9, 7, 5, 4], rng.uniform(-3, 2, n_rows - 5), [-12]])
    matrix = (vectors * values) @ vectors.T
    z, errors = complete(observed(matrix), 4, 200, rng, tolerance=0)
    expected = (vectors[:, :4] * values[:4]) @ vectors[:, :4].T
    np.testing.assert_allclose(z @ z.T, expected, atol=1e-6)
    assert errors[-1] == pytest.approx((values[4:] ** 2).sum())


def test_negative_eigenvalues_are_dropped(rng):
    vectors, _ = np.linalg.qr(rng.standard_normal((100, 100)))
    matrix = (vectors * np.append([5, 3], rng.uniform(-4, -1, 98))) @ vectors.T
    z, _ = complete(observed(matrix), 4, 200, rng, tolerance=0)
    expected = (vectors[:, :2] * [5, 3]) @ vectors[:, :2].T
    np.testing.assert_allclose(z @ z.T, expected, atol=1e-6)


def test_a_planted_matrix_of_low_rank_is_recovered(rng):
    planted = rng.standard_normal((150, 3))
    matrix = planted @ planted.T
    mask = np.triu(rng.random(matrix.shape) < 0.35)
    mask |= mask.T
    z, errors = complete(observed(matrix, mask), 3, 300, rng, tolerance=0)
    gap = np.abs(z @ z.T - matrix)[~mask]  # where nothing was observed
    assert gap.max() < 1e-3 * np.abs(matrix).max()
    assert errors[-1] < 1e-6 * errors[0]


@pytest.mark.parametrize("n_neighbors", [3, 10, 40])
def test_the_error_decreases_with_each_step(rng, n_neighbors):
    labels = sp.csr_array(some_labels(rng, 300, 20, 0.15))
    pairs = label_neighbors(labels, None, n_neighbors, rng)
    z, errors = complete(pairs, 6, 30, rng, tolerance=0)
    assert len(errors) > 5
    assert (np.diff(errors) < 0).all()
    mask, values = dense(pairs)
    assert errors[0] == pytest.approx((values**2).sum())
    assert errors[-1] == pytest.approx(((values - z @ z.T)[mask] ** 2).sum())


def test_completion_stops_at_the_tolerance(rng):
    labels = sp.csr_array(some_labels(rng, 100, 20, 0.15))
    pairs = label_neighbors(labels, None, 10, rng)
    _, errors = complete(pairs, 5, 1000, rng, tolerance=0.05)
    gains = 1 - np.divide(errors[1:], errors[:-1])
    assert (gains[:-1] >= 0.05).all()
    assert gains[-1] < 0.05


def test_only_zeros_observed(rng):
    pairs = label_neighbors(sp.csr_array((50, 4)), None, 5, rng)
    z, errors = complete(pairs, 3, 10, rng)
    assert not z.any()
    assert errors == [0.0]


def recall_of_planted(z, group, n_neighbors):
    distance = ((z[:, None] - z[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[:, :n_neighbors]
    return (group[nearest] == group[:, None]).mean()


def test_planted_neighbors_stay_neighbors(rng):
    """60 groups of 8 rows share rare labels; 8 frequent labels are independent of the groups."""
    group = np.repeat(np.arange(60), 8)
    rare = np.repeat(np.eye(60)[group], 3, axis=1)
    labels = np.hstack([some_labels(rng, 480, 8, 0.5), rare])
    pairs = label_neighbors(sp.csr_array(labels), None, 8, rng)
    z, _ = complete(pairs, 12, 50, rng)
    components = TruncatedSVD(12, random_state=0).fit_transform(labels)
    assert recall_of_planted(z, group, 7) > 0.75
    assert recall_of_planted(components, group, 7) < 0.1


def test_no_matrix_of_all_pairs_is_formed(rng):
    first = np.sort(rng.integers(0, 3999, 20_000))
    pairs = Pairs(4000, first, first + 1, rng.random(20_000))
    tracemalloc.start()
    complete(pairs, 5, 3, rng)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4000**2 * 8 / 4


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
def test_without_l1_equals_ridge_regression(rng, n_features, form):
    features, z, weights = problem(rng, 12, n_features)
    found = fit_regressor(form(features), z, weights, l2_weight=0.7, l1_weight=0.0, **LONG)
    ridge = Ridge(0.7, fit_intercept=False, solver="cholesky").fit(features, z, weights)
    np.testing.assert_allclose(found, ridge.coef_.T, atol=1e-8)
    nearly = fit_regressor(form(features), z, weights, l2_weight=0.7, l1_weight=1e-9, **LONG)
    np.testing.assert_allclose(nearly, found, atol=1e-7)


@pytest.mark.parametrize("l1_weight", [0.05, 0.5, 1.5])
@pytest.mark.parametrize("penalty", [0.3, 1.0, 4.0])
def test_equals_a_generic_solver(rng, l1_weight, penalty):
    data = problem(rng)
    weights = {"l2_weight": 0.7, "l1_weight": l1_weight}
    found = fit_regressor(*data, **weights, **(LONG | {"penalty": penalty}))
    expected = generic_solution(*data, **weights)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert cost(found, *data, **weights) <= cost(expected, *data, **weights) + 1e-8


def test_admm_stops_at_the_tolerance(rng, monkeypatch):
    data = problem(rng)
    settings = {"l2_weight": 0.7, "l1_weight": 0.5, "penalty": 1.0}
    calls = []
    monkeypatch.setattr("cgmvae.methods.sleec.shrink", lambda *a: calls.append(1) or shrink(*a))
    fit_regressor(*data, **settings, iterations=3)
    assert len(calls) == 3
    rough = fit_regressor(*data, **settings, iterations=5000)
    assert 3 < len(calls) - 3 < 500
    exact = fit_regressor(*data, **settings, iterations=5000, tolerance=1e-12)
    np.testing.assert_allclose(rough, exact, atol=1e-2)


def test_products_of_rows_in_blocks(rng, monkeypatch):
    monkeypatch.setattr("cgmvae.methods.sleec.BLOCK_ROWS", 7)
    matrix = sp.random_array((40, 30), density=0.2, rng=rng, format="csr")
    np.testing.assert_allclose(outer_gram(matrix), matrix.toarray() @ matrix.toarray().T)


def quick(**changes) -> SLEEC:
    return SLEEC(**({"n_learners": 2, "n_neighbors": 7, "random_state": 0} | changes))


def test_prediction_is_a_vote_of_neighbors_in_the_nearest_cluster(survey, rng):
    Y = survey.Y.astype(np.float64)
    Y[rng.random(Y.shape) < 0.4] = np.nan
    Y[:, 3] = np.nan
    Y[:4, 3] = [1, 0, 1, 1]  # hardly any neighbor knows it
    model = quick(n_clusters=3, n_neighbors=4)
    model.fit(survey.X, Y, sample_weight=rng.choice([0.5, 1.0, 3.0], 120))
    rows = model.pipeline_.scaler.transform(survey.X[:40].astype(np.float64))
    assert (model.learners_[0].cluster_of_row != model.learners_[1].cluster_of_row).any()
    expected = np.mean([votes_of(model, learner, rows) for learner in model.learners_], axis=0)
    np.testing.assert_allclose(model.predict_proba(survey.X[:40].astype(np.float64)), expected)


def votes_of(model, learner, rows):
    """Return the votes of the nearest rows, one row and label at a time."""
    n_rows, n_labels = model.labels_.shape
    labels, unknown = model.labels_.toarray(), model.unknown_.toarray()

    def share(voters, label, prior):
        knowing = [i for i in voters if not unknown[i, label]]
        weights = [model.weights_[i] for i in knowing]
        for_it = sum(model.weights_[i] for i in knowing if labels[i, label])
        return (for_it + prior) / (sum(weights) + 1)

    answers = np.empty((len(rows), n_labels))
    for r, row in enumerate(rows):
        x = np.append(row / model.mean_length_, 1)
        x /= np.linalg.norm(x)
        cluster = min(range(3), key=lambda c: np.linalg.norm(x - learner.centers[c]))
        members = [i for i in range(n_rows) if learner.cluster_of_row[i] == cluster]
        z = learner.regressors[cluster].T @ x
        members.sort(key=lambda i: np.linalg.norm(z - learner.embeddings[i]))
        for label in range(n_labels):
            prior = share(members, label, share(range(n_rows), label, 0))
            answers[r, label] = share(members[:4], label, prior)
    return answers


def test_each_cluster_has_its_own_map_and_stores_its_predictions(survey):
    model = quick(n_clusters=3, n_learners=1, scaling="none").fit(
        survey.X[:100], survey.Y[:100], validation_data=(survey.X[100:], survey.Y[100:])
    )
    (learner,) = model.learners_
    inputs = as_inputs(survey.X[:100], model.mean_length_)
    np.testing.assert_allclose(np.linalg.norm(inputs, axis=1), 1)
    for cluster, regressor in enumerate(learner.regressors):
        members = learner.cluster_of_row == cluster
        np.testing.assert_allclose(learner.embeddings[members], inputs[members] @ regressor)
        mean = inputs[members].mean(axis=0)
        np.testing.assert_allclose(learner.centers[cluster], mean, atol=1e-6)


def test_the_default_number_of_clusters(survey, monkeypatch):
    monkeypatch.setattr(sleec, "ROWS_PER_CLUSTER", 40)
    model = quick(n_learners=1).fit(survey.X, survey.Y)  # 108 rows
    assert len(model.learners_[0].centers) == 3
    model = quick(n_learners=1, n_clusters=5).fit(survey.X, survey.Y)
    assert len(model.learners_[0].centers) == 5


@pytest.mark.parametrize(("n_clusters", "dim", "expected"), [(1, 50, 5), (1, 3, 3), (40, 50, 5)])
def test_embedding_dimensions(survey, n_clusters, dim, expected):
    model = quick(n_clusters=n_clusters, embedding_dim=dim).fit(survey.X, survey.Y)
    assert model.learners_[0].embeddings.shape == (108, expected)
    assert model.learners_[0].regressors.shape[2] == expected
    sizes = np.bincount(model.learners_[0].cluster_of_row)
    assert (sizes.min() < 5) == (n_clusters == 40)
    assert np.isfinite(model.predict_proba(survey.X)).all()


@pytest.mark.parametrize("value", [0.0, 3.0])
@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_equal_rows(survey, value, form):
    X = form(np.full((120, 6), value))
    model = quick(n_clusters=3, scaling="none").fit(X, survey.Y)
    p = model.predict_proba(X)
    assert len(model.learners_[0].centers) == 1
    assert np.ptp(p, axis=0).max() == 0
    np.testing.assert_allclose(p, model.predict_proba(form(np.zeros((1, 6)))).repeat(120, axis=0))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_mean_length_is_that_of_weighted_rows(rng, form):
    X, Y = rng.normal(2, 1, (40, 3)), rng.random((40, 2)) < 0.4
    weights = rng.choice([1, 5], 40)
    given = {"sample_weight": weights, "validation_data": (form(X), Y)}  # all rows train
    model = quick(scaling="none").fit(form(X), Y, **given)
    repeated = np.repeat(X, weights, axis=0)
    expected = np.sqrt((repeated**2).sum(axis=1).mean())
    assert model.mean_length_ == pytest.approx(expected)


def test_rows_that_differ_only_in_length(rng):
    X = rng.uniform(0, 2, (200, 1))
    Y = np.hstack([X > 1, X <= 1])
    model = quick(scaling="none", n_neighbors=15).fit(X, Y)
    assert model.predict_proba([[0.3]])[0, 0] < 0.2
    assert model.predict_proba([[1.7]])[0, 0] > 0.8


def test_wide_sparse_features_stay_sparse(rng):
    X = sp.random_array((300, 60_000), density=1e-3, format="csr", rng=rng)
    Y = (rng.random((300, 4)) < 0.4).astype(int)
    tracemalloc.start()
    model = quick(n_clusters=2, n_learners=1).fit(X, Y)
    model.predict_proba(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300 * 60_000 * 8 / 4


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("centers", lambda a: a[:, 1:]),
        ("embeddings", lambda a: a[1:]),
        ("cluster_of_row", lambda a: a + 1),
    ],
)
def test_a_damaged_file_is_rejected(survey, tmp_path, part, change):
    model = quick(n_clusters=2).fit(survey.X, survey.Y)
    learner = model.learners_[1]
    model.learners_[1] = learner._replace(**{part: change(getattr(learner, part))})
    model.save(tmp_path / "model")
    with pytest.raises(InputError, match="damaged"):
        cgmvae.load(tmp_path / "model")
