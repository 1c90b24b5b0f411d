"""``cgmvae search`` from the data to the model, as its users call it."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cgmvae as library
from cgmvae.cli.arguments import check_space
from cgmvae.data import make_survey
from cgmvae.methods import REGISTRY

SMALL = [
    "--setting=latent_dim=4",
    "--setting=embedding_dim=8",
    "--setting=feature_hidden=[8]",
    "--setting=label_hidden=[8]",
    "--setting=decoder_hidden=[8]",
    "--epochs=4",
    "--device=cpu",
]


@pytest.fixture
def survey(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, _ = make_survey(120, 6, 5, seed=0)
    np.savez("birds.npz", X=data.X, Y=data.Y)
    Path("space.json").write_text('{"learning_rate": [0.001, 0.01], "dropout": [0.0, 0.3, 0.5]}')
    return data


def search(call, *arguments, out="birds.cgmvae"):
    return call("search", "birds.npz", "--out", out, "--space", "space.json", *SMALL, *arguments)


def test_it_leaves_a_model_and_a_table(succeeds, survey, tmp_path):
    printed = search(succeeds, "--best=2", "--results=all.csv")
    assert "Tried 6 settings" in printed
    assert "The default settings on the same rows" in printed
    assert re.search("The ensemble is (better|no better|worse) than the defaults: [+-]0", printed)
    rows = list(csv.DictReader(Path("all.csv").read_text().splitlines()))
    assert len(rows) == 6
    assert max(float(row["value"]) for row in rows if row["epochs"] == "4") == float(
        rows[0]["value"]
    )
    model = library.load("birds.cgmvae")
    assert len(model.members) == 2
    assert model.origin_["split"]["kind"] == "random"
    table = pd.DataFrame(survey.X, columns=model.input_names_)
    assert model.predict(table).shape == survey.Y.shape
    assert not Path("birds.cgmvae.search").exists()


def test_json_and_the_same_seed(succeeds, survey):
    first = json.loads(search(succeeds, "--best=2", "--json"))
    again = json.loads(search(succeeds, "--best=2", "--json", out="again.cgmvae"))
    assert first["tried"] == 6
    assert len(first["best"]) == 2
    assert first["best"] == again["best"]
    assert first["metrics"] == again["metrics"]
    plain = ("--method", "cgmvae", "--out", "plain.cgmvae", *SMALL, "--json")
    fit = json.loads(succeeds("fit", "birds.npz", *plain))
    assert first["defaults"] == fit["metrics"]
    gain = first["metrics"]["micro_f1"] - fit["metrics"]["micro_f1"]
    assert first["gain"]["value"] == pytest.approx(gain)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--method", "binary-relevance"), "binary relevance"),
        (("--space", "papper"), "no space 'papper'"),
        (("--metric", "f2"), "no metric 'f2'"),
    ],
)
def test_bad_options(refused, survey, arguments, words):
    small = () if "binary-relevance" in arguments else SMALL
    sentence = refused("search", "birds.npz", "--out", "m.cgmvae", *small, *arguments)
    assert words in sentence
    assert not Path("m.cgmvae").exists()


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"learning_rate": ["a"]}, "learning_rate is"),
        ({"learning_rat": [1]}, "'learning_rat'"),
        ({"embedding_dim": [16, 0.5]}, "whole number"),
    ],
)
def test_values_that_no_parameter_can_have(refused, survey, space, words):
    Path("bad.json").write_text(json.dumps(space))
    assert words in refused("search", "birds.npz", "--out", "m.cgmvae", "--space", "bad.json")


def test_every_space_of_the_registry_passes():
    for method in REGISTRY.values():
        check_space(method.space, method.estimator)
