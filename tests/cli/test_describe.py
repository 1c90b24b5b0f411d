"""``cgmvae describe``: what a model file contains; ``cgmvae methods``: what can be fitted."""

import html
import json

import numpy as np
import pytest

import cgmvae as library
from cgmvae.data import readers
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.methods import REGISTRY


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Write sites.csv into an empty folder: a number with gaps, a category and a date."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["depth,habitat,visited,sp_owl,sp_hawk"]
    for i in range(60):
        depth = "" if i % 10 == 0 else f"{rng.normal():.2f}"
        habitat, owl, hawk = rng.choice(["wet", "dry"]), rng.integers(2), rng.integers(2)
        lines.append(f"{depth},{habitat},2021-{1 + i % 12:02}-05,{owl},{hawk}")
    (tmp_path / "sites.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "sites.csv"


def fit(call, *arguments):
    columns = ("--label-prefix", "sp_")
    return call("fit", "sites.csv", *columns, "--out", "m.cgmvae", *arguments)


def test_each_column_with_what_is_done_to_it(succeeds, table):
    fit(succeeds, "--method", "mlknn", "--threshold-rule", "per-label")
    found = json.loads(succeeds("describe", "m.cgmvae", "--json"))
    columns = {row.pop("column"): row for row in found["columns"]}
    assert {name: row["kind"] for name, row in columns.items()} == {
        "depth": "number",
        "habitat": "category",
        "visited": "date",
    }
    assert columns["habitat"]["n_features"] == 2
    assert found["labels"] == ["sp_owl", "sp_hawk"]
    assert found["method"] == "mlknn"
    assert found["bytes"] == (table.parent / "m.cgmvae").stat().st_size
    assert found["origin"] == library.load("m.cgmvae").origin_
    thresholds = library.load("m.cgmvae").threshold_rule_.thresholds.tolist()
    assert found["threshold"] == {"rule": "per-label", "thresholds": thresholds}
    printed = succeeds("describe", "m.cgmvae")
    micro_f1 = found["origin"]["metrics"]["micro_f1"]
    for part in (
        f"On its test rows: example-F1 {found['origin']['metrics']['example_f1']:.3f}, micro-F1 "
        f"{micro_f1:.3f}",
        "ML-kNN",
        "60 rows of sites.csv",
        "0 or 1 for each of 2 categories",
        "random split",
    ):
        assert part in printed


def test_a_network_says_its_preset_members_and_size(succeeds, table):
    sizes = ["latent_dim=4", "embedding_dim=8", "feature_hidden=[8]", "label_hidden=[8]"]
    settings = [f"--setting={size}" for size in [*sizes, "decoder_hidden=[8]"]]
    network = ("--method", "cgmvae", "--members", "2", "--epochs", "1")
    fit(succeeds, *network, *settings, "--threshold-rule", "top-k")
    found = json.loads(succeeds("describe", "m.cgmvae", "--json"))
    model = library.load("m.cgmvae")
    n_weights = sum(tensor.numel() for tensor in model.network_.state_dict().values())
    assert (found["preset"], found["members"]) == ("tuned", 2)
    assert n_weights <= found["numbers"] <= n_weights + 2 * 2
    printed = succeeds("describe", "m.cgmvae")
    assert "C-GMVAE (preset tuned, 2 members)" in printed
    assert "most probable labels of each row" in printed
    assert found["plan"]["profile"]["n_columns"] == model.plan_.profile.n_columns == 6
    assert found["plan"]["training"]["epochs"] == 1
    assert "of 6 dense features and 2 labels" in printed
    assert "latent_dim 4" in printed
    assert "kl_weight 0.003906" in printed


def test_a_blend_says_what_its_experts_are(succeeds, table):
    sizes = [f"--setting={size}_hidden=[8]" for size in ("feature", "label", "decoder")]
    fit(succeeds, "--members", "4", "--epochs", "2", *sizes)
    found = json.loads(succeeds("describe", "m.cgmvae", "--json"))
    model = library.load("m.cgmvae")
    assert found["method"] == "blend"
    experts = {expert.pop("name"): expert for expert in found["experts"]}
    assert list(experts) == ["cgmvae", "trees", "votes"]
    for own in model.experts_:
        expert = experts[own.name]
        assert (expert["kind"], expert["weight"]) == (own.kind, own.weight)
        assert (expert["score"], expert["gain"]) == (own.score, own.gain)
        is_kept = own.name in model.models_
        assert expert["training_rows"] == (54 if is_kept and own.name != "cgmvae" else 0)
        assert (expert["plan"] is None) == (not is_kept)
    assert (experts["cgmvae"]["preset"], experts["cgmvae"]["members"]) == ("tuned", 4)
    assert experts["cgmvae"]["plan"]["network"]["feature_hidden"] == [8]
    printed = succeeds("describe", "m.cgmvae")
    n_rows = found["training_rows"]
    assert n_rows == max(expert["training_rows"] for expert in experts.values())
    first = f"The file contains {n_rows or 'no'} training rows"
    assert printed.startswith(first)
    assert "cgmvae: C-GMVAE (preset tuned, 4 members)." in printed
    assert "feature_hidden [8]" in printed


@pytest.mark.parametrize(("method", "n_rows"), [("mlknn", 49), ("binary-relevance", 0)])
def test_training_rows_in_the_file_are_counted(succeeds, table, method, n_rows):
    fit(succeeds, "--method", method)
    found = json.loads(succeeds("describe", "m.cgmvae", "--json"))
    assert found["training_rows"] == n_rows
    n_stored = sum(len(array) == n_rows for array in read_tensors("m.cgmvae")[0].values())
    assert (n_stored > 0) == (n_rows > 0)


@pytest.mark.filterwarnings("ignore:1 of the 101 rows")
def test_rows_are_counted_as_the_fit_used_them(succeeds, tmp_path, monkeypatch):
    """Blank rows are no rows; rows without labels, and test rows, are not fitted on."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [f"{x:.3f},{int(x > 0)},{i % 2}" for i, x in enumerate(rng.normal(size=80))]
    lines += lines[:10]  # copies are rows
    lines += [f"{x:.3f},," for x in rng.normal(size=10)]
    order = rng.permutation(100)
    text = "\n".join(["depth,sp_owl,sp_hawk", *(lines[i] for i in order), ",,", ""])
    (tmp_path / "sites.csv").write_text(text)
    fit = ("fit", "sites.csv", "--label-prefix", "sp_", "--blank-labels", "unknown", "--out", "m")
    for method, more, start, end in (
        ("mlknn", (), "m: ML-kNN from ", "; 10 are test rows (random split, seed 0); "),
        ("votes", ("--no-test",), "m: votes of near rows from ", "; 10 are left out"),
    ):
        fitted = succeeds(*fit, "--method", method, *more, "--overwrite")
        n_rows = library.load("m").plan_.profile.n_rows
        n_used = n_rows if method == "votes" else n_rows + round(n_rows / 9)
        assert f"{start}{n_used} rows of sites." in fitted
        assert f"Fitted on {n_used} of the 100 rows of sites.csv{end}" in succeeds("describe", "m")


def test_many_columns_alike_share_a_line(succeeds, tmp_path, monkeypatch, survey):
    monkeypatch.chdir(tmp_path)
    X = np.hstack([survey.X] * 5)
    model = library.BinaryRelevance(random_state=0).fit(X, survey)
    model.save("m.cgmvae")
    printed = succeeds("describe", "m.cgmvae")
    assert "feature_0 … feature_29 (30 columns)" in printed
    assert "does not record which data" in printed
    assert len(json.loads(succeeds("describe", "m.cgmvae", "--json"))["columns"]) == 30


def test_an_origin_of_another_form_is_ignored(refused, succeeds, table):
    """``report``, which needs it, asks for the data instead."""
    fit(succeeds, "--method", "mlknn")
    arrays, description = read_tensors("m.cgmvae")
    origin = description["origin"]
    for wrong in (
        {"owl": 1},
        origin | {"data": []},
        origin | {"data": origin["data"] | {"n_samples": "x"}},
        origin | {"split": {"owl": 1}},
        origin | {"seconds": "x"},
    ):
        write_tensors("m.cgmvae", arrays, description | {"origin": wrong})
        assert "does not record which data" in succeeds("describe", "m.cgmvae")
    sentence = refused("report", "m.cgmvae", "--out", "page.html")
    assert "does not record which data" in sentence


def test_a_calibration_is_one_line(succeeds, table):
    fit(succeeds, "--method", "cgmvae", "--members", "2", "--epochs", "1")
    tensors, description = read_tensors("m.cgmvae")
    found = {"temperature": 1.08, "shifts": [-0.02, 0.12]}
    description["fitted"]["calibration"] = found
    write_tensors("m.cgmvae", tensors, description)
    assert json.loads(succeeds("describe", "m.cgmvae", "--json"))["calibration"] == found
    line = "Calibrated out of fold: temperature 1.08, log-odds shifted by -0.02 to +0.12."
    assert line in succeeds("describe", "m.cgmvae")


def test_every_method_is_listed_with_its_limit(succeeds):
    listed = json.loads(succeeds("methods", "--json"))
    assert [row["name"] for row in listed] == list(REGISTRY)
    assert [row["max_labels"] for row in listed] == [
        method.estimator.max_labels for method in REGISTRY.values()
    ]
    stored = {row["name"] for row in listed if row["training_rows"]}
    assert stored == {"blend", "trees", "votes", "mlknn", "haram", "sleec"}
    printed = succeeds("methods")
    assert all(method.paper in printed for method in REGISTRY.values())


def test_what_fit_warned_of_is_repeated_with_the_model(cgmvae, survey, tmp_path):
    """Most of the test rows are copies of training rows, which nobody who gets the model sees."""
    rows = np.tile(np.arange(60), 3)
    readers.write(survey.rows(rows), "copies.npz")
    fitted = cgmvae("fit", "copies.npz", "--method", "binary-relevance", "--out", "m.cgmvae")
    (said,) = (line for line in fitted.err.splitlines() if "are also training rows" in line)
    said = said.removeprefix("Warning: ")
    assert said in cgmvae("describe", "m.cgmvae").out
    assert json.loads(cgmvae("describe", "m.cgmvae", "--json").out)["warnings"] == [said]
    assert f"When the model was fitted: {said}" in cgmvae("evaluate", "m.cgmvae").err
    assert json.loads(cgmvae("evaluate", "m.cgmvae", "--json").out)["fit_warnings"] == [said]
    assert cgmvae("report", "m.cgmvae", "--baselines", "none").code == 0
    assert said in html.unescape((tmp_path / "m.html").read_text(encoding="utf-8"))
