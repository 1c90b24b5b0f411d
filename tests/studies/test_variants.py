"""Do the variants of the studies train, and do what their names say?"""

import numpy as np
import pytest
import torch

from cgmvae.data import make_survey
from cgmvae.methods import CGMVAEClassifier
from cgmvae.nn.batch import Batch
from cgmvae.studies.studies import ablation, claims, replacement
from cgmvae.studies.study import Scope
from cgmvae.studies.variants import COMPLETE, MIXTURE_ONLY, PLAIN, Variant

ALL = {
    repr(variant.settings): variant
    for variant in (
        *ablation.VARIANTS,
        *ablation.HEAVY_VARIANTS,
        *replacement.VARIANTS,
        *(v for group in claims.COLLAPSE.values() for v in group.values()),
        *(v for group in claims.LOSSES.values() for v in group.values()),
        claims.TWO_STAGES,
        claims.TWO_LONG_STAGES,
    )
}
SMALL = {"latent_dim": 3, "feature_hidden": (8,), "label_hidden": (8,), "decoder_hidden": (8,)}


def fitted(variant, data, **others):
    settings = variant.settings | {"settings": SMALL | variant.settings.get("settings", {})}
    model = CGMVAEClassifier(
        **({"epochs": 2, "embedding_dim": 8, "n_members": 1, "random_state": 0} | settings | others)
    )
    return model.fit(data.X, data.Y)


@pytest.mark.parametrize("variant", ALL.values(), ids=lambda variant: variant.title)
def test_every_variant_trains(variant, survey):
    assert np.isfinite(fitted(variant, survey).predict_proba(survey.X)).all()


def test_variants_differ_from_one_another(survey):
    scores = {
        name: fitted(variant, survey).predict_proba(survey.X) for name, variant in ALL.items()
    }
    names = list(scores)
    alike = [
        (a, b)
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if np.array_equal(scores[a], scores[b])
    ]
    assert alike == []


@pytest.mark.parametrize(
    ("variant", "terms"),
    [
        (PLAIN, {"cross_entropy"}),
        (ablation.UNIMODAL, {"kl", "cross_entropy"}),
        (MIXTURE_ONLY, {"kl", "cross_entropy"}),
        (ablation.CONTRASTIVE_ONLY, {"contrastive", "cross_entropy"}),
        (COMPLETE, {"kl", "contrastive", "cross_entropy"}),
        (replacement.GRAPH, {"kl", "cross_entropy"}),
        (replacement.COVARIANCE, {"kl", "cross_entropy"}),
    ],
    ids=lambda value: getattr(value, "title", ""),
)
def test_a_variant_has_the_terms_of_its_name(variant, terms, survey):
    assert set(fitted(variant, survey).network_.functions) == terms


def terms_of(model, data):
    """Return the network, its terms without noise, and what the KL is taken of, in float64."""
    network = model.network_.double()
    features = torch.as_tensor(model._scaled_features(data.X), dtype=torch.float64)[None]
    positive = torch.as_tensor(data.Y.astype(bool))[None]
    batch = Batch(features, positive, torch.ones_like(positive), torch.ones(features.shape[:2]))
    with torch.no_grad():
        return network, network.terms(batch, None), network.encode(features), positive


def kl_by_hand(posterior, mean, log_variance):
    q = torch.distributions.Normal(posterior.mean, torch.exp(0.5 * posterior.log_variance))
    p = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
    return torch.distributions.kl_divergence(q, p).sum(-1)


def test_the_unimodal_prior_is_one_gaussian_of_the_summed_embeddings(survey):
    network, terms, posterior, positive = terms_of(fitted(ablation.UNIMODAL, survey), survey)
    with torch.no_grad():
        prior = network.label_encoder.of_set(positive, None, network.dropout)
    expected = kl_by_hand(posterior, prior.mean, prior.log_variance)
    some = positive.any(-1)
    assert some.any()
    torch.testing.assert_close(terms["kl"][some].double(), expected[some])


@pytest.mark.parametrize("decoder", ["z", "xz"])
def test_the_standard_prior_is_the_standard_normal(decoder, survey):
    variant = claims.COLLAPSE[decoder]["standard"]
    network, terms, posterior, _ = terms_of(fitted(variant, survey), survey)
    zeros = torch.zeros_like(posterior.mean)
    torch.testing.assert_close(terms["kl"].double(), kl_by_hand(posterior, zeros, zeros))
    assert network.config.decoder_input == decoder


def test_a_decoder_of_z_alone_sees_no_features(survey):
    model = fitted(claims.COLLAPSE["z"]["mixture"], survey)
    network = model.network_
    z = torch.zeros(1, 2, SMALL["latent_dim"])
    n_features = survey.X.shape[1]
    with torch.no_grad():
        outputs = [network.decode(fill(1, 2, n_features), z) for fill in (torch.zeros, torch.ones)]
    assert torch.equal(*outputs)


def test_two_stages_leave_cross_entropy_to_the_second():
    """Label biases are in the cross-entropy alone: a first stage does not move them."""
    data, _ = make_survey(400, 6, 5, seed=0)
    first_alone = Variant("first stage alone", {"settings": {"first_stage": 1.0}})
    short, long = (fitted(first_alone, data, epochs=epochs).label_bias_ for epochs in (1, 10))
    np.testing.assert_array_equal(short, long)
    both = fitted(claims.TWO_STAGES, data, epochs=20, learning_rate=0.02)
    assert both.best_epoch_[0] > 10
    assert np.abs(both.label_bias_ - long).min() > 0


def test_quick_runs_have_one_member():
    assert COMPLETE.spec(Scope(quick=True), "yeast").settings == {"n_members": 1}
    assert COMPLETE.spec(Scope(), "yeast").settings == {}
