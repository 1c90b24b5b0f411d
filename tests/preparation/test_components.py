"""Principal components: what is kept, when they are used, and how they are stored."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.data import make_survey
from cgmvae.data.mapped import MappedRows
from cgmvae.methods import CGMVAEClassifier, fit_together, load
from cgmvae.preparation.components import PrincipalComponents

RNG = np.random.default_rng(0)
WIDE = RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 40)) + 5
SMALL = {"epochs": 1, "embedding_dim": 8, "n_members": 2, "random_state": 0}


def test_components_are_orthogonal_sorted_and_scaled_by_one_number():
    found = PrincipalComponents(3).fit(WIDE)
    rows = found.transform(WIDE)
    covariance = np.cov(rows.T)
    np.testing.assert_allclose(covariance - np.diag(np.diag(covariance)), 0, atol=1e-6)
    sizes = np.diag(covariance)
    assert (np.diff(sizes) < 0).all()
    assert np.mean(rows**2) == pytest.approx(1)
    np.testing.assert_allclose(found.inverse_transform(rows), WIDE, atol=1e-5)


def test_rows_on_disk_and_in_another_precision_get_the_same_components():
    found = PrincipalComponents(2).fit(WIDE)
    mapped = found.transform(MappedRows(WIDE))
    np.testing.assert_allclose(mapped.gather([3, 1]), found.transform(WIDE)[[3, 1]], rtol=1e-9)
    assert found.transform(WIDE.astype(np.float32)).dtype == np.float32


def test_rows_with_no_more_columns_are_left_as_they_are():
    assert PrincipalComponents(39).fit(WIDE).transform(WIDE).shape == (60, 39)
    for n_components in (40, 41, None):
        found = PrincipalComponents(n_components).fit(WIDE)
        assert found.transform(WIDE) is WIDE


def test_constant_columns_and_fewer_rows_than_components():
    found = PrincipalComponents(30).fit(np.ones((5, 40)))
    assert np.isfinite(found.transform(np.ones((2, 40)))).all()
    assert found.transform(np.ones((2, 40))).shape == (2, 5)


@pytest.mark.parametrize(
    "damage",
    [
        {"mean": np.zeros(3)},
        {"vectors": np.zeros((3, 2))},
        {"vectors": np.full((40, 2), np.nan)},
        {"vectors": np.zeros((40, 0))},
    ],
)
def test_damaged_state_is_refused(damage):
    state = PrincipalComponents(2).fit(WIDE).state()
    with pytest.raises(ValueError, match="principal components"):
        PrincipalComponents.from_state({**state, **damage}, 40)


@pytest.fixture(scope="module")
def survey():
    return make_survey(120, 20, 6, seed=0)[0]


def test_a_model_learns_from_components_and_keeps_them(survey, tmp_path):
    model = CGMVAEClassifier(**SMALL).fit(survey.X, survey.Y)
    assert model.pipeline_.bins.n_columns > 0
    assert model.pipeline_.n_columns == model.inputs(survey.X).shape[1] == 64
    model.save(tmp_path / "model.cgmvae")
    loaded = load(tmp_path / "model.cgmvae")
    np.testing.assert_array_equal(loaded.predict_proba(survey.X), model.predict_proba(survey.X))
    plain = CGMVAEClassifier(**SMALL, encoding="standard").fit(survey.X, survey.Y)
    assert plain.pipeline_.n_columns == survey.X.shape[1]


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_the_papers_presets_see_the_features_themselves(survey, preset):
    small = {"feature_hidden": (8,), "label_hidden": (8,), "decoder_hidden": (8,)}
    model = CGMVAEClassifier(preset, network=small, **SMALL).fit(survey.X, survey.Y)
    assert model.pipeline_.n_columns == 20


def test_sparse_rows_stay_as_they_are(survey):
    X = sp.csr_array(np.abs(survey.X))
    model = CGMVAEClassifier(**SMALL).fit(X, survey.Y)
    assert model.pipeline_.n_columns == 20


def test_models_with_different_numbers_of_components_are_fitted_together(survey):
    models = [CGMVAEClassifier(**SMALL) for _ in range(2)]
    parts = [survey.rows(np.arange(50)), survey.rows(np.arange(120))]
    fit_together(models, [(part.X, part.Y, None) for part in parts])
    assert {model.pipeline_.n_columns for model in models} == {64}
    for model, part in zip(models, parts, strict=True):
        assert np.isfinite(model.predict_proba(part.X)).all()


def test_the_rows_are_held_twice_at_most(rng):
    """As they are and centered, both in float32."""
    X = rng.normal(size=(20_000, 300)).astype(np.float32)
    tracemalloc.start()
    PrincipalComponents(16).fit(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.7 * X.nbytes
