"""Rows without labels: which rows the runs get, and tables from runs with known numbers."""

from dataclasses import replace

import numpy as np
import pytest
from joblib import parallel_config
from tiny_study import texts

from cgmvae.data import make_survey
from cgmvae.studies import rows, unlabelled
from cgmvae.studies.results import Results
from cgmvae.studies.runner import make_records
from cgmvae.studies.spec import RunSpec, Scope, unique
from cgmvae.studies.unlabelled import SUPERVISED, VARIANTS

QUICK = Scope(quick=True)


@pytest.fixture
def survey_parts(monkeypatch):
    """Let every data set be a survey of 200 rows."""
    data, _ = make_survey(200, 6, 5, seed=0)
    monkeypatch.setattr(rows, "_dataset", lambda name: replace(data, groups=None))


def test_labels_are_those_of_a_fraction_of_the_rows(survey_parts):
    spec = RunSpec("yeast", "cgmvae", labeled_fraction=0.1, unlabelled=True)
    parts, whole = rows.load_parts(spec), rows.load_parts(RunSpec("yeast", "cgmvae"))
    n_rows = whole.train.n_samples + whole.validation.n_samples
    assert parts.train.n_samples == n_rows
    labeled = ~parts.train.unknown.all(axis=1)
    assert labeled.sum() == round(n_rows / 10) == parts.validation.n_samples
    assert not parts.train.Y[~labeled].any()
    np.testing.assert_array_equal(parts.train.X[labeled], parts.validation.X)
    np.testing.assert_array_equal(parts.test.X, whole.test.X)
    alone = rows.load_parts(replace(spec, unlabelled=False))
    assert alone.train is alone.validation
    assert {row.tobytes() for row in alone.train.X} == {row.tobytes() for row in parts.validation.X}


@pytest.mark.parametrize("variant", [VARIANTS[3], VARIANTS[-1]])
def test_a_run_is_measured_out_of_fold_on_the_labeled_rows(survey_parts, variant):
    spec = replace(variant, labeled_fraction=0.3).spec(QUICK, "yeast")
    if spec.method == "cgmvae":
        spec = replace(spec, settings={"epochs": 2, **spec.settings})
    with parallel_config("sequential"):
        (record,) = make_records([spec], device="cpu").values()
    n_labeled = rows.load_parts(spec).validation.n_samples
    assert record.predictions["validation"].shape == (n_labeled, 5)
    assert 0 < record.report["metrics"]["validation"]["micro_f1"] <= 1


def test_differences_are_from_the_supervised_model(made_up, available):
    available("yeast")
    for split in (0, 1):
        for i, variant in enumerate(unlabelled.variants(QUICK, 0.1)):
            spec = replace(variant.spec(QUICK, "yeast"), split=split)
            made_up.keep(spec, 0.5 + 0.01 * i + 0.1 * split)
    runs = unlabelled.runs(QUICK)
    assert len(unique(runs)) == 2 * len(VARIANTS)
    scores, differences = unlabelled.tables(Results(QUICK, made_up.store))
    assert [row[1] for row in texts(scores)] == [variant.title for variant in VARIANTS]
    assert texts(differences)[0] == [
        "yeast", f"{VARIANTS[1].title} − {SUPERVISED.title}", *["+0.010 [+0.010, +0.010]"] * 3
    ]  # fmt: skip
    assert len(unlabelled.runs(Scope(data=("yeast",)))) == 3 * 5 * len(VARIANTS)


def test_tables_say_why_there_are_no_scores(made_up, available):
    available("delicious")
    scope = Scope(data=("delicious", "nus_vec"))
    own = {run.method for run in unlabelled.runs(scope)}
    assert own == {"cgmvae"}  # the peers would take hours
    scores, *_ = unlabelled.tables(Results(scope, made_up.store))
    found = {tuple(row[:2]): row[2:] for row in texts(scores)}
    assert found["delicious", "supervised"] == ["not run"]
    assert found["delicious", "self-training"][0].startswith("left out: 15,831,215 rows × labels")
    assert any(data == "nus_vec" and "not available" in why for data, why in found)
