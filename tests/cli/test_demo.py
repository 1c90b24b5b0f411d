"""``cgmvae demo``: the real thing with fewer trees and epochs, its numbers computed again."""

import re

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import cgmvae as library
from cgmvae.data import load_dataset, make_split
from cgmvae.evaluation import Scored, evaluate, learn_rule

TREES = 40


@pytest.fixture
def parts(monkeypatch):
    """Use every fourth gene only; return the training and test genes of the publisher."""
    whole = load_dataset("yeast")
    data = whole.rows(np.arange(0, whole.n_samples, 4))
    monkeypatch.setattr("cgmvae.cli.demo.load_dataset", lambda _: data)
    split = make_split(data, "official", seed=0)
    rows = np.sort(np.concatenate([split.train, split.validation]))
    return data.rows(rows), data.rows(split.test)


def row_of(output, name):
    line = next(line for line in output.splitlines() if line.strip().startswith(name))
    return line.replace(name, "").split()


def test_its_numbers_and_its_pairs(succeeds, parts):
    output = succeeds("demo", "--members", "1", "--epochs", "2", "--trees", TREES)
    train, test = parts
    assert f"yeast: {train.n_samples} training genes, {test.n_samples} test genes" in output
    forest = RandomForestClassifier(TREES, oob_score=True, random_state=0).fit(train.X, train.Y)
    rule = learn_rule(train.Y, forest.oob_decision_function_[:, 1])
    scored = {"random forest": (np.array(forest.predict_proba(test.X))[:, :, 1].T, rule)}
    network = library.CGMVAEClassifier(n_members=1, epochs=2)
    blend = library.BlendClassifier(auto_network=network, random_state=0).fit(train.X, train)
    own = blend.cgmvae_
    scored["C-GMVAE"] = own.predict_proba(blend.inputs(test.X)), own.threshold_rule_
    for name, model in {
        "blend": blend,
        "binary relevance": library.BinaryRelevance(random_state=0),
    }.items():
        model.fit(train.X, train.Y)
        scored[name] = model.predict_proba(test.X), model.threshold_rule_
    for name, (scores, rule) in scored.items():
        for protocol in ("validation", "test-oracle"):
            expected = evaluate(Scored(test.Y, scores), protocol=protocol, rule=rule).values()
            shown = row_of(output, f"{name} ({protocol})")
            assert [float(number) for number in shown] == pytest.approx(expected, abs=6e-4)
    printed = ["0.656", "0.665", "0.487", "0.796", "0.751"]
    assert row_of(output, "paper, C-GMVAE (test-oracle)") == printed
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
    assert shown == row_of(output, "blend (validation)")
    model = library.load(folder / "yeast.cgmvae")
    assert model.origin_["data"]["source"] == "yeast"
    assert model.origin_["split"]["rows"]["test"] == parts[1].n_samples
