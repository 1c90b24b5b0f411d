"""Columns become features: against plain loops and scikit-learn, and where columns are odd."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from cgmvae.data.columns import as_columns
from cgmvae.errors import InputError
from cgmvae.preparation import FeaturePreparation
from cgmvae.preparation.encoders import CategoryColumn, DateColumn, TextColumn
from cgmvae.preparation.features import match_columns, numeric_matrix, table_columns

WORDS = ["Öwl", "hawk", "tree", "barn", "river", "night", "calls", "nest"]


def fitted(table, kinds=None):
    columns = as_columns(table, kinds)
    return FeaturePreparation(columns.by_name()).fit(columns), columns


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


def texts(n, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(n)]


def table_of(n=40):
    rng = np.random.default_rng(1)
    day = np.datetime64("2023-11-01T06:00") + rng.integers(0, 10**6, n).astype("timedelta64[m]")
    return {
        "depth": np.where(rng.random(n) < 0.2, np.nan, rng.normal(50, 9, n)),
        "habitat": rng.choice(["fen", "bog", "wood", None], n),
        "day": np.where(rng.random(n) < 0.2, np.datetime64("NaT"), day),
        "notes": np.array([*texts(n - 1), None], dtype=object),
    }


KINDS = {"depth": "number", "habitat": "category", "day": "date", "notes": "text"}


class TestNumbers:
    def test_they_are_kept(self):
        preparation, columns = fitted({"a": [1.5, -2.0], "b": ["x", "x"]})
        assert preparation.transform(columns)[:, 0].tolist() == [1.5, -2.0]
        assert preparation.feature_names_ == ["a", "b=x"]

    @pytest.mark.parametrize(
        ("n_missing", "noted"), [(0, False), (1, False), (2, True), (40, False)]
    )
    def test_gaps_are_noted_from_a_twentieth_on(self, n_missing, noted):
        values = np.arange(40.0)
        values[:n_missing] = np.nan
        preparation, columns = fitted({"a": values})
        assert ("a (missing)" in preparation.feature_names_) == noted
        features = preparation.transform(columns)
        np.testing.assert_array_equal(features[:, 0], values)
        if noted:
            np.testing.assert_array_equal(features[:, 1], np.isnan(values))

    def test_numbers_that_are_too_large(self):
        preparation, columns = fitted({"a": [1e300, 1.0]})
        with pytest.raises(
            InputError, match="'a' holds a number that is infinite or beyond float32"
        ):
            preparation.transform(columns)


class TestCategories:
    def test_against_a_plain_loop(self):
        values = ["fen", "bog", "fen", None, "wood", "bog", "heath"]
        preparation, columns = fitted({"c": values}, {"c": "category"})
        names = ["c=bog", "c=fen", "c (other)", "c (missing)"]
        assert preparation.feature_names_ == names
        expected = [
            [value == "bog", value == "fen", value in ("wood", "heath"), value is None]
            for value in values
        ]
        np.testing.assert_array_equal(preparation.transform(columns), expected)

    def test_what_was_not_seen(self):
        new = {"c": ["moor", None]}
        preparation, _ = fitted({"c": ["fen", "fen", "bog"]})
        found = preparation.transform(as_columns(new, {"c": "category"}))
        assert found.tolist() == [[0, 1], [0, 0]]
        preparation, _ = fitted({"c": ["fen", "fen", "bog", "bog"]})
        found = preparation.transform(as_columns(new, {"c": "category"}))
        assert found.tolist() == [[0, 0], [0, 0]]

    def test_numbers_in_their_place_are_refused(self):
        preparation, _ = fitted({"c": ["fen", "fen", "bog", "bog"]})
        with pytest.raises(InputError, match=r"'c' contains numbers, such as 7, .* such as 'bog'"):
            preparation.transform(as_columns({"c": ["7", "8"]}, {"c": "category"}))
        coded, _ = fitted({"c": ["1", "1", "2", "2"]}, {"c": "category"})
        found = coded.transform(as_columns({"c": ["7", "1"]}, {"c": "category"}))
        assert found.tolist() == [[0, 0], [1, 0]]

    def test_rare_ones_of_many_rows(self):
        values = np.array(["a"] * 990 + ["b"] * 5 + ["c"] * 4 + ["d"], dtype=object)
        assert CategoryColumn.learn(values).categories == ("a", "b")
        assert CategoryColumn.learn(values[-900:]).categories == ("a", "b", "c")

    def test_many_of_them_are_sparse(self):
        values = [str(i // 2) for i in range(600)]
        preparation, columns = fitted({"c": values}, {"c": "category"})
        found = preparation.transform(columns)
        assert sp.issparse(found)
        assert found.shape == (600, 300)
        np.testing.assert_array_equal(found.sum(1), 1)


class TestDates:
    def parts(self, *dates):
        return DateColumn.learn(np.array(dates, dtype="datetime64[s]")).parts

    def test_what_varies_is_used(self):
        assert self.parts("2024-05-31", "2025-05-01") == ("year",)
        assert self.parts("2024-05-30", "2024-05-31") == ("year",)
        assert self.parts("2024-05-31", "2024-06-01") == ("season",)
        assert self.parts("2024-05-31T06:00", "2024-05-31T07:00") == ("hour",)
        assert self.parts("2024-05-31T06:00", "2025-06-01T07:00") == ("year", "season", "hour")
        assert self.parts("2024-05-31", "2024-05-31") == ("year",)
        assert self.parts("NaT") == ("year",)

    def test_against_the_calendar(self):
        days = np.array(
            ["2024-01-01T00:00", "2023-07-02T12:00", "2024-07-02T00:00", "NaT"],
            dtype="datetime64[s]",
        )
        preparation, columns = fitted({"d": days})
        assert preparation.feature_names_ == [
            *("d (year)", "d (season, sine)", "d (season, cosine)", "d (hour, sine)"),
            *("d (hour, cosine)", "d (missing)"),
        ]
        found = preparation.transform(columns)
        # The middle of a year of 365 days is a noon, that of a leap year a midnight.
        expected = [[2024, 0, 1, 0, 1, 0], [2023.5, 0, -1, 0, -1, 0], [2024.5, 0, -1, 0, 1, 0]]
        np.testing.assert_allclose(found[:3], expected, atol=1e-6)
        np.testing.assert_array_equal(found[3], [*[np.nan] * 5, 1])


class TestText:
    def test_against_scikit_learn(self):
        values = texts(30)
        preparation, columns = fitted({"t": values}, {"t": "text"})
        oracle = TfidfVectorizer(strip_accents="unicode", sublinear_tf=True, min_df=2)
        expected = oracle.fit_transform(values)
        assert preparation.feature_names_ == [f"t: {w}" for w in oracle.get_feature_names_out()]
        assert "t: owl" in preparation.feature_names_
        np.testing.assert_allclose(
            dense(preparation.transform(columns)), dense(expected), atol=1e-6
        )

    def test_words(self):
        column = TextColumn.learn(np.array(["A tree-frog, 2 OWLS & café_1", None], dtype=object))
        assert column.words == ("cafe", "frog", "owls", "tree")

    def test_a_rare_word_counts_only_among_few_texts(self):
        some = np.array(["owl hawk", *["owl"] * 18], dtype=object)
        assert TextColumn.learn(some).words == ("hawk", "owl")
        assert TextColumn.learn(np.append(some, "owl")).words == ("owl",)
        many = np.array(["owl hawk", "owl hawk", *["owl"] * 4997], dtype=object)
        assert TextColumn.learn(many).words == ("hawk", "owl")
        assert TextColumn.learn(np.append(many, "owl")).words == ("owl",)

    def test_text_without_words(self):
        table = {"t": ["1 2", None], "n": [1.0, 2.0]}
        preparation, columns = fitted(table, {"t": "text"})
        assert dense(preparation.transform(columns)).tolist() == [[1], [2]]
        with pytest.raises(InputError, match="contain no words"):
            fitted({"t": ["1 2", None]}, {"t": "text"})

    def test_a_letter_whose_plain_form_is_a_capital(self):
        values = np.array(["ᴬᴮ owl", "ab"], dtype=object)
        column = TextColumn.learn(values)
        assert column.words == ("ab", "owl")
        assert dense(column.transform("t", values))[1].tolist() == [1, 0]


class TestTogether:
    def test_each_column_is_itself(self):
        preparation, columns = fitted(table_of(), KINDS)
        together = dense(preparation.transform(columns))
        alone = []
        for name in columns.names:
            own = columns.select([name])
            alone.append(dense(FeaturePreparation(own.by_name()).fit(own).transform(own)))
        np.testing.assert_array_equal(together, np.hstack(alone))
        assert together.dtype == np.float64
        widths = [row.n_features for row in preparation.describe()]
        assert widths == [part.shape[1] for part in alone]
        assert [row.kind for row in preparation.describe()] == list(KINDS.values())
        measured = np.array(preparation.feature_names_)[preparation.measured_]
        assert all(name.startswith(("depth", "day (")) for name in measured)
        assert len(measured) == 6

    def test_text_makes_it_sparse_and_nothing_else(self):
        preparation, columns = fitted(table_of(), KINDS)
        assert sp.issparse(preparation.transform(columns))
        few = columns.select(["depth", "habitat", "day"])
        assert not sp.issparse(FeaturePreparation(few.by_name()).fit(few).transform(few))

    @settings(max_examples=25)
    @given(st.permutations(range(40)), st.integers(1, 40))
    def test_rows_are_prepared_by_themselves(self, order, n_rows):
        preparation, columns = fitted(table_of(), KINDS)
        expected = dense(preparation.transform(columns))
        rows = np.array(order[:n_rows])
        np.testing.assert_array_equal(dense(preparation.transform(columns[rows])), expected[rows])
        again = FeaturePreparation(columns.by_name()).fit(columns[np.array(order)])
        np.testing.assert_array_equal(dense(again.transform(columns)), expected)

    def test_columns_with_nothing_in_them(self):
        kinds = {"n": "number", "c": "category", "d": "date", "t": "text"}
        preparation, columns = fitted({name: [None, None] for name in kinds}, kinds)
        found = dense(preparation.transform(columns))
        assert preparation.feature_names_ == ["n", "c (missing)", "d (year)"]
        np.testing.assert_array_equal(found, [[np.nan, 1, np.nan]] * 2)

    def test_names_that_meet_are_told_apart(self):
        preparation, _ = fitted({"c=a": [1.0, 2.0], "c": ["a", "a"]})
        assert preparation.feature_names_ == ["c=a", "c=a (2)"]
        preparation, _ = fitted({"c=a": [1.0, 2.0], "c=a (2)": [1.0, 2.0], "c": ["a", "a"]})
        assert preparation.feature_names_ == ["c=a", "c=a (2)", "c=a (3)"]

    def test_other_columns_are_refused(self):
        preparation, columns = fitted(table_of(), KINDS)
        for other in (columns.select(["depth"]), columns[:, [1, 0, 2, 3]]):
            with pytest.raises(InputError, match="not the columns"):
                preparation.transform(other)


class PolarsType:
    """A type as polars has them: it tells by a method whether it is one of numbers."""

    def __init__(self, name, number):
        self.name, self.is_numeric = name, lambda: number

    def __str__(self):
        return self.name


@pytest.mark.parametrize(
    ("name", "number", "needed"),
    [("Float64", True, False), ("Boolean", False, False), ("String", False, True)],
)
def test_a_frame_of_polars_needs_a_preparation_where_it_has_text(name, number, needed):
    class Frame:
        columns = ("a",)
        dtypes = (PolarsType(name, number),)

        def __getitem__(self, column):
            return np.array(["fen", "bog"])

    assert (table_columns(Frame()) is not None) == needed


def test_what_needs_a_preparation():
    numbers = pd.DataFrame({"a": [1.5, None], "b": [True, False]})
    assert table_columns(numbers) is None
    assert table_columns(numbers.astype({"a": "Float64", "b": "boolean"})) is None
    assert table_columns(np.array([["x"]])) is None
    assert table_columns([["x"]]) is None
    assert table_columns(sp.csr_array(np.eye(2))) is None
    for column in (["x", "y"], pd.to_datetime(["2024-05-31", None]), pd.Categorical([1, 2])):
        assert table_columns(numbers.assign(c=column)).shape == (2, 3)
    assert table_columns(as_columns(numbers)).kinds == ("number", "number")
    assert table_columns({"a": [1, 2]}).kinds == ("number",)


class TestMatchColumns:
    KINDS = {"a": "number", "b": "category"}  # noqa: RUF012

    @pytest.mark.parametrize("form", [dict, pd.DataFrame, as_columns])
    def test_columns_are_found_by_name(self, form):
        found = match_columns(form({"b": ["1", "x"], "a": [1.0, 2.0]}), self.KINDS)
        assert found.by_name() == self.KINDS
        assert found.values[1].tolist() == ["1", "x"]

    def test_new_ones_are_not_even_looked_into(self):
        table = {"id": [f"s{i}" for i in range(9)], "a": range(9), "b": ["x"] * 9}
        with pytest.warns(UserWarning, match="ignored: 'id'"):
            assert match_columns(table, self.KINDS).names == ("a", "b")

    def test_missing_ones_are_named(self):
        with pytest.raises(InputError, match="lacks 2 of the model's 2 columns: 'a', 'b'"):
            match_columns({"c": [1]}, self.KINDS)

    def test_numbers_for_a_model_of_numbers(self):
        table = as_columns({"b": [1.0, 2.0], "a": [3.0, 4.0]})
        by_name = numeric_matrix(table, {"a": "number", "b": "number"}, 2)
        assert by_name.tolist() == [[3, 1], [4, 2]]
        assert numeric_matrix(table, None, 2).tolist() == [[1, 3], [2, 4]]
        with pytest.raises(InputError, match="has 2 columns, but the model was fitted with 3"):
            numeric_matrix(table, None, 3)
        with pytest.raises(InputError, match="'b' has the type category, but the model was fitted"):
            numeric_matrix({"a": [1], "b": ["x"]}, None, 2)
