"""The facts of the catalog: complete, and those that the paper prints."""

import re
import tomllib
from decimal import Decimal
from importlib import resources

import pytest

from cgmvae.data.catalog import entries

#: The paper's table of data sets: samples, labels, mean, median and max labels per sample,
#: mean samples per label.
PAPER = """
ebird      41778  100 20.69 18 96 8322.95
mirflickr  25000  38  4.80  5  17 1247.34
nus_vec    269648 85  1.86  1  12 3721.7
yeast      2417   14  4.24  4  11 363.14
scene      2407   6   1.07  1  3  170.83
sider      1427   27  15.3  16 26 731.07
reuters    10789  90  1.23  1  15 106.50
bookmarks  87856  208 2.03  1  44 584.67
delicious  16105  983 19.06 20 25 250.15
"""

HERE = [
    "yeast",
    "scene",
    "sider",
    "reuters",
    "delicious",
    "reuters_tfidf",
    "bbs_2003_2009",
    "ebird_june2019_8000",
    "mirflickr_tags",
    "imdb",
    "tox21",
]
BY_HAND = ["ebird", "mirflickr", "nus_vec", "bookmarks"]


def test_the_fifteen_data_sets_are_there_the_papers_first():
    names = list(entries())
    assert set(names) == {*HERE, *BY_HAND}
    assert set(names[:9]) == {line.split()[0] for line in PAPER.split("\n") if line}


def test_paper_rows_are_those_printed():
    printed = {words[0]: words[1:] for words in map(str.split, PAPER.strip().splitlines())}
    assert {name for name, entry in entries().items() if entry.paper} == set(printed)
    for name, (samples, labels, mean, median, most, per_label) in printed.items():
        paper = entries()[name].paper
        assert (paper.samples, paper.labels) == (int(samples), int(labels))
        assert str(paper.mean_labels_per_sample) == mean
        assert (paper.median_labels_per_sample, paper.max_labels_per_sample) == (
            int(median),
            int(most),
        )
        assert str(paper.mean_samples_per_label) == per_label


@pytest.mark.parametrize("entry", entries().values(), ids=lambda entry: entry.name)
def test_every_entry_is_complete(entry):
    assert re.fullmatch("[a-z0-9_]+", entry.name)
    for text in (entry.title, entry.domain, entry.licence, entry.source):
        assert text
        assert "\n" not in text
    assert "https://" in entry.source
    assert entry.file.count("/") == 1
    assert re.fullmatch("([0-9a-f]{64})?", entry.sha256)
    assert (entry.sha256 == "") == (entry.name in BY_HAND)
    assert entry.downloads or entry.recipe
    assert entry.statistics.samples > 0
    assert entry.statistics.features > 0
    assert entry.statistics.labels > 0
    assert isinstance(entry.statistics.cardinality, Decimal)


@pytest.mark.parametrize("entry", entries().values(), ids=lambda entry: entry.name)
def test_downloads_are_files_at_a_commit_with_roles_that_fit(entry):
    roles = sorted(original.role for original in entry.downloads)
    assert roles in ([], ["data"], ["labels", "test", "train"])
    for original in entry.downloads:
        assert re.fullmatch(
            r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/\S+", original.address
        )
        commit = original.address.split("/")[5]
        assert commit in entry.source
        assert original.file_name.endswith((".arff", ".arff.bz2", ".xml"))


def test_catalog_agrees_with_the_paper_where_it_must():
    for entry in entries().values():
        if entry.paper is None:
            continue
        assert entry.statistics.samples == entry.paper.samples
        if entry.name != "nus_vec":  # the paper prints 85, the released data has 81
            assert entry.statistics.labels == entry.paper.labels
        difference = entry.statistics.cardinality - entry.paper.mean_labels_per_sample
        assert abs(difference) < Decimal("0.05")


def test_entries_cannot_be_spoilt():
    entries().clear()
    assert entries()
    with pytest.raises(AttributeError):
        entries()["yeast"].title = ""


def test_the_files_are_found_as_resources_of_the_package():
    package = resources.files("cgmvae.data")
    assert tomllib.loads((package / "catalog.toml").read_text(encoding="utf-8"))
    names = {path.name for path in (package / "embedded").iterdir()}
    assert {"yeast.npz", "README.md", "NOTICE"} <= names
    assert len((package / "embedded" / "yeast.npz").read_bytes()) < 1_000_000
