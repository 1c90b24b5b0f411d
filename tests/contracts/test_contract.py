"""Inputs and outputs of every method: forms of X and Y, shapes, thresholds, degenerate labels."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from quick_estimators import base_behavior, quick
from scipy.special import expit

from cgmvae.data import MultiLabelDataset
from cgmvae.errors import InputError
from cgmvae.evaluation import learn_rule

#: How far float32 networks may be from one another where only the order of sums differs.
CLOSE = {"rtol": 0, "atol": 1e-5}


def frame(values, names=None):
    names = [f"column {i}" for i in range(values.shape[1])] if names is None else names
    return pd.DataFrame(values, columns=list(names))


def test_shapes_and_types_of_predictions(fitted, survey):
    p, predicted = fitted.predict_proba(survey.X), fitted.predict(survey.X)
    assert isinstance(p, np.ndarray)
    assert p.dtype.kind == "f"
    assert p.shape == predicted.shape == survey.Y.shape
    assert p.min() >= 0
    assert p.max() <= 1
    assert predicted.dtype.kind == "i"
    np.testing.assert_array_equal(predicted, fitted.threshold_rule_.apply(p))
    np.testing.assert_allclose(expit(fitted.decision_function(survey.X)), p, atol=1e-6)
    assert set(np.unique(predicted)) <= {0, 1}
    assert fitted.classes_ == [[0, 1]] * 5


@base_behavior
@pytest.mark.parametrize("rule", ["global", "per-label", "top-k"])
def test_the_threshold_rule_is_learned_on_known_validation_labels(name, survey, rule):
    train, held = survey.rows(slice(80)), survey.rows(slice(80, None))
    mask = held.Y == 0  # with what is unknown taken as absent, another rule would be best
    mask[:5] = False
    model = quick(name, threshold_rule=rule, threshold_metric="hamming_accuracy")
    model.fit(train.X, train.Y, validation_data=(held.X, np.where(mask, np.nan, held.Y)))
    p = model.predict_proba(held.X)
    learned = learn_rule(held.Y, p, rule=rule, metric="hamming_accuracy", unknown=mask)
    blind = learn_rule(held.Y, p, rule=rule, metric="hamming_accuracy")
    predicted = model.predict(held.X)
    np.testing.assert_array_equal(predicted, learned.apply(p))
    assert (predicted != blind.apply(p)).any()


@base_behavior
def test_the_score_uses_known_labels(name, survey, rng):
    model = quick(name, threshold_metric="hamming_accuracy").fit(survey.X, survey.Y)
    predicted = model.predict(survey.X)
    assert model.score(survey.X, survey.Y) == (predicted == survey.Y).mean()
    mask = rng.random(survey.Y.shape) < 0.4
    given = np.where(mask, np.nan, survey.Y)
    assert model.score(survey.X, given) == pytest.approx((predicted == survey.Y)[~mask].mean())
    assert model.score(survey.X, sp.csr_array(given)) == model.score(survey.X, given)


@base_behavior
@pytest.mark.parametrize("form", [frame, sp.csc_array, sp.dok_array, list])
def test_forms_of_features_give_the_same_result(name, survey, form):
    check_features(name, survey, form)


def test_sparse_features_give_the_same_result(name, survey):
    check_features(name, survey, sp.csr_array)


def check_features(name, survey, form):
    X = np.where(np.abs(survey.X) < 0.5, 0, survey.X)
    options = {"scaling": "max-abs"}
    if "encoding" in quick(name).get_params():  # sparse features are not encoded
        options["encoding"] = "standard"
    if "linear_model" in quick(name).get_params():  # "auto" has it for sparse features
        options["linear_model"] = True
    expected = quick(name, **options).fit(X, survey.Y).predict_proba(X)
    model = quick(name, **options).fit(form(X), survey.Y)
    np.testing.assert_allclose(model.predict_proba(form(X)), expected, **CLOSE)
    assert model.n_features_in_ == 6


def label_sets(Y, names):
    return [{names[i] for i in np.flatnonzero(row)} for row in Y]


LABEL_FORMS = {
    "frame": frame,
    "csr_array": lambda Y, _: sp.csr_array(Y),
    "label sets": label_sets,
    "data set": lambda Y, names: MultiLabelDataset(Y, Y, label_names=names),
}


@base_behavior
@pytest.mark.parametrize("form", LABEL_FORMS)
def test_forms_of_labels_give_the_same_result(name, fitted, survey, form):
    check_labels(name, fitted, survey, form)


def test_sparse_labels_give_the_same_result(name, fitted, survey):
    check_labels(name, fitted, survey, "csr_array")


def check_labels(name, fitted, survey, form):
    Y = LABEL_FORMS[form](survey.Y, survey.label_names)
    model = quick(name).fit(survey.X, Y)
    np.testing.assert_allclose(
        model.predict_proba(survey.X), fitted.predict_proba(survey.X), **CLOSE
    )
    default = tuple(f"label_{i}" for i in range(5))
    names = default if form == "csr_array" else survey.label_names
    assert tuple(model.label_names_) == tuple(names)
    assert model.score(survey.X, Y) == pytest.approx(fitted.score(survey.X, survey.Y), abs=0.02)
    rows = [np.flatnonzero(row) for row in model.predict(survey.X)]
    assert model.label_sets(survey.X) == [[names[i] for i in row] for row in rows]


@base_behavior
def test_unexpected_label_names_are_rejected(name, survey):
    Y = frame(survey.Y, survey.label_names)
    model = quick(name).fit(survey.X, Y)
    other = Y.rename(columns={"species_2": "owl"})
    for wrong in (Y[Y.columns[::-1]], other, Y.iloc[:, :3]):
        with pytest.raises(InputError, match="label"):
            model.score(survey.X, wrong)
        with pytest.raises(InputError, match="label"):
            quick(name).fit(survey.X, Y, validation_data=(survey.X, wrong))
    with pytest.raises(InputError, match="owl"):
        model.score(survey.X, other)


def test_values_of_unknown_labels_are_ignored(name, survey, rng):
    check_unknown_labels(name, survey, rng, np.asarray)


@base_behavior
def test_values_of_unknown_sparse_labels_are_ignored(name, survey, rng):
    check_unknown_labels(name, survey, rng, sp.csr_array)


def check_unknown_labels(name, survey, rng, form):
    mask = rng.random(survey.Y.shape) < 0.3
    mask[0] = True
    Y = np.where(mask, np.nan, survey.Y)
    given = form(Y)
    model = quick(name).fit(survey.X, given)
    expected = model.predict_proba(survey.X)
    assert np.isfinite(expected).all()
    flipped = np.where(mask, 1 - survey.Y, survey.Y)
    data = MultiLabelDataset(survey.X, form(flipped), unknown=mask)
    again = quick(name).fit(data.X, data)
    np.testing.assert_array_equal(again.predict_proba(survey.X), expected)
    assert again.threshold_rule_ == model.threshold_rule_
    assert again.score(survey.X, data) == model.score(survey.X, given)
    known = quick(name).fit(survey.X, flipped)
    assert np.abs(known.predict_proba(survey.X) - expected).max() > 1e-3


def test_constant_and_unknown_labels(name, survey):
    Y = survey.Y.astype(np.float64)
    Y[:20] = 0
    Y[:, 1], Y[:, 2], Y[:, 4] = 0, 1, np.nan
    p = quick(name).fit(survey.X, Y).predict_proba(survey.X)
    assert np.isfinite(p).all()
    assert p[:, 1].max() < p[:, 2].min()
    assert p[:, 1].mean() < 0.2
    assert p[:, 2].mean() > 0.8


def test_degenerate_data(name, survey):
    X, Y = survey.X, survey.Y.astype(np.float64)
    cases = {
        "only positive labels": (X, np.ones_like(Y)),
        "no fully known row": (X, np.where(np.arange(5) == np.arange(120)[:, None] % 5, np.nan, Y)),
        "constant features and labels": (np.ones_like(X), np.zeros_like(Y)),
        "two rows": (X[:2], Y[:2]),
        "one label": (X, Y[:, :1]),
    }
    for case, (features, labels) in cases.items():
        model = quick(name).fit(features, labels)
        p = model.predict_proba(features)
        assert np.isfinite(p).all(), case
        assert p.shape == labels.shape
        for series in getattr(model, "history_", {}).values():
            assert np.isfinite(series).all(), case


def test_missing_and_constant_features(name, survey, rng):
    X = survey.X.copy()
    X[rng.random(X.shape) < 0.2] = np.nan
    X[:, 3], X[:, 4] = 0.1, np.nan
    model = quick(name).fit(X, survey.Y)
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.isfinite(model.predict_proba(np.full((2, 6), np.nan))).all()


@base_behavior
@pytest.mark.parametrize("sparse", [False, True])
def test_infinite_features_are_rejected(name, fitted, survey, sparse):
    X = survey.X.copy()
    X[3, 2] = np.inf
    X = sp.csr_array(X) if sparse else X
    with pytest.raises(ValueError, match="infinity"):
        quick(name).fit(X, survey.Y)
    with pytest.raises(ValueError, match="infinity"):
        fitted.predict_proba(X)


@base_behavior
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_values_too_large_to_be_scaled_are_rejected(name, survey, form):
    X = np.abs(survey.X).astype(np.float64)
    X[:, 2] *= 1e308 / X[:, 2].max()
    with pytest.raises(
        InputError, match=r"Feature 2, counted from 0, has values as large as 1e\+308"
    ):
        quick(name, scaling="standardize").fit(form(X), survey.Y)


@base_behavior
def test_columns_of_the_same_name_are_rejected(name, survey):
    for X in (frame(survey.X, "aabcde"), frame(survey.X, "aabcde").astype({"e": str})):
        with pytest.raises(InputError, match="Two columns are named 'a'"):
            quick(name).fit(X, survey.Y)


@base_behavior
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Y": None}, "y"),
        ({"Y": np.ones((119, 5))}, "119"),
        ({"Y": np.full((120, 5), 2)}, "2"),
        ({"sample_weight": -np.ones(120)}, "[Nn]egative"),
        ({"sample_weight": np.zeros(120)}, "zero"),
        ({"sample_weight": np.ones(119)}, "sample_weight"),
        ({"groups": np.ones(119)}, "120"),
        ({"groups": np.ones(120)}, "at least two groups"),
        ({"groups": [None, "a", *["b"] * 118]}, "groups cannot be sorted"),
        (
            {"validation_data": (np.ones((3, 6)), np.full((3, 5), np.nan))},
            "validation rows are unk",
        ),
    ],
)
def test_invalid_input_is_rejected(name, survey, changes, message):
    given = {"Y": survey.Y} | changes
    with pytest.raises(ValueError, match=message):
        quick(name).fit(survey.X, **given)
