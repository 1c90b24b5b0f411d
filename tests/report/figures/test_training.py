"""Training history, and the effects of a search."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from cgmvae.errors import InputError
from cgmvae.methods import MLkNN
from cgmvae.report import TrainingHistoryDisplay, plot_effects
from cgmvae.search import SearchResult


def test_every_term_has_a_panel_with_members_mean_and_best_epochs(fitted):
    model, _ = fitted
    display = TrainingHistoryDisplay.from_estimator(model).plot()
    titles = [panel.get_title() for panel in display.ax_]
    assert titles == ["KL", "contrastive", "cross-entropy", "validation metric"]
    for panel, (name, series) in zip(display.ax_, model.history_.items(), strict=True):
        *members, mean = panel.lines
        assert len(members) == 2
        np.testing.assert_array_equal(members[1].get_ydata(), series[:, 1])
        np.testing.assert_allclose(mean.get_ydata(), series.mean(1))
        assert mean.get_xdata().tolist() == [1, 2, 3, 4]
        marks = panel.collections[0].get_offsets()
        expected = [[best, model.history_[name][best - 1, i]] for i, best in
                    enumerate(model.best_epoch_)]  # fmt: skip
        np.testing.assert_allclose(marks, expected)


def test_members_that_stopped_do_not_count_in_the_mean():
    history = {"kl": [[1.0, 3.0], [2.0, np.nan], [np.nan, np.nan]]}
    mean = TrainingHistoryDisplay(history).mean["kl"]
    np.testing.assert_array_equal(mean, [2, 2, np.nan])


def test_given_axes_are_used_and_must_be_enough():
    history = {"kl": np.ones((3, 1)), "validation": np.ones((3, 1))}
    panels = Figure().subplots(1, 2)
    display = TrainingHistoryDisplay(history, [3]).plot(panels)
    assert display.figure_ is panels[0].figure
    assert panels[1].get_title() == "validation metric"
    with pytest.raises(InputError, match="has 2 panels"):
        TrainingHistoryDisplay(history).plot(panels[0])


def test_a_model_without_training_history_is_rejected():
    with pytest.raises(InputError, match="MLkNN has no training history"):
        TrainingHistoryDisplay.from_estimator(MLkNN())
    with pytest.raises(InputError, match="history is empty"):
        TrainingHistoryDisplay({})


def test_effects_show_every_setting_and_the_medians(tmp_path):
    results = [
        SearchResult({"rate": rate, "kind": kind, "same": 1}, value, [value], epochs, finished)
        for rate, kind, value, epochs, finished in [
            (0.1, "a", 0.5, 4, True),
            (0.1, "b", 0.7, 3, True),  # it stopped by itself
            (0.2, "a", 0.9, 4, True),
            (0.2, "b", 0.1, 1, False),
        ]
    ]
    figure = plot_effects(results, metric="micro F1")
    rate, kind = (axes for axes in figure.axes if axes.get_visible())
    assert (rate.get_title(), kind.get_title()) == ("rate", "kind")
    assert rate.get_ylabel() == "micro F1"
    points = np.concatenate([part.get_offsets() for part in rate.collections])
    assert sorted(points[:, 1].tolist()) == [0.1, 0.5, 0.7, 0.9]
    np.testing.assert_allclose(rate.lines[0].get_ydata(), [0.6, 0.9])
    assert [label.get_text() for label in kind.get_xticklabels()] == ["a", "b"]
    figure.savefig(tmp_path / "effects.png")
    assert (tmp_path / "effects.png").stat().st_size > 1000
