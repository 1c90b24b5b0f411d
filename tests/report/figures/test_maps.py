"""Maps of labels and of their latent Gaussians."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA

from cgmvae.errors import InputError
from cgmvae.methods import MLkNN
from cgmvae.report import LabelMapDisplay, LatentMapDisplay
from cgmvae.report.figures.maps import label_frequency, principal_plane, scaled_plane


def test_scaling_keeps_the_distances_of_unit_vectors_in_a_plane_off_the_center(rng):
    angles = rng.uniform(0, 2 * np.pi, 12)
    vectors = np.column_stack([0.6 * np.cos(angles), 0.6 * np.sin(angles), np.full(12, 0.8)])
    plane = scaled_plane(vectors @ vectors.T)
    np.testing.assert_allclose(pdist(plane.coordinates), pdist(vectors))
    assert plane.shares.sum() == pytest.approx(1)


def test_components_are_those_of_scikit_learn(rng):
    points = rng.normal(size=(20, 6))
    plane, oracle = principal_plane(points), PCA(2).fit(points)
    np.testing.assert_allclose(np.abs(plane.coordinates), np.abs(oracle.transform(points)))
    np.testing.assert_allclose(plane.shares, oracle.explained_variance_ratio_)
    farthest = np.abs(plane.coordinates).argmax(0)
    assert (plane.coordinates[farthest, [0, 1]] > 0).all()


def test_a_models_labels_are_mapped(fitted, points_of):
    model, data = fitted
    similar = LabelMapDisplay.from_estimator(model, data).plot()
    np.testing.assert_array_equal(
        similar.coordinates, scaled_plane(model.label_similarity()).coordinates
    )
    np.testing.assert_array_equal(similar.frequency, data.Y.sum(0))
    np.testing.assert_allclose(points_of(similar.ax_), similar.coordinates)
    assert {text.get_text() for text in similar.ax_.texts} == set(data.label_names)


def test_of_many_labels_some_are_named_and_the_title_says_so(rng, texts_apart):
    similarity = np.corrcoef(rng.normal(size=(983, 8)))
    display = LabelMapDisplay.from_similarity(similarity).plot(max_names=30)
    assert len(display.ax_.texts) == 30
    assert display.ax_.get_title().endswith("30 of 983 labels named")
    assert texts_apart(display.figure_, display.ax_.texts)


@pytest.mark.parametrize("n_labels", [1, 2])
def test_one_or_two_labels_have_a_map(n_labels):
    frequency = np.zeros(n_labels)
    display = LabelMapDisplay.from_similarity(np.eye(n_labels), frequency=frequency).plot()
    assert display.coordinates.shape == (n_labels, 2)
    assert np.isfinite(display.coordinates).all()
    assert len(display.ax_.texts) == n_labels
    LatentMapDisplay.from_gaussians(np.eye(n_labels), np.ones((n_labels, n_labels))).plot()


def test_frequency_leaves_unknown_labels_out():
    Y = np.array([[1, np.nan], [1, 0], [np.nan, 1]])
    assert label_frequency(Y, ["a", "b"]).tolist() == [2, 1]


def test_ellipses_are_the_models_gaussians_in_the_plane_of_their_means(fitted):
    model, data = fitted
    display = LatentMapDisplay.from_estimator(model, member=1)
    own = slice(4, 8)
    priors = [model.label_prior(name) for name in data.label_names]
    means = np.array([mean[own] for mean, _ in priors], np.float64)
    plane = principal_plane(means)
    np.testing.assert_allclose(display.means, plane.coordinates, atol=1e-6)
    for label, (_, variance) in enumerate(priors):
        expected = plane.axes.T @ np.diag(variance[own]) @ plane.axes
        np.testing.assert_allclose(display.covariances[label], expected, atol=1e-6)


def test_an_ellipse_reaches_one_standard_deviation_in_its_direction():
    means = np.array([[0.0, 0.0], [5.0, 0.0]])
    display = LatentMapDisplay.from_gaussians(means, [[4.0, 1.0], [1.0, 9.0]])
    width, height, angle = display.ellipses()
    np.testing.assert_allclose(width, [4, 6])
    np.testing.assert_allclose(height, [2, 2])
    np.testing.assert_allclose(np.abs(np.cos(np.radians(angle))), [1, 0], atol=1e-9)
    display.plot()
    (left, right), (low, high) = display.ax_.get_xlim(), display.ax_.get_ylim()
    assert left < display.means[:, 0].min() - 1
    assert low < -3
    assert high > 3
    assert right > left


def test_models_without_a_map_are_rejected(fitted):
    model, _ = fitted
    with pytest.raises(InputError, match="no member 2; choose one of 0 to 1"):
        LatentMapDisplay.from_estimator(model, member=2)
    with pytest.raises(InputError, match="MLkNN has no Gaussian per label"):
        LatentMapDisplay.from_estimator(MLkNN())
