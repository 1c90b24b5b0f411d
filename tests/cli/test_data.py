"""``cgmvae data``: list, describe and convert data sets."""

import csv
import itertools
import json
import math
import os
import re
import tomllib
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from cgmvae.data import readers

FOLDER = Path(os.environ.get("CGMVAE_DATA") or "no folder")
CATALOG = tomllib.loads((resources.files("cgmvae.data") / "catalog.toml").read_text("utf-8"))
HERE = {path.stem for path in FOLDER.rglob("*.npz")} & CATALOG.keys()


# --- describe -----------------------------------------------------------------------------------


@pytest.fixture
def describe(succeeds):
    return lambda *arguments: json.loads(succeeds("data", "describe", *arguments, "--json"))


def test_describe_the_embedded_data_set(describe):
    described, known = describe("yeast"), CATALOG["yeast"]
    for field in ("samples", "features", "labels"):
        assert described[field] == known["statistics"][field]
    assert described["mean_labels_per_sample"] == pytest.approx(4.237, abs=5e-4)
    assert described["paper"] == known["paper"]


def test_describe_of_unknown_labels_and_missing_features(describe, tmp_path):
    path = tmp_path / "small.npz"
    X = np.array([[0, np.nan, 2], [0, 1, 0], [3, 0, np.nan], [0, 0, 0]], dtype=np.float32)
    Y = np.array([[1, 0, 0], [1, 255, 0], [0, 255, 0], [1, 1, 0]], dtype=np.uint8)
    np.savez(path, X=X, Y=Y)
    described = describe(path)
    assert described == {
        "name": "small",
        "samples": 4,
        "labels": 3,
        "mean_labels_per_sample": 1.0,
        "median_labels_per_sample": 1.0,
        "max_labels_per_sample": 2,
        "mean_samples_per_label": 4 / 3,
        "features": 3,
        "density": 0.4,
        "distinct_label_sets": 3,
        "rows_without_labels": 1,
        "labels_without_rows": 1,
        "imbalance_ratio": 2.0,
        "unknown_share": 1 / 6,
        "missing_share": 1 / 6,
        "feature_density": 5 / 12,
        "paper": None,
    }


def test_describe_as_a_table(succeeds):
    out = succeeds("data", "describe", "yeast")
    rows = {re.split(r"\s{2,}", line.strip())[0]: line.split() for line in out.splitlines()}
    assert rows["samples"][1:] == ["2,417", "2,417"]
    assert rows["mean labels per sample"][4:] == ["4.237", "4.24"]
    assert rows["features"][1:] == ["103", "–"]
    assert "printed in the paper" in out


def test_describe_of_a_file_that_the_paper_does_not_know(succeeds, toy):
    assert "printed in the paper" not in succeeds("data", "describe", toy)


def test_a_folder_gives_way_to_the_data_set_of_its_name(describe, tmp_path, monkeypatch):
    (tmp_path / "yeast").mkdir()
    monkeypatch.chdir(tmp_path)
    assert describe("yeast")["samples"] == 2417


def test_a_file_without_suffix_is_read_as_told(describe, toy, monkeypatch):
    monkeypatch.chdir(toy.parent)
    toy.rename(toy.with_name("yeast"))
    assert describe("yeast", "--format", "npz")["samples"] == 4


@pytest.mark.filterwarnings("default")
def test_a_file_that_the_catalog_does_not_know_is_warned_of(cgmvae, tmp_path, monkeypatch):
    known = CATALOG["tox21"]["statistics"]
    labels = np.zeros((known["samples"], known["labels"]), dtype=np.uint8)
    labels.flat[: round(known["cardinality"] * known["samples"])] = 1
    (tmp_path / "tox21").mkdir()
    features = np.zeros((known["samples"], known["features"]), np.float32)
    np.savez(tmp_path / "tox21" / "tox21.npz", X=features, Y=labels)
    monkeypatch.setenv("CGMVAE_DATA", str(tmp_path))
    outcome = cgmvae("data", "describe", "tox21", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["samples"] == 7831
    assert outcome.err.startswith("Warning: ")
    assert outcome.err.count("\n") == 1
    assert "checksum" in outcome.err


# --- list ---------------------------------------------------------------------------------------


def test_list_as_json(succeeds):
    rows = json.loads(succeeds("data", "list", "--json"))
    assert [row["name"] for row in rows] == list(CATALOG)
    for row in rows:
        known = CATALOG[row["name"]]
        for field in ("samples", "features", "labels", "cardinality"):
            assert row[field] == known["statistics"].get(field, 0)
        for field in ("title", "domain", "source", "licence"):
            assert row[field] == known[field]
        assert row["recipe"] == known.get("recipe", "")
        can_download = "to download" if "downloads" in known else "by hand"
        assert row["where"] == ("embedded" if "embedded" in known else can_download)


def test_list_says_what_is_here(succeeds, data_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("CGMVAE_DATA", str(data_folder))
    rows = json.loads(succeeds("data", "list", "--json"))
    here = {row["name"] for row in rows if row["where"] == "here"}
    assert here == HERE - {"yeast"}


@pytest.mark.parametrize("width", [20, 78, 80])
def test_nothing_is_cut_however_wide_the_terminal_is(succeeds, monkeypatch, width):
    terminal = Console(width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr("cgmvae.cli.console.console", terminal)
    out = succeeds("data", "list")
    assert "…" not in out
    for name, known in CATALOG.items():
        assert re.search(rf"^ ?{name}\b", out, flags=re.MULTILINE)
        for field in ("samples", "features"):
            if number := known["statistics"].get(field):
                assert re.search(rf"(?<![\d,]){number:,}(?![\d,])", out)
    is_table = re.search(r"^ yeast .* 2,417 .*biology *$", out, flags=re.MULTILINE)
    assert bool(is_table) == (width >= 80)
    assert not is_table or max(map(len, out.splitlines())) <= width


def test_a_pipe_gets_the_whole_table(succeeds, monkeypatch):
    monkeypatch.setattr("cgmvae.cli.console.console", Console(width=30, force_terminal=False))
    out = succeeds("data", "list")
    assert re.search(r"^ tox21 .*7,831.*chemistry *$", out, flags=re.MULTILINE)


# --- convert ------------------------------------------------------------------------------------

SUFFIX = {
    "arff": ".arff.gz",
    "svmlight": ".svm.bz2",
    "csv": ".csv.gz",
    "parquet": ".parquet",
    "mapped": ".mapped",
    "npz": ".npz",
}
READING = {
    "svmlight": ("--n-features", 4, "--n-labels", 3),
    "csv": ("--label-count", -3),
}
X = np.array(
    [[0.1, 0, 1e-30, 0], [-3.25, 3e38, 0, 0], [0, 0, 0, 0], [7, 16777217, 1 / 3, 0]], np.float32
)  # without the last column, svmlight could not tell that it is there
Y = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]], np.uint8)


@pytest.fixture
def toy(tmp_path):
    np.savez(tmp_path / "toy.npz", X=X, Y=Y)
    return tmp_path / "toy.npz"


def stored(path):
    with np.load(path, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def dense_features(arrays):
    if "X" in arrays:
        return arrays["X"]
    features = np.zeros(arrays["X_shape"], np.float32)
    for row, (start, stop) in enumerate(itertools.pairwise(arrays["X_indptr"])):
        features[row, arrays["X_indices"][start:stop]] = arrays["X_data"][start:stop]
    return features


def test_a_chain_through_every_format_that_can_be_written(succeeds, toy, tmp_path):
    assert set(SUFFIX) == {name for name, format_ in readers.FORMATS.items() if format_.write}
    source, reading = toy, ()
    for name, suffix in SUFFIX.items():
        target = tmp_path / f"{name}{suffix}"
        out = succeeds("data", "convert", source, target, *reading)
        assert out == f"Wrote 4 rows, 4 features and 3 labels to {target}.\n"
        source, reading = target, READING.get(name, ())
    arrays = stored(source)
    np.testing.assert_array_equal(dense_features(arrays), X)
    np.testing.assert_array_equal(arrays["Y"], Y)
    assert arrays["label_names"].tolist() == ["label_0", "label_1", "label_2"]


NAMES = ["[red]", "[/bold] a, b", '<script>"x"</script>', "😀 :smile:"]


@pytest.mark.parametrize("target", ["arff", "csv", "parquet"])
def test_convert_keeps_names_and_unknown_values(succeeds, tmp_path, target):
    source, middle, back = (tmp_path / name for name in ("a.npz", f"b.{target}", "c.npz"))
    features = np.array([[np.nan, 1], [2, 0], [0, np.nan]], np.float32)
    labels = np.array([[1, 255], [0, 1], [255, 0]], np.uint8)
    names = {"feature_names": np.array(NAMES[2:]), "label_names": np.array(NAMES[:2])}
    np.savez(source, X=features, Y=labels, **names)
    succeeds("data", "convert", source, middle)
    reading = ("--blank-labels", "unknown", "--label", NAMES[0], "--label", NAMES[1])
    succeeds("data", "convert", middle, back, *(reading if target == "csv" else ()))
    arrays = stored(back)
    np.testing.assert_array_equal(arrays["X"], features)
    np.testing.assert_array_equal(arrays["Y"], labels)
    assert arrays["feature_names"].tolist() == NAMES[2:]
    assert arrays["label_names"].tolist() == NAMES[:2]


def test_formats_can_be_named(succeeds, toy, tmp_path):
    text = tmp_path / "table.txt"
    succeeds("data", "convert", toy, text, "--target-format", "csv")
    with text.open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == [*(f"feature_{i}" for i in range(4)), *(f"label_{i}" for i in range(3))]
    assert [[int(cell) for cell in row[4:]] for row in rows] == Y.tolist()
    back = tmp_path / "back.npz"
    succeeds("data", "convert", text, back, "--format", "csv", "--label-prefix", "label_")
    np.testing.assert_array_equal(stored(back)["X"], X)


def test_a_file_is_not_converted_into_itself(refused, toy, monkeypatch):
    monkeypatch.chdir(toy.parent)
    before = toy.read_bytes()
    assert (
        refused("data", "convert", toy, "toy.npz")
        == "toy.npz is an input of this command; name another file."
    )
    assert toy.read_bytes() == before


def test_reading_options_reach_their_readers(describe, succeeds, toy, tmp_path):
    np.save(tmp_path / "birds_data.npy", np.hstack([np.full((4, 1), 9), Y, X]))
    found = describe(tmp_path / "birds_data.npy", "--n-labels", 3, "--meta-offset", 1)
    assert (found["name"], found["labels"], found["features"]) == ("birds", 3, 4)
    succeeds("data", "convert", toy, tmp_path / "a.arff")
    (tmp_path / "a.xml").rename(tmp_path / "elsewhere.xml")
    found = describe(tmp_path / "a.arff", "--xml", tmp_path / "elsewhere.xml")
    assert found["labels"] == 3
    (tmp_path / "a.svm").write_text("0 1:1\n1 2:1\n")
    for flag, n_features in (("--zero-based", 3), ("--no-zero-based", 2)):
        assert describe(tmp_path / "a.svm", flag)["features"] == n_features
    (tmp_path / "a.csv").write_text("x;owl\n1;0\n2;1\n")
    assert describe(tmp_path / "a.csv", "--delimiter", ";", "--label", "owl")["features"] == 1


def test_label_sets_counts_and_groups(describe, succeeds, tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("x,all,site,note\n1,owl|hawk,a,n\n2,owl,b,n\n3,,b,n\n")
    options = ("--label-sets", "all", "--separator", "|", "--groups", "site", "--drop", "note")
    succeeds("data", "convert", table, tmp_path / "a.npz", *options, "--blank-labels", "absent")
    arrays = stored(tmp_path / "a.npz")
    assert arrays["label_names"].tolist() == ["hawk", "owl"]
    assert arrays["Y"].tolist() == [[1, 1], [0, 1], [0, 0]]
    assert arrays["group"].tolist() == ["a", "b", "b"]
    table.write_text("x,owl\n1,0\n2,7\n")
    described = describe(table, "--label", "owl", "--counts", "presence")
    assert math.isclose(described["density"], 0.5)


# --- Odd names ----------------------------------------------------------------------------------


def test_names_are_printed_verbatim_and_cannot_control_the_terminal(
    cgmvae, describe, succeeds, toy, tmp_path
):
    name = "[red]a[green] <script> 😀 :smile:\x1b[2J\nb\x9b1m"
    shown = r"[red]a[green] <script> 😀 :smile:\x1b[2J\nb\x9b1m"
    odd = tmp_path / f"{name}.npz"
    assert succeeds("data", "convert", toy, odd).endswith(f"{shown}.npz.\n")
    assert succeeds("data", "describe", odd).splitlines()[0] == shown
    assert describe(odd)["name"] == name
    odd.unlink()
    assert "\x1b" not in cgmvae("data", "describe", odd).err


def test_label_names_are_printed_verbatim(refused, tmp_path):
    table = tmp_path / "a.csv"
    for name in NAMES:
        with table.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["x", name], [1, 2]])
        assert name in refused("data", "describe", table, "--label", name)


TWO_CALLS = """
import sys
from cgmvae.cli.main import run
path = sys.argv[1]
for more in ([], ["--json"]):
    sys.argv = ["cgmvae", "data", "describe", path, *more]
    try:
        run()
    except SystemExit as end:
        assert not end.code
    print("-----")
"""


def test_names_that_the_terminal_cannot_show(shell, toy):
    odd = toy.with_name("é😀\udcff.npz")  # the last one is a byte that is not UTF-8
    toy.rename(odd)
    outcome = shell("-c", TWO_CALLS, odd, PYTHONIOENCODING="ascii")
    assert (outcome.code, outcome.err) == (0, "")
    table, json_text, _ = outcome.out.split("-----\n")
    assert table.splitlines()[0] == r"\xe9\U0001f600\udcff"
    assert json.loads(json_text)["name"] == odd.stem
