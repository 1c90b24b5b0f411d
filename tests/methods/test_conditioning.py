"""Known labels: the multivariate probit in closed form, and what is learned for it."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods import load
from cgmvae.methods.conditioning import LabelFactors, learn_factors
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
        labels = (rng.random((60, 4)) < 0.5).repeat(10, axis=0)
        groups = np.arange(60).repeat(10)
        rows = rows_of(labels, groups=groups)
        assert learn_factors(rows, np.full(labels.shape, 0.5), seed=0) is None

    @pytest.mark.parametrize("n_labels", [1, 2])
    def test_few_labels(self, rng, n_labels):
        labels = (rng.random((200, 1)) < 0.5).repeat(n_labels, axis=1)
        learned = learn_factors(rows_of(labels), np.full(labels.shape, 0.5), seed=0)
        assert (learned is None) == (n_labels == 1)

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
        model = tiny(n_members=4, conditional=True).fit(X, Y)
        plain, nothing = model.predict_proba(X), np.full(Y.shape, np.nan)
        np.testing.assert_allclose(model.predict_proba(X, nothing), plain, atol=1e-6)
        for value in (0.0, 1.0):
            known = np.where(np.arange(3) == 0, value, nothing)
            p = model.predict_proba(X, known)
            assert (p[:, 0] == value).all()
            assert np.abs(p[:, 1] - value).mean() < 0.2
            assert np.abs(p[:, 2] - (1 - value)).mean() < 0.2
        path = tmp_path / "model.cgmvae"
        model.save(path, precision="float32")
        np.testing.assert_array_equal(load(path).predict_proba(X, known), p)
        tensors, description = read_tensors(path)
        broken = {n: 9 * a if "loadings" in n else a for n, a in tensors.items()}
        write_tensors(path, broken, description)
        with pytest.raises(InputError, match="explain more"):
            load(path)

    def test_effects_of_an_earlier_version_are_left_out_with_a_warning(
        self, tiny, opposites, tmp_path
    ):
        X, Y = opposites
        path = tmp_path / "model.cgmvae"
        model = tiny(n_members=2).fit(X, Y)
        model.save(path, precision="float32")
        tensors, description = read_tensors(path)
        effects = np.zeros((2, 3, 3), np.float32)
        write_tensors(path, {**tensors, "fitted.label_effects": effects}, description)
        with pytest.warns(UserWarning, match="fit it again"):
            loaded = load(path)
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
