"""The leaderboard: the same numbers as fits made one by one, limits of time, and its advice."""

import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import cgmvae
from cgmvae.data import make_split, make_survey
from cgmvae.errors import InputError
from cgmvae.evaluation import (
    Interval,
    hamming_accuracy,
    label_skills,
    macro_f1,
    micro_f1,
    paired_difference,
    precision_at_k,
)
from cgmvae.methods import BinaryRelevance, MixedForest, MLkNN
from cgmvae.studies.leaderboard import Entry, advice, compare

QUICK = ["trees", "binary-relevance", "mlknn"]
CLASSES = {"trees": MixedForest, "binary-relevance": BinaryRelevance, "mlknn": MLkNN}


@pytest.fixture(scope="module")
def survey():
    return make_survey(300, 6, 5, frequency_decay=0.3, seed=1)[0]


@pytest.fixture(scope="module")
def table(survey):
    return compare(survey.X, survey.Y, methods=QUICK, per_label=True)


@dataclass(kw_only=True, eq=False, repr=False)
class Sleeper(BinaryRelevance):
    """Takes a minute."""

    def _fit_rows(self, train, validation, seed):
        time.sleep(60)


def test_the_numbers_are_those_of_each_method_alone(survey, table, tmp_path):
    split = make_split(survey, "random", seed=0)
    train, test = survey.rows(np.sort([*split.train, *split.validation])), survey.rows(split.test)
    models = {n: c(random_state=0).fit(train.X, train.Y) for n, c in CLASSES.items()}
    predicted = {name: model.predict(test.X) for name, model in models.items()}
    expected = {name: micro_f1(test.Y, each) for name, each in predicted.items()}
    best = max(expected, key=expected.get)
    assert list(table["method"]) == sorted(expected, key=expected.get, reverse=True)
    for row in table.to_dict("records"):
        name = row["method"]
        scores = models[name].predict_proba(test.X)
        assert row["micro_f1"] == pytest.approx(expected[name])
        assert row["macro_f1"] == pytest.approx(macro_f1(test.Y, predicted[name]))
        assert row["hamming_accuracy"] == pytest.approx(hamming_accuracy(test.Y, predicted[name]))
        assert row["precision_at_1"] == pytest.approx(precision_at_k(test.Y, scores, 1))
        gap = paired_difference("micro_f1", test.Y, predicted[name], predicted[best])
        assert (row["difference"], row["low"], row["high"]) == pytest.approx(tuple(gap))
        skills = [skill.value for skill in label_skills(test.Y, scores)]
        assert [row[f"skill of label_{i}"] for i in range(5)] == pytest.approx(skills)
        assert row["mean_skill"] == pytest.approx(np.mean(skills))
        models[name].save(tmp_path / "model")
        assert row["file_bytes"] == pytest.approx((tmp_path / "model").stat().st_size, rel=0.1)
    assert table.attrs["advice"]


def test_labels_that_hardly_vary_are_named_and_left_out(survey):
    """A label that is always there would make precision@1 perfect for every method."""
    ones = np.ones((300, 1), int)
    nearly = np.where(np.arange(300) < 285, 1, 0)[:, None]
    Y = np.hstack([survey.Y, ones, 0 * ones, nearly])
    split = make_split(survey, "random", seed=0)
    given = {"methods": QUICK, "per_label": True, "split": split}
    with pytest.warns(UserWarning, match="3 of 8 labels .* 'label_5', 'label_6', 'label_7'"):
        table = compare(survey.X, Y, **given)
    learned = np.sort([*split.train, *split.validation])
    model = MLkNN(random_state=0).fit(survey.X[learned], Y[learned])
    scores, X = model.predict_proba(survey.X[split.test])[:, :5], survey.X[split.test]
    row = table.set_index("method").loc["mlknn"]
    assert row["precision_at_1"] == precision_at_k(survey.Y[split.test], scores, 1) < 1
    assert row["micro_f1"] == micro_f1(survey.Y[split.test], model.predict(X)[:, :5])
    assert "skill of label_4" in table
    assert "skill of label_5" not in table


def test_folds_test_every_row_once(survey):
    class Recorded(MLkNN):
        def predict_proba(self, X):
            scores = super().predict_proba(X)
            rows.append(np.array(X))
            return scores

    rows = []
    groups = np.arange(300) // 10
    compare(survey.X, survey.Y, methods=[("own", Recorded())], n_folds=3, groups=groups)
    assert len(rows) == 3
    order = lambda table: table[np.lexsort(table.T)]  # noqa: E731
    np.testing.assert_array_equal(order(np.concatenate(rows)), order(survey.X))
    place = {tuple(row): group for row, group in zip(survey.X, groups, strict=True)}
    sides = [{place[tuple(row)] for row in part} for part in rows]
    assert not sides[0] & sides[1]
    assert len(set.union(*sides)) == 30


def test_a_method_that_takes_too_long_is_stopped_and_the_others_go_on(survey):
    methods = ["mlknn", ("sleeper", Sleeper()), "binary-relevance"]
    table = compare(survey.X, survey.Y, methods=methods, time_limit=2).set_index("method")
    assert table.loc["sleeper", "note"] == "stopped after 2 s"
    assert np.isnan(table.loc["sleeper", "micro_f1"])
    assert table.index[-1] == "sleeper"
    assert (table["note"][:2] == "").all()


def test_a_method_that_refuses_the_data_says_why(survey):
    few = type("Few", (MLkNN,), {"max_labels": 2})
    found = compare(survey.X, survey.Y, methods=["mlknn", ("few", few())])
    assert found.loc[1, "note"].startswith("Few supports at most 2 labels")


def test_tables_are_compared_as_they_are_fitted(survey):
    X = pd.DataFrame(survey.X, columns=list("abcdef"))
    X["habitat"] = np.where(survey.X[:, 0] > 0, "forest", "marsh")
    Y = pd.DataFrame(survey.Y, columns=["owl", "hawk", "wren", "crow", "röd"])
    found = compare(X, Y, methods=["mlknn"], per_label=True)
    assert np.isfinite(found.loc[0, "skill of röd"])


def test_without_pandas_it_is_a_list(survey, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    (record,) = compare(survey.X, survey.Y, methods=["mlknn"])
    assert record["method"] == "mlknn"


def test_what_cannot_be_compared(survey):
    with pytest.raises(InputError, match="no metric 'speed'"):
        compare(survey.X, survey.Y, methods=QUICK, metric="speed")
    with pytest.raises(InputError, match="exclude each other"):
        compare(survey.X, survey.Y, split=make_split(survey, seed=0), n_folds=3)


def entry(title, seconds, *gap):
    return Entry(title, title, "", seconds, 1, {"micro_f1": 0.5}, Interval(*gap))


BEST = entry("the blend", 60.0, 0.0, 0.0, 0.0)
WORSE = entry("votes", 1.0, -0.2, -0.3, -0.1)


@pytest.mark.parametrize(
    ("others", "start"),
    [
        ([entry("trees", 5.0, -0.01, -0.03, 0.01), WORSE], "Use trees: not measurably worse"),
        ([entry("trees", 40.0, -0.01, -0.03, 0.01), WORSE], "Use the blend: best"),
        ([WORSE], "Use the blend: best"),
    ],
)
def test_the_advice_weighs_quality_and_time(others, start):
    assert advice([BEST, *others]).startswith(start)


def test_the_advice_states_its_grounds():
    found = advice([BEST, entry("trees", 5.0, -0.012, -0.031, 0.009)])
    assert "-0.012 micro-F1, 95% interval -0.031 to +0.009" in found
    assert found.endswith("12 times as fast.")
    nan = float("nan")
    few = [entry("a", 1.0, 0.0, nan, nan), entry("b", 9.0, -0.1, nan, nan)]
    assert "too few test rows" in advice(few)
    assert "No method finished" in advice([Entry("a", "a", "stopped after 1 s")])


def test_it_is_a_name_of_the_library():
    assert cgmvae.compare is compare
