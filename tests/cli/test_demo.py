"""``cgmvae demo``: the real thing with fewer trees and epochs, its numbers computed again."""

import re

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import cgmvae as library
from cgmvae.data import load_dataset, make_split
from cgmvae.evaluation import Scored, evaluate

TREES = 8


@pytest.fixture(scope="module")
def parts():
    data = load_dataset("yeast")
    split = make_split(data, seed=0)
    return [data.rows(rows) for rows in (split.train, split.validation, split.test)]


def row_of(output, name):
    line = next(line for line in output.splitlines() if line.strip().startswith(name))
    return line.replace(name, "").split()


def forest_scores(parts):
    forest = RandomForestClassifier(TREES, random_state=0).fit(parts[0].X, parts[0].Y)
    return [np.array(forest.predict_proba(part.X))[:, :, 1].T for part in parts[1:]]


def model_scores(model, parts):
    train, held, test = parts
    model.fit(train.X, train.Y, validation_data=(held.X, held.Y))
    return [model.predict_proba(part.X) for part in (held, test)]


def test_its_numbers_and_its_pairs(succeeds, parts):
    output = succeeds("demo", "--members", "1", "--epochs", "2", "--trees", TREES)
    assert "yeast: 1,933 training genes, 242 test genes" in output
    network = library.CGMVAEClassifier(n_members=1, epochs=2, random_state=0)
    methods = {
        "C-GMVAE": model_scores(network, parts),
        "binary relevance": model_scores(library.BinaryRelevance(random_state=0), parts),
        "random forest": forest_scores(parts),
    }
    for name, scores in methods.items():
        held, test = (Scored(p.Y, s) for p, s in zip(parts[1:], scores, strict=True))
        for protocol in ("validation", "test-oracle"):
            expected = evaluate(test, held, protocol=protocol).values()
            shown = row_of(output, f"{name} ({protocol})")
            assert [float(number) for number in shown] == pytest.approx(expected, abs=6e-4)
    printed = ["0.656", "0.665", "0.487", "0.796", "0.751"]
    assert row_of(output, "paper, C-GMVAE (test-oracle)") == printed
    train = parts[0]
    pairs = re.findall(r"(Class\d+) and (Class\d+)\s+(-?[\d.]+)\s+([\d.]+) ×", output)
    assert len(pairs) == 3
    similarities = [float(pair[2]) for pair in pairs]
    assert similarities == sorted(similarities, reverse=True)
    for first, second, _, lift in pairs:
        a, b = (train.Y[:, train.label_names.index(name)] for name in (first, second))
        both = sum(1 for x, y in zip(a, b, strict=True) if x and y)
        assert float(lift) == pytest.approx(both * len(a) / (a.sum() * b.sum()), abs=0.051)


@pytest.mark.slow
def test_it_leaves_a_model_and_a_page(succeeds, parts, tmp_path):
    folder = tmp_path / "demo"
    output = succeeds("demo", "--members=1", "--epochs=2", f"--trees={TREES}", "--out", folder)
    assert f"Report: {folder / 'report.html'}" in output
    page = (folder / "report.html").read_text(encoding="utf-8")
    shown = re.findall(r'class="own".*?>([\d.]+)<span', page, re.DOTALL)
    assert shown == row_of(output, "C-GMVAE (validation)")
    model = library.load(folder / "yeast.cgmvae")
    assert model.origin_["data"]["source"] == "yeast"
    assert model.origin_["split"]["rows"]["test"] == parts[2].n_samples
