"""Create the embedded yeast data set from the copy in the package river.

The rows are reordered like another file of the same data: Mulan's train file followed by its test
file, which is also the order of MEKA's file. Usage::

    python tools/embed_yeast.py --order-from Yeast.arff
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections import defaultdict, deque
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cgmvae.data import readers
from cgmvae.data.dataset import TEST, TRAIN, MultiLabelDataset

OUTPUT = Path(__file__).parents[1] / "src" / "cgmvae" / "data" / "embedded" / "yeast.npz"

FEATURE_NAMES = [f"Att{i}" for i in range(1, 104)]
LABEL_NAMES = [f"Class{i}" for i in range(1, 15)]

#: Rows of Mulan's train file; the others are its test file.
N_TRAIN = 1500

Table = tuple[NDArray[np.float32], NDArray[np.uint8]]


def read_river(path: Path) -> Table:
    """Read river's table into features (n, 103) and labels (n, 14)."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    X = np.array([[float(row[name]) for name in FEATURE_NAMES] for row in rows])
    Y = np.array([[int(row[name]) for name in LABEL_NAMES] for row in rows])
    return X.astype(np.float32), Y.astype(np.uint8)


def read_order(path: Path) -> Table:
    """Read the file that defines the order, an ARFF file of MEKA or an npz file."""
    dataset = readers.read(path)
    features = [list(dataset.feature_names).index(name) for name in FEATURE_NAMES]
    labels = [list(dataset.label_names).index(name) for name in LABEL_NAMES]
    X = np.asarray(dataset.X, dtype=np.float32)[:, features]
    return X, np.asarray(dataset.Y, dtype=np.uint8)[:, labels]


def matching_rows(table: Table, ordered: Table) -> list[int]:
    """Return the indices of the rows of ``table`` in the order of ``ordered``, each used once."""
    indices: dict[bytes, deque[int]] = defaultdict(deque)
    for i, key in enumerate(_row_keys(table)):
        indices[key].append(i)
    keys = _row_keys(ordered)
    if sorted(keys) != sorted(_row_keys(table)):
        raise SystemExit("The two files do not contain the same rows.")
    return [indices[key].popleft() for key in keys]


def _row_keys(table: Table) -> list[bytes]:
    X, Y = table
    X = X + np.float32(0)  # so that -0 and 0 are the same bytes
    return [x.tobytes() + y.tobytes() for x, y in zip(X, Y, strict=True)]


def main() -> None:
    """Read, reorder and write the data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--order-from", type=Path, required=True, help="ARFF or npz file")
    parser.add_argument("--table", type=Path, help="river's yeast.csv.gz, if not the installed one")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    table = options.table or Path(str(resources.files("river.datasets") / "yeast.csv.gz"))

    X, Y = read_river(table)
    rows = matching_rows((X, Y), read_order(options.order_from))
    split = np.where(np.arange(len(rows)) < N_TRAIN, TRAIN, TEST).astype(np.uint8)
    dataset = MultiLabelDataset(
        X[rows],
        Y[rows],
        label_names=LABEL_NAMES,
        feature_names=FEATURE_NAMES,
        official_split=split,
        name="yeast",
    )
    readers.write(dataset, options.output)
    moved = sum(i != row for i, row in enumerate(rows))
    print(f"Read {len(X):,} rows from {table.name}, moved {moved:,} into the order of")
    print(f"{options.order_from.name}: {N_TRAIN:,} train, {len(rows) - N_TRAIN:,} test rows.")
    print(f"Wrote {options.output.stat().st_size:,} bytes to {options.output.name}.")


if __name__ == "__main__":
    main()
