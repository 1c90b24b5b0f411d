"""Measures of whole label sets, against plain loops and scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cgmvae.evaluation.joint import (
    community_quality,
    dissimilarities,
    draw_quality,
    label_quality,
)


@pytest.fixture
def rows(rng):
    """Return labels, probabilities (some tied) and draws of 60 rows and 7 labels."""
    scores = np.round(rng.random((60, 7)), 1)
    return rng.random(scores.shape) < scores, scores, rng.random((50, *scores.shape)) < scores


class TestLabels:
    def test_the_four_properties_against_loops(self, rows):
        labels, scores, _ = rows
        areas, errors = [], []
        for y, p in zip(labels.T, scores.T, strict=True):
            areas.append(roc_auc_score(y, p))
            order = sorted(range(60), key=lambda i, p=p: p[i])
            bins = [order[6 * b : 6 * b + 6] for b in range(10)]
            errors.append(sum(abs(sum(p[i] for i in b) - sum(y[i] for i in b)) for b in bins))
        found = label_quality(labels, scores)
        assert found.accuracy == pytest.approx(np.mean(np.where(labels, 1 - scores, scores)))
        assert found.discrimination == pytest.approx(np.mean(areas))
        assert found.calibration == pytest.approx(np.mean(errors))
        assert found.precision == pytest.approx(np.mean(np.sqrt(scores * (1 - scores))))

    def test_labels_that_all_rows_have_or_none_count_as_discriminated(self, rng):
        labels = np.repeat([[True, False]], 20, axis=0)
        assert label_quality(labels, rng.random(labels.shape)).discrimination == 1


class TestDraws:
    def test_against_numbers_by_hand(self):
        draws = np.array(
            [[0, 4], [2, 6], [4, 8], [6, 10]]
        )  # means 3, 7; quartiles 1.5–4.5, 5.5–8.5
        found = draw_quality(np.array([5, 7]), draws)
        assert found.accuracy == pytest.approx(np.sqrt(2))
        assert found.discrimination == pytest.approx(1)
        assert found.calibration == 0
        assert found.precision == pytest.approx(np.sqrt(5))

    def test_all_within_the_quartiles_is_as_bad_as_none(self):
        draws = np.tile([[0], [10]], (5, 4))
        for value in (5, 20):
            assert draw_quality(np.full(4, value), draws).calibration == 0.5

    def test_numbers_that_do_not_vary_have_no_rank(self):
        assert draw_quality(np.array([1, 2]), np.ones((3, 2))).discrimination == 0


class TestDissimilarities:
    @pytest.mark.parametrize(
        ("shared", "first", "second", "sorensen", "simpson"),
        [(1, 1, 1, 1 / 2, 1 / 2), (2, 0, 4, 1 / 2, 0), (0, 2, 3, 1, 1), (0, 0, 3, 1, 0)],
    )
    def test_against_baselga(self, shared, first, second, sorensen, simpson):
        one = np.array([1] * shared + [1] * first + [0] * second, bool)
        other = np.array([1] * shared + [0] * first + [1] * second, bool)
        found = dissimilarities(one, other)
        np.testing.assert_allclose(found, [sorensen, simpson, sorensen - simpson])
        np.testing.assert_allclose(dissimilarities(other, one), found)

    def test_two_empty_sets_are_alike(self):
        assert dissimilarities(np.zeros(3, bool), np.zeros(3, bool)).tolist() == [0, 0, 0]


class TestCommunities:
    def test_the_twenty_numbers_and_their_order(self, rows):
        found = community_quality(*rows)
        values = found.values()
        assert values.shape == (20,)
        np.testing.assert_array_equal(values[:4], label_quality(*rows[:2]))
        np.testing.assert_array_equal(values[4:8], found.richness)
        np.testing.assert_array_equal(values[8::3], found.dissimilarity[0])
        np.testing.assert_array_equal(values[10::3], found.dissimilarity[2])

    def test_labels_that_come_together_are_calibrated_by_draws_that_do(self, rng):
        """All labels of a row are the same: single draws of each know nothing of that."""
        labels = np.repeat(rng.random((300, 1)) < 0.5, 20, axis=1)
        scores = np.full(labels.shape, 0.5)
        together = np.repeat(rng.random((100, 300, 1)) < 0.5, 20, axis=2)
        alone = rng.random(together.shape) < 0.5
        errors = [
            (own.richness.calibration, own.dissimilarity[0].calibration)
            for own in (community_quality(labels, scores, draws) for draws in (together, alone))
        ]
        # Of values that are all 0 or 20, all or none lie within the quartiles of either.
        assert errors[1] == pytest.approx((0.5, 0.5), abs=0.02)
        precision = community_quality(labels, scores, together).richness.precision
        assert precision == pytest.approx(10, abs=0.1)

    def test_the_seed_chooses_the_pairs(self, rows):
        first, again, other = (community_quality(*rows, seed=s).values() for s in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(first[:8], other[:8])
        assert (first[8:] != other[8:]).any()

    def test_no_row_is_compared_with_itself(self):
        """Of two rows there is one pair, whose dissimilarity does not vary."""
        labels = np.array([[True, False, False], [True, True, True]])
        found = community_quality(labels, labels.astype(float), labels[None])
        assert [own.discrimination for own in found.dissimilarity] == [0, 0, 0]
