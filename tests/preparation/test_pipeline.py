"""All preparation of features as one object: each part learns from what the one before returns."""

import numpy as np
import pytest

from cgmvae.preparation.components import PrincipalComponents
from cgmvae.preparation.piecewise import PiecewiseLinear
from cgmvae.preparation.pipeline import FeaturePipeline, FeaturePlan
from cgmvae.preparation.scaling import FeatureScaler


@pytest.fixture
def rows(rng):
    return rng.exponential(size=(80, 4)) * [1, 10, 100, 1000] - 5


def test_the_parts_are_learned_one_after_the_other(rows, rng):
    pipeline = FeaturePipeline()
    pipeline.fit(pipeline.fit_columns(rows), FeaturePlan("standardize", 4, 6))
    scaler = FeatureScaler("standardize").fit(rows)
    bins = PiecewiseLinear(4).fit(scaler.transform(rows))
    encoded = bins.transform(scaler.transform(rows))
    components = PrincipalComponents(6).fit(encoded)
    assert encoded.shape == (80, 20)
    new = rng.permutation(rows) * 1.1
    expected = components.transform(bins.transform(scaler.transform(new)))
    np.testing.assert_array_equal(pipeline.transform(new), expected)
    assert pipeline.n_columns == 6


@pytest.mark.parametrize("n_components", [None, 6])
@pytest.mark.parametrize("value", [-1e9, 1e9])
def test_the_feature_that_is_furthest_from_its_mean_is_found(rows, n_components, value):
    pipeline = FeaturePipeline()
    pipeline.fit(pipeline.fit_columns(rows), FeaturePlan("standardize", 4, n_components))
    for feature in range(4):
        row = rows.mean(axis=0)
        row[feature] = value
        assert pipeline.largest_input(pipeline.transform(row[None])[0]) == feature


@pytest.mark.parametrize("plan", [FeaturePlan("standardize", 4, 6), FeaturePlan("none")])
def test_pipelines_are_equal_if_they_learned_the_same(rows, plan):
    def fitted(numbers, own=plan):
        pipeline = FeaturePipeline()
        return pipeline.fit(pipeline.fit_columns(numbers), own)

    assert fitted(rows).equals(fitted(rows))
    assert not fitted(rows).equals(fitted(rows + np.eye(80, 4)))  # another range, at least
    assert not fitted(rows).equals(fitted(rows, FeaturePlan("standardize", 4, 5)))
    assert not fitted(rows).equals(fitted(rows, FeaturePlan("max-abs")))
