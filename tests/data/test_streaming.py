"""Files read a block at a time: the same rows, the same refusals, and no more memory."""

import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from cgmvae.data import files, readers
from cgmvae.data.columns import Columns
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.mapped import dense
from cgmvae.data.readers.table import delimited
from cgmvae.data.streaming import Blocks, open_blocks
from cgmvae.errors import InputError

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz", ".svm")


@pytest.fixture
def small_parts(monkeypatch):
    """Let CSV files be cut into parts of a few rows."""
    monkeypatch.setattr(delimited, "_SMALL_BLOCK", 128)


def survey(n_rows=50, n_features=4, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n_rows, n_features)).astype(np.float32)
    X[generator.random(X.shape) < 0.3] = 0
    X[0, 0] = np.nan
    return MultiLabelDataset(X, generator.integers(0, 2, (n_rows, 3), np.uint8))


def opened(path, dataset):
    """Open a file that holds a data set; only some formats need to be told about it."""
    options = {}
    if ".svm" in str(path):
        options = {"n_features": dataset.n_features, "n_labels": dataset.n_labels}
    return open_blocks(path, others=dataset.label_names, **options)


def read_all(blocks, n_rows=7, kinds=None):
    """Read every column, and check that the blocks are even."""
    parts = list(blocks.read(range(len(blocks.column_names)), n_rows=n_rows, kinds=kinds))
    assert all(part.shape[0] == n_rows for part in parts[:-1])
    assert 0 < parts[-1].shape[0] <= n_rows
    return parts


def write(path, text):
    Path(path).write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# --- The same rows as in one piece --------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_blocks_are_the_rows_of_the_file(tmp_path, small_parts, suffix, is_sparse):
    data = survey()
    if is_sparse:
        data = replace(data, X=sp.csr_array(data.X))
    path = tmp_path / f"a{suffix}"
    readers.write(data, path)
    for n_rows in (1, 7, 50, 1000):
        parts = read_all(opened(path, data), n_rows)
        np.testing.assert_array_equal(np.concatenate([dense(p) for p in parts]), dense(data.X))
        assert all(part.dtype == (np.float32 if suffix == ".npz" else np.float64) for part in parts)
    blocks = opened(path, data)
    assert blocks.column_names == data.feature_names
    parts = list(blocks.read([2, 0], n_rows=20))
    found = np.concatenate([dense(p) for p in parts])
    np.testing.assert_array_equal(found, dense(data.X)[:, [2, 0]])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_how_much_is_read_grows_or_is_unknown(tmp_path, small_parts, suffix):
    data = survey(400)
    readers.write(data, tmp_path / f"a{suffix}")
    blocks = opened(tmp_path / f"a{suffix}", data)
    shares = [blocks.share_read() for _ in blocks.read(range(4), n_rows=20)]
    if suffix.endswith((".gz", ".bz2")):
        assert shares == [None] * 20
    else:
        assert shares == sorted(shares)
        assert 0 <= shares[0] < shares[-1] <= 1


#: Prints the most bytes that NumPy, Python and Arrow hold while each of the files is read.
PEAKS = """
import gc, sys, tracemalloc
import pyarrow as pa
from cgmvae.data.readers.table import delimited
from cgmvae.data.streaming import open_blocks

delimited._SMALL_BLOCK = 4096
for path in sys.argv[1:]:
    blocks = open_blocks(path, others=["label0", "label1", "label2"])
    gc.collect()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    held = max(pa.total_allocated_bytes() for _ in blocks.read([0], n_rows=1000))
    print(held + tracemalloc.get_traced_memory()[1] - before)
"""


@pytest.mark.parametrize(
    ("suffix", "n_rows"),
    [
        (".csv.gz", 100_000),  # Arrow reads ahead: on busy cores some 200 KB more or less
        (".parquet", 200_000),
    ],
)
def test_memory_does_not_grow_with_the_rows(tmp_path, suffix, n_rows):
    paths = []
    for name, n in (("first", 100), ("few", n_rows), ("many", 3 * n_rows)):
        data = survey(n, n_features=1)
        data = replace(data, X=data.X.astype(np.float64))
        paths.append(tmp_path / f"{name}{suffix}")
        readers.write(data, paths[-1])
        if suffix == ".parquet":  # a dictionary of all the numbers would grow up to its limit
            pq.write_table(pq.read_table(paths[-1]), paths[-1], use_dictionary=False)
    # In a process of its own, since Python 3.11 may crash where tracing stops while Arrow's threads
    # allocate. The first file pays for imports, which would count as memory of few.
    command = [sys.executable, "-X", "tracemalloc", "-c", PEAKS, *map(str, paths)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _, few, many = map(int, printed.split())
    growth_of_features = 2 * n_rows * 8
    assert many - few < growth_of_features / 2


# --- CSV ----------------------------------------------------------------------------------------

ROWS = "".join(f"{i},{i / 2}\n" for i in range(60))


def both_ways(path):
    """Return what a CSV file says in one block and in many: its cells, or the complaint."""
    said, opener = [], partial(files.open_binary, path)
    for block in (delimited._BLOCK, 128):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(delimited, "_SMALL_BLOCK", block)
            try:
                tables = delimited.DelimitedFile(path).tables(opener)
                said.append(pa.concat_tables(tables).to_pydict())
            except InputError as error:
                said.append(str(error))
    return said


@pytest.mark.parametrize(
    "text",
    [
        f"a,b\n{ROWS}",
        f"\ufeffa,b\n{ROWS}",
        f'"a\nx",b\n{ROWS}"1\n\n""2""",3\n{ROWS}',
        f"a,b\n{ROWS}{chr(10) * 400}{ROWS}",
        f"a,b\n{ROWS}1,2,3\n{ROWS}",
        f"a,b\n{ROWS}" + '"1\n1",2\n' * 9 + f"1\n{ROWS}",
        f"a,b\n{ROWS}".encode() + b"\xff,1\n",
        f"a,b\n{ROWS}1\0,2\n",
        f'a,b\n{ROWS}1,"2\n{ROWS}',
        f'a,b\n{ROWS}1,"2\n',
        f"a,b\n{ROWS}1,{'2' * 2000}\n{ROWS}",
        f"{'a' * 2000},b\n{ROWS}",
        "a,b\n",
        "a,b\n\n\n",
    ],
    ids=str,
)
def test_a_csv_file_says_the_same_in_blocks(tmp_path, text):
    whole, in_blocks = both_ways(write(tmp_path / "a.csv", text))
    assert in_blocks == whole


def test_options_name_columns_that_are_no_features(tmp_path):
    path = write(tmp_path / "a.csv", "x1;site;a;l_b;y;l_c\n1;p;2;0;3;1\n")
    options = {"delimiter": ";", "drop": ["site"], "label_prefix": "l_", "labels": ["y"]}
    assert open_blocks(path, others=["a"], **options).column_names == ("x1",)
    assert open_blocks(path, features=["a"], others=["a"], **options).column_names == ("x1", "a")
    options = {"delimiter": ";", "drop": "site", "labels": None, "label_prefix": "l_"}
    assert open_blocks(path, **options).column_names == ("x1", "a", "y")
    options = {"delimiter": ";", "labels": "l_b"}
    assert open_blocks(path, **options).column_names == ("x1", "site", "a", "y", "l_c")
    with pytest.raises(InputError, match="'a' names more than one column; rename one"):
        open_blocks(write(tmp_path / "twice.csv", "a,a\n1,2\n"))


# --- What a cell means does not depend on its block ---------------------------------------------


def table(tmp_path, suffix, **columns):
    path = tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        rows = zip(*columns.values(), strict=True)
        write(path, "\n".join([",".join(columns), *map(",".join, rows)]))
    return path


def test_numbers_and_truths_do_not_mix_though_they_are_in_other_blocks(tmp_path, small_parts):
    path = table(tmp_path, ".csv", a=["1"] * 30 + ["true"] * 30)
    with pytest.raises(InputError, match="Not numeric: 'a'"):
        read_all(open_blocks(path))
    path = table(tmp_path, ".csv", a=["NA"] * 30 + ["true"] * 30 + ["False", "?"])
    values = np.concatenate(read_all(open_blocks(path))).ravel()
    np.testing.assert_array_equal(values, [np.nan] * 30 + [1] * 30 + [0, np.nan])


def test_categories_may_look_like_numbers(tmp_path, small_parts):
    path = table(tmp_path, ".csv", a=["1"] * 30 + ["tall"] * 3, b=["007"] * 33)
    parts = read_all(open_blocks(path), kinds={"a": "category", "b": "number"})
    assert all(isinstance(part, Columns) and part.kinds == ("category", "number") for part in parts)
    assert [cell for part in parts for cell in part.values[0]] == ["1"] * 30 + ["tall"] * 3
    assert {cell for part in parts for cell in part.values[1]} == {7.0}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (["01/02/2024"] * 20 + ["31/01/2024 06:30"], "2024-02-01"),
        (["01/02/2024"] * 20 + ["01/31/2024"], "2024-01-02"),
        (["31/01/2024"] * 20 + ["01/02/2024"] * 20, "2024-01-31"),
        (["2024-01-02"] * 20 + ["2024-01-31"], "2024-01-02"),
        (["01.02.2024"] * 20, "2024-02-01"),
    ],
)
def test_days_and_months_are_told_apart_by_the_whole_file(
    tmp_path, small_parts, suffix, days, expected
):
    path = table(tmp_path, suffix, d=days)
    parts = read_all(open_blocks(path), kinds={"d": "date"})
    found = np.concatenate([part.values[0] for part in parts])
    assert len(found) == len(days)
    assert found[0] == np.datetime64(expected)


@pytest.mark.parametrize(
    "days",
    [
        ["01/02/2024"] * 20,
        ["31/01/2024"] * 20 + ["01/31/2024"] * 20,
        ["2024-01-31"] * 20 + ["31.01.2024"] * 20,
        ["2024-01-31"] * 20 + ["soon"],
    ],
)
def test_dates_that_leave_a_doubt_are_refused(tmp_path, small_parts, days):
    path = table(tmp_path, ".csv", d=days)
    with pytest.raises(InputError, match="'d'"):
        read_all(open_blocks(path), kinds={"d": "date"})


# --- Parquet ------------------------------------------------------------------------------------


def test_columns_of_parquet_that_are_not_wanted_are_not_read(tmp_path):
    odd = pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())]))
    pq.write_table(pa.table({"a": [1, 2], "odd": odd, "b": [True, None]}), tmp_path / "a.parquet")
    (part,) = open_blocks(tmp_path / "a.parquet").read([2, 0], n_rows=9)
    np.testing.assert_array_equal(part, [[1, 1], [np.nan, 2]])


def test_a_damaged_name_of_the_groups_is_no_column(tmp_path):
    damaged = pa.table({"a": [1, 2]}).replace_schema_metadata({b"cgmvae.groups": b"\xff"})
    pq.write_table(damaged, tmp_path / "a.parquet")
    assert open_blocks(tmp_path / "a.parquet").column_names == ("a",)


def test_a_damaged_page_is_named(tmp_path):
    readers.write(survey(3000), tmp_path / "a.parquet")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[4:100] = b"\xff" * 96
    blocks = open_blocks(write(tmp_path / "a.parquet", bytes(content)))
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_all(blocks)


def test_what_unpacks_to_far_more_than_its_size_is_refused(tmp_path, monkeypatch):
    data = replace(survey(9000), X=np.zeros((9000, 4), np.float32))
    readers.write(data, tmp_path / "a.parquet")
    monkeypatch.setattr(files, "UNPACKED_LIMIT", 1000)
    assert len(read_all(open_blocks(tmp_path / "a.parquet"), 9000)) == 1
    monkeypatch.setattr(files, "_UNPACKED_FREE", 0)
    monkeypatch.setattr(files, "_UNPACKED_RATIO", 1)
    with pytest.raises(InputError, match="bytes, more than the"):
        open_blocks(tmp_path / "a.parquet")


# --- What is loaded -----------------------------------------------------------------------------


def test_npz_needs_no_labels_and_takes_any_order_and_type(tmp_path):
    X = np.arange(40, dtype=np.int16).reshape(10, 4)
    for order in "CF":
        np.savez(tmp_path / "a.npz", X=np.array(X, order=order))
        parts = read_all(open_blocks(tmp_path / "a.npz"), 3)
        np.testing.assert_array_equal(np.concatenate(parts), X)
        assert parts[0].dtype == np.float32
    with pytest.raises(InputError, match="no array 'site' to take the groups from"):
        open_blocks(tmp_path / "a.npz", groups="site")


def test_svmlight_may_hold_labels_that_the_model_does_not_know(tmp_path):
    path = write(tmp_path / "a.svm", "-1 1:1 3:2\n7 2:1\n 1:5\n")
    (block,) = open_blocks(path, n_features=3, n_labels=2).read([0, 2], n_rows=9)
    assert block.toarray().tolist() == [[1, 2], [0, 0], [5, 0]]


def test_formats_that_are_read_in_one_piece_give_blocks_too(tmp_path):
    values = np.arange(30, dtype=np.float32).reshape(10, 3)
    values[:, 0] = 1
    np.save(tmp_path / "a.npy", values)
    blocks = open_blocks(tmp_path / "a.npy", n_labels=1)
    assert type(blocks) is Blocks
    np.testing.assert_array_equal(np.concatenate(read_all(blocks, 4)), values[:, 1:])
