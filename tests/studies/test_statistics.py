"""Ranks, tests, spreads and differences against plain loops, SciPy and printed tables."""

import math

import numpy as np
import pytest
from scipy import stats

from cgmvae.studies.statistics import (
    TEST_SHARE,
    Difference,
    critical_difference,
    difference_text,
    finding,
    paired_difference,
    rank_methods,
    spread,
)

#: Critical values of the two-tailed Nemenyi test at .05 for 2 to 10 methods (Demšar 2006, table 5).
DEMSAR = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)


def test_nemenyi_is_as_printed():
    for n_methods, value in enumerate(DEMSAR, start=2):
        expected = value * math.sqrt(n_methods * (n_methods + 1) / (6 * 13))
        assert critical_difference(n_methods, 13) == pytest.approx(expected, rel=5e-4)


def rank_by_hand(row: list[float], place: int) -> float:
    above = sum(other > row[place] for other in row)
    ties = sum(other == row[place] for other in row)
    return 1 + above + (ties - 1) / 2


def test_ranks_and_friedman_with_ties_and_missing_scores(rng):
    scores = rng.integers(0, 4, (12, 5)).astype(float)
    scores[3, 2] = np.nan
    test = rank_methods(scores)
    complete = np.delete(scores, 3, axis=0)
    by_hand = [
        np.mean([rank_by_hand(row, place) for row in complete.tolist()]) for place in range(5)
    ]
    np.testing.assert_allclose(test.mean_ranks, by_hand)
    assert test.n_data == 11
    assert test.p_value == stats.friedmanchisquare(*complete.T).pvalue
    assert test.critical_difference == critical_difference(5, 11)


def test_too_little_to_test():
    two = rank_methods(np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert two.mean_ranks.tolist() == [1.5, 1.5]
    assert math.isnan(two.p_value)
    assert two.critical_difference == critical_difference(2, 2)
    one_problem = rank_methods(np.array([[1.0, 0.0, 2.0]]))
    assert one_problem.mean_ranks.tolist() == [2, 3, 1]
    assert math.isnan(one_problem.p_value)
    assert math.isnan(one_problem.critical_difference)
    nothing = rank_methods(np.full((4, 3), np.nan))
    assert nothing.n_data == 0
    assert np.isnan(nothing.mean_ranks).all()
    all_alike = rank_methods(np.ones((5, 4)))
    assert all_alike.mean_ranks.tolist() == [2.5] * 4
    assert math.isnan(all_alike.p_value)


def test_spread_against_plain_loops(rng):
    values = rng.normal(size=(4, 3))
    found = spread(values)
    means = [sum(row) / 3 for row in values.tolist()]
    variances = [
        sum((x - mean) ** 2 for x in row) / 2 for row, mean in zip(values, means, strict=True)
    ]
    assert found.mean == pytest.approx(sum(means) / 4)
    assert found.over_seeds == pytest.approx(math.sqrt(sum(variances) / 4))
    assert found.over_splits == pytest.approx(stats.tstd(means))
    assert found.n_runs == 12


def test_spread_of_few_runs():
    nan = np.nan
    assert spread(np.full((2, 2), nan)).n_runs == 0
    one = spread(np.array([[nan, 2.0], [nan, nan]]))
    assert (one.mean, one.n_runs) == (2, 1)
    assert math.isnan(one.over_seeds)
    assert math.isnan(one.over_splits)
    uneven = spread(np.array([[1.0, 3.0], [6.0, nan]]))
    assert uneven.mean == 4  # splits count alike, however many of their runs are there
    assert uneven.over_seeds == pytest.approx(math.sqrt(2))
    assert uneven.over_splits == pytest.approx(math.sqrt(8))


def test_the_interval_is_that_of_the_paired_t_test_on_split_means(rng):
    first, second = rng.normal(0.6, 0.05, (4, 3)), rng.normal(0.5, 0.05, (4, 3))
    found = paired_difference(first, second, test_share=0)
    expected = stats.ttest_rel(first.mean(1), second.mean(1)).confidence_interval(0.95)
    assert found.mean == pytest.approx((first - second).mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.n_splits == 4


def test_shared_rows_widen_the_interval(rng):
    """1 / n + test by training rows, in place of 1 / n (Nadeau and Bengio 2003)."""
    first, second = rng.normal(size=(2, 10, 1))
    alone, shared = (paired_difference(first, second, test_share=share) for share in (0, 0.125))
    assert shared.mean == alone.mean
    ratio = (shared.high - shared.low) / (alone.high - alone.low)
    assert ratio == pytest.approx(math.sqrt((1 / 10 + 1 / 8) / (1 / 10)))


@pytest.mark.parametrize(
    ("low", "high", "decision"),
    [
        (0.001, 0.02, "found"),
        (-0.001, 0.02, "undecided"),
        (0.001, 0.009, "not found"),
        (-0.02, 0.009, "not found"),
        (np.nan, np.nan, "not known"),
    ],
)
def test_a_decision_needs_the_interval_above_0_and_not_below_the_bound(low, high, decision):
    assert Difference(0.005, low, high, 5).decision(0.01) == decision


def test_runs_that_one_of_the_two_lacks_count_for_neither():
    first = np.array([[1.0, 5.0], [2.0, np.nan], [np.nan, np.nan]])
    second = np.array([[0.0, np.nan], [0.0, 9.0], [7.0, 7.0]])
    found = paired_difference(first, second, test_share=TEST_SHARE)
    assert (found.mean, found.n_splits) == (1.5, 2)


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ([0.1, 0.11, 0.12], "found"),
        ([-0.1, -0.11, -0.12], "not found"),
        ([0.1, -0.1, 0.05], "within noise"),
        ([0.1], "not known"),
        ([], "not known"),
    ],
)
def test_a_verdict_follows_from_the_interval(gaps, verdict):
    assert (
        paired_difference(np.array(gaps)[:, None], np.zeros((len(gaps), 1)), test_share=0).verdict
        == verdict
    )


def test_a_finding_names_every_data_set_under_its_verdict():
    text = finding(
        "A above B",
        {
            "one": Difference(0.3, 0.2, 0.4, 3),
            "two": Difference(0.0, -0.1, 0.1, 3),
            "three": Difference(-0.3, -0.4, -0.2, 3),
            "four": Difference(0.4, np.nan, np.nan, 1),
            "five": Difference(np.nan, np.nan, np.nan, 0),
        },
    )
    assert text == (
        "A above B: found on 1 of 4 data sets (one), within noise on 1 (two), not found, but the "
        "opposite, on 1 (three), not known, for lack of a second split, on 1 (four); mean +0.100."
    )


def test_without_runs_there_is_no_finding():
    nothing = Difference(np.nan, np.nan, np.nan, 0)
    assert finding("A above B", {"yeast": nothing}) == "A above B: no runs yet."
    assert difference_text(nothing) == "–"
    assert difference_text(Difference(0.5, np.nan, np.nan, 1)) == "+0.500"
