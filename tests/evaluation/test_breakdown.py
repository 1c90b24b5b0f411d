"""Metrics per label against scikit-learn, and the list of errors against plain loops."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    f1_score,
    log_loss,
    precision_recall_fscore_support,
    roc_auc_score,
)

from cgmvae.data.columns import as_columns
from cgmvae.evaluation import (
    GlobalThreshold,
    LabelThresholds,
    Scored,
    TopK,
    bootstrap_interval,
    label_scores,
    row_errors,
    row_text,
    well_and_badly_predicted,
)

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
        y, p = Y[:, i], scores[:, i]
        share = brier_score_loss(y, np.full(len(y), y.mean()))
        expected = {
            "label": NAMES[i],
            "rows": rows[i],
            "predicted": predicted[:, i].sum(),
            "skill": 1 - brier_score_loss(y, p) / share,
            "precision": precision[i],
            "recall": recall[i],
            "f1": f1[i],
            "gain": f1[i] - f1_score(y, np.ones(len(y))),
            "average_precision": average_precision_score(y, p),
            "auc": roc_auc_score(y, p),
            "threshold": RULE.thresholds[i],
        }
        assert {name: getattr(found, name) for name in expected} == pytest.approx(expected)


def test_unknown_rows_of_a_label_do_not_count(scored):
    unknown = np.zeros(scored.labels.shape, bool)
    unknown[:15, 2] = True
    found = label_scores(scored._replace(unknown=unknown), RULE, NAMES)
    rest = Scored(scored.labels[15:], scored.scores[15:])
    shifted = {"skill_low", "skill_high", "gain_low", "gain_high"}  # other rows are drawn
    alone = label_scores(rest, RULE, NAMES)[2]._asdict()
    for name in alone.keys() - shifted - {"label"}:
        assert getattr(found[2], name) == pytest.approx(alone[name]), name
    assert np.isnan(label_scores(scored, TopK(2), NAMES)[0].threshold)


def test_skill_and_gain_beside_recomputation_on_the_same_rows(scored, rng):
    Y, scores, _ = scored
    predicted, groups = RULE.apply(scores), rng.permutation(40) % 15

    def f1(y, p):
        return 2 * (y & p).sum() / (y.sum() + p.sum())

    oracles = {
        "skill": (scores, lambda y, p: 1 - np.mean((y - p) ** 2) / np.var(y)),
        "gain": (predicted, lambda y, p: f1(y, p) - f1(y, np.ones_like(y))),
    }
    found = label_scores(scored, RULE, NAMES, groups=groups)
    for name, (outputs, oracle) in oracles.items():
        for i in range(4):
            expected = bootstrap_interval(oracle, Y[:, [i]], outputs[:, [i]], groups=groups)
            own = [getattr(found[i], name + end) for end in ("", "_low", "_high")]
            assert own == pytest.approx(expected, abs=1e-6)


def test_a_frequent_label_that_is_always_predicted_is_not_predicted_well(rng):
    Y = (rng.random((400, 4)) < [0.9, 0.3, 0.3, 0]).astype(int)
    scores = np.column_stack(
        [np.full(400, 0.9), 0.25 + 0.5 * Y[:, 1], rng.random(400), np.zeros(400)]
    )
    found = label_scores(Scored(Y, scores), GlobalThreshold(0.5), NAMES)
    assert max(found, key=lambda label: np.nan_to_num(label.f1)).label == "hawk"
    assert found[0].f1 > 0.9
    assert (found[0].gain, np.isnan(found[3].skill)) == (0, True)
    expected = "Predicted well: hawk; no better than their frequency: wren, owl."
    assert well_and_badly_predicted(found) == expected


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
        for named in error[1:4]:
            assert all(score == scores[row, NAMES.index(name)] for name, score in named)
            assert named == sorted(named, key=lambda item: -item[1])
    assert row_errors(scored, RULE, NAMES, limit=3) == found[:3]


def test_unknown_cells_are_no_errors():
    scored = Scored(
        np.array([[1, 0, 0]]), np.array([[0.1, 0.9, 0.8]]), np.array([[True, False, True]])
    )
    [error] = row_errors(scored, GlobalThreshold(0.5), ["owl", "hawk", "wren"])
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
