"""``cgmvae compare``: the test rows and the numbers of ``cgmvae fit``, one table, one sentence."""

import json

import pytest

METHODS = ("--method", "mlknn", "--method", "binary-relevance", "--method", "trees")


def test_the_numbers_are_those_of_fit(succeeds, survey):
    found = json.loads(succeeds("compare", "birds.csv", *LABELS, *METHODS, "--json"))
    for record in found["methods"]:
        name = record["method"]
        given = "--method", name, "--out", f"{name}.cgmvae", "--json"
        report = json.loads(succeeds("fit", "birds.csv", *LABELS, *given))
        metrics = {metric: record[metric] for metric in report["metrics"]}
        assert metrics == pytest.approx(report["metrics"])
        assert found["rows"] == report["split"]["rows"]["test"]
    assert found["advice"].startswith("Use ")


#: The last label is in almost all rows, so it would be left out.
LABELS = ("--label-count", "-4", "--drop", 'say "hi"')


def test_the_table_and_the_sentence(succeeds, survey):
    text = succeeds("compare", "birds.csv", *LABELS, *METHODS, "--per-label", "--folds", "3")
    lines = text.splitlines()
    assert lines[0] == "birds: 150 test rows"
    for title in ("ML-kNN", "binary relevance", "mixed forest"):
        assert sum(line.strip().startswith(title) for line in lines) == 1
    for label in {*survey.label_names} - {LABELS[-1]}:
        row = next(line for line in lines if label in line)
        assert len(row.split()) >= 4
    assert lines[-1].startswith("Use ")


@pytest.mark.filterwarnings("default")
def test_labels_that_hardly_vary_are_left_out(cgmvae, survey):
    done = cgmvae("compare", "birds.csv", "--label-count", "-5", *METHODS, "--per-label")
    assert done.code == 0
    assert "1 of 5 labels is left out of the comparison" in done.err
    assert LABELS[-1] in done.err
    assert LABELS[-1] not in done.out


def test_what_is_refused(refused, survey):
    sentence = refused("compare", "birds.csv", *LABELS, "--method", "owl")
    assert sentence.startswith("There is no method 'owl'")
    sentence = refused("compare", "birds.csv", *LABELS, "--folds", "3", "--split", "random")
    assert "exclude each other" in sentence
