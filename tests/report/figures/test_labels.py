import numpy as np
import pytest
from sklearn.metrics import f1_score

from cgmvae.report import LabelF1Display


def test_f1_and_share_are_those_of_each_column(fitted):
    model, data = fitted
    display = LabelF1Display.from_estimator(model, data.X, data)
    predicted = model.predict(data.X)
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
    assert display.ax_.get_title() == "4 labels; 1 that no row has are not shown"
    assert {text.get_text() for text in display.ax_.texts} == {"a", "c", "d"}


def test_the_line_is_the_score_of_predicting_a_label_everywhere():
    Y = np.array([[1, 1], [0, 1], [0, 0], [0, 0]])
    display = LabelF1Display.from_predictions(Y, np.ones_like(Y)).plot()
    (line,) = display.ax_.lines
    drawn = np.interp(100 * display.share, line.get_xdata(), line.get_ydata())
    np.testing.assert_allclose(drawn, display.f1, atol=1e-3)


def test_names_are_text_on_paper_and_page(odd_names, texts_apart, rng):
    Y, predicted = rng.integers(0, 2, (2, 40, 5))
    display = LabelF1Display.from_predictions(Y, predicted, label_names=odd_names).plot()
    assert "$a$" in {text.get_text() for text in display.ax_.texts}
    assert not any(text.get_parse_math() for text in display.ax_.texts)
    assert texts_apart(display.figure_, display.ax_.texts)
    seen, missed = display.to_plotly().data
    assert list(seen.text[:2]) == ["&lt;b&gt;x&lt;/b&gt;", "&#36;a&#36;"]
    assert len(seen.x) == 5
    assert len(missed.x) == 0


def test_983_labels_are_drawn_with_names_apart(rng, texts_apart):
    Y = rng.uniform(size=(100, 983)) < rng.uniform(0.01, 0.5, 983)
    predicted = rng.uniform(size=Y.shape) < 0.2
    display = LabelF1Display.from_predictions(Y, predicted).plot()
    assert 10 < len(display.ax_.texts) <= 60
    assert texts_apart(display.figure_, display.ax_.texts)


@pytest.mark.parametrize("Y", [np.zeros((3, 2)), np.full((3, 2), np.nan), np.ones((3, 1))])
def test_nothing_true_nothing_known_and_one_label_can_be_drawn(Y):
    display = LabelF1Display.from_predictions(Y, np.zeros_like(Y)).plot()
    display.figure_.draw_without_rendering()
    assert display.never_predicted.tolist() == (Y == 1).any(0).tolist()
