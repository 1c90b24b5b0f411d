import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cgmvae.data import files, read
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.readers import npz
from cgmvae.data.readers.conventions import COLUMNS_LIMIT
from cgmvae.errors import InputError

from .conftest import assert_same, datasets

NAMES = st.text(max_size=8).filter(lambda name: not name.endswith("\0"))


DATASETS = datasets(
    NAMES,
    dtypes=(np.float32, np.float64),
    min_features=0,
    groups=lambda n: hnp.arrays(np.int64, n) | hnp.arrays("U2", n),
    official_split=lambda n: hnp.arrays(np.uint8, n, elements=st.integers(0, 2)),
)


def archive(folder: Path, **arrays) -> Path:
    path = folder / "a.npz"
    np.savez_compressed(path, **arrays)
    return path


def csr_parts(key: str, matrix) -> dict[str, np.ndarray]:
    matrix = sp.csr_array(matrix)
    return {
        f"{key}_data": matrix.data,
        f"{key}_indices": matrix.indices,
        f"{key}_indptr": matrix.indptr,
        f"{key}_shape": np.array(matrix.shape),
    }


def archive_of_members(folder: Path, **members: bytes) -> Path:
    path = folder / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for key, content in members.items():
            file.writestr(f"{key}.npy", content)
    return path


def npy(array, *, shape=None, allow_pickle=False) -> bytes:
    """Return an array as a .npy file, whose header may state another shape."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    if shape is None:
        return buffer.getvalue()
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": array.dtype.str, "fortran_order": False, "shape": shape}
    )
    return header.getvalue() + array.tobytes()


X = np.array([[0.5, 0.0], [2.0, np.nan], [0.0, 1.0]], dtype=np.float32)
Y = np.array([[1, 0], [255, 1], [0, 0]], dtype=np.uint8)


@settings(max_examples=30, deadline=None)
@given(data=DATASETS)
def test_round_trip_is_exact(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("round") / "birds.npz"
    npz.write(data, path)
    back = read(path)
    assert_same(back, data, exact=True)
    assert back.name == "birds"
    assert [file.name for file in path.parent.iterdir()] == ["birds.npz"]


def test_numpy_reads_what_is_written(tmp_path):
    data = MultiLabelDataset(X, Y % 255, unknown=Y == 255, groups=["a", "b", "b"])
    npz.write(data, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {"X", "Y", "label_names", "feature_names", "group"}
        np.testing.assert_array_equal(arrays["Y"], Y)
        np.testing.assert_array_equal(arrays["X"], X)


def test_writing_leaves_no_explicit_pickle(tmp_path):
    data = MultiLabelDataset(X, Y % 255, groups=np.array(["a", "bc", "b"], dtype=object))
    npz.write(data, tmp_path / "a.npz")
    assert read(tmp_path / "a.npz").groups.tolist() == ["a", "bc", "b"]


def test_unsorted_indices_are_the_same_matrix(tmp_path):
    parts = csr_parts("X", [[1.0, 2.0], [0.0, 3.0]])
    parts["X_data"][:2] = parts["X_data"][1::-1].copy()
    parts["X_indices"][:2] = parts["X_indices"][1::-1].copy()
    data = read(archive(tmp_path, Y=Y[:2], **parts))
    assert data.X.toarray().tolist() == [[1.0, 2.0], [0.0, 3.0]]


def test_names_as_bytes(tmp_path):
    names = np.array(["owl", "café"]).astype("U")
    data = read(archive(tmp_path, X=X, Y=Y, label_names=np.char.encode(names, "utf-8")))
    assert data.label_names == ("owl", "café")


def test_groups_of_another_key(tmp_path):
    path = archive(tmp_path, X=X, Y=Y, route=np.array([7, 7, 9]))
    assert read(path, groups="route").groups.tolist() == [7, 7, 9]
    assert read(path, name="birds").groups is None


@pytest.mark.parametrize("key", ["X", "Y"])
def test_missing_matrix(tmp_path, key):
    arrays = {"X": X, "Y": Y}
    del arrays[key]
    with pytest.raises(InputError, match=f"has no array '{key}' and no sparse {key}_data"):
        read(archive(tmp_path, **arrays))


def test_missing_part_of_a_sparse_matrix(tmp_path):
    parts = csr_parts("X", X)
    del parts["X_indices"], parts["X_shape"]
    with pytest.raises(InputError, match="has a sparse X without X_indices, X_shape"):
        read(archive(tmp_path, Y=Y, **parts))


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("indptr", [0, 3, 2, 4], "is malformed"),
        ("indices", [0, 9, 1, 1], "is malformed"),
        ("indices", [0, 0, 0, 1], "two values for the same cell"),
        ("indices", [0.0, 0.0, 1.0, 1.0], "not integers"),
        ("data", ["a", "b", "c", "d"], "is malformed|must be numbers"),
        ("shape", [3], "states the shape"),
        ("shape", [3, COLUMNS_LIMIT + 1], f"at most {COLUMNS_LIMIT:,} columns"),
        ("shape", [2**40, 2], "is malformed"),
    ],
)
def test_malformed_sparse_matrix(tmp_path, part, value, message):
    parts = csr_parts("X", X)
    assert parts["X_indices"].tolist() == [0, 0, 1, 1]
    parts[f"X_{part}"] = np.array(value)
    with pytest.raises(InputError, match=message):
        read(archive(tmp_path, Y=Y, **parts))


def test_python_objects_are_refused(tmp_path):
    objects = npy(np.array([{}, 1], dtype=object), allow_pickle=True)
    path = archive_of_members(tmp_path, X=npy(X), Y=npy(Y), label_names=objects)
    with pytest.raises(InputError, match=r"'label_names' of .* holds Python objects"):
        read(path)


@pytest.mark.parametrize("shape", [(10**6, 10**6), (4, 2), (2, 2), (-3, -2), (0, 10**30)])
def test_header_that_states_another_size(tmp_path, shape):
    path = archive_of_members(tmp_path, X=npy(X, shape=shape), Y=npy(Y))
    with pytest.raises(InputError, match=r"'X' of .* states .* bytes and holds \d+; fetch"):
        read(path)


def test_text_of_no_width_cannot_state_any_number_of_rows(tmp_path):
    names = npy(np.array([], dtype="<U0"), shape=(10**15,))
    path = archive_of_members(tmp_path, X=npy(X), Y=npy(Y), label_names=names)
    with pytest.raises(InputError, match=r"states [\d,]+ bytes and holds 0"):
        read(path)


def test_the_arrays_count_together(tmp_path, monkeypatch):
    path = archive(tmp_path, X=np.zeros((100, 1), np.float32), Y=np.zeros((100, 4), np.uint8))
    monkeypatch.setattr(files, "UNPACKED_LIMIT", 800)
    with pytest.raises(InputError, match="bytes, more than the 800 that are accepted"):
        read(path)


def test_member_that_unpacks_to_more_than_the_archive_states(tmp_path):
    path = archive_of_members(tmp_path, X=npy(X), Y=npy(Y) + bytes(10**6))
    content = bytearray(path.read_bytes())
    true_size = (len(npy(Y)) + 10**6).to_bytes(4, "little")
    for match in re.finditer(re.escape(true_size), bytes(content)):
        content[match.start() : match.end()] = len(npy(Y)).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"'Y' of .* is damaged"):
        read(path)


def test_what_is_not_as_expected(tmp_path):
    path = archive(tmp_path, X=X, Y=Y, label_names=np.array([["owl", "hawk"]]))
    with pytest.raises(InputError, match="has no array 'route' to take the groups from"):
        read(path, groups="route")
    with pytest.raises(InputError, match=r"'label_names' of .* must be a list of names"):
        read(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="is a damaged or incomplete archive; fetch the file"):
        read(path)
    path.write_text("owl,hawk\n1,0\n")
    with pytest.raises(InputError, match="is not an npz archive"):
        read(path)


def test_every_flipped_byte_is_either_harmless_or_an_input_error(tmp_path):
    path = archive(tmp_path, X=X, Y=Y, label_names=np.array(["owl", "hawk"]))
    content = path.read_bytes()
    refused = 0
    for i in range(len(content)):
        path.write_bytes(content[:i] + bytes([content[i] ^ 0x55]) + content[i + 1 :])
        try:
            read(path)
        except InputError:
            refused += 1
    assert refused > len(content) / 2


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("key", ["label_names", "group"])
def test_text_that_is_no_text(tmp_path, order, key):
    text = np.array([0x110000, 0x61], f"{order}u4").view(f"{order}U1")
    with pytest.raises(InputError, match=f"'{key}' of .* is damaged .*invalid character"):
        read(archive(tmp_path, X=X, Y=Y, **{key: text}))


def refuse_to_write(data: MultiLabelDataset, path: Path, match: str) -> None:
    with pytest.raises(InputError, match=match):
        npz.write(data, path)
    assert list(path.parent.iterdir()) == []


def test_name_that_numpy_would_shorten(tmp_path):
    data = MultiLabelDataset(X, Y % 255, label_names=["owl", "owl\0"])
    refuse_to_write(data, tmp_path / "a.npz", "ends in the character NUL")


def test_groups_of_several_kinds(tmp_path):
    data = MultiLabelDataset(X, Y % 255, groups=np.array(["a", None, 3], dtype=object))
    refuse_to_write(data, tmp_path / "a.npz", "Python objects of several types")


def test_packing_twice(tmp_path):
    refuse_to_write(MultiLabelDataset(X, Y % 255), tmp_path / "a.npz.gz", "compressed already")
