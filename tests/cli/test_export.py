"""``cgmvae export``: one line about one file, or one sentence and no file."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import cgmvae as library
from cgmvae.data import make_survey

FEATURES = ("tree height (m)", "%sand", "日本", "a\nb")


@pytest.fixture
def survey(tmp_path, monkeypatch):
    """Work in a folder with the model birds.cgmvae alone; give its rows."""
    monkeypatch.chdir(tmp_path)
    survey, _ = make_survey(120, len(FEATURES), 5, seed=0)
    model = library.BinaryRelevance(random_state=0).fit(survey.X, survey.Y)
    model.feature_names_in_ = np.array(FEATURES, dtype=object)
    model.save("birds.cgmvae")
    return survey


def files():
    return sorted(path.name for path in Path().iterdir())


def test_what_is_written_and_said(succeeds, survey):
    text = succeeds("export", "birds.cgmvae", "--onnx", "birds.onnx")
    assert text.startswith("Wrote birds.onnx: 4 features in, 5 labels out; it differs from the ")
    assert text.count("\n") == 1
    session = onnxruntime.InferenceSession("birds.onnx", providers=["CPUExecutionProvider"])
    model = library.load("birds.cgmvae")
    del model.feature_names_in_
    _, labels = session.run(None, {"features": survey.X.astype(np.float64)})
    assert np.array_equal(labels, model.predict(survey.X))
    names = session.get_modelmeta().custom_metadata_map["feature_names"]
    assert json.loads(names) == list(FEATURES)
    assert files() == ["birds.cgmvae", "birds.onnx"]


def test_the_exporter_is_not_heard(survey, shell):
    script = Path(sys.executable).with_name("cgmvae")
    library.ASL(epochs=1, n_members=1, hidden_dim=4).fit(survey.X, survey.Y).save("net.cgmvae")
    outcome = shell(script, "export", "net.cgmvae", "--onnx", "net.onnx")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("Wrote net.onnx: ")
    assert outcome.out.count("\n") == 1


def test_prepared_features_are_told(succeeds, survey):
    columns = {"height": survey.X[:, 0], "habitat": ["wood", "wetland", "field"] * 40}
    library.BinaryRelevance(random_state=0).fit(columns, survey.Y).save("sites.cgmvae")
    text = succeeds("export", "sites.cgmvae", "--onnx", "sites.onnx")
    assert "Its inputs are the features that the model prepares from the columns" in text


def test_a_file_that_exists(succeeds, refused, survey):
    Path("birds.onnx").write_text("old")
    assert "--overwrite" in refused("export", "birds.cgmvae", "--onnx", "birds.onnx")
    assert Path("birds.onnx").read_text() == "old"
    succeeds("export", "birds.cgmvae", "--onnx", "birds.onnx", "--overwrite")
    assert Path("birds.onnx").stat().st_size > 1000


WRONG_USE = {
    "does not end in .onnx": ("birds.cgmvae", "--onnx", "birds.cgmvae", "--overwrite"),
    "'' does not end in .onnx": ("birds.cgmvae", "--onnx", ""),
    "nothing.cgmvae does not exist": ("nothing.cgmvae", "--onnx", "birds.onnx"),
    "is a folder": ("birds.cgmvae", "--onnx", "folder.onnx"),
    "The folder nowhere does not exist": ("birds.cgmvae", "--onnx", "nowhere/birds.onnx"),
    "Missing option '--onnx'": ("birds.cgmvae",),
    "Missing argument 'MODEL'": ("--onnx", "birds.onnx"),
    "rows.csv": ("rows.csv", "--onnx", "birds.onnx"),
    "MLkNN cannot be exported": ("near.cgmvae", "--onnx", "birds.onnx"),
}


@pytest.mark.parametrize("sentence", WRONG_USE)
def test_wrong_use(sentence, refused, survey):
    Path("folder.onnx").mkdir()
    Path("rows.csv").write_text("a,b\n1,2\n")
    library.MLkNN(k=3).fit(survey.X, survey.Y).save("near.cgmvae")
    before = files()
    assert sentence in refused("export", *WRONG_USE[sentence])
    assert files() == before


def test_a_missing_package(refused, survey, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "cgmvae[onnx]" in refused("export", "birds.cgmvae", "--onnx", "birds.onnx")
    assert files() == ["birds.cgmvae"]


def test_help(succeeds):
    text = succeeds("export", "--help")
    assert "--onnx FILE" in text
    assert "MODEL" in text
