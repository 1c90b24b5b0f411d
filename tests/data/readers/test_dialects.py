"""Tables as R, Excel, LibreOffice and pandas write them, byte for byte: read right, or refused with
the option that reads them.
"""

import gzip
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather

from cgmvae.data import read
from cgmvae.data.streaming import open_blocks
from cgmvae.errors import InputError

NAN = float("nan")

#: The table that every file below holds, in its own way.
SITES = pd.DataFrame(
    {"höhe": [0.5, 12.25, NAN], "habitat": ["Moor", "Wald, naß", "Moor"], "owl": [1, 0, 1]}
)
OWL = {"labels": ["owl"]}

R_CSV = '"","höhe","habitat","owl"\n"1",0.5,"Moor",1\n"2",12.25,"Wald, naß",0\n"3",NA,"Moor",1\n'
R_CSV2 = '"";"höhe";"habitat";"owl"\n"1";0,5;"Moor";1\n"2";12,25;"Wald, naß";0\n"3";NA;"Moor";1\n'
R_TABLE = '"höhe" "habitat" "owl"\n"1" 0.5 "Moor" 1\n"2" 12.25 "Wald, naß" 0\n"3" NA "Moor" 1\n'
EXCEL = "höhe;habitat;owl\r\n0,5;Moor;1\r\n12,25;Wald, naß;0\r\n;Moor;1\r\n"
EXCEL_TEXT = 'höhe\thabitat\towl\r\n0,5\tMoor\t1\r\n12,25\t"Wald, naß"\t0\r\n\tMoor\t1\r\n'
LIBRE_OFFICE = 'höhe,habitat,owl\n"0,5",Moor,1\n"12,25","Wald, naß",0\n,Moor,1\n'
NO_ROW_NAMES = {"drop": [""]}


def workbook() -> bytes:
    content = io.BytesIO()
    SITES.to_excel(content, index=False, engine="openpyxl")
    return content.getvalue()


def arrow() -> bytes:
    content = io.BytesIO()
    feather.write_feather(pa.Table.from_pandas(SITES, preserve_index=False), content)
    return content.getvalue()


#: File name, content, and the options that are needed besides the label.
FILES = {
    "R write.csv": ("a.csv", R_CSV.encode(), NO_ROW_NAMES),
    "R write.csv2": ("a.csv", R_CSV2.encode(), NO_ROW_NAMES),
    "R write.csv2 on Windows": (
        "a.csv",
        R_CSV2.replace("\n", "\r\n").encode("cp1252"),
        {**NO_ROW_NAMES, "encoding": "cp1252"},
    ),
    "R write.table": ("a.txt", R_TABLE.encode(), {**NO_ROW_NAMES, "format": "csv"}),
    "R write.table with tabs": ("a.tsv", R_TABLE.replace(" ", "\t").replace(",\t", ", ").encode(),
                                NO_ROW_NAMES),
    "R write.csv, gzipped": ("a.csv.gz", gzip.compress(R_CSV.encode()), NO_ROW_NAMES),
    "Excel CSV, German": ("a.csv", EXCEL.encode("cp1252"), {"encoding": "latin-1"}),
    "Excel CSV UTF-8, German": ("a.csv", EXCEL.encode("utf-8-sig"), {}),
    "Excel Unicode text": (
        "a.txt", EXCEL_TEXT.encode("utf-16"), {"format": "csv"}
    ),
    "Excel workbook": ("a.xlsx", workbook(), {}),
    "LibreOffice with commas, German": ("a.csv", LIBRE_OFFICE.encode(), {}),
    "UTF-16 without a mark": (
        "a.csv", LIBRE_OFFICE.encode("utf-16-le"), {"encoding": "utf-16-le"}
    ),
    "pandas to_csv": ("a.csv", SITES.to_csv().encode(), NO_ROW_NAMES),
    "pandas to_csv, German": (
        "a.csv", SITES.to_csv(sep=";", decimal=",", index=False).encode(), {}
    ),
    "pandas to_csv with bars": ("a.csv", SITES.to_csv(sep="|", index=False).encode(), {}),
    "pandas to_json": ("a.jsonl", SITES.to_json(orient="records", lines=True).encode(), {}),
    "pandas to_feather": ("a.feather", arrow(), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_right(tmp_path, name):
    file, content, options = FILES[name]
    path = tmp_path / file
    path.write_bytes(content)
    data = read(path, **OWL, **options)
    assert data.X.names == ("höhe", "habitat")
    np.testing.assert_array_equal(data.X.values[0], np.float32(SITES["höhe"]))
    assert data.X.values[1].tolist() == SITES["habitat"].tolist()
    assert data.Y.ravel().tolist() == [1, 0, 1]
    blocks = open_blocks(path, others=["owl"], **options)
    assert blocks.column_names == data.X.names
    (X,) = blocks.read([1, 0], n_rows=8, kinds={"habitat": "category"})
    np.testing.assert_array_equal(X.values[1], data.X.values[0])


#: What is said where the option is left out.
REFUSED = {
    "R write.csv": r"no name; name it, or drop it \(drop=\[''\]\)",
    "R write.csv2 on Windows": r"not UTF-8 text \(byte 0xf6\); .* encoding='cp1252'",
    "R write.table": r"a\.txt is not clear from its name; choose one of .*csv",
    "UTF-16 without a mark": "give encoding='utf-16-le'",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_with_the_option_that_reads_it(tmp_path, name):
    file, content, _ = FILES[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError, match=REFUSED[name]):
        read(tmp_path / file, **OWL)


def write(folder, text, name="a.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize(
    ("text", "X"),
    [
        ("a;b;owl\n1,234;2;1\n", [[1.234, 2]]),  # between semicolons a comma is a decimal mark
        ('a\tb\towl\n1,5\t"2,25"\t1\n-,5\t1e3\t0\n', [[1.5, 2.25], [-0.5, 1000]]),
        ("a;tags;owl\n0.5;2;1\n1.5;3;0\n", [[0.5, 2], [1.5, 3]]),
        ("a b,c,owl\n1,2,1\n3,4,0\n", [[1, 2], [3, 4]]),
        ('"a;b",c,owl\n1,2,1\n', [[1, 2]]),
    ],
)
def test_delimiter_and_decimal_mark_are_found(tmp_path, text, X):
    np.testing.assert_array_equal(read(write(tmp_path, text), labels=["owl"]).X, X)


def test_commas_of_label_sets_and_groups_stay(tmp_path):
    path = write(tmp_path, "x;g;tags\n1,5;2,0;1,3\n2,5;2,1;3\n3,5;2,1;1\n")
    data = read(path, label_sets="tags", separator=",", groups="g")
    assert data.label_names == ("1", "3")
    assert data.groups.tolist() == ["2,0", "2,1", "2,1"]
    assert data.X.ravel().tolist() == [1.5, 2.5, 3.5]


def test_points_of_thousands_are_refused(tmp_path):
    path = write(tmp_path, "x;y;owl\n" + "1,5;2,5;0\n" * 200 + "1.234;0,5;1\n")
    with pytest.raises(InputError, match=r"'x' holds '1\.234', but the decimal mark .* comma"):
        read(path, labels=["owl"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decimal": ";"}, r"decimal must be '\.' or ',', not ';'"),
        ({"encoding": "klingon"}, "no encoding 'klingon'; give one such as 'cp1252'"),
        ({"encoding": "base64"}, "no encoding 'base64'"),
        ({"encoding": "ascii"}, r"is not ascii text \(byte 0xc3\)"),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, "é,owl\n1,1\n"), labels=["owl"], **options)


# --- Workbooks, JSON lines, Feather -------------------------------------------------------------


def test_a_workbook_of_several_sheets_and_types(tmp_path):
    path = tmp_path / "a.xlsx"
    cells = {"day": pd.to_datetime(["2024-05-31", None]), "code": [7, "x"], "ok": [True, False]}
    with pd.ExcelWriter(path, engine="openpyxl") as book:
        pd.DataFrame({"note": ["nothing here"]}).to_excel(book, sheet_name="About")
        pd.DataFrame({**cells, "owl": [1, 0]}).to_excel(book, sheet_name="Sites", index=False)
    with pytest.raises(InputError, match="has the sheets 'About', 'Sites'; choose one"):
        read(path, **OWL)
    with pytest.raises(InputError, match="no sheet 'Birds'; there are 'About', 'Sites'"):
        read(path, **OWL, sheet="Birds")
    X = read(path, **OWL, sheet="Sites", category=["code"]).X
    assert X.kinds == ("date", "category", "number")
    assert np.isnat(X.values[0]).tolist() == [False, True]
    assert X.values[1].tolist() == ["7", "x"]


def test_lists_of_labels(tmp_path):
    lines = '{"x": 1, "tags": ["owl", "hawk"]}\n{"x": 2, "tags": []}\n{"tags": [" owl", ""]}\n'
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    data = read(path, label_sets="tags")
    assert data.label_names == ("hawk", "owl")
    assert data.Y.tolist() == [[1, 1], [0, 0], [0, 1]]
    np.testing.assert_array_equal(data.X, [[1], [2], [NAN]])
    path = write(tmp_path, lines + '{"x": 3, "tags": null}\n', "b.jsonl")
    with pytest.raises(InputError, match="'tags' has blank cells"):
        read(path, label_sets="tags")
    unknown = read(path, label_sets="tags", blank_labels="unknown").unknown
    assert unknown.sum(axis=1).tolist() == [0, 0, 0, 2]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.xlsx", "is not a readable Excel workbook"),
        ("a.feather", "is not a readable Feather file"),
    ],
)
def test_damaged_files(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, '[{"x": 1', name), **OWL)


@pytest.mark.parametrize("line", ["null", "[1]", "{", "[" * 10_000])
def test_a_line_that_is_no_object(tmp_path, line):
    path = write(tmp_path, f'{{"x": 1, "owl": 1}}\n\n{line}\n', "a.jsonl")
    with pytest.raises(InputError, match="line 3: not a JSON object; write one per line"):
        read(path, **OWL)


def test_values_of_different_types(tmp_path):
    path = write(tmp_path, '{"x": 1, "owl": 1}\n{"x": "deep", "owl": 0}\n', "a.jsonl")
    with pytest.raises(InputError, match=r"values of 'x' in .* have different types"):
        read(path, **OWL)


# --- Long tables --------------------------------------------------------------------------------

LONG = (
    "site,species,depth,habitat\n"
    "A,owl,1.5,fen\nA,hawk,1.5,fen\nB,owl,2,bog\nC,,3,fen\nD,hawk,4,bog\nB,jay,2,bog\nD,jay,4,bog\n"
)


def test_a_long_table_is_pivoted(tmp_path):
    path = write(tmp_path, LONG)
    data = read(path, long="site,species")
    assert data.label_names == ("hawk", "jay", "owl")
    assert data.Y.tolist() == [[1, 0, 1], [0, 1, 1], [0, 0, 0], [1, 1, 0]]
    assert data.X.values[0].tolist() == [1.5, 2, 3, 4]
    assert data.X.values[1].tolist() == ["fen", "bog", "fen", "bog"]
    blocks = open_blocks(path, long="site,species")
    assert blocks.column_names == ("depth", "habitat")
    (X,) = blocks.read([0], n_rows=8)
    assert X.ravel().tolist() == [1.5, 2, 3, 4]


def test_a_long_table_is_recognized(tmp_path):
    path = write(tmp_path, LONG.replace("C,,3,fen\n", ""))
    with pytest.raises(InputError, match="one row per 'site' and 'species': give long='site,sp"):
        read(path)
    with pytest.raises(InputError, match=r"one row per 'site' and 'species', so .* \(long='site,"):
        read(path, label_sets="species")
    assert read(path, label_sets="species", drop=["site", "habitat"]).n_features == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"long": "site"}, "needs two columns"),
        ({"long": "site,bird"}, "no column 'bird'"),
        (
            {"long": "site,species", "label_sets": "species"},
            "label_sets, long; 2 of them were given",
        ),
        ({"long": ["habitat", "species"]}, r"'site' differs between the rows of habitat 'fen'"),
        ({"long": "species,site"}, "'species' of a long table has blank cells"),
    ],
)
def test_long_tables_that_cannot_be_pivoted(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, LONG), **options)
