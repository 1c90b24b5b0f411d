"""Tables whose columns are not all numbers: reading, the types of Parquet, writing."""

import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cgmvae.data import MultiLabelDataset, read, readers
from cgmvae.data.columns import MISSING, Columns, as_columns
from cgmvae.data.readers import write
from cgmvae.errors import InputError

BIRDS = """depth,habitat,day,notes,owl
0.5,fen,2024-05-31,an owl in the barn,1
,bog,2024-06-01,two hawks over the fen,0
NA, fen ,?,nothing seen in the rain,1
"""


def csv(folder, text=BIRDS):
    path = folder / "birds.csv"
    path.write_text(text, encoding="utf-8")
    return path


def assert_same(found, expected):
    assert found.by_name() == expected.by_name()
    for own, other in zip(found.values, expected.values, strict=True):
        np.testing.assert_array_equal(own, other)


class TestCsv:
    def test_kinds_are_guessed(self, tmp_path):
        data = read(csv(tmp_path), labels=["owl"])
        assert isinstance(data.X, Columns)
        assert data.feature_names == data.X.names == ("depth", "habitat", "day", "notes")
        assert data.X.kinds == ("number", "category", "date", "text")
        depth, habitat, day, notes = data.X.values
        assert depth.dtype == np.float64
        np.testing.assert_array_equal(depth, np.float32([0.5, np.nan, np.nan]))
        assert habitat.tolist() == ["fen", "bog", "fen"]
        assert np.isnat(day).tolist() == [False, False, True]
        assert notes[1] == "two hawks over the fen"

    def test_columns_are_told(self, tmp_path):
        path = csv(tmp_path, "code,word,day,owl\n007,fen,01.02.2024,1\n7,bog,,0\n")
        options = {"labels": ["owl"], "category": ["code"], "text": ["word"], "date": "day"}
        data = read(path, **options)
        assert data.X.kinds == ("category", "text", "date")
        assert data.X.values[0].tolist() == ["007", "7"]

    def test_known_kinds_are_kept_and_nothing_else_is_guessed(self, tmp_path):
        rows = "".join(f"id{i},{i},1\n" for i in range(9))
        path = csv(tmp_path, f"site,habitat,owl\n{rows}")
        kinds = {"habitat": "category", "elsewhere": "text"}
        data = read(path, labels=["owl"], kinds=kinds)
        assert data.X.by_name() == {"site": "text", "habitat": "category"}
        with pytest.warns(UserWarning, match="'site' has a different value"):
            data = read(path, labels=["owl"])
        assert (data.feature_names, data.X.shape) == (("habitat",), (9, 1))

    @pytest.mark.parametrize("form", ["csv", "parquet", "npz"])
    def test_identifiers_are_carried_and_written(self, tmp_path, form):
        path = csv(tmp_path, "site;depth;owl\n0,10;1,5;1\n007;2,5;0\n;3,5;1\n")
        with pytest.warns(UserWarning, match="'site', which identifies .* is blank in 1 of 3 rows"):
            data = read(path, labels=["owl"], id="site")
        assert data.feature_names == ("depth",)
        assert data.ids.tolist() == ["0,10", "007", ""]
        readers.write(data, tmp_path / f"copy.{form}")
        options = {"labels": ["owl"], "id": "id"} if form == "csv" else {}
        with warnings.catch_warnings(action="ignore"):
            copy = readers.read(tmp_path / f"copy.{form}", **options)
        assert copy.ids.tolist() == data.ids.tolist()
        assert copy.rows([1]).ids.tolist() == ["007"]
        assert copy.feature_names == ("depth",)


class TestParquet:
    def write(self, folder, **columns):
        pq.write_table(pa.table(columns), folder / "birds.parquet")
        return folder / "birds.parquet"

    def test_types_say_what_columns_hold(self, tmp_path):
        seconds = np.array(["2024-05-31T06:00", "NaT"], "datetime64[s]")
        path = self.write(
            tmp_path,
            named=pa.array(["fen", "bog"]).dictionary_encode(),
            day=pa.array(seconds.astype("datetime64[D]")),
            moment=pa.array(seconds).cast(pa.timestamp("us")),
            zone=pa.array(seconds).cast(pa.timestamp("ns", tz="Asia/Tokyo")),
            zip=["01234", "1"],
            written=["2024-05-31", None],
            blank=pa.array([None, None], pa.string()),
            owl=[1, 0],
        )
        X = read(path, labels=["owl"]).X
        assert X.kinds == ("category", *["date"] * 3, "category", "date", "number")
        assert X.values[4].tolist() == ["01234", "1"]
        for place in (2, 3):
            np.testing.assert_array_equal(X.values[place], seconds)

    def test_a_blank_column_of_text_may_be_told_to_be_numbers(self, tmp_path):
        path = self.write(tmp_path, a=[1, 2], b=pa.array([None, "NA"], pa.string()), owl=[1, 0])
        X = read(path, labels=["owl"], kinds={"a": "number", "b": "number"}).X
        np.testing.assert_array_equal(X, np.float32([[1, np.nan], [2, np.nan]]))

    def test_numbers_may_be_told_to_be_categories(self, tmp_path):
        path = self.write(tmp_path, site=[3, None], owl=[1, 0])
        X = read(path, labels=["owl"], category=["site"]).X
        assert X.values[0].tolist() == ["3", None]

    @pytest.mark.parametrize("values", [[[1], [2]], [b"a", b"b"], [{"a": 1}, {"a": 2}]])
    def test_types_of_which_nothing_is_made(self, tmp_path, values):
        path = self.write(tmp_path, odd=values, owl=[1, 0])
        with pytest.raises(InputError, match="'odd' holds cells of type"):
            read(path, labels=["owl"])

    def test_damaged_kinds(self, tmp_path):
        path = self.write(tmp_path, a=["x", "y"], owl=[1, 0])
        for kinds in ("[", json.dumps(["text"]), json.dumps({"a": "word"})):
            stored = pq.read_table(path).replace_schema_metadata({b"cgmvae.kinds": kinds})
            pq.write_table(stored, tmp_path / "other.parquet")
            with pytest.raises(InputError, match="stored column types"):
                read(tmp_path / "other.parquet", labels=["owl"])


CELLS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9)
CATEGORIES = st.none() | CELLS.map(str.strip).filter(lambda text: text not in MISSING)
MOMENTS = st.datetimes().map(lambda moment: moment.replace(microsecond=0))


class TestWriting:
    def dataset(self):
        X = as_columns(
            {
                "depth": np.float32([0.5, np.nan, 2]),
                "habitat": ['a "fen", wet', None, "bog\nland"],
                "moment": ["2024-05-31 06:30", None, "2024-06-01"],
                "day": ["2024-05-31", None, "2024-06-01"],
                "notes": ["an owl in the barn", None, "fen"],
            },
            {"notes": "text"},
        )
        return MultiLabelDataset(X, [[1], [0], [1]], label_names=["owl"], groups=["a", "a", "b"])

    def test_parquet_keeps_kinds(self, tmp_path):
        data, path = self.dataset(), tmp_path / "birds.parquet"
        write(data, path)
        back = read(path)
        assert_same(back.X, data.X)
        assert back.groups.tolist() == ["a", "a", "b"]
        assert read(path, kinds={"notes": "category"}).X.kinds[-1] == "category"

    def test_csv_keeps_values(self, tmp_path):
        data, path = self.dataset(), tmp_path / "birds.csv"
        write(data, path)
        back = read(path, labels=["owl"], groups="group", text=["notes"])
        assert_same(back.X, data.X)
        assert ",2024-05-31," in path.read_text(encoding="utf-8")

    @settings(max_examples=40)
    @given(st.lists(st.tuples(CATEGORIES, st.none() | MOMENTS), min_size=1, max_size=6))
    def test_anything_that_is_no_number_is_kept(self, tmp_path_factory, rows):
        cells = {"c": [row[0] for row in rows], "d": np.array([row[1] for row in rows], "M8[s]")}
        X = as_columns(cells, {"c": "category"})
        data = MultiLabelDataset(X, np.zeros((len(rows), 1)), label_names=["owl"])
        folder = tmp_path_factory.mktemp("kept")
        write(data, folder / "a.parquet")
        write(data, folder / "a.csv")
        assert_same(read(folder / "a.parquet").X, X)
        back = read(folder / "a.csv", labels=["owl"], category=["c"], date=["d"])
        assert_same(back.X, X)

    @pytest.mark.parametrize("name", ["a.npz", "a.svm", "a.mapped"])
    def test_formats_of_numbers_refuse(self, tmp_path, name):
        with pytest.raises(InputError, match=r"holds only numbers, but the column 'habitat' is of"):
            write(self.dataset(), tmp_path / name)
        assert list(tmp_path.iterdir()) == []

    def test_half_of_a_surrogate_pair(self, tmp_path):
        X = as_columns({"c": ["\ud800", "a"]})
        with pytest.raises(InputError, match="unpaired surrogate"):
            write(MultiLabelDataset(X, [[1], [0]]), tmp_path / "a.csv")
        assert list(tmp_path.iterdir()) == []
