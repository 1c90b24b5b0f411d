"""Labels in every accepted form, and checks of parameter values."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from cgmvae.data import MultiLabelDataset, make_survey
from cgmvae.errors import InputError
from cgmvae.methods import ASL, C2AE, HARAM, MPVAE, RBCC, SLEEC, CGMVAEClassifier, LaMP, MLkNN
from cgmvae.methods.inputs import (
    LabelWarning,
    Rows,
    as_known,
    as_targets,
    check_whole,
    targets_of_rows,
)

TABLE = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]])
NAMES = ("crow", "hawk", "owl")


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


FORMS = {
    "ints": TABLE,
    "lists": TABLE.tolist(),
    "bools": TABLE.astype(bool),
    "floats": TABLE.astype(float),
    "objects": TABLE.astype(object),
    "text": TABLE.astype(str),
    "csr_array": sp.csr_array(TABLE),
    "csr_matrix": sp.csr_matrix(TABLE),
    "coo_array": sp.coo_array(TABLE),
    "frame": pd.DataFrame(TABLE, columns=NAMES),
    "frame of nullable bools": pd.DataFrame(TABLE, columns=NAMES).astype("boolean"),
    "sets": [{"owl", "hawk"}, {"crow"}, set()],
    "lists of names": [["owl", "hawk"], ["crow"], []],
    "array of sets": np.array([{"owl", "hawk"}, {"crow"}, set()]),
    "series of lists": pd.Series([["owl", "hawk"], ["crow"], []], index=[7, 8, 9]),
    "data set": MultiLabelDataset(TABLE, TABLE, label_names=NAMES),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_give_the_same_labels(form):
    targets = as_targets(FORMS[form])
    np.testing.assert_array_equal(dense(targets.labels), TABLE)
    assert targets.labels.dtype == np.uint8
    assert targets.unknown is None
    named = any(word in form for word in ("frame", "set", "names", "series"))
    assert targets.names == (NAMES if named else ("label_0", "label_1", "label_2"))
    assert as_targets(FORMS[form], NAMES).names == NAMES


@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        sp.csr_array,
        pd.DataFrame,
        lambda Y: pd.DataFrame(Y).astype("Int64"),
        lambda Y: pd.DataFrame(Y).astype("boolean"),
        lambda Y: np.where(np.isnan(Y), None, Y),
        lambda Y: np.ma.masked_array(np.nan_to_num(Y), np.isnan(Y)),
        lambda Y: MultiLabelDataset(Y, np.nan_to_num(Y), unknown=np.isnan(Y)),
    ],
)
def test_missing_values_are_unknown_labels(form):
    Y = np.array([[0, np.nan, 1], [1, 0, np.nan]])
    targets = as_targets(form(Y))
    np.testing.assert_array_equal(dense(targets.unknown), np.isnan(Y))
    np.testing.assert_array_equal(dense(targets.labels), np.nan_to_num(Y))


def test_column_names_become_strings():
    assert as_targets(pd.DataFrame(TABLE, columns=[3, 1, 2])).names == ("3", "1", "2")
    assert as_targets([{10, 2}, {2}]).names == ("10", "2")


def test_label_sets_use_the_given_names():
    targets = as_targets([{"owl"}], NAMES)
    assert targets.labels.toarray().tolist() == [[0, 0, 1]]
    for nothing in ([set(), set()], [[], []], [(), ()]):
        empty = as_targets(nothing, NAMES)
        assert empty.labels.toarray().tolist() == [[0, 0, 0]] * 2
    with pytest.raises(InputError, match="wren"):
        as_targets([{"owl", "wren"}], NAMES)


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (TABLE[:, 0], "reshape"),
        (pd.Series(TABLE[:, 0]), "reshape"),
        ([0, 1, 1], "reshape"),
        (np.full((2, 2), 2), "2"),
        (sp.csr_array(np.full((2, 2), 3)), "3"),
        (np.zeros((2, 2, 2)), "two dimensions"),
        (np.array([["owl", "hawk"]]), "0, 1 or NaN"),
        (pd.DataFrame({"bird": ["owl", "hawk"]}), "0, 1 or NaN"),
        (["owl", "hawk"], "0, 1 or NaN"),
        ([[1, 2], [3]], "0, 1 or NaN"),
        ([[], []], "All label sets are empty"),
        ([{"owl"}, "hawk"], "Row 1 of Y is 'hawk'"),
        (pd.Series([np.nan, {"owl"}]), "Row 0 of Y is nan"),
        (pd.DataFrame(np.ones((2, 2)), columns=["owl", "owl"]), "its own name"),
        (np.full((2, 2), 1j), "0, 1 or NaN"),
    ],
)
def test_invalid_labels_are_rejected(Y, message):
    with pytest.raises(InputError, match=message):
        as_targets(Y)


@pytest.mark.parametrize(
    "columns", [("hawk", "crow", "owl"), ("crow", "hawk", "wren"), ("crow", "hawk")]
)
def test_unexpected_label_columns_are_rejected(columns):
    Y = TABLE[:, : len(columns)]
    for form in (pd.DataFrame(Y, columns=columns), MultiLabelDataset(Y, Y, label_names=columns)):
        with pytest.raises(InputError, match="same order"):
            as_targets(form, NAMES)
    if len(columns) < 3:
        with pytest.raises(InputError, match="3 distinct label names"):
            as_targets(Y, NAMES)


def test_a_different_number_of_rows_is_rejected():
    assert targets_of_rows(np.zeros((3, 2)), TABLE, NAMES).names == NAMES
    for form in (TABLE[:2], sp.csr_array(TABLE[:2])):
        with pytest.raises(InputError, match="X has 3 rows and known 2; they must describe"):
            targets_of_rows(np.zeros((3, 2)), form, given_as="known")


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_with_known_labels(form):
    unknown = np.array([[True, True, True], [True, False, True], [False, False, False]])
    rows = Rows(np.arange(3.0)[:, None], form(TABLE), form(unknown), weights=np.arange(1.0, 4))
    told = rows.with_known_labels()
    assert told.features.ravel().tolist() == [1, 2]
    assert told.row_weights().tolist() == [2, 3]
    nothing = rows._replace(unknown=form(np.ones((3, 3), bool)), weights=None)
    assert nothing.with_known_labels() is nothing
    assert nothing.row_weights().tolist() == [1, 1, 1]
    everything = rows._replace(unknown=None)
    assert everything.with_known_labels() is everything


@pytest.mark.parametrize("value", [0, 3.0, float("nan"), "3", None])
def test_an_invalid_count_is_rejected(value):
    check_whole(1, k=1, n=np.int64(7))
    with pytest.raises(InputError, match=f"n is {value}; it must be a whole number of at least 1"):
        check_whole(1, k=1, n=value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"learning_rate": -1}, "learning_rate is -1; it must be a number of at least 0"),
        ({"learning_rate": np.nan}, "learning_rate is nan"),
        ({"embedding_dim": 0}, "embedding_dim is 0; it must be a whole number of at least 1"),
        ({"principal_components": "all"}, "'all'; it must be a whole .* or choose one of auto"),
        ({"principal_components": 0}, "principal_components is 0; it must be a whole number"),
        ({"n_folds": 1}, "n_folds is 1; it must be a whole number of at least 2"),
        ({"n_members": 2.5}, "n_members is 2.5; it must be a whole number"),
        ({"epochs": True}, "epochs is True"),
        ({"dropout": 1}, "dropout is 1; it must be at least 0 and below 1"),
        ({"scaling": "log"}, "scaling is 'log'; choose one of auto, "),
        ({"threshold_rule": "best"}, "threshold_rule is 'best'; choose one of global"),
        ({"threshold_metric": "f2"}, "no metric 'f2'"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0; it must be between 0 and 1"),
        ({"network": {"feature_hidden": (8, 0)}}, "feature_hidden is .* whole numbers"),
        ({"network": {"layer_norm": 1}}, "layer_norm is 1; it must be true or false"),
        ({"temperature": -1.0}, "temperature is -1.0"),
    ],
)
def test_parameters_out_of_range_are_refused_before_training(survey, parameters, message):
    with pytest.raises(InputError, match=message):
        CGMVAEClassifier(**parameters).fit(survey.X, survey.Y)


@pytest.mark.parametrize(
    ("method", "parameters", "message"),
    [
        (ASL, {"gamma_negative": np.nan}, "gamma_negative is nan"),
        (ASL, {"margin": 1.0}, "margin is 1"),
        (ASL, {"members": [{}, {"dropout": 1.5}]}, "dropout is 1.5; it must be"),
        (C2AE, {"label_layers": -1}, "label_layers is -1; .* at least 0"),
        (HARAM, {"cluster_vigilance": 1.5}, "cluster_vigilance is 1.5"),
        (HARAM, {"searched_fraction": 0}, "searched_fraction is 0"),
        (HARAM, {"choice": 0}, "choice is 0"),
        (LaMP, {"embedding_dim": 9, "n_heads": 2}, "multiple of n_heads, 2"),
        (LaMP, {"graph": "priors"}, "graph is 'priors'"),
        (LaMP, {"graph": np.eye(4)}, r"shape \(5, 5\)"),
        (LaMP, {"graph": np.full((5, 5), np.nan)}, "0 and 1"),
        (MPVAE, {"covariance_rank": -1}, "covariance_rank is -1"),
        (MPVAE, {"ranking_slope": 0.0}, "ranking_slope is 0"),
        (RBCC, {"max_parents": 9, "structure": [(i, 9) for i in range(9)]}, "9 parents"),
        (RBCC, {"structure": [("label_0", "owl")]}, "'owl'"),
        (SLEEC, {"l2_weight": 0.0}, "l2_weight is 0"),
    ],
)
def test_every_method_checks_its_own_parameters(method, parameters, message):
    data, _ = make_survey(40, 3, 10 if method is RBCC else 5, seed=0)
    with pytest.raises(InputError, match=message):
        method(**parameters).fit(data.X, data.Y)


def test_too_many_labels_for_a_method_are_rejected(rng):
    with pytest.raises(InputError, match="at most 100 labels"):
        RBCC().fit(rng.normal(size=(20, 3)), rng.integers(0, 2, (20, 101)))


def test_labels_that_cannot_be_learned(survey):
    model, X = MLkNN(random_state=0), survey.X
    with pytest.raises(InputError, match="All labels of all rows are unknown"):
        model.fit(X, np.full(survey.Y.shape, np.nan))
    with pytest.raises(InputError, match="Y has no columns"):
        model.fit(X, survey.Y[:, :0])
    with pytest.warns(LabelWarning, match="No row has a positive label"):
        model.fit(X, 0 * survey.Y)
    presences = survey.Y.astype(float)
    presences[presences[:, 2] == 0, 2] = np.nan
    with pytest.warns(LabelWarning, match="predicted everywhere: 'label_2'; give rows"):
        model.fit(X, presences)


def test_columns_of_numbers_are_matched_by_name(survey):
    frame = pd.DataFrame(survey.X, columns=[f"x{i}" for i in range(survey.n_features)])
    model = MLkNN(random_state=0).fit(frame, survey.Y)
    expected = model.predict_proba(frame)
    np.testing.assert_array_equal(model.predict_proba(frame[frame.columns[::-1]]), expected)
    with pytest.warns(UserWarning, match="does not know are ignored: 'more'"):
        found = model.predict_proba(frame.assign(more=1.0))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(InputError, match="lacks 1 of the model's 6 columns: 'x0'"):
        model.predict(frame.drop(columns="x0"))


NAN = np.nan


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([{"owl"}, set()], [[NAN, NAN, 1], [NAN, NAN, NAN]]),
        (pd.Series([["hawk", "crow"], ["owl"]]), [[1, 1, NAN], [NAN, NAN, 1]]),
        (pd.DataFrame({"owl": [1, 0], "crow": [NAN, 1]}), [[NAN, NAN, 1], [1, NAN, 0]]),
        (np.array([[0, 1, NAN], [1, 0, 0]]), [[0, 1, NAN], [1, 0, 0]]),
        ([{"owl": True, "crow": None}, {"crow": 0}, {}], [[NAN, NAN, 1], [0, NAN, NAN], 3 * [NAN]]),
        ([{}, {}], [3 * [NAN]] * 2),
    ],
)
def test_what_is_known_of_labels(known, expected):
    np.testing.assert_array_equal(as_known(known, NAMES), expected)


def test_what_is_known_of_other_labels_is_refused():
    with pytest.raises(InputError, match="no label 'wren'"):
        as_known(pd.DataFrame({"wren": [1], "owl": [0]}), NAMES)
    with pytest.raises(InputError, match="not fitted with the label 'wren'"):
        as_known([{"wren"}], NAMES)
    with pytest.raises(InputError, match="no label 'wren'"):
        as_known([{"wren": 1}], NAMES)
