"""Fewer data, and critical differences."""

import itertools

import numpy as np
import pytest

from cgmvae.errors import InputError
from cgmvae.report import CriticalDifferenceDisplay, FewerDataDisplay


def test_lines_are_the_means_of_the_runs_with_their_deviation():
    runs = {"$a$": [[0.1, 0.3], [0.5, 0.5]], "b": [[0.4, 0.4], [0.6, 0.8]]}
    display = FewerDataDisplay.from_runs([0.5, 1.0], runs, metric="macro_f1").plot()
    np.testing.assert_allclose(display.mean, [[0.2, 0.5], [0.4, 0.7]])
    np.testing.assert_allclose(display.std, [[np.sqrt(0.02), 0], [0, np.sqrt(0.02)]])
    legend = display.ax_.get_legend().get_texts()
    assert [text.get_text() for text in legend] == ["b", "$a$"]
    assert not any(text.get_parse_math() for text in legend)
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["50 %", "100 %"]
    best, second = (container[0] for container in display.ax_.containers)
    np.testing.assert_allclose(best.get_ydata(), [0.4, 0.7])
    np.testing.assert_allclose(second.get_ydata(), [0.2, 0.5])
    assert best.get_color() != second.get_color()


def test_one_run_has_no_deviation_and_a_gap_stays_a_gap():
    display = FewerDataDisplay.from_runs([0.5, 1], {"a": [[0.1], [np.nan]]}, metric="f1").plot()
    np.testing.assert_array_equal(display.std, [[0, np.nan]])


def test_a_method_without_runs_is_not_in_the_legend():
    runs = {"a": [[0.1], [0.2]], "b": [[np.nan], [np.nan]]}
    display = FewerDataDisplay.from_runs([0.5, 1], runs, metric="f1").plot()
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["a"]


def test_ten_methods_look_different():
    values = np.tile(np.linspace(0, 1, 10)[:, None], 2)
    names = [f"m{i}" for i in range(10)]
    display = FewerDataDisplay([0.5, 1], values, values, methods=names, metric="f1").plot()
    looks = {
        (line.get_color(), line.get_marker(), line.get_linestyle())
        for line, *_ in display.ax_.containers
    }
    assert len(looks) == 10


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


def test_one_method_and_missing_ranks():
    display = CriticalDifferenceDisplay([1.0], ["a"], 1.0).plot()
    assert display.cliques == []
    with pytest.raises(InputError, match="one finite number per method"):
        CriticalDifferenceDisplay([1.0, np.nan], ["a", "b"], 1.0)
