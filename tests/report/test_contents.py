"""The contents of a report, against direct computations, and its warnings."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.svm import LinearSVC

from cgmvae.data import MultiLabelDataset, make_split, make_survey, spatial_blocks
from cgmvae.data.columns import as_columns
from cgmvae.errors import InputError
from cgmvae.evaluation import Interval, Scored, evaluate, learn_rule, macro_auc, sweep
from cgmvae.evaluation.breakdown import compared_labels, of_labels
from cgmvae.evaluation.thresholds import FINE_THRESHOLDS, GlobalThreshold
from cgmvae.methods import BinaryRelevance, CGMVAEClassifier, MLkNN
from cgmvae.report import ThresholdCurveDisplay
from cgmvae.report.contents import (
    N_TREES,
    Verdict,
    about_latent_space,
    collect,
    find,
    fit_baselines,
    label_similarity,
)
from cgmvae.report.page import pictures, render
from cgmvae.report.rows import (
    ReportRows,
    plain_columns,
    words_of,
)

from .conftest import Elements


@pytest.fixture(scope="module")
def rows():
    data, _ = make_survey(500, 5, 6, frequency_decay=0.5, seed=3)
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
    skill = [row.skill for row in contents.labels]
    assert skill == sorted(skill, reverse=True)
    f1 = f1_score(rows.test.Y, own.predicted, average=None)
    assert [row.f1 for row in sorted(contents.labels)] == pytest.approx(f1)
    assert contents.all_labels == pytest.approx(expected)
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


def test_few_groups_have_no_interval_and_no_verdict(model, rows, undrawn):
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
    assert "95% interval 0" not in text


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


def with_rare_labels(rows):
    """Return the rows with a label that is always there, one that never is, and a rare one."""

    def more(part):
        if part is None:
            return None
        always, rare = np.ones(part.n_samples, np.uint8), np.zeros(part.n_samples, np.uint8)
        rare[:4] = 1
        Y = np.column_stack([part.Y, always, np.zeros_like(rare), rare])
        return replace(part, Y=Y, label_names=(*part.label_names, "grass", "unicorn", "orchid"))

    return replace(
        rows, **{part: more(getattr(rows, part)) for part in ("test", "train", "validation")}
    )


def test_labels_that_hardly_vary_are_named_once_and_compared_nowhere(rows, contents, undrawn):
    rare = with_rare_labels(rows)
    held = rare.validation
    model = BinaryRelevance(random_state=0)
    model.fit(rare.train.X, rare.train, validation_data=(held.X, held))
    found = collect(model, rare)
    assert found.compared.tolist() == list(range(6))
    for old, new in zip(contents.measured, found.measured, strict=True):
        precision = old.metrics["precision_at_1"]
        assert new.metrics["precision_at_1"] == pytest.approx(precision, abs=0.1)
        assert new.metrics["precision_at_1"].value < 1
    assert found.explorer.names == rows.test.label_names
    assert [row.label for row in found.labels[6:]] == ["grass", "unicorn", "orchid"]
    (named,) = (each for each in found.findings if "left out" in each.title)
    assert named.title.startswith("3 of 9 labels are left out of comparisons, maps and lists")
    assert "In every training row: grass." in named.text
    assert "In no training row: unicorn. In fewer than 20: orchid." in named.text
    others = [each for each in found.findings if each is not named]
    page = Elements(render(model, found))
    for name in ("grass", "unicorn", "orchid"):
        assert not any(name in each.title + each.text for each in others)
        lists = [text for text in page.texts if name in text]
        # The warning, the table of all labels, and the plot of F1 against frequency.
        assert len(lists) <= 3, lists
        assert name not in found.well_predicted


def test_a_survey_of_rare_labels_only_compares_all_that_vary(rows):
    few = with_rare_labels(ReportRows.all_of(rows.test.rows(np.arange(30)), "unknown"))
    rare = ReportRows.all_of(of_labels(few.test, np.arange(5, 9)), "unknown")
    assert compared_labels(rare.reference).tolist() == [0, 3]
    assert compared_labels(of_labels(few.test, np.array([6, 7]))).tolist() == [0, 1]


def test_threshold_curves_are_those_of_rows_that_the_model_did_not_see(rng, undrawn):
    """Words and labels at random: what a network knows of its training rows, it knows by heart."""
    X, Y = (rng.random((400, 400)) < 0.05).astype(float), (rng.random((400, 8)) < 0.3).astype(int)
    noise = MultiLabelDataset(X, Y)
    rows = ReportRows.of_split(noise, make_split(noise, seed=0, fractions=(0.7, 0.1, 0.2)))
    settings = {"feature_hidden": (64,), "label_hidden": (16,), "decoder_hidden": (64,)}
    own = {"learning_rate": 0.01, "dropout": 0.0, "input_dropout": 0.0, "network": settings}
    own["embedding_dim"] = 64
    model = CGMVAEClassifier(n_members=4, epochs=10, random_state=0, **own)
    model.fit(rows.train.X, rows.train)
    known = ThresholdCurveDisplay.from_predictions(rows.train, model.predict_proba(rows.train.X))
    unseen = sweep(rows.train.Y[model.oof_rows_], model.oof_proba_, FINE_THRESHOLDS).micro_f1()
    assert known.values["micro_f1"].max() > unseen.max() + 0.1
    display = ThresholdCurveDisplay.from_fit(model)
    np.testing.assert_allclose(display.values["micro_f1"], unseen)
    np.testing.assert_allclose(display.grid_values["micro_f1"], unseen[9::10])
    contents = collect(model, rows, baselines="none")
    (curves,) = (each for each in pictures(model, contents) if each.title == "Threshold curves")
    assert "280 training rows, each scored by models that did not see it" in curves.text


def test_threshold_curves_of_validation_rows_say_so(model, contents, undrawn):
    (curves,) = (each for each in pictures(model, contents) if each.title == "Threshold curves")
    assert "on 100 validation rows" in curves.text


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
    assert title not in found(unchanged, report_rows, own)
    findings = list(about_latent_space(unchanged, report_rows.test))
    assert [each.title for each in findings] == [title]
    assert f"{active_units:.1f} latent units are active" in findings[0].text
    assert ("collapsed" in findings[0].title + findings[0].text) == (active_units == 0)


def test_one_row_says_nothing_of_the_latent_space(report, report_rows):
    one = ReportRows.all_of(report_rows.test.rows([0]), "unknown")
    contents = collect(report.model, one)
    assert contents.for_experts == []


def test_a_rival_that_is_better(model, rows, contents):
    worse = [Verdict("macro_f1", "random forest", Interval(-0.1, -0.2, -0.05))]
    (finding,) = (f for f in find(model, rows, contents.measured[0], worse) if "simpler" in f.title)
    assert (finding.weight, finding.title[-8:]) == ("note", "macro-F1")
    worse = [replace(worse[0], metric=model.threshold_metric)]
    assert find(model, rows, contents.measured[0], worse)[0].weight == "serious"


def test_columns_that_matter_are_those_of_the_table(rng, undrawn):
    """A category is one column, however many features it became; words are listed elsewhere."""
    habitat = rng.choice(["fen", "bog", "wood"], 90)
    table = as_columns(
        {
            "depth": rng.normal(size=90),
            "habitat": habitat,
            "notes": [" ".join(rng.choice(["owl", "hawk", "tree", "barn"], 6)) for _ in range(90)],
        }
    )
    labels = np.stack([habitat == "fen", habitat == "bog"], axis=1).astype(int)
    model = BinaryRelevance(random_state=0).fit(table, labels)
    columns = plain_columns(model, model.prepared_names())
    names = model.prepared_names()
    assert list(columns) == ["depth", "habitat"]
    assert [names[i] for i in columns["habitat"]] == [n for n in names if n.startswith("habitat")]
    assert len(columns["habitat"]) >= 3
    assert {*words_of(model)} == {i for i, name in enumerate(names) if name.startswith("notes: ")}
    numeric = BinaryRelevance(random_state=0).fit(rng.normal(size=(90, 2)), labels)
    assert plain_columns(numeric, ["a", "b"]) == {"a": [0], "b": [1]}
    data = MultiLabelDataset(table, labels, label_names=model.label_names_)
    contents = collect(model, ReportRows.all_of(data, "unknown"))
    drawn = {each.title: each for each in pictures(model, contents)}
    assert "all 2 columns that are not text" in drawn["Which columns matter"].text
    assert [own[0] for own in contents.relies_on.values()] == ["habitat", "habitat"]
    assert {column for _, column in contents.responses.panels} == {"depth", "habitat"}
    assert "How labels respond" in drawn
    assert re.search('<td class="relies">habitat', render(model, contents))


def test_scores_in_new_places_beside_those_between_known_places(undrawn):
    """Coordinates alone say much of a label that changes every few blocks, but only nearby."""
    rng = np.random.default_rng(0)
    places = rng.random((700, 2))
    X = np.hstack([places, rng.normal(size=(700, 2))])
    patches = np.random.default_rng(1).random((10, 10)) < 0.5
    y = patches[tuple((places * 10).astype(int).T)]
    Y = np.stack([y, rng.random(700) < 0.5], axis=1).astype(int)
    data = MultiLabelDataset(X, Y, coordinates=places, groups=spatial_blocks(places, 0.1))
    split = make_split(data, "group", seed=0)
    train = data.rows(np.sort(np.concatenate([split.train, split.validation])))
    model = MLkNN(k=5).fit(train.X[:, :2], train)
    narrow = replace(data, X=X[:, :2], feature_names=("lat", "lon"))
    rows = ReportRows.of_split(narrow, split)
    contents = collect(model, rows, origin={"seconds": 1.0})
    in_new, between = contents.measured[0].ranking["AUC"], contents.between_places.ranking["AUC"]
    assert between > in_new + 0.1
    assert contents.between_places.metrics["micro_f1"].low > 0
    page = Elements(render(model, replace(contents, origin=None)))
    (table,) = (rows for rows in page.tables if rows and "between known places" in rows[0])
    assert table[-2] == ["AUC", f"{in_new:.3f}", f"{between:.3f}"]
    slow = collect(model, rows, origin={"seconds": 1e4}, baselines="none")
    assert slow.between_places is None
    assert slow.skipped["test between known places"] == "not requested"
    slow = collect(model, rows, origin={"seconds": 1e4})
    assert slow.skipped["test between known places"] == "it takes as long as the fit did"
    at_random = replace(rows, test=replace(rows.test, groups=None))
    assert collect(model, at_random, baselines="none").skipped.keys() == {
        "logistic regression",
        "random forest",
    }
