"""The authors' matrices: columns, index files, and bad input."""

import gzip
import io

import numpy as np
import pytest

from cgmvae.data import readers
from cgmvae.data.dataset import TEST, TRAIN, VALIDATION
from cgmvae.errors import InputError

TABLE = np.array(
    [[9, 7, 1, 0, 0.5, 2, -1], [9, 8, 0, 1, 0.25, 3, -2], [9, 9, 1, 1, 0.1, 4, -3]], dtype=float
)


def put(folder, table=TABLE, name="birds_data.npy", **indices):
    np.save(folder / name, table)
    for part, rows in indices.items():
        np.save(folder / f"birds_{part}_idx.npy", np.array(rows))
    return folder / name


def read(path, **options):
    return readers.read(path, **{"n_labels": 2, "meta_offset": 2, **options})


def test_columns_are_skipped_then_labels_then_features(tmp_path):
    data = read(put(tmp_path))
    assert data.Y.tolist() == [[1, 0], [0, 1], [1, 1]]
    np.testing.assert_array_equal(data.X, TABLE[:, 4:].astype(np.float32))
    assert (data.X.dtype, data.Y.dtype, data.name) == (np.float32, np.uint8, "birds")
    assert data.official_split is None
    assert read(tmp_path / "birds_data.npy", name="b").name == "b"


@pytest.mark.parametrize("table", [np.asfortranarray(TABLE), TABLE.astype(">f4")])
def test_other_layouts_of_the_same_numbers(tmp_path, table):
    data = read(put(tmp_path, table))
    np.testing.assert_array_equal(data.X, TABLE[:, 4:].astype(np.float32))


def test_nan_is_missing_in_a_feature_and_unknown_in_a_label(tmp_path):
    table = TABLE.copy()
    table[0, 2] = table[1, 5] = np.nan
    data = read(put(tmp_path, table))
    assert np.argwhere(data.unknown).tolist() == [[0, 0]]
    assert np.argwhere(np.isnan(data.X)).tolist() == [[1, 1]]


@pytest.mark.parametrize("name", ["birds_data.npy", "birds.npy"])
def test_index_files_beside_are_the_official_split(tmp_path, name):
    data = read(put(tmp_path, name=name, train=[2], val=[0], test=[1]))
    assert data.official_split.tolist() == [VALIDATION, TEST, TRAIN]


def test_rows_in_no_index_are_left_out_and_counted(tmp_path):
    path = put(tmp_path, train=[2], test=[0])
    with pytest.warns(UserWarning, match="1 of the 3 rows of .* are in none of its train"):
        data = read(path)
    assert data.official_split.tolist() == [TEST, TRAIN]
    np.testing.assert_array_equal(data.X, TABLE[[0, 2], 4:].astype(np.float32))
    assert data.Y.tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (
            {"train": [0, 1], "test": [1, 2]},
            "test index of .* holds a row twice, or one of another",
        ),
        ({"train": [0, 0, 1, 2]}, "train index of .* holds a row twice"),
        ({"train": [0, 1, 3]}, "birds_train_idx.npy holds the row 3, but the rows are 0 to 2"),
        ({"train": [0, 1], "val": [-1]}, "birds_val_idx.npy holds the row -1"),
        ({"train": [0.0, 1.0, 2.0]}, "must be a flat list of integer row indices"),
        ({"train": [[0], [1], [2]]}, "must be a flat list of integer row indices"),
    ],
)
def test_bad_indices_are_refused(tmp_path, indices, message):
    path = put(tmp_path, **indices)
    with pytest.raises(InputError, match=message):
        read(path)


@pytest.mark.parametrize(
    "options", [{"n_labels": 5}, {"n_labels": 0}, {"meta_offset": -1}, {"meta_offset": 9}]
)
def test_columns_that_do_not_fit_are_refused(tmp_path, options):
    with pytest.raises(
        InputError, match=r"do not fit the 7 columns .* check meta_offset and n_labels"
    ):
        read(put(tmp_path), **options)


def test_labels_that_are_not_0_or_1_are_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"Label column 0 of .* holds 9 in row 0.*check meta_offset"
    ):
        read(put(tmp_path), meta_offset=0)


@pytest.mark.parametrize(
    "table", [np.zeros(4), np.zeros((2, 2, 2)), np.zeros((0, 7)), np.float64(3)]
)
def test_anything_but_a_table_with_rows_is_refused(tmp_path, table):
    with pytest.raises(InputError, match="two dimensions and at least one row"):
        read(put(tmp_path, table))


@pytest.mark.parametrize(
    "table", [np.array([[{}, 1]], dtype=object), np.array([["a", "b"]]), np.array([[1j, 2]])]
)
def test_anything_but_numbers_is_refused(tmp_path, table):
    with pytest.raises(InputError, match="numbers"):
        read(put(tmp_path, table))


@pytest.mark.parametrize("change", [lambda data: data[:-8], lambda data: data + b"12345678"])
def test_a_file_of_another_length_than_it_states_is_refused(tmp_path, change):
    path = put(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=r"states 168 bytes and holds 1(60|76)"):
        read(path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_header_that_states_far_too_much_is_refused(tmp_path, suffix):
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (3 * 10**12, 7)}
    np.lib.format.write_array_header_1_0(file, header)
    content = file.getvalue() + TABLE.tobytes()
    path = tmp_path / f"birds_data.npy{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(InputError, match="states 168,000,000,000,000 bytes and holds 168;"):
        read(path)


def with_header(text):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"not an array",
            b"\x93NUMPY",
            b"\x93NUMPY\x07\x00rest",
            with_header(b"{'descr': '''|b1'}"),
        ),
        *(with_header(b"("), with_header(b"{[]: 1}"), with_header(b"\0"), with_header(b"1 2")),
    ],
)
def test_anything_but_an_npy_file_is_refused(tmp_path, content):
    path = tmp_path / "birds_data.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"birds_data\.npy is not an .npy file"):
        read(path)
