"""Bootstrap intervals: the fast path against recomputation, coverage, groups, pairs."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae import evaluation
from cgmvae.errors import InputError
from cgmvae.evaluation import bootstrap_interval, paired_difference, precision_at_k
from cgmvae.evaluation import intervals as intervals_module
from cgmvae.evaluation.intervals import NAMED_METRICS


@pytest.fixture
def rows(rng):
    """Labels, scores and unknown cells, with rows that have no label, or no known one."""
    Y = (rng.random((40, 6)) < 0.25).astype(int)
    unknown = rng.random(Y.shape) < 0.2
    Y[:3], unknown[3:6] = 0, True
    return Y, rng.random(Y.shape) + 0.3 * Y, unknown


def _plain(metric):
    if metric == "precision_at_1":
        return lambda Y, scores, unknown=None: precision_at_k(Y, scores, 1, unknown=unknown)
    return getattr(evaluation, metric)


def _outputs(metric, scores):
    return scores if metric == "precision_at_1" else (scores > 0.7).astype(int)


@pytest.mark.parametrize("metric", NAMED_METRICS)
@pytest.mark.parametrize(
    ("grouped", "masked", "confidence"), [(False, False, 0.3), (True, True, 0.95)]
)
def test_the_fast_path_equals_recomputation_on_the_same_rows(
    rows, metric, grouped, masked, confidence, rng
):
    Y, scores, unknown = rows
    given = {
        "unknown": unknown if masked else None,
        "groups": rng.permutation(len(Y)) % 12 if grouped else None,
        "n_resamples": 60,
        "confidence": confidence,
    }
    outputs = _outputs(metric, scores)
    fast = bootstrap_interval(metric, Y, outputs, **given)
    assert fast == pytest.approx(bootstrap_interval(_plain(metric), Y, outputs, **given), abs=1e-12)
    assert fast.low < fast.high
    pair = outputs, outputs[:, ::-1]
    fast = paired_difference(metric, Y, *pair, **given)
    assert fast == pytest.approx(paired_difference(_plain(metric), Y, *pair, **given), abs=1e-12)


def test_resampled_rows_are_drawn_with_replacement_as_many_as_there_are(rows):
    Y, scores, _ = rows
    seen = []

    def metric(Y, scores):
        seen.append(scores[:, 0])
        return float(scores.mean())

    bootstrap_interval(metric, Y, scores, n_resamples=30)
    assert np.array_equal(seen[0], scores[:, 0])
    assert all(len(drawn) == len(Y) for drawn in seen)
    assert all(len(set(drawn)) < len(Y) for drawn in seen[1:])
    assert set(np.concatenate(seen[1:])) == set(scores[:, 0])


def test_groups_are_drawn_whole(rng):
    groups = rng.integers(0, 5, 40)
    marks = np.arange(40)[:, None]
    seen = []

    def metric(Y, marks):
        seen.append(np.bincount(marks[:, 0], minlength=40))
        return 0.0

    bootstrap_interval(metric, np.zeros((40, 1)), marks, groups=groups, n_resamples=20)
    for times in seen[1:]:
        per_group = [set(times[groups == g]) for g in range(5)]
        assert all(len(counts) == 1 for counts in per_group)
        assert sum(counts.pop() for counts in per_group) == 5


@pytest.mark.parametrize("metric", ["macro_f1", "example_f1"])
def test_the_size_of_the_blocks_does_not_matter(rows, metric, monkeypatch):
    Y, scores, unknown = rows
    args = metric, Y, _outputs(metric, scores)
    whole = bootstrap_interval(*args, unknown=unknown, n_resamples=50)
    monkeypatch.setattr(intervals_module, "BLOCK_CELLS", 7 * len(Y))
    assert bootstrap_interval(*args, unknown=unknown, n_resamples=50) == pytest.approx(whole)


def test_the_interval_is_as_wide_as_theory_says(rng):
    predicted = rng.random((400, 1)) < 0.7
    interval = bootstrap_interval("subset_accuracy", np.ones((400, 1)), predicted, n_resamples=4000)
    share = predicted.mean()
    margin = 1.96 * math.sqrt(share * (1 - share) / 400)
    assert interval.value == pytest.approx(share)
    assert interval.high - interval.low == pytest.approx(2 * margin, rel=0.08)


def test_pairing_tells_apart_what_two_intervals_do_not(rng):
    Y = np.ones((300, 1))
    worse = rng.random((300, 1)) < 0.6
    better = worse | (rng.random((300, 1)) < 0.1)
    high, low = (bootstrap_interval("subset_accuracy", Y, x) for x in (better, worse))
    assert high.low < low.high
    difference = paired_difference("subset_accuracy", Y, better, worse)
    assert difference.value == pytest.approx(high.value - low.value)
    assert 0 < difference.low < difference.value < difference.high
    backwards = paired_difference("subset_accuracy", Y, worse, better)
    assert backwards == pytest.approx((-difference.value, -difference.high, -difference.low))


def test_a_seed_fixes_the_draws(rows):
    Y, scores, _ = rows
    args = "example_f1", Y, _outputs("example_f1", scores)
    first, again, other = (bootstrap_interval(*args, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert (first.value, first != other) == (other.value, True)


@pytest.mark.parametrize("metric", ["micro_f1", "precision_at_1", evaluation.micro_f1])
def test_sparse_equals_dense(rows, metric):
    Y, scores, unknown = rows
    outputs = scores if metric == "precision_at_1" else (scores > 0.7).astype(int)
    dense = bootstrap_interval(metric, Y, outputs, unknown=unknown, n_resamples=30)
    sparse = bootstrap_interval(
        metric, sp.csr_array(Y), outputs, unknown=sp.csr_array(unknown), n_resamples=30
    )
    assert sparse == dense


def test_undefined_resamples_are_ignored():
    Y, scores, unknown = [[1], [0]] * 5, [[0.5]] * 10, [[False], [True]] * 5
    args = "precision_at_1", Y, scores
    assert bootstrap_interval(*args, unknown=unknown, n_resamples=20) == (1, 1, 1)
    nothing = bootstrap_interval(*args, unknown=[[True]] * 10, n_resamples=20)
    assert all(math.isnan(number) for number in nothing)


@pytest.mark.parametrize(("n_rows", "n_groups"), [(9, 9), (40, 9), (10, 10), (40, 10)])
def test_few_rows_or_groups_have_no_interval(rows, n_rows, n_groups):
    Y, scores, _ = (part[-n_rows:] for part in rows)
    predicted, groups = _outputs("micro_f1", scores), np.arange(n_rows) % n_groups
    found = bootstrap_interval("micro_f1", Y, predicted, groups=groups)
    assert found.value == evaluation.micro_f1(Y, predicted)
    assert math.isnan(found.low) == math.isnan(found.high) == (n_groups < 10)
    apart = paired_difference("micro_f1", Y, predicted, predicted[:, ::-1], groups=groups)
    assert math.isnan(apart.low) == (n_groups < 10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "accuracy"}, "no metric 'accuracy'"),
        ({"groups": [1, 2]}, "one value per row"),
        (
            {"Y": [[1], [0]], "outputs": [[1], [0]], "groups": np.array([1, "a"], dtype=object)},
            "all numbers or all text",
        ),
        ({"n_resamples": 0}, "n_resamples must be at least 1"),
        ({"confidence": 95}, "confidence must be between"),
        ({"Y": np.zeros((0, 2)), "outputs": np.zeros((0, 2))}, "no rows"),
    ],
)
def test_bad_input_is_named(options, message):
    given = {"metric": "micro_f1", "Y": [[1, 0]], "outputs": [[1, 0]]} | options
    with pytest.raises(InputError, match=message):
        bootstrap_interval(**given)
