"""Training history, fewer data, and critical differences."""

import itertools

import numpy as np
import pytest
from matplotlib.figure import Figure

from cgmvae.errors import InputError
from cgmvae.methods import MLkNN
from cgmvae.report import (
    CriticalDifferenceDisplay,
    FewerDataDisplay,
    LabelSimilarityDisplay,
    TrainingHistoryDisplay,
)
from cgmvae.report.figures.runs import display_of


def test_every_term_has_a_panel_with_members_mean_and_best_epochs(fitted):
    model, _ = fitted
    display = TrainingHistoryDisplay.from_estimator(model).plot()
    titles = [panel.get_title() for panel in display.ax_]
    assert titles == ["KL", "contrastive", "cross-entropy", "validation metric"]
    for panel, series in zip(display.ax_, model.history_.values(), strict=True):
        *members, mean = panel.lines
        assert len(members) == 2
        np.testing.assert_array_equal(members[1].get_ydata(), series[:, 1])
        np.testing.assert_allclose(mean.get_ydata(), series.mean(1))
        assert mean.get_xdata().tolist() == [1, 2, 3, 4]
        marks = panel.collections[0].get_offsets()
        expected = [[best, series[best - 1, i]] for i, best in enumerate(model.best_epoch_)]
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


def test_lines_are_the_means_of_the_runs():
    mean, std = [[0.1, 0.5], [0.4, 0.7], [np.nan] * 2], np.zeros((3, 2))
    names = ["$a$", "b", "c"]
    display = FewerDataDisplay([0.5, 1.0], mean, std, methods=names, metric="macro_f1").plot()
    legend = display.ax_.get_legend().get_texts()
    assert [text.get_text() for text in legend] == ["b", "$a$"]  # the best first, none without runs
    assert not any(text.get_parse_math() for text in legend)
    best, second = (container[0] for container in display.ax_.containers)
    np.testing.assert_allclose(best.get_ydata(), [0.4, 0.7])
    assert best.get_color() != second.get_color()


def test_wrong_shapes_are_rejected():
    with pytest.raises(InputError, match=r"must have shape \(1, 2\)"):
        FewerDataDisplay([0.5, 1], [[1]], [[1]], methods=["a"], metric="f1")


def test_bars_join_methods_within_the_critical_difference(rng):
    for _ in range(20):
        ranks, width = rng.uniform(1, 8, 7), rng.uniform(0.2, 4)
        display = CriticalDifferenceDisplay(ranks, [str(i) for i in range(7)], width)
        joined = {
            frozenset(pair)
            for clique in display.cliques
            for pair in itertools.combinations(clique, 2)
        }
        close = {
            frozenset((i, j))
            for i, j in itertools.combinations(range(7), 2)
            if abs(ranks[i] - ranks[j]) <= width
        }
        assert joined == close
        sets = [set(clique) for clique in display.cliques]
        assert not any(a < b for a, b in itertools.permutations(sets, 2))


def test_every_method_is_named_with_its_rank_and_nothing_is_clipped(texts_apart):
    methods = ["$a$", "a_b", "a method with quite a long name", "d", "e"]
    display = CriticalDifferenceDisplay([1.5, 2.0, 2.5, 4.0, 5.0], methods, 0.7).plot()
    texts = [text.get_text().strip() for text in display.ax_.texts]
    assert "$a$  1.50" in texts
    assert "a_b  2.00" in texts
    assert "5.00  e" in texts
    assert "critical difference 0.70" in texts
    assert texts_apart(display.figure_, display.ax_.texts)
    bars = [line for line in display.ax_.lines if line.get_linewidth() == 4]
    assert len(bars) == len(display.cliques) == 2


def test_ranks_on_one_data_set_have_no_bars():
    display = CriticalDifferenceDisplay([1.0, 2.0], ["a", "b"], float("nan")).plot()
    assert display.cliques == []
    texts = [text.get_text().strip() for text in display.ax_.texts]
    assert "one data set: no test" in texts


def test_every_kind_of_figure_of_a_study_has_a_display():
    ranks = {"mean_ranks": [1.0, 2.0], "names": ["a", "b"], "critical_difference": 0.5}
    assert isinstance(display_of("critical-difference", ranks), CriticalDifferenceDisplay)
    fewer = {"fractions": [0.5, 1.0], "values": [[1, 2]], "deviations": [[0, 0]]}
    fewer |= {"methods": ["a"], "metric": "micro_f1", "data": "yeast"}
    assert isinstance(display_of("fewer-data", fewer), FewerDataDisplay)
    alike = {"matrix": np.eye(2), "names": ["a", "b"], "groups": ["x", "y"]}
    assert isinstance(display_of("similarity", alike), LabelSimilarityDisplay)
    with pytest.raises(InputError, match="no figure of the kind 'pie'"):
        display_of("pie", {})


def test_one_method_and_missing_ranks():
    display = CriticalDifferenceDisplay([1.0], ["a"], 1.0).plot()
    assert display.cliques == []
    with pytest.raises(InputError, match="one finite number per method"):
        CriticalDifferenceDisplay([1.0, np.nan], ["a", "b"], 1.0)
