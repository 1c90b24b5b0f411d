"""SLEEC: votes against a plain loop, ensembles, odd data; the solvers have files of their own."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import cgmvae
from cgmvae.errors import InputError
from cgmvae.methods import sleec
from cgmvae.methods.sleec import SLEEC
from cgmvae.methods.sleec_clusters import as_inputs


def quick(**changes) -> SLEEC:
    return SLEEC(**({"n_learners": 2, "n_neighbors": 7, "random_state": 0} | changes))


def test_prediction_is_a_vote_of_neighbours_in_the_nearest_cluster(survey, rng):
    Y = survey.Y.astype(np.float64)
    Y[rng.random(Y.shape) < 0.4] = np.nan
    Y[:, 3] = np.nan
    Y[:4, 3] = [1, 0, 1, 1]  # hardly any neighbour knows it
    model = quick(n_clusters=3, n_neighbors=4)
    model.fit(survey.X, Y, sample_weight=rng.choice([0.5, 1.0, 3.0], 120))
    rows = model.scaler_.transform(survey.X[:40].astype(np.float64))
    expected = np.mean([votes_of(model, learner, rows) for learner in model.learners_], axis=0)
    np.testing.assert_allclose(model.predict_proba(survey.X[:40].astype(np.float64)), expected)


def votes_of(model, learner, rows):
    """Return what the rows nearest to each row say, one row and label at a time."""
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
        cluster = min(range(3), key=lambda c: np.linalg.norm(x - learner.centres[c]))
        members = [i for i in range(n_rows) if learner.cluster_of_row[i] == cluster]
        z = learner.regressors[cluster].T @ x
        members.sort(key=lambda i: np.linalg.norm(z - learner.embeddings[i]))
        for label in range(n_labels):
            prior = share(members, label, share(range(n_rows), label, 0))
            answers[r, label] = share(members[:4], label, prior)
    return answers


def test_each_cluster_has_a_map_of_its_own_and_keeps_what_it_predicts(survey):
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
        np.testing.assert_allclose(learner.centres[cluster], mean, atol=1e-6)


def test_learners_are_averaged_and_differ(survey):
    model = quick(n_learners=3, n_clusters=2).fit(survey.X, survey.Y)
    learners, p = model.learners_, model.predict_proba(survey.X)
    alone = []
    for learner in learners:
        model.learners_ = [learner]
        alone.append(model.predict_proba(survey.X))
    np.testing.assert_allclose(p, np.mean(alone, axis=0), atol=1e-12)
    assert np.abs(alone[0] - alone[1]).max() > 0.05
    assert (learners[0].cluster_of_row != learners[1].cluster_of_row).any()


def test_the_number_of_clusters_follows_from_the_rows(survey, monkeypatch):
    monkeypatch.setattr(sleec, "ROWS_PER_CLUSTER", 40)
    model = quick(n_learners=1).fit(survey.X, survey.Y)  # 108 rows
    assert len(model.learners_[0].centres) == 3
    model = quick(n_learners=1, n_clusters=5).fit(survey.X, survey.Y)
    assert len(model.learners_[0].centres) == 5


@pytest.mark.parametrize(("n_clusters", "dim", "expected"), [(1, 50, 5), (1, 3, 3), (40, 50, 5)])
def test_embeddings_are_as_long_as_can_be(survey, n_clusters, dim, expected):
    model = quick(n_clusters=n_clusters, embedding_dim=dim).fit(survey.X, survey.Y)
    assert model.learners_[0].embeddings.shape == (108, expected)
    assert model.learners_[0].regressors.shape[2] == expected
    sizes = np.bincount(model.learners_[0].cluster_of_row)
    assert (sizes.min() < 5) == (n_clusters == 40)
    assert np.isfinite(model.predict_proba(survey.X)).all()


def test_labels_that_features_give_away_are_learnt(rng):
    """Rows of 30 kinds with two labels each: neighbours by label must be found by features."""
    kind = np.repeat(np.arange(30), 12)
    code = rng.standard_normal((30, 20))
    X = np.hstack([code[kind], rng.standard_normal((360, 60))])  # most of it says nothing
    Y = np.zeros((360, 60))
    Y[np.arange(360), 2 * kind] = Y[np.arange(360), 2 * kind + 1] = 1
    shuffled = rng.permutation(360)
    X, Y = X[shuffled], Y[shuffled]
    model = quick(embedding_dim=20, n_neighbors_svp=10, n_neighbors=5)
    model.fit(X[:300], Y[:300], validation_data=(X[300:330], Y[300:330]))
    found = np.argsort(-model.predict_proba(X[330:]), axis=1)[:, :2]
    assert np.take_along_axis(Y[330:], found, axis=1).mean() > 0.9


def test_a_row_without_weight_or_known_labels_has_no_influence(survey, rng):
    X, Y, held = survey.X[:90], survey.Y[:90].astype(float), (survey.X[90:], survey.Y[90:])
    weights = rng.choice([0.0, 1.0, 2.0], 90)
    Y[(weights > 0) & (rng.random(90) < 0.1)] = np.nan
    kept = (weights > 0) & ~np.isnan(Y[:, 0])

    def predictions(rows, X=X, Y=Y, scale=1.0):
        model = quick(scaling="none", n_clusters=2)
        model.fit(X[rows], Y[rows], sample_weight=scale * weights[rows], validation_data=held)
        return model.predict_proba(survey.X)

    expected = predictions(kept)
    np.testing.assert_array_equal(predictions(slice(None)), expected)
    changed = np.where(kept[:, None], X, 7), np.where(weights[:, None] == 0, 1 - Y, Y)
    np.testing.assert_array_equal(predictions(slice(None), *changed), expected)
    np.testing.assert_allclose(predictions(kept, scale=8.0), expected, atol=1e-12)
    weights[kept] = 1
    assert np.abs(predictions(kept) - expected).max() > 0.05


def test_weights_count_in_votes_and_in_the_map(survey, rng):
    weights = rng.choice([0.1, 5.0], 120)
    held = (survey.X[:10], survey.Y[:10])
    plain = quick(n_learners=1).fit(survey.X, survey.Y, validation_data=held)
    weighted = quick(n_learners=1)
    weighted.fit(survey.X, survey.Y, sample_weight=weights, validation_data=held)
    maps = plain.learners_[0].regressors, weighted.learners_[0].regressors
    assert np.abs(maps[0] - maps[1]).max() > 1e-3
    p = weighted.predict_proba(survey.X)
    weighted.weights_ = np.ones(120)
    assert np.abs(weighted.predict_proba(survey.X) - p).max() > 0.05


def test_a_label_that_is_never_there_or_never_known(survey):
    Y = survey.Y.astype(np.float64)
    Y[:, 1], Y[:, 2], Y[:, 4] = 0, 1, np.nan
    p = quick().fit(survey.X, Y).predict_proba(survey.X)
    assert p[:, 1].max() == 0
    assert p[:, 2].min() > 0.98
    assert p[:, 4].max() == 0


@pytest.mark.parametrize("fill", [0, 1, np.nan])
def test_labels_that_are_all_the_same(survey, fill):
    Y = np.full(survey.Y.shape, fill, dtype=float)
    p = quick().fit(survey.X, Y).predict_proba(survey.X)
    np.testing.assert_allclose(p, 1 if fill == 1 else 0, atol=0.02)


@pytest.mark.parametrize("value", [0.0, 3.0])
@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_rows_that_are_all_the_same(survey, value, form):
    X = form(np.full((120, 6), value))
    model = quick(n_clusters=3, scaling="none").fit(X, survey.Y)
    p = model.predict_proba(X)
    assert len(model.learners_[0].centres) == 1
    assert np.ptp(p, axis=0).max() == 0
    np.testing.assert_allclose(p, model.predict_proba(form(np.zeros((1, 6)))).repeat(120, axis=0))


def test_rows_that_differ_in_length_only_are_told_apart(rng):
    X = rng.uniform(0, 2, (200, 1))
    Y = np.hstack([X > 1, X <= 1])
    model = quick(scaling="none", n_neighbors=15).fit(X, Y)
    assert model.predict_proba([[0.3]])[0, 0] < 0.2
    assert model.predict_proba([[1.7]])[0, 0] > 0.8


def test_two_rows_will_do(survey):
    held = (survey.X, survey.Y)
    model = quick().fit(survey.X[:2], survey.Y[:2], validation_data=held)
    assert np.isfinite(model.predict_proba(survey.X)).all()


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
    "parameters",
    [
        {"embedding_dim": 0},
        {"n_clusters": 0},
        {"n_neighbors": 2.5},
        {"n_neighbors_svp": 0},
        {"n_learners": 0},
        {"svp_iterations": 0},
        {"admm_iterations": -1},
        {"l2_weight": 0.0},
        {"admm_penalty": 0.0},
        {"l1_weight": -0.1},
        {"l1_weight": np.nan},
    ],
)
def test_impossible_parameters_are_named(survey, parameters):
    (name,) = parameters
    with pytest.raises(InputError, match=name):
        quick(**parameters).fit(survey.X, survey.Y)


def test_a_saved_model_keeps_unknown_labels_and_weights(survey, rng, tmp_path):
    Y = np.where(rng.random(survey.Y.shape) < 0.3, np.nan, survey.Y)
    model = quick(n_clusters=2).fit(survey.X, Y, sample_weight=rng.random(120))
    expected = model.predict_proba(survey.X)
    model.set_params(n_neighbors=1).save(tmp_path / "model")
    loaded = cgmvae.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(survey.X), expected)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("centres", lambda a: a[:, 1:]),
        ("regressors", lambda a: a[:1]),
        ("embeddings", lambda a: a[1:]),
        ("cluster_of_row", lambda a: a * 0),
        ("cluster_of_row", lambda a: a + 1),
    ],
)
def test_a_file_whose_parts_do_not_fit_is_refused(survey, tmp_path, part, change):
    model = quick(n_clusters=2).fit(survey.X, survey.Y)
    learner = model.learners_[1]
    model.learners_[1] = learner._replace(**{part: change(getattr(learner, part))})
    model.save(tmp_path / "model")
    with pytest.raises(InputError, match="damaged"):
        cgmvae.load(tmp_path / "model")
