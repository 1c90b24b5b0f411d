"""The ARFF files of Mulan and MEKA, against a plain loop and the archives."""

import gzip

import numpy as np
import scipy.sparse as sp

from cgmvae.data.readers import arff


def plain_parse(path):
    """Read names and cells of a simple ARFF file, one line and one cell at a time."""
    names, table, in_data = [], [], False
    for line in gzip.decompress(path.read_bytes()).decode().split("\n"):
        line = line.strip()
        if line.lower().startswith("@attribute"):
            names.append(line.split()[1])
        elif line.lower() == "@data":
            in_data = True
        elif in_data and line.startswith("{"):
            row = [0.0] * len(names)
            for cell in filter(None, line.strip("{}").split(",")):
                column, value = cell.split()
                row[int(column)] = float(value)
            table.append(row)
        elif in_data and line:
            table.append([float(cell) for cell in line.split(",")])
    return names, np.array(table)


def test_mulan_yeast_equals_a_plain_loop(data_folder):
    path = data_folder / "raw" / "yeast.arff.gz"
    data = arff.read(path)
    names, table = plain_parse(path)
    assert data.feature_names == tuple(names[:103])
    assert data.label_names == tuple(f"Class{i}" for i in range(1, 15))
    np.testing.assert_array_equal(data.X, table[:, :103].astype(np.float32))
    np.testing.assert_array_equal(data.Y, table[:, 103:])
    assert (data.X.dtype, data.Y.dtype, data.name) == (np.float32, np.uint8, "yeast")
    assert data.official_split is None
    assert data.unknown is None


def test_meka_yeast_equals_a_plain_loop_and_the_archive(data_folder):
    path = data_folder / "raw" / "meka-Yeast.arff.gz"
    data = arff.read(path)
    names, table = plain_parse(path)
    assert data.label_names == tuple(names[:14])
    np.testing.assert_array_equal(data.X, table[:, 14:].astype(np.float32))
    np.testing.assert_array_equal(data.Y, table[:, :14])
    with np.load(data_folder / "yeast" / "yeast.npz") as archive:
        np.testing.assert_array_equal(data.X, archive["X"])
        np.testing.assert_array_equal(data.Y, archive["Y"])
        np.testing.assert_array_equal(data.official_split, archive["official_split"])
        assert data.feature_names == tuple(archive["feature_names"])


def test_delicious_equals_a_plain_loop_and_the_archive(data_folder):
    parts = [data_folder / "raw" / f"delicious-{part}.arff.gz" for part in ("train", "test")]
    data = [arff.read(path) for path in parts]
    assert all(type(part.X) is type(part.Y) is sp.csr_array for part in data)
    X, Y = (sp.vstack([getattr(part, field) for part in data]).toarray() for field in "XY")
    table = np.vstack([plain_parse(path)[1] for path in parts])
    np.testing.assert_array_equal(X, table[:, :500])
    np.testing.assert_array_equal(Y, table[:, 500:])
    with np.load(data_folder / "delicious" / "delicious.npz") as archive:
        csr = (archive["X_data"], archive["X_indices"], archive["X_indptr"])
        np.testing.assert_array_equal(X, sp.csr_array(csr, shape=archive["X_shape"]).toarray())
        np.testing.assert_array_equal(Y, archive["Y"])
        assert data[0].label_names == data[1].label_names == tuple(archive["label_names"])
        assert data[0].feature_names == tuple(archive["feature_names"])
