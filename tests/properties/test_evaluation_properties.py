"""Properties of the metrics and threshold rules that hold for any labels and scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cgmvae.evaluation import (
    bootstrap_interval,
    brier_score,
    count,
    expected_calibration_error,
    learn_rule,
    score_report,
    sweep,
)
from cgmvae.evaluation.metrics import SET_METRICS
from cgmvae.evaluation.thresholds import FINE_THRESHOLDS, NINE_THRESHOLDS

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=7)
GRID = np.arange(0, 101) / 100

repeatable = settings(max_examples=30, deadline=None, derandomize=True)


@st.composite
def scored_rows(draw, distinct=False, dtypes=(np.float64,)):
    """Draw labels, scores and a mask; others may tie, also with thresholds."""
    shape = draw(SHAPES)
    Y = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 1)))
    unknown = draw(hnp.arrays(np.bool_, shape))
    if distinct:
        order = draw(st.permutations(range(Y.size)))
        scores = np.reshape(order, shape) / Y.size
    else:
        scores = draw(hnp.arrays(np.float64, shape, elements=st.sampled_from(GRID)))
    return Y, scores.astype(draw(st.sampled_from(dtypes))), unknown


def _all_metrics(Y, scores, unknown):
    counts = count(Y, scores >= 0.5, unknown)
    return (
        {name: float(counts.value(name)) for name in SET_METRICS}
        | score_report(Y, scores, unknown=unknown, ks=(1, 2))
        | {
            "calibration": expected_calibration_error(Y, scores, unknown=unknown),
            "brier": brier_score(Y, scores, unknown=unknown),
        }
    )


def _same(values):
    return pytest.approx(values, abs=1e-12, nan_ok=True)


@repeatable
@given(scored_rows(distinct=True), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_labels_does_not_matter(rows, random):
    n_samples, n_labels = rows[0].shape
    order = np.array(random.sample(range(n_samples), n_samples))
    columns = np.array(random.sample(range(n_labels), n_labels))
    permuted = [x[order][:, columns] for x in rows]
    assert _all_metrics(*permuted) == _same(_all_metrics(*rows))


@repeatable
@given(scored_rows(), st.data())
def test_what_is_under_the_mask_does_not_matter(rows, data):
    Y, scores, unknown = rows
    other = data.draw(hnp.arrays(np.float64, Y.shape, elements=st.sampled_from(GRID)))
    altered = np.where(unknown, 1 - Y, Y), np.where(unknown, other, scores)
    assert _all_metrics(*altered, unknown) == _same(_all_metrics(*rows))
    for rule in ("global", "per-label"):
        learned = [learn_rule(*a, rule=rule, unknown=unknown) for a in (altered, (Y, scores))]
        assert repr(learned[0]) == repr(learned[1])


@repeatable
@given(
    st.integers(0, 2**32 - 1),
    st.integers(10, 60),
    st.integers(1, 400),
    st.sampled_from([0.02, 0.1, 0.5]),
    st.sampled_from([*SET_METRICS, "precision_at_1"]),
    st.sampled_from(["skip", 0]),
)
def test_a_metric_is_inside_its_interval(seed, n_rows, n_labels, share, metric, absent):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n_rows, n_labels)) < share).astype(int)  # many labels have few rows, or none
    scores = rng.random(Y.shape) + 0.5 * Y
    outputs = scores if metric == "precision_at_1" else (scores > 1).astype(int)
    found = bootstrap_interval(metric, Y, outputs, n_resamples=100, absent=absent)
    assert 0 <= found.low <= found.value <= found.high <= 1


@repeatable
@given(scored_rows(), st.sampled_from([np.exp, np.arctan, lambda s: 5 * s - 3]))
def test_rankings_do_not_change_under_an_increasing_function(rows, increasing):
    Y, scores, unknown = rows
    before = score_report(Y, scores, unknown=unknown)
    assert score_report(Y, increasing(scores), unknown=unknown) == _same(before)


@repeatable
@given(scored_rows(dtypes=(np.float32, np.float64)), st.sampled_from([9, 99]))
def test_sweep_equals_one_count_per_threshold(rows, n_thresholds):
    Y, scores, unknown = rows
    thresholds = NINE_THRESHOLDS if n_thresholds == 9 else FINE_THRESHOLDS
    swept = sweep(Y, scores, thresholds, unknown=unknown)
    for i, threshold in enumerate(thresholds):
        single = count(Y, scores >= scores.dtype.type(threshold), unknown)
        for field in ("label_both", "label_predicted", "row_both", "row_predicted"):
            np.testing.assert_array_equal(getattr(swept, field)[i], getattr(single, field))
        np.testing.assert_array_equal(swept.label_true, single.label_true)
        np.testing.assert_array_equal(swept.row_true, single.row_true)
        np.testing.assert_array_equal(swept.row_known, single.row_known)


@repeatable
@given(scored_rows(dtypes=(np.float32, np.float64)), st.sampled_from(SET_METRICS))
def test_the_global_rule_attains_the_maximum_of_the_sweep(rows, metric):
    Y, scores, unknown = rows
    rule = learn_rule(Y, scores, metric=metric, unknown=unknown)
    attained = count(Y, rule.apply(scores), unknown).value(metric)
    best = max(
        count(Y, scores >= scores.dtype.type(t), unknown).value(metric) for t in FINE_THRESHOLDS
    )
    assert attained == pytest.approx(best, abs=1e-12)


@repeatable
@given(scored_rows(), st.sampled_from(SET_METRICS))
def test_a_label_without_positives_takes_the_global_threshold(rows, metric):
    Y, scores, unknown = rows
    shared = learn_rule(Y, scores, metric=metric, unknown=unknown).threshold
    own = learn_rule(Y, scores, rule="per-label", metric=metric, unknown=unknown).thresholds
    absent = (Y * ~unknown).sum(0) == 0
    assert (own[absent] == shared).all()
    assert ((own >= FINE_THRESHOLDS[0]) & (own <= FINE_THRESHOLDS[-1])).all()
