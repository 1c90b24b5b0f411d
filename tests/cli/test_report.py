"""``cgmvae report``: from a model or a folder of runs to a page, or to what is wrong with it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cgmvae as library
from cgmvae.cli.origin import recorded_source
from cgmvae.data import make_split, make_survey, readers
from cgmvae.data.serialization import read_tensors, write_tensors

FIT = ("--method", "binary-relevance")


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
    call("report", "birds.cgmvae", "--out", "page.html", *arguments)
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
    assert "trained on" not in page
    for baseline in ("label prior", "logistic regression", "random forest"):
        assert f">{baseline}</th>" in page


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
        "drop_unlabelled": True,
        "rows": rows,
    }
    assert origin["command"].startswith("cgmvae fit birds.csv --label-prefix sp_")
    assert origin["versions"]["cgmvae"] == library.__version__
    assert origin["seconds"] >= 0
    assert recorded_source(origin).load().n_labels == 3


def test_a_search_remembers_too(succeeds, survey):
    sizes = ["latent_dim=4", "embedding_dim=8", "feature_hidden=[8]", "label_hidden=[8]"]
    settings = [f"--setting={size}" for size in [*sizes, "decoder_hidden=[8]"]]
    Path("space.json").write_text('{"dropout": [0.0, 0.3]}')
    succeeds(
        *("search", "birds.csv", "--label-prefix", "sp_", "--space", "space.json", "--epochs=2"),
        *(*settings, "--out", "birds.cgmvae"),
    )
    assert library.load("birds.cgmvae").origin_["split"]["kind"] == "random"


def test_data_that_moved(succeeds, refused, survey):
    fit(succeeds)
    expected = shown(make_page(succeeds))
    assert "page.html exists" in refused("report", "birds.cgmvae", "--out", "page.html")
    Path("birds.csv").rename("moved.csv")
    sentence = refused("report", "birds.cgmvae", "--out", "other.html")
    assert "birds.csv, which birds.cgmvae was fitted on, is not there now" in sentence
    assert not Path("other.html").exists()
    assert shown(make_page(succeeds, "moved.csv", "--overwrite")) == expected


@pytest.mark.parametrize("source", [(), ("birds.csv",)])
def test_the_data_is_not_replaced_by_its_page(succeeds, refused, survey, source):
    fit(succeeds)
    before = Path("birds.csv").read_bytes()
    for out in ("birds.csv", "birds.cgmvae"):
        sentence = refused("report", "birds.cgmvae", *source, "--out", out, "--overwrite")
        assert sentence == f"{out} is what is read; name another file."
    assert Path("birds.csv").read_bytes() == before


def test_rows_that_were_trained_on(succeeds, survey):
    fit(succeeds, "--all-rows")
    page = make_page(succeeds)
    assert "These rows were trained on" in page
    assert "label prior" not in page


def test_other_rows(succeeds, survey):
    fit(succeeds)
    other, _ = make_survey(80, 4, 3, n_groups=1, cardinality=1.2, seed=9)
    readers.write(replace(other, label_names=survey.label_names, groups=None), "more.csv")
    page = make_page(succeeds, "more.csv")
    assert "These rows may have been trained on" in page
    model = library.load("birds.cgmvae")
    del model.feature_names_in_
    assert shown(page)[1] == pytest.approx(model.score(other.X, other.Y), abs=6e-4)


def test_a_file_of_an_earlier_version(succeeds, refused, survey):
    fit(succeeds)
    tensors, description = read_tensors("birds.cgmvae")
    del description["origin"]
    write_tensors("birds.cgmvae", tensors, description)
    sentence = refused("report", "birds.cgmvae", "--out", "page.html")
    assert "does not say which data it was fitted on" in sentence
    page = make_page(succeeds, "birds.csv", "--label-prefix", "sp_")
    assert "These rows may have been trained on" in page


def test_groups_on_both_sides(succeeds, survey):
    groups = np.arange(survey.n_samples) // 5
    readers.write(replace(survey, groups=groups), "birds.csv")
    fit(succeeds, "--groups", "group", "--split", "random")
    assert "groups have rows in training and in test" in make_page(succeeds, "--baselines", "none")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--baselines", "some"), "no choice 'some'"),
        (("--label-prefix", "sp_"), "--label-prefix needs a file to read"),
        (("yeast",), "lacks"),
        (("nowhere.csv",), "nowhere.csv does not exist"),
    ],
)
def test_bad_arguments(succeeds, refused, survey, arguments, words):
    fit(succeeds)
    assert words in refused("report", "birds.cgmvae", "--out", "page.html", *arguments)
    assert not Path("page.html").exists()


def test_a_folder_of_runs(succeeds, refused, survey):
    made = ("--data", "yeast", "--methods", "mlknn", "--splits", "0", "--quick")
    succeeds("bench", "main", *made, "--folder", "results")
    said = succeeds("report", "results", "--quick", "--out", "page.html")
    assert said == "Wrote page.html, about 1 run of main.\n"
    page = Path("page.html").read_text(encoding="utf-8")
    assert "ML-kNN" in page
    assert "cgmvae report results --quick --out page.html" in page
    assert "page.html exists" in refused("report", "results", "--quick", "--out", "page.html")
    for given, word in ((("birds.csv",), "SOURCE"), (("--baselines", "none"), "--baselines")):
        sentence = refused("report", "results", *given, "--out", "other.html")
        assert f"{word} is for models, and results is a folder" in sentence
    assert not Path("other.html").exists()


def test_a_folder_without_runs(refused, survey):
    Path("empty").mkdir()
    sentence = refused("report", "empty", "--out", "page.html")
    assert "empty holds no runs; name a folder that cgmvae bench --folder wrote" in sentence
    assert not Path("page.html").exists()


def test_a_model_is_not_quick(succeeds, refused, survey):
    fit(succeeds)
    sentence = refused("report", "birds.cgmvae", "--quick", "--out", "page.html")
    assert "--quick is for a folder of runs, and birds.cgmvae is none" in sentence
    assert "does not exist" in refused("report", "nowhere.cgmvae", "--out", "page.html")
