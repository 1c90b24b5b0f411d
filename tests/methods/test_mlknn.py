"""ML-kNN against a plain loop and scikit-multilearn-ng."""

import numpy as np
import pytest
import scipy.sparse as sp
from skmultilearn.adapt import MLkNN as OtherMLkNN

import cgmvae
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods import mlknn
from cgmvae.methods.mlknn import MLkNN


def fit(X, Y, *, sample_weight=None, **parameters):
    """Fit on exactly these rows, without scaling."""
    model = MLkNN(**({"scaling": "none", "random_state": 0} | parameters))
    return model.fit(X, Y, validation_data=(X, Y), sample_weight=sample_weight)


def plain(X, Y, queries, *, k, s, weights=None):
    """Return the posterior of each query and label, one label, row and neighbor at a time."""
    weights = np.ones(len(X)) if weights is None else weights
    p = np.empty((len(queries), Y.shape[1]))
    for label in range(Y.shape[1]):
        known = np.flatnonzero(~np.isnan(Y[:, label]) & (weights > 0))
        k_label = min(k, max(len(known) - 1, 0))

        def count(x, others, label=label, k_label=k_label):
            by_distance = sorted(others, key=lambda i: (np.linalg.norm(X[i] - x), i))
            return int(sum(Y[i, label] for i in by_distance[:k_label]))

        c, c_prime = np.zeros(k + 1), np.zeros(k + 1)
        for i in known:
            j = count(X[i], [other for other in known if other != i])
            (c if Y[i, label] == 1 else c_prime)[j] += weights[i]
        prior = (s + c.sum()) / (2 * s + c.sum() + c_prime.sum())
        for row, query in enumerate(queries):
            j = count(query, known)
            having = prior * (s + c[j]) / (s * (k + 1) + c.sum())
            without = (1 - prior) * (s + c_prime[j]) / (s * (k + 1) + c_prime.sum())
            p[row, label] = having / (having + without)
    return p


@pytest.mark.parametrize(("k", "s"), [(1, 1.0), (7, 0.3), (40, 2.0)])
def test_equals_a_plain_loop(survey, rng, k, s):
    X, Y = survey.X.astype(np.float64)[:60], survey.Y.astype(np.float64)[:60]
    Y[rng.random(Y.shape) < 0.3] = np.nan
    Y[rng.random(60) < 0.9, 1] = np.nan  # few know this one
    Y[:, 2] = np.nan
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], 60)
    model = fit(X, Y, k=k, s=s, sample_weight=weights)
    queries = survey.X[50:80].astype(np.float64)
    expected = plain(X, Y, queries, k=k, s=s, weights=weights)
    np.testing.assert_allclose(model.predict_proba(queries), expected, rtol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_equals_scikit_multilearn(survey, form):
    """Compare with a library that takes a row as its own neighbor unless told otherwise.

    Told to ignore the first neighbor, it does so for new rows too, which are not among the
    training rows; so it is told for the fit alone.
    """
    X, Y = survey.X.astype(np.float64), survey.Y
    other = OtherMLkNN(k=5, s=0.5, ignore_first_neighbours=1)
    other.fit(form(X[:80]), sp.lil_matrix(Y[:80]))
    other.ignore_first_neighbours = 0
    model = fit(form(X[:80]), Y[:80], k=5, s=0.5)
    np.testing.assert_allclose(model.prior_, other._prior_prob_true)
    queries = form(X[80:])
    p = model.predict_proba(queries)
    np.testing.assert_allclose(p, other.predict_proba(queries).toarray(), rtol=1e-12)
    np.testing.assert_array_equal(p >= 0.5, other.predict(queries).toarray())


@pytest.mark.parametrize("share", [0.0, 0.3, 0.95])
def test_sparse_rows_and_blocks_give_the_same_result(survey, rng, monkeypatch, share):
    X = np.where(np.abs(survey.X) < 0.5, 0, survey.X).astype(np.float64)
    Y = np.where(rng.random(survey.Y.shape) < share, np.nan, survey.Y)
    expected = fit(X, Y, k=5).predict_proba(X)
    sparse = fit(sp.csr_array(X), sp.csr_array(Y), k=5)
    np.testing.assert_allclose(sparse.predict_proba(sp.csr_array(X)), expected, rtol=1e-12)
    assert sp.issparse(sparse.features_)
    monkeypatch.setattr(mlknn, "_BLOCK_ROWS", 7)
    monkeypatch.setattr(mlknn, "_HELD_CELLS", 1)
    np.testing.assert_allclose(fit(X, Y, k=5).predict_proba(X), expected, rtol=1e-12)


def test_constant_and_unknown_labels(survey):
    Y = survey.Y.astype(np.float64)
    Y[:, 0], Y[:, 1], Y[:, 2] = 0, 1, np.nan
    p = fit(survey.X, Y).predict_proba(survey.X)
    assert p[:, 0].max() < 0.1
    assert p[:, 1].min() > 0.9
    np.testing.assert_allclose(p[:, 2], 0.5)
    assert (p[:, 2] > 0.5).all()  # a tie is the label's


def test_the_model_copies_its_training_data(survey):
    data = cgmvae.MultiLabelDataset(
        survey.X, survey.Y, unknown=np.arange(600).reshape(120, 5) % 7 == 0
    )
    model = fit(data.X, data)
    p = model.predict_proba(survey.X.copy())
    queries = survey.X.copy()
    for array in (data.X, data.Y, data.unknown):
        array[:] = 0
    np.testing.assert_array_equal(model.predict_proba(queries), p)


def test_constant_features_and_few_rows(survey):
    p = fit(np.ones((120, 3)), survey.Y, k=3).predict_proba(np.ones((2, 3)))
    assert ((p > 0) & (p < 1)).all()
    weights = np.zeros(120)
    for n_rows in (1, 2, 4):
        weights[:n_rows] = 1
        model = fit(survey.X, survey.Y, sample_weight=weights)
        assert model.n_neighbors_.tolist() == [n_rows - 1] * 5
        p = model.predict_proba(survey.X)
        expected = plain(survey.X[:n_rows], survey.Y[:n_rows], survey.X, k=10, s=1.0)
        np.testing.assert_allclose(p, expected, rtol=1e-12)


def test_later_parameters_do_not_change_a_fitted_or_saved_model(survey, tmp_path):
    model = fit(survey.X, survey.Y, k=4, s=0.5)
    expected = model.predict_proba(survey.X)
    model.set_params(k=7, s=3.0)
    np.testing.assert_array_equal(model.predict_proba(survey.X), expected)
    model.save(tmp_path / "model")
    loaded = cgmvae.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(survey.X), expected)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("features", lambda array: array[:-1]),
        ("labels.data", lambda array: array + 1),
        ("unknown.indices", lambda array: array + 5),
        ("counts", lambda array: array[:1]),
    ],
)
def test_a_damaged_file_is_refused(survey, rng, tmp_path, name, change):
    Y = np.where(rng.random(survey.Y.shape) < 0.3, np.nan, survey.Y)
    fit(survey.X, sp.csr_array(Y)).save(tmp_path / "model")
    tensors, description = read_tensors(tmp_path / "model")
    key = f"fitted.{name}"
    write_tensors(tmp_path / "model", tensors | {key: change(tensors[key])}, description)
    with pytest.raises(InputError, match="damaged"):
        cgmvae.load(tmp_path / "model")
