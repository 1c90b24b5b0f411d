"""Tables with categories, dates and text, from the file to predictions."""

import csv
import json
import re
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
    assert printed.startswith("1 number, 1 category, 1 date, 1 text column: 16 features.\n")
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


def test_identifiers_are_carried_into_all_output(succeeds, cgmvae, refused):
    reading = ("--label-prefix", "sp_", "--counts", "presence", "--id", "site")
    succeeds("fit", "sites.csv", *reading, "--out", "sites.cgmvae", *SMALL)
    model = library.load("sites.cgmvae")
    assert "site" not in model.input_kinds()
    succeeds("predict", "sites.cgmvae", "sites.csv", "--out", "out.csv")
    header, *found = csv.reader(Path("out.csv").read_text().splitlines())
    assert header == ["site", "sp_owl", "sp_duck", "sp_frog"]
    assert [row[0] for row in found] == [f"S{i}" for i in range(120)]
    assert "out.csv exists" in refused("predict", "sites.cgmvae", "sites.csv", "--out", "out.csv")
    succeeds("predict", "sites.cgmvae", "sites.csv", "--out", "sets.csv", "--label-sets")
    sets = list(csv.reader(Path("sets.csv").read_text().splitlines()))[1:]
    names = np.array(header[1:])
    assert sets == [[row[0], ";".join(names[np.array(row[1:]) == "1"])] for row in found]
    found = succeeds("evaluate", "sites.cgmvae", "--all-rows", "--errors", "3", "--json")
    [error] = json.loads(found)["errors"]
    assert error["id"] == f"S{error['row'] - 1}"
    without = write("bare.csv", [row[1:] for row in rows(5)], HEADER[1:])
    outcome = cgmvae("predict", "sites.cgmvae", without, "--out", "bare_out.csv")
    assert outcome.err == (
        "Warning: bare.csv has no column 'site', so its predictions have no identifiers.\n"
    )
    assert Path("bare_out.csv").read_text().startswith("sp_owl,sp_duck,sp_frog\n")


@pytest.mark.filterwarnings("default")
def test_an_identifier_that_is_noticed_is_set_aside(cgmvae):
    reading = ("--label-prefix", "sp_", "--counts", "presence")
    outcome = cgmvae("fit", "sites.csv", *reading, "--out", "sites.cgmvae", *SMALL)
    assert outcome.code == 0
    assert outcome.err == (
        "Warning: The column 'site' has a different value in almost every row, such as 'S0', so it "
        "is not used as a feature; if it identifies the rows, give --id site.\n"
    )
    assert "site" not in library.load("sites.cgmvae").input_kinds()
    # The file has a column more than the model, and still is the model's own data.
    assert "test rows" in cgmvae("evaluate", "sites.cgmvae").out


def test_column_types_can_be_given(succeeds):
    fit(succeeds, "--text", "habitat", "--category", "depth", "--date", "day")
    kinds = library.load("sites.cgmvae").input_kinds()
    assert kinds == {"day": "date", "depth": "category", "habitat": "text", "notes": "text"}


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


def test_new_rows_are_read_as_the_first_ones_were(succeeds, refused):
    """What was said about the file is not said again, and what a file lacks is not asked for."""
    text = Path("sites.csv").read_text(encoding="utf-8").replace(",", "~")
    Path("sites.csv").write_text(text.replace("wetland", "wätland"), encoding="cp1252")
    fit(succeeds, "--delimiter", "~", "--encoding", "cp1252", "--groups", "day")
    succeeds("predict", "sites.cgmvae", "sites.csv", "--out", "out.csv")
    here = succeeds("evaluate", "sites.cgmvae", "sites.csv", "--all-rows", "--json")
    lines = [line.split("~") for line in Path("sites.csv").read_text("cp1252").splitlines()]
    rest = [line[2:] for line in lines]  # neither the dropped column nor the groups
    Path("rest.csv").write_text("\n".join(map("~".join, rest)) + "\n", encoding="cp1252")
    there = succeeds("evaluate", "sites.cgmvae", "rest.csv", "--json")
    values = [{k: v["value"] for k, v in json.loads(e)["metrics"].items()} for e in (here, there)]
    assert values[0] == values[1]
    write("commas.csv", rest[1:], rest[0])
    assert "lacks" in refused("predict", "sites.cgmvae", "commas.csv", "--out", "new.csv")
    new = ("--delimiter", ",", "--encoding", "utf-8", "--out", "new.csv")
    succeeds("predict", "sites.cgmvae", "commas.csv", *new)
    assert Path("new.csv").read_bytes() == Path("out.csv").read_bytes()


def test_a_long_table_from_fit_to_evaluation(succeeds):
    """One row per species seen; the same sites as one row each give the same model."""
    kept = [row for row in rows() if any(row[5:])]
    wide = [[*row[:5], *(int(count > 0) for count in row[5:])] for row in kept]
    write("wide.csv", [row[1:] for row in wide], HEADER[1:])
    species = HEADER[5:]
    long = [
        [*row[:5], name]
        for row in wide
        for name, seen in zip(species, row[5:], strict=True)
        if seen
    ]
    write("long.csv", long, [*HEADER[:5], "species"])
    succeeds("fit", "long.csv", "--long", "site,species", "--out", "long.cgmvae", *SMALL)
    metrics = []
    for source in ("long.csv", "wide.csv"):
        found = json.loads(succeeds("evaluate", "long.cgmvae", source, "--all-rows", "--json"))
        metrics.append(found["metrics"])
        assert found["rows"] == len(kept)
    assert metrics[0] == metrics[1]
    write("new.csv", [row[:5] for row in wide], HEADER[:5])
    for source in ("long.csv", "new.csv"):
        succeeds("predict", "long.cgmvae", source, "--out", f"labels of {source}")
    header, *predicted = Path("labels of long.csv").read_text().splitlines()
    assert header == ",".join(["site", *sorted(species)])
    assert {line.partition(",")[0] for line in predicted} == {row[0] for row in wide}
    given = Path("labels of new.csv").read_text().splitlines()
    assert sorted(given) == sorted([header, *predicted])


def test_the_same_rows_in_training_and_test_are_a_warning(cgmvae):
    repeated = [row for row in rows(30) for _ in range(4)]
    outcome = fit(cgmvae, source=write("sites.csv", repeated))
    assert outcome.code == 0
    assert re.match(r"Warning: \d+ of the \d+ test rows are also training rows, ", outcome.err)
    assert "--groups" in outcome.err
    assert outcome.err.count("\n") == 1
    assert fit(cgmvae, "--overwrite", source=write("sites.csv", rows())).err == ""


def test_one_copied_row_is_counted_as_one(cgmvae):
    table = list(rows())
    found = []
    for row in table:
        outcome = fit(cgmvae, "--overwrite", source=write("sites.csv", [*table, row]))
        found += re.findall(r"Warning: (1 of .* which)", outcome.err)
        if found:
            break
    assert found == [
        "1 of the 13 test rows is also a training row, with the same features and labels, which"
    ]


def test_an_encoding_is_not_forced_on_other_files(succeeds, refused):
    """A model of a file in cp1252 reads others in UTF-8, UTF-16 and cp1252."""
    table = [
        [f"Höhe {row[0]}", *row[1:3], row[3].replace("forest", "Wälder"), *row[4:]]
        for row in rows()
    ]
    for name, encoding in (
        ("old", "cp1252"),
        ("new", "utf-8"),
        ("wide", "utf-16"),
        ("more", "cp1252"),
    ):
        with Path(f"{name}.csv").open("w", encoding=encoding, newline="") as file:
            csv.writer(file).writerows([["Höhe", *HEADER[1:]], *table])
    reading = ("--label-prefix", "sp_", "--counts", "presence", "--id", "Höhe")
    given = (*reading, "--out", "old.cgmvae", *SMALL)
    assert "--encoding cp1252" in refused("fit", "old.csv", *given)
    succeeds("fit", "old.csv", *given, "--encoding", "cp1252")
    written = set()
    for name in ("old", "new", "wide", "more"):
        succeeds("predict", "old.cgmvae", f"{name}.csv", "--out", f"{name}_out.csv")
        written.add(Path(f"{name}_out.csv").read_text(encoding="utf-8"))
    (text,) = written
    assert text.startswith("Höhe,")
    assert "Höhe S5" in text


def test_a_test_in_new_places(cgmvae, succeeds):
    """Coordinates are noticed; given, they make blocks, which other files need not have."""
    rng = np.random.default_rng(0)
    places = [[*rng.uniform([45, 5], [50, 12]).round(3), *row] for row in rows()]
    header = ["lat", "lon", *HEADER]
    source = write("sites.csv", places, header)
    noticed = fit(cgmvae, source=source).err
    assert noticed.startswith("Warning: The columns 'lat' and 'lon' look like coordinates; ")
    assert noticed.endswith("--coordinates lat,lon.\n")
    given = ("--coordinates", "lat,lon", "--drop", "lat", "--drop", "lon", "--overwrite", "--json")
    found = json.loads(fit(succeeds, *given, "--block-size", "2.5", source=source))
    assert found["split"]["kind"] == "group"
    evaluated = json.loads(succeeds("evaluate", "sites.cgmvae", source, "--json"))
    values = {name: score["value"] for name, score in evaluated["metrics"].items()}
    assert values == pytest.approx(found["metrics"])
    succeeds("report", "sites.cgmvae", "--baselines", "none", "--out", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "Where it errs" in page
    assert "No block in space has rows of both" in page
    new = write("new.csv", [row[2:] for row in places], HEADER)
    succeeds("predict", "sites.cgmvae", new, "--out", "out.csv")
    valleys = write(
        "valleys.csv",
        [[f"v{i % 9}", *row] for i, row in enumerate(places)],
        ["valley", *header],
    )
    reading = ("--groups", "valley", "--all-rows", "--json")
    assert json.loads(succeeds("evaluate", "sites.cgmvae", valleys, *reading))["rows"] == 120


def test_categories_that_the_model_does_not_know_are_a_warning(succeeds, cgmvae, monkeypatch):
    fit(succeeds)
    new = changed(HEADER.index("habitat"), "dessert")
    text = "'habitat' has categories that the model was not fitted with, by number of rows: 'des"
    monkeypatch.setattr("cgmvae.cli.predict._BLOCK_ROWS", (8, 8))  # counted over all blocks
    for command in (("evaluate",), ("predict", "--out", "out.csv")):
        outcome = cgmvae(command[0], "sites.cgmvae", new, *command[1:])
        assert outcome.code == 0
        assert outcome.err.count("\n") == 1
        assert f"{text}sert' (30);" in outcome.err
    first, *others = rows()
    write("rare.csv", [[*first[:3], "cave", *first[4:]], *others])  # rare, but not unseen
    fit(succeeds, source="rare.csv", out="rare.cgmvae")
    succeeds("predict", "rare.cgmvae", "rare.csv", "--out", "rare_out.csv")
