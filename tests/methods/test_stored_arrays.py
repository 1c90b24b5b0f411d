"""Matrices are taken apart and put together again, and refused where they are others."""

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.methods.stored_arrays import matrix_arrays, read_matrix, with_prefix

TABLE = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_there_and_back(form):
    arrays = matrix_arrays("rows", form(TABLE))
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    found = read_matrix(arrays, "rows", (2, 3), np.floating)
    assert sp.issparse(found) == (form is sp.csr_array)
    np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, TABLE)


def test_what_may_be_missing():
    assert matrix_arrays("rows", None) == {}
    assert read_matrix({}, "rows", (2, 3), np.floating, optional=True) is None
    with pytest.raises(KeyError, match="rows"):
        read_matrix({}, "rows", (2, 3), np.floating)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    ("shape", "numbers"), [((3, 2), np.floating), ((2, 3), np.unsignedinteger), ((2, 3), np.bool_)]
)
def test_another_shape_or_type_is_refused(form, shape, numbers):
    with pytest.raises(ValueError, match=r"\w"):
        read_matrix(matrix_arrays("rows", form(TABLE)), "rows", shape, numbers)
    single = matrix_arrays("rows", form(TABLE.astype(np.float32)))
    with pytest.raises(ValueError, match="'rows' is not a table"):
        read_matrix(single, "rows", (2, 3), np.float64)


def test_names_that_begin_alike():
    arrays = {"0.a": TABLE, "0.b.data": TABLE, "1.a": TABLE, "a": TABLE}
    assert list(with_prefix(arrays, "0.")) == ["a", "b.data"]
