"""Each term has one implementation, which every fit runs; a new one is two edits."""

import sys

import numpy as np
import pytest
import torch

from cgmvae import CGMVAEClassifier, InputError, load, make_survey
from cgmvae.model import objective
from cgmvae.model.presets import PRESETS

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
        ],
    ),
]
TINY = {
    "embedding_dim": 8,
    "epochs": 1,
    "n_members": 2,
    "random_state": 0,
}
SIZES = {"feature_hidden": (8,), "label_hidden": (8,), "decoder_hidden": (8,), "latent_dim": 4}


def sparse_labels(n_rows, n_labels):
    labels = np.zeros((n_rows, n_labels), np.uint8)
    rng = np.random.default_rng(0)
    for row in labels:
        row[rng.integers(0, n_labels, 3)] = 1
    return labels


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_labels", [10, 2000])
def test_a_new_term_is_a_function_and_a_weight(monkeypatch, device, n_labels):
    """Squared logits become small with a large weight."""

    def squared_logits(out):
        return out.views[0].logits.square().mean(-1)

    monkeypatch.setitem(objective.TERMS, "squared_logits", squared_logits)
    X, Y = np.random.default_rng(1).normal(size=(100, 5)), sparse_labels(100, n_labels)
    last = []
    for weight in (1e-9, 1000.0):
        model = CGMVAEClassifier(
            **TINY | {"epochs": 8},
            learning_rate=0.1,
            device=device,
            network=SIZES,
            training={"squared_logits_weight": weight},
        )
        last.append(model.fit(X, Y).history_["squared_logits"][-1].mean())
    assert last[1] < 0.5 * last[0]


@pytest.mark.parametrize("device", DEVICES)
def test_a_default_fit_runs_every_weighted_term(device):
    weights = PRESETS["tuned"].weights()
    expected = {objective.TERMS[name].__code__ for name, weight in weights.items() if weight}
    formulas = {f.__code__ for f in (objective.kl_to_mixture, objective.contrastive)}
    seen = set()

    def watch(frame, event, _):
        if event == "call":
            seen.add(frame.f_code)

    data, _ = make_survey(120, 6, 5, seed=0)
    sys.setprofile(watch)
    try:
        CGMVAEClassifier(**TINY, device=device, network=SIZES).fit(data.X, data.Y)
    finally:
        sys.setprofile(None)
    assert expected | formulas | {objective.cross_entropy.__code__} <= seen


def test_an_unknown_term_is_rejected():
    data, _ = make_survey(210, 6, 5, seed=0)
    with pytest.raises(ValueError, match="no setting 'nothing_weight'"):
        CGMVAEClassifier(**TINY, training={"nothing_weight": 1.0}).fit(data.X, data.Y)


def test_a_loaded_model_predicts_without_a_term_of_ones_own(survey, tmp_path, monkeypatch):
    def brier(out):
        return ((torch.sigmoid(out.views[0].logits) - out.labels.positive.float()) ** 2).sum(-1)

    monkeypatch.setitem(objective.TERMS, "brier", brier)
    model = CGMVAEClassifier(**TINY, training={"brier_weight": 3.0}).fit(survey.X, survey.Y)
    model.save(tmp_path / "model")
    monkeypatch.delitem(objective.TERMS, "brier")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(survey.X), model.predict_proba(survey.X))
    with pytest.raises(InputError, match="no setting 'brier_weight'"):
        loaded.fit(survey.X, survey.Y)
