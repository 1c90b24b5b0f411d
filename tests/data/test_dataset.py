"""The data set: its statistics against other people's numbers, and what it refuses."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cgmvae.data.columns import as_columns
from cgmvae.data.dataset import (
    MultiLabelDataset,
    csr_from_parts,
    split_unknown,
    with_short_indices,
)
from cgmvae.data.mapped import dense
from cgmvae.errors import InputError

X = np.array([[1.0, 0.0, np.nan], [0.0, 0.0, 2.0], [3.0, 0.0, 0.0], [0.0, 5.0, 0.0]])
Y = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]])
UNKNOWN = np.array([[0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)

labels_with_unknown = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.sampled_from([0.0, 1.0, np.nan]),
)


class TestDescribe:
    def test_by_hand(self):
        found = MultiLabelDataset(X, Y, unknown=UNKNOWN).describe()
        assert (found.samples, found.labels, found.features) == (4, 4, 3)
        assert found.mean_labels_per_sample == 5 / 4
        assert found.median_labels_per_sample == 1.5
        assert found.max_labels_per_sample == 2
        assert found.mean_samples_per_label == 5 / 4
        assert found.density == 5 / 13
        assert found.distinct_label_sets == 4
        assert found.rows_without_labels == 1
        assert found.labels_without_rows == 1
        assert found.imbalance_ratio == pytest.approx((1 + 3 + 3) / 3)
        assert found.unknown_share == 3 / 16
        assert found.missing_share == 1 / 12
        assert found.feature_density == 5 / 12

    # Rows, labels, cardinality, distinct label sets: the table of Mulan's data sets. Mean
    # imbalance ratio: Charte et al. (2015), "Addressing imbalance in multilabel classification".
    @pytest.mark.parametrize(
        ("name", "samples", "labels", "cardinality", "distinct", "imbalance"),
        [
            ("yeast", 2417, 14, 4.237, 198, 7.197),
            ("scene", 2407, 6, 1.074, 15, 1.254),
            ("delicious", 16105, 983, 19.020, 15806, 71.134),
        ],
    )
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_published_numbers(
        self, data_folder, name, samples, labels, cardinality, distinct, imbalance, form
    ):
        with np.load(data_folder / name / f"{name}.npz", allow_pickle=False) as file:
            real = form(file["Y"])
        found = MultiLabelDataset(np.zeros((real.shape[0], 1)), real).describe()
        assert (found.samples, found.labels) == (samples, labels)
        assert found.mean_labels_per_sample == pytest.approx(cardinality, abs=5e-4)
        assert found.distinct_label_sets == distinct
        assert found.imbalance_ratio == pytest.approx(imbalance, abs=1e-2)

    @given(targets=labels_with_unknown)
    @settings(max_examples=50, deadline=None)
    def test_is_the_same_for_sparse_and_dense(self, targets):
        labels, unknown = split_unknown(targets)
        features = np.arange(labels.size, dtype=np.float32).reshape(labels.shape) % 3
        as_dense = MultiLabelDataset(features, labels, unknown=unknown)
        as_sparse = MultiLabelDataset(
            sp.csr_array(features),
            sp.csr_array(labels),
            unknown=None if unknown is None else sp.csr_array(unknown),
        )
        assert as_dense.describe() == as_sparse.describe()

    def test_no_positive_label_at_all(self):
        found = MultiLabelDataset(X, Y * 0).describe()
        assert found.imbalance_ratio == 0
        assert found.density == 0
        assert found.distinct_label_sets == 1

    def test_every_label_unknown(self):
        found = MultiLabelDataset(X, Y, unknown=np.ones_like(UNKNOWN)).describe()
        assert (found.density, found.unknown_share) == (0, 1)

    def test_no_features(self):
        found = MultiLabelDataset(np.empty((4, 0)), Y).describe()
        assert (found.features, found.feature_density, found.missing_share) == (0, 0, 0)


class TestUnknown:
    @pytest.mark.parametrize("labels_form", [np.asarray, sp.csr_array, sp.coo_array])
    @pytest.mark.parametrize("mask_form", [np.asarray, sp.csr_array, sp.csc_array])
    def test_is_zero_in_the_labels_and_takes_their_form(self, labels_form, mask_form):
        data = MultiLabelDataset(X, labels_form(Y), unknown=mask_form(UNKNOWN))
        np.testing.assert_array_equal(dense(data.Y), np.where(UNKNOWN, 0, Y))
        np.testing.assert_array_equal(dense(data.unknown), UNKNOWN)
        assert sp.issparse(data.Y) == sp.issparse(data.unknown) == (labels_form is not np.asarray)
        assert data.Y.dtype == np.uint8
        assert data.unknown.dtype == bool

    def test_none_where_everything_is_known(self):
        assert MultiLabelDataset(X, Y, unknown=np.zeros_like(UNKNOWN)).unknown is None

    def test_a_stored_false_is_not_unknown(self):
        mask = sp.csr_array(UNKNOWN)
        mask.data[0] = False
        data = MultiLabelDataset(X, sp.csr_array(Y), unknown=mask)
        np.testing.assert_array_equal(np.isnan(data.targets().toarray()), mask.toarray())

    @given(targets=labels_with_unknown, sparse=st.booleans())
    @settings(max_examples=50, deadline=None)
    def test_split_unknown_undoes_targets(self, targets, sparse):
        labels, unknown = split_unknown(sp.csr_array(targets) if sparse else targets)
        features = np.zeros((targets.shape[0], 1))
        again = MultiLabelDataset(features, labels, unknown=unknown).targets()
        np.testing.assert_array_equal(dense(again), targets)
        assert (unknown is None) == (not np.isnan(targets).any())
        assert labels.dtype == np.uint8

    @pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.lil_array, sp.csr_matrix])
    def test_split_unknown_leaves_its_input_alone(self, form):
        targets = form(np.where(UNKNOWN, np.nan, Y).astype(np.float32))
        labels, unknown = split_unknown(targets)
        np.testing.assert_array_equal(targets.toarray(), np.where(UNKNOWN, np.nan, Y))
        np.testing.assert_array_equal(labels.toarray(), np.where(UNKNOWN, 0, Y))
        np.testing.assert_array_equal(unknown.toarray(), UNKNOWN)


class TestRows:
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    @pytest.mark.parametrize("indices", [[2, 0], np.array([3, 3, 1]), np.array([1, 0, 0, 1]) == 1])
    def test_take_everything_that_belongs_to_a_row(self, form, indices):
        data = MultiLabelDataset(
            form(X),
            form(Y),
            label_names=list("abcd"),
            unknown=UNKNOWN,
            groups=list("wxyz"),
            official_split=[0, 1, 2, 0],
            name="small",
        )
        part = data.rows(indices)
        np.testing.assert_array_equal(dense(part.X), X[indices])
        np.testing.assert_array_equal(dense(part.targets()), dense(data.targets())[indices])
        np.testing.assert_array_equal(part.groups, np.array(list("wxyz"))[indices])
        np.testing.assert_array_equal(part.official_split, np.array([0, 1, 2, 0])[indices])
        assert (part.label_names, part.name) == (data.label_names, "small")
        assert part.n_samples == len(X[indices])


class TestForms:
    def test_names_are_made_up_where_there_are_none(self):
        data = MultiLabelDataset(X, Y)
        assert data.label_names == ("label_0", "label_1", "label_2", "label_3")
        assert data.feature_names == ("feature_0", "feature_1", "feature_2")

    @pytest.mark.parametrize(
        "dtype", [bool, np.float16, np.float32, np.int16, np.int64, np.float64]
    )
    def test_features_become_float32_where_it_holds_all_of_their_values(self, dtype):
        expected = np.float64 if dtype in (np.int64, np.float64) else np.float32
        assert MultiLabelDataset(Y.astype(dtype), Y).X.dtype == expected

    def test_stored_zeros_and_unsorted_cells_are_put_right(self):
        labels = sp.csr_array(
            (np.array([1, 1, 0]), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 3)
        )
        data = MultiLabelDataset(X[:2], labels)
        assert data.Y.nnz == 2
        assert data.Y.indices.tolist() == [0, 2]
        assert labels.nnz == 3
        assert labels.indices.tolist() == [2, 0, 1]

    def test_a_label_that_is_stored_twice_is_a_count(self):
        labels = sp.csr_array(
            (np.array([1, 1]), np.array([0, 0]), np.array([0, 2, 2])), shape=(2, 1)
        )
        with pytest.raises(InputError, match="one is 2"):
            MultiLabelDataset(X[:2], labels)
        assert labels.indices.tolist() == [0, 0]

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_the_input_is_not_changed(self, form):
        features, labels, mask = form(X), form(Y), form(UNKNOWN)
        MultiLabelDataset(features, labels, unknown=mask)
        np.testing.assert_array_equal(dense(features), X)
        np.testing.assert_array_equal(dense(labels), Y)
        np.testing.assert_array_equal(dense(mask), UNKNOWN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": X[:3]}, "features have 3 rows and the labels 4"),
        ({"X": X[:0], "Y": Y[:0]}, "no rows or no label columns"),
        ({"Y": Y[:, :0]}, "no rows or no label columns"),
        ({"X": X[0]}, "features must have two dimensions, not 1"),
        ({"X": X.astype(str)}, "features must be numbers"),
        ({"X": np.where(np.isnan(X), np.inf, X)}, "1 infinite values"),
        ({"X": sp.csr_array(np.where(np.isnan(X), -np.inf, X))}, "1 infinite values"),
        ({"Y": Y[0]}, "labels must have two dimensions, not 1"),
        ({"Y": Y.astype(str)}, "labels must be 0 or 1"),
        ({"Y": Y * 3}, "one is 3"),
        ({"Y": sp.csr_array(Y * 3)}, "one is 3"),
        ({"Y": np.where(UNKNOWN, np.nan, Y)}, "one is nan"),
        ({"unknown": UNKNOWN[:2]}, "must agree"),
        ({"label_names": ["a"]}, "1 label names for 4 label columns"),
        ({"label_names": list("abca")}, "'a' appears more than once"),
        ({"groups": [1, 2]}, "'groups' must have one value per row"),
        ({"official_split": [[0], [1], [0], [1]]}, "'official_split' must have one value"),
        ({"official_split": list("0101")}, "'official_split' must be the number 0 .* one is '0'"),
        ({"official_split": np.array([0, 1, 2, 0], dtype=object)}, "one is 'a Python object'"),
        ({"official_split": [0, 1, 2, 3]}, "one is 3; correct it"),
        ({"official_split": [0, 1, 0, np.nan]}, "one is nan; correct it"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(InputError, match=message):
        MultiLabelDataset(**{"X": X, "Y": Y} | change)


class TestColumns:
    TABLE = as_columns({"n": [0.0, np.nan, 2.0], "c": ["a", None, "a"], "t": ["x", "y", "z"]})

    def test_they_are_features_with_names(self):
        data = MultiLabelDataset(self.TABLE, np.eye(3))
        assert data.feature_names == ("n", "c", "t")
        assert (data.n_samples, data.n_features) == (3, 3)
        rows = data.rows([2, 0])
        assert rows.X.values[0].tolist() == [2, 0]
        assert rows.Y.tolist() == [[0, 0, 1], [1, 0, 0]]

    def test_statistics(self):
        found = MultiLabelDataset(self.TABLE, np.eye(3)).describe()
        assert found.features == 3
        assert found.missing_share == pytest.approx(2 / 9)
        assert found.feature_density == pytest.approx(8 / 9)

    def test_numbers_become_an_array(self):
        data = MultiLabelDataset(self.TABLE.select(["n"]), np.eye(3))
        assert isinstance(data.X, np.ndarray)
        assert data.feature_names == ("n",)


PARTS = {
    "data": np.array([1.0, 2.0, 3.0]),
    "indices": np.array([0, 2, 1]),
    "indptr": np.array([0, 2, 2, 3]),
}


def test_indices_are_made_short():
    table = sp.csr_array(np.array([[0.0, 2.0], [3.0, 0.0]]))
    table.indices, table.indptr = table.indices.astype(np.int64), table.indptr.astype(np.int64)
    found = with_short_indices(table)
    assert found.indices.dtype == found.indptr.dtype == np.int32
    assert table.indices.dtype == np.int64
    np.testing.assert_array_equal(found.toarray(), table.toarray())


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("data", [1.0, 2.0]),
        ("data", [[1.0, 2.0, 3.0]]),
        ("indices", [0, 3, 1]),
        ("indices", [0, -1, 1]),
        ("indices", [0.0, 2.0, 1.0]),
        ("indptr", [0, 2, 3]),
        ("indptr", [1, 2, 2, 3]),
        ("indptr", [0, 2, 1, 3]),
        ("indptr", [0, 2, 2, 4]),
        ("indptr", [0, -(2**62), 2**62, 3]),
        ("indptr", []),
    ],
)
def test_parts_that_do_not_fit(part, values):
    assert csr_from_parts(**PARTS, shape=(3, 3)).nnz == 3
    with pytest.raises(ValueError, match="sparse matrix"):
        csr_from_parts(**(PARTS | {part: np.array(values)}), shape=(3, 3))


numbers = st.lists(st.integers(-3, 5) | st.sampled_from([2**31, 2**62, -(2**62)]), max_size=5)


@given(indices=numbers, indptr=numbers)
def test_whatever_is_taken_can_be_multiplied(indices, indptr):
    """A table that points outside of itself would end the process here."""
    parts = np.array(indices, np.int64), np.array(indptr, np.int64)
    try:
        table = csr_from_parts(np.ones(len(indices)), *parts, shape=(3, 3))
    except ValueError:
        return
    assert (table @ np.ones(3)).sum() == indptr[-1]
    assert (table @ table.T).shape == (3, 3)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, None])
def test_copies_are_counted(make):
    X = np.array([[1, np.nan], [2, 0], [1, np.nan], [2, 0], [3, 0], [0, 4]], np.float32)
    features = as_columns({"a": X[:, 0], "b": X[:, 1]}) if make is None else make(X)
    data = MultiLabelDataset(features, [[1], [0], [1], [1], [0], [0]])
    assert data.count_copies([0, 1, 4], [2, 3, 5]) == 1  # the labels of the second differ
    assert data.count_copies([0, 1], [4, 5]) == 0
