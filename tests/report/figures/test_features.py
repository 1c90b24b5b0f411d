"""Permutation importance, and the effect of words."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.inspection import permutation_importance
from sklearn.metrics import average_precision_score

from cgmvae.errors import InputError
from cgmvae.evaluation import GlobalThreshold
from cgmvae.report import FeatureImportanceDisplay, LabelWordsDisplay


class Reads:
    """Two labels: the first depends on feature 0, the second on feature 2."""

    label_names_ = ("first", "$second$")
    threshold_rule_ = GlobalThreshold(0.5)

    def predict_proba(self, X):
        X = X.toarray() if sp.issparse(X) else X
        return 1 / (1 + np.exp(-X[:, [0, 2]]))


@pytest.fixture
def rows(rng):
    X = np.where(rng.uniform(size=(80, 4)) < 0.3, 0, rng.normal(size=(80, 4)))
    return X, (X[:, [0, 2]] > 0.2).astype(int)


def test_a_label_needs_its_own_feature_only(rows):
    display = FeatureImportanceDisplay.from_estimator(Reads(), *rows)
    first, _ = display.importance("first")
    second, _ = display.importance("$second$")
    assert first[0] > 0.2
    assert second[2] > 0.2
    assert first[1:].tolist() == [0, 0, 0]
    assert second[[0, 1, 3]].tolist() == [0, 0, 0]
    mean, _ = display.importance()
    np.testing.assert_allclose(mean, (first + second) / 2)


def test_the_drop_is_near_that_of_scikit_learn(fitted):
    model, data = fitted
    display = FeatureImportanceDisplay.from_estimator(model, data.X, data, n_repeats=15)

    def score(model, X, Y):
        return average_precision_score(Y[:, 1], model.predict_proba(X)[:, 1])

    oracle = permutation_importance(
        model, data.X, data.Y, scoring=score, n_repeats=15, random_state=0
    )
    mean, spread = display.importance(data.label_names[1])
    error = 4 * np.hypot(spread, oracle.importances_std) / np.sqrt(15) + 1e-3
    assert (np.abs(mean - oracle.importances_mean) < error).all()
    assert display.baseline[1] == pytest.approx(score(model, data.X, data.Y))


def test_sparse_features_are_shuffled_like_dense_ones(rows):
    X, Y = rows
    dense = FeatureImportanceDisplay.from_estimator(Reads(), X, Y, n_repeats=40)
    sparse = FeatureImportanceDisplay.from_estimator(Reads(), sp.csr_array(X), Y, n_repeats=40)
    assert sparse.importance("first")[0][1:].tolist() == [0, 0, 0]
    assert sparse.importance("first")[0][0] == pytest.approx(
        dense.importance("first")[0][0], abs=0.05
    )


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_features_of_one_column_are_shuffled_together(form, rng):
    """Each of three dummies alone leaves a trace of the habitat in the other two."""
    habitat = rng.integers(0, 3, 300)
    X, Y = np.eye(3)[habitat], np.eye(3, dtype=int)[habitat][:, :2]

    class Dummies(Reads):
        def predict_proba(self, X):
            X = X.toarray() if sp.issparse(X) else X
            return expit(np.stack([X[:, 0] - X[:, 1] - X[:, 2], X[:, 1] - X[:, 0] - X[:, 2]], 1))

    found = FeatureImportanceDisplay.from_estimator(
        Dummies(), form(X), Y, candidates={"habitat": [0, 1, 2], "fen": [0]}, n_repeats=20
    )
    assert list(found.feature_names) == ["habitat", "fen"]
    whole, part = found.importance("first")[0]
    # All rows have a habitat still: the precision is that of chance, a third of the rows.
    assert whole == pytest.approx(1 - 1 / 3, abs=0.1)
    assert part < 0.8 * whole


def test_the_best_features_are_shown_by_name_the_best_on_top(rows):
    names = ["$a$", "b_c", "<i>", "d"]
    display = FeatureImportanceDisplay.from_estimator(Reads(), *rows, feature_names=names)
    display.plot(label="$second$", n_shown=2)
    ticks = display.ax_.get_yticklabels()
    assert [tick.get_text() for tick in ticks] == ["<i>", "$a$"]
    assert not any(tick.get_parse_math() for tick in [*ticks, display.ax_.title])
    assert display.ax_.yaxis_inverted()
    assert display.ax_.get_title() == "$second$"
    assert [bar.get_width() for bar in display.ax_.patches] == [
        display.importance("$second$")[0][2],
        0,
    ]


def test_large_data_is_subsampled_and_sparse_features_by_frequency(rows):
    X = rows[0] * ([1, 0, 1, 0] | (np.arange(80) < 5)[:, None])
    limits = {"feature_names": list("abcd"), "max_features": 2, "max_rows": 50, "n_repeats": 1}
    for table in (X, sp.csr_array(X)):
        display = FeatureImportanceDisplay.from_estimator(Reads(), table, rows[1], **limits).plot()
        assert display.drops.shape == (2, 1, 2)
        assert "2 of 4 features shuffled" in display.ax_.get_title()
        assert display.n_rows == 50
    assert display.feature_names == ["a", "c"]
    display = FeatureImportanceDisplay.from_estimator(
        Reads(),
        sp.csr_array(X),
        rows[1],
        candidates={n: ["abcd".index(n)] for n in "bcd"},
        **limits,
    )
    assert "a" not in display.feature_names


def test_the_importance_for_an_absent_label_is_undefined(rows):
    X, Y = rows
    Y = Y.astype(float)
    Y[:, 1] = np.where(Y[:, 1] == 1, np.nan, 0)
    display = FeatureImportanceDisplay.from_estimator(Reads(), X, Y)
    assert np.isnan(display.importance("$second$")[0]).all()
    np.testing.assert_allclose(display.importance()[0], display.importance("first")[0])
    display.plot(label="$second$")
    assert display.ax_.texts[0].get_text() == "not defined on these rows"


def test_unknown_labels_are_rejected(rows):
    display = FeatureImportanceDisplay.from_estimator(Reads(), *rows, n_repeats=1)
    with pytest.raises(InputError, match="no label 'third'"):
        display.plot(label="third")


WORDS = {1: "owl", 2: "$wing$", 3: "keel", 4: "the", 5: "rare"}


class ReadsWords:
    """Two labels: birds depends on words 1 and 2, boats on word 3; feature 0 is not a word."""

    label_names_ = ("birds", "boats")

    def predict_proba(self, X):
        assert sp.issparse(X)
        first = 2 * X[:, [1]].toarray() + X[:, [2]].toarray() + 5 * X[:, [0]].toarray()
        return expit(np.hstack([first, 3 * X[:, [3]].toarray()]) - 1)


@pytest.fixture
def texts(rng):
    X = sp.csr_array((rng.random((200, 6)) < (0.5, 0.3, 0.3, 0.3, 0.9, 0.0)).astype(float))
    return X, (ReadsWords().predict_proba(X) > 0.5).astype(int)


def test_the_drop_of_the_log_odds_is_the_effect_of_a_word(texts):
    display = LabelWordsDisplay.from_estimator(ReadsWords(), *texts, words=WORDS)
    birds, boats = display.top("birds"), display.top("boats")
    assert [word for word, _ in birds] == ["owl", "$wing$"]
    assert [effect for _, effect in birds] == pytest.approx([2, 1], abs=1e-3)
    assert [word for word, _ in boats] == ["keel"]
    assert boats[0][1] == pytest.approx(3)
    drawn = display.plot().ax_.texts
    assert any("$wing$ 1.0" in text.get_text() for text in drawn)
    assert not any(text.get_parse_math() for text in drawn)


def test_a_label_that_no_word_speaks_for_and_the_most_frequent_label(texts):
    X, Y = texts
    never = np.column_stack([Y[:, 0], np.zeros(len(Y), int)])
    words = {4: "the", 5: "rare"}
    display = LabelWordsDisplay.from_estimator(ReadsWords(), X, never, words=words, max_labels=1)
    assert display.label_names == ["birds"]
    assert display.top("birds") == []
    assert {text.get_text() for text in display.plot().ax_.texts} == {"none"}
