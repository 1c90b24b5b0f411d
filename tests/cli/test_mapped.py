"""Memory-mapped folders ``*.mapped`` on the command line: convert, describe, fit, predict."""

import csv

import numpy as np
import pytest

from cgmvae.data import make_survey, readers

QUICK = ["--epochs", 2, "--members", 1, "--setting", "embedding_dim=16"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in a folder that holds a survey as CSV and as Parquet."""
    monkeypatch.chdir(tmp_path)
    data, _ = make_survey(300, 6, 5, seed=0)
    readers.write(data, "birds.csv")
    readers.write(data, "birds.parquet")
    return tmp_path


def test_from_a_table_to_predictions(succeeds, here):
    text = succeeds("data", "convert", "birds.csv", "birds.mapped", "--label-prefix", "species_")
    assert text == "Wrote 300 rows, 6 features and 5 labels to birds.mapped.\n"
    succeeds("data", "convert", "birds.parquet", "again.mapped")
    assert (here / "birds.mapped/X.npy").read_bytes() == (here / "again.mapped/X.npy").read_bytes()
    assert "missing share" in succeeds("data", "describe", "birds.mapped")
    succeeds("fit", "birds.mapped", "--out", "m.cgmvae", "--save-split", "split.json", *QUICK)
    for source, out in (("birds.mapped", "a.csv"), ("birds.parquet", "b.csv")):
        succeeds("predict", "m.cgmvae", source, "--out", out, "--probabilities")
    a, b = (list(csv.reader((here / out).read_text().splitlines())) for out in ("a.csv", "b.csv"))
    assert a[0] == b[0]
    np.testing.assert_allclose(np.float64(a[1:]), np.float64(b[1:]), atol=1e-5)
    evaluated = succeeds("evaluate", "m.cgmvae", "birds.mapped", "--split-file", "split.json")
    assert "micro-F1" in evaluated


def test_one_that_converts_back_is_the_same(succeeds, here):
    succeeds("data", "convert", "birds.csv", "birds.mapped", "--label-prefix", "species_")
    succeeds("data", "convert", "birds.mapped", "back.csv")
    assert (here / "back.csv").read_bytes() == (here / "birds.csv").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["data", "convert", "birds.csv", "birds.mapped"], "Name the label columns"),
        (["data", "convert", "birds.parquet", "no/x.mapped"], "no does not exist"),
        (["data", "convert", "birds.parquet", "there.mapped"], "there.mapped exists"),
        (["data", "describe", "none.mapped"], "none.mapped does not exist"),
        (["data", "describe", "there.mapped"], "there.mapped has no X.npy"),
        (["fit", "birds.csv", "--format", "mapped", "--out", "m.cgmvae"], "is a file"),
    ],
)
def test_a_wrong_use_is_one_sentence(refused, here, arguments, sentence):
    (here / "there.mapped").mkdir()
    before = sorted(here.iterdir())
    assert sentence in refused(*arguments)
    assert sorted(here.iterdir()) == before


def test_a_parquet_file_beyond_the_memory_says_what_to_do(refused, succeeds, here, monkeypatch):
    monkeypatch.setattr("cgmvae.data.files.UNPACKED_LIMIT", 5000)
    sentence = refused("fit", "birds.parquet", "--out", "m.cgmvae", *QUICK)
    assert "cgmvae data convert" in sentence
    succeeds("data", "convert", "birds.parquet", "birds.mapped")
    succeeds("fit", "birds.mapped", "--out", "m.cgmvae", *QUICK)
