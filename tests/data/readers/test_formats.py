"""What holds for every format: it is chosen alike, and writes the same bytes each time."""

import numpy as np
import pytest

from cgmvae.data import readers
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.errors import InputError

DATA = MultiLabelDataset(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.uint8))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.arff.gz", "arff"),
        ("a.CSV", "csv"),
        ("a.csv.bz2", "csv"),
        ("a.libsvm", "svmlight"),
        ("a.pq", "parquet"),
        ("a.npy", "released"),
        ("a.npz", "npz"),
    ],
)
def test_the_suffix_tells(path, name):
    assert readers.choose(path).name == name


def test_a_name_comes_before_the_suffix():
    assert readers.choose("a.csv", "npz").name == "npz"
    with pytest.raises(InputError, match="no format 'excel'; choose one of arff, npz"):
        readers.choose("a.csv", "excel")


def test_a_suffix_that_tells_nothing_is_refused():
    with pytest.raises(InputError, match=r"a\.txt\.gz is not clear from its name; choose one of"):
        readers.choose("a.txt.gz")


def test_what_can_only_be_read_is_not_written(tmp_path):
    for name, format_ in (("a.npy", "released"), ("a.arff", "arff")):
        with pytest.raises(InputError, match=f"'{format_}' can only be read; write npz instead"):
            readers.write(DATA, tmp_path / name)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.svm.gz", "a.npz", "a.parquet"])
def test_the_same_data_gives_the_same_bytes_at_any_time(tmp_path, monkeypatch, name):
    written = []
    for now in (1.0e9, 1.5e9):
        monkeypatch.setattr("time.time", lambda now=now: now)
        readers.write(DATA, tmp_path / name)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
