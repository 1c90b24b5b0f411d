"""``cgmvae report``: from a model to a page, or to what is wrong with it."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cgmvae as library
from cgmvae.cli.models import recorded_source
from cgmvae.data import MultiLabelDataset, make_split, make_survey, readers
from cgmvae.data.columns import as_columns
from cgmvae.report.rows import ReportRows, on_features, prepared_rows, words_of

FIT = ("--method", "binary-relevance")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Leave out the plots of pages, which take most of their time; tests/report looks at them."""
    monkeypatch.setattr("cgmvae.report.page.pictures", lambda *_: iter(()))


@pytest.fixture
def survey(tmp_path, monkeypatch):
    """Write a survey as birds.csv into an empty folder; give the data set."""
    monkeypatch.chdir(tmp_path)
    survey, _ = make_survey(150, 4, 3, n_groups=1, cardinality=1.2, seed=0)
    names = [f"sp_{name}" for name in ("owl", "<b>gull</b>", "hawk")]
    survey = replace(survey, label_names=names, groups=None)
    readers.write(survey, "birds.csv")
    return survey


def fit(call, *arguments, out="birds.cgmvae"):
    return call("fit", "birds.csv", "--label-prefix", "sp_", *FIT, "--out", out, *arguments)


def make_page(call, *arguments):
    options = ("--out", "page.html", "--baselines", "none")
    call("report", "birds.cgmvae", *options, *arguments)
    return Path("page.html").read_text(encoding="utf-8")


def shown(page):
    """Return the five numbers of the model, as the page shows them."""
    return [float(value) for value in re.findall(r'class="own".*?>([\d.]+)<span', page, re.DOTALL)]


def test_the_model_alone_is_enough(succeeds, survey):
    fitted = json.loads(fit(succeeds, "--json", "--seed", "3"))
    page = make_page(succeeds)
    assert shown(page) == pytest.approx(list(fitted["metrics"].values()), abs=6e-4)
    assert "cgmvae fit birds.csv --label-prefix sp_" in page
    assert "cgmvae report birds.cgmvae --out page.html" in page
    assert "<b>gull" not in page
    assert "trained on these rows" not in page
    assert ">label prior</th>" in page


def test_what_a_model_remembers_of_its_making(succeeds, survey):
    fit(succeeds, "--seed", "3", "--split", "stratified")
    origin = library.load("birds.cgmvae").origin_
    assert origin["data"]["source"] == "birds.csv"
    assert origin["data"]["options"] == {"label_prefix": "sp_"}
    split = make_split(survey, "stratified", seed=3)
    rows = {part: len(getattr(split, part)) for part in ("train", "validation", "test")}
    assert origin["split"] == {
        "kind": "stratified",
        "seed": 3,
        "fractions": [0.8, 0.1, 0.1],
        "train_fraction": 1.0,
        "drop_empty": False,
        "rows": rows,
    }
    assert origin["command"].startswith("cgmvae fit birds.csv --label-prefix sp_")
    assert origin["versions"]["cgmvae"] == library.__version__
    assert origin["seconds"] >= 0
    assert recorded_source(origin).load().n_labels == 3


def test_data_that_moved(succeeds, refused, survey):
    fit(succeeds)
    expected = shown(make_page(succeeds))
    assert "page.html exists" in refused("report", "birds.cgmvae", "--out", "page.html")
    Path("birds.csv").rename("moved.csv")
    sentence = refused("report", "birds.cgmvae", "--out", "other.html")
    assert "birds.csv, which birds.cgmvae was fitted on, no longer exists" in sentence
    assert not Path("other.html").exists()
    assert shown(make_page(succeeds, "moved.csv", "--overwrite")) == expected


def test_the_data_is_not_replaced_by_its_page(succeeds, refused, survey):
    fit(succeeds)
    before = Path("birds.csv").read_bytes()
    for out in ("birds.csv", "birds.cgmvae"):
        sentence = refused("report", "birds.cgmvae", "--out", out, "--overwrite")
        assert sentence == f"{out} is an input of this command; name another file."
    assert Path("birds.csv").read_bytes() == before


def test_rows_that_were_trained_on(succeeds, survey):
    fit(succeeds, "--no-test")
    page = make_page(succeeds)
    assert "was trained on these rows" in page
    assert "label prior" not in page


def test_other_rows(succeeds, survey):
    fit(succeeds)
    other, _ = make_survey(80, 4, 3, n_groups=1, cardinality=1.2, seed=9)
    readers.write(replace(other, label_names=survey.label_names, groups=None), "more.csv")
    page = make_page(succeeds, "more.csv")
    assert "may have been trained on these rows" in page
    model = library.load("birds.cgmvae")
    assert shown(page)[1] == pytest.approx(model.score(other.X, other.Y), abs=6e-4)


def test_bad_arguments(succeeds, refused, survey):
    fit(succeeds)
    bad = {
        "'some'": ("--baselines", "some"),
        "--label-prefix needs a file to read": ("--label-prefix", "sp_"),
        "lacks": ("yeast",),
        "nowhere.csv does not exist": ("nowhere.csv",),
    }
    for words, arguments in bad.items():
        assert words in refused("report", "birds.cgmvae", "--out", "page.html", *arguments), words
    assert "does not exist" in refused("report", "nowhere.cgmvae", "--out", "page.html")
    assert not Path("page.html").exists()


# --- Tables with categories, dates or text ------------------------------------------------------


def test_a_model_of_columns_as_one_of_features(rng):
    days = np.datetime64("2019-03-01") + rng.integers(900, size=60)
    cells = {"depth": rng.gamma(2, size=60), "habitat": ["wetland", "forest"] * 30, "visited": days}
    columns = as_columns({name: list(map(str, column)) for name, column in cells.items()})
    data = MultiLabelDataset(columns, rng.integers(0, 2, (60, 3)))
    model = library.BinaryRelevance(random_state=0).fit(data.X, data)
    plain, rows = on_features(model), prepared_rows(model, ReportRows.all_of(data, "unknown"))
    assert {"habitat=wetland", "visited (year)"} <= set(rows.test.feature_names)
    np.testing.assert_array_equal(plain.predict_proba(rows.test.X), model.predict_proba(data.X))
    assert model.n_features_in_ == 3
    assert words_of(model) == {}
    numbers = library.BinaryRelevance(random_state=0).fit(rows.test.X, data)
    assert on_features(numbers) is numbers
    assert prepared_rows(numbers, rows) is rows


# --- Effects ------------------------------------------------------------------------------------


def test_effects_of_the_columns_that_a_label_relies_on(succeeds, survey):
    fit(succeeds)
    said = succeeds("effects", "birds.cgmvae", "--columns", 2, "--figure", "curves.svg")
    assert said == "Wrote birds.effects.csv, about 15 rows of birds.\n"
    assert "</svg>" in Path("curves.svg").read_text(encoding="utf-8")
    with Path("birds.effects.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows[::40]] == list(survey.label_names)
    assert {row["column"] for row in rows} <= set(survey.feature_names)
    one = [row for row in rows if row["label"] == "sp_owl"][:20]
    assert len({row["column"] for row in one}) == 1
    values, probabilities = (
        np.array([float(row[name]) for row in one]) for name in ("value", "probability")
    )
    assert (np.diff(values) > 0).all()
    change = np.diff(probabilities)  # of a linear model
    assert (change > 0).all() or (change < 0).all()


def test_effects_of_one_label(succeeds, survey):
    fit(succeeds)
    succeeds("effects", "birds.cgmvae", "--only", "sp_owl", "--out", "owl.csv")
    with Path("owl.csv").open(encoding="utf-8", newline="") as file:
        assert {row["label"] for row in csv.DictReader(file)} == {"sp_owl"}


def test_effects_that_cannot_be_written(refused, succeeds, survey):
    fit(succeeds)
    assert "no label 'sp_jay'" in refused("effects", "birds.cgmvae", "--only", "sp_jay")
    assert "written as CSV" in refused("effects", "birds.cgmvae", "--out", "a.txt")
    assert "does not end in .png" in refused("effects", "birds.cgmvae", "--figure", "a.gif")
    assert not Path("birds.effects.csv").exists()
