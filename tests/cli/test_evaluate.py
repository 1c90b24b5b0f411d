"""``cgmvae evaluate``: its numbers against scikit-learn's and against plain loops."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from sklearn.metrics import f1_score

import cgmvae as library
from cgmvae.data import make_split, readers
from cgmvae.evaluation import Scored, bootstrap_interval, label_scores
from cgmvae.evaluation import evaluate as measure

METRICS = ["example_f1", "micro_f1", "macro_f1", "hamming_accuracy", "precision_at_1"]


def evaluate(call, source="birds.npz", *options):
    return json.loads(call("evaluate", "birds.cgmvae", source, "--json", *options))


def values(report):
    return {name: found["value"] for name, found in report["metrics"].items()}


def by_scikit_learn(Y, predicted, scores):
    """Compute the five metrics with scikit-learn and by hand; 0/0 rows have an example-F1 of 1."""
    return {
        "example_f1": f1_score(Y, predicted, average="samples", zero_division=1),
        "micro_f1": f1_score(Y, predicted, average="micro"),
        "macro_f1": f1_score(Y, predicted, average="macro", zero_division=0),
        "hamming_accuracy": np.equal(Y, predicted).mean(),
        "precision_at_1": Y[np.arange(len(Y)), scores.argmax(1)].mean(),
    }


# --- The numbers --------------------------------------------------------------------------------


def test_the_five_metrics_of_the_models_own_thresholds(succeeds, survey, model):
    report = evaluate(succeeds)
    expected = by_scikit_learn(survey.Y, model.predict(survey.X), model.predict_proba(survey.X))
    assert list(report["metrics"]) == METRICS
    assert values(report) == pytest.approx(expected)
    assert (report["rows"], report["protocol"]) == (150, "validation")
    for found in report["metrics"].values():
        assert found["low"] < found["value"] < found["high"]


def test_labels_in_every_row_are_named_because_they_make_precision_at_1_perfect(
    cgmvae, survey, model
):
    Y = survey.Y.copy()
    Y[:, 3] = 1
    readers.write(replace(survey, Y=Y), "birds.npz")
    report = evaluate(lambda *given: cgmvae(*given).out)
    assert report["labels_in_every_row"] == [survey.label_names[3]]
    for command in (
        ("evaluate", "birds.cgmvae"),
        ("fit", "--method", "mlknn", "--out", "m.cgmvae"),
    ):
        outcome = cgmvae(*command, "birds.npz")
        assert outcome.code == 0
        said = "P@1 says little: every row has 'say \"hi\"', and a method that ranks it first"
        assert said in " ".join(outcome.out.split())


def test_macro_f1_is_over_the_labels_that_occur_but_in_the_papers_protocol(succeeds, survey, model):
    Y = survey.Y.copy()
    Y[:, 2:] = 0
    readers.write(replace(survey, Y=Y), "birds.npz")
    report = evaluate(succeeds)
    found = report["metrics"]["macro_f1"]
    predicted = model.predict(survey.X)
    by_label = f1_score(Y, predicted, average=None, zero_division=0)
    assert found["value"] == pytest.approx(by_label[:2].mean())
    assert found["low"] < found["value"] < found["high"]
    assert report["labels_that_occur"] == 2
    text = succeeds("evaluate", "birds.cgmvae", "birds.npz")
    assert "Macro-F1 is over the 2 of 5 labels that occur." in text
    options = "--protocol", "test-oracle"
    oracle = evaluate(succeeds, "birds.npz", *options)["metrics"]["macro_f1"]
    scores = model.predict_proba(survey.X)
    rows = Scored(Y, scores)
    expected = measure(rows, protocol="test-oracle").rules["macro_f1"].apply(scores)
    expected = f1_score(Y, expected, average="macro", zero_division=0)
    assert oracle["value"] == pytest.approx(expected)
    assert "labels without a row as 0" in succeeds(
        "evaluate", "birds.cgmvae", "birds.npz", *options
    )


def test_groups_are_drawn_whole(succeeds, survey, model):
    groups = np.arange(150) // 10
    readers.write(replace(survey, groups=groups), "birds.npz")
    found = evaluate(succeeds)["metrics"]["micro_f1"]
    expected = bootstrap_interval("micro_f1", survey.Y, model.predict(survey.X), groups=groups)
    assert tuple(found.values()) == pytest.approx(tuple(expected))


def test_the_table_says_what_flatters(succeeds, survey, model):
    text = succeeds("evaluate", "birds.cgmvae", "birds.npz")
    for name, found in zip(("example-F1", "P@1"), (0, 4), strict=True):
        row = next(line.split() for line in text.splitlines() if line.strip().startswith(name))
        expected = list(evaluate(succeeds)["metrics"].values())[found]
        assert row[-3:] == [f"{number:.3f}" for number in expected.values()]
    assert "Rows that the model was trained on make the result optimistic" in text
    text = succeeds("evaluate", "birds.cgmvae", "birds.npz", "--protocol", "test-oracle")
    assert "chosen on these very labels" in text


def test_rows_without_any_label_have_no_precision(succeeds, survey, model):
    readers.write(replace(survey, unknown=np.ones(survey.Y.shape, bool)), "birds.npz")
    report = evaluate(succeeds)
    assert report["metrics"]["precision_at_1"]["value"] is None
    assert "–" in succeeds("evaluate", "birds.cgmvae", "birds.npz")


def test_the_metrics_of_each_label(succeeds, survey, model):
    report = evaluate(succeeds, "birds.npz", "--per-label")
    scored = Scored(survey.Y, model.predict_proba(survey.X))
    expected = label_scores(scored, model.threshold_rule_, survey.label_names)
    assert report["labels"] == [label._asdict() for label in expected]
    text = succeeds("evaluate", "birds.cgmvae", "birds.npz", "--per-label")
    for label in expected:
        row = next(line for line in text.splitlines() if label.label in line)
        assert row.split()[-14:-12] == [str(label.rows), str(label.predicted)]
        assert row.split()[-2] == f"{label.auc:.3f}"


def test_the_rows_with_the_most_wrong_labels(succeeds, survey, model):
    found = evaluate(succeeds, "birds.npz", "--errors", "4")["errors"]
    wrong = np.not_equal(survey.Y, model.predict(survey.X)).sum(1)
    assert [len(e["missed"]) + len(e["extra"]) for e in found] == sorted(wrong)[:-5:-1]
    for error in found:
        row = error["row"] - 1  # counted from 1
        assert wrong[row] == len(error["missed"]) + len(error["extra"])
        assert error["values"].startswith(f"tree height (m) {survey.X[row, 0]:.4g}, %sand ")
    text = succeeds("evaluate", "birds.cgmvae", "birds.npz", "--errors", "4")
    assert "Rows of birds.npz are counted from 1, without a header and blank rows." in text
    assert any(line.split()[:1] == [str(found[0]["row"])] for line in text.splitlines())


def test_rows_without_a_label_count_unless_dropped(succeeds, refused, survey, model):
    Y = survey.Y.copy()
    Y[:50] = 0
    readers.write(replace(survey, Y=Y), "birds.npz")
    readers.write(survey.rows(np.flatnonzero(Y.any(1))), "some.npz")
    assert evaluate(succeeds)["rows"] == 150
    dropped = evaluate(succeeds, "birds.npz", "--drop-empty")
    assert values(dropped) == values(evaluate(succeeds, "some.npz"))
    readers.write(replace(survey, Y=0 * Y), "none.npz")
    sentence = refused("evaluate", "birds.cgmvae", "none.npz", "--drop-empty")
    assert sentence == "None of the rows has a positive label; leave out --drop-empty."


# --- From fit to evaluate through files ---------------------------------------------------------


def test_fit_predict_evaluate(succeeds, survey):
    small = ("--members", "2", "--epochs", "2", "--setting", "embedding_dim=16")
    arguments = ("--out", "birds.cgmvae", "--json", *small)
    fitted = json.loads(succeeds("fit", "birds.csv", "--label-count", "-5", *arguments))
    report = evaluate(succeeds, "birds.csv")
    assert values(report) == pytest.approx(fitted["metrics"])
    assert report["rows"] == fitted["split"]["rows"]["test"]
    text = succeeds("evaluate", "birds.cgmvae", "birds.csv")
    assert "trained on" not in text
    remembered = succeeds("evaluate", "birds.cgmvae", "--json")
    assert json.loads(remembered) == report
    assert evaluate(succeeds, "birds.csv", "--all-rows")["rows"] == 150
    readers.write(survey.rows(np.arange(150)[::-1]), "turned.csv")
    assert evaluate(succeeds, "turned.csv")["rows"] == 150  # which of them are test rows?
    succeeds("predict", "birds.cgmvae", "birds.csv", "--out", "out.csv")
    with Path("out.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == list(survey.label_names)
    test, predicted = make_split(survey, seed=0).test, np.array(rows, int)
    assert f1_score(survey.Y[test], predicted[test], average="micro") == pytest.approx(
        values(report)["micro_f1"]
    )


def test_columns_and_labels_are_matched_by_name(succeeds, survey, model):
    """A table needs no options, whether or not it records which columns are labels."""
    expected = values(evaluate(succeeds))
    columns, order = [3, 1, 0, 5, 2, 4], [4, 2, 0, 1, 3]
    mixed = replace(
        survey,
        X=survey.X[:, columns],
        Y=survey.Y[:, order],
        feature_names=[survey.feature_names[i] for i in columns],
        label_names=[survey.label_names[i] for i in order],
    )
    for source in ("mixed.npz", "mixed.csv", "mixed.parquet"):
        readers.write(mixed, source)
        assert values(evaluate(succeeds, source)) == expected
    table = parquet.read_table("mixed.parquet").replace_schema_metadata(None)
    parquet.write_table(table, "other.parquet")
    assert values(evaluate(succeeds, "other.parquet")) == expected


def test_labels_that_the_model_does_not_know_are_left_out(cgmvae, succeeds, survey, model):
    Y = np.column_stack([survey.Y[:, :1], survey.Y])
    readers.write(replace(survey, Y=Y, label_names=["new", *survey.label_names]), "more.npz")
    outcome = cgmvae("evaluate", "birds.cgmvae", "more.npz", "--json")
    assert outcome.err == "Warning: Labels that the model does not know are ignored: 'new'.\n"
    assert values(json.loads(outcome.out)) == values(evaluate(succeeds))


def test_a_label_that_no_set_names_is_negative(succeeds, survey, model):
    Y = survey.Y.copy()
    Y[:, 2] = 0
    readers.write(replace(survey, Y=Y), "zero.npz")
    sets = ["|".join(n for n, y in zip(survey.label_names, row, strict=True) if y) for row in Y]
    with Path("sets.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*survey.feature_names, "seen"])
        writer.writerows([*x, seen] for x, seen in zip(survey.X.tolist(), sets, strict=True))
    options = ("--label-sets", "seen", "--separator", "|", "--blank-labels", "absent")
    assert values(evaluate(succeeds, "sets.csv", *options)) == pytest.approx(
        values(evaluate(succeeds, "zero.npz")), rel=1e-6
    )


# --- Refusals -----------------------------------------------------------------------------------


def test_bad_input(refused, survey, model, tmp_path):
    readers.write(replace(survey, label_names=["x", *survey.label_names[1:]]), "other.npz")
    np.savez("bare.npz", X=survey.X)
    (tmp_path / "bare.csv").write_text("g,α\n1,2\n", encoding="utf-8")
    bad = {
        "no protocol 'luck'; choose validation or test-oracle": ("birds.npz", "--protocol", "luck"),
        "lacks 1 of the model's 5 labels: 'owl, gray'": ("other.npz",),
        "no array 'Y'": ("bare.npz",),
        "Labels are needed to measure a model; for new rows without labels use 'cgmvae predict'": (
            "bare.csv",
        ),
        "lacks 6 of the model's 6 feature columns": ("yeast",),
    }
    for words, arguments in bad.items():
        assert words in refused("evaluate", "birds.cgmvae", *arguments), words


def test_svmlight_is_read_by_one_rule(succeeds, tmp_path, monkeypatch):
    """Labels are the ids that occur, and features are numbered as in the training file."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    signs = rng.choice([-1, 1], 80)
    rows = [f"{sign} 0:{rng.random():.3f} 1:{sign + rng.random():.3f} 2:1\n" for sign in signs]
    Path("train.svm").write_text("".join(rows))
    Path("new.svm").write_text("".join(re.sub(r" 0:\S+", "", row) for row in rows))  # no index 0
    succeeds("fit", "train.svm", "--method", "binary-relevance", "--out", "m.cgmvae")
    assert library.load("m.cgmvae").label_names_ == ("label_-1", "label_1")
    for source in ("train.svm", "new.svm"):
        found = json.loads(succeeds("evaluate", "m.cgmvae", source, "--json"))
        assert found["metrics"]["micro_f1"]["value"] > 0.95
        succeeds("predict", "m.cgmvae", source, "--out", "out.csv", "--overwrite")
        predicted = np.loadtxt("out.csv", delimiter=",", skiprows=1)
        assert np.mean(predicted[:, 1] == (signs > 0)) > 0.95
    Path("one.svm").write_text("".join(row for row in rows if row[0] == "1"))
    assert json.loads(succeeds("evaluate", "m.cgmvae", "one.svm", "--json"))["rows"] > 0
