"""Every method as an object: copied, pickled, saved, cross-validated."""

import copy
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import pytest
from quick_estimators import NAMES, base_behavior, fitted_on, quick
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import cross_val_predict, cross_val_score

import cgmvae
from cgmvae.methods import METHODS, fit_together
from cgmvae.methods.neural import NeuralClassifier


def assert_same(model, other, X):
    np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    assert tuple(model.label_names_) == tuple(other.label_names_)
    assert model.n_features_in_ == other.n_features_in_


def same_parameters(first, second):
    skipped = {"device", "random_state", "experts"}  # parameters of experts have names of their own
    kept = {key for key in first if key.rpartition("__")[2] not in skipped}
    kept = {key for key in kept if not isinstance(first[key], BaseEstimator)}
    return first.keys() == second.keys() and all(first[key] == second[key] for key in kept)


def test_copies_predict_the_same(fitted, survey, tmp_path):
    """Pickles, copies, files of joblib, and what was saved, loaded and saved again."""
    pickled = pickle.dumps(fitted)
    joblib.dump(fitted, tmp_path / "joblib")
    fitted.save(tmp_path / "once")
    cgmvae.load(tmp_path / "once").save(tmp_path / "twice")
    for other in (
        pickle.loads(pickled),
        copy.deepcopy(fitted),
        joblib.load(tmp_path / "joblib"),
        cgmvae.load(tmp_path / "twice"),
    ):
        assert_same(fitted, other, survey.X)
    assert (tmp_path / "once").read_bytes() == (tmp_path / "twice").read_bytes()
    assert len(pickled) < 3 * (tmp_path / "once").stat().st_size + 20_000


def test_a_row_is_predicted_alike_wherever_it_is(fitted, survey, rng):
    """Alone, among other rows, in another order, and several times."""
    expected = fitted.predict_proba(survey.X)
    for numbers in (rng.permutation(120), rng.integers(0, 120, 300), [7]):
        found = fitted.predict_proba(survey.X[numbers])
        np.testing.assert_allclose(found, expected[numbers], rtol=1e-5, atol=1e-7)
    alone = np.concatenate([fitted.predict_proba(row[None]) for row in survey.X])
    np.testing.assert_allclose(alone, expected, rtol=1e-5, atol=1e-7)


def test_a_notebook_shows_its_class_and_parameters(name, fitted):
    for model in (quick(name), fitted):
        page = model._repr_html_()
        assert name in page
        assert "threshold_metric" in page


@base_behavior
@pytest.mark.parametrize("rule", ["global", "top-k"])
def test_a_saved_model_keeps_its_threshold_rule(name, survey, tmp_path, rule):
    model = quick(name, threshold_rule=rule).fit(survey.X, survey.Y)
    model.save(tmp_path / "model")
    assert_same(model, cgmvae.load(tmp_path / "model"), survey.X)


def test_a_saved_model_is_restored_exactly(name, survey, tmp_path):
    X = pd.DataFrame(survey.X.astype(np.float64), columns=list("abcdef"))
    Y = pd.DataFrame(survey.Y, columns=["owl", "hawk", "wren", "crow", "λ"])
    Y.iloc[:, 3] = 0
    model = quick(name, threshold_rule="per-label").fit(X, Y)
    model.save(tmp_path / "model")
    loaded = cgmvae.load(tmp_path / "model")
    assert type(loaded) is type(model)
    assert_same(model, loaded, X)
    assert loaded.feature_names_in_.tolist() == list("abcdef")
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    assert same_parameters(model.get_params(), loaded.get_params())
    assert loaded.score(X, Y) == model.score(X, Y)
    again = clone(loaded).set_params(random_state=0).fit(X, Y)
    assert_same(model, again, X)


@base_behavior
def test_the_file_describes_the_fitted_state(name, survey, tmp_path):
    """Parameters set after the fit do not change the weights."""
    model = quick(name, validation_fraction=np.float64(0.2), random_state=np.random.RandomState(1))
    if "n_members" in model.get_params():
        model.set_params(n_members=np.int64(2))
    model.fit(survey.X, survey.Y)
    if "n_members" in model.get_params():
        model.set_params(n_members=np.int64(5))
    if "embedding_dim" in model.get_params():
        model.set_params(embedding_dim=7)
    model.save(tmp_path / "model")
    assert_same(model, cgmvae.load(tmp_path / "model"), survey.X)


def test_saved_models_are_the_same_in_another_process(survey, tmp_path):
    np.save(tmp_path / "X.npy", survey.X)
    for name in NAMES:
        fitted_on(name, "survey").save(tmp_path / name)
    code = (
        "import sys, cgmvae, numpy as np, torch\n"
        "torch.set_num_threads(1)\n"
        "X = np.load('X.npy')\n"
        "for name in sys.argv[1:]:\n"
        "    model = cgmvae.load(name)\n"
        "    np.savez(name + '.npz', p=model.predict_proba(X), labels=model.predict(X))\n"
    )
    subprocess.run([sys.executable, "-c", code, *NAMES], check=True, cwd=tmp_path)
    for name in NAMES:
        model, found = fitted_on(name, "survey"), np.load(tmp_path / f"{name}.npz")
        np.testing.assert_array_equal(found["p"], model.predict_proba(survey.X))
        np.testing.assert_array_equal(found["labels"], model.predict(survey.X))


def test_the_seed_determines_the_model(name, fitted, survey):
    stream = np.random.RandomState(0)
    assert_same(quick(name, random_state=stream).fit(survey.X, survey.Y), fitted, survey.X)
    if name == "NearestVotes":
        pytest.skip("nothing is random: all rows vote for each other")
    other = quick(name, random_state=1).fit(survey.X, survey.Y)
    assert np.abs(other.predict_proba(survey.X) - fitted.predict_proba(survey.X)).max() > 1e-4


@pytest.mark.parametrize(
    "network", [each for each in NAMES if issubclass(METHODS[each], NeuralClassifier)]
)
def test_joint_fits_equal_separate_fits(network, survey):
    models = [
        quick(network, random_state=1),
        quick(network, random_state=2, n_members=2, dropout=0.4, learning_rate=1e-3),
    ]
    data = [(survey.X[:n], survey.Y[:n], (survey.X[90:], survey.Y[90:])) for n in (41, 90)]
    alone = [clone(model) for model in models]
    fit_together(models, data)
    for model, single, (X, Y, held) in zip(models, alone, data, strict=True):
        single.fit(X, Y, validation_data=held)
        np.testing.assert_allclose(
            model.predict_proba(survey.X), single.predict_proba(survey.X), atol=1e-4
        )


def test_a_second_fit_starts_from_scratch(name, fitted, survey):
    model = quick(name).fit(survey.X[:, :3], survey.Y[:, :2])
    assert_same(model.fit(survey.X, survey.Y), fitted, survey.X)
    assert model.n_labels_ == 5


@base_behavior
def test_in_cross_validation(name, survey):
    scores = cross_val_score(quick(name), survey.X, survey.Y, cv=2, error_score="raise")
    assert (scores > 0.5).all()
    for scoring in ("f1_micro", "roc_auc"):
        scores = cross_val_score(
            quick(name), survey.X, survey.Y[:, :2], scoring=scoring, cv=2, error_score="raise"
        )
        assert (scores > 0.3).all()
    for method in ("predict", "predict_proba", "decision_function"):
        found = cross_val_predict(quick(name), survey.X, survey.Y, cv=2, method=method)
        assert found.shape == survey.Y.shape
        assert np.isfinite(found).all()
