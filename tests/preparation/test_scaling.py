"""The scaler against scikit-learn's, dense and sparse, with gaps."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from cgmvae.data import mapped
from cgmvae.errors import InputError
from cgmvae.preparation.scaling import MAX_SCALED, FeatureScaler


@pytest.fixture
def X(rng):
    """Return features of different sizes; one is constant, one always 0, one often 0."""
    X = rng.normal(3, [1, 10, 0.1, 1, 1, 1], (50, 6))
    X[:, 3], X[:, 4] = 0.1, 0
    X[rng.random(50) < 0.7, 5] = 0
    return X


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


@pytest.mark.parametrize("missing", [0, 0.3])
@pytest.mark.parametrize(
    ("kind", "sparse", "reference"),
    [
        ("auto", False, StandardScaler()),
        ("standardize", False, StandardScaler()),
        ("standardize", True, StandardScaler(with_mean=False)),
        ("auto", True, MaxAbsScaler()),
        ("max-abs", True, MaxAbsScaler()),
        ("max-abs", False, MaxAbsScaler()),
    ],
)
def test_against_scikit_learn(X, rng, kind, sparse, reference, missing):
    gaps = rng.random(X.shape) < missing
    X[gaps] = np.nan
    scaler = FeatureScaler(kind)
    found = scaler.fit_transform(sp.csr_array(X) if sparse else X)
    expected = reference.fit_transform(X)
    assert sp.issparse(found) == sparse
    np.testing.assert_allclose(dense(found)[~gaps], expected[~gaps], rtol=1e-12, atol=1e-12)
    mean = np.nanmean(expected, axis=0)
    np.testing.assert_allclose(
        dense(found)[gaps], np.broadcast_to(mean, X.shape)[gaps], rtol=1e-9, atol=1e-12
    )
    unseen = rng.normal(size=(7, 6))
    transformed = scaler.transform(sp.csr_array(unseen) if sparse else unseen)
    np.testing.assert_allclose(dense(transformed), reference.transform(unseen), rtol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("value", "n_rows"), [(0.1, 1000), (1e8 + 0.1, 3), (-1e-12, 1000)])
def test_a_constant_feature_keeps_its_scale(sparse, value, n_rows):
    """Rounding of the mean must not pass for a spread: unseen values would become enormous."""
    X = np.full((n_rows, 1), value)
    scaler = FeatureScaler("standardize").fit(sp.csr_array(X) if sparse else X)
    assert scaler.scale_.tolist() == [1]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["standardize", "max-abs", "none"])
def test_what_was_never_there_becomes_zero(sparse, kind):
    X = np.array([[1.0, np.nan], [3.0, np.nan]])
    scaler = FeatureScaler(kind)
    found = dense(scaler.fit_transform(sp.csr_array(X) if sparse else X))
    assert found[:, 1].tolist() == [0, 0]
    gap = np.array([[np.nan, 5.0]])
    filled = dense(scaler.transform(sp.csr_array(gap) if sparse else gap))
    assert filled[0, 0] == pytest.approx(found[:, 0].mean())
    assert filled[0, 1] == 5


def test_no_scaling_fills_gaps_only(X):
    X[0, 0] = np.nan
    found = FeatureScaler("none").fit_transform(X)
    assert found[0, 0] == pytest.approx(np.nanmean(X[:, 0]))
    np.testing.assert_array_equal(found[1:], X[1:])


def test_explicit_gaps_of_a_sparse_row_take_the_mean_with_its_zeros():
    X = sp.csr_array(
        (np.array([4.0, np.nan, 2.0]), np.array([0, 0, 0]), np.array([0, 1, 2, 3, 3, 3])),
        shape=(5, 1),
    )
    found = FeatureScaler("auto").fit_transform(X)
    # Four rows are known: 4, 2, 0, 0; their mean is 1.5 and the largest 4.
    np.testing.assert_allclose(found.toarray().ravel(), [1, 1.5 / 4, 0.5, 0, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_precision_and_input_are_kept(X, dtype, form):
    given = form(X.astype(dtype))
    before = given.copy()
    assert FeatureScaler().fit_transform(given).dtype == dtype
    np.testing.assert_array_equal(dense(given), dense(before))


def test_an_unknown_scaling_is_refused(X):
    with pytest.raises(InputError, match="choose one of auto, standardize"):
        FeatureScaler("minmax").fit(X)


def test_sparse_rows_are_scaled_as_the_dense_rows_that_were_fitted(rng):
    X = rng.normal(3, 1, (20, 4)) * (rng.random((20, 4)) < 0.5)
    scaler = FeatureScaler().fit(X)
    assert scaler.kind_ == "standardize"
    np.testing.assert_array_equal(scaler.transform(sp.csr_array(X)), scaler.transform(X))


def test_measured_features_of_sparse_rows_are_standardized(X, rng):
    X[rng.random(X.shape) < 0.2] = np.nan
    words = np.where(rng.random((50, 20)) < 0.2, 0.3, 0.0)
    rows = sp.csr_array(np.hstack([X[:, :3], words, X[:, 3:]]))
    measured = np.array([True] * 3 + [False] * 20 + [True] * 3)
    scaler = FeatureScaler().fit(rows, measured)
    found = scaler.transform(rows)
    assert sp.issparse(found)
    expected = FeatureScaler("standardize").fit_transform(X)
    np.testing.assert_allclose(found.toarray()[:, measured], expected, atol=1e-12)
    np.testing.assert_array_equal(found.toarray()[:, ~measured], words)
    np.testing.assert_allclose(scaler.transform(rows.toarray()), found.toarray(), atol=1e-12)
    rows.eliminate_zeros()
    np.testing.assert_array_equal(scaler.transform(rows).toarray(), found.toarray())


def test_measured_features_do_not_matter_where_a_scaling_is_chosen(X):
    measured = np.ones(6, bool)
    for kind in ("max-abs", "none", "standardize"):
        found = FeatureScaler(kind).fit(sp.csr_array(X), measured).scale_
        np.testing.assert_array_equal(found, FeatureScaler(kind).fit(sp.csr_array(X)).scale_)
    dense_scaler = FeatureScaler().fit(X, measured)
    np.testing.assert_array_equal(dense_scaler.shift_, FeatureScaler().fit(X).shift_)


@pytest.mark.parametrize("kind", ["standardize", "max-abs"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_values_far_from_the_training_values_are_clipped(kind, form):
    scaler = FeatureScaler(kind).fit(form(np.array([[1e-30], [3e-30]], np.float32)))
    far = scaler.transform(form(np.array([[1e30], [-1e30]], np.float32)))
    assert dense(far).tolist() == [[MAX_SCALED], [-MAX_SCALED]]


@pytest.mark.parametrize("kind", ["standardize", "max-abs", "none"])
@pytest.mark.parametrize(("form", "dtype"), [(np.asarray, np.float32), (sp.csr_array, np.float64)])
def test_blocks_give_what_all_rows_at_once_give(X, rng, monkeypatch, kind, form, dtype):
    X[rng.random(X.shape) < 0.2] = np.nan
    given = form(X.astype(dtype))
    whole = FeatureScaler(kind).fit(given)
    expected = whole.transform(given)
    monkeypatch.setattr(mapped, "BLOCK_BYTES", 7 * 6 * 8)
    parts = FeatureScaler(kind).fit(given)
    for name in ("shift_", "scale_", "fill_"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-13)
    # The same numbers, and so the same rows to the last bit.
    np.testing.assert_array_equal(dense(whole.transform(given)), dense(expected))


def test_rows_on_disk_are_scaled_when_they_are_read(X, tmp_path):
    X[3, 1] = np.nan
    np.save(tmp_path / "X.npy", X)
    rows = mapped.MappedRows(np.load(tmp_path / "X.npy", mmap_mode="r")).take([9, 3, 40, 7])
    scaler = FeatureScaler().fit(rows)
    expected = FeatureScaler().fit(X[[3, 7, 9, 40]])
    np.testing.assert_array_equal(scaler.shift_, expected.shift_)
    np.testing.assert_array_equal(scaler.scale_, expected.scale_)
    scaled = scaler.transform(rows)
    assert isinstance(scaled, mapped.MappedRows)
    np.testing.assert_array_equal(scaled.gather([2, 1]), expected.transform(X[[40, 3]]))
