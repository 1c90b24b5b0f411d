"""Calibration against scikit-learn, torchmetrics and cells dropped by hand."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit, logit
from sklearn.calibration import calibration_curve as sklearn_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss
from torchmetrics.functional.classification import binary_calibration_error

from cgmvae.errors import InputError
from cgmvae.evaluation import (
    brier_score,
    calibration_curve,
    expected_calibration_error,
    learn_calibration,
)


@pytest.fixture
def rows(rng):
    Y = (rng.random((80, 5)) < 0.3).astype(int)
    return Y, np.clip(0.2 * rng.standard_normal(Y.shape) + 0.2 + 0.5 * Y, 0.001, 0.999)


@pytest.mark.parametrize("n_bins", [1, 2, 15, 100])
def test_curve_agrees_with_scikit_learn(rows, n_bins):
    Y, probabilities = rows
    curve = calibration_curve(Y, probabilities, n_bins=n_bins)
    observed, predicted = sklearn_curve(Y.ravel(), probabilities.ravel(), n_bins=n_bins)
    filled = curve.count > 0
    np.testing.assert_allclose(curve.observed[filled], observed, rtol=0, atol=1e-12)
    np.testing.assert_allclose(curve.predicted[filled], predicted, rtol=0, atol=1e-12)
    assert np.isnan(curve.observed[~filled]).all()
    assert np.isnan(curve.predicted[~filled]).all()
    assert (len(curve.count), curve.count.sum()) == (n_bins, Y.size)


@pytest.mark.parametrize("n_bins", [1, 10, 15])
def test_error_agrees_with_torchmetrics(rows, n_bins):
    Y, probabilities = rows
    args = torch.as_tensor(probabilities).ravel(), torch.as_tensor(Y).ravel()
    expected = float(binary_calibration_error(*args, n_bins=n_bins, norm="l1"))
    error = expected_calibration_error(Y, probabilities, n_bins=n_bins)
    assert error == pytest.approx(expected, abs=1e-6)


def test_brier_score_agrees_with_scikit_learn(rows):
    Y, probabilities = rows
    expected = brier_score_loss(Y.ravel(), probabilities.ravel())
    assert brier_score(Y, probabilities) == pytest.approx(expected, abs=1e-12)


def test_unknown_cells_are_left_out(rows, rng):
    Y, probabilities = rows
    unknown = rng.random(Y.shape) < 0.3
    kept, p = Y[~unknown][None], probabilities[~unknown][None]
    for function in (expected_calibration_error, brier_score):
        assert function(Y, probabilities, unknown=unknown) == function(kept, p)
        sparse = function(sp.csr_array(Y), probabilities, unknown=sp.csr_array(unknown))
        assert sparse == function(kept, p)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_border_belongs_to_the_upper_bin(dtype):
    borders = (np.arange(0, 11) / 10).astype(dtype)[None]
    curve = calibration_curve(np.ones(borders.shape), borders, n_bins=10)
    assert curve.count.tolist() == [1] * 9 + [2]


def test_where_nothing_is_known_nothing_is_defined():
    args = [[1, 0]], [[0.5, 0.5]]
    unknown = np.array([[True, True]])
    assert math.isnan(expected_calibration_error(*args, unknown=unknown))
    assert math.isnan(brier_score(*args, unknown=unknown))
    assert calibration_curve(*args, unknown=unknown).count.sum() == 0


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.inf])
def test_what_is_no_probability_is_refused(bad):
    with pytest.raises(InputError, match="between 0 and 1"):
        brier_score([[1, 0]], [[0.5, bad]])


def test_the_number_of_bins_is_checked():
    with pytest.raises(InputError, match="n_bins"):
        expected_calibration_error([[1]], [[0.5]], n_bins=0)


@pytest.fixture(scope="module")
def calibrated():
    """Return labels drawn from their probabilities, the probabilities, and folds."""
    rng = np.random.default_rng(0)
    probabilities = expit(1.5 * rng.standard_normal((4000, 3)) + [-2, 0, 1])
    Y = rng.random(probabilities.shape) < probabilities
    return Y, probabilities, rng.integers(5, size=len(Y))


def test_a_distorted_model_is_restored(calibrated):
    Y, probabilities, folds = calibrated
    shifts = np.array([1.2, 0.8, 1.0])
    distorted = expit(3 * logit(probabilities) + shifts)
    found, scores = learn_calibration(Y, distorted, folds)
    assert found.temperature == pytest.approx(3, rel=0.05)
    np.testing.assert_allclose(found.shifts, -shifts / 3, atol=0.1)
    np.testing.assert_allclose(found.apply(distorted), probabilities, atol=0.03)
    np.testing.assert_allclose(scores, probabilities, atol=0.03)


def test_a_share_of_the_temperature_keeps_mean_probabilities(calibrated):
    Y, probabilities, folds = calibrated
    distorted = expit(1.5 * logit(probabilities))
    whole, part = (learn_calibration(Y, distorted, folds, share=share)[0] for share in (1, 0.5))
    assert part.temperature == pytest.approx(whole.temperature**0.5)
    np.testing.assert_allclose(part.apply(distorted).mean(0), Y.mean(0), atol=0.02)


def test_a_calibrated_model_stays_as_it_is(calibrated):
    Y, probabilities, folds = calibrated
    found, scores = learn_calibration(Y, probabilities, folds)
    assert found is None
    np.testing.assert_array_equal(scores, probabilities)


def test_one_label_is_scaled_like_platt(calibrated):
    Y, probabilities, folds = calibrated
    odds = 2 * logit(probabilities[:, [1]]) - 0.5
    found, _ = learn_calibration(Y[:, [1]], expit(odds), folds)
    expected = LogisticRegression(C=np.inf).fit(odds, Y[:, 1])
    assert 1 / found.temperature == pytest.approx(expected.coef_[0, 0], rel=0.01)
    assert found.shifts[0] == pytest.approx(expected.intercept_[0], abs=0.01)


def test_a_fold_is_calibrated_by_the_others(calibrated):
    Y, probabilities, folds = calibrated
    distorted = expit(3 * logit(probabilities))
    own = folds == 2
    _, expected = learn_calibration(Y, distorted, folds)
    changed = Y.copy()
    changed[own] = np.random.default_rng(1).random(changed[own].shape) < 0.5
    _, scores = learn_calibration(changed, distorted, folds)
    np.testing.assert_array_equal(scores[own], expected[own])
    assert not np.allclose(scores[~own], expected[~own], atol=1e-3)


def test_unknown_cells_do_not_calibrate(calibrated):
    Y, probabilities, folds = calibrated
    distorted, unknown = expit(3 * logit(probabilities)), np.zeros(Y.shape, bool)
    unknown[::2] = True
    known = learn_calibration(Y[1::2], distorted[1::2], folds[1::2])[0]
    assert learn_calibration(Y ^ unknown, distorted, folds, unknown=unknown)[0] == known


def test_a_single_fold_calibrates_nothing(calibrated):
    Y, probabilities, folds = calibrated
    assert learn_calibration(Y, probabilities**3, np.zeros_like(folds))[0] is None
