"""Linear support vector machines as an expert: what they learn, and that they are stored."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import cgmvae
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods.inputs import Rows
from cgmvae.methods.linear import MAX_WEIGHT, LinearSVM, _best_weights, _fit_svms, unit_length

N_ROWS, N_WORDS, N_LABELS = 500, 60, 3


@pytest.fixture
def documents(rng):
    """Return rows of words, of which some make a label more likely, and their labels."""
    X = sp.random_array((N_ROWS, N_WORDS), density=0.15, rng=rng, format="csr")
    effect = 6 * rng.normal(size=(N_WORDS, N_LABELS))
    odds = unit_length(X) @ effect - 1
    return X, (rng.random(odds.shape) < expit(odds)).astype(np.uint8)


class TestMachines:
    def test_each_label_is_learned_from_the_rows_that_know_it(self, documents, rng):
        X, Y = documents
        unknown = rng.random(Y.shape) < 0.3
        weights = rng.uniform(0.1, 2, N_ROWS)
        found, intercepts = _fit_svms(Rows(X, Y, unknown, weights))
        for label in range(N_LABELS):
            known = ~unknown[:, label]
            svm = LinearSVC(random_state=0)
            svm.fit(X[known], Y[known, label], sample_weight=weights[known])
            np.testing.assert_allclose(found[:, label], svm.coef_[0], atol=1e-3)
            np.testing.assert_allclose(intercepts[label], svm.intercept_[0], atol=1e-3)

    @pytest.mark.parametrize("value", [0, 1])
    def test_a_label_that_all_rows_have_or_none(self, documents, value):
        X, Y = documents
        Y[:, 1] = value
        found, intercepts = _fit_svms(Rows(X, sp.csr_array(Y)))
        assert (found[:, 1] == 0).all()
        assert intercepts[1] == (1 if value else -1)

    def test_slope_and_shift_are_those_of_a_logistic_regression(self, rng):
        terms = rng.normal(size=(1, 4000))
        true = rng.random(4000) < expit(1.7 * terms[0] - 0.4)
        _, found = _best_weights(terms, true)
        plain = LogisticRegression(C=1e9).fit(terms.T, true)
        np.testing.assert_allclose(found, [plain.coef_[0, 0], plain.intercept_[0]], atol=1e-3)

    def test_the_slope_stays_within_bounds(self, rng):
        terms = rng.normal(size=(1, 300))
        assert _best_weights(terms, terms[0] > 0)[1][0] == MAX_WEIGHT
        assert _best_weights(terms, terms[0] < 0)[1][0] == 0


class TestExpert:
    def test_margins_are_the_mean_of_svms_of_parts(self, documents):
        X, Y = documents
        model = LinearSVM(random_state=0).fit(X, Y)
        loss = [-np.log(np.where(Y, p, 1 - p)).mean() for p in (model.oof_proba_, Y.mean(0))]
        assert loss[0] < 0.9 * loss[1]
        odds = unit_length(X) @ model.coefficients_ + model.intercepts_
        np.testing.assert_allclose(model.predict_proba(X), expit(odds))
        spread = np.std(logit(model.oof_proba_)) / np.std(odds)
        assert 0.7 < spread < 1.4  # the mean of the machines is scaled like each of them
        single = LinearSVC(random_state=0).fit(unit_length(X), Y[:, 0])
        assert np.corrcoef(model.coefficients_[:, 0], single.coef_[0])[0, 1] > 0.95

    def test_rows_are_scored_by_parts_without_their_group(self, rng):
        """Each row has a twin in its group, which knows all."""
        X = sp.csr_array(np.repeat(rng.random((150, 40)) * (rng.random((150, 40)) < 0.2), 2, 0))
        Y = np.repeat((rng.random((150, 2)) < 0.4).astype(np.uint8), 2, axis=0)
        alone, together = (
            np.abs(LinearSVM(random_state=0).fit(X, Y, groups=groups).oof_proba_ - Y).mean()
            for groups in (None, np.repeat(np.arange(150), 2))
        )
        assert alone < 0.95 * together

    def test_damaged_coefficients_are_refused(self, documents, tmp_path):
        LinearSVM(random_state=0).fit(*documents).save(tmp_path / "m")
        tensors, description = read_tensors(tmp_path / "m")
        tensors["fitted.coefficients"] = tensors["fitted.coefficients"][1:]
        write_tensors(tmp_path / "m", tensors, description)
        with pytest.raises(InputError, match="is damaged"):
            cgmvae.load(tmp_path / "m")
