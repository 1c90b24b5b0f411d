"""Binary relevance against a plain loop over labels."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import ExtraTreeClassifier

from cgmvae.errors import InputError
from cgmvae.methods import BinaryRelevance


def test_equals_a_loop_over_labels(survey, rng):
    X, Y = survey.X.astype(np.float64), survey.Y.astype(np.float64)
    Y[rng.random(Y.shape) < 0.2] = np.nan
    weights = rng.random(90)
    model = BinaryRelevance()
    model.fit(X[:90], Y[:90], sample_weight=weights, validation_data=(X[90:], Y[90:]))
    scaler = StandardScaler().fit(X[:90])
    for i in (0, 1, 2, 4):
        known = ~np.isnan(Y[:90, i])
        one = LogisticRegression(max_iter=1000)
        one.fit(scaler.transform(X[:90])[known], Y[:90, i][known], weights[known])
        expected = one.predict_proba(scaler.transform(X))[:, 1]
        np.testing.assert_allclose(model.predict_proba(X)[:, i], expected, atol=1e-6)


def test_a_constant_label_has_a_constant_probability(survey):
    Y = survey.Y.astype(np.float64)
    Y[:, 0], Y[:, 1], Y[:, 2] = 1, 0, np.nan
    Y[:50, 0] = np.nan
    model = BinaryRelevance(random_state=0).fit(survey.X, Y)
    assert model.estimators_[:3] == [1.0, 0.0, 0.0]
    assert np.unique(model.predict_proba(survey.X)[:, :3], axis=0).tolist() == [[1, 0, 0]]


def test_any_classifier_can_be_used(survey):
    for base in (KNeighborsClassifier(3), LinearSVC(C=1e4, max_iter=100_000)):
        model = BinaryRelevance(base, random_state=0).fit(survey.X, survey.Y)
        assert not hasattr(base, "classes_")
        assert model.score(survey.X, survey.Y) > 0.7
    p = model.predict_proba(survey.X * 1e6)  # far beyond where exp overflows
    assert set(np.round(p.ravel(), 6)) == {0, 1}


def test_the_seed_is_passed_to_the_classifiers(survey):
    def predictions(seed, **own):
        tree = ExtraTreeClassifier(max_features=1, **own)
        model = BinaryRelevance(make_pipeline(StandardScaler(), tree), random_state=seed)
        held = (survey.X[90:], survey.Y[90:])
        model.fit(survey.X[:90], survey.Y[:90], validation_data=held)
        assert tree.random_state == own.get("random_state")
        return model.predict_proba(survey.X)

    np.testing.assert_array_equal(predictions(0), predictions(0))
    assert (predictions(0) != predictions(1)).any()
    np.testing.assert_array_equal(predictions(0, random_state=5), predictions(1, random_state=5))


def test_other_classifiers_cannot_be_saved(survey, tmp_path):
    model = BinaryRelevance(KNeighborsClassifier(), random_state=0).fit(survey.X, survey.Y)
    with pytest.raises(InputError, match="default estimator"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
