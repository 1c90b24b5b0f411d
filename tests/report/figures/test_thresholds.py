import numpy as np
import pytest

from cgmvae import evaluation
from cgmvae.errors import InputError
from cgmvae.evaluation import GlobalThreshold, LabelThresholds, TopK
from cgmvae.evaluation.metrics import SET_METRICS
from cgmvae.report import ThresholdCurveDisplay


def test_curves_are_the_metrics_at_each_threshold(fitted):
    model, data = fitted
    display = ThresholdCurveDisplay.from_estimator(model, data.X, data)
    scores = model.predict_proba(data.X)
    assert tuple(display.values) == SET_METRICS
    for name in SET_METRICS:
        metric = getattr(evaluation, name)
        for place in (0, 30, 98):
            guess = scores >= np.float32(display.thresholds[place])
            assert display.values[name][place] == pytest.approx(metric(data.Y, guess))
        expected = [metric(data.Y, scores >= np.float32(t / 10)) for t in range(1, 10)]
        np.testing.assert_allclose(display.grid_values[name], expected)
    assert display.chosen.tolist() == [model.threshold_rule_.threshold]


def test_the_best_and_the_chosen_thresholds_are_marked(fitted):
    model, data = fitted
    display = ThresholdCurveDisplay.from_estimator(model, data.X, data, metrics=["micro_f1"])
    display.plot()
    chosen, curve, star = display.ax_.lines[:3]
    assert chosen.get_xdata()[0] == model.threshold_rule_.threshold
    best = display.values["micro_f1"].max()
    place = display.thresholds.tolist().index(display.best["micro_f1"])
    assert display.values["micro_f1"][place] == best
    assert curve.get_ydata().max() == best
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (display.best["micro_f1"], best)
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts[:2] == [f"chosen, {display.chosen[0]:.2f}", "micro-F1"]
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


def test_unknown_labels_are_left_out_and_no_positive_is_drawn():
    Y, scores = np.array([[1.0, np.nan], [0.0, np.nan]]), np.array([[0.8, 0.9], [0.1, 0.9]])
    display = ThresholdCurveDisplay.from_predictions(Y, scores)
    assert display.values["micro_f1"].max() == 1
    nothing = ThresholdCurveDisplay.from_predictions(np.zeros((2, 1)), np.full((2, 1), 0.5)).plot()
    assert (nothing.values["micro_f1"] == 0).all()


def test_labels_of_another_model_are_refused(fitted, survey):
    model, data = fitted
    other = type(data)(survey.X, survey.Y, label_names=["a", "b", "c", "d", "e"])
    with pytest.raises(InputError, match="not the model's labels"):
        ThresholdCurveDisplay.from_estimator(model, data.X, other)
