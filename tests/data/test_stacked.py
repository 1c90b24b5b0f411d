"""Rows of several matrices against those of one that holds them all."""

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.data.mapped import MappedRows, dense
from cgmvae.data.stacked import StackedRows, stacked


@pytest.fixture
def table(rng):
    """Return 20 rows of 5 columns, about half of them 0."""
    return np.where(rng.random((20, 5)) < 0.5, rng.normal(size=(20, 5)), 0).astype(np.float32)


def test_parts_are_numbered_on(table, tmp_path):
    np.save(tmp_path / "X.npy", table[:7])
    parts = [
        np.load(tmp_path / "X.npy", mmap_mode="r"),
        table[7:8],
        MappedRows(table)[8:],
        sp.csr_array(table),
    ]
    rows = StackedRows(parts)
    whole = np.concatenate([table, table])
    assert (rows.shape, rows.on_disk, rows.is_sparse) == ((40, 5), True, True)
    numbers = np.array([39, 0, 7, 8, 6, 7, 20])
    np.testing.assert_array_equal(rows.gather(numbers), whole[numbers])
    for where, block in rows.blocks():
        np.testing.assert_array_equal(dense(block), whole[where])


@pytest.mark.parametrize("n_sparse", [0, 1, 3])
def test_parts_are_put_into_one(table, n_sparse):
    parts = [table[:7], table[7:8], table[8:]]
    parts[:n_sparse] = map(sp.csr_array, parts[:n_sparse])
    whole = stacked(parts)
    assert sp.issparse(whole) == (n_sparse > 0)
    np.testing.assert_array_equal(dense(whole), table)
