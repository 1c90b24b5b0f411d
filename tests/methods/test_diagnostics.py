"""Diagnostics of the latent space against direct computations."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.stats import spearmanr

from cgmvae.evaluation import micro_f1
from cgmvae.methods.diagnostics import similarity_cooccurrence
from cgmvae.methods.neural import member_blocks


def test_the_numbers_match_their_definitions(fitted, survey):
    found = fitted.diagnostics(survey.X, survey.Y)
    assert found["micro_f1"] == pytest.approx(micro_f1(survey.Y, fitted.predict(survey.X)))
    means = fitted.transform(survey.X).reshape(120, 3, 4)
    active = (means.var(axis=0, ddof=1) > 0.01).sum(axis=1).mean()
    assert found["active_units"] == pytest.approx(active)
    assert 0 <= found["micro_f1_shuffled_z"] <= 1
    assert found["kl_nats"] > 0
    assert -1 <= found["similarity_cooccurrence"] <= 1
    assert found == fitted.diagnostics(survey.X, survey.Y, random_state=0)
    assert found["kl_nats"] != fitted.diagnostics(survey.X, survey.Y, random_state=1)["kl_nats"]


def test_the_kl_matches_the_closed_form(fitted, survey):
    """With one label per row the mixture has one component, whose KL has a closed form."""
    rows = slice(60)
    chosen = np.argmax(survey.Y[rows], axis=1)
    Y = np.eye(5)[chosen]
    with torch.no_grad():
        (x,) = member_blocks(fitted.network_, fitted.inputs(survey.X[rows]))
        posterior, labels = fitted.network_.encode(x), fitted.network_.label_gaussians()
    mean, log_variance = posterior.mean.double(), posterior.log_variance.double()
    prior_mean = labels.mean[:, chosen].double()
    prior_log_variance = labels.log_variance[:, chosen].double()
    ratio = torch.exp(log_variance - prior_log_variance)
    distance = (mean - prior_mean) ** 2 * torch.exp(-prior_log_variance)
    exact = 0.5 * (ratio + distance - 1 + prior_log_variance - log_variance).sum(-1).mean()
    drawn = [
        fitted.diagnostics(survey.X[rows], Y, random_state=seed)["kl_nats"] for seed in range(40)
    ]
    assert np.mean(drawn) == pytest.approx(float(exact), rel=0.05)


def test_unknown_labels_are_ignored(fitted, survey, rng):
    mask = rng.random(survey.Y.shape) < 0.3
    Y = np.where(mask, np.nan, survey.Y)
    found = fitted.diagnostics(survey.X, Y)
    assert found == fitted.diagnostics(survey.X, sp.csr_array(Y))
    predicted = fitted.predict(survey.X)
    assert found["micro_f1"] == pytest.approx(micro_f1(survey.Y, predicted, unknown=mask))


def test_a_decoder_without_features_needs_its_z(tiny, survey):
    model = tiny(epochs=20, decoder_input="z").fit(survey.X, survey.Y)
    found = model.diagnostics(survey.X, survey.Y)
    assert found["micro_f1_shuffled_z"] < found["micro_f1"] - 0.03


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_similarity_and_cooccurrence_against_numpy(rng, form):
    labels = (rng.random((80, 6)) < 0.4).astype(np.uint8)
    similarity = rng.normal(size=(6, 6))
    similarity += similarity.T
    pairs = np.triu_indices(6, 1)
    expected = spearmanr(similarity[pairs], np.corrcoef(labels.T)[pairs]).statistic
    assert similarity_cooccurrence(similarity, form(labels)) == pytest.approx(expected)


def test_similarity_without_variation_is_nan(rng):
    similarity = np.eye(4) + rng.random((4, 4))
    assert np.isnan(similarity_cooccurrence(similarity, np.ones((9, 4), np.uint8)))
    assert np.isnan(similarity_cooccurrence(np.eye(4), rng.integers(0, 2, (9, 4))))
    assert np.isnan(similarity_cooccurrence(similarity[:2, :2], rng.integers(0, 2, (9, 2))))
