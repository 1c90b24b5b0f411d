"""Tables with categories, dates and text, from the file to predictions."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import cgmvae as library
from cgmvae.data import readers

SMALL = ("--method", "binary-relevance")
WORDS = ["quiet", "wind", "rain", "song", "pond", "tree", "ridge", "nest"]
HEADER = ["site", "day", "depth", "habitat", "notes", "sp_owl", "sp_duck", "sp_frog"]


def rows(n=120):
    """Return sites with counts of species, which follow from habitat, notes and nothing."""
    rng = np.random.default_rng(0)
    for i in range(n):
        habitat = rng.choice(["wetland", "forest", ""])
        notes = " ".join(rng.choice(WORDS, 5))
        counts = (habitat == "forest", habitat == "wetland", "pond" in notes)
        counts = [int(present) * int(rng.integers(1, 9)) for present in counts]
        day = np.datetime64("2023-03-01") + int(rng.integers(0, 500))
        depth = "" if rng.random() < 0.1 else round(rng.normal(200, 30), 1)
        yield [f"S{i}", day, depth, habitat, notes, *counts]


def write(name, table, header=HEADER):
    with Path(name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *table])
    return name


@pytest.fixture(autouse=True)
def sites(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write("sites.csv", rows())


def fit(call, *arguments, source="sites.csv", out="sites.cgmvae"):
    reading = ("--label-prefix", "sp_", "--counts", "presence", "--drop", "site")
    return call("fit", source, *reading, "--out", out, *SMALL, *arguments)


def changed(place, cell, name="new.csv"):
    """Write the sites with another cell in each row, or without a column."""
    return write(name, [[*row[:place], cell, *row[place + 1 :]] for row in rows(30)])


def test_from_a_file_to_predictions(succeeds, cgmvae):
    printed = fit(succeeds)
    assert "\n1 number, 1 category, 1 date, 1 text column: 16 features.\n" in printed
    model = library.load("sites.cgmvae")
    assert model.input_kinds() == {
        "day": "date",
        "depth": "number",
        "habitat": "category",
        "notes": "text",
    }
    outcome = cgmvae("predict", "sites.cgmvae", "sites.csv", "--out", "out.csv", "--probabilities")
    assert outcome.code == 0
    data = readers.read("sites.csv", label_prefix="sp_", counts="presence", drop=["site"])
    with Path("out.csv").open(encoding="utf-8") as file:
        found = np.array(list(csv.reader(file))[1:], float)
    np.testing.assert_allclose(found, model.predict_proba(data.X), atol=1e-6)


def test_column_types_can_be_given(succeeds):
    fit(succeeds, "--text", "habitat", "--category", "depth", "--date", "day")
    kinds = library.load("sites.cgmvae").input_kinds()
    assert kinds == {"day": "date", "depth": "category", "habitat": "text", "notes": "text"}


def test_evaluate_matches_columns_by_name(succeeds, cgmvae):
    fit(succeeds)
    counts = ("--counts", "presence", "--json")
    first = cgmvae("evaluate", "sites.cgmvae", "sites.csv", *counts)
    assert first.err == "Warning: Columns that the model does not know are ignored: 'site'.\n"
    order = [4, 3, 2, 1, 5, 6, 7]
    write("turned.csv", [[row[i] for i in order] for row in rows()], [HEADER[i] for i in order])
    again = succeeds("evaluate", "sites.cgmvae", "turned.csv", *counts)
    assert json.loads(again)["metrics"] == json.loads(first.out)["metrics"]


def test_a_column_of_another_type_is_refused(succeeds, cgmvae):
    fit(succeeds)
    for column, cell in (("day", "soon"), ("depth", "deep"), ("habitat", 7)):
        source = changed(HEADER.index(column), cell)
        for command in (("evaluate", "--counts", "presence"), ("predict", "--out", "out.csv")):
            outcome = cgmvae(command[0], "sites.cgmvae", source, *command[1:])
            assert (outcome.code, outcome.out) == (2, "")
            last = outcome.err.splitlines()[-1]
            assert last.startswith("Error: ")
            assert repr(column) in last
            assert str(cell) in last


def test_a_model_of_numbers_refuses_words(succeeds, refused):
    fit(succeeds, "--drop", "habitat", "--drop", "notes", "--drop", "day")
    assert library.load("sites.cgmvae").preparation_ is None
    source = changed(2, "deep")
    sentence = refused("evaluate", "sites.cgmvae", source, "--counts", "presence")
    assert "'depth'" in sentence
    assert "'deep'" in sentence
