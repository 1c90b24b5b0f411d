"""``cgmvae predict`` writes the predictions of the model, whatever the format of the rows."""

import csv
import gzip
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import cgmvae as library
from cgmvae.cli.arguments import Source
from cgmvae.cli.models import origin_record
from cgmvae.data import make_survey, readers
from cgmvae.methods.conditioning import LabelFactors

from .conftest import contents

pytestmark = pytest.mark.usefixtures("model")


def write_table(path, header, rows):
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def read_table(path):
    with Path(path).open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return header, rows


@pytest.fixture
def source(survey):
    """Write the features alone."""
    return write_table("new.csv", survey.feature_names, survey.X.tolist())


def predict(call, source, *options, out="out.csv", model="birds.cgmvae"):
    return call("predict", model, source, "--out", out, "--overwrite", *options)


# --- What is written ----------------------------------------------------------------------------


def test_labels_probabilities_and_label_sets(succeeds, survey, source, model):
    text = predict(succeeds, source)
    assert text == "Wrote predictions for 150 rows and 5 labels to out.csv.\n"
    header, rows = read_table("out.csv")
    assert header == list(survey.label_names)
    assert np.array_equal(np.array(rows, int), model.predict(survey.X))
    predict(succeeds, source, "--probabilities")
    header, rows = read_table("out.csv")
    expected = model.predict_proba(survey.X.astype(np.float64))
    assert header == list(survey.label_names)
    assert np.array_equal(np.array(rows).astype(expected.dtype), expected)  # exactly
    predict(succeeds, source, "--label-sets", "--separator", "|")
    header, rows = read_table("out.csv")
    assert header == ["labels"]
    assert [row[0].split("|") for row in rows if row[0]] == [
        list(labels) for labels in model.label_sets(survey.X) if labels
    ]
    packed = contents(Path())["out.csv"]
    predict(succeeds, source, "--label-sets", "--separator", "|", out="out.csv.gz")
    assert gzip.decompress(Path("out.csv.gz").read_bytes()) == packed


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_beside_the_predictions(cgmvae, succeeds, survey, joint, small_blocks, suffix):
    frame = pd.DataFrame(survey.X.astype(np.float64), columns=survey.feature_names)
    frame.insert(2, "note", [f"=row {i}, damp" for i in range(150)])
    frame.iloc[7, 0] += 100
    source = f"new{suffix}"
    getattr(frame, f"to_{suffix[1:]}")(source, index=False)
    X = frame.drop(columns="note")
    options = ("--keep", "note", "--keep", "α", "--novelty", "--uncertainty")
    outcome = predict(cgmvae, source, *options, model="joint.cgmvae")
    assert outcome.code == 0
    header, rows = read_table("out.csv")
    spread = [f"{name} (sd)" for name in survey.label_names]
    assert header == ["note", "α", *survey.label_names, *spread, "novelty"]
    assert [row[0] for row in rows] == frame["note"].tolist()
    assert np.array([row[1] for row in rows], float) == pytest.approx(frame["α"])
    assert np.array_equal(np.array([row[2:7] for row in rows], int), joint.predict(X))
    assert np.array([row[-1] for row in rows], float) == pytest.approx(joint.novelty(X), rel=1e-3)
    given = np.array([row[7:12] for row in rows], float)
    assert (given > 0).all()
    assert given[:16] == pytest.approx(joint.uncertainty(X[:16], random_state=0), rel=1e-3)


def test_rows_far_outside_the_training_rows_are_a_warning(cgmvae, succeeds, survey):
    rows = survey.X.astype(np.float64)
    source = write_table("new.csv", survey.feature_names, rows[:20].tolist())
    predict(succeeds, source)  # says nothing
    rows[3:5, 1] = 40, 50
    write_table("new.csv", survey.feature_names, rows[:20].tolist())
    said = predict(cgmvae, source).err
    assert said.startswith("Warning: 2 of 20 rows lie outside the training rows by more than 25%")
    assert "furthest in '%sand' (50, where training has " in said


def test_columns_that_cannot_be_written(refused, survey, source):
    assert "There is no column 'heigth'" in predict(refused, source, "--keep", "heigth")
    twice = predict(refused, source, "--keep", "α", "--keep", "α")
    assert twice.startswith("'α' names more than one column of the predictions")
    assert "no members that could differ" in predict(refused, source, "--uncertainty")
    assert "is no table" in predict(refused, "birds.npz", "--keep", "α")
    library.BinaryRelevance().fit(sp.csr_array(survey.X), survey).save("sparse.cgmvae")
    assert "leave out --novelty" in predict(refused, source, "--novelty", model="sparse.cgmvae")


def test_a_set_that_could_not_be_taken_apart_is_refused(refused, source):
    assert "' a;b ' contain ';'" in predict(refused, source, "--label-sets")
    assert "separator" in predict(refused, source, "--label-sets", "--separator", "")


# --- Known labels -------------------------------------------------------------------------------


@pytest.fixture
def joint(survey):
    """Fit and save joint.cgmvae, whose first two labels say something of each other."""
    model = library.CGMVAEClassifier(n_members=2, epochs=1, random_state=0).fit(survey.X, survey)
    loadings = np.zeros((5, 1), np.float32)
    loadings[:2] = 0.9
    model.label_factors_ = LabelFactors(loadings, np.zeros(4, np.float32))
    model.save("joint.cgmvae")
    return model


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_known_labels_are_in_the_columns_of_the_rows(succeeds, survey, joint, small_blocks, suffix):
    frame = pd.DataFrame(survey.X.astype(np.float64), columns=survey.feature_names)
    known = pd.DataFrame({survey.label_names[3]: 1.0, survey.label_names[1]: survey.Y[:, 1]})
    known.iloc[::2, 1] = np.nan
    known.iloc[100:, 0] = np.nan
    rows = pd.concat([known, frame], axis=1)
    source = f"new{suffix}"
    rows.to_csv(source, index=False) if suffix == ".csv" else rows.to_parquet(source, index=False)
    predict(succeeds, source, "--probabilities", "--known", model="joint.cgmvae")
    expected = joint.predict_proba(frame.to_numpy(), known=known)
    found = np.array(read_table("out.csv")[1]).astype(expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.array_equal(found[1::2, 1], survey.Y[1::2, 1])
    predict(succeeds, source, "--probabilities", model="joint.cgmvae")
    alone = np.array(read_table("out.csv")[1]).astype(expected.dtype)
    assert np.abs(alone[:, 0] - found[:, 0])[1::2].min() > 0.001


def test_known_names_of_a_column_of_label_sets(succeeds, survey, joint):
    joint.label_names_ = ("owl", "hawk", "tit", "jay", "rook")
    seen = [["owl"], [], ["hawk", "jay"], ["lark"]]
    rows = [["; ".join(names), *row] for names, row in zip(seen, survey.X.tolist(), strict=False)]
    source = write_table("new.csv", ["seen", *survey.feature_names], rows)
    joint.origin_ = origin_record(Source(source, "csv", {"label_sets": "seen"}), survey, None)
    joint.save("joint.cgmvae")
    predict(succeeds, source, "--probabilities", "--known", model="joint.cgmvae")
    known = [[name for name in names if name != "lark"] for names in seen]
    expected = joint.predict_proba(survey.X[:4].astype(np.float64), known=known)
    found = np.array(read_table("out.csv")[1]).astype(expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_known_labels_that_cannot_be_had(cgmvae, refused, survey, source, joint):
    assert "birds.cgmvae has not learned what known labels say" in predict(
        refused, "birds.csv", "--known"
    )
    sentence = predict(refused, source, "--known", model="joint.cgmvae")
    assert sentence.startswith("new.csv has no column of known labels ('owl, gray', ")
    assert "cannot be told from others in birds.npz" in predict(
        refused, "birds.npz", "--known", model="joint.cgmvae"
    )
    assert not Path("out.csv").exists()
    joint.label_factors_ = None
    joint.save("joint.cgmvae")
    outcome = predict(cgmvae, "birds.csv", "--known", model="joint.cgmvae")
    assert outcome.code == 0
    assert "the others are predicted as without them" in outcome.err


# --- Where rows come from -----------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".arff", ".svm", ".npz"])
def test_formats_with_names_of_their_own(succeeds, write_arff, suffix):
    """The last feature and labels are 0 in all new rows, so that a sparse file shows fewer."""
    survey, _ = make_survey(100, 4, 5, seed=0)
    model = library.BinaryRelevance(random_state=0).fit(survey.X, survey)
    new = survey.rows(np.arange(9))
    new.X[:, -1] = new.Y[:, -1] = 0
    expected = model.predict(new.X)
    model.save("birds.cgmvae")
    if suffix == ".arff":
        write_arff(new, "new.arff")
        labels = ("--label-count", -5)
    else:
        readers.write(new, f"new{suffix}")
        labels = ()
    predict(succeeds, f"new{suffix}", *labels)
    assert np.array_equal(np.array(read_table("out.csv")[1], int), expected)


def test_columns_are_matched_by_name(succeeds, survey, source, tmp_path):
    predict(succeeds, source, out="expected.csv")
    features, labels, order = survey.feature_names, survey.label_names, [4, 2, 0, 5, 1, 3]
    header = [labels[1], *(features[i] for i in order), labels[0]]
    rows = [["never", *x[order].tolist(), "read"] for x in survey.X]
    predict(succeeds, write_table("mixed.csv", header, rows))
    files = contents(tmp_path)
    assert files["out.csv"] == files["expected.csv"]


def test_extra_columns_are_ignored_with_a_warning(cgmvae, succeeds, survey, source, tmp_path):
    predict(succeeds, source, out="expected.csv")
    extra = [f"note [{i}]" for i in range(7)]
    rows = [[*["some text"] * 7, *x] for x in survey.X.tolist()]
    outcome = predict(cgmvae, write_table("wide.csv", [*extra, *survey.feature_names], rows))
    assert outcome.code == 0
    shown = ", ".join(map(repr, extra[:5]))
    assert outcome.err == (
        f"Warning: Columns that the model does not know are ignored: {shown} and 2 more.\n"
    )
    files = contents(tmp_path)
    assert files["out.csv"] == files["expected.csv"]
    predict(succeeds, "wide.csv", *(f"--drop={name}" for name in extra))
    assert contents(tmp_path)["out.csv"] == files["expected.csv"]


def test_a_model_that_knows_no_names_takes_columns_as_they_come(succeeds, refused, survey):
    Y = pd.DataFrame(survey.Y, columns=survey.label_names)
    model = library.BinaryRelevance(random_state=0).fit(survey.X, Y)
    model.save("nameless.cgmvae")
    rows = [["1", *x] for x in survey.X.tolist()]
    write_table("new.csv", [survey.label_names[2], *"abcdef"], rows)
    predict(succeeds, "new.csv", model="nameless.cgmvae")
    assert np.array_equal(np.array(read_table("out.csv")[1], int), model.predict(survey.X))
    write_table("wide.csv", ["id", *"abcdef"], rows)
    sentence = predict(refused, "wide.csv", model="nameless.cgmvae")
    assert "takes 6 feature columns, whose names it does not know, but the data has 7" in sentence


def test_a_model_that_was_fitted_on_a_data_frame(succeeds, survey, model):
    table = pd.DataFrame(survey.X, columns=survey.feature_names)
    library.BinaryRelevance(random_state=0).fit(table, survey).save("frame.cgmvae")
    predict(succeeds, "birds.csv", "--label-count", "-5", model="frame.cgmvae")
    assert np.array_equal(np.array(read_table("out.csv")[1], int), model.predict(survey.X))


# --- Files of many blocks ------------------------------------------------------------------------


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("cgmvae.cli.predict._BLOCK_ROWS", (16, 16))
    monkeypatch.setattr("cgmvae.cli.predict._TEXT_CELLS", 13)


@pytest.mark.parametrize("suffix", [".csv.gz", ".parquet", ".npz"])
def test_a_file_of_many_blocks(succeeds, survey, model, small_blocks, suffix):
    readers.write(survey, f"new{suffix}")
    predict(succeeds, f"new{suffix}", "--probabilities")
    rows = read_table("out.csv")[1]
    np.testing.assert_allclose(np.array(rows, float), model.predict_proba(survey.X), rtol=1e-6)
    predict(succeeds, f"new{suffix}", "--label-sets", "--separator", "|")
    assert [row[0] for row in read_table("out.csv")[1]] == [
        "|".join(labels) for labels in model.label_sets(survey.X)
    ]


def test_a_wrong_row_in_the_last_block_leaves_nothing_behind(
    refused, survey, small_blocks, tmp_path
):
    cells = survey.X.tolist()
    write_table("text.csv", survey.feature_names, [*cells, ["tall", *cells[0][1:]]])
    write_table("ragged.csv", survey.feature_names, [*cells, [1, 2, 3]])
    (tmp_path / "out.csv").write_bytes(b"as it was")
    before = contents(tmp_path)
    assert "Not numeric: 'tree height (m)'" in predict(refused, "text.csv")
    assert "Row 152 of ragged.csv has 3 cells" in predict(refused, "ragged.csv")
    assert contents(tmp_path) == before


def test_ctrl_c_leaves_nothing_behind(survey, tmp_path):
    write_table("new.csv", survey.feature_names, survey.X.tolist() * 1000)
    before = sorted(tmp_path.iterdir())
    script = Path(sys.executable).with_name("cgmvae")
    command = [script, "predict", "birds.cgmvae", "new.csv", "--out", "out.csv"]
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a background shell ignores it
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, encoding="utf-8", preexec_fn=heed
    ) as child:
        while not any(tmp_path.glob(".out.csv.*/out.csv")) and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        assert child.stderr.read() == "Error: Stopped.\n"
    assert child.returncode == 130
    assert sorted(tmp_path.iterdir()) == before


# --- Refusals -----------------------------------------------------------------------------------


def test_bad_input_writes_nothing(refused, survey, source, tmp_path):
    write_table("twice.csv", [*survey.feature_names, survey.feature_names[0]], [range(7)])
    write_table("short.csv", survey.feature_names, [])
    write_table("few.csv", survey.feature_names[2:], [range(4)])
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    (tmp_path / "there.csv").mkdir()
    (tmp_path / "out.csv").write_bytes(b"as it was")
    before = contents(tmp_path)
    bad = {
        "'tree height (m)' names more than one column": ("twice.csv",),
        "no rows": ("short.csv",),
        "not a readable Parquet file": ("broken.parquet",),
        "missing.csv does not exist": ("missing.csv",),
        "lacks 2 of the model's 6 feature columns: 'tree height (m)', '%sand'; add": ("few.csv",),
        "--n-labels does not apply to csv": (source, "--n-labels", "3"),
        "exclude each other": (source, "--probabilities", "--label-sets"),
        "new.csv is an input": (source, "--out", "new.csv"),
        "name a .csv file": (source, "--out", "out.parquet"),
        "The folder no does not exist": (source, "--out", "no/out.csv"),
        "there.csv is a folder": (source, "--out", "there.csv"),
        "too long": (source, "--out", f"{'a' * 300}.csv"),
    }
    for words, arguments in bad.items():
        assert words in predict(refused, *arguments), words
        assert contents(tmp_path) == before


def test_no_name_of_a_label_is_a_formula_in_a_spreadsheet(succeeds, survey, model, tmp_path):
    model.label_names_ = ("=1+1", "@now", "-3", "-x", "owl")
    model.save("odd.cgmvae")
    succeeds("predict", "odd.cgmvae", "birds.npz", "--out", "odd.csv")
    assert Path("odd.csv").read_text().splitlines()[0] == "'=1+1,'@now,-3,'-x,owl"
    succeeds("predict", "odd.cgmvae", "birds.npz", "--out", "odd_sets.csv", "--label-sets")
    cells = [row[0] for row in csv.reader(Path("odd_sets.csv").read_text().splitlines())]
    assert any(cell.startswith("'=1+1") for cell in cells)
    assert not any(cell.startswith(("=", "@")) for cell in cells)


# --- The most probable set ------------------------------------------------------------------------


def test_the_label_set_that_is_most_probable(succeeds, refused, survey, source, joint):
    predict(succeeds, source, "--most-probable", model="joint.cgmvae")
    found = np.array(read_table("out.csv")[1], int)
    np.testing.assert_array_equal(found, joint.most_probable_set(survey.X))
    assert (found != joint.predict(survey.X)).any()
    for other in ("--probabilities", "--known"):
        assert f"{other} and --most-probable exclude each other" in predict(
            refused, source, "--most-probable", other, model="joint.cgmvae"
        )


# --- A page -------------------------------------------------------------------------------------


def test_a_page_says_how_many_labels_where_and_how_new_the_rows_are(cgmvae, survey, tmp_path):
    """Of blocks of few rows, and with names of labels that look like markup."""
    rng = np.random.default_rng(0)
    table = np.hstack([rng.random((150, 2)), survey.X])
    names = ["lat", "lon", *survey.feature_names]
    known = library.data.MultiLabelDataset(
        table, survey.Y, label_names=["<b>owl</b>", *survey.label_names[1:]], feature_names=names
    )
    model = library.BinaryRelevance(random_state=0).fit(known.X, known)
    model.origin_ = origin_record(
        Source("birds.csv", "csv", {"coordinates": "lat,lon"}), known, None
    )
    model.save("sites.cgmvae")
    new = table[:40].copy()
    new[:3, 0] = 9.0
    source = write_table("new.csv", names, new.tolist())
    outcome = predict(cgmvae, source, "--page", "new.html", model="sites.cgmvae")
    assert outcome.code == 0
    assert outcome.out.startswith("Wrote new.html.\n")
    page = Path("new.html").read_text(encoding="utf-8")
    scores = model.predict_proba(new)
    assert f"<strong>{scores.sum(1).mean():.1f} a row</strong>" in page
    assert "3 of 40 rows lie outside the training rows by more than 25%" in page
    assert "<b>" not in page
    for label in range(5):
        expected = f"<td>{scores[:, label].sum():.1f}</td><td>{model.predict(new)[:, label].sum()}"
        assert expected in page
    assert page.count("<svg") == 1
    assert "novelty" in page.partition("<svg")[2]
    source = write_table("bare.csv", names[2:], survey.X[:9].tolist())
    plain = library.BinaryRelevance(random_state=0).fit(survey.X, survey)
    plain.save("plain.cgmvae")
    predict(cgmvae, source, "--page", "bare.html", model="plain.cgmvae", out="bare_out.csv")
    bare = Path("bare.html").read_text(encoding="utf-8")
    assert "<svg" not in bare
    assert "No row lies outside the training rows" in bare


def test_a_page_has_no_map_if_a_place_is_missing(cgmvae, survey):
    names = ["lat", "lon", *survey.feature_names]
    table = np.hstack([np.random.default_rng(0).random((150, 2)), survey.X])
    known = library.data.MultiLabelDataset(table, survey.Y, feature_names=names)
    model = library.BinaryRelevance(random_state=0).fit(known.X, known)
    model.origin_ = origin_record(
        Source("birds.csv", "csv", {"coordinates": "lat,lon"}), known, None
    )
    model.save("sites.cgmvae")
    rows = table[:9].tolist()
    rows[4][1] = ""
    source = write_table("new.csv", names, rows)
    outcome = predict(cgmvae, source, "--page", "new.html", model="sites.cgmvae")
    assert outcome.code == 0
    assert "Some cells of 'lat', 'lon' are no numbers, so the page has no map." in outcome.err
    assert "<svg" not in Path("new.html").read_text(encoding="utf-8")
