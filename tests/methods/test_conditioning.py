"""Known labels: the multivariate probit in closed form, and what is learned for it."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm, truncnorm

from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods import conditioning, load
from cgmvae.methods.conditioning import LabelFactors, _given_labels, learn_factors
from cgmvae.methods.inputs import Rows

PLAIN = np.zeros(4, np.float32)


def factors(*loadings):
    """Return factors of these loadings, each known label counting once."""
    return LabelFactors(np.array(loadings, np.float32), PLAIN)


def rows_of(labels, unknown=None, groups=None):
    return Rows(np.zeros((len(labels), 1)), labels.astype(np.uint8), unknown, None, groups)


def log_loss(labels, p, given):
    return -np.log(np.where(labels, p, 1 - p)[~given]).mean()


@pytest.fixture
def probit_rows(rng):
    """Return labels of 1,500 rows that share two factors, and their probabilities without these."""
    loadings = rng.normal(size=(8, 2))
    loadings *= 0.9 / np.linalg.norm(loadings, axis=1, keepdims=True)
    expected = rng.normal(size=(1500, 8))
    noise = rng.normal(size=expected.shape) * np.sqrt(1 - 0.9**2)
    latent = expected + rng.normal(size=(1500, 2)) @ loadings.T + noise
    return latent > 0, norm.cdf(expected)


@pytest.fixture
def opposites(rng):
    """Return features that say nothing, a label, the same once more, and its opposite."""
    first = rng.random(400) < 0.5
    return rng.normal(size=(400, 3)), np.column_stack([first, first, ~first]).astype(float)


class TestClosedForm:
    @pytest.mark.parametrize("present", [True, False])
    @pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.2, 0.7), (0.05, 0.3)])
    def test_one_known_label_against_the_bivariate_normal(self, p, q, present):
        own = factors([0.8], [0.7])
        found = own.condition(
            np.array([[p, q]]), np.array([[present, False]]), np.array([[True, False]])
        )[0, 1]
        correlation = 0.8 * 0.7 * (1 if present else -1)
        a, b = norm.ppf(p) * (1 if present else -1), norm.ppf(q)
        both = multivariate_normal.cdf([a, b], cov=[[1, correlation], [correlation, 1]])
        assert found == pytest.approx(both / norm.cdf(a), abs=0.015)

    @pytest.mark.parametrize("present", [True, False])
    @pytest.mark.parametrize("p", [0.02, 0.3, 0.5, 0.9])
    def test_a_known_label_has_the_mean_and_variance_of_a_truncated_normal(self, p, present):
        """The first label is the factor itself, or nearly."""
        a, q = norm.ppf(p), 0.4
        of_factor = truncnorm(*((-a, np.inf) if present else (-np.inf, -a)))
        found = factors([0.9999999], [0.8]).condition(
            np.array([[p, q]]), np.array([[present, False]]), np.array([[True, False]])
        )[0, 1]
        spread = np.sqrt(1 - 0.8**2 + 0.8**2 * of_factor.var())
        expected = norm.cdf((norm.ppf(q) + 0.8 * of_factor.mean()) / spread)
        assert found == pytest.approx(expected, rel=1e-4)

    def test_a_surprise_says_more_than_what_was_expected(self):
        own, given = factors([0.8], [0.8]), np.array([[True, False]])
        surprising, expected = (
            own.condition(np.array([[p, 0.5]]), np.array([[True, True]]), given)[0, 1]
            for p in (0.1, 0.95)
        )
        assert surprising > 0.8
        assert 0.5 < expected < 0.55

    def test_rows_of_which_nothing_is_known_keep_their_probabilities(self, rng):
        scores = rng.random((600, 3)).astype(np.float32) ** 8
        given = np.zeros(scores.shape, bool)
        given[::2, 0] = True
        found = factors([0.5], [0.5], [0.5]).condition(scores, scores > 0.5, given)
        np.testing.assert_array_equal(found[1::2], scores[1::2])
        assert (found[::2, 1] != scores[::2, 1]).all()
        assert found.dtype == scores.dtype

    def test_who_names_present_labels_alone_has_named_a_share_of_them(self):
        """Without factors, naming half of the two expected labels makes the others rarer."""
        own = LabelFactors(np.zeros((4, 1), np.float32), np.array([0, 0, 0, 1], np.float32))
        scores, given = np.full((1, 4), 0.5), np.array([[True, False, False, False]])
        named, absent = (own.condition(scores, present & given, given) for present in (True, False))
        assert named[0, 1] == pytest.approx(norm.cdf(np.log(0.5)), abs=1e-6)
        assert absent[0, 1] == pytest.approx(0.5)

    @pytest.mark.parametrize(
        ("ignored", "counts_alone", "counts_beside_absent"),
        [(0, True, False), (1, True, True), (2, False, True)],
    )
    def test_which_strength_is_that_of_a_present_label(
        self, ignored, counts_alone, counts_beside_absent
    ):
        """The second label has no factors: that it is absent says only that absent ones are known.

        Strengths are of present labels, of absent ones, and of present ones that alone are known.
        """
        strengths = np.where(np.arange(4) == ignored, -60, 0).astype(np.float32)
        own = LabelFactors(np.array([[0.8], [0.0], [0.8]], np.float32), strengths)
        scores, present = np.full((2, 3), 0.3), np.array([[True, False, False]] * 2)
        given = np.array([[True, False, False], [True, True, False]])
        changed = own.condition(scores, present, given)[:, 2] > 0.4
        assert changed.tolist() == [counts_alone, counts_beside_absent]
        np.testing.assert_allclose(
            own.condition(scores, present, given)[~changed, 2], 0.3, rtol=1e-5
        )

    @pytest.mark.parametrize("ignored", [True, False])
    def test_which_strength_is_that_of_an_absent_label(self, ignored):
        strengths = np.array([0, -60 if ignored else 0, 0, 0], np.float32)
        own = LabelFactors(np.full((2, 1), 0.8, np.float32), strengths)
        found = own.condition(
            np.full((1, 2), 0.3), np.full((1, 2), False), np.array([[True, False]])
        )
        assert (found[0, 1] < 0.29) != ignored


class TestLearning:
    @pytest.mark.parametrize("kind", ["any", "present"])
    def test_known_labels_help_where_labels_share_factors(self, probit_rows, rng, kind):
        labels, scores = probit_rows
        learned = learn_factors(rows_of(labels[:1000]), scores[:1000], seed=0)
        true, p = labels[1000:], scores[1000:]
        given = rng.random(true.shape) < 0.4
        given = given & true if kind == "present" else given
        assert log_loss(true, learned.condition(p, true, given), given) < 0.9 * log_loss(
            true, p, given
        )

    def test_labels_that_say_nothing_about_each_other_have_no_factors(self, rng):
        """Each group of rows has random labels of its own: only other groups can tell."""
        labels = (rng.random((40, 20)) < 0.5).repeat(10, axis=0)
        groups = np.arange(40).repeat(10)
        rows = rows_of(labels, groups=groups)
        assert learn_factors(rows, np.full(labels.shape, 0.5), seed=0) is None

    @pytest.mark.parametrize("n_labels", [1, 2])
    def test_few_labels(self, rng, n_labels):
        labels = (rng.random((200, 1)) < 0.5).repeat(n_labels, axis=1)
        learned = learn_factors(rows_of(labels), np.full(labels.shape, 0.5), seed=0)
        assert (learned is None) == (n_labels == 1)

    def test_only_known_labels_are_given(self, rng):
        known = rng.random((500, 6)) < 0.6
        labels = known & (rng.random(known.shape) < 0.4)
        given = _given_labels(labels, known, rng)
        assert not (given & ~known).any()
        assert (given & labels).any()
        assert (given & ~labels).any()

    def test_unknown_labels_are_neither_given_nor_predicted(self, probit_rows, rng):
        labels, scores = probit_rows
        unknown = rng.random(labels.shape) < 0.3
        other = np.where(unknown, rng.random(labels.shape) < 0.5, labels)
        first, second = (
            learn_factors(rows_of(y, unknown), scores, seed=0) for y in (labels, other)
        )
        np.testing.assert_array_equal(first.loadings, second.loadings)

    def test_a_conditional_model_learns_from_present_and_absent_labels(
        self, tiny, opposites, tmp_path
    ):
        X, Y = opposites
        model = tiny(n_members=4).fit(X, Y)
        plain, nothing = model.predict_proba(X), np.full(Y.shape, np.nan)
        np.testing.assert_allclose(model.predict_proba(X, nothing), plain, atol=1e-6)
        for value in (0.0, 1.0):
            known = np.where(np.arange(3) == 0, value, nothing)
            p = model.predict_proba(X, known)
            assert (p[:, 0] == value).all()
            assert np.abs(p[:, 1] - value).mean() < 0.2
            assert np.abs(p[:, 2] - (1 - value)).mean() < 0.2
        path = tmp_path / "model.cgmvae"
        model.save(path)
        np.testing.assert_array_equal(load(path).predict_proba(X, known), p)
        tensors, description = read_tensors(path)
        broken = {n: 9 * a if "loadings" in n else a for n, a in tensors.items()}
        write_tensors(path, broken, description)
        with pytest.raises(InputError, match="explain more"):
            load(path)


def test_adam_is_that_of_torch():
    start, target = torch.tensor([0.5, -2.0, 3.0]), torch.tensor([1.0, 0.0, -1.0])
    own, other = (start.clone().requires_grad_() for _ in range(2))
    of_torch, ours = torch.optim.Adam([other], lr=0.1), conditioning._Adam(own)
    for _ in range(20):
        ours.step(((own - target) ** 4).sum(), 0.1)
        of_torch.zero_grad()
        ((other - target) ** 4).sum().backward()
        of_torch.step()
    torch.testing.assert_close(own, other)
