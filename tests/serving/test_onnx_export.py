"""The ONNX file agrees with the model, describes itself, and is written atomically."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from torch import nn

from cgmvae import __version__
from cgmvae.data import make_survey
from cgmvae.errors import InputError
from cgmvae.evaluation.thresholds import GlobalThreshold, LabelThresholds, TopK
from cgmvae.methods import (
    ASL,
    C2AE,
    MPVAE,
    RBCC,
    BinaryRelevance,
    BlendClassifier,
    CGMVAEClassifier,
    LaMP,
    LinearSVM,
    MixedForest,
    MLkNN,
    NearestVotes,
)
from cgmvae.serving import onnx_export
from cgmvae.serving.onnx_export import export_onnx, exported_model

TINY = {"n_members": 2, "epochs": 2, "device": "cpu", "random_state": 0}
LAYERS = {"feature_hidden": (16,), "label_hidden": (8,), "decoder_hidden": (16,), "latent_dim": 4}


def tiny_cgmvae(preset="tuned", **network):
    return CGMVAEClassifier(preset, embedding_dim=8, network={**LAYERS, **network}, **TINY)


SWITCHES = {"correlation": "graph", "unit_norm": True, "label_bias": False, "layer_norm": False}

#: ASL, LaMP and binary relevance have tests of their own.
MODELS = {
    "tuned": tiny_cgmvae(),
    "switches": tiny_cgmvae(**SWITCHES, prior="standard", decoder_input="z"),
    "c2ae": C2AE(hidden_dim=16, **TINY),
    "mpvae": MPVAE(hidden_dim=8, latent_dim=4, **TINY),
    "blend": BlendClassifier(
        [
            ("trees", MixedForest(n_trees=5)),
            ("votes", NearestVotes(principal_components=4)),
            ("linear", LinearSVM()),
            ("net", tiny_cgmvae().set_params(random_state=None)),
        ],
        random_state=0,
    ),
    "rbcc": RBCC(structure=[(0, 1), (0, 2), (1, 2)], state_dim=8, hidden_dim=8, **TINY),
}


def runtime(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def metadata(path):
    return runtime(path).get_modelmeta().custom_metadata_map


def agree(path, model, X):
    """Compare a file with the model on rows that the export did not see; return the labels."""
    probabilities, labels = runtime(path).run(None, {"features": X})
    np.testing.assert_allclose(probabilities, model.predict_proba(X), rtol=0, atol=1e-5)
    assert np.array_equal(labels, model.threshold_rule_.apply(probabilities))
    return labels


@pytest.fixture
def rows(rng):
    rows = rng.normal(size=(40, 6)) * 3
    rows[rng.random(rows.shape) < 0.2] = np.nan
    rows[0] = np.nan
    return rows


@pytest.fixture
def fitted(survey):
    """Return a linear model, which is exported quickly."""
    return BinaryRelevance(random_state=0).fit(survey.X, survey.Y)


# --- Agreement with the model ----------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_methods_and_switches(name, survey, rows, tmp_path):
    model = clone(MODELS[name]).fit(survey.X, survey.Y)
    before = model.predict_proba(rows)
    written = export_onnx(model, tmp_path / "model.onnx")
    assert (written.n_features, written.n_labels, written.prepared) == (6, 5, False)
    assert 0 <= written.difference <= 1e-5
    agree(tmp_path / "model.onnx", model, rows)
    agree(tmp_path / "model.onnx", model, rows[:1])
    if name == "tuned":
        assert_plain(tmp_path / "model.onnx")
    assert np.array_equal(model.predict_proba(rows), before)


def test_of_equal_probabilities_the_first_are_the_best(survey, rows, tmp_path):
    Y = survey.Y.copy()
    Y[:, [0, 2, 4]] = 1
    model = BinaryRelevance(random_state=0).fit(survey.X, Y)
    model.threshold_rule_ = TopK(2)
    export_onnx(model, tmp_path / "model.onnx")
    assert (agree(tmp_path / "model.onnx", model, rows) == [1, 0, 1, 0, 0]).all()


def test_a_probability_that_equals_its_threshold_counts(survey, rows, tmp_path):
    model = tiny_cgmvae().fit(survey.X, survey.Y)
    with torch.no_grad():
        for parameter in model.network_.parameters():
            parameter.zero_()
    model.threshold_rule_ = LabelThresholds(np.array([0.5, 0.5 + 1e-12, 0.51, 0.49, 0.5]))
    export_onnx(model, tmp_path / "model.onnx")
    assert (agree(tmp_path / "model.onnx", model, rows) == [1, 1, 0, 1, 1]).all()


def test_sparse_training_rows(survey):
    sparse = sp.csr_array(np.where(survey.X > 0, 5 * survey.X, 0))
    model = tiny_cgmvae().fit(sparse, survey.Y)
    with torch.no_grad():
        probabilities = exported_model(model)(torch.from_numpy(sparse.toarray()).double())
    np.testing.assert_allclose(probabilities, model.predict_proba(sparse), rtol=0, atol=1e-6)


EXPERTS = {"trees": MixedForest(n_trees=30), "votes": NearestVotes(), "linear": LinearSVM()}


@pytest.mark.parametrize("name", EXPERTS)
@pytest.mark.parametrize("form", ["dense", "words", "unknown labels", "weights", "few rows"])
def test_experts_that_python_computes_in_another_way(survey, tmp_path, name, form):
    """Trees as gathered nodes, and votes as one matrix, against numpy and scipy."""
    n = 20 if form == "few rows" else survey.n_samples
    X, Y = survey.X[:n], survey.Y[:n].astype(float)
    given = {}
    if form == "words":
        X = sp.csr_array(np.where(X > 0.5, 5 * X, 0))
    elif form == "unknown labels":
        Y[np.random.default_rng(0).random(Y.shape) < 0.2] = np.nan
    elif form == "weights":
        given = {"sample_weight": 1.0 + np.arange(n) % 4}
    model = clone(EXPERTS[name]).set_params(random_state=0).fit(X, Y, **given)
    new = np.random.default_rng(1).normal(size=(50, X.shape[1])) * 2
    if form == "words":  # of rows at the same distance, ONNX takes the first, but torch any
        new = np.maximum(new, 0)
        new[:3] = 0
        export_onnx(model, tmp_path / "model.onnx")
        agree(tmp_path / "model.onnx", model, new)
        return
    with torch.no_grad():
        found = exported_model(model)(torch.from_numpy(new)).numpy()
    np.testing.assert_allclose(found, model.predict_proba(new), rtol=0, atol=1e-6)


def test_a_leaf_that_no_row_reaches_has_no_vote(survey):
    model = MixedForest(n_trees=10, random_state=0).fit(survey.X, survey.Y)
    rows = torch.from_numpy(survey.X.astype(np.float64))
    forest = model.forest_
    emptied = int(forest.leaves(model.inputs(survey.X))[0, 0])
    sizes = model.leaf_rows_.sizes.copy()
    first = int(sizes[:emptied].sum())
    kept = np.delete(model.leaf_rows_.rows, slice(first, first + int(sizes[emptied])))
    sizes[emptied] = 0
    before = model.predict_proba(survey.X)
    model.leaf_rows_ = type(model.leaf_rows_)(sizes, kept)
    with np.errstate(invalid="ignore"), torch.no_grad():
        found = exported_model(model)(rows).numpy()
        expected = model.predict_proba(survey.X)
    assert np.abs(expected - before).max() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_what_is_too_large_for_a_graph_is_refused(survey, monkeypatch):
    model = MixedForest(n_trees=10, random_state=0).fit(survey.X, survey.Y)
    for limit in ("_MAX_DEPTH", "_MAX_TABLE"):
        with monkeypatch.context() as patch:
            patch.setattr(f"cgmvae.methods.trees.{limit}", 1)
            with pytest.raises(InputError, match="too large for a graph; leave out the forest"):
                exported_model(model)
    model = NearestVotes(random_state=0).fit(survey.X, survey.Y)
    monkeypatch.setattr("cgmvae.methods.neighbors.MAX_CELLS", 1)
    with pytest.raises(InputError, match="too many for a graph; leave out the votes"):
        exported_model(model)


def test_an_expert_that_is_no_graph_is_named(survey, tmp_path):
    model = BlendClassifier([("knn", MLkNN(k=3))], random_state=0).fit(survey.X, survey.Y)
    with pytest.raises(InputError, match="The expert 'knn' is a MLkNN, which cannot be exported"):
        export_onnx(model, tmp_path / "model.onnx")


def test_one_feature_one_label_one_member(survey, rows, tmp_path):
    model = ASL(**{**TINY, "n_members": 1}, hidden_dim=4).fit(survey.X[:, :1], survey.Y[:, :1])
    export_onnx(model, tmp_path / "model.onnx")
    agree(tmp_path / "model.onnx", model, rows[:, :1])


def test_attention_among_many_labels(tmp_path):
    survey, _ = make_survey(60, 4, 70, seed=0)
    model = LaMP(embedding_dim=4, n_heads=1, n_steps=1, **{**TINY, "epochs": 1})
    model.fit(survey.X, survey.Y)
    export_onnx(model, tmp_path / "model.onnx")
    agree(tmp_path / "model.onnx", model, survey.X.astype(np.float64))


# --- Metadata ----------------------------------------

HOSTILE = ('say "hi"', "日本 🦉", "\x00\n\r\t", "[]{}\\u0041", "\ud800")


def test_metadata_come_back(fitted, rows, tmp_path):
    thresholds = [0.1, 0.9, 1 / 3, 0.0, 1.0]
    fitted.threshold_rule_ = LabelThresholds(np.array(thresholds))
    expected = fitted.predict(rows)
    fitted.label_names_ = HOSTILE
    fitted.input_names_ = (*HOSTILE, "")
    export_onnx(fitted, tmp_path / "model.onnx")
    _, labels = runtime(tmp_path / "model.onnx").run(None, {"features": rows})
    assert np.array_equal(labels, expected)
    found = metadata(tmp_path / "model.onnx")
    assert json.loads(found["label_names"]) == list(HOSTILE)
    assert json.loads(found["feature_names"]) == [*HOSTILE, ""]
    assert (found["method"], found["library"]) == ("binary-relevance", f"cgmvae {__version__}")
    assert "NaN where a value is missing" in found["input"]
    rule = {"rule": "per-label", "thresholds": thresholds}
    assert json.loads(found["threshold_rule"]) == rule


def test_columns_that_are_no_numbers(survey, rng, tmp_path):
    columns = {
        "height": np.where(rng.random(120) < 0.2, np.nan, survey.X[:, 0]),
        "habitat": rng.choice(["wood", "wetland", "field"], 120).tolist(),
    }
    model = BinaryRelevance(random_state=0).fit(columns, survey.Y)
    written = export_onnx(model, tmp_path / "model.onnx")
    features = model.prepared(columns).astype(np.float64)
    assert (written.n_features, written.prepared) == (features.shape[1], True)
    probabilities, _ = runtime(tmp_path / "model.onnx").run(None, {"features": features})
    np.testing.assert_allclose(probabilities, model.predict_proba(columns), rtol=0, atol=1e-5)
    found = metadata(tmp_path / "model.onnx")
    assert json.loads(found["feature_names"]) == model.prepared_names()
    assert "prepares from the columns" in found["input"]
    learned = {each["name"]: each["learned"] for each in json.loads(found["columns"])}
    assert learned["habitat"]["categories"] == ["field", "wetland", "wood"]


def assert_plain(path):
    """Check that a file says nothing about where it was made, and has no unused weights."""
    session = runtime(path)
    parts = [*session.get_inputs(), *session.get_outputs()]
    assert [(part.name, part.type, part.shape) for part in parts] == [
        ("features", "tensor(double)", ["n_rows", 6]),
        ("probabilities", "tensor(float)", ["n_rows", 5]),
        ("labels", "tensor(int64)", ["n_rows", 5]),
    ]
    content = path.read_bytes()
    for trace in (str(Path(onnx_export.__file__).parent), ".py", "torch"):
        assert trace.encode() not in content
    proto = onnx.load_from_string(content)
    assert [(each.domain, each.version) for each in proto.opset_import] == [("", onnx_export.OPSET)]
    weights = [each.name for each in proto.graph.initializer]
    # Used in training only.
    assert not [name for name in weights if "label_encoder.network" in name]


# --- Written atomically, or not at all ----------------------------------------


class Unsteady(nn.Module):
    """A network that a graph cannot represent: each call returns something else."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 5))
        self.n_calls = 0

    def forward(self, features):
        self.n_calls += 1
        return torch.sigmoid(self.weight[:, None] + features[..., :5] + 0.1 * self.n_calls)


class Branching(Unsteady):
    """A network with data-dependent control flow."""

    def forward(self, features):
        if features.sum() > 0:
            return super().forward(features)
        return torch.sigmoid(self.weight[:, None] - features[..., :5])


@pytest.mark.parametrize(
    ("network", "sentence"),
    [(Unsteady(), r"by 0\.0"), (Branching(), "cannot write this network as ONNX")],
)
def test_a_file_that_is_not_the_model_is_not_written(network, sentence, survey, tmp_path):
    model = ASL(hidden_dim=4, **TINY).fit(survey.X, survey.Y)
    model.network_ = network
    (tmp_path / "model.onnx").write_text("before")
    with pytest.raises(InputError, match=sentence):
        export_onnx(model, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert (tmp_path / "model.onnx").read_text() == "before"


def test_labels_must_follow_the_rule(fitted):
    class Contrary(GlobalThreshold):
        def apply(self, scores):
            return 1 - super().apply(scores)

    fitted.threshold_rule_ = Contrary(0.5)
    module = exported_model(fitted)
    with onnx_export._quiet_exporter(), pytest.raises(InputError, match="do not follow"):
        onnx_export._compare(fitted, onnx_export._serialized(fitted, module))


def test_too_many_weights_for_one_file(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_export, "WEIGHTS_LIMIT", 100)
    with pytest.raises(InputError, match="holds less than 2 GiB"):
        export_onnx(fitted, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_methods_that_cannot_be_exported(survey, tmp_path):
    model = MLkNN(k=3).fit(survey.X, survey.Y)
    with pytest.raises(InputError, match=r"^MLkNN cannot .* are blend, cgmvae, .*asl and rbcc\.$"):
        export_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_missing_package(fitted, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"cgmvae\[onnx\]"):
        export_onnx(fitted, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_packages_of_a_server_are_not_needed(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("cgmvae.serving.")]:
        monkeypatch.delitem(sys.modules, name)
    for package in ("fastapi", "starlette", "pydantic", "uvicorn"):
        monkeypatch.setitem(sys.modules, package, None)
    importlib.import_module("cgmvae.serving.onnx_export")
