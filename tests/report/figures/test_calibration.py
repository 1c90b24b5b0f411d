import numpy as np
import pytest

from cgmvae.evaluation import expected_calibration_error
from cgmvae.report import CalibrationDisplay


def test_bins_and_error_are_those_of_the_probabilities(fitted):
    model, data = fitted
    display = CalibrationDisplay.from_estimator(model, data.X, data, n_bins=5).plot()
    scores = model.predict_proba(data.X).ravel()
    true = data.Y.ravel()
    line = display.ax_[0].lines[1]
    for i, (predicted, observed) in enumerate(zip(*line.get_data(), strict=True)):
        place = np.flatnonzero(display.curve.count)[i]
        own = np.minimum(scores * 5, 4).astype(int) == place
        assert display.curve.count[place] == own.sum()
        assert predicted == pytest.approx(scores[own].mean(), rel=1e-5)
        assert observed == pytest.approx(true[own].mean())
    error = expected_calibration_error(data.Y, model.predict_proba(data.X), n_bins=5)
    assert display.error == error
    assert display.ax_[0].get_title() == f"expected calibration error: {error:.3f}"
    heights = [bar.get_height() for bar in display.ax_[1].patches]
    assert heights == display.curve.count.tolist()


def test_unknown_labels_are_left_out_and_none_known_is_said():
    Y = np.array([[1, np.nan]])
    display = CalibrationDisplay.from_predictions(Y, [[0.9, 0.1]])
    assert display.curve.count.sum() == 1
    nothing = CalibrationDisplay.from_predictions(np.full((2, 1), np.nan), [[0.9], [0.1]]).plot()
    assert nothing.ax_[0].get_title() == "expected calibration error: no known label"
    nothing.figure_.draw_without_rendering()
