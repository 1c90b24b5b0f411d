"""Rows that are read when they are needed, against the same indexing of arrays in memory."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.data import mapped
from cgmvae.data.mapped import MappedRows, StackedRows, as_mapped, check_finite, dense
from cgmvae.errors import InputError


@pytest.fixture
def table(rng):
    """Return 20 rows of 5 columns, about half of them 0."""
    return np.where(rng.random((20, 5)) < 0.5, rng.normal(size=(20, 5)), 0).astype(np.float32)


def on_disk(array, folder, name="X.npy"):
    np.save(folder / name, array)
    return np.load(folder / name, mmap_mode="r")


def forms_of(table, folder):
    return {"disk": on_disk(table, folder), "memory": table, "sparse": sp.csr_array(table)}


@pytest.mark.parametrize("form", ["disk", "memory", "sparse"])
def test_rows_are_those_of_the_matrix(table, tmp_path, form):
    rows = MappedRows(forms_of(table, tmp_path)[form])
    assert (rows.on_disk, rows.is_sparse) == (form == "disk", form == "sparse")
    assert (rows.shape, rows.dtype, len(rows)) == ((20, 5), np.float32, 20)
    chosen = rows[[9, 3, 3, 17]][1:]
    assert chosen.shape == (3, 5)
    np.testing.assert_array_equal(np.asarray(chosen), table[[3, 3, 17]])
    np.testing.assert_array_equal(np.asarray(rows[table[:, 0] > 0]), table[table[:, 0] > 0])
    np.testing.assert_array_equal(np.asarray(rows[5:9][:, [4, 0]]), table[5:9][:, [4, 0]])
    gathered = chosen.then(lambda block: block * 2).gather([2, 0, 2])
    np.testing.assert_array_equal(mapped.dense(gathered), 2 * table[[17, 3, 17]])


@pytest.mark.parametrize("form", ["disk", "memory", "sparse"])
@pytest.mark.parametrize("n_bytes", [1, 60])
def test_blocks_are_all_rows_in_order(table, tmp_path, form, n_bytes):
    rows = MappedRows(forms_of(table, tmp_path)[form])
    for given_rows, expected in ((rows, table), (rows.take([5, 2, 8]), table[[5, 2, 8]])):
        found = list(given_rows.blocks(n_bytes))
        assert len(found) == (len(expected) if n_bytes == 1 else -(-len(expected) // 3))
        assert [where.start for where, _ in found[1:]] == [where.stop for where, _ in found[:-1]]
        joined = np.concatenate([mapped.dense(block) for _, block in found])
        np.testing.assert_array_equal(joined, expected)


def test_choosing_reads_nothing(table, tmp_path):
    read = []

    def note(block):
        read.append(len(block))
        return block

    rows = MappedRows(on_disk(table, tmp_path)).then(note)
    chosen = rows.take(np.arange(19, -1, -1))[2:].then(lambda block: -block).in_reading_order()
    assert sum(read) == 0
    np.testing.assert_array_equal(np.asarray(chosen), -table[:18])
    assert sum(read) == 18


def test_a_file_is_read_from_front_to_back(table, tmp_path):
    numbers = [9, 3, 17, 4]
    rows = MappedRows(on_disk(table, tmp_path)).take(numbers)
    assert rows.reading_order().tolist() == [1, 3, 0, 2]
    np.testing.assert_array_equal(np.asarray(rows.in_reading_order()), table[np.sort(numbers)])
    in_memory = MappedRows(table).take(numbers)
    assert in_memory.reading_order().tolist() == [0, 1, 2, 3]
    assert in_memory.in_reading_order() is in_memory


def test_only_large_files_with_whole_rows_are_left_on_disk(table, tmp_path, monkeypatch):
    small = on_disk(table, tmp_path)
    assert as_mapped(small) is None
    monkeypatch.setattr(mapped, "LARGE_BYTES", small.nbytes)
    assert as_mapped(small).on_disk
    assert as_mapped(table) is None
    assert as_mapped(on_disk(np.asfortranarray(table), tmp_path, "by_column.npy")) is None
    counts = as_mapped(MappedRows(on_disk(np.arange(6).reshape(3, 2), tmp_path, "counts.npy")))
    assert counts.dtype == np.float64
    assert counts.gather([2]).tolist() == [[4, 5]]


@pytest.mark.parametrize("form", ["disk", "memory", "sparse"])
def test_infinite_values_are_counted_in_all_blocks(table, tmp_path, form, monkeypatch):
    monkeypatch.setattr(mapped, "BLOCK_BYTES", 40)
    table[0, 0] = np.nan
    check_finite(forms_of(table, tmp_path)[form])
    table[3, 1], table[19, 4] = np.inf, -np.inf
    with pytest.raises(InputError, match="hold 2 infinite values"):
        check_finite(forms_of(table, tmp_path)[form])


def test_too_many_rows_are_not_read_into_memory(table, monkeypatch):
    monkeypatch.setattr(mapped, "MEMORY_LIMIT", table.nbytes - 1)
    with pytest.raises(InputError, match="take 400 bytes, and at most 399"):
        np.asarray(MappedRows(table))
    assert np.asarray(MappedRows(table)[:19]).shape == (19, 5)


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


def test_what_is_between_the_steps_takes_no_memory(rng):
    """Rows become a hundred times as wide on the way: each block of them for itself."""
    matrix, wide = rng.normal(size=(20_000, 4)).astype(np.float32), 400

    def widen(block):
        return np.repeat(block, wide // 4, axis=1) + np.arange(wide, dtype=np.float32)

    rows = MappedRows(matrix).then(widen).then(lambda block: block[:, ::100])
    tracemalloc.start()
    found = rows.gather(np.arange(20_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(found, widen(matrix)[:, ::100])
    assert peak < 4 * mapped.BLOCK_BYTES + 4 * matrix.nbytes
