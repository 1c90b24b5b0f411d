"""Label neighbours against a plain loop; singular value projection against known solutions."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import TruncatedSVD

from cgmvae.methods.sleec_embedding import Pairs, complete, label_cosine, label_neighbours


def some_labels(rng, n_rows=60, n_labels=8, density=0.3):
    return (rng.random((n_rows, n_labels)) < density).astype(float)


def observed(matrix, mask=None):
    """Return the pairs of a symmetric matrix that a symmetric mask lets through."""
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
def test_the_cosine_is_taken_on_labels_that_both_know(rng, with_unknown):
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
    pairs = label_neighbours(as_if_counts, None, 6, rng)
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
    whole = label_neighbours(sp.csr_array(labels), None, 6, rng)
    z = rng.standard_normal((70, 4))
    residuals = whole.residuals(z)
    monkeypatch.setattr("cgmvae.methods.sleec_embedding.BLOCK_ROWS", 16)
    monkeypatch.setattr("cgmvae.methods.sleec_embedding.BLOCK_PAIRS", 50)
    parts = label_neighbours(sp.csr_array(labels), None, 6, rng)
    np.testing.assert_array_equal(parts.first, whole.first)
    np.testing.assert_array_equal(parts.second, whole.second)
    np.testing.assert_array_equal(parts.residuals(z), residuals)


def test_equal_rows_share_their_neighbours_out(rng):
    labels = sp.csr_array(np.ones((400, 3)))
    mask, values = dense(label_neighbours(labels, None, 10, rng))
    assert values[mask].min() == pytest.approx(1)
    n_neighbours = mask.sum(axis=1)
    assert n_neighbours.min() >= 10
    assert n_neighbours.max() < 50  # all 400 for some, were the first rows chosen


def test_fewer_rows_than_neighbours(rng):
    mask, _ = dense(label_neighbours(sp.csr_array(some_labels(rng, 5)), None, 100, rng))
    assert mask.all()


def test_pairs_stand_for_a_symmetric_matrix(rng):
    matrix = rng.standard_normal((9, 9))
    matrix = matrix + matrix.T
    pairs = observed(matrix)
    half = pairs.half(pairs.values).toarray()
    np.testing.assert_allclose(half + half.T, matrix)
    assert pairs.square_sum(pairs.values) == pytest.approx((matrix**2).sum())
    z = rng.standard_normal((9, 2))
    error = pairs.square_sum(pairs.residuals(z))
    assert error == pytest.approx(((matrix - z @ z.T) ** 2).sum())


@pytest.mark.parametrize("n_rows", [20, 150])
def test_all_observed_gives_the_truncated_eigendecomposition(rng, n_rows):
    vectors, _ = np.linalg.qr(rng.standard_normal((n_rows, n_rows)))
    values = np.concatenate([[9, 7, 5, 4], rng.uniform(-3, 2, n_rows - 5), [-12]])
    matrix = (vectors * values) @ vectors.T
    z, errors = complete(observed(matrix), 4, 200, rng, tolerance=0)
    expected = (vectors[:, :4] * values[:4]) @ vectors[:, :4].T
    np.testing.assert_allclose(z @ z.T, expected, atol=1e-6)
    assert errors[-1] == pytest.approx((values[4:] ** 2).sum())


def test_eigenvalues_below_zero_are_no_part_of_it(rng):
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


@pytest.mark.parametrize("n_neighbours", [3, 10, 40])
def test_the_error_falls_from_step_to_step(rng, n_neighbours):
    labels = sp.csr_array(some_labels(rng, 300, 20, 0.15))
    pairs = label_neighbours(labels, None, n_neighbours, rng)
    z, errors = complete(pairs, 6, 30, rng, tolerance=0)
    assert len(errors) > 5
    assert (np.diff(errors) < 0).all()
    mask, values = dense(pairs)
    assert errors[0] == pytest.approx((values**2).sum())
    assert errors[-1] == pytest.approx(((values - z @ z.T)[mask] ** 2).sum())


def test_steps_end_where_they_gain_little(rng):
    labels = sp.csr_array(some_labels(rng, 100, 20, 0.15))
    pairs = label_neighbours(labels, None, 10, rng)
    _, errors = complete(pairs, 5, 1000, rng, tolerance=0.05)
    gains = 1 - np.divide(errors[1:], errors[:-1])
    assert (gains[:-1] >= 0.05).all()
    assert gains[-1] < 0.05


def test_nothing_observed_but_zeros(rng):
    pairs = label_neighbours(sp.csr_array((50, 4)), None, 5, rng)
    z, errors = complete(pairs, 3, 10, rng)
    assert not z.any()
    assert errors == [0.0]


def recall_of_planted(z, group, n_neighbours):
    distance = ((z[:, None] - z[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[:, :n_neighbours]
    return (group[nearest] == group[:, None]).mean()


def test_planted_neighbours_stay_neighbours(rng):
    """60 groups of 8 rows share rare labels; 8 frequent labels say nothing about groups."""
    group = np.repeat(np.arange(60), 8)
    rare = np.repeat(np.eye(60)[group], 3, axis=1)
    labels = np.hstack([some_labels(rng, 480, 8, 0.5), rare])
    pairs = label_neighbours(sp.csr_array(labels), None, 8, rng)
    z, _ = complete(pairs, 12, 50, rng)
    others = {
        "principal components": TruncatedSVD(12, random_state=0).fit_transform(labels),
        "all pairs": complete(label_neighbours(sp.csr_array(labels), None, 480, rng), 12, 50, rng)[
            0
        ],
        "random": rng.standard_normal((480, 12)),
    }
    assert recall_of_planted(z, group, 7) > 0.75
    for name, other in others.items():
        assert recall_of_planted(other, group, 7) < 0.1, name


def test_no_matrix_of_all_pairs_is_formed(rng):
    first = np.sort(rng.integers(0, 3999, 20_000))
    pairs = Pairs(4000, first, first + 1, rng.random(20_000))
    tracemalloc.start()
    complete(pairs, 5, 3, rng)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4000**2 * 8 / 4
