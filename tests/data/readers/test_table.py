import csv as csv_module
import gzip
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from cgmvae.data import files, read
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.readers import table
from cgmvae.data.readers.table import delimited
from cgmvae.errors import InputError

from .conftest import assert_same, datasets

NAN = float("nan")
TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8
)
NAMES = TEXTS.filter(lambda name: name != "group")


def groups(n):
    texts = st.lists(TEXTS.filter(str.strip), min_size=n, max_size=n)
    return (texts | st.lists(st.integers(-(2**40), 2**40), min_size=n, max_size=n)).map(np.array)


def csv(folder: Path, text: str | bytes, name: str = "birds.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def parquet(folder: Path, **columns) -> Path:
    path = folder / "birds.parquet"
    pq.write_table(pa.table(columns), path)
    return path


BIRDS = "height,slope,owl,hawk\n0.5,1,1,0\n2,,0,1\n"


class TestRoundTrip:
    @settings(max_examples=30, deadline=None)
    @given(data=datasets(NAMES, groups=groups), suffix=st.sampled_from(["", ".gz", ".bz2"]))
    def test_csv(self, tmp_path_factory, data, suffix):
        path = tmp_path_factory.mktemp("csv") / f"birds.csv{suffix}"
        table.write_csv(data, path)
        groups = None if data.groups is None else "group"
        back = read(path, labels=data.label_names, blank_labels="unknown", groups=groups)
        assert_same(back, data)
        if data.groups is not None:
            np.testing.assert_array_equal(back.groups, data.groups.astype(str))
        assert back.name == "birds"
        assert list(path.parent.iterdir()) == [path]

    @settings(max_examples=30, deadline=None)
    @given(data=datasets(NAMES, groups=groups))
    def test_parquet_needs_no_options(self, tmp_path_factory, data):
        path = tmp_path_factory.mktemp("parquet") / "birds.parquet"
        table.write_parquet(data, path)
        back = read(path)
        assert_same(back, data)
        assert (back.groups is None) == (data.groups is None)
        if data.groups is not None:
            assert back.groups.dtype.kind == data.groups.dtype.kind
            np.testing.assert_array_equal(back.groups, data.groups)
        assert list(path.parent.iterdir()) == [path]

    def test_a_float32_is_written_with_all_its_digits(self, tmp_path):
        X = np.array([[7.038531e-26], [1e-45], [3.4028235e38]], dtype=np.float32)
        data = MultiLabelDataset(X, [[1], [0], [1]])
        table.write_csv(data, tmp_path / "a.csv")
        np.testing.assert_array_equal(read(tmp_path / "a.csv", label_count=-1).X, X)

    def test_names_with_everything_in_them(self, tmp_path):
        names = ['a "b", c', "line\nbreak", "cr\r\nlf", " blank ", "été;雪", "0", "NA"]
        data = MultiLabelDataset(np.ones((2, 1)), np.ones((2, 7)), label_names=names)
        table.write_csv(data, tmp_path / "a.csv")
        assert read(tmp_path / "a.csv", label_count=-7).label_names == tuple(names)


class TestLabelColumns:
    def test_by_name_in_the_order_asked_for(self, tmp_path):
        data = read(csv(tmp_path, BIRDS), labels=["hawk", "owl"])
        assert data.label_names == ("hawk", "owl")
        assert data.feature_names == ("height", "slope")
        assert data.Y.tolist() == [[0, 1], [1, 0]]
        np.testing.assert_array_equal(data.X, [[0.5, 1], [2, NAN]])
        data = read(csv(tmp_path, BIRDS), labels="owl")
        assert data.feature_names == ("height", "slope", "hawk")

    def test_by_prefix_keeping_the_names_whole(self, tmp_path):
        path = csv(tmp_path, "sp_owl,height,sp_hawk\n1,0.5,0\n")
        assert read(path, label_prefix="sp_").label_names == ("sp_owl", "sp_hawk")

    @pytest.mark.parametrize(
        ("count", "labels"), [(1, ("a",)), (2, ("a", "b")), (-1, ("d",)), (-2, ("b", "d"))]
    )
    def test_by_count_after_groups_and_dropped_columns(self, tmp_path, count, labels):
        path = csv(tmp_path, "id,a,b,route,d\nx,1,0,r1,1\n")
        data = read(path, label_count=count, drop=["id"], groups="route")
        assert data.label_names == labels
        assert data.groups.tolist() == ["r1"]

    def test_by_sets(self, tmp_path):
        text = "height,birds\n1,owl| 01\n2, 1\n3,owl|owl||\n"
        data = read(csv(tmp_path, text), label_sets="birds", separator="|")
        assert data.label_names == ("01", "1", "owl")
        assert data.Y.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 1]]
        assert data.unknown is None

    def test_a_label_that_a_set_names_256_times_is_there(self, tmp_path):
        data = read(csv(tmp_path, f"x,s\n1,{'owl;' * 256}\n"), label_sets="s")
        assert data.Y.tolist() == [[1]]

    def test_many_labels_stay_sparse(self, tmp_path):
        names = ";".join(f"label {i}" for i in range(300))
        path = csv(tmp_path, f"x,s\n1,{names}\n2,\n3,label 7\n")
        data = read(path, label_sets="s", blank_labels="unknown")
        assert sp.issparse(data.Y)
        assert data.Y.sum(axis=1).tolist() == [300, 0, 1]
        assert data.unknown.sum(axis=1).tolist() == [0, 300, 0]

    @pytest.mark.parametrize("blank", ["", "  ", ";", '""', "NA", " ? "])
    def test_blank_set(self, tmp_path, blank):
        path = csv(tmp_path, f"x,s\n1,owl;hawk\n2,{blank}\n")
        absent = read(path, label_sets="s", blank_labels="absent")
        assert absent.Y.tolist() == [[1, 1], [0, 0]]
        assert absent.unknown is None
        unknown = read(path, label_sets="s", blank_labels="unknown")
        assert unknown.unknown.tolist() == [[False, False], [True, True]]
        with pytest.raises(InputError, match=r"'s' has blank cells; give blank_labels='absent'"):
            read(path, label_sets="s")

    def test_a_label_may_be_called_as_what_is_missing_where_it_is_not_alone(self, tmp_path):
        data = read(csv(tmp_path, "x,s\n1,NA;ZA\n2,ZA\n"), label_sets="s")
        assert data.label_names == ("NA", "ZA")

    def test_sets_that_are_not_text(self, tmp_path):
        with pytest.raises(InputError, match="'s' of label sets is not text"):
            read(parquet(tmp_path, x=[1.0], s=[3]), label_sets="s")


class TestLabelCells:
    @pytest.mark.parametrize(
        "cells", [("1", "0"), ("1.0", "0.0"), ("TRUE", "fAlse"), (" 1", "0 "), ("1e0", "-0")]
    )
    def test_spellings(self, tmp_path, cells):
        data = read(csv(tmp_path, "x,owl\n1,{}\n2,{}\n".format(*cells)), labels=["owl"])
        assert data.Y.tolist() == [[1], [0]]

    @pytest.mark.parametrize("blank", ["", " ", "NA", "nan", "?"])
    def test_blank_cell(self, tmp_path, blank):
        path = csv(tmp_path, f"x,owl,hawk\n1,{blank},1\n2,1,0\n")
        absent = read(path, label_count=-2, blank_labels="absent")
        assert absent.Y.tolist() == [[0, 1], [1, 0]]
        assert absent.unknown is None
        unknown = read(path, label_count=-2, blank_labels="unknown")
        assert unknown.Y.tolist() == [[0, 1], [1, 0]]
        assert unknown.unknown.tolist() == [[True, False], [False, False]]
        with pytest.raises(InputError, match=r"'owl' has blank cells; give blank_labels"):
            read(path, label_count=-2)

    def test_counts_as_presence(self, tmp_path):
        path = csv(tmp_path, "x,owl\n1,0\n2,3\n3,0.25\n4,1\n")
        data = read(path, labels=["owl"], counts="presence")
        assert data.Y.tolist() == [[0], [1], [1], [1]]

    def test_parquet_types(self, tmp_path):
        path = parquet(
            tmp_path,
            x=[1.5, 2.5],
            flag=[True, None],
            text=["True", "TRUE"],
            number=pa.array([1, 0], pa.int8()),
            category=pa.array(["1", "0"]).dictionary_encode(),
            nothing=pa.nulls(2),
        )
        data = read(path, label_count=-5, blank_labels="unknown")
        assert data.Y.tolist() == [[1, 1, 1, 1, 0], [0, 1, 0, 0, 0]]
        assert data.unknown.tolist() == [[False] * 4 + [True], [True] + [False] * 3 + [True]]


class TestFeatureCells:
    def test_against_pandas(self, tmp_path):
        path = csv(
            tmp_path,
            "id,area,forest,height,depth,route,owl,hawk\n"
            'a,1,true,0.1,,007,1,0\n"b, c",NA,False,1e-3,,007,0,\n'
            "d,3, TRUE, 2.5 ,,8,1,1\ne,?,,nan,,9,0,1\n",
        )
        data = read(
            path,
            labels=["owl", "hawk"],
            groups="route",
            drop=["id"],
            blank_labels="unknown",
        )
        frame = pd.read_csv(path, na_values=["?"], dtype={"route": str}, skipinitialspace=True)
        truth = {True: 1.0, False: 0.0, "true": 1.0, "TRUE": 1.0, "False": 0.0}
        frame["forest"] = [truth.get(cell, NAN) for cell in frame["forest"]]
        expected = frame[["area", "forest", "height", "depth"]].to_numpy(np.float64)
        np.testing.assert_array_equal(data.X, expected)
        np.testing.assert_array_equal(data.targets(), frame[["owl", "hawk"]].to_numpy(np.float32))
        assert data.groups.tolist() == frame["route"].tolist()
        assert data.describe().missing_share == np.isnan(expected).mean() > 0

    def test_parquet_number_types(self, tmp_path):
        path = parquet(
            tmp_path,
            decimal=pa.array([1, None]).cast(pa.decimal128(38, 2)),
            big=pa.array([2**60, None]),
            half=pa.array(np.array([0.5, 2], np.float16)),
            nothing=pa.nulls(2),
            owl=[1, 0],
        )
        data = read(path, labels=["owl"])
        np.testing.assert_array_equal(data.X, [[1, 2.0**60, 0.5, NAN], [NAN, NAN, 2, NAN]])

    @pytest.mark.parametrize("kinds", [None, {"a": "number", "b": "number"}])
    def test_numbers_that_arrow_does_not_read(self, tmp_path, kinds):
        path = csv(tmp_path, "a,b,owl\n+1.5,١٢,1\n-2,3,0\nNA,+1e-2,0\n")
        X = read(path, labels=["owl"], kinds=kinds).X
        np.testing.assert_array_equal(X, [[1.5, 12], [-2, 3], [NAN, 0.01]])

    def test_two_signs_are_no_number(self, tmp_path):
        X = read(csv(tmp_path, "a,owl\n+-1,1\n2,0\n"), labels=["owl"]).X
        assert X.kinds == ("category",)


class TestGroups:
    def test_leading_zeros_stay(self, tmp_path):
        path = csv(tmp_path, "x,g,owl\n1,007,1\n2,7,0\n3,NA,0\n")
        assert read(path, labels=["owl"], groups="g").groups.tolist() == [
            "007",
            "7",
            "NA",
        ]

    def test_null_group(self, tmp_path):
        path = parquet(tmp_path, x=[1.0, 2.0], g=[1, None], owl=[1, 0])
        with pytest.raises(InputError, match="group column 'g' has blank cells"):
            read(path, labels=["owl"], groups="g")

    def test_groups_that_are_lists(self, tmp_path):
        path = parquet(tmp_path, x=[1.0], g=pa.array([{"a": 1}]), owl=[1])
        with pytest.raises(InputError, match="groups of column 'g' are neither"):
            read(path, labels=["owl"], groups="g")


class TestCsvFile:
    def test_packed_file_that_is_cut_off_beyond_the_header(self, tmp_path, rng):
        text = "a,owl\n" + "".join(f"{x},1\n" for x in rng.random(20_000))
        path = csv(tmp_path, gzip.compress(text.encode())[:-2000], "a.csv.gz")
        with pytest.raises(InputError, match=r"a\.csv\.gz is damaged"):
            read(path, labels=["owl"])

    def test_ragged_row_that_is_not_utf_8(self, tmp_path, monkeypatch):
        """Nothing is raised in a callback, which Python would print and pass over."""
        ignored = []
        monkeypatch.setattr(sys, "unraisablehook", ignored.append)
        (tmp_path / "a.csv").write_bytes(b"a,owl\n" + b"0,1\n" * 200 + b"\xc9")
        with pytest.raises(InputError, match=r"Row 202 of .*a\.csv has 1 cells and the header 2"):
            read(tmp_path / "a.csv", labels=["owl"])
        assert ignored == []

    def test_last_cell_of_two_lines_after_a_very_long_one(self, tmp_path):
        limit = csv_module.field_size_limit()
        path = csv(tmp_path, f'a,owl,note\n1,1,{"x" * 2 * limit}\n1,1,"two\nlines"\n')
        assert read(path, labels=["owl"], drop=["note"]).n_samples == 2
        assert csv_module.field_size_limit() == limit

    def test_row_longer_than_a_block(self, tmp_path, monkeypatch):
        monkeypatch.setattr(delimited, "_SMALL_BLOCK", 20)
        monkeypatch.setattr(delimited, "_BLOCK", 20)
        path = csv(tmp_path, f"a,owl\n1,1\n{'1' * 100},1\n")
        with pytest.raises(InputError, match="is not a readable CSV file"):
            read(path, labels=["owl"])


OWL = {"labels": ["owl"]}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        # which columns are labels
        (
            BIRDS,
            {},
            "columns are labels; its last 2 columns hold only 0 and 1: give label_count=-2",
        ),
        (BIRDS, {**OWL, "label_count": 1}, "exactly one of labels.*; 2 of them were given"),
        (BIRDS, {"label_count": 0}, "label_count is 0, but there are 4 columns"),
        (BIRDS, {"label_count": -4}, "label_count is -4, but there are 4 columns"),
        (BIRDS, {"label_prefix": "sp_"}, "No column begins with 'sp_'; the first ones are 'hei"),
        (BIRDS, {"labels": []}, "list of label columns is empty"),
        (BIRDS, {"label_prefix": ""}, "No feature columns are left"),
        (BIRDS, {"labels": ["owl", "hawks"]}, r"no column 'hawks'; did you mean 'hawk'\?"),
        (BIRDS, {**OWL, "drop": ["Z"]}, "no column 'Z'; the columns are 'height', 'slope', 'o"),
        (BIRDS, {**OWL, "drop": ["owl"]}, "'owl' is given twice among the labels, groups"),
        (BIRDS, {"labels": ["owl", "owl"]}, "'owl' is given twice"),
        (BIRDS, {**OWL, "text": ["slop"]}, "no column 'slop'; did you mean 'slope'"),
        (BIRDS, {**OWL, "text": ["slope"], "date": ["slope"]}, "'slope' is given twice"),
        (BIRDS, {"label_prefix": "ow", "text": ["owl"]}, "'owl' is given twice"),
        (BIRDS, {"label_sets": "owl", "groups": "owl"}, "'owl' is given twice"),
        (BIRDS, {**OWL, "counts": "sum"}, "counts must be '.*', not 'sum'"),
        (BIRDS, {**OWL, "blank_labels": "zero"}, "blank_labels must be '.*', not 'zero'"),
        ("a,a,owl\n1,2,1\n", OWL, "'a' names more than one column; rename"),
        # cells
        ("x,s\n1,\n", {"label_sets": "s", "blank_labels": "absent"}, "'s' .* holds no label"),
        ("x,s\n1,a\n", {"label_sets": "s", "separator": ""}, "separator of label sets is empty"),
        ("x,owl\n1,0\n2,3\n", OWL, "'owl' holds 3; .* give counts='presence'"),
        ("x,owl\n1,-1\n", {**OWL, "counts": "presence"}, "'owl' holds -1, which is neither"),
        ("x,owl\n1,rare\n2,no\n", OWL, "'owl' holds 'rare', 'no'; labels must be 0 and 1"),
        ("a,owl\n-Infinity,1\n", OWL, "'a' holds a number that is infinite or beyond float32"),
        ("a,owl\n1e300,1\n", OWL, "'a' holds a number that is infinite or beyond float32"),
        ("x,g,owl\n1,a,1\n2, ,0\n", {**OWL, "groups": "g"}, "group column 'g' has blank cells"),
        # the file
        ("a,owl\n", OWL, "has a header and no rows"),
        ("\na,owl\n1,1\n", OWL, "first line of .* is empty; it must name the columns"),
        ('"a,owl\n1,1\n', OWL, "first line of .* does not name the columns"),
        ('a,"owl\0"\n1,1\n', {"label_count": -1}, "column name holds the character NUL"),
        ("a,owl\n1,1\n3,4,5\n", OWL, r"Row 3 of .*csv has 3 cells and the header 2 \(the header"),
        ('a,owl,note\n1,1,"open\n2,0,x', {**OWL, "drop": ["note"]}, "a quote that is not closed"),
        (b"a,h\xe9ron\n1,1\n", {"label_count": -1}, r"is not UTF-8 text \(byte 0xe9\); save it"),
        (b"a,owl\n" + b"1,0\n" * 200 + b"\xe9,1\n", OWL, r"not UTF-8 text \(byte 0xe9\); save it"),
        *((BIRDS, {**OWL, "delimiter": each}, "must be one character") for each in ("", ", ", "é")),
    ],
)
def test_a_table_that_cannot_be_read(tmp_path, text, options, message):
    with pytest.raises(InputError, match=message):
        read(csv(tmp_path, text), **options)


class TestParquetFile:
    @pytest.mark.parametrize("content", [b"a,owl\n1,1\n", b"PAR1" + b"x" * 30 + b"PAR1"])
    def test_not_parquet(self, tmp_path, content):
        with pytest.raises(InputError, match="is not a readable Parquet file"):
            read(csv(tmp_path, content, "a.parquet"), labels=["owl"])

    def test_text_that_is_not_utf8(self, tmp_path):
        path = parquet(tmp_path, a=[1.0], g=["route"], owl=[1])
        path.write_bytes(path.read_bytes().replace(b"route", b"r\xffute"))
        with pytest.raises(InputError, match=r"is not a readable Parquet file \(.*UTF8"):
            read(path, labels=["owl"], groups="g")

    def test_no_rows(self, tmp_path):
        path = parquet(tmp_path, a=pa.array([], pa.float32()), owl=pa.array([], pa.int8()))
        with pytest.raises(InputError, match="has columns and no rows"):
            read(path, labels=["owl"])

    def test_more_bytes_than_are_accepted(self, tmp_path, monkeypatch):
        path = parquet(tmp_path, a=np.zeros(10_000), owl=np.zeros(10_000, np.int8))
        assert path.stat().st_size < 10_000
        monkeypatch.setattr(files, "UNPACKED_LIMIT", 50_000)
        with pytest.raises(InputError, match="unpacks to 80,000 bytes, more than the 50,000"):
            read(path, labels=["owl"])

    def test_options_outweigh_what_the_file_says(self, tmp_path):
        data = MultiLabelDataset([[1.0, 0.0]], [[1, 1]], label_names=["owl", "hawk"])
        table.write_parquet(data, tmp_path / "a.parquet")
        assert read(tmp_path / "a.parquet", labels=["hawk"]).label_names == ("hawk",)

    @pytest.mark.parametrize(
        "stored", [b"{", b"3", b"[3]", b"\xff", b"[" * 100_000], ids=lambda stored: stored[:3]
    )
    def test_label_names_that_are_damaged(self, tmp_path, stored):
        broken = pa.table({"a": [1.0], "owl": [1]})
        broken = broken.replace_schema_metadata({table.LABELS_KEY: stored})
        pq.write_table(broken, tmp_path / "a.parquet")
        with pytest.raises(
            InputError, match=r"stored label names of .* are damaged; name them with labels"
        ):
            read(tmp_path / "a.parquet")

    def test_a_feature_that_is_called_group_is_no_group(self, tmp_path):
        data = MultiLabelDataset([[1.0]], [[1]], feature_names=["group"])
        table.write_parquet(data, tmp_path / "a.parquet")
        back = read(tmp_path / "a.parquet")
        assert back.groups is None
        assert back.feature_names == ("group",)

    @pytest.mark.parametrize("cells", [[[1], [2]], [{"a": 1}, {"a": 2}]])
    def test_a_label_that_is_a_list_or_a_record(self, tmp_path, cells):
        pq.write_table(pa.table({"a": [0, 1], "owl": cells}), tmp_path / "a.parquet")
        with pytest.raises(InputError, match=r"'owl' holds .*1.*2.*; labels must be 0 and 1"):
            read(tmp_path / "a.parquet", labels=["owl"])


@pytest.mark.parametrize(
    ("write", "name"), [(table.write_csv, "a.csv"), (table.write_parquet, "a.parquet")]
)
class TestWritingThatFails:
    @staticmethod
    def refuse(write, data, path, match):
        with pytest.raises(InputError, match=match):
            write(data, path)
        assert list(path.parent.iterdir()) == []

    def test_feature_and_label_of_the_same_name(self, tmp_path, write, name):
        data = MultiLabelDataset([[1.0]], [[1]], feature_names=["owl"], label_names=["owl"])
        self.refuse(write, data, tmp_path / name, "name 'owl' would be given to two columns")

    def test_empty_name(self, tmp_path, write, name):
        data = MultiLabelDataset([[1.0]], [[1]], label_names=[""])
        self.refuse(write, data, tmp_path / name, "has an empty name")

    def test_blank_group(self, tmp_path, write, name):
        data = MultiLabelDataset([[1.0]], [[1]], groups=[" "])
        self.refuse(write, data, tmp_path / name, "a blank group, which a table cannot store")

    @pytest.mark.parametrize(
        "fields",
        [
            {"label_names": ["owl\ud800"]},
            {"feature_names": ["\udfff"]},
            {"groups": ["\udc80 north"]},
            {"groups": np.array(["\udc80 north"], dtype=object)},
        ],
    )
    def test_half_of_a_surrogate_pair(self, tmp_path, write, name, fields):
        data = MultiLabelDataset([[1.0]], [[1]], **fields)
        half = r"^The name '.*\\ud[0-9a-f]{3}.*' holds an unpaired surrogate, .*[^.]\.$"
        self.refuse(write, data, tmp_path / name, half)

    def test_sparse_data_too_large_as_a_table(self, tmp_path, write, name):
        X = sp.csr_array((30_000, 30_000), dtype=np.float32)
        data = MultiLabelDataset(X, np.zeros((30_000, 1), np.uint8))
        self.refuse(
            write, data, tmp_path / name, "would take 3,600,000,000 bytes .* write npz or svmlight"
        )


def test_nul_in_a_name(tmp_path):
    data = MultiLabelDataset([[1.0]], [[1]], label_names=["owl\0"])
    with pytest.raises(InputError, match="column name holds the character NUL"):
        table.write_csv(data, tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []
    table.write_parquet(data, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").label_names == ("owl\0",)


def test_parquet_is_not_packed_twice(tmp_path):
    with pytest.raises(InputError, match="Parquet is compressed already"):
        table.write_parquet(MultiLabelDataset([[1.0]], [[1]]), tmp_path / "a.parquet.gz")
    with pytest.raises(InputError, match="Parquet is compressed already"):
        read(tmp_path / "a.parquet.gz", labels=["owl"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_reading_without_pyarrow(tmp_path, format, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r'pip install "cgmvae\[tables\]"'):
        read(csv(tmp_path, BIRDS), format=format, labels=["owl"])
