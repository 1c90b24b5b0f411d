"""Folders whose features stay on disk: written, read, unpacked from tables, refused."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.data import MultiLabelDataset, readers
from cgmvae.data import mapped as rows_on_disk
from cgmvae.data.streaming import unpack
from cgmvae.errors import InputError

from .conftest import assert_same


@pytest.fixture
def small_blocks(monkeypatch):
    """Read and write a few rows at a time."""
    monkeypatch.setattr(rows_on_disk, "BLOCK_BYTES", 100)
    monkeypatch.setattr("cgmvae.data.streaming.BLOCK_BYTES", 100)


@pytest.fixture
def full(survey, rng) -> MultiLabelDataset:
    """Return a data set with gaps, unknown labels, groups and an official split."""
    X = survey.X.astype(np.float32).copy()
    X[3, 2] = np.nan
    return replace(
        survey,
        X=X,
        unknown=rng.random(survey.Y.shape) < 0.1,
        groups=np.arange(120) // 4,
        official_split=np.arange(120) % 3,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.usefixtures("small_blocks")
def test_everything_comes_back(full, tmp_path, dtype):
    data = replace(full, X=full.X.astype(dtype))
    readers.write(data, tmp_path / "birds.mapped")
    found = readers.read(tmp_path / "birds.mapped")
    assert_same(found, data, exact=True)
    assert found.X.on_disk
    assert found.describe() == data.describe()
    assert found.name == "birds"
    assert [path.name for path in tmp_path.iterdir()] == ["birds.mapped"]


@pytest.mark.usefixtures("small_blocks")
def test_sparse_rows_and_rows_that_are_mapped_already(full, tmp_path):
    data = replace(full, X=sp.csr_array(np.where(full.X > 1, full.X, 0)), Y=sp.csr_array(full.Y))
    readers.write(data, tmp_path / "a.mapped")
    found = readers.read(tmp_path / "a.mapped")
    np.testing.assert_array_equal(np.asarray(found.X), data.X.toarray())
    readers.write(found.rows([7, 2, 9]), tmp_path / "b.mapped")
    assert_same(readers.read(tmp_path / "b.mapped"), found.rows([7, 2, 9]))


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet", "svm"])
def test_other_formats_are_written_from_it(survey, tmp_path, suffix):
    data = replace(survey, X=survey.X.astype(np.float32))
    readers.write(data, tmp_path / "a.mapped")
    readers.write(readers.read(tmp_path / "a.mapped"), tmp_path / f"from_disk.{suffix}")
    readers.write(replace(data, name="a"), tmp_path / f"direct.{suffix}")
    written = [(tmp_path / f"{name}.{suffix}").read_bytes() for name in ("from_disk", "direct")]
    assert written[0] == written[1]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.usefixtures("small_blocks")
def test_a_table_is_unpacked_as_it_is_read(full, tmp_path, suffix):
    path = tmp_path / f"birds.{suffix}"
    readers.write(full, path)
    options = {"labels": full.label_names, "blank_labels": "unknown", "groups": "group"}
    told = []
    found = unpack(path, tmp_path / "birds.mapped", progress=lambda *n: told.append(n), **options)
    assert_same(found, readers.read(path, **options), exact=True)
    assert found.X.on_disk
    rows, shares = zip(*told, strict=True)
    assert len(told) > 1
    assert (rows[-1], shares[-1]) == (full.n_samples, 1)
    assert sorted(told) == told


@pytest.mark.usefixtures("small_blocks")
def test_label_sets_of_all_rows_are_known(tmp_path):
    rows = [f"{i}.5,{'owl' if i == 99 else 'hawk;wren' if i % 2 else ''}" for i in range(100)]
    (tmp_path / "a.csv").write_text("height,seen\n" + "\n".join(rows))
    options = {"label_sets": "seen", "blank_labels": "absent"}
    found = unpack(tmp_path / "a.csv", tmp_path / "a.mapped", **options)
    assert found.label_names == ("hawk", "owl", "wren")
    assert_same(found, readers.read(tmp_path / "a.csv", **options), exact=True)


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("a,b\n1,0\nblue,1\n", {"labels": ["b"]}, "Not numeric: 'a'"),
        ("a,b\n1,0\n2,3\n", {"labels": ["b"]}, "'b' holds 3"),
        ("a,b\n1,0\n2,1\n", {"labels": ["c"]}, "no column 'c'"),
        ("a,b\n1,0\n2,1\n", {"labels": ["b"], "category": ["a"]}, "'a' is of type category"),
    ],
)
def test_a_table_that_cannot_be_unpacked_leaves_nothing(tmp_path, text, options, sentence):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=sentence):
        unpack(tmp_path / "a.csv", tmp_path / "a.mapped", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_what_is_there_is_not_replaced(survey, tmp_path):
    (tmp_path / "a.mapped").mkdir()
    with pytest.raises(InputError, match="exists"):
        readers.write(survey, tmp_path / "a.mapped")
    with pytest.raises(InputError, match="does not exist; create it first"):
        readers.write(survey, tmp_path / "nowhere" / "a.mapped")
    assert list((tmp_path / "a.mapped").iterdir()) == []


def test_label_sets_without_unknown_labels_need_no_dense_mask(tmp_path):
    n = 3000
    rows = "".join(f"{i},label {i}\n" for i in range(n))
    (tmp_path / "a.csv").write_text(f"height,seen\n{rows}")
    (tmp_path / "first.csv").write_text("height,seen\n1,a\n")
    code = """
import tracemalloc
from cgmvae.data.streaming import unpack

unpack("first.csv", "first.mapped", label_sets="seen")  # imports
before, _ = tracemalloc.get_traced_memory()
tracemalloc.reset_peak()
found = unpack("a.csv", "a.mapped", label_sets="seen")
print(*found.Y.shape, tracemalloc.get_traced_memory()[1] - before)
"""  # in a process of its own: Python 3.11 may crash where tracing stops beside Arrow's threads
    command = [sys.executable, "-X", "tracemalloc", "-c", code]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    *shape, peak = map(int, printed.stdout.split())
    assert shape == [n, n]
    assert peak < n * n  # bytes of such a mask


def damage_shape(folder):
    with (folder / "X.npy").open("r+b") as file:
        file.truncate(400)


DAMAGES = {
    "no features": (lambda folder: (folder / "X.npy").unlink(), "has no X.npy"),
    "cut off": (damage_shape, "X.npy is damaged"),
    "no array": (lambda folder: (folder / "X.npy").write_bytes(b"birds"), "X.npy is damaged"),
    "header cut off": (
        lambda folder: (folder / "X.npy").write_bytes(b"\x93NUMPY\x01\x00\x01\x00("),
        "X.npy is damaged",
    ),
    "objects": (
        lambda folder: np.save(folder / "X.npy", np.array([[None]]), allow_pickle=True),
        "Python objects in dtype",
    ),
    "whole numbers": (
        lambda folder: np.save(folder / "X.npy", np.zeros((120, 6), int)),
        "does not hold float32",
    ),
    "by columns": (
        lambda folder: np.save(folder / "X.npy", np.asfortranarray(np.zeros((120, 6)))),
        "Fortran order",
    ),
    "other rows": (
        lambda folder: np.save(folder / "X.npy", np.zeros((7, 6))),
        "has 7 rows and .* 120",
    ),
    "no names": (
        lambda folder: (folder / "features.json").write_text("[1]"),
        "not a list of names",
    ),
    "few names": (
        lambda folder: (folder / "features.json").write_text(json.dumps(["a"])),
        "1 feature names for 6",
    ),
    "no JSON": (lambda folder: (folder / "features.json").write_text("["), "not JSON"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused(survey, tmp_path, damage):
    folder = tmp_path / "a.mapped"
    readers.write(survey, folder)
    harm, sentence = DAMAGES[damage]
    harm(folder)
    with pytest.raises(InputError, match=sentence):
        readers.read(folder)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "a.mapped").write_text("birds")
    with pytest.raises(InputError, match="is a file"):
        readers.read(tmp_path / "a.mapped")


def test_rows_without_features_are_refused(survey, tmp_path):
    data = replace(survey, X=survey.X[:, :0], feature_names=())
    with pytest.raises(InputError, match="at least one feature"):
        readers.write(data, tmp_path / "a.mapped")
