"""The contents of a report, against direct computations, and its warnings."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.svm import LinearSVC

from cgmvae.data import MultiLabelDataset, make_split, make_survey
from cgmvae.errors import InputError
from cgmvae.evaluation import Interval, Scored, evaluate, learn_rule, macro_auc
from cgmvae.evaluation.thresholds import GlobalThreshold
from cgmvae.methods import BinaryRelevance
from cgmvae.report.contents import (
    N_TREES,
    Verdict,
    collect,
    find,
    fit_baselines,
    label_similarity,
)
from cgmvae.report.page import render
from cgmvae.report.rows import ReportRows


@pytest.fixture(scope="module")
def rows():
    data, _ = make_survey(500, 5, 6, seed=3)
    return ReportRows.of_split(data, make_split(data, seed=0, fractions=(0.5, 0.2, 0.3)))


@pytest.fixture(scope="module")
def model(rows):
    held = rows.validation
    return BinaryRelevance(random_state=0).fit(
        rows.train.X, rows.train, validation_data=(held.X, held)
    )


@pytest.fixture(scope="module")
def contents(model, rows):
    return collect(model, rows)


def titles(findings):
    return " | ".join(finding.title for finding in findings)


# --- Numbers --------------------------------------------------------------------------------------


def test_the_models_numbers(contents, model, rows):
    own = contents.measured[0]
    scored = Scored(rows.test.Y, model.predict_proba(rows.test.X), rows.test.unknown)
    expected = evaluate(scored, rule=model.threshold_rule_).metrics
    assert {name: found.value for name, found in own.metrics.items()} == pytest.approx(expected)
    assert all(found.low <= found.value <= found.high for found in own.metrics.values())
    by_label = [
        [
            score(rows.test.Y[:, i], own.scores[:, i])
            for score in (roc_auc_score, average_precision_score)
        ]
        for i in range(6)
    ]
    np.testing.assert_allclose(list(own.ranking.values()), np.mean(by_label, axis=0))
    f1 = [row.f1 for row in contents.labels]
    assert f1 == sorted(f1_score(rows.test.Y, own.predicted, average=None))
    assert contents.oracle == evaluate(scored, protocol="test-oracle").metrics
    true, given = rows.test.Y.astype(bool), own.predicted.astype(bool)
    assert contents.precision == pytest.approx(true[given].mean())
    assert contents.recall == pytest.approx(given[true].mean())


def test_baselines_learn_from_the_same_rows(contents, rows):
    train, held, test = rows.train, rows.validation, rows.test
    measured = {each.title: each for each in contents.measured}
    forest = RandomForestClassifier(N_TREES, random_state=0).fit(train.X, train.Y)
    prior = [np.tile(train.Y.mean(0), (len(part.Y), 1)) for part in (held, test)]
    np.testing.assert_allclose(measured["label prior"].scores, prior[1])
    rule = learn_rule(held.Y, prior[0])
    np.testing.assert_array_equal(measured["label prior"].predicted, rule.apply(prior[1]))
    expected = np.stack(forest.predict_proba(test.X))[:, :, 1].T  # up to ties between splits
    np.testing.assert_allclose(measured["random forest"].scores, expected, atol=0.05)
    np.testing.assert_allclose(measured["logistic regression"].scores, contents.measured[0].scores)


def test_slow_baselines_are_left_out_and_named(rows, monkeypatch):
    monkeypatch.setattr("cgmvae.report.contents.FOREST_LIMIT", 100)
    parts = [rows.validation, rows.test]
    scores, skipped = fit_baselines(rows.train, parts)
    assert list(scores) == ["label prior", "logistic regression"]
    assert "minutes" in skipped["random forest"]
    scores, skipped = fit_baselines(rows.train, parts, choice="none")
    assert list(scores) == ["label prior"]
    assert len(skipped) == 2


def test_words_are_compared_with_a_calibrated_linear_svm(text_report):
    rows, (_, _, svm, _) = text_report.contents.rows, text_report.contents.measured
    assert svm.title == "linear SVM"
    X, scale = rows.train.X, np.maximum(np.abs(rows.train.X).max(0).toarray(), 1)
    for label in range(3):
        oracle = CalibratedClassifierCV(LinearSVC(random_state=0), cv=3, ensemble=False)
        oracle.fit(X / scale, rows.train.Y[:, label])
        expected = oracle.predict_proba(rows.test.X / scale)[:, 1]
        np.testing.assert_allclose(svm.scores[:, label], expected)


def test_baselines_of_unknown_labels_learn_from_the_rows_that_are_known(rows, monkeypatch):
    monkeypatch.setattr("cgmvae.report.contents.N_TREES", 30)
    train = rows.train
    unknown = np.random.default_rng(0).random(train.Y.shape) < 0.3
    hidden = replace(train, Y=np.where(unknown, 0, train.Y).astype(np.uint8), unknown=unknown)
    for table in (train.X, sp.csr_array(train.X)):
        scores, skipped = fit_baselines(replace(hidden, X=table), [replace(train, X=table)])
        assert skipped == {}
        forest = scores["random forest"][0]
        known = ~unknown[:, 2]
        alone = RandomForestClassifier(30, random_state=0).fit(train.X[known], train.Y[known, 2])
        expected = alone.predict_proba(train.X)[:, 1]
        np.testing.assert_allclose(forest[:, 2], expected, atol=0.25)
        for title in (
            "random forest",
            "linear SVM" if sp.issparse(table) else "logistic regression",
        ):
            ranked = macro_auc(train.Y, scores[title][0], unknown=~unknown)
            assert ranked > 0.7, title


def test_a_forest_of_labels_that_never_vary():
    Y = np.zeros((40, 3), np.uint8)
    Y[:, 1] = 1
    Y[::2, 2] = 1
    data = MultiLabelDataset(np.arange(40.0)[:, None] % 2, Y)
    scores, _ = fit_baselines(data, [data, data])
    np.testing.assert_allclose(scores["random forest"][0], Y, atol=0.05)


def test_a_method_without_label_similarity(model, contents):
    similarity, words = label_similarity(model, contents.measured[0].scores)
    expected = np.corrcoef(contents.measured[0].scores, rowvar=False)
    np.testing.assert_allclose(similarity, expected)
    assert "probabilities" in words
    constant, _ = label_similarity(model, np.full((5, 3), 0.5))
    np.testing.assert_array_equal(constant, np.eye(3))


def test_an_unknown_choice(model, rows):
    with pytest.raises(InputError, match="no choice 'some'"):
        collect(model, rows, baselines="some")


# --- Warnings -------------------------------------------------------------------------------------


def found(model, rows, measured, verdicts=()):
    return titles(find(model, rows, measured, verdicts))


def test_rows_that_were_or_may_have_been_trained_on(model, rows, contents):
    whole = ReportRows.all_of(rows.test, "trained")
    own = contents.measured[0]
    assert "was trained on these rows" in found(model, whole, own)
    whole = ReportRows.all_of(rows.test, "unknown")
    assert "may have been trained on" in found(model, whole, own)
    assert "trained on" not in found(model, rows, own)
    assert collect(model, whole).measured[1:] == []


def test_shared_groups(model, rows, contents):
    train = replace(rows.train, groups=np.arange(rows.train.n_samples))
    apart = np.arange(rows.test.n_samples) + rows.train.n_samples
    for shift, words in ((0, ""), (3, "3 groups have rows in training and in test")):
        grouped = replace(rows, train=train, test=replace(rows.test, groups=apart - shift))
        text = found(model, grouped, contents.measured[0])
        assert words in text
        assert ("groups" in text) == bool(words)


def test_few_groups_have_no_interval_and_no_verdict(model, rows):
    few, enough = (
        replace(rows, test=replace(rows.test, groups=np.arange(rows.test.n_samples) % n))
        for n in (2, 12)
    )
    assert len(collect(model, enough, baselines="none").verdicts) == 5
    contents = collect(model, few, baselines="none")
    assert "Only 2 test groups" in titles(contents.findings)
    assert contents.verdicts == []
    text = render(model, contents)
    assert "no verdict" in text
    assert "95% interval" not in text


def test_labels_never_predicted_or_never_there(model, rows, contents):
    predicted = contents.measured[0].predicted.copy()
    predicted[:, 1] = 0
    Y = rows.test.Y.copy()
    Y[:, 4] = 0
    altered = replace(rows, test=replace(rows.test, Y=Y))
    findings = find(model, altered, replace(contents.measured[0], predicted=predicted), ())
    texts = {finding.title: finding.text for finding in findings}
    never = next(title for title in texts if "never predicted" in title)
    assert "'species_1'" in texts[never]
    absent = next(title for title in texts if "without a test row" in title)
    assert absent.startswith("1 of 6 labels is")
    assert "'species_4'" in texts[absent]


def test_a_threshold_that_drifts(model, rows, contents):
    own = contents.measured[0]
    drifted = BinaryRelevance().set_params(**model.get_params())
    drifted.threshold_rule_ = GlobalThreshold(0.95)
    predicted = drifted.threshold_rule_.apply(own.scores)
    assert "threshold drifts" in found(drifted, rows, replace(own, predicted=predicted))
    assert "drifts" not in found(model, rows, own)


@pytest.mark.parametrize(
    ("active_units", "title"),
    [(0.0, "The posterior has collapsed"), (63.0, "The latent space hardly matters")],
)
def test_a_latent_space_without_effect(report, report_rows, active_units, title):
    own = report.contents.measured[0]

    class Unchanged(type(report.model)):
        def diagnostics(self, X, Y, random_state=0):
            return {"active_units": active_units, "micro_f1": 0.5, "micro_f1_shuffled_z": 0.5}

    unchanged = Unchanged()
    unchanged.__dict__.update(report.model.__dict__)
    findings = [each for each in find(unchanged, report_rows, own, ()) if each.title == title]
    assert len(findings) == 1
    assert f"{active_units:.1f} latent units are active" in findings[0].text
    assert ("collapsed" in findings[0].title + findings[0].text) == (active_units == 0)


def test_one_row_says_nothing_of_the_latent_space(report, report_rows):
    one = ReportRows.all_of(report_rows.test.rows([0]), "unknown")
    contents = collect(report.model, one)
    assert "latent space" not in titles(contents.findings)


def test_a_rival_that_is_better(model, rows, contents):
    worse = [Verdict("macro_f1", "random forest", Interval(-0.1, -0.2, -0.05))]
    (finding,) = (f for f in find(model, rows, contents.measured[0], worse) if "simpler" in f.title)
    assert (finding.weight, finding.title[-8:]) == ("note", "macro-F1")
    worse = [replace(worse[0], metric=model.threshold_metric)]
    assert find(model, rows, contents.measured[0], worse)[0].weight == "serious"
