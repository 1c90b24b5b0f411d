"""``cgmvae data``: list, describe and convert data sets."""

import csv
import json
import re
import tomllib
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from cgmvae.data import catalog, make_survey, readers

CATALOG = tomllib.loads((resources.files("cgmvae.data") / "catalog.toml").read_text("utf-8"))


def test_fetch_downloads_what_is_missing(succeeds, refused, tmp_path, monkeypatch):
    monkeypatch.setenv("CGMVAE_CACHE", str(tmp_path))
    monkeypatch.delenv("CGMVAE_DATA", raising=False)
    fetched = {}

    def fetch(address, path, *, checksum, progress):
        fetched[address] = checksum
        path.write_bytes(b"")

    monkeypatch.setattr(catalog, "fetch", fetch)
    for _ in range(2):  # the second time nothing is missing
        assert str(tmp_path / "bookmarks") in succeeds("data", "fetch", "bookmarks")
    known = CATALOG["bookmarks"]["downloads"]
    assert fetched == {each["address"]: each["checksum"] for each in known}
    assert "put ebird/ebird_data.npy" in refused("data", "fetch", "ebird")


# --- describe -----------------------------------------------------------------------------------


@pytest.fixture
def describe(succeeds):
    return lambda *arguments: json.loads(succeeds("data", "describe", *arguments, "--json"))


def test_describe_the_embedded_data_set(describe, succeeds):
    known = CATALOG["yeast"]
    described = describe("yeast")
    assert [described[field] for field in ("samples", "features", "labels")] == [2417, 103, 14]
    assert described["paper"] == known["paper"]
    out = succeeds("data", "describe", "yeast")
    rows = {re.split(r"\s{2,}", line.strip())[0]: line.split() for line in out.splitlines()}
    assert rows["samples"][1:] == ["2,417", "2,417"]
    assert rows["mean labels per sample"][4:] == ["4.237", "4.24"]
    assert rows["features"][1:] == ["103", "–"]
    assert "printed in the paper" in out


def test_a_folder_gives_way_to_the_data_set_of_its_name(describe, tmp_path, monkeypatch):
    (tmp_path / "yeast").mkdir()
    monkeypatch.chdir(tmp_path)
    assert describe("yeast")["samples"] == 2417


def test_a_file_without_suffix_is_read_as_told(describe, toy, monkeypatch):
    monkeypatch.chdir(toy.parent)
    toy.rename(toy.with_name("yeast"))
    assert describe("yeast", "--format", "npz")["samples"] == 4


def test_describe_any_table(describe, succeeds, tmp_path):
    table = tmp_path / "a.csv"
    table.write_text(
        "site;depth;habitat;owl;hawk\n"
        + "".join(f"S{i};{i},5;{'fen' if i % 2 else ''};0;1\n" for i in range(9))
    )
    found = describe(table)
    assert found["samples"] == 9
    assert [row["type"] for row in found["columns"]] == [
        "unclear",
        "number",
        "category",
        *["number"] * 2,
    ]
    assert [row["missing"] for row in found["columns"]] == [0, 0, 5, 0, 0]
    assert found["columns"][2]["values"] == "fen"
    out = succeeds("data", "describe", table)
    assert out.endswith("its last 2 columns hold only 0 and 1: give --label-count -2.\n")


# --- list ---------------------------------------------------------------------------------------


def test_list_as_json(succeeds):
    rows = json.loads(succeeds("data", "list", "--json"))
    assert [row["name"] for row in rows] == list(CATALOG)
    for row in rows:
        known = CATALOG[row["name"]]
        for field in ("samples", "features", "labels", "cardinality"):
            assert row[field] == known["statistics"].get(field, 0)
        for field in ("title", "domain", "source", "license"):
            assert row[field] == known[field]
        assert row["recipe"] == known.get("recipe", "")
        can_download = "to download" if "downloads" in known else "by hand"
        assert row["where"] == ("embedded" if "embedded" in known else can_download)


@pytest.mark.parametrize("width", [20, 80])
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


def test_a_chain_through_every_format_that_can_be_written(succeeds, toy, tmp_path):
    assert set(SUFFIX) == {name for name, format_ in readers.FORMATS.items() if format_.write}
    source, reading = toy, ()
    for name, suffix in SUFFIX.items():
        target = tmp_path / f"{name}{suffix}"
        out = succeeds("data", "convert", source, target, *reading)
        assert out == f"Wrote 4 rows, 4 features and 3 labels to {target}.\n"
        source, reading = target, READING.get(name, ())
    found = readers.read(source).in_memory()
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(found.Y, Y)
    assert found.label_names == ("label_0", "label_1", "label_2")


NAMES = ["[red]", "[/bold] a, b", '<script>"x"</script>', "😀 :smile:"]


def test_formats_can_be_named(succeeds, toy, tmp_path):
    text, back = tmp_path / "table.txt", tmp_path / "back.npz"
    succeeds("data", "convert", toy, text, "--target-format", "csv")
    assert text.read_text().startswith('"feature_0"')
    succeeds("data", "convert", text, back, "--format", "csv", "--label-prefix", "label_")
    np.testing.assert_array_equal(readers.read(back).X, X)


def test_a_file_is_not_converted_into_itself(refused, toy, monkeypatch):
    monkeypatch.chdir(toy.parent)
    before = toy.read_bytes()
    assert (
        refused("data", "convert", toy, "toy.npz")
        == "toy.npz is an input of this command; name another file."
    )
    assert toy.read_bytes() == before


def test_an_existing_file_is_replaced_only_when_asked(refused, succeeds, toy, tmp_path):
    target = tmp_path / "there.csv"
    target.write_text("mine")
    assert "there.csv exists; name another file, or give --overwrite." in refused(
        "data", "convert", toy, target
    )
    assert target.read_text() == "mine"
    succeeds("data", "convert", toy, target, "--overwrite")
    assert target.read_text().startswith('"feature_0"')


def test_reading_options_reach_their_readers(describe, succeeds, toy, tmp_path):
    np.save(tmp_path / "birds_data.npy", np.hstack([np.full((4, 1), 9), Y, X]))
    found = describe(tmp_path / "birds_data.npy", "--n-labels", 3, "--meta-offset", 1)
    assert (found["name"], found["labels"], found["features"]) == ("birds", 3, 4)
    declared = "@attribute x numeric\n@attribute owl {0,1}\n@attribute hawk {0,1}\n"
    (tmp_path / "a.arff").write_text(f"@relation a\n{declared}@data\n0.5,1,0\n")
    (tmp_path / "elsewhere.xml").write_text('<labels><label name="owl"/></labels>')
    found = describe(tmp_path / "a.arff", "--xml", tmp_path / "elsewhere.xml")
    assert (found["labels"], found["features"]) == (1, 2)
    (tmp_path / "a.svm").write_text("0 1:1\n1 2:1\n")
    for flag, n_features in (("--zero-based", 3), ("--no-zero-based", 2)):
        assert describe(tmp_path / "a.svm", flag)["features"] == n_features
    (tmp_path / "a.csv").write_text("x;owl\n1;0\n2;1\n")
    assert describe(tmp_path / "a.csv", "--delimiter", ";", "--label", "owl")["features"] == 1


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


def test_names_that_the_terminal_cannot_show(shell, toy):
    odd = toy.with_name("é😀\udcff.npz")  # the last one is a byte that is not UTF-8
    toy.rename(odd)
    table = shell("-m", "cgmvae", "data", "describe", odd, PYTHONIOENCODING="ascii")
    assert (table.code, table.err) == (0, "")
    assert table.out.splitlines()[0] == r"\xe9\U0001f600\udcff"


# --- Memory-mapped folders ----------------------------------------------------------------------

QUICK = ("--epochs", 2, "--members", 1, "--setting", "embedding_dim=16")


@pytest.fixture
def birds(tmp_path, monkeypatch):
    """Work in a folder that holds a survey as CSV and as Parquet."""
    monkeypatch.chdir(tmp_path)
    data, _ = make_survey(300, 6, 5, seed=0)
    for name in ("birds.csv", "birds.parquet"):
        readers.write(data, name)
    return tmp_path


def test_from_a_table_to_predictions(succeeds, birds):
    text = succeeds("data", "convert", "birds.csv", "birds.mapped", "--label-prefix", "species_")
    assert text == "Wrote 300 rows, 6 features and 5 labels to birds.mapped.\n"
    succeeds("data", "convert", "birds.parquet", "again.mapped")
    assert Path("birds.mapped/X.npy").read_bytes() == Path("again.mapped/X.npy").read_bytes()
    assert "missing share" in succeeds("data", "describe", "birds.mapped")
    succeeds("fit", "birds.mapped", "--out", "m.cgmvae", *QUICK)
    for source, out in (("birds.mapped", "a.csv"), ("birds.parquet", "b.csv")):
        succeeds("predict", "m.cgmvae", source, "--out", out, "--probabilities")
    a, b = (list(csv.reader(Path(out).read_text().splitlines())) for out in ("a.csv", "b.csv"))
    assert a[0] == b[0]
    np.testing.assert_allclose(np.float64(a[1:]), np.float64(b[1:]), atol=1e-5)
    evaluated = succeeds("evaluate", "m.cgmvae", "birds.mapped")
    assert "micro-F1" in evaluated


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["data", "convert", "birds.csv", "birds.mapped"], "Name the label columns"),
        (["data", "convert", "birds.parquet", "there.mapped"], "there.mapped exists"),
        (["data", "describe", "there.mapped"], "there.mapped has no X.npy"),
        (["fit", "birds.csv", "--format", "mapped", "--out", "m.cgmvae"], "is a file"),
    ],
)
def test_wrong_use_of_a_folder_is_one_sentence(refused, birds, arguments, sentence):
    (birds / "there.mapped").mkdir()
    before = sorted(birds.iterdir())
    assert sentence in refused(*arguments)
    assert sorted(birds.iterdir()) == before


def test_a_parquet_file_beyond_the_memory_says_what_to_do(refused, birds, monkeypatch):
    monkeypatch.setattr("cgmvae.data.files.UNPACKED_LIMIT", 5000)
    sentence = refused("fit", "birds.parquet", "--out", "m.cgmvae", *QUICK)
    assert "cgmvae data convert" in sentence
