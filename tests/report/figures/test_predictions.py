"""F1 per label, threshold curves and calibration."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from cgmvae import evaluation
from cgmvae.evaluation import GlobalThreshold, LabelThresholds, TopK, expected_calibration_error
from cgmvae.evaluation.metrics import SET_METRICS
from cgmvae.report import CalibrationDisplay, LabelF1Display, ThresholdCurveDisplay


def test_f1_and_share_are_those_of_each_column(fitted):
    model, data = fitted
    predicted = model.predict(data.X)
    display = LabelF1Display.from_predictions(data, predicted)
    for label in range(5):
        expected = f1_score(data.Y[:, label], predicted[:, label])
        assert display.f1[label] == pytest.approx(expected)
    np.testing.assert_allclose(display.share, data.Y.mean(0))


def test_a_label_is_missed_absent_or_unknown():
    Y = np.array([[1, 0, 1, np.nan], [1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 1, np.nan]])
    predicted = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]])
    display = LabelF1Display.from_predictions(Y, predicted, label_names=list("abcd"))
    np.testing.assert_allclose(display.share, [0.5, 0, 0.75, 0.5])
    np.testing.assert_allclose(display.f1, [2 / 3, 0, 0, 1])
    assert display.never_predicted.tolist() == [False, False, True, False]
    display.plot()
    seen, missed = display.ax_.collections
    np.testing.assert_allclose(seen.get_offsets(), [[50, 2 / 3], [50, 1]])
    np.testing.assert_allclose(missed.get_offsets(), [[75, 0]])
    assert display.ax_.get_title() == "4 labels; 1 without a row is not shown"
    assert {text.get_text() for text in display.ax_.texts} == {"a", "c", "d"}
    (always,) = display.ax_.lines  # the F1 of predicting a label for every row
    assert np.interp(50, *always.get_data()) == pytest.approx(2 / 3, abs=1e-3)


@pytest.mark.parametrize("Y", [np.zeros((3, 2)), np.full((3, 2), np.nan), np.ones((3, 1))])
def test_nothing_true_nothing_known_and_one_label_can_be_drawn(Y):
    display = LabelF1Display.from_predictions(Y, np.zeros_like(Y)).plot()
    display.figure_.draw_without_rendering()
    assert display.never_predicted.tolist() == (Y == 1).any(0).tolist()


def test_curves_are_the_metrics_at_each_threshold(fitted):
    model, data = fitted
    scores, rule = model.predict_proba(data.X), model.threshold_rule_
    display = ThresholdCurveDisplay.from_predictions(data, scores, rule=rule)
    assert tuple(display.values) == SET_METRICS
    for name in SET_METRICS:
        metric = getattr(evaluation, name)
        for i in (0, 30, 98):
            guess = scores >= np.float32(display.thresholds[i])
            assert display.values[name][i] == pytest.approx(metric(data.Y, guess))
        expected = [metric(data.Y, scores >= np.float32(t / 10)) for t in range(1, 10)]
        np.testing.assert_allclose(display.grid_values[name], expected)
    assert display.chosen.tolist() == [model.threshold_rule_.threshold]


def test_the_best_and_the_chosen_thresholds_are_marked(fitted):
    model, data = fitted
    scores, rule = model.predict_proba(data.X), model.threshold_rule_
    display = ThresholdCurveDisplay.from_predictions(data, scores, rule=rule).plot()
    drawn = {line.get_label(): i for i, line in enumerate(display.ax_.lines)}
    chosen = display.ax_.lines[0]
    curve, star = display.ax_.lines[drawn["micro-F1"] :][:2]
    assert chosen.get_xdata()[0] == model.threshold_rule_.threshold
    best = display.values["micro_f1"].max()
    at = display.thresholds.tolist().index(display.best["micro_f1"])
    assert display.values["micro_f1"][at] == best
    assert curve.get_ydata().max() == best
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (display.best["micro_f1"], best)
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts[0] == f"chosen, {display.chosen[0]:.2f}"
    assert "micro-F1" in texts
    assert len(display.ax_.collections[-1].get_offsets()) == 9


@pytest.mark.parametrize(
    ("rule", "chosen"),
    [
        (LabelThresholds(np.array([0.2, 0.4, 0.6])), [0.2, 0.4, 0.6]),
        (GlobalThreshold(0.3), [0.3]),
        (TopK(2), []),
        (None, []),
    ],
)
def test_each_rule_gives_its_thresholds(rng, rule, chosen):
    Y, scores = rng.integers(0, 2, (20, 3)), rng.uniform(size=(20, 3))
    display = ThresholdCurveDisplay.from_predictions(Y, scores, rule=rule).plot()
    assert display.chosen.tolist() == chosen
    texts = " ".join(text.get_text() for text in display.ax_.get_legend().get_texts())
    assert ("chosen" in texts) == bool(chosen)
    assert ("median 0.40" in texts) == (len(chosen) == 3)


def test_unknown_labels_are_left_out():
    Y, scores = np.array([[1.0, np.nan], [0.0, np.nan]]), np.array([[0.8, 0.9], [0.1, 0.9]])
    assert ThresholdCurveDisplay.from_predictions(Y, scores).values["micro_f1"].max() == 1


def test_bins_and_error_are_those_of_the_probabilities(fitted):
    model, data = fitted
    scores = model.predict_proba(data.X).ravel()
    display = CalibrationDisplay.from_predictions(data, model.predict_proba(data.X)).plot()
    true = data.Y.ravel()
    line = display.ax_[0].lines[1]
    for i, (predicted, observed) in enumerate(zip(*line.get_data(), strict=True)):
        filled = np.flatnonzero(display.curve.count)[i]
        own = np.minimum(scores * 15, 14).astype(int) == filled
        assert display.curve.count[filled] == own.sum()
        assert predicted == pytest.approx(scores[own].mean(), rel=1e-5)
        assert observed == pytest.approx(true[own].mean())
    error = expected_calibration_error(data.Y, model.predict_proba(data.X), n_bins=15)
    assert display.error == error
    assert display.ax_[0].get_title() == f"expected calibration error: {error:.3f}"
    heights = [bar.get_height() for bar in display.ax_[1].patches]
    assert heights == display.curve.count.tolist()


def test_unknown_cells_are_not_calibrated():
    Y = np.array([[1, np.nan]])
    display = CalibrationDisplay.from_predictions(Y, [[0.9, 0.1]])
    assert display.curve.count.sum() == 1
    nothing = CalibrationDisplay.from_predictions(np.full((2, 1), np.nan), [[0.9], [0.1]]).plot()
    assert nothing.ax_[0].get_title() == "expected calibration error: no known label"
    nothing.figure_.draw_without_rendering()
