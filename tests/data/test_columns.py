"""Columns of a table: kinds that are told and guessed, rows, refusals."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgmvae.data.columns import Columns, as_columns, guess_type, parse_dates
from cgmvae.errors import InputError


def kind_of(cells, **options):
    return guess_type("x", np.array(cells, dtype=object), **options)


def seconds(*dates):
    return np.array(dates, dtype="datetime64[s]").tolist()


SENTENCES = [f"the owl called {word} flew" for word in ("Ada", "Ben", "Cid", "Dot", "Eve", "Flo")]


class TestGuess:
    @pytest.mark.parametrize(
        ("cells", "expected"),
        [
            (["1", "2.5", None, "-1e3"], "number"),
            (["true", "FALSE", None], "number"),
            ([None, None], "number"),
            ([], "number"),
            (["2024-05-31", None, "2024-06-01"], "date"),
            (["2024/5/31", "2024/06/01"], "date"),
            (["2024-05-31 06:30", "2024-05-31T06:30:59.5Z"], "date"),
            (["31/05/2024", "01/06/2024"], "date"),
            (["05/31/2024", "06/01/2024"], "date"),
            (["01.06.2024", "02.06.2024"], "date"),
            (["2024-05", "2024-06"], "category"),
            (["wet", "dry", "wet", None], "category"),
            (["a", "b", "c", "d", "e"], "category"),
            (["1_000", "2"], "category"),
            (SENTENCES, "text"),
            (SENTENCES[:2] * 3, "category"),
            ([f"one of {i % 150} long texts" for i in range(600)], "text"),
        ],
    )
    def test_the_first_rule_that_fits(self, cells, expected):
        assert kind_of(cells) == expected

    def test_text_of_a_typed_file_is_no_number(self):
        assert kind_of(["01234", "5"], text_is_parsed=False) == "category"

    def test_identifiers_are_set_aside(self):
        sites = [f"site-{i}" for i in range(6)]
        sentence = r"'x' has a different value .* 'site-0', so it is not used .* id='x'"
        with pytest.raises(InputError, match=rf"No feature column is left: .*{sentence}"):
            as_columns({"x": sites})
        with pytest.warns(UserWarning, match=sentence):
            assert as_columns({"x": sites, "depth": range(6)}).names == ("depth",)

    def test_numbers_with_other_things_are_refused(self):
        with pytest.raises(InputError, match=r"'x' holds numbers, but also 'n/a' and 1 more"):
            kind_of([str(i) for i in range(40)] * 5 + ["n/a", "<1"])

    def test_dates_that_may_be_two_are_refused(self):
        with pytest.raises(InputError, match=r"date '03/04/2024' in the column 'x' may begin"):
            kind_of(["01/01/2024", "03/04/2024"])

    def test_it_does_not_matter_where_day_and_month_are_the_same(self):
        assert kind_of(["01/01/2024", "02-02-2024"]) == "date"


class TestDates:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2024-05-31", "2024-05-31T00:00:00"),
            ("31.05.2024 7:05", "2024-05-31T07:05:00"),
            ("2024-05-31T23:30:00-02:00", "2024-06-01T01:30:00"),
            ("2024-05-31 00:30 +0100", "2024-05-30T23:30:00"),
        ],
    )
    def test_what_a_date_means(self, text, expected):
        assert parse_dates("x", [text]).tolist() == seconds(expected)

    @given(st.lists(st.datetimes(max_value=datetime.datetime(9998, 1, 1)), min_size=1))
    def test_what_python_writes_is_read_back(self, moments):
        texts = [moment.isoformat(sep=" ") for moment in moments]
        expected = [moment.replace(microsecond=0) for moment in moments]
        assert parse_dates("x", texts).tolist() == expected

    @given(st.lists(st.dates(datetime.date(1000, 1, 1)), min_size=1))
    def test_a_day_after_the_twelfth_decides(self, days):
        days = [datetime.date(2024, 5, 31), *days]
        for form in ("%d/%m/%Y", "%m/%d/%Y"):
            texts = [day.strftime(form) for day in days]
            found = parse_dates("x", texts).astype("datetime64[D]")
            assert found.tolist() == days


class TestTables:
    def test_a_frame_of_pandas(self):
        frame = pd.DataFrame(
            {
                "depth": [1.5, None],
                "count": pd.array([1, None], dtype="Int64"),
                "wet": [True, False],
                "habitat": ["fen", "?"],
                "zone": pd.Categorical([3, 4]),
                "day": pd.to_datetime(["2024-05-31", None]),
                "noon": pd.to_datetime(["2024-05-31T12:00+02:00", None]),
                "object": [datetime.date(2024, 5, 31), None],
                "text": ["0.5", "NA"],
            }
        )
        columns = as_columns(frame)
        kinds = dict(zip(frame, ("number",) * 3 + ("category",) * 2 + ("date",) * 3, strict=False))
        assert columns.by_name() == {**kinds, "text": "number"}
        values = dict(zip(columns.names, (v.tolist() for v in columns.values), strict=True))
        assert values["habitat"] == ["fen", None]
        assert values["zone"] == ["3", "4"]
        assert values["noon"] == [*seconds("2024-05-31T10:00"), None]
        assert values["object"] == values["day"] == [*seconds("2024-05-31"), None]
        np.testing.assert_array_equal(values["count"], [1, np.nan])
        np.testing.assert_array_equal(values["text"], [0.5, np.nan])
        assert columns.missing().sum(0).tolist() == [1, 1, 0, 1, 0, 1, 1, 1, 1]

    def test_told_kinds_go_before_guesses(self):
        table = {"site": [1, 2.0], "note": ["1", "2"], "day": ["01.02.2024", None]}
        kinds = {"site": "category", "note": "text", "day": "date", "elsewhere": "date"}
        columns = as_columns(table, kinds)
        assert columns.kinds == ("category", "text", "date")
        assert [values.tolist() for values in columns.values[:2]] == [["1", "2"], ["1", "2"]]
        again = as_columns(columns, {"note": "number"})
        assert again.kinds == ("category", "number", "date")
        assert again.values[1].tolist() == [1, 2]

    @pytest.mark.parametrize(
        ("values", "kind", "message"),
        [
            (["1", "two"], "number", "'x' must hold numbers, but 'two' is not"),
            (["1", "true"], "number", "'x' holds both numbers and true or false"),
            (["2024-01-01", "soon"], "date", "'x' must hold dates, but 'soon' is not"),
            (["2024-01-01", "13.12.2024"], "date", "'x' mixes date formats"),
            ([0.5, 1.0], "category", "'x' holds fractional numbers"),
            (
                np.array(["2024-01-01"], "datetime64[s]"),
                "text",
                "'x' holds dates; declare it as date",
            ),
            ([1j], None, "'x' holds neither numbers"),
            (np.array([[1], [2]], dtype=object)[:, 0].reshape(-1, 1), None, "'x' holds neither"),
            (np.array([{}, [1]], dtype=object), None, "'x' holds cells of type dict"),
            ([[1], [1, 2]], None, "'x' holds lists of different lengths"),
            ([np.inf, 1.0], None, "'x' holds an infinite number"),
            (["1"], "word", "There is no column type 'word'"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, values, kind, message):
        with pytest.raises(InputError, match=message):
            as_columns({"x": values}, {"x": kind} if kind else None)

    def test_tables_that_are_none(self):
        with pytest.raises(InputError, match="named columns"):
            as_columns(np.zeros((2, 2)))
        with pytest.raises(InputError, match="Two columns are named 'a'"):
            as_columns(pd.DataFrame([[1, 2]], columns=["a", "a"]))
        with pytest.raises(InputError, match="differ in length"):
            as_columns({"a": [1], "b": [1, 2]})
        with pytest.raises(InputError, match="give at least one"):
            as_columns({})


class TestRows:
    @pytest.fixture
    def columns(self):
        return as_columns({"n": [1.0, 2.0, 3.0], "c": ["a", None, "a"]})

    def test_rows_and_columns_are_chosen(self, columns):
        assert (len(columns), columns.shape) == (3, (3, 2))
        for rows in ([2, 0], np.array([2, 0]), slice(None, None, -2)):
            assert columns[rows].values[0].tolist() == [3, 1]
        assert columns[np.array([False, True, False])].values[1].tolist() == [None]
        assert columns[:, [1]].names == columns.select(["c"]).names == ("c",)
        assert columns[1:, ...].shape == (2, 2)
        assert columns.select(["c", "n"]).kinds == ("category", "number")

    def test_columns_that_are_not_there_are_named(self, columns):
        for choose in (columns.select, lambda names: as_columns({"n": [1]}, only=names)):
            with pytest.raises(InputError, match="no column 'depth'; the columns are 'n'"):
                choose(["n", "depth"])

    def test_only_numbers_are_a_matrix(self, columns):
        assert columns.as_matrix() is None
        assert columns.select(["n"]).as_matrix().tolist() == [[1], [2], [3]]

    def test_what_does_not_belong_together(self):
        with pytest.raises(InputError, match="a name, values and a type each"):
            Columns(("a", "b"), (np.zeros(1),), ("number",))


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (
            ["0", "1", "2", "x"],
            r"because of 'x', but most of its values look like numbers; .*blank",
        ),
        (["10%", "20%", "5 %"], r"because of '10%', '20%', '5 %'.* or declare .*category=\['c'\]"),
        (["$1.20", "$3", "free"], "because of '\\$1.20', '\\$3', 'free'"),
        (["1,5", "2,5", "3"], "because of '1,5', '2,5'.* give decimal=','"),
        (["2024-05-31", "31.05.2024"], "like dates; write all dates as in 2024-05-31"),
        (["2024-02-30", "2024-02-01"], "because of '2024-02-30', .* like dates"),
        (["2024-05-31", "2024-06-01", "soon"], "because of 'soon', .* like dates"),
    ],
)
def test_numbers_and_dates_that_are_not_read_are_a_warning(cells, words):
    texts = np.array(cells * 9, dtype=object)
    with pytest.warns(UserWarning, match=words):
        assert guess_type("c", texts) == "category"


@pytest.mark.parametrize(
    "cells", [["1", "a", "b"], ["50-60", "60-70"], ["1.2.3", "3+"], ["a", "b"]]
)
def test_other_categories_are_no_warning(cells):
    assert guess_type("c", np.array(cells * 9, dtype=object)) == "category"


def test_text_that_the_file_declares_is_no_warning():
    texts = np.array(["01", "02"] * 9, dtype=object)
    assert guess_type("c", texts, text_is_parsed=False) == "category"
