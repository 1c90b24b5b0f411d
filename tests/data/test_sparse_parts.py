import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cgmvae.data.sparse_parts import csr_from_parts, with_short_indices

PARTS = {
    "data": np.array([1.0, 2.0, 3.0]),
    "indices": np.array([0, 2, 1]),
    "indptr": np.array([0, 2, 2, 3]),
}


def test_the_parts_of_a_table_give_it_back():
    table = sp.random_array((7, 5), density=0.4, format="csr", rng=np.random.default_rng(0))
    found = csr_from_parts(table.data, table.indices, table.indptr, shape=(7, 5))
    np.testing.assert_array_equal(found.toarray(), table.toarray())
    nothing = csr_from_parts(np.ones(0), np.zeros(0, int), np.zeros(1, int), shape=(0, 4))
    assert nothing.shape == (0, 4)


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
        ("indices", [0, 2**40, 1]),
        ("indptr", [0, 2, 3]),
        ("indptr", [1, 2, 2, 3]),
        ("indptr", [0, 2, 1, 3]),
        ("indptr", [0, 2, 2, 4]),
        ("indptr", [0, 2, 2, -1]),
        ("indptr", [0, -(2**62), 2**62, 3]),
        ("indptr", [0.0, 2.0, 2.0, 3.0]),
        ("indptr", []),
    ],
)
def test_parts_that_do_not_fit(part, values):
    assert csr_from_parts(**PARTS, shape=(3, 3)).nnz == 3
    with pytest.raises(ValueError, match="sparse table"):
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
