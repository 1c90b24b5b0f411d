import numpy as np
import pytest
import scipy.sparse as sp
import torch

from cgmvae.data.mapped import MappedRows, StackedRows
from cgmvae.training.rows import RowStore, digest

CPU = torch.device("cpu")


@pytest.fixture
def table(rng) -> np.ndarray:
    """Rows of many lengths; rows 0, 3 and the last one are empty."""
    table = np.where(rng.random((9, 6)) < 0.4, rng.normal(size=(9, 6)), 0.0)
    table[[0, 3, 8]] = 0.0
    table[4] = rng.normal(size=6)
    return table


INDICES = {
    "one row": 4,
    "one empty row": 3,
    "no rows": [],
    "repeated": [4, 4, 0, 4, 8],
    "all empty": [0, 3, 8],
    "members × rows": [[1, 2, 0], [8, 8, 7]],
    "three axes": [[[0], [5]], [[6], [6]]],
    "no rows of two members": [[], []],
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool])
def test_sparse_and_dense_rows_are_equal(table, index, dtype):
    rows = torch.tensor(index, dtype=torch.int64)
    expected = torch.as_tensor(table[np.asarray(index, np.int64)]).to(dtype)
    for matrix in (table, sp.csr_array(table)):
        found = RowStore(matrix, dtype=dtype, device=CPU).gather(rows)
        assert found.dtype == dtype
        assert found.shape == (*rows.shape, 6)
        assert torch.equal(found, expected)


def test_duplicate_entries_are_summed_without_changing_the_matrix():
    matrix = sp.csr_array(
        (np.array([1.0, 2.0, 5.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2)
    )
    store = RowStore(matrix, dtype=torch.float64, device=CPU)
    assert store.gather(torch.tensor([0, 1])).tolist() == [[0.0, 3.0], [5.0, 0.0]]
    assert matrix.nnz == 3


def test_digest_depends_on_content_shape_and_type(table):
    arrays = [table, table.T, table.reshape(-1), table.astype(np.float32), table + 1e-9]
    assert len({digest(array) for array in arrays}) == len(arrays)
    assert digest(table) == digest(np.asfortranarray(table))


def test_digest_of_a_store(table):
    changed = table.copy()
    changed[4, 2] += 1
    for kind in (np.asarray, sp.csr_array):
        first, again, other = (
            RowStore(kind(matrix), dtype=torch.float32, device=CPU).digest()
            for matrix in (table, table.copy(), changed)
        )
        assert first == again != other


@pytest.fixture
def stored(table, tmp_path, monkeypatch) -> dict[str, RowStore]:
    """Return stores that copy nothing: of rows on disk, and of many rows in memory."""
    np.save(tmp_path / "rows.npy", table)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    monkeypatch.setattr("cgmvae.training.rows._COPIED_BYTES", 0)
    halves = StackedRows([MappedRows(mapped)[:5], mapped[5:]])
    return {
        "disk": RowStore(halves, dtype=torch.float32, device=CPU),
        "dense": RowStore(table, dtype=torch.float32, device=CPU),
        "sparse": RowStore(sp.csr_array(table), dtype=torch.float32, device=CPU),
    }


@pytest.mark.parametrize("kind", ["disk", "dense", "sparse"])
@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_rows_read_in_place(stored, table, kind, index):
    rows = torch.tensor(index, dtype=torch.int64)
    expected = torch.as_tensor(table[np.asarray(index, np.int64)]).float()
    assert torch.equal(stored[kind].gather(rows), expected)
    assert stored[kind]._dense is stored[kind]._sparse is None


def test_shared_rows_are_read_once(table):
    read = []

    def note(block):
        read.append(len(block))
        return block

    source = MappedRows(table).then(note)
    source.on_disk = True
    store = RowStore(source, dtype=torch.float32, device=CPU)
    rows = torch.tensor([[3, 1, 4]]).expand(8, -1)
    found = store.gather(rows)
    assert torch.equal(found, torch.as_tensor(table).float()[rows])
    assert sum(read) == 3
    store.gather(torch.tensor([[3, 1], [1, 3]]))
    assert sum(read) == 7


def test_digest_of_rows_read_in_place(stored, table, tmp_path):
    before = {kind: store.digest() for kind, store in stored.items()}
    assert before == {kind: store.digest() for kind, store in stored.items()}
    table[4, 2] += 1
    assert stored["dense"].digest() != before["dense"]
    changed = np.load(tmp_path / "rows.npy", mmap_mode="r+")
    changed[4, 2] += 1
    changed.flush()
    assert stored["disk"].digest() != before["disk"]
    shorter = RowStore(MappedRows(changed)[:8], dtype=torch.float32, device=CPU)
    assert shorter.digest() != stored["disk"].digest()
