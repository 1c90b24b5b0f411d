"""``cgmvae serve`` and ``cgmvae export``: a server that answers and stops, and an ONNX file."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import onnxruntime
import pytest

import cgmvae as library
from cgmvae.data import make_survey

KEY = "a-key-of-enough-length"
FEATURES = ("tree height (m)", "%sand", "日本", "a\nb")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Fit a model of numbers, one of columns, a network and one that cannot be exported."""
    folder = tmp_path_factory.mktemp("models")
    survey, _ = make_survey(120, len(FEATURES), 5, seed=0)
    named = replace(survey, feature_names=FEATURES)
    columns = {"height": survey.X[:, 0], "habitat": ["wood", "wetland", "field"] * 40}
    models = {
        "birds": library.BinaryRelevance(random_state=0).fit(survey.X, named),
        "sites": library.BinaryRelevance(random_state=0).fit(columns, survey.Y),
        "net": library.ASL(epochs=1, n_members=1, hidden_dim=4).fit(survey.X, survey.Y),
        "near": library.MLkNN(k=3).fit(survey.X, survey.Y),
    }
    for name, model in models.items():
        model.save(folder / f"{name}.cgmvae")
    return folder, survey


@pytest.fixture
def survey(fitted, tmp_path, monkeypatch):
    """Work in a folder with the models alone; give their rows."""
    folder, survey = fitted
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CGMVAE_API_KEY", raising=False)
    return survey


def files():
    return sorted(path.name for path in Path().iterdir())


# --- serve --------------------------------------------------------------------------------------


@contextmanager
def serving(*options):
    """Run the command in a process of its own; give a client, and the process."""
    script = Path(sys.executable).with_name("cgmvae")
    command = [sys.executable, script, "serve", "near.cgmvae", "--port", "0", *options]
    pipe = subprocess.PIPE
    # A background shell ignores Ctrl-C.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL) if os.name == "posix" else None
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, encoding="utf-8", preexec_fn=heed
    ) as process:
        try:
            line = process.stdout.readline()
            found = re.fullmatch(r"Serving near.cgmvae at (http://\S+); press Ctrl-C .*\n", line)
            with httpx.Client(
                base_url=found[1].replace("0.0.0.0", "127.0.0.1"), timeout=60
            ) as client:
                yield client, process
        finally:
            process.kill()


def test_the_server_answers_until_ctrl_c(survey):
    X = survey.X[:5].astype(np.float32)
    expected = library.load("near.cgmvae").label_sets(X)
    with serving("--host", "0.0.0.0") as (client, process):
        found = client.post("/predict?secret=1", json={"rows": X.tolist()}).json()
        assert [row["labels"] for row in found["predictions"]] == expected
        assert client.get("/health").json()["ready"] is True
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "Stopped.\n")
    line = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ status=200 in=\d+ out=\d+ ms=[\d.]+\n"
    assert re.fullmatch(r"Warning: Anyone who can reach 0.0.0.0 .*\n" + line * 2, err)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_several_workers(survey):
    rows = {"rows": survey.X[:1].tolist()}
    with serving("--workers", "2", "--threads", "1") as (client, process):
        for _ in range(20):
            assert client.post("/predict", json=rows).status_code == 200
        assert 'cgmvae_requests_total{status="200"} 20.0' in client.get("/metrics").text
        Path("birds.cgmvae").replace("near.cgmvae")
        process.send_signal(signal.SIGHUP)
        found = []
        while found[-10:] != ["BinaryRelevance"] * 10:
            with httpx.Client(base_url=client.base_url, timeout=60) as another:
                found.append(another.get("/health").json()["model"]["method"])
        process.terminate()
        assert process.communicate(timeout=60)[0] == "Stopped.\n"


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_a_quiet_server_with_a_key_that_loads_its_file_again(survey, tmp_path):
    (tmp_path / "key").write_text(f"{KEY}\n")
    with serving("--api-key-file", "key", "--quiet", "--host", "0.0.0.0") as (client, process):
        assert client.get("/labels").status_code == 401
        client.headers["X-API-Key"] = KEY
        assert client.get("/labels").status_code == 200
        Path("birds.cgmvae").replace("near.cgmvae")
        process.send_signal(signal.SIGHUP)
        while client.get("/health").json()["model"]["method"] != "BinaryRelevance":
            time.sleep(0.02)
        process.terminate()
        assert process.communicate(timeout=60) == ("Stopped.\n", "The model was loaded again.\n")


def test_wrong_use_of_serve(refused, survey, tmp_path, monkeypatch):
    (tmp_path / "short").write_text("short\n")
    (tmp_path / "other").write_bytes(b"\xff" * 40)
    (tmp_path / "long").write_text("a" * 5000)
    wrong = {
        "missing.cgmvae does not exist": ("missing.cgmvae",),
        "short": ("short",),
        "--port": ("birds.cgmvae", "--port", "70000"),
        "nowhere.invalid": ("birds.cgmvae", "--host", "nowhere.invalid"),
        "192.0.2.1": ("birds.cgmvae", "--host", "192.0.2.1"),
        "missing does not exist": ("birds.cgmvae", "--api-key-file", "missing"),
        "at least 16 characters": ("birds.cgmvae", "--api-key-file", "short"),
        "not a readable key file": ("birds.cgmvae", "--api-key-file", "other"),
        "long is too long": ("birds.cgmvae", "--api-key-file", "long"),
    }
    for words, arguments in wrong.items():
        assert words in refused("serve", *arguments), words
    monkeypatch.setenv("CGMVAE_API_KEY", "")
    assert "at least 16 characters" in refused("serve", "birds.cgmvae")


def test_a_package_that_serving_needs(refused, survey, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("cgmvae.serving.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with monkeypatch.context() as patch:  # a module that was loaded before is an attribute, too
        for name in ("server", "app"):
            patch.delattr(f"cgmvae.serving.{name}", raising=False)
        sentence = refused("serve", "birds.cgmvae")
    assert sentence == 'Serving needs more packages: pip install "cgmvae[serve]"'


# --- export -------------------------------------------------------------------------------------


def test_an_exported_model_predicts_the_same(succeeds, survey):
    before = files()
    text = succeeds("export", "birds.cgmvae", "--onnx", "birds.onnx")
    assert text.startswith("Wrote birds.onnx: 4 features in, 5 labels out; it differs from the ")
    assert text.count("\n") == 1
    session = onnxruntime.InferenceSession("birds.onnx", providers=["CPUExecutionProvider"])
    model = library.load("birds.cgmvae")
    _, labels = session.run(None, {"features": survey.X.astype(np.float64)})
    assert np.array_equal(labels, model.predict(survey.X))
    names = session.get_modelmeta().custom_metadata_map["feature_names"]
    assert json.loads(names) == list(FEATURES)
    assert files() == sorted([*before, "birds.onnx"])


@pytest.mark.slow
def test_the_exporter_prints_nothing(survey, shell):
    script = Path(sys.executable).with_name("cgmvae")
    outcome = shell(script, "export", "net.cgmvae", "--onnx", "net.onnx")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("Wrote net.onnx: ")
    assert outcome.out.count("\n") == 1


def test_export_says_that_features_are_prepared(succeeds, survey):
    Path("sites.onnx").write_text("old")
    text = succeeds("export", "sites.cgmvae", "--onnx", "sites.onnx", "--overwrite")
    assert "the model prepares from categories, dates and texts, and does not prepare them" in text
    assert Path("sites.onnx").stat().st_size > 1000


WRONG_EXPORTS = {
    "--overwrite": ("birds.cgmvae", "--onnx", "there.onnx"),
    "does not end in .onnx": ("birds.cgmvae", "--onnx", "birds.cgmvae", "--overwrite"),
    "nothing.cgmvae does not exist": ("nothing.cgmvae", "--onnx", "birds.onnx"),
    "Missing option '--onnx'": ("birds.cgmvae",),
    "rows.csv": ("rows.csv", "--onnx", "birds.onnx"),
    "MLkNN cannot be exported": ("near.cgmvae", "--onnx", "birds.onnx"),
}


def test_wrong_use_of_export(refused, survey, monkeypatch):
    Path("there.onnx").write_text("old")
    Path("rows.csv").write_text("a,b\n1,2\n")
    before = files()
    for words, arguments in WRONG_EXPORTS.items():
        assert words in refused("export", *arguments), words
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "cgmvae[onnx]" in refused("export", "birds.cgmvae", "--onnx", "birds.onnx")
    assert files() == before
