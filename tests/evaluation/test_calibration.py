"""Calibration against scikit-learn, torchmetrics and cells dropped by hand."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.calibration import calibration_curve as sklearn_curve
from sklearn.metrics import brier_score_loss
from torchmetrics.functional.classification import binary_calibration_error

from cgmvae.errors import InputError
from cgmvae.evaluation import brier_score, calibration_curve, expected_calibration_error


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
