"""What is written as ARFF, and what a failure leaves behind."""

import bz2
import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cgmvae.data import files, readers
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.mapped import dense
from cgmvae.data.readers import arff
from cgmvae.data.readers.arff import text
from cgmvae.errors import InputError

TEXT = st.text(
    st.one_of(
        st.sampled_from(" ,'\"\\{}%?@\t\n\r=-éλ漢\x85\xa0\u2028😀"),
        st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"),
    ),
    max_size=6,
)


@st.composite
def datasets(draw):
    n, n_features, n_labels = (
        draw(st.integers(1, 5)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
    )
    names = draw(
        st.lists(TEXT, min_size=n_features + n_labels, max_size=n_features + n_labels, unique=True)
    )
    floats = st.floats(width=32, allow_infinity=False)
    X = draw(hnp.arrays(np.float32, (n, n_features), elements=floats, fill=st.just(0)))
    Y = draw(hnp.arrays(np.uint8, (n, n_labels), elements=st.integers(0, 1)))
    unknown = draw(hnp.arrays(bool, (n, n_labels)))
    if draw(st.booleans()):
        X = sp.csr_array(X)
    if draw(st.booleans()):
        Y = sp.csr_array(Y)
    return MultiLabelDataset(
        X, Y, names[n_features:], names[:n_features], unknown=unknown, name=draw(TEXT) + " -C 1"
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(data=datasets())
def test_writing_and_reading_give_the_same(tmp_path, data):
    arff.write(data, tmp_path / "toy.arff")
    back = arff.read(tmp_path / "toy.arff")
    assert back.label_names == data.label_names
    assert back.feature_names == data.feature_names
    assert sp.issparse(back.X) == sp.issparse(data.X)
    np.testing.assert_array_equal(dense(back.X), dense(data.X))
    np.testing.assert_array_equal(dense(back.targets()), dense(data.targets()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.arff", "toy.xml"]


def test_the_written_text(tmp_path):
    data = MultiLabelDataset(
        [[0.1, np.nan], [2, 0]], [[1, 0], [0, 1]], ["o'wl", "hawk"], ["a b", "c"], name="birds"
    )
    data = MultiLabelDataset(
        data.X.astype(np.float32), data.Y, data.label_names, data.feature_names
    )
    arff.write(data, tmp_path / "toy.arff")
    head = (
        "@relation data\n\n@attribute 'a b' numeric\n@attribute c numeric\n"
        "@attribute 'o\\'wl' {0,1}\n@attribute hawk {0,1}\n\n@data\n"
    )
    assert (tmp_path / "toy.arff").read_text() == f"{head}0.1,?,1,0\n2.0,0.0,0,1\n"
    assert '<label name="o\'wl"></label>' in (tmp_path / "toy.xml").read_text()
    sparse = MultiLabelDataset(
        sp.csr_array(data.X), data.Y, data.label_names, data.feature_names, [[0, 0], [1, 0]]
    )
    arff.write(sparse, tmp_path / "toy.arff")
    assert (tmp_path / "toy.arff").read_text() == head + "{0 0.1,1 ?,2 1}\n{0 2.0,2 ?,3 1}\n"


def test_stored_zeros_and_unsorted_cells_are_written_in_order_without_zeros(tmp_path):
    X = sp.csr_array(
        (np.array([3.0, 0.0, 2.0]), np.array([2, 1, 0]), np.array([0, 3])), shape=(1, 3)
    )
    arff.write(MultiLabelDataset(X, [[1]]), tmp_path / "toy.arff")
    assert (tmp_path / "toy.arff").read_text().endswith("@data\n{0 2.0,2 3.0,3 1}\n")
    assert X.indices.tolist() == [2, 1, 0]


@pytest.mark.parametrize(("suffix", "unpack"), [(".gz", gzip.decompress), (".bz2", bz2.decompress)])
def test_a_compressed_file_is_written_compressed(tmp_path, suffix, unpack):
    path = tmp_path / f"toy.arff{suffix}"
    arff.write(MultiLabelDataset([[1.5]], [[1]]), path)
    assert unpack(path.read_bytes()).startswith(b"@relation data\n")
    assert (tmp_path / "toy.xml").exists()
    assert arff.read(path).X.tolist() == [[1.5]]


def test_the_written_batches_join(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(text, "_BATCH", 3)
    data = MultiLabelDataset(rng.normal(size=(8, 2)).astype(np.float32), rng.integers(0, 2, (8, 2)))
    arff.write(data, tmp_path / "toy.arff")
    np.testing.assert_array_equal(arff.read(tmp_path / "toy.arff").X, data.X)


def test_a_failed_write_leaves_everything_as_it_was(tmp_path, put, monkeypatch):
    path = put("before", labels=["before"])
    old = (tmp_path / "toy.xml").read_bytes()

    def fail(*_):
        raise RuntimeError("disk")

    monkeypatch.setattr(text, "_row_texts", fail)
    with pytest.raises(RuntimeError, match="disk"):
        arff.write(MultiLabelDataset([[1.0]], [[1]]), path)
    assert path.read_text() == "before"
    assert (tmp_path / "toy.xml").read_bytes() == old
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy.arff", "toy.xml"]


@pytest.mark.parametrize("part", [".xml", ".arff"])
@pytest.mark.parametrize("step", ["_flush_to_disk", "replace"])
def test_a_file_that_cannot_be_put_in_place_leaves_both_as_they_were(
    tmp_path, put, monkeypatch, part, step
):
    path = put("before", labels=["before"])
    old = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    owner = files if step == "_flush_to_disk" else Path
    real = getattr(owner, step)

    def fail(source, *target):
        if source.suffix == part:
            raise OSError(28, "No space left on device")
        return real(source, *target)

    monkeypatch.setattr(owner, step, fail)
    with pytest.raises(InputError, match=r"toy\.arff \(No space left on device\)"):
        arff.write(MultiLabelDataset([[1.0]], [[1]]), path)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == old


@pytest.mark.parametrize("name", ["toy.xml", "toy.XML"])
def test_the_place_of_the_label_names_is_refused(tmp_path, name):
    (tmp_path / name).write_text("before")
    with pytest.raises(InputError, match=r"is where the label names .*; name the file toy\.arff\."):
        readers.write(MultiLabelDataset([[1.0]], [[1]]), tmp_path / name, format="arff")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["before"]


@pytest.mark.parametrize("name", ["toy", "toy.xml.gz", "toy.v2", "toy.xml.arff"])
def test_other_names_are_written_and_read_back(tmp_path, name):
    readers.write(MultiLabelDataset([[1.5]], [[1]]), tmp_path / name, format="arff")
    assert readers.read(tmp_path / name, format="arff").X.tolist() == [[1.5]]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["a\x00b", "a\ud800b", "a\x1bb"])
def test_a_name_that_cannot_be_written_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="holds a character that XML cannot"):
        arff.write(MultiLabelDataset([[1.0]], [[1]], label_names=[name]), tmp_path / "toy.arff")
    assert not list(tmp_path.iterdir())


def test_a_name_of_a_feature_and_a_label_is_refused(tmp_path):
    data = MultiLabelDataset([[1.0]], [[1]], label_names=["x"], feature_names=["x"])
    with pytest.raises(InputError, match="'x' names a feature and a label"):
        arff.write(data, tmp_path / "toy.arff")
