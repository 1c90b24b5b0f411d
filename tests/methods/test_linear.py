"""The linear model beside the network: what it adds, when it is used, and that it is stored."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import cgmvae
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods import CGMVAEClassifier
from cgmvae.methods.inputs import Rows
from cgmvae.methods.linear import (
    LARGEST_WEIGHT,
    N_PARTS,
    SHARE,
    _best_weights,
    learn_linear,
    unit_length,
)

N_ROWS, N_WORDS, N_LABELS = 500, 60, 3
WIDTHS = dict.fromkeys(("feature_hidden", "label_hidden", "decoder_hidden"), (8,))
TINY = {"epochs": 3, "embedding_dim": 8, "device": "cpu", "random_state": 0, "settings": WIDTHS}


@pytest.fixture
def documents(rng):
    """Return rows of words, of which some make a label more likely, and their labels."""
    X = sp.random_array((N_ROWS, N_WORDS), density=0.15, rng=rng, format="csr")
    effect = 6 * rng.normal(size=(N_WORDS, N_LABELS))
    odds = unit_length(X) @ effect - 1
    return X, (rng.random(odds.shape) < expit(odds)).astype(np.uint8)


def learn(X, Y, scores=None, folds=None, unknown=None, weights=None):
    """Learn beside a network that knows how frequent labels are, and no more."""
    folds = np.arange(Y.shape[0]) % 8 if folds is None else folds
    scores = np.tile(Y.mean(0), (Y.shape[0], 1)) if scores is None else scores
    rows = Rows(X, Y, unknown, weights)
    seen = np.flatnonzero(folds >= 0)
    return learn_linear(rows, rows.take(seen), folds, folds[seen], scores[seen])


class TestLearning:
    def test_it_is_the_mean_of_svms_that_leave_out_folds(self, documents, rng):
        X, Y = documents
        scores = expit(rng.normal(size=Y.shape))
        model, blended = learn(X, Y, scores)
        parts, margins, svms = np.arange(N_ROWS) % N_PARTS, np.zeros(Y.shape), []
        for k in range(N_PARTS):
            for label in range(N_LABELS):
                svm = LinearSVC(random_state=0)
                svm.fit(unit_length(X)[parts != k], Y[parts != k, label])
                rows = unit_length(X)[parts == k]
                margins[parts == k, label] = svm.decision_function(rows)
                svms.append((svm.coef_[0], svm.intercept_[0]))
        terms = np.column_stack([logit(scores).ravel(), margins.ravel()])
        a, b = LogisticRegression(C=np.inf, tol=1e-8).fit(terms, Y.ravel()).coef_[0]
        assert model.network_weight == pytest.approx(1 + SHARE * (a - 1), abs=1e-3)
        for label in range(N_LABELS):
            coefficients, _ = zip(*svms[label::N_LABELS], strict=True)
            expected = SHARE * b * np.mean(coefficients, axis=0)
            np.testing.assert_allclose(model.coefficients[:, label], expected, atol=0.02)
        assert blended.shape == scores.shape

    def test_what_is_added_to_the_log_odds(self, documents):
        X, Y = documents
        model, _ = learn(X, Y)
        scores = np.full((5, N_LABELS), 0.3)
        found = model.blend(scores, 7 * X[:5])  # the length of a row does not matter
        added = unit_length(X[:5]) @ model.coefficients + model.intercepts
        expected = expit(model.network_weight * logit(0.3) + added)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        np.testing.assert_allclose(model.blend(scores, X[:5].toarray()), found, rtol=1e-5)

    def test_it_lowers_the_log_loss_out_of_fold(self, documents):
        X, Y = documents
        scores = np.tile(Y.mean(0), (N_ROWS, 1)).astype(np.float32)
        _, blended = learn(X, Y, scores)
        assert blended.dtype == np.float32
        loss = [-np.log(np.where(Y, p, 1 - p)).mean() for p in (scores, blended)]
        assert loss[1] < 0.9 * loss[0]

    def test_words_that_say_nothing_are_not_used(self, documents, rng):
        X, Y = documents
        scores = np.tile(Y.mean(0), (N_ROWS, 1))
        model, blended = learn(X, rng.permutation(Y), scores)
        assert model is None
        assert np.array_equal(blended, scores)

    def test_a_better_temperature_alone_is_no_reason_to_use_it(self, documents, rng):
        X, Y = documents
        Y = rng.permutation(Y)
        right = rng.random(Y.shape) < 0.7
        overconfident = np.where(right == Y, 0.999, 0.001)
        assert _best_weights(logit(overconfident).reshape(1, -1), Y.ravel())[1][0] < 0.5
        assert learn(X, Y, overconfident)[0] is None

    def test_a_row_is_not_scored_by_svms_of_its_own_fold(self, rng):
        """Each row has a twin in its fold, which knows all."""
        X = sp.csr_array(np.repeat(rng.random((150, 40)) * (rng.random((150, 40)) < 0.2), 2, 0))
        Y = np.repeat((rng.random((150, 2)) < 0.4).astype(np.uint8), 2, axis=0)
        assert learn(X, Y, folds=np.repeat(np.arange(150) % 8, 2))[0] is None
        assert learn(X, Y, folds=np.arange(300) % 8)[0] is not None

    def test_unknown_labels_count_nowhere(self, documents, rng):
        X, Y = documents
        unknown = rng.random(Y.shape) < 0.3
        scores = np.tile(Y.mean(0), (N_ROWS, 1))
        found = [
            learn(X, labels, scores, unknown=unknown)[0] for labels in (Y * ~unknown, Y | unknown)
        ]
        np.testing.assert_array_equal(found[0].coefficients, found[1].coefficients)
        assert found[0].network_weight == pytest.approx(found[1].network_weight)

    def test_rows_without_labels_are_left_out(self, documents, rng):
        X, Y = documents
        folds = np.where(np.arange(N_ROWS) < 300, np.arange(N_ROWS) % 8, -1)
        unknown = np.broadcast_to((folds < 0)[:, None], Y.shape)
        few = learn(X[:300], Y[:300], np.full((300, N_LABELS), 0.3), folds[:300])[0]
        found = learn(X, Y * ~unknown, np.full(Y.shape, 0.3), folds, unknown)[0]
        np.testing.assert_allclose(found.coefficients, few.coefficients, atol=1e-3)

    def test_weights_of_rows_count(self, documents):
        X, Y = documents
        twice = np.tile(np.arange(N_ROWS), 2)
        folds = np.arange(N_ROWS) % 8
        weighted, repeated = (
            learn(X[rows], Y[rows], np.full((len(rows), N_LABELS), 0.3), folds[rows], None, weights)
            for rows, weights in ((np.arange(N_ROWS), np.full(N_ROWS, 2.0)), (twice, None))
        )
        np.testing.assert_allclose(
            weighted[0].coefficients, repeated[0].coefficients, rtol=0.01, atol=0.01
        )

    @pytest.mark.parametrize("value", [0, 1])
    def test_a_label_that_all_rows_have_or_none(self, documents, value):
        X, Y = documents
        Y = Y.copy()
        Y[:, 1] = value
        model, _ = learn(X, Y, np.full(Y.shape, 0.3))
        assert (model.coefficients[:, 1] == 0).all()
        assert np.sign(model.intercepts[1] - model.intercepts[0]) == (1 if value else -1)

    def test_indices_may_have_64_bits(self, documents):
        X, Y = documents
        wide = sp.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)))
        found, other = (learn(rows, Y)[0].coefficients for rows in (X, wide))
        np.testing.assert_array_equal(found, other)

    def test_labels_may_be_sparse(self, documents):
        X, Y = documents
        scores = np.full(Y.shape, 0.3)
        dense, sparse = (learn(X, labels, scores)[0] for labels in (Y, sp.csr_array(Y)))
        np.testing.assert_array_equal(dense.coefficients, sparse.coefficients)

    def test_weights_are_those_of_a_logistic_regression(self, rng):
        terms = rng.normal(size=(2, 400))
        true = rng.random(400) < expit(1.5 * terms[0] + 0.5 * terms[1] - 1)
        model = LogisticRegression(C=np.inf).fit(terms.T, true)
        expected = [*model.coef_[0], *model.intercept_]
        np.testing.assert_allclose(_best_weights(terms, true)[1], expected, rtol=1e-3)

    def test_weights_stay_within_bounds(self, rng):
        terms = rng.normal(size=(2, 400))
        _, weights = _best_weights(terms, terms[1] - terms[0] > 0)
        assert weights[0] == 0
        assert 1 < weights[1] <= LARGEST_WEIGHT
        assert _best_weights(terms, terms[1] > 0)[1][1] == LARGEST_WEIGHT


class TestModel:
    @pytest.fixture
    def fitted(self, documents):
        return CGMVAEClassifier(**TINY).fit(*documents)

    def test_it_is_part_of_what_a_model_predicts(self, fitted, documents):
        X, _ = documents
        linear, found = fitted.linear_model_, fitted.predict_proba(X)
        fitted.linear_model_ = None
        network = fitted.predict_proba(X)
        np.testing.assert_allclose(found, linear.blend(network, fitted.inputs(X)))
        assert not np.allclose(found, network)

    def test_it_survives_saving_to_the_last_digit(self, fitted, documents, tmp_path):
        fitted.round_weights()
        fitted.save(tmp_path / "m.cgmvae")
        loaded = cgmvae.load(tmp_path / "m.cgmvae")
        assert np.array_equal(
            loaded.predict_proba(documents[0]), fitted.predict_proba(documents[0])
        )

    @pytest.mark.parametrize(
        "settings", [{"linear_model": False}, {"preset": "paper"}, {"validation": True}]
    )
    def test_when_there_is_none(self, documents, settings):
        X, Y = documents
        fit = {"validation_data": (X[400:], Y[400:])} if settings.pop("validation", 0) else {}
        model = CGMVAEClassifier(**TINY, **settings).fit(X[:400], Y[:400], **fit)
        assert model.linear_model_ is None

    def test_dense_features_and_many_words_have_none_by_default(self, documents, monkeypatch):
        X, Y = documents
        assert CGMVAEClassifier(**TINY).fit(X.toarray(), Y).linear_model_ is None
        monkeypatch.setattr("cgmvae.methods.cgmvae.MOST_WEIGHTS", N_WORDS * N_LABELS - 1)
        assert CGMVAEClassifier(**TINY).fit(X, Y).linear_model_ is None
        assert CGMVAEClassifier(**TINY, linear_model=True).fit(X, Y).linear_model_ is not None

    def test_a_second_fit_forgets_the_first(self, fitted, documents, rng):
        X, Y = documents[0], rng.permutation(documents[1])
        assert fitted.fit(X, Y).linear_model_ is None
        fresh = clone(fitted).fit(X, Y)
        assert np.array_equal(fitted.predict_proba(X), fresh.predict_proba(X))

    def test_it_is_refused_with_validation_rows_before_training(self, documents):
        X, Y = documents
        model = CGMVAEClassifier(
            **TINY, linear_model=True, progress=lambda *_: pytest.fail("trained")
        )
        with pytest.raises(InputError, match="linear_model does not go with validation rows"):
            model.fit(X[:400], Y[:400], validation_data=(X[400:], Y[400:]))

    def test_something_else_than_yes_and_no(self, documents):
        with pytest.raises(InputError, match="linear_model"):
            CGMVAEClassifier(**TINY, linear_model="always").fit(*documents)

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("coefficients", lambda a: a[1:]),
            ("coefficients", lambda a: a * np.nan),
            ("intercepts", lambda a: a[1:]),
        ],
    )
    def test_damaged_arrays_are_refused(self, fitted, tmp_path, name, change):
        path = tmp_path / "m.cgmvae"
        fitted.save(path)
        tensors, description = read_tensors(path)
        tensors[f"fitted.linear.{name}"] = change(tensors[f"fitted.linear.{name}"])
        write_tensors(path, tensors, description)
        with pytest.raises(InputError, match="is damaged"):
            cgmvae.load(path)

    @pytest.mark.parametrize("weight", [np.inf, -0.1, "much", None])
    def test_a_damaged_weight_is_refused(self, fitted, tmp_path, weight):
        path = tmp_path / "m.cgmvae"
        fitted.save(path)
        tensors, description = read_tensors(path)
        description["fitted"]["linear"]["network_weight"] = weight
        write_tensors(path, tensors, description)
        with pytest.raises(InputError, match="is damaged"):
            cgmvae.load(path)
