"""Tables as people have them: blank rows, marks, cover codes, units, spellings, identifiers."""

import json
import warnings

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from cgmvae.data import readers
from cgmvae.data.columns import Columns
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.streaming import open_blocks, unpack
from cgmvae.errors import InputError


def put(folder, text, name="a.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def read(folder, text, **options):
    return readers.read(put(folder, text), **options)


# --- Rows ---------------------------------------------------------------------------------------

ROWS = [(1.5, "fen", 1), (None, "", None), (2.5, "bog", 0), (None, None, None)]


def written(folder, suffix):
    """Write two rows and two blank ones."""
    path = folder / f"a{suffix}"
    names = ["depth", "habitat", "owl"]
    table = pa.table([pa.array(cells) for cells in zip(*ROWS, strict=True)], names)
    if suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in (names, *ROWS):
            book.active.append(row)
        book.save(path)
    elif suffix == ".csv":
        put(folder, "depth,habitat,owl\n1.5,fen,1\n, ,\n2.5,bog,0\n,,\n")
    elif suffix == ".jsonl":
        lines = (dict(zip(names, row, strict=True)) for row in ROWS[:3])
        path.write_text("\n".join([*map(json.dumps, lines), "{}"]))
    elif suffix == ".parquet":
        pq.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".xlsx", ".jsonl", ".parquet", ".feather"])
def test_blank_rows_are_left_out_and_counted(tmp_path, suffix):
    path = written(tmp_path, suffix)
    with pytest.warns(UserWarning, match="2 of the 4 rows of .* are entirely blank") as caught:
        data = readers.read(path, labels=["owl"])
    assert len(caught) == 1
    assert data.Y.ravel().tolist() == [1, 0]
    with pytest.warns(UserWarning, match="2 of the 4 rows of .* are entirely blank") as caught:
        (block,) = open_blocks(path, others=["owl"]).read([0], n_rows=9)
    assert len(caught) == 1
    assert block.ravel().tolist() == [1.5, 2.5]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_blank_rows_are_left_out_of_mapped_folders(tmp_path, suffix):
    path = written(tmp_path, suffix)
    with pytest.warns(UserWarning, match="2 of the 4 rows") as caught:
        data = unpack(path, tmp_path / "a.mapped", labels=["owl"], drop=["habitat"])
    assert len(caught) == 1
    assert np.asarray(data.X).ravel().tolist() == [1.5, 2.5]


def test_a_parquet_row_is_not_blank_because_its_features_are(tmp_path):
    data = MultiLabelDataset([[np.nan], [2.0]], [[1], [0]], feature_names=["a"])
    readers.write(data, tmp_path / "a.parquet")
    (block,) = open_blocks(tmp_path / "a.parquet", others=data.label_names).read([0], n_rows=9)
    np.testing.assert_array_equal(block, data.X)


def test_a_table_of_blank_rows_has_no_rows(tmp_path):
    with pytest.raises(InputError, match="has columns and no rows"):
        read(tmp_path, "a,owl\n,\n,\n", labels=["owl"])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "", " "], "'site', which identifies the rows, is blank in 2 of 3 rows;"),
        (["a", "b", "a"], "'site', which identifies the rows, repeats 'a';"),
        (["a", "a", ""], "is blank in 1 of 3 rows and repeats 'a';"),
    ],
)
def test_blank_and_repeated_identifiers_are_warned_of(tmp_path, ids, message):
    text = "site,depth,owl\n" + "".join(f"{each},{i},1\n" for i, each in enumerate(ids))
    with pytest.warns(UserWarning, match=message):
        read(tmp_path, text, labels=["owl"], id="site")
    with pytest.warns(UserWarning, match=message):
        unpack(tmp_path / "a.csv", tmp_path / "a.mapped", labels=["owl"], id="site")


def test_one_column_may_be_identifier_and_group(tmp_path):
    text = "site,depth,owl\na,1,1\nb,2,0\na,3,1\n"
    data = read(tmp_path, text, labels=["owl"], id="site", groups="site")
    assert data.ids.tolist() == data.groups.tolist() == ["a", "b", "a"]
    assert data.feature_names == ("depth",)
    found = unpack(
        tmp_path / "a.csv", tmp_path / "a.mapped", labels=["owl"], id="site", groups="site"
    )
    assert found.ids.tolist() == found.groups.tolist() == ["a", "b", "a"]


# --- Labels -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["x", "", "X", ""], [1, 0, 1, 0]),
        (["yes", "no", "Yes", "NO"], [1, 0, 1, 0]),
        (["y", "n", "n", "y"], [1, 0, 0, 1]),
        (["present", "absent", "Absent", "present"], [1, 0, 0, 1]),
        (["x", "0", "1", "x"], [1, 0, 1, 1]),
    ],
)
def test_words_and_marks_are_labels(tmp_path, cells, labels):
    text = "depth,owl\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells))
    data = read(tmp_path, text, labels=["owl"])
    assert data.Y.ravel().tolist() == labels
    assert data.unknown is None


def test_what_a_blank_means_is_asked_unless_there_are_only_marks(tmp_path):
    text = "depth,owl,jay\n1,x,\n2,,\n"
    assert read(tmp_path, text, label_count=-2).Y.tolist() == [[1, 0], [0, 0]]
    found = read(tmp_path, text, label_count=-2, blank_labels="unknown").unknown
    assert found.tolist() == [[False, True], [True, True]]
    with pytest.raises(InputError, match="'owl' has blank cells; give blank_labels='absent'"):
        read(tmp_path, "depth,owl\n1,yes\n2,\n3,no\n", labels=["owl"])


def test_cover_codes_are_presence(tmp_path):
    cells = ["r", "+", "1", "2a", "0", ".", "-", "5", "", "0.0"]
    text = "depth,owl\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells))
    options = {"labels": ["owl"], "blank_labels": "absent"}
    data = read(tmp_path, text, counts="presence", **options)
    assert data.Y.ravel().tolist() == [1, 1, 1, 1, 0, 0, 0, 1, 0, 0]
    with pytest.raises(InputError, match=r"holds 'r', '\+', '1'; .* give counts='presence'"):
        read(tmp_path, text, **options)


def test_label_sets_with_another_separator_are_refused_with_it(tmp_path):
    text = "depth,crops\n1,corn|grain\n2,corn\n3,grain|rice\n"
    with pytest.raises(
        InputError, match=r"2 of 3 hold '\|', such as 'corn\|grain'; give sepa"
    ) as e:
        read(tmp_path, text, label_sets="crops")
    assert "separator='|'" in str(e.value)
    assert read(tmp_path, text, label_sets="crops", separator="|").n_labels == 3
    assert read(tmp_path, text, label_sets="crops", separator=";").n_labels == 3
    names = 'depth,name\n1,"Doe, Jo"\n2,"Roe, Al"\n'
    assert read(tmp_path, names, label_sets="name").label_names == ("Doe, Jo", "Roe, Al")


# --- Features -----------------------------------------------------------------------------------


def test_codes_of_missing_values(tmp_path):
    text = "depth,habitat,owl\n1,fen,1\n-9999,-9999,0\n-9999.0,none,1\n"
    with pytest.warns(UserWarning, match="-9999, .* is in 'depth'; .* give missing='-9999'"):
        read(tmp_path, text, labels=["owl"])
    with warnings.catch_warnings(action="error"):
        data = read(tmp_path, text, labels=["owl"], missing=["-9999", "none"])
    assert isinstance(data.X, Columns)
    np.testing.assert_array_equal(data.X.values[0], [1, np.nan, np.nan])
    assert data.X.values[1].tolist() == ["fen", None, None]
    blocks = open_blocks(tmp_path / "a.csv", others=["owl"], missing=["-9999", "none"])
    (block,) = blocks.read([0], n_rows=9)
    np.testing.assert_array_equal(block.ravel(), [1, np.nan, np.nan])
    table = pa.table({"depth": [1, -9999], "owl": [1, -9999]})
    pq.write_table(table, tmp_path / "a.parquet")
    data = readers.read(
        tmp_path / "a.parquet", labels=["owl"], missing=["-9999"], blank_labels="unknown"
    )
    np.testing.assert_array_equal(data.X, [[1], [np.nan]])
    assert data.unknown.tolist() == [[False], [True]]


@pytest.mark.parametrize("unit", ["°C", " m", "%", " km/h", "m²"])
def test_numbers_with_units_are_warned_of(tmp_path, unit):
    cells = [f"{i}.3{unit}" for i in range(5)] * 4
    text = "depth,owl\n" + "".join(f"{cell},1\n" for cell in cells)
    with pytest.warns(UserWarning, match="'depth' is read as categories .* look like numbers"):
        assert read(tmp_path, text, labels=["owl"]).X.kinds == ("category",)
    text = "size,depth,owl\n" + "".join(f"{i},{i}.3{unit},1\n" for i in range(20))
    with pytest.warns(UserWarning, match="different value in almost .* look like numbers"):
        read(tmp_path, text, labels=["owl"])


def test_codes_are_no_numbers_with_units(tmp_path):
    text = "depth,owl\n" + "".join(f"{code},1\n" for code in ["1a", "1b", "2a", "2b"] * 4)
    assert read(tmp_path, text, labels=["owl"]).X.kinds == ("category",)


@pytest.mark.parametrize("name", ["id", "site_id", "plotID", "Plot Nr", "index"])
def test_numeric_identifiers_are_set_aside(tmp_path, name):
    text = f"{name},depth,owl\n" + "".join(f"{70 + i},{i % 3},1\n" for i in range(9))
    with pytest.warns(UserWarning, match=f"'{name}' has a different whole number in every row"):
        data = read(tmp_path, text, labels=["owl"])
    assert data.feature_names == ("depth",)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("humidity", range(9)),
        ("site_id", [1] * 9),
        ("site_id", np.arange(9) / 2),
        ("grid", range(9)),
    ],
)
def test_other_numbers_stay(tmp_path, name, numbers):
    text = f"{name},depth,owl\n" + "".join(f"{each},{each},1\n" for each in numbers)
    assert read(tmp_path, text, labels=["owl"]).feature_names == (name, "depth")


def test_spellings_of_a_category_are_pointed_out(tmp_path):
    cells = ["Forest", "forest ", "FOREST", "fen"] * 4
    text = "habitat,owl\n" + "".join(f"{cell},1\n" for cell in cells)
    with pytest.warns(UserWarning, match="'Forest', 'forest', 'FOREST', which differ only in case"):
        data = read(tmp_path, text, labels=["owl"])
    assert set(data.X.values[0]) == {"Forest", "forest", "FOREST", "fen"}
