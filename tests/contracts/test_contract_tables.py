"""What every method does with a table of numbers, categories, dates and text."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from quick_estimators import base_behavior, only, quick
from sklearn.utils import check_random_state

from cgmvae.data.columns import as_columns
from cgmvae.data.splits import holdout
from cgmvae.errors import InputError
from cgmvae.methods import load

WORDS = np.array(["owl", "hawk", "tree", "barn", "river", "night", "calls", "nest"])
N_ROWS = 90


def table():
    """Return rows whose labels depend on the habitat, on the notes and on nothing."""
    rng = np.random.default_rng(0)
    habitat = rng.choice(["fen", "bog", "wood"], N_ROWS)
    notes = [" ".join(rng.choice(WORDS, 5)) for _ in range(N_ROWS)]
    frame = pd.DataFrame(
        {
            "depth": np.where(rng.random(N_ROWS) < 0.1, np.nan, rng.normal(200, 20, N_ROWS)),
            "habitat": np.where(rng.random(N_ROWS) < 0.1, None, habitat),
            "day": pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 900, N_ROWS), "D"),
            "notes": notes,
        }
    )
    labels = [habitat == "fen", ["owl" in note for note in notes], rng.random(N_ROWS) < 0.4]
    return frame, np.column_stack(labels).astype(int)


@pytest.fixture(params=["with text", "without text"])
def columns(request):
    frame, Y = table()
    return (frame if request.param == "with text" else frame.drop(columns="notes")), Y


@only("CGMVAEClassifier", "RBCC", "BinaryRelevance")
def test_predictions_as_a_frame(name, columns):
    X, Y = columns
    X = X.set_index(pd.Index(range(1000, 1000 + N_ROWS), name="site"))
    model = quick(name).fit(X, pd.DataFrame(Y, columns=["owl", "hawk", "tree"]))
    for predict in (model.predict, model.predict_proba):
        frame = predict(X, as_frame=True)
        assert list(frame) == ["owl", "hawk", "tree"]
        assert frame.index.equals(X.index)
        np.testing.assert_array_equal(frame.to_numpy(), predict(X))
    assert model.predict(dict(X), as_frame=True).index.tolist() == list(range(N_ROWS))


def test_fit_on_a_table_and_save_the_encoding(name, columns, tmp_path):
    X, Y = columns
    model = quick(name).fit(X, Y)
    p = model.predict_proba(X)
    assert p.shape == Y.shape
    assert np.isfinite(p).all()
    assert model.n_features_in_ == X.shape[1]
    assert model.feature_names_in_.tolist() == list(X)
    assert model.prepared(X).shape == (N_ROWS, model.pipeline_.n_inputs)
    assert len(model.prepared_names()) == model.pipeline_.n_inputs > X.shape[1]
    assert sp.issparse(model.prepared(X)) == ("notes" in X)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), p)
    assert again.input_kinds() == model.input_kinds() == as_columns(X).by_name()
    assert again.prepared_names() == model.prepared_names()
    assert again.pipeline_.n_inputs == model.pipeline_.n_inputs


@base_behavior
def test_columns_are_matched_by_name(name, columns):
    X, Y = columns
    model = quick(name).fit(X, Y)
    expected = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict_proba(X[X.columns[::-1]]), expected)
    np.testing.assert_array_equal(model.predict_proba(as_columns(X)), expected)
    with pytest.warns(UserWarning, match="does not know are ignored: 'site'"):
        found = model.predict_proba(X.assign(site=[f"s{i}" for i in range(N_ROWS)]))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(InputError, match=r"lacks 1 of the model's \d columns: 'habitat'"):
        model.predict_proba(X.drop(columns="habitat"))
    with pytest.raises(InputError, match="'depth' must hold numbers, but 'deep' is not"):
        model.predict_proba(X.assign(depth="deep"))
    with pytest.raises(InputError, match="columns with names"):
        model.predict_proba(np.zeros(X.shape))


@base_behavior
def test_unseen_and_missing_values_are_predicted(name, columns):
    X, Y = columns
    model = quick(name).fit(X, Y)
    new = X.iloc[:2].copy()
    new["habitat"] = ["moor", None]
    new["day"] = pd.NaT
    new["depth"] = np.nan
    if "notes" in X:
        new["notes"] = ["words never heard", None]
    p = model.predict_proba(new)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(model.predict_proba(new.iloc[:1]), p[:1], atol=1e-6)


@base_behavior
def test_held_out_rows_do_not_change_the_preparation(name):
    X, Y = table()
    train, held = X.iloc[:70], X.iloc[70:]
    other = held.assign(habitat="moor", notes="words never heard before", depth=1e6)
    models = [
        quick(name).fit(train, Y[:70], validation_data=(rows, Y[70:])) for rows in (held, other)
    ]
    first, second = (model.pipeline_.columns.encoders_ for model in models)
    assert first == second
    np.testing.assert_array_equal(
        models[0].pipeline_.scaler.shift_, models[1].pipeline_.scaler.shift_
    )
    words = models[0].prepared_names()
    assert "notes: owl" in words
    assert "notes: heard" not in words


def test_internally_held_out_rows_do_not_change_the_preparation():
    """Of a method that holds rows out; the members of a network hold out all rows in turn."""
    name, (X, Y) = "BinaryRelevance", table()
    model = quick(name, random_state=3).fit(X, Y)
    seed = int(check_random_state(3).randint(2**31 - 1))
    _, held = holdout(Y, model.validation_fraction, seed=seed)
    other = X.copy()
    other.loc[held, ["habitat", "notes"]] = ["moor", "words never heard before"]
    again = quick(name, random_state=3).fit(other, Y)
    assert again.pipeline_.columns.encoders_ == model.pipeline_.columns.encoders_
    other.loc[np.setdiff1d(np.arange(N_ROWS), held)[:9], "habitat"] = "moor"
    assert "habitat=moor" in quick(name, random_state=3).fit(other, Y).prepared_names()


@pytest.mark.parametrize(
    ("method", "form"),
    [
        ("CGMVAEClassifier", list),
        ("BlendClassifier", list),
        *(("BinaryRelevance", form) for form in (list, tuple, np.array, pd.Series)),
    ],
)
def test_texts_without_a_table(method, form, tmp_path):
    """They are what a table with one text column is, in ``fit``, ``predict`` and files."""
    frame, Y = table()
    texts = [*frame["notes"][:-1], None]
    given = form(texts) if form is not np.array else np.array(texts, dtype=object)
    expected = quick(method).fit({"text": np.array(texts, dtype=object)}, Y)
    p = expected.predict_proba({"text": texts[:9]})
    model = quick(method).fit(given, Y)
    np.testing.assert_array_equal(model.predict_proba(texts[:9]), p)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(given[:9]), p)
    assert np.ptp(p, axis=0).max() > 0


def test_texts_for_a_model_of_other_columns_are_refused():
    frame, Y = table()
    model = quick("BinaryRelevance").fit(frame, Y)
    with pytest.raises(InputError, match="The data lacks 4 of the model's 4 columns"):
        model.predict(["an owl"])
