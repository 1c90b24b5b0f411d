"""C-GMVAE: embeddings, latent space, known labels, presets and settings."""

import copy
import dataclasses
from typing import get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss

from cgmvae.data import make_survey
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods import CGMVAEClassifier, load
from cgmvae.methods.conditioning import LabelFactors
from cgmvae.methods.neural import member_blocks
from cgmvae.model.network import NetworkConfig
from cgmvae.model.plan import DataProfile, preset_for
from cgmvae.model.presets import PRESETS
from cgmvae.training.plan import TrainingConfig

PROFILE = DataProfile(n_rows=100, n_columns=6, n_labels=5, features="dense")


def members(model, X):
    """Return the logits of each member, (n_members, n_rows, n_labels)."""
    network = model.network_
    with torch.no_grad():
        (x,) = member_blocks(model.network_, model.inputs(X))
        return network.logits(network.decode(x, network.encode(x).mean)).numpy()


class TestEmbeddings:
    def test_inner_products_are_the_mean_logit(self, fitted, survey):
        embeddings = fitted.embed(survey.X)
        assert embeddings.shape == (120, 3 * 16)
        assert fitted.label_embeddings_.shape == (5, 3 * 16)
        logits = embeddings @ fitted.label_embeddings_.T + fitted.label_bias_
        np.testing.assert_allclose(logits, members(fitted, survey.X).mean(0), atol=1e-4)
        np.testing.assert_allclose(
            expit(members(fitted, survey.X)).mean(0), fitted.predict_proba(survey.X), atol=1e-6
        )

    def test_embeddings_of_one_member_give_its_probabilities(self, tiny, survey):
        model = tiny(n_members=1, label_bias=False, unit_norm=True).fit(survey.X, survey.Y)
        logits = model.embed(survey.X) @ model.label_embeddings_.T + model.label_bias_
        np.testing.assert_allclose(expit(logits), model.predict_proba(survey.X), atol=1e-4)
        np.testing.assert_allclose(np.linalg.norm(model.embed(survey.X), axis=1), 1, rtol=1e-5)

    def test_similarity_of_labels(self, fitted):
        similarity = fitted.label_similarity()
        np.testing.assert_allclose(similarity, similarity.T, atol=1e-6)
        np.testing.assert_allclose(np.diag(similarity), 1, atol=1e-5)
        assert np.abs(similarity).max() <= 1 + 1e-5
        plain = fitted.label_similarity(normalize=False)
        embeddings = fitted.label_embeddings_
        np.testing.assert_allclose(plain, embeddings @ embeddings.T, atol=1e-5)
        each = embeddings.reshape(5, 3, 16)
        cosines = np.einsum("imd,jmd->mij", each, each)
        norms = np.linalg.norm(each, axis=2)
        expected = cosines / (norms.T[:, :, None] * norms.T[:, None, :])
        np.testing.assert_allclose(similarity, expected.mean(0), atol=1e-5)

    def test_nearest_labels(self, fitted):
        similarity = fitted.label_similarity()[1]
        found = fitted.nearest_labels("species_1", k=3)
        others = [i for i in np.argsort(-similarity) if i != 1]
        assert [name for name, _ in found] == [f"species_{i}" for i in others[:3]]
        assert [value for _, value in found] == pytest.approx(similarity[others[:3]].tolist())
        every = fitted.nearest_labels("species_1", k=99)
        assert len(every) == 4
        assert "species_1" not in dict(every)
        assert fitted.nearest_labels("species_1", k=0) == []
        assert fitted.nearest_labels("species_1", k=-1) == []

    def test_an_unknown_label_suggests_similar_names(self, fitted):
        for call in (fitted.nearest_labels, fitted.label_prior):
            with pytest.raises(InputError, match=r"'specie_1'.*Did you mean .*species_1"):
                call("specie_1")
            with pytest.raises(InputError, match="no label 'owl'") as caught:
                call("owl")
            assert "mean" not in str(caught.value)
            with pytest.raises(InputError, match="no label 1"):
                call(1)

    def test_labels_that_always_co_occur_are_nearest(self, tiny, rng):
        """Two labels that always co-occur become each other's nearest label."""
        X = rng.normal(size=(300, 4)).astype(np.float32)
        Y = (X > 0).astype(int)
        names = ["owl", "crow", "hawk", "wren", "owlet"]
        Y = pd.DataFrame(np.column_stack([Y, Y[:, 0]]), columns=names)
        model = tiny(epochs=15).fit(X, Y)
        assert model.nearest_labels("owl")[0][0] == "owlet"
        assert model.nearest_labels("owlet")[0][0] == "owl"


class TestLatentSpace:
    def test_transform_gives_the_posterior_means(self, fitted, survey):
        z = fitted.transform(survey.X)
        assert z.shape == (120, 3 * 4)
        assert z.dtype == np.float32
        names = fitted.get_feature_names_out()
        assert names.tolist() == [f"cgmvaeclassifier{i}" for i in range(12)]

    def test_a_label_has_a_gaussian(self, fitted):
        mean, variance = fitted.label_prior("species_2")
        assert mean.shape == variance.shape == (12,)
        with torch.no_grad():
            gaussians = fitted.network_.label_gaussians()
        np.testing.assert_allclose(mean.reshape(3, 4), gaussians.mean[:, 2])
        np.testing.assert_allclose(
            variance.reshape(3, 4), torch.exp(gaussians.log_variance[:, 2]), rtol=1e-6
        )
        assert np.abs(mean - fitted.label_prior("species_3")[0]).max() > 1e-3

    def test_uncertainty_is_the_spread_of_the_draws(self, fitted, survey):
        spread = fitted.uncertainty(survey.X, random_state=0)
        assert spread.shape == survey.Y.shape
        assert spread.min() >= 0
        assert 0 < spread.max() <= 0.5
        np.testing.assert_array_equal(spread, fitted.uncertainty(survey.X, random_state=0))
        # One draw: the spread over members alone is at least that of their means, about.
        X = survey.X[:4]
        network = fitted.network_
        with torch.no_grad():
            (x,) = member_blocks(fitted.network_, fitted.inputs(X))
            generator = np.random.default_rng(0)
            posterior = network.encode(x)
            p = []
            for _ in range(400):
                noise = torch.as_tensor(generator.standard_normal(posterior.mean.shape)).float()
                z = posterior.mean + torch.exp(0.5 * posterior.log_variance) * noise
                p.append(torch.sigmoid(network.logits(network.decode(x, z))).numpy())
        expected = np.concatenate(p).std(0)
        found = fitted.uncertainty(X, n_draws=400, random_state=1)
        np.testing.assert_allclose(found, expected, rtol=0.1)
        with pytest.raises(InputError, match="n_draws"):
            fitted.uncertainty(X, n_draws=0)


class TestKnownLabels:
    @pytest.fixture
    def conditional(self, fitted):
        """Return the model with labels of which each says something about the others."""
        model = copy.copy(fitted)
        loadings = np.linspace(-0.8, 0.8, 5, dtype=np.float32)[:, None]
        model.label_factors_ = LabelFactors(loadings, np.zeros(4, np.float32))
        return model

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array, pd.DataFrame])
    def test_known_labels_are_returned_unchanged(self, conditional, survey, rng, form):
        known = np.where(rng.random(survey.Y.shape) < 0.4, survey.Y, np.nan)
        given = form(known)
        if isinstance(given, pd.DataFrame):
            given.columns = conditional.label_names_
        p = conditional.predict_proba(survey.X, known=given)
        certain = ~np.isnan(known)
        np.testing.assert_array_equal(p[certain], known[certain])
        assert ((p >= 0) & (p <= 1)).all()
        assert np.abs(p - conditional.predict_proba(survey.X))[~certain].max() > 1e-3

    def test_blocks_keep_rows_and_their_labels_together(self, conditional, survey, rng):
        known = np.where(rng.random(survey.Y.shape) < 0.4, survey.Y, np.nan)
        p = conditional.predict_proba(survey.X, known)
        X, tiled = np.tile(survey.X, (20, 1)), np.tile(known, (20, 1))
        found = conditional.predict_proba(X, tiled)
        np.testing.assert_allclose(found, np.tile(p, (20, 1)), atol=1e-5)

    def test_where_labels_share_no_factor_the_others_keep_their_probabilities(self, fitted, survey):
        model = copy.copy(fitted)
        model.label_factors_ = None
        known = np.full(survey.Y.shape, np.nan)
        known[:, 2] = 1
        expected = fitted.predict_proba(survey.X)
        expected[:, 2] = 1
        np.testing.assert_array_equal(model.predict_proba(survey.X, known), expected)

    @pytest.mark.parametrize(
        "known", [np.ones((120, 4)), np.ones((119, 5)), np.full((120, 5), 2), np.ones(5)]
    )
    def test_mismatched_known_labels_are_rejected(self, conditional, survey, known):
        with pytest.raises(InputError):
            conditional.predict_proba(survey.X, known)

    def test_a_model_that_is_not_conditional_refuses_them(self, fitted, survey):
        model = copy.copy(fitted).set_params(conditional=False)
        with pytest.raises(InputError, match="fit it with conditional=True"):
            model.predict_proba(survey.X, known=np.full(survey.Y.shape, np.nan))


class TestSettings:
    def test_a_given_parameter_overrides_the_preset_and_nothing_else(self):
        for name in PRESETS:
            preset = preset_for(name, PROFILE)
            assert CGMVAEClassifier(name).settings(PROFILE) == preset
            changed = CGMVAEClassifier(name, kl_weight=7.0, epochs=3, embedding_dim=5)
            found = changed.settings(PROFILE)
            assert (found.kl_weight, found.training["epochs"]) == (7.0, 3)
            assert found.network == dataclasses.replace(preset.network, embedding_dim=5)
            rest = dataclasses.replace(
                found, kl_weight=preset.kl_weight, network=preset.network, training=preset.training
            )
            assert rest == preset

    @pytest.mark.parametrize("name", ["learning_rate", "dropout", "kl_weight", "temperature"])
    def test_parameters_override_the_preset(self, name):
        value = 0.123
        assert getattr(CGMVAEClassifier(**{name: value}).settings(PROFILE), name) == value
        zero = CGMVAEClassifier(**{name: 0.0}).settings(PROFILE)
        assert getattr(zero, name) == 0

    @pytest.mark.parametrize(("value", "dropout"), [(1.0, 0.5), (0.7, 0.2)])
    def test_sparse_features_of_0_and_1_are_recognized(self, tiny, survey, value, dropout):
        X = sp.csr_array((survey.X > 0) * value)
        model = tiny(n_members=1, epochs=1, scaling="none").fit(X, survey)
        assert model.member_settings_[0]["dropout"] == dropout

    def test_parameters_reach_the_members(self, tiny, survey):
        numbers = {"learning_rate": 0.02, "weight_decay": 0.03, "dropout": 0.3}
        numbers |= {"input_dropout": 0.25, "temperature": 0.7}
        weights = {"kl": 0.1, "reconstruction": 0.2, "contrastive": 0.4, "cross_entropy": 0.8}
        own = {f"{term}_weight": weight for term, weight in weights.items()}
        head = {"reconstruction": "gaussian"}
        model = tiny(**numbers, **own, **head).fit(survey.X, survey.Y)
        found = dict(model.member_settings_[0])
        assert found.pop("weights") == weights
        assert found.pop("settings")["temperature"] == numbers.pop("temperature")
        assert found == numbers
        network = model.network_
        assert network.temperature.tolist() == pytest.approx([0.7, 0.7])
        assert network.dropout.tolist() == pytest.approx([0.3, 0.3])
        assert network.input_dropout.tolist() == pytest.approx([0.25, 0.25])

    @pytest.mark.parametrize("config", [NetworkConfig, TrainingConfig])
    def test_every_field_can_be_set(self, config):
        for name in (field.name for field in dataclasses.fields(config)):
            hint = get_type_hints(config)[name]
            value = {bool: True, str: "micro_f1"}.get(hint, 0.5 if "dropout" in name else 3)
            if choices := [each for each in get_args(hint) if isinstance(each, str)]:
                value = choices[0]
            elif get_origin(hint) is tuple:
                value = (3,)
            if name == "decoder_dropout":
                value = False
            of = "network" if config is NetworkConfig else "training"
            for given in ({name: value}, config(**{name: value})):
                found = CGMVAEClassifier(**{of: given}).plan(PROFILE)
                assert getattr(getattr(found, of), name) == value
            by_name = CGMVAEClassifier()
            by_name.set_params(**by_name.as_parameters({name: value}))
            assert getattr(getattr(by_name.plan(PROFILE), of), name) == value

    @pytest.mark.parametrize(
        "settings",
        [
            {"activation": "leaky_relu", "layer_norm": False, "label_bias": False},
            {"unit_norm": True, "decoder_input": "z", "label_scale": 2.0},
            {"skip_dropout": 0.5, "decoder_dropout": False, "n_draws": 2},
            {"prior": "standard", "alignment": "triplet"},
            {"prior": "label-sum", "alignment": "ranking"},
            {"normalize_labels": False, "label_branch": True},
            {"reconstruction": "gaussian", "reconstruction_weight": 0.1},
            {"label_hidden": (), "feature_hidden": (8, 8), "decoder_hidden": (8, 4)},
            {"optimizer": "adam", "schedule": "warm-restarts", "clip": None, "patience": 1},
            {"kl_warmup": 0.5, "first_stage": 0.5, "selection": "macro_f1"},
        ],
    )
    def test_every_switch_changes_the_predictions(self, tiny, fitted, survey, settings):
        plain = tiny().fit(survey.X, survey.Y).predict_proba(survey.X)
        found = tiny(**settings).fit(survey.X, survey.Y).predict_proba(survey.X)
        assert np.isfinite(found).all()
        assert np.abs(found - plain).max() > 1e-4

    def test_presets_learn(self, survey):
        for preset in PRESETS:
            small = {"epochs": 1, "n_members": 1, "embedding_dim": 8, "device": "cpu"}
            model = CGMVAEClassifier(preset, random_state=0, **small).fit(survey.X, survey.Y)
            assert np.isfinite(model.predict_proba(survey.X)).all()

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"preset": "best"}, "no preset 'best'.*tuned"),
            ({"network": {"latent": 3}}, "no setting 'latent'"),
            ({"network": {"prior": "flat"}}, "prior is 'flat'.*mixture"),
            ({"network": 3}, "neither a mapping nor a NetworkConfig"),
            ({"training": {"optimizer": "sgd"}}, "optimizer"),
            ({"training": {"selection": "accuracy"}}, "no metric 'accuracy'"),
            ({"device": "abacus"}, "abacus"),
        ],
    )
    def test_unknown_settings_are_rejected(self, survey, parameters, message):
        model = CGMVAEClassifier(**({"epochs": 1, "n_members": 1} | parameters))
        with pytest.raises(InputError, match=message):
            model.fit(survey.X, survey.Y)


def test_an_unfitted_model_raises(tiny, survey):
    model = tiny()
    calls = (
        lambda: model.transform(survey.X),
        lambda: model.embed(survey.X),
        lambda: model.uncertainty(survey.X),
        lambda: model.predict_proba(survey.X, survey.Y),
        lambda: model.nearest_labels("species_1"),
        lambda: model.label_prior("species_1"),
        lambda: model.predict(survey.X),
        lambda: model.decision_function(survey.X),
        lambda: model.label_sets(survey.X),
        lambda: model.score(survey.X, survey.Y),
        lambda: model.save("never written"),
        lambda: model.diagnostics(survey.X, survey.Y),
        model.label_similarity,
        model.get_feature_names_out,
    )
    for call in calls:
        with pytest.raises(NotFittedError):
            call()
    assert not hasattr(model, "label_embeddings_")
    assert not hasattr(model, "label_bias_")


@pytest.fixture(scope="module")
def models():
    """Return data, a model whose high learning rate makes it overconfident, and it calibrated."""
    data, _ = make_survey(300, 6, 5, feature_strength=0.2, seed=0)
    sizes = {"embedding_dim": 16, "latent_dim": 4}
    sizes |= {"label_hidden": (8,), "feature_hidden": (16,), "decoder_hidden": (16,)}
    plan = {"learning_rate": 0.1, "epochs": 4, "dropout": 0.0, "n_members": 4, "random_state": 0}
    plain, calibrated = (
        CGMVAEClassifier(network=sizes, **plan, calibrate=calibrate).fit(data.X, data)
        for calibrate in (False, True)
    )
    return data, plain, calibrated


class TestCalibration:
    def test_members_and_scores_out_of_fold_are_calibrated(self, models):
        data, plain, model = models
        found = model.calibration_
        assert plain.calibration_ is None
        assert found.temperature > 1.1
        expected = members(plain, data.X) / found.temperature + np.array(found.shifts)
        np.testing.assert_allclose(members(model, data.X), expected, atol=1e-4)
        mean = expit(expected).mean(0)
        np.testing.assert_allclose(model.predict_proba(data.X), mean, atol=1e-5)
        logits = model.embed(data.X) @ model.label_embeddings_.T + model.label_bias_
        np.testing.assert_allclose(logits, expected.mean(0), atol=1e-4)
        loss = [log_loss(data.Y.ravel(), each.oof_proba_.ravel()) for each in (plain, model)]
        assert loss[1] < loss[0]

    def test_label_embeddings_and_gaussians_stay(self, models):
        _, plain, model = models
        np.testing.assert_array_equal(plain.label_embeddings_, model.label_embeddings_)
        name = model.label_names_[0]
        np.testing.assert_array_equal(plain.label_prior(name), model.label_prior(name))

    def test_a_file_keeps_it(self, models, tmp_path):
        data, _, model = models
        model.save(tmp_path / "m.cgmvae")
        loaded = load(tmp_path / "m.cgmvae")
        assert loaded.calibration_ == model.calibration_
        np.testing.assert_array_equal(loaded.predict_proba(data.X), model.predict_proba(data.X))

    def test_a_damaged_one_is_refused(self, models, tmp_path):
        path = tmp_path / "m.cgmvae"
        models[2].save(path)
        tensors, description = read_tensors(path)
        description["fitted"]["calibration"]["shifts"].pop()
        write_tensors(path, tensors, description)
        with pytest.raises(InputError, match="one shift per label"):
            load(path)

    def test_not_with_embeddings_of_norm_1(self, models):
        data, _, model = models
        assert (
            clone(model).set_params(network={"unit_norm": True}).fit(data.X, data).calibration_
            is None
        )

    @pytest.mark.parametrize("preset", list(PRESETS))
    def test_the_presets_of_others_stay_as_they_are(self, tiny, survey, preset):
        model = tiny(preset=preset, n_members=1, epochs=1).fit(survey.X, survey.Y)
        assert model.network_.can_be_calibrated == (preset == "tuned")

    def test_not_with_validation_rows(self, models):
        data, _, model = models
        rest = data.rows(slice(200, None))
        other = clone(model).fit(data.X[:200], data.Y[:200], validation_data=(rest.X, rest.Y))
        assert other.calibration_ is None
