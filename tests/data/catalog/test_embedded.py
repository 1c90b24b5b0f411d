"""The embedded yeast: the publishers' rows, in the publishers' order, and the tool that made it."""

import csv
import gzip
import importlib.util
import subprocess
import sys
from collections import Counter
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from cgmvae.data import readers
from cgmvae.data.catalog import load_dataset


def plain_arff(path, n_labels, labels_first):
    """Read a dense ARFF file: names, features (n, d) as text and labels (n, l) as text."""
    names, rows = [], []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            line = line.strip()
            if line.lower().startswith("@attribute"):
                names.append(line.split()[1])
            elif line and line[0] not in "@%":
                rows.append(line.split(","))
    at = n_labels if labels_first else len(names) - n_labels
    first, second = [row[:at] for row in rows], [row[at:] for row in rows]
    names = names[:at], names[at:]
    return (*names[::-1], second, first) if labels_first else (*names, first, second)


def row_set(X, Y):
    return Counter(
        np.array(x, dtype=np.float32).tobytes() + np.array(y, dtype=np.uint8).tobytes()
        for x, y in zip(X, Y, strict=True)
    )


def test_embedded_yeast_equals_the_archive(data_folder, folders):
    yeast = load_dataset("yeast")
    with np.load(data_folder / "yeast" / "yeast.npz") as arrays:
        assert np.array_equal(yeast.X, arrays["X"])
        assert yeast.X.dtype == arrays["X"].dtype == np.float32
        assert np.array_equal(yeast.Y, arrays["Y"])
        assert yeast.Y.dtype == arrays["Y"].dtype == np.uint8
        assert list(yeast.label_names) == arrays["label_names"].tolist()
        assert list(yeast.feature_names) == arrays["feature_names"].tolist()
        assert np.array_equal(yeast.official_split, arrays["official_split"])
        package = resources.files("cgmvae.data") / "embedded" / "yeast.npz"
        with np.load(Path(str(package))) as embedded:
            assert sorted(embedded.files) == sorted(arrays.files)
            assert all(np.array_equal(embedded[key], arrays[key]) for key in arrays.files)


def test_embedded_yeast_has_mulans_split_and_names():
    yeast = load_dataset("yeast")
    assert yeast.official_split.tolist() == [0] * 1500 + [1] * 917
    assert yeast.label_names == tuple(f"Class{i}" for i in range(1, 15))
    assert yeast.feature_names == tuple(f"Att{i}" for i in range(1, 104))
    assert yeast.name == "yeast"


def test_embedded_yeast_has_the_rows_of_mulans_file(data_folder):
    yeast = load_dataset("yeast")
    features, labels, X, Y = plain_arff(data_folder / "raw" / "yeast.arff.gz", 14, False)
    assert (tuple(features), tuple(labels)) == (yeast.feature_names, yeast.label_names)
    assert row_set(X, Y) == row_set(yeast.X, yeast.Y)
    first = np.array(X[0], dtype=np.float32)
    assert not np.array_equal(first, yeast.X[0])  # the whole file has another order


def test_embedded_yeast_has_the_rows_and_the_order_of_mekas_file(data_folder):
    yeast = load_dataset("yeast")
    features, labels, X, Y = plain_arff(data_folder / "raw" / "meka-Yeast.arff.gz", 14, True)
    assert (tuple(features), tuple(labels)) == (yeast.feature_names, yeast.label_names)
    assert row_set(X, Y) == row_set(yeast.X, yeast.Y)
    assert np.array_equal(np.array(X, dtype=np.float32), yeast.X)
    assert np.array_equal(np.array(Y, dtype=np.uint8), yeast.Y)


@pytest.fixture(scope="module")
def embed_yeast():
    path = Path(__file__).parents[3] / "tools" / "embed_yeast.py"
    spec = importlib.util.spec_from_file_location("embed_yeast", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_that_appear_twice_are_matched_once_each(embed_yeast):
    X = np.array([[1], [2], [1], [-0.0]], dtype=np.float32)
    Y = np.array([[0], [1], [0], [1]], dtype=np.uint8)
    order = [3, 2, 1, 0]
    assert embed_yeast.matching_rows((X, Y), (X[order] + 0, Y[order])) == [3, 0, 1, 2]
    with pytest.raises(SystemExit, match="same rows"):
        embed_yeast.matching_rows((X, Y), (X[[0, 0, 0, 1]], Y[[0, 0, 0, 1]]))


def test_tool_makes_the_embedded_file_again(embed_yeast, tmp_path):
    """From a table in another order, with the embedded file itself giving the order."""
    embedded = Path(str(resources.files("cgmvae.data") / "embedded" / "yeast.npz"))
    yeast = load_dataset("yeast")
    table, output = tmp_path / "yeast.csv.gz", tmp_path / "yeast.npz"
    with gzip.open(table, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*yeast.feature_names, *yeast.label_names])
        for i in np.random.default_rng(0).permutation(yeast.n_samples):
            writer.writerow([*map(str, yeast.X[i]), *yeast.Y[i].tolist()])
    arguments = ["--order-from", embedded, "--table", table, "--output", output]
    run = subprocess.run(
        [sys.executable, embed_yeast.__file__, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "2,417 rows" in run.stdout
    made = readers.read(output)
    assert np.array_equal(made.X, yeast.X)
    assert np.array_equal(made.Y, yeast.Y)
    assert np.array_equal(made.official_split, yeast.official_split)
