import numpy as np
import pytest
from matplotlib.figure import Figure

from cgmvae.errors import InputError
from cgmvae.methods import MLkNN
from cgmvae.report import TrainingHistoryDisplay


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


def test_what_was_not_trained_has_no_history():
    with pytest.raises(InputError, match="MLkNN has no history"):
        TrainingHistoryDisplay.from_estimator(MLkNN())
    with pytest.raises(InputError, match="history is empty"):
        TrainingHistoryDisplay({})
