"""Paired differences against SciPy, and the sentences that follow from them."""

import numpy as np
import pytest
from scipy import stats

from cgmvae.studies.results import Difference, interval_of_mean, paired_difference
from cgmvae.studies.verdicts import difference_text, finding


def test_the_interval_is_that_of_the_paired_t_test_on_split_means(rng):
    first, second = rng.normal(0.6, 0.05, (4, 3)), rng.normal(0.5, 0.05, (4, 3))
    found = paired_difference(first, second)
    expected = stats.ttest_rel(first.mean(1), second.mean(1)).confidence_interval(0.95)
    assert found.mean == pytest.approx((first - second).mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.n_splits == 4


def test_runs_that_one_of_the_two_lacks_count_for_neither():
    first = np.array([[1.0, 5.0], [2.0, np.nan], [np.nan, np.nan]])
    second = np.array([[0.0, np.nan], [0.0, 9.0], [7.0, 7.0]])
    found = paired_difference(first, second)
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
    assert interval_of_mean(np.array(gaps)).verdict == verdict


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
        "opposite, on 1 (three), not known, for want of a second split, on 1 (four); mean +0.100."
    )


def test_without_runs_there_is_no_finding():
    nothing = Difference(np.nan, np.nan, np.nan, 0)
    assert finding("A above B", {"yeast": nothing}) == "A above B: no runs yet."
    assert difference_text(nothing) == "–"
    assert difference_text(Difference(0.5, np.nan, np.nan, 1)) == "+0.500"
