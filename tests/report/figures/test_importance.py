import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.inspection import permutation_importance
from sklearn.metrics import average_precision_score

from cgmvae.errors import InputError
from cgmvae.evaluation import GlobalThreshold
from cgmvae.methods import BinaryRelevance
from cgmvae.report import FeatureImportanceDisplay


class Reads:
    """Two labels: the first is read off feature 0, the second off feature 2."""

    label_names_ = ("first", "$second$")
    threshold_rule_ = GlobalThreshold(0.5)

    def predict_proba(self, X):
        X = X.toarray() if sp.issparse(X) else X
        return 1 / (1 + np.exp(-X[:, [0, 2]]))


@pytest.fixture
def rows(rng):
    X = np.where(rng.uniform(size=(80, 4)) < 0.3, 0, rng.normal(size=(80, 4)))
    return X, (X[:, [0, 2]] > 0.2).astype(int)


@pytest.mark.parametrize("metric", ["average_precision", "f1"])
def test_a_label_needs_the_feature_it_is_read_off_and_no_other(rows, metric):
    display = FeatureImportanceDisplay.from_estimator(Reads(), *rows, metric=metric)
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
    display = FeatureImportanceDisplay.from_estimator(model, data.X, data, n_repeats=30)

    def score(model, X, Y):
        return average_precision_score(Y[:, 1], model.predict_proba(X)[:, 1])

    oracle = permutation_importance(
        model, data.X, data.Y, scoring=score, n_repeats=30, random_state=0
    )
    mean, spread = display.importance(data.label_names[1])
    error = 4 * np.hypot(spread, oracle.importances_std) / np.sqrt(30) + 1e-3
    assert (np.abs(mean - oracle.importances_mean) < error).all()
    assert display.baseline[1] == pytest.approx(score(model, data.X, data.Y))


def test_sparse_features_are_shuffled_alike(rows):
    X, Y = rows
    dense = FeatureImportanceDisplay.from_estimator(Reads(), X, Y, n_repeats=40)
    sparse = FeatureImportanceDisplay.from_estimator(Reads(), sp.csr_array(X), Y, n_repeats=40)
    assert sparse.importance("first")[0][1:].tolist() == [0, 0, 0]
    assert sparse.importance("first")[0][0] == pytest.approx(
        dense.importance("first")[0][0], abs=0.05
    )


def test_a_table_keeps_its_columns_and_their_names(rows):
    X, Y = rows
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    labels = pd.DataFrame(Y, columns=["owl", "hawk"])
    model = BinaryRelevance(random_state=0).fit(table, labels)
    display = FeatureImportanceDisplay.from_estimator(model, table, labels, n_repeats=2)
    assert tuple(display.feature_names) == ("a", "b", "c", "d")
    assert display.importance("owl")[0].argmax() == 0
    assert display.importance("hawk")[0].argmax() == 2


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


def test_of_sparse_features_those_that_most_rows_have_are_tried(rows):
    X = sp.csr_array(rows[0] * ([1, 0, 1, 0] | (np.arange(80) < 5)[:, None]))
    names = ["a", "b", "c", "d"]
    display = FeatureImportanceDisplay.from_estimator(
        Reads(), X, rows[1], feature_names=names, max_features=2, n_repeats=1
    )
    assert display.feature_names == ["a", "c"]
    assert display.n_features == 4


def test_a_sample_of_features_and_rows_is_taken_and_said(rows):
    display = FeatureImportanceDisplay.from_estimator(
        Reads(), *rows, max_features=2, max_rows=50, n_repeats=1
    )
    assert display.drops.shape == (2, 1, 2)
    display.plot()
    assert "2 of 4 features tried" in display.ax_.get_title()


def test_a_label_without_a_true_row_cannot_be_measured(rows):
    X, Y = rows
    Y = Y.astype(float)
    Y[:, 1] = np.where(Y[:, 1] == 1, np.nan, 0)
    display = FeatureImportanceDisplay.from_estimator(Reads(), X, Y)
    assert np.isnan(display.importance("$second$")[0]).all()
    np.testing.assert_allclose(display.importance()[0], display.importance("first")[0])
    display.plot(label="$second$")
    assert display.ax_.texts[0].get_text() == "cannot be measured on these rows"


def test_unknown_labels_and_metrics_are_refused(rows):
    with pytest.raises(InputError, match="no metric 'auc'"):
        FeatureImportanceDisplay.from_estimator(Reads(), *rows, metric="auc")
    display = FeatureImportanceDisplay.from_estimator(Reads(), *rows, n_repeats=1)
    with pytest.raises(InputError, match="no label 'third'"):
        display.plot(label="third")
