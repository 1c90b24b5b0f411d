"""Threshold rules: how they are applied, counted and learned."""

import tracemalloc

import numpy as np
import pytest

from cgmvae.errors import InputError
from cgmvae.evaluation import GlobalThreshold, LabelThresholds, TopK, count, learn_rule, sweep
from cgmvae.evaluation import thresholds as module
from cgmvae.evaluation.metrics import SET_METRICS
from cgmvae.evaluation.thresholds import (
    FINE_THRESHOLDS,
    NINE_THRESHOLDS,
    SHRINKAGE,
    describe_rule,
    threshold_curve,
)

SCORES = np.array([[0.1, 0.5, 0.9], [0.5, 0.5, 0.2]])


@pytest.fixture
def rows(rng):
    """Labels and informative scores, on a grid that includes the thresholds."""
    Y = (rng.random((80, 6)) < 0.3).astype(int)
    return Y, np.round(np.clip(0.25 * rng.standard_normal(Y.shape) + 0.3 + 0.3 * Y, 0, 1), 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_score_at_the_threshold_is_positive(dtype):
    for threshold in FINE_THRESHOLDS:
        at = np.array([[threshold]], dtype)
        below = np.nextafter(at, dtype(0))
        assert GlobalThreshold(float(threshold)).apply(at) == 1
        assert GlobalThreshold(float(threshold)).apply(below) == 0
        assert LabelThresholds(np.array([threshold])).apply(at) == 1
        assert LabelThresholds(np.array([threshold])).apply(below) == 0


def test_each_label_has_its_own_threshold():
    rule = LabelThresholds(np.array([0.3, 0.6, 0.9]))
    assert rule.apply(SCORES).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_top_k_takes_the_first_of_equal_scores():
    assert TopK(1).apply(SCORES).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert TopK(2).apply(SCORES).tolist() == [[0, 1, 1], [1, 1, 0]]
    assert TopK(7).apply(SCORES).tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("rule", [GlobalThreshold(0.5), LabelThresholds(np.full(3, 0.5)), TopK(1)])
def test_rules_take_whole_numbers_and_refuse_nan(rule):
    assert rule.apply(np.array([[0, 1, 0]])).tolist() == [[0, 1, 0]]
    with pytest.raises(InputError, match="The scores contain NaN"):
        rule.apply(np.array([[0.5, np.nan, 0.1]]))


def test_of_equally_good_thresholds_the_middle_one_is_learned():
    rule = learn_rule([[1, 0]], [[0.8, 0.2]], thresholds=[0.1, 0.3, 0.5, 0.7, 0.9])
    assert rule == GlobalThreshold(0.5)


@pytest.mark.parametrize("metric", SET_METRICS)
def test_top_k_is_the_best_of_all_k(rows, metric, rng):
    Y, scores = rows
    unknown = rng.random(Y.shape) < 0.2

    def value(k):
        return count(Y, TopK(k).apply(scores), unknown).value(metric)

    learned = learn_rule(Y, scores, rule="top-k", metric=metric, unknown=unknown)
    assert value(learned.k) == max(value(k) for k in range(1, Y.shape[1] + 1))


@pytest.mark.parametrize("metric", ["macro_f1", "hamming_accuracy"])
def test_own_thresholds_are_the_best_of_each_label(rows, metric):
    Y, scores = rows
    rule = learn_rule(Y, scores, rule="per-label", metric=metric)
    shared = learn_rule(Y, scores, metric=metric).threshold
    weight = Y.sum(0) / (Y.sum(0) + SHRINKAGE)
    own = shared + (rule.thresholds - shared) / weight
    for j in range(Y.shape[1]):
        single = sweep(Y[:, [j]], scores[:, [j]], FINE_THRESHOLDS).value(metric)
        chosen = count(Y[:, [j]], scores[:, [j]] >= np.round(own[j], 2)).value(metric)
        assert chosen == pytest.approx(single.max(), abs=1e-12)


def test_per_label_thresholds_beat_the_global_one_where_labels_differ(rng):
    Y = (rng.random((2000, 2)) < 0.4).astype(int)
    scores = np.column_stack([0.2 + 0.2 * Y[:, 0], 0.6 + 0.2 * Y[:, 1]])
    scores += 0.02 * rng.standard_normal(scores.shape)
    shared, own = (learn_rule(Y, scores, rule=rule) for rule in ("global", "per-label"))
    assert count(Y, own.apply(scores)).micro_f1() > 0.99
    assert count(Y, shared.apply(scores)).micro_f1() < 0.9


def test_a_label_that_agrees_with_the_global_threshold_keeps_it_exactly():
    scores = np.tile([0.29, 0.3], (7, 1)).reshape(-1, 1)
    Y = (scores >= 0.3).astype(int)
    for threshold in NINE_THRESHOLDS:
        rule = learn_rule(Y, scores, rule="per-label", thresholds=[threshold])
        assert rule.thresholds.tolist() == [threshold]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "best"}, "no rule 'best'"),
        ({"metric": "accuracy"}, "no metric 'accuracy'"),
        ({"rule": "top-k", "metric": "precision_at_1"}, "no metric 'precision_at_1'"),
        ({"thresholds": [0.5, 0.1]}, "in increasing order"),
        ({"thresholds": []}, "at least one number"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        learn_rule([[1, 0]], [[0.3, 0.1]], **options)


@pytest.mark.parametrize("rule", ["global", "per-label", "top-k"])
@pytest.mark.parametrize("metric", SET_METRICS)
@pytest.mark.parametrize("empty", [1, 0, "skip"])
def test_blocks_of_rows_change_nothing(rng, monkeypatch, rule, metric, empty):
    """Rows without labels and unknown cells are in some blocks and not in others."""
    Y = (rng.random((101, 4)) < 0.3) * (np.arange(101) > 40)[:, None]
    scores, unknown = rng.random(Y.shape), rng.random(Y.shape) < 0.2
    unknown[90:] = True
    given = {"rule": rule, "metric": metric, "empty": empty, "unknown": unknown}
    whole = describe_rule(learn_rule(Y, scores, **given))
    curve = threshold_curve(Y, scores, unknown=unknown, out_of_fold=True).values[metric]
    oracle = [count(Y, scores >= threshold, unknown).value(metric) for threshold in FINE_THRESHOLDS]
    np.testing.assert_allclose(curve, oracle)
    monkeypatch.setattr(module, "_ROWS_AT_A_TIME", 7)
    assert describe_rule(learn_rule(Y, scores, **given)) == whole
    again = threshold_curve(Y, scores, unknown=unknown, out_of_fold=True)
    np.testing.assert_allclose(again.values[metric], oracle)
    assert again.n_rows == 101


def test_memory_grows_as_the_scores_do(rng):
    """Counts of all rows at all thresholds would take fifty times as much."""
    Y = rng.random((160_000, 5)) < 0.3
    scores = rng.random(Y.shape, dtype=np.float32)

    def peak(n_rows):
        tracemalloc.start()
        learn_rule(Y[:n_rows], scores[:n_rows], metric="example_f1")
        threshold_curve(Y[:n_rows], scores[:n_rows], out_of_fold=True)
        _, found = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return found

    assert peak(160_000) - peak(40_000) < scores.nbytes
