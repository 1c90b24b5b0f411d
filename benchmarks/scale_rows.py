"""How much memory fits take: of rows on disk, and beyond the bytes of rows in memory.

    python benchmarks/scale_rows.py --gigabytes 20
    python benchmarks/scale_rows.py --fits

The first writes a memory-mapped matrix of so many gibibytes, a block at a time, with labels that
depend on it, and trains one member for one epoch on it in a process of its own. The second fits
whole models to data of two shapes, dense and sparse, as loaded. Memory is anonymous memory
(``RssAnon``, without the page cache), sampled all the time, above what the process took before the
fit: after the imports, or after its input was loaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from resident import PeakAnonymous

GIBIBYTE, MEBIBYTE = 2**30, 2**20

#: Columns of the mapped matrix, its labels, and the rows that are written at a time.
N_FEATURES, N_LABELS, BLOCK_ROWS = 1024, 20, 8192

#: The two complete fits: rows, features, labels, and the share of features that are not 0.
FITS = {"dense": (269_648, 128, 85, 1.0), "sparse": (87_856, 2_150, 208, 0.06)}

#: Settings of the one member that is trained on the mapped matrix.
MAPPED_SETTINGS = {"epochs": 1, "n_members": 1, "embedding_dim": 128, "batch_size": 1024}


def labels_of(X: Any, n_labels: int, rng: np.random.Generator) -> np.ndarray:
    """Return labels that depend on the rows, each with a share of its own."""
    weights = np.random.default_rng(0).normal(size=(X.shape[1], n_labels)) / X.shape[1] ** 0.5
    logits = 3 * (X @ weights.astype(np.float32)) - np.linspace(0.5, 3, n_labels)
    return (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.uint8)


def write_mapped(folder: Path, gigabytes: float) -> None:
    """Write a matrix of this size and its labels, a block of rows at a time."""
    n_rows = int(gigabytes * GIBIBYTE) // (N_FEATURES * 4)
    rng = np.random.default_rng(1)
    shape = (n_rows, N_FEATURES)
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    labels = []
    with (folder / "X.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, n_rows, BLOCK_ROWS):
            X = rng.standard_normal((min(BLOCK_ROWS, n_rows - start), N_FEATURES), np.float32)
            labels.append(labels_of(X, N_LABELS, rng))
            file.write(X.data)
    np.save(folder / "Y.npy", np.concatenate(labels))


def write_input(folder: Path, shape: str) -> None:
    """Write the input of one of the complete fits."""
    n_rows, n_features, n_labels, density = FITS[shape]
    rng = np.random.default_rng(2)
    X: Any = rng.standard_normal((n_rows, n_features), np.float32)
    if density < 1:
        X = sp.csr_array(np.where(rng.random(X.shape, np.float32) < density, np.abs(X), 0))
        sp.save_npz(folder / "X.npz", X, compressed=False)
    else:
        np.save(folder / "X.npy", X)
    np.save(folder / "Y.npy", labels_of(X, n_labels, rng))


def fit_mapped(folder: Path) -> dict[str, Any]:
    """Fit the mapped matrix, and predict its first rows."""
    from cgmvae import CGMVAEClassifier

    model = CGMVAEClassifier(random_state=0, device="cpu", **MAPPED_SETTINGS)
    started = time.perf_counter()
    with PeakAnonymous() as memory:
        X, Y = np.load(folder / "X.npy", mmap_mode="r"), np.load(folder / "Y.npy")
        model.fit(X, Y)
    found = {"seconds": time.perf_counter() - started, "extra": memory.above}
    score = model.score(X[:10_000], Y[:10_000])
    return {"rows": len(X), "bytes": X.nbytes, "micro_f1": score, **found}


def fit_loaded(folder: Path, n_members: int) -> dict[str, Any]:
    """Fit an input that is in memory, with the settings that a user gets."""
    from cgmvae import CGMVAEClassifier

    sparse = (folder / "X.npz").exists()
    X: Any = sp.load_npz(folder / "X.npz") if sparse else np.load(folder / "X.npy")
    Y = np.load(folder / "Y.npy")
    parts = (X.data, X.indices, X.indptr) if sparse else (X,)
    n_bytes = Y.nbytes + sum(part.nbytes for part in parts)
    model = CGMVAEClassifier(epochs=2, n_members=n_members, random_state=0, device="cpu")
    started = time.perf_counter()
    with PeakAnonymous() as memory:
        model.fit(X, Y)
    found = {"seconds": time.perf_counter() - started, "extra": memory.above}
    return {"rows": X.shape[0], "bytes": n_bytes, **found}


def in_process(*arguments: str) -> dict[str, Any]:
    """Run this file in a process of its own, and return what it found."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def report_mapped(folder: Path, gigabytes: float) -> None:
    """Print what one epoch over the mapped matrix takes."""
    write_mapped(folder, gigabytes)
    found = in_process("--child", "mapped", "--folder", str(folder))
    print(
        f"mapped, {found['rows']:,} rows × {N_FEATURES:,} features × {N_LABELS} labels, "
        f"{found['bytes'] / GIBIBYTE:.2f} GiB, {MAPPED_SETTINGS}: "
        f"{found['seconds']:.0f} s, peak RssAnon {found['extra'] / GIBIBYTE:.2f} GiB above the "
        f"process after import; micro-F1 {found['micro_f1']:.3f}"
    )


def report_fits(folder: Path, n_members: int) -> None:
    """Print what the complete fits take."""
    for shape, (n_rows, n_features, n_labels, density) in FITS.items():
        own = folder / shape
        own.mkdir()
        write_input(own, shape)
        found = in_process("--child", "loaded", "--folder", str(own), "--members", str(n_members))
        print(
            f"{shape}, {n_rows:,} rows × {n_features:,} features (density {density}) × "
            f"{n_labels} labels, members {n_members}, 2 epochs: input "
            f"{found['bytes'] / MEBIBYTE:.0f} MiB, extra {found['extra'] / MEBIBYTE:.0f} MiB = "
            f"{found['extra'] / found['bytes']:.2f} of it; {found['seconds']:.0f} s"
        )


def main() -> None:
    """Print the measurements that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, help="size of the mapped matrix")
    parser.add_argument("--fits", action="store_true", help="the two complete fits")
    parser.add_argument("--members", type=int, default=1, help="of the complete fits")
    parser.add_argument("--folder", type=Path, help="where the temporary files are put")
    parser.add_argument("--child", choices=["mapped", "loaded"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child == "mapped":
        print(json.dumps(fit_mapped(arguments.folder)))
        return
    if arguments.child == "loaded":
        print(json.dumps(fit_loaded(arguments.folder, arguments.members)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        if arguments.gigabytes:
            report_mapped(Path(folder), arguments.gigabytes)
        if arguments.fits:
            report_fits(Path(folder), arguments.members)


if __name__ == "__main__":
    main()
