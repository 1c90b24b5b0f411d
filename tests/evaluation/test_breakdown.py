"""Metrics per label against scikit-learn, and the list of errors against plain loops."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import (
    average_precision_score,
    log_loss,
    precision_recall_fscore_support,
    roc_auc_score,
)

from cgmvae.data.columns import as_columns
from cgmvae.evaluation import GlobalThreshold, LabelThresholds, Scored, TopK
from cgmvae.evaluation.breakdown import label_scores, row_errors, row_text

NAMES = ["owl", "hawk", "wren", "crow"]
RULE = LabelThresholds(np.array([0.5, 0.4, 0.6, 0.5]))


@pytest.fixture
def scored(rng):
    labels = (rng.random((40, 4)) < 0.4).astype(np.uint8)
    return Scored(labels, (0.6 * rng.random((40, 4)) + 0.4 * labels).round(2))


def test_metrics_of_each_label_are_those_of_scikit_learn(scored):
    Y, scores, _ = scored
    predicted = RULE.apply(scores)
    precision, recall, f1, rows = precision_recall_fscore_support(Y, predicted)
    for i, found in enumerate(label_scores(scored, RULE, NAMES)):
        expected = (precision[i], recall[i], f1[i], average_precision_score(Y[:, i], scores[:, i]))
        expected += (roc_auc_score(Y[:, i], scores[:, i]), RULE.thresholds[i])
        assert found[:3] == (NAMES[i], rows[i], predicted[:, i].sum())
        assert found[3:] == pytest.approx(expected)


def test_unknown_rows_of_a_label_do_not_count(scored):
    unknown = np.zeros(scored.labels.shape, bool)
    unknown[:15, 2] = True
    found = label_scores(scored._replace(unknown=unknown), RULE, NAMES)
    rest = Scored(scored.labels[15:], scored.scores[15:])
    assert found[2] == pytest.approx(label_scores(rest, RULE, NAMES)[2])
    assert np.isnan(label_scores(scored, TopK(2), NAMES)[0].threshold)


def test_rows_with_wrong_labels_are_listed_worst_first(scored):
    Y, scores, _ = scored
    predicted = RULE.apply(scores)
    wrong = (predicted != Y).sum(1)
    found = row_errors(scored, RULE, NAMES)
    assert sorted(error.row for error in found) == np.flatnonzero(wrong).tolist()
    keys = [(wrong[error.row], error.surprise) for error in found]
    assert keys == sorted(keys, reverse=True)
    for error in found:
        row = error.row
        names = {kind: {name for name, _ in getattr(error, kind)} for kind in error._fields[1:4]}
        for i, name in enumerate(NAMES):
            assert (name in names["missed"]) == (Y[row, i] > predicted[row, i])
            assert (name in names["extra"]) == (Y[row, i] < predicted[row, i])
            assert (name in names["found"]) == (Y[row, i] and predicted[row, i])
        assert error.surprise == pytest.approx(log_loss(Y[row], scores[row], labels=[0, 1]))
        assert all(score == scores[row, NAMES.index(name)] for name, score in error.missed)
    assert row_errors(scored, RULE, NAMES, limit=3) == found[:3]


def test_unknown_cells_are_no_errors():
    scored = Scored(np.array([[1, 0]]), np.array([[0.1, 0.9]]), np.array([[True, False]]))
    [error] = row_errors(scored, GlobalThreshold(0.5), ["owl", "hawk"])
    assert (error.missed, error.extra) == ([], [("hawk", 0.9)])
    assert error.surprise == pytest.approx(-np.log(0.1))


def test_a_row_in_a_few_words():
    notes = as_columns(
        {
            "height": [0.5, 2.0],
            "habitat": ["wetland", None],
            "day": np.array(["2024-05-31", "NaT"], "datetime64[s]"),
        },
        {"habitat": "category"},
    )
    assert row_text(notes, notes.names, 0) == "height 0.5, habitat wetland, day 2024-05-31"
    assert row_text(notes, notes.names, 1) == "height 2, habitat –, day NaT"
    news = as_columns({"title": ["a\nb " * 40, "c"], "n": [1.0, 2.0]}, {"title": "text"})
    assert row_text(news, news.names, 0) == ("a b " * 40)[:79] + "…"
    words = sp.csr_array([[0, 0.1, 0, -0.9, 0.3, 0.2]])
    assert row_text(words, list("abcdef"), 0) == "d -0.9, e 0.3, f 0.2"
