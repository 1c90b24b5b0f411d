"""svmlight: lines with several labels, headers, both ways of counting, and bad input."""

import gzip
import io

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from cgmvae.data import readers
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.mapped import dense
from cgmvae.data.readers import svmlight
from cgmvae.data.readers.conventions import COLUMNS_LIMIT, DENSE_LABELS_LIMIT
from cgmvae.errors import InputError

from .conftest import assert_same, datasets


def read(folder, text, **options):
    path = folder / "toy.svm"
    path.write_text(text)
    return readers.read(path, **options)


def test_a_small_file(tmp_path):
    text = "# head\n0,2 1:0.5 3:-1e-2 # note\n\n 2:4\n2.0\t1:1.\t2:+.5\n1\t\n"
    data = read(tmp_path, text)
    assert isinstance(data.X, sp.csr_array)
    assert data.X.dtype == np.float64
    np.testing.assert_array_equal(
        data.X.toarray(),
        [[0.5, 0, -1e-2], [0, 4, 0], [1, 0.5, 0], [0, 0, 0]],
    )
    assert data.Y.tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert (data.name, data.Y.dtype) == ("toy", np.uint8)


def test_a_label_that_a_row_repeats(tmp_path):
    assert read(tmp_path, "3,1,3 1:1\n1 1:2\n").Y.tolist() == [[1, 1], [1, 0]]


@pytest.mark.parametrize(
    ("zero_based", "text", "expected"),
    [
        ("auto", "0 1:1 2:2\n", [[1, 2]]),
        ("auto", "0 0:1 2:2\n", [[1, 0, 2]]),
        (True, "0 1:1 2:2\n", [[0, 1, 2]]),
        (False, "0 1:1 2:2\n", [[1, 2]]),
    ],
)
def test_counting_from_zero_or_one(tmp_path, zero_based, text, expected):
    data = read(tmp_path, text, zero_based=zero_based)
    assert data.X.toarray().tolist() == expected
    theirs, _ = load_svmlight_file(
        io.BytesIO(text.encode()), multilabel=True, zero_based=zero_based
    )
    assert theirs.toarray().tolist() == expected


@pytest.mark.parametrize(
    ("text", "names", "Y"),
    [
        ("1 1:1\n-1 1:2\n5,-1 1:3\n", ["-1", "1", "5"], [[0, 1, 0], [1, 0, 0], [1, 0, 1]]),
        ("1 1:1\n1,2 1:2\n", ["1", "2"], [[1, 0], [1, 1]]),
        ("10,30 1:1\n20 1:2\n 1:1\n", ["10", "20", "30"], [[1, 0, 1], [0, 1, 0], [0, 0, 0]]),
    ],
)
def test_the_labels_are_the_ids_that_occur(tmp_path, text, names, Y):
    data = read(tmp_path, text)
    assert data.label_names == tuple(f"label_{name}" for name in names)
    assert data.Y.tolist() == Y


def test_the_header_of_the_extreme_classification_repository(tmp_path):
    data = read(tmp_path, "3 5 4\n1,2 1:1 2:3\n\n0 1:7\n\n")
    assert data.X.toarray().tolist() == [[0, 1, 3, 0, 0], [0] * 5, [0, 7, 0, 0, 0]]
    assert data.Y.tolist() == [[0, 1, 1, 0], [0] * 4, [1, 0, 0, 0]]


def test_a_header_whose_last_feature_is_its_number_counts_from_one(tmp_path):
    data = read(tmp_path, "1 3 1\n0 1:1 3:2\n")
    assert data.X.toarray().tolist() == [[1, 0, 2]]


@pytest.mark.parametrize(
    "text",
    [
        "1 1:1 5:2\n" * 30,
        "1 1:1 4:2\n" * 30 + "0 0:3\n",
        "31 5 2\n" + "1 1:1 4:2\n" * 30 + "0 5:3\n",
        "32 5 2\n" + "1 1:1\n\n" * 15 + "\n# the rest\n0 2:nan\n",
        "1 # nothing\n" * 30,
    ],
)
def test_batches_give_what_the_whole_file_gives(tmp_path, monkeypatch, text):
    whole = read(tmp_path, text, n_features=5, n_labels=2).X
    monkeypatch.setattr(svmlight, "_READ_BATCH", 16)
    found = read(tmp_path, text, n_features=5, n_labels=2).X
    np.testing.assert_array_equal(found.toarray(), whole.toarray())
    with pytest.raises(InputError, match="line 32: "):
        read(tmp_path, "1 1:1\n" * 31 + "1 a:1\n")


@pytest.mark.parametrize("extra", [0, 1])
def test_labels_are_csr_beyond_the_limit(tmp_path, extra):
    n = DENSE_LABELS_LIMIT + extra
    data = read(tmp_path, f"{n - 1} 1:1\n", n_labels=n)
    assert sp.issparse(data.Y) == bool(extra)
    assert np.argwhere(dense(data.Y)).tolist() == [[0, n - 1]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=datasets(unknown=False), batch=st.integers(1, 7))
def test_writing_and_reading_give_the_same_as_scikit_learn(tmp_path, data, batch):
    path = tmp_path / "toy.svm"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svmlight, "_WRITE_BATCH", batch)
        svmlight.write(data, path)
    back = readers.read(path, n_features=data.n_features, n_labels=data.n_labels)
    assert_same(back, data)
    X, labels = load_svmlight_file(
        str(path), multilabel=True, n_features=data.n_features, dtype=np.float32, zero_based=False
    )
    np.testing.assert_array_equal(X.toarray(), dense(data.X))
    assert [list(map(int, row)) for row in labels] == [
        np.flatnonzero(row).tolist() for row in dense(data.Y)
    ]


def test_the_written_text(tmp_path):
    data = MultiLabelDataset(
        np.array([[0, 0.1], [2, np.nan], [0, 0], [0, 0]]),
        [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]],
    )
    svmlight.write(data, tmp_path / "toy.svm.gz")
    text = gzip.decompress((tmp_path / "toy.svm.gz").read_bytes()).decode()
    assert text == "0,2 2:0.1\n 1:2.0 2:nan\n 1:0\n1\n"


def test_stored_zeros_and_unsorted_cells_are_written_in_order_without_zeros(tmp_path):
    X = sp.csr_array(
        (np.array([3.0, 0.0, 2.0]), np.array([2, 1, 0]), np.array([0, 3])), shape=(1, 3)
    )
    svmlight.write(MultiLabelDataset(X, [[1]]), tmp_path / "toy.svm")
    assert (tmp_path / "toy.svm").read_text() == "0 1:2.0 3:3.0\n"
    assert X.indices.tolist() == [2, 1, 0]


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot hold unknown labels"):
        svmlight.write(MultiLabelDataset([[1.0]], [[0]], unknown=[[True]]), tmp_path / "toy.svm")
    with pytest.raises(InputError, match="cannot hold rows without features"):
        svmlight.write(MultiLabelDataset(np.zeros((1, 0)), [[0]]), tmp_path / "toy.svm")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1:1\n1.5 1:1\n", "line 2: the label 1.5 is not an integer"),
        ("0 1:1\n9223372036854775808 1:1\n", r"line 2: the label 9\.22337e\+18 is too large"),
        ("a 1:1\n", "line 1: could not convert"),
        ("1 2 1:1\n", r"line 1: .*a row must look like 1,3,7 12:0\.5"),
        ("1 -1:2\n", "line 1: Invalid index -1"),
        ("1 1:1e39\n", "1e.39, which does not fit 32 bits"),
        ("0 1:1\n\n# note\n0 2:1 1:1\n", r"line 4: .*sorted and unique"),
        ("0 99999999999999999999:1\n", "line 1: "),
        (f"0 {COLUMNS_LIMIT + 1}:1\n", f"would have {COLUMNS_LIMIT + 1:,} features, more than the"),
        ("3 5 4\n1 1:1\n", "states 3 rows and has 1"),
        ("1 2 4\n\n# x\n1 0:1 2:1\n", "states 1 rows and has 2"),
        ("1 2 4\n1 0:1 2:1\n", "index 0, which is out of range"),
        ("1 2 1\n1 0:1\n", "the label 1, which is out of range for 1 labels"),
        (" 1:1\n", "has no labels; give n_labels"),
        ("# nothing\n\n", "has no rows"),
    ],
)
def test_bad_input_is_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "toy.svm") in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_features": 1}, "index 2, which is out of range for 1 features from 1"),
        ({"n_labels": 3}, "the label -1, which is out of range for 3 labels from 0"),
        ({"n_features": 2, "zero_based": True}, "index 2, which is out of range for 2"),
        ({"zero_based": "yes"}, "zero_based must be 'auto', True or False"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, "0 1:1\n-1 2:1\n", **options)
