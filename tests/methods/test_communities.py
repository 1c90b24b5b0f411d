"""Whole label sets: draws, likelihoods and numbers of labels against sums over all label sets."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm, poisson_binom

from cgmvae import CGMVAEClassifier
from cgmvae.data import make_survey
from cgmvae.errors import InputError
from cgmvae.methods import BinaryRelevance
from cgmvae.methods.communities import (
    LabelCorrelation,
    _learn_pairs,
    count_labels,
    draw_label_sets,
    most_probable_sets,
)
from cgmvae.methods.conditioning import LabelFactors, _Task, label_set_log_likelihood
from cgmvae.methods.inputs import Rows

LOADINGS = np.array([[0.8, 0.1], [0.6, -0.5], [-0.7, 0.3], [0.2, 0.6]])
SCORES = np.array([[0.5, 0.3, 0.8, 0.1], [0.02, 0.9, 0.4, 0.6]])
SETS = np.array(list(product([False, True], repeat=4)))


def probability(scores, present):
    """Return the probability of a label set, from the distribution function of e."""
    sign = np.where(present, 1, -1)
    correlation = LOADINGS @ LOADINGS.T
    np.fill_diagonal(correlation, 1)
    return multivariate_normal.cdf(
        sign * norm.ppf(scores), cov=correlation * np.outer(sign, sign), abseps=1e-5
    )


@pytest.fixture(scope="module")
def exact():
    """Return the probability of every label set of both rows, (2, 16)."""
    return np.array([[probability(row, each) for each in SETS] for row in SCORES])


class TestDraws:
    def test_label_sets_are_as_frequent_as_they_are_probable(self, exact, rng):
        drawn = draw_label_sets(SCORES, LOADINGS, 40_000, rng)
        for row in range(2):
            found = [(drawn[:, row] == each).all(1).mean() for each in SETS]
            np.testing.assert_allclose(found, exact[row], atol=0.01)

    @settings(max_examples=20, deadline=None, derandomize=True)
    @given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 2**16))
    def test_margins_are_the_probabilities(self, n_labels, n_factors, seed):
        rng = np.random.default_rng(seed)
        scores = rng.random((5, n_labels))
        loadings = rng.uniform(-0.55, 0.55, (n_labels, n_factors))
        drawn = draw_label_sets(scores, loadings, 4000, rng)
        error = np.sqrt(scores * (1 - scores) / 4000)
        assert (np.abs(drawn.mean(0) - scores) < 5 * error + 1e-9).all()

    def test_certain_labels_stay_certain(self, rng):
        scores = np.array([[0.0, 1.0]])
        drawn = draw_label_sets(scores, np.full((2, 1), 0.9), 100, rng)
        assert not drawn[..., 0].any()
        assert drawn[..., 1].all()


class TestLikelihood:
    def test_every_label_set_against_the_normal_distribution_function(self, exact):
        scores, labels = np.repeat(SCORES, 16, axis=0), np.tile(SETS, (2, 1))
        found = label_set_log_likelihood(
            scores, labels, np.ones_like(labels), LOADINGS, n_draws=4000, seed=0
        )
        difference = found.value - np.log(exact.ravel())
        assert (np.abs(difference) < 5 * found.standard_error + 1e-4).all()
        assert found.standard_error.max() < 0.05
        assert np.exp(found.value).reshape(2, 16).sum(1) == pytest.approx(1, abs=0.01)

    def test_unknown_labels_are_summed_over(self):
        known = np.array([[True, False, True, False]] * 2)
        one, two = np.tile(SETS[5], (2, 1)), np.tile(SETS[0], (2, 1))
        parts = [
            label_set_log_likelihood(
                SCORES, np.where(known, one, other), known, LOADINGS, n_draws=4000, seed=0
            ).value
            for other in (one, two)
        ]
        np.testing.assert_array_equal(*parts)
        both = [
            label_set_log_likelihood(
                SCORES, np.where(known, one, each), np.ones_like(known), LOADINGS,
                n_draws=4000, seed=0,
            ).value
            for each in SETS[[0, 1, 4, 5]]
        ]  # fmt: skip
        np.testing.assert_allclose(np.exp(both).sum(0), np.exp(parts[0]), rtol=0.02)

    def test_without_factors_labels_are_independent(self):
        found = label_set_log_likelihood(
            SCORES, SCORES > 0.5, SCORES < 2, np.zeros((4, 0)), n_draws=9, seed=0
        )
        expected = np.log(np.maximum(SCORES, 1 - SCORES)).sum(1)
        np.testing.assert_allclose(found.value, expected, atol=1e-5)
        assert (found.standard_error == 0).all()

    def test_labels_that_were_thought_impossible(self):
        loadings = np.full((40, 2), 0.68)
        scores = np.tile([0.0, 1.0], (3, 20))
        labels = np.stack([scores[0] == 0, scores[0] == 1, np.ones(40, bool)])
        found = label_set_log_likelihood(
            scores, labels, np.ones_like(labels), loadings, n_draws=64, seed=0
        )
        assert np.isfinite(found.value).all()
        assert found.value[1] == found.value.max()


class TestMostProbable:
    def test_the_best_of_all_label_sets(self, exact):
        found = most_probable_sets(SCORES, LOADINGS)
        for row in range(2):
            (index,) = np.flatnonzero((found[row] == SETS).all(1))
            assert exact[row, index] > 0.99 * exact[row].max()

    def test_labels_that_come_together_are_predicted_together(self):
        found = most_probable_sets(np.tile([[0.7, 0.45], [0.3, 0.55]], 3), np.full((6, 1), 0.95))
        assert found.tolist() == [[True] * 6, [False] * 6]

    def test_it_is_right_about_all_labels_more_often_than_the_labels_by_themselves(self, rng):
        scores, loadings = rng.random((400, 5)), rng.choice([-0.9, 0.9], (5, 1))
        observed = draw_label_sets(scores, loadings, 20, rng)
        together, alone = (
            (observed == found).all(2).mean()
            for found in (most_probable_sets(scores, loadings), scores > 0.5)
        )
        assert together > alone + 0.02

    def test_without_factors_each_label_by_itself(self, rng):
        scores = rng.random((50, 7))
        found = most_probable_sets(scores, np.zeros((7, 0)))
        np.testing.assert_array_equal(found, scores > 0.5)


class TestCounts:
    def test_the_distribution_of_independent_labels(self, rng):
        scores = rng.random((6, 12))
        found = count_labels(scores, np.zeros((12, 0)), 0.9)
        for row, lower, upper in zip(scores, found.lower, found.upper, strict=True):
            expected = poisson_binom(row)
            assert (lower, upper) == (expected.ppf(0.05), expected.ppf(0.95))
        np.testing.assert_allclose(found.expected, scores.sum(1))

    def test_labels_that_come_together_against_draws(self, rng):
        scores = rng.random((4, 30))
        loadings = np.full((30, 1), 0.7)
        drawn = draw_label_sets(scores, loadings, 20_000, rng).sum(2)
        found = count_labels(scores, loadings, 0.8)
        np.testing.assert_allclose(found.lower, np.quantile(drawn, 0.1, axis=0), atol=1)
        np.testing.assert_allclose(found.upper, np.quantile(drawn, 0.9, axis=0), atol=1)
        alone = count_labels(scores, np.zeros((30, 0)), 0.8)
        assert (found.upper - found.lower > 2 * (alone.upper - alone.lower)).all()


@pytest.fixture(scope="module")
def survey():
    """Return sites with four pairs of species.

    The first two share a cause that the table does not hold, the next two respond alike to the
    environment and exclude each other, and the others are independent given the environment.
    """
    rng = np.random.default_rng(0)
    X, slopes = rng.normal(size=(1600, 4)), rng.normal(size=(4, 8)) * 0.5
    slopes[:, 3] = slopes[:, 2]
    hidden, e = rng.normal(size=(1600, 2)), rng.normal(size=(1600, 8))
    for label, cause, sign in ((0, 0, 1), (1, 0, 1), (2, 1, 1), (3, 1, -1)):
        e[:, label] = sign * np.sqrt(0.7) * hidden[:, cause] + np.sqrt(0.3) * e[:, label]
    return X, (X @ slopes + e > 0).astype(float)


@pytest.fixture(scope="module")
def fitted(survey):
    X, Y = survey
    model = CGMVAEClassifier(n_members=4, epochs=15, embedding_dim=32, device="cpu", random_state=0)
    return model.fit(X[:1200], Y[:1200])


class TestModel:
    def test_pairs_are_as_frequent_as_observed(self, fitted, survey):
        """On average within 10%, also of pairs that are not as frequent as if independent."""
        X, Y = (part[1200:] for part in survey)
        drawn = fitted.sample_labels(X, 200, random_state=0).astype(float)
        np.testing.assert_allclose(drawn.mean(0), fitted.predict_proba(X), atol=0.2)
        found = np.einsum("dni,dnj->ij", drawn, drawn) / (200 * len(X))
        observed = Y.T @ Y / len(Y)
        pairs = np.triu_indices(8, 1)
        ratio = found[pairs] / observed[pairs]
        assert np.abs(ratio - 1).mean() < 0.1
        scores = fitted.predict_proba(X)
        alone = scores.T @ scores / len(X)
        for i, j in ((0, 1), (2, 3)):
            assert abs(found[i, j] - observed[i, j]) < abs(alone[i, j] - observed[i, j])

    def test_label_sets_held_out_are_more_likely_than_if_independent(self, fitted, survey):
        X, Y = (part[1200:] for part in survey)
        p = fitted.predict_proba(X).astype(float)
        alone = np.log(np.where(Y == 1, p, 1 - p)).sum(1)
        found = fitted.label_set_log_likelihood(X, Y)
        assert (found.value - alone).mean() > 0.1
        assert found.standard_error.mean() < 0.05

    def test_whole_label_sets_are_right_more_often_than_with_thresholds(self, fitted, survey):
        X, Y = (part[1200:] for part in survey)
        right = (fitted.most_probable_set(X) == Y).all(1).mean()
        assert right > (fitted.predict(X) == Y).all(1).mean() + 0.01

    def test_the_number_of_labels_lies_in_its_interval(self, fitted, survey):
        X, Y = (part[1200:] for part in survey)
        found = fitted.predict_count(X, level=0.8)
        within = (found.lower <= Y.sum(1)) & (Y.sum(1) <= found.upper)
        assert 0.78 < within.mean() < 0.97  # numbers are whole
        np.testing.assert_allclose(found.expected, fitted.predict_proba(X).sum(1), rtol=1e-5)

    def test_a_shared_cause_is_found_and_labels_that_exclude_each_other(self, fitted):
        residual = fitted.label_correlation("residual")
        assert residual.value[0, 1] > 0.3
        assert residual.upper[2, 3] < 0
        found = residual.pairs(fitted.label_names_)
        assert {pair[:2] for pair in found[:2]} == {("label_0", "label_1"), ("label_2", "label_3")}
        assert len(found) < 5
        response = fitted.label_correlation("response")
        assert response.value[2, 3] > 0.3
        np.testing.assert_allclose(response.value, fitted.label_similarity(), atol=1e-6)
        assert (response.lower <= response.value).all()

    def test_observed_correlations_are_those_of_the_table(self, fitted, survey):
        found = fitted.label_correlation("observed")
        expected = np.corrcoef(survey[1][:1200].T)
        np.testing.assert_allclose(found.value, expected, atol=1e-3)
        error = (1 - expected[4, 5] ** 2) / np.sqrt(1200)
        assert (found.upper - found.lower)[4, 5] == pytest.approx(2 * 1.96 * error, rel=0.02)

    def test_wrong_arguments(self, fitted, survey):
        with pytest.raises(InputError, match="use observed, response or residual"):
            fitted.label_correlation("causal")
        with pytest.raises(InputError, match="level"):
            fitted.predict_count(survey[0], level=95)


class TestOtherMethods:
    def test_labels_of_a_method_that_learns_no_factors_are_drawn_one_by_one(self):
        data, _ = make_survey(200, 5, 4, n_groups=2, seed=0)
        model = BinaryRelevance().fit(data.X, data.Y)
        assert model.sample_labels(data.X, 3, random_state=0).shape == (3, 200, 4)
        found = model.label_set_log_likelihood(data.X, data.Y)
        assert (found.standard_error == 0).all()
        with pytest.raises(InputError, match="conditional=True"):
            model.label_correlation("residual")


def test_pairs_need_an_interval_without_0_and_a_floor():
    value = np.array([[1, 0.3, 0.2], [0.3, 1, 0.05], [0.2, 0.05, 1]])
    found = LabelCorrelation(value, value - 0.25, value + 0.25)
    assert [pair[:2] for pair in found.pairs("abc")] == [("a", "b")]
    assert found.pairs("abc", floor=0.4) == []


def test_correlations_and_their_errors_against_a_plain_loop(rng):
    """Of rows that know both labels; the error is that of products of residuals."""
    labels = (rng.random((300, 4)) < [0.2, 0.4, 0.5, 0.7]).astype(np.uint8)
    unknown = rng.random(labels.shape) < 0.3
    scores = np.clip(rng.random(labels.shape), 0.1, 0.9)
    rows = Rows(np.zeros((300, 1)), labels * ~unknown, unknown)
    factors = LabelFactors(LOADINGS.astype(np.float32), np.zeros(4, np.float32))
    pairs = _learn_pairs(rows, scores, factors)
    for i, j in product(range(4), range(4)):
        if i == j:
            continue
        both = ~unknown[:, i] & ~unknown[:, j]
        one, other = labels[both, i].astype(float), labels[both, j].astype(float)
        value = np.corrcoef(one, other)[0, 1]
        assert pairs.observed[i, j] == pytest.approx(value, abs=2e-3)
        error = (1 - value**2) / np.sqrt(both.sum())
        assert pairs.observed_error[i, j] == pytest.approx(error, abs=2e-3)
        r, excess, size = LOADINGS[i] @ LOADINGS[j], 0.0, 0.0
        for row in np.flatnonzero(both):
            p, a = scores[row, [i, j]], norm.ppf(scores[row, [i, j]])
            residual = norm.pdf(a) * (labels[row, [i, j]] - p) / (p * (1 - p))
            variance = norm.pdf(a) ** 2 / (p * (1 - p))
            excess += (residual.prod() - r * variance.prod()) ** 2
            size += variance.prod()
        assert pairs.residual_error[i, j] == pytest.approx(np.sqrt(excess) / size, rel=2e-3)


def test_the_standard_error_is_the_spread_over_seeds():
    labels, known = SETS[[5, 9]], np.ones((2, 4), bool)
    found = [
        label_set_log_likelihood(SCORES, labels, known, LOADINGS, n_draws=16, seed=seed)
        for seed in range(60)
    ]
    spread = np.std([each.value for each in found], axis=0)
    np.testing.assert_allclose(np.mean([e.standard_error for e in found], axis=0), spread, rtol=0.5)


def test_given_labels_are_not_predicted(rng):
    task = _Task.of(SCORES, SETS[[5, 9]])
    learned = torch.from_numpy(LOADINGS.astype(np.float32)), torch.zeros(4)
    given = torch.tensor([[True, True, False, False], [True] * 4])
    counted = torch.tensor([[True, True, True, False], [True] * 4])
    first, second = task.losses(given, counted, *learned)
    right = torch.special.ndtr(task.predict(given, *learned))[0, 2]
    expected = -torch.log(right if SETS[5, 2] else 1 - right)
    assert float(first) == pytest.approx(float(expected), rel=1e-4)
    assert float(second) == 0
