"""Weights of experts: against a logistic regression, under permutations, and who is dropped."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from cgmvae.evaluation import (
    example_f1,
    hamming_accuracy,
    learn_rule,
    macro_f1,
    micro_f1,
    precision_at_k,
)
from cgmvae.methods.combination import (
    Combination,
    _equal_shares,
    _least_loss,
    _Task,
    estimate_penalty,
    learn_combination,
    weigh_experts,
)
from cgmvae.methods.inputs import Rows

N_ROWS, N_LABELS = 400, 3


def experts(rng, n_rows=N_ROWS):
    """Return labels, and the log-odds of two experts that know different parts of the truth."""
    parts = rng.normal(size=(2, n_rows, N_LABELS))
    offsets = np.array([-2.0, 0.0, 0.5])
    labels = (rng.random(parts.shape[1:]) < expit(1.5 * parts.sum(0) + offsets)).astype(np.uint8)
    return labels, [parts[0] - 0.5, parts[1] + offsets]


class TestLearning:
    def test_without_penalties_it_is_a_logistic_regression(self, rng):
        labels, odds = experts(rng)
        found = learn_combination(labels, odds, weight_penalty=0, shift_penalty=0)
        label = np.tile(np.arange(N_LABELS), N_ROWS)
        columns = [*(own.ravel() for own in odds), *(label == i for i in range(N_LABELS))]
        model = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=1000)
        expected = model.fit(np.column_stack(columns), labels.ravel()).coef_[0]
        np.testing.assert_allclose([*found.weights, *found.shifts], expected, atol=1e-4)

    def test_the_penalties_pull_to_equal_shares_and_to_no_shift(self, rng):
        labels, odds = experts(rng)
        found = learn_combination(labels, odds, weight_penalty=1e9, shift_penalty=1e9)
        np.testing.assert_allclose(found.weights, 0.5, atol=1e-4)
        np.testing.assert_allclose(found.shifts, found.shifts[0], atol=1e-4)
        z = found.of_log_odds(odds)
        assert expit(z).sum() == pytest.approx(labels.sum())  # the constant is free
        near, far = (
            learn_combination(labels, odds, weight_penalty=penalty).weights
            for penalty in (1000.0, 1.0)
        )
        assert (np.abs(near - 0.5) < np.abs(far - 0.5)).all()

    @pytest.mark.parametrize("before", [1.0, 1e4])
    def test_the_least_loss_does_not_depend_on_where_the_search_begins(self, rng, before):
        labels, odds = experts(rng, 60)
        start, other = (
            _least_loss(labels, odds, None, (penalty, penalty), _equal_shares(labels, odds))
            for penalty in (100.0, before)
        )
        far = np.array([20.0, 20.0, 5.0]), other[1]  # whole steps of Newton's method lead astray
        for begin in (other, far):
            again = _least_loss(labels, odds, None, (100.0, 100.0), begin)
            for found, expected in zip(again, start, strict=True):
                np.testing.assert_allclose(found, expected, atol=1e-4)

    def test_few_rows_move_weights_less_than_many(self, rng):
        labels, odds = experts(rng)
        few = learn_combination(labels[:20], [own[:20] for own in odds])
        many = learn_combination(labels, odds)
        assert np.abs(few.weights - 0.5).max() < np.abs(many.weights - 0.5).max()

    def test_shifts_are_shrunk_as_much_as_labels_differ_by_chance_alone(self, rng):
        """The estimated penalty is one over the variance that the shifts were drawn with."""
        odds = rng.normal(size=(2000, 60))
        for spread in (1.0, 0.25):
            shifts = spread * rng.normal(size=60)
            labels = (rng.random(odds.shape) < expit(odds + shifts)).astype(np.uint8)
            assert estimate_penalty(labels, [odds]) == pytest.approx(1 / shifts.var(), rel=0.3)
        labels = (rng.random(odds.shape) < expit(odds)).astype(np.uint8)
        assert estimate_penalty(labels, [odds]) > 200
        known = np.arange(2000)[:, None] < np.full(60, 1000)
        half = estimate_penalty(labels[:1000], [odds[:1000]])
        assert estimate_penalty(labels, [odds], known) == pytest.approx(half)

    def test_no_weight_is_below_0(self, rng):
        labels, odds = experts(rng)
        found = learn_combination(labels, [odds[0], -odds[1]], weight_penalty=0)
        assert found.weights[0] > 0.5
        assert found.weights[1] == 0

    def test_unknown_cells_are_ignored(self, rng):
        labels, odds = experts(rng)
        known = rng.random(labels.shape) < 0.6
        known[:, 2] = False
        found = learn_combination(labels, odds, known)
        changed = np.where(known, labels, 1 - labels)
        moved = [np.where(known, own, 99) for own in odds]
        again = learn_combination(changed, moved, known)
        np.testing.assert_array_equal(found.weights, again.weights)
        np.testing.assert_array_equal(found.shifts, again.shifts)
        assert np.abs(learn_combination(labels, odds).weights - found.weights).max() > 1e-3

    @settings(max_examples=20)
    @given(seed=st.integers(0, 999))
    def test_permutations_of_experts_and_labels(self, seed):
        rng = np.random.default_rng(seed)
        labels, odds = experts(rng, 60)
        odds = [*odds, rng.normal(size=labels.shape)]
        order, columns = rng.permutation(3), rng.permutation(N_LABELS)
        found = learn_combination(labels, odds)
        other = learn_combination(labels[:, columns], [odds[i][:, columns] for i in order])
        np.testing.assert_allclose(other.weights, found.weights[order], atol=1e-6)
        np.testing.assert_allclose(other.shifts, found.shifts[columns], atol=1e-6)

    def test_what_is_combined(self):
        model = Combination(np.array([2.0, 0.5]), np.array([0.25]))
        scores = [np.array([[0.75]]), np.array([[0.5]])]  # log-odds ln 3 and 0
        np.testing.assert_allclose(model.apply(scores), expit(2 * np.log(3) + 0.25))


class TestChoice:
    @settings(max_examples=10)
    @given(seed=st.integers(0, 999))
    def test_a_useless_expert_is_dropped_and_a_useful_one_is_not(self, seed):
        rng = np.random.default_rng(seed)
        labels, odds = experts(rng)
        noise = expit(rng.normal(size=labels.shape))
        scores = {"a": expit(odds[0]), "noise": noise, "b": expit(odds[1])}
        found = weigh_experts(Rows(None, labels), scores)
        assert {"a", "b"} <= set(found.names)
        assert min(found.gains["a"], found.gains["b"]) > 0.01 > abs(found.gains["noise"])
        kept = weigh_experts(Rows(None, labels), scores, keep={"noise"})
        assert kept.names == ["a", "noise", "b"]
        if found.names == ["a", "b"]:
            expected = learn_combination(labels, odds)  # with another penalty of shifts
            np.testing.assert_allclose(found.combination.weights, expected.weights, atol=0.02)

    def test_most_useless_experts_are_dropped(self):
        dropped = 0
        for seed in range(20):
            rng = np.random.default_rng(seed)
            labels, odds = experts(rng, 200)
            scores = {"a": expit(odds[0]), "noise": expit(rng.normal(size=labels.shape))}
            dropped += weigh_experts(Rows(None, labels), scores).names == ["a"]
        assert dropped >= 15

    def test_what_an_expert_helps_is_counted_in_standard_errors_of_groups(self, rng):
        labels, odds = experts(rng, 60)
        first, second = expit(odds[0]), expit(odds[1])
        unknown = rng.random(labels.shape) < 0.2
        groups = np.arange(60) // 5
        found = _Task(Rows(None, labels, unknown, groups=groups), odds, "micro_f1", 0)
        losses = [
            np.where(unknown, 0, -np.log(np.where(labels, p, 1 - p))) for p in (first, second)
        ]
        differences = (losses[1] - losses[0]).sum(1)
        by_group = [(differences[groups == g] - differences.mean()).sum() for g in range(12)]
        expected = differences.sum() / np.sqrt(np.sum(np.square(by_group)))
        assert found.gain(first, second) == pytest.approx(expected)

    def test_the_score_of_an_expert_alone(self, rng):
        labels, odds = experts(rng)
        p = expit(odds[0])
        predicted = learn_rule(labels, p).apply(p)
        metrics = (example_f1, micro_f1, macro_f1, hamming_accuracy)
        expected = [*(metric(labels, predicted) for metric in metrics), precision_at_k(labels, p)]
        found = weigh_experts(Rows(None, labels), {"a": p})
        assert found.alone["a"] == pytest.approx(np.mean(expected))
        assert found.gains == {}

    def test_rows_do_not_choose_their_own_weights(self, rng):
        labels, odds = experts(rng)
        groups = np.arange(N_ROWS) // 40
        task = _Task(Rows(None, labels, groups=groups), odds, "micro_f1", 0)
        for group in range(10):
            assert len(np.unique(task.fold[groups == group])) == 1
        own = task.fold == 0
        changed = np.where(own[:, None], 1 - labels, labels)
        other = _Task(Rows(None, changed, groups=groups), odds, "micro_f1", 0)
        other.shift_penalty = task.shift_penalty  # one number, which all rows choose
        first, second = task.cross_fitted(odds), other.cross_fitted(odds)
        np.testing.assert_array_equal(first[own], second[own])
        assert np.abs(first[~own] - second[~own]).max() > 0.01

    def test_weights_of_many_rows_come_from_a_sample(self, rng, monkeypatch):
        labels, odds = experts(rng)
        scores = dict(zip("ab", map(expit, odds), strict=True))
        whole = weigh_experts(Rows(None, labels), scores).combination.weights
        monkeypatch.setattr("cgmvae.methods.combination.MAX_CELLS", 200 * N_LABELS)
        part = weigh_experts(Rows(None, labels), scores).combination.weights
        assert 1e-4 < np.abs(whole - part).max() < 0.3
