"""From a table with categories, dates or text to a report, in two commands."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import cgmvae as library
from cgmvae.data import readers
from cgmvae.report import LabelWordsDisplay
from cgmvae.report.rows import ReportRows, on_features, prepared_rows, words_of

TOPICS = {
    "birds": ["owl", "hawk", "wren", "nest", "wing", "feather"],
    "boats": ["sail", "mast", "keel", "anchor", "harbour", "rope"],
    "bread": ["flour", "yeast", "oven", "dough", "crust", "knead"],
}
COMMON = ("the", "of", "and", "with", "from", "near", "about", "some", "many", "very", "old")
SPECIES = ("owl", "hawk", "wren", "crow", "heron", "duck", "finch", "swift")
SIZES = ("latent_dim=4", "embedding_dim=16", "feature_hidden=[16]", "label_hidden=[16]")
QUICK = [f"--setting={size}" for size in (*SIZES, "decoder_hidden=[16]", "learning_rate=0.01")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def documents(folder, rng):
    """Write documents.csv: 150 texts with words that determine their tags."""
    lines = ["body,tags"]
    for _ in range(150):
        tags = [tag for tag in TOPICS if rng.random() < 0.4] or ["birds"]
        words = list(rng.choice(COMMON, 15))
        for tag in tags:
            words += list(rng.choice(TOPICS[tag], 4))
        lines.append(f"{' '.join(rng.permutation(words))},{';'.join(tags)}")
    (folder / "documents.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def sites(folder, rng):
    """Write sites.csv: 60 sites, eight species, a category, a date, and numbers with gaps."""
    lines = [",".join(("depth", "ph", "habitat", "visited", *SPECIES))]
    for i in range(60):
        habitat = rng.choice(["wetland", "forest", "meadow"])
        ph = "" if i % 9 == 0 else f"{rng.normal(7, 0.5):.1f}"
        there = (rng.random(8) < (0.7 if habitat == "wetland" else 0.3)).astype(int)
        day = np.datetime64("2019-03-01") + rng.integers(900)
        cells = [f"{rng.gamma(2):.2f}", ph, habitat, day, *there]
        lines.append(",".join(map(str, cells)))
    (folder / "sites.csv").write_text("\n".join(lines) + "\n")


def test_documents_with_tags(succeeds, documents):
    method = ("--method", "binary-relevance")
    succeeds("fit", "documents.csv", "--label-sets", "tags", *method, "--out", "m.cgmvae")
    succeeds("report", "m.cgmvae", "--out", "page.html", "--baselines", "none")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "This model takes 1 column\n" in page
    assert "Words per label" in page
    assert "weights of 29 words (tf-idf)" in page
    model = library.load("m.cgmvae")
    data = readers.read("documents.csv", label_sets="tags")
    rows = prepared_rows(model, ReportRows.all_of(data, "unknown"))
    assert sp.issparse(rows.test.X)
    assert "body: owl" in rows.test.feature_names
    display = LabelWordsDisplay.from_estimator(
        on_features(model), rows.test.X, rows.test, words=words_of(model)
    )
    for tag, words in TOPICS.items():
        found = [word for word, _ in display.top(tag, 4)]
        assert len(found) == 4
        assert set(found) <= set(words)


def test_sites_with_a_category_and_a_date(succeeds, sites):
    labels = [f"--label={name}" for name in SPECIES]
    plan = ("--members", "1", "--epochs", "2", *QUICK)
    succeeds("fit", "sites.csv", *labels, *plan, "--out", "m.cgmvae")
    succeeds("report", "m.cgmvae", "--out", "page.html", "--baselines", "none")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "Words per label" not in page
    assert "<i>habitat</i> (category): 0 or 1 for each of 3 categories" in page


def test_a_model_of_columns_as_one_of_features(sites):
    data = readers.read("sites.csv", labels=list(SPECIES))
    model = library.BinaryRelevance(random_state=0).fit(data.X, data)
    plain, rows = on_features(model), prepared_rows(model, ReportRows.all_of(data, "unknown"))
    assert {"habitat=wetland", "visited (year)"} <= set(rows.test.feature_names)
    np.testing.assert_array_equal(plain.predict_proba(rows.test.X), model.predict_proba(data.X))
    assert model.n_features_in_ == 4
    assert words_of(model) == {}
    numbers = library.BinaryRelevance(random_state=0).fit(rows.test.X, data)
    assert on_features(numbers) is numbers
    assert prepared_rows(numbers, rows) is rows
