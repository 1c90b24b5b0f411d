"""How time and memory grow with labels, features, rows, density and members.

    python benchmarks/scale.py imdb      an epoch of imdb over its bare matrix products
    python benchmarks/scale.py labels    1,000 to 30,000 labels: time per step, share of the KL
    python benchmarks/scale.py memory    30,000 labels, 14,000 rows: peak memory
    python benchmarks/scale.py growth    log-log slopes, compared with the dense way
    python benchmarks/scale.py fits      whole fits, dense and sparse: memory beyond the input
    python benchmarks/scale.py disk      rows on disk, 25,000 to 100,000, eight members: memory
    python benchmarks/scale.py mapped    one epoch on memory-mapped rows (--gibibytes 20): memory

Each measurement runs in a process of its own, so that none inherits the memory of another. Memory
is anonymous memory (``RssAnon``, without the page cache), sampled throughout, above that of the
process before the fit. The dense way is the same estimator on features and labels that store their
zeros, with a network that encodes every label for each batch. Linux only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from measurement import (
    GIB,
    MIB,
    TINY_NETWORK,
    TINY_ROWS,
    PeakMemory,
    environment,
    epoch_over_products,
    epoch_seconds,
    make_parser,
    print_row,
    quartiles,
)

from cgmvae.data import MultiLabelDataset, load_dataset, make_survey
from cgmvae.data.mapped import MappedRows
from cgmvae.methods import CGMVAEClassifier
from cgmvae.model import network

BATCH = 128

#: The survey whose sizes vary, one at a time.
BASE = {
    "n_samples": 1408,
    "n_features": 2000,
    "n_labels": 500,
    "feature_density": 0.02,
    "cardinality": 10.0,
    "n_members": 1,
}
GROWING: Mapping[str, Sequence[float]] = {
    "n_samples": (1408, 2816, 5632, 11264),
    "n_features": (1000, 4000, 16000, 64000),
    "n_labels": (250, 1000, 4000, 16000),
    "feature_density": (0.005, 0.02, 0.08, 0.32),
    "n_members": (1, 2, 4, 8),
}
MANY_LABELS = (1000, 3000, 10_000, 30_000)

#: Rows for the share of the KL: epochs are short, since the speed of a machine varies over time.
KL_ROWS = 512

#: The two whole fits: rows, features, labels, and the share of features that are not 0.
FITS = {"dense": (269_648, 128, 85, 1.0), "sparse": (87_856, 2_150, 208, 0.06)}

#: Columns of the memory-mapped matrix, its labels, and the rows that are written at a time.
MAPPED_FEATURES, MAPPED_LABELS, BLOCK_ROWS = 1024, 20, 8192
MAPPED_SETTINGS = {"epochs": 1, "n_members": 1, "embedding_dim": 128, "batch_size": 1024}

#: Rows on disk whose number grows, their columns, and the settings of the fit.
DISK_ROWS, DISK_FEATURES = (25_000, 50_000, 100_000), 50
DISK_SETTINGS = {"epochs": 1, "n_members": 8}

#: What --quick divides rows, features and labels by.
QUICK_DIVISOR = 50


class Runner:
    """Calls functions of this file, each in a process of its own; with ``--quick`` in this one."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.quick, self.options = options.quick, options

    def __call__(self, name: str, **arguments: Any) -> Any:
        """Return what the function returns, or a mapping with the reason that it failed for."""
        if self.quick:
            return globals()[name](**arguments)
        command = [sys.executable, __file__, "--call", json.dumps([name, arguments])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"failed": done.stderr.strip().splitlines()[-1:]}
        return json.loads(done.stdout.splitlines()[-1])

    @property
    def network(self) -> dict[str, Any]:
        """Settings of C-GMVAE."""
        return TINY_NETWORK if self.quick else {}

    def size(self, number: float, least: int = 20) -> int:
        """Return a number of rows, features or labels, smaller with ``--quick``."""
        return max(least, int(number) // QUICK_DIVISOR) if self.quick else int(number)

    def sizes(self, **changes: float) -> dict[str, float]:
        """Return the sizes of a survey."""
        sizes = BASE | changes
        sizes |= {name: self.size(sizes[name]) for name in ("n_features", "n_labels")}
        sizes["n_samples"] = self.size(sizes["n_samples"], TINY_ROWS)
        return sizes | {"cardinality": min(sizes["cardinality"], sizes["n_labels"] / 4)}


# Measurements, each in its own process


def survey(sizes: Mapping[str, float]) -> MultiLabelDataset:
    """Return a survey of these sizes with sparse labels."""
    whole = {name: int(sizes[name]) for name in ("n_samples", "n_features", "n_labels")}
    data, _ = make_survey(
        **whole,
        cardinality=sizes["cardinality"],
        feature_density=sizes["feature_density"],
        group_strength=0.0,
        sparse_labels=True,
    )
    return data


def measure_survey(
    sizes: Mapping[str, float], settings: Mapping[str, Any], *, dense: bool = False, epochs: int = 3
) -> Any:
    """Return the median seconds of a step, and the bytes of a fit beyond those of the input."""
    data = survey(sizes)
    if dense:
        data = MultiLabelDataset(_dense(data.X), _dense(data.Y), name=data.name)
    steps = -(-data.n_samples // BATCH)
    with encoding_all_labels(dense), PeakMemory() as memory:
        times = epoch_seconds(data, epochs, n_members=int(sizes["n_members"]), **settings)
    return {"step": statistics.median(times) / steps, "bytes": memory.above}


@contextmanager
def encoding_all_labels(enabled: bool) -> Iterator[None]:
    """Have networks encode all labels for each batch, however many there are."""
    before = network.MANY_LABELS
    network.MANY_LABELS = sys.maxsize if enabled else before
    try:
        yield
    finally:
        network.MANY_LABELS = before


def _dense(matrix: Any) -> np.ndarray:
    return matrix.toarray() if sp.issparse(matrix) else matrix


def kl_shares(sizes: Mapping[str, float], settings: Mapping[str, Any], epochs: int) -> list[float]:
    """Return the shares of an epoch that the KL takes, from two fits whose epochs alternate."""
    full, without = alternating_epochs(
        survey(sizes), epochs, settings, {**settings, "kl_weight": 0.0}
    )
    return [1 - b / a for a, b in zip(full, without, strict=True)]


def alternating_epochs(
    data: MultiLabelDataset, epochs: int, *parameters: Mapping[str, Any]
) -> list[list[float]]:
    """Return the seconds of each epoch after the first of fits that take turns by epoch."""
    turn, changed = 0, threading.Condition()

    def end_turn(number: int) -> None:
        nonlocal turn
        with changed:
            turn = (number + 1) % len(parameters)
            changed.notify_all()

    def wait_for_turn(number: int) -> None:
        with changed:
            changed.wait_for(lambda: turn == number)

    def after_epoch(number: int) -> None:
        end_turn(number)
        wait_for_turn(number)

    def fit(number: int) -> list[float]:
        wait_for_turn(number)
        try:
            after = partial(after_epoch, number)
            return epoch_seconds(data, epochs, after=after, n_members=1, **parameters[number])
        finally:
            end_turn(number)

    with ThreadPoolExecutor(len(parameters)) as pool:
        return list(pool.map(fit, range(len(parameters))))


def fit_loaded(folder: str, n_members: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fit an input that is in memory, with the default settings and few epochs."""
    path = Path(folder, "X.npz")
    X: Any = sp.load_npz(path) if path.exists() else np.load(path.with_name("X.npy"))
    Y = np.load(path.with_name("Y.npy"))
    parts = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
    n_bytes = Y.nbytes + sum(part.nbytes for part in parts)
    parameters = {"epochs": 2, "random_state": 0, "device": "cpu", **settings}
    model = CGMVAEClassifier(n_members=n_members, **parameters)
    started = time.perf_counter()
    with PeakMemory() as memory:
        model.fit(X, Y)
    taken = time.perf_counter() - started
    return {"shape": X.shape, "bytes": n_bytes, "seconds": taken, "extra": memory.above}


def fit_mapped(folder: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fit the memory-mapped matrix, and score its first rows."""
    model = CGMVAEClassifier(random_state=0, device="cpu", **settings)
    started = time.perf_counter()
    with PeakMemory() as memory:
        X = MappedRows(np.load(Path(folder, "X.npy"), mmap_mode="r"))
        Y = np.load(Path(folder, "Y.npy"))
        model.fit(X, Y)
    taken = time.perf_counter() - started
    score = model.score(X[:10_000], Y[:10_000])
    found = {"shape": X.shape, "bytes": X.n_bytes, "seconds": taken, "extra": memory.above}
    return found | {"micro_f1": score}


# Inputs of whole fits


def labels_of(X: Any, n_labels: int, rng: np.random.Generator) -> np.ndarray:
    """Return labels that depend on the rows, each with its own frequency."""
    weights = np.random.default_rng(0).normal(size=(X.shape[1], n_labels)) / X.shape[1] ** 0.5
    logits = 3 * (X @ weights.astype(np.float32)) - np.linspace(0.5, 3, n_labels)
    return (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.uint8)


def write_loaded(folder: Path, shape: Sequence[int], density: float) -> None:
    """Write the input of a whole fit."""
    n_rows, n_features, n_labels = shape
    rng = np.random.default_rng(2)
    X: Any = rng.standard_normal((n_rows, n_features), np.float32)
    if density < 1:
        X = sp.csr_array(np.where(rng.random(X.shape, np.float32) < density, np.abs(X), 0))
        sp.save_npz(folder / "X.npz", X, compressed=False)
    else:
        np.save(folder / "X.npy", X)
    np.save(folder / "Y.npy", labels_of(X, n_labels, rng))


def write_mapped(folder: Path, n_rows: int, n_features: int = MAPPED_FEATURES) -> None:
    """Write a matrix and its labels, one block of rows at a time."""
    rng = np.random.default_rng(1)
    header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, n_features)}
    labels = []
    with (folder / "X.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, n_rows, BLOCK_ROWS):
            X = rng.standard_normal((min(BLOCK_ROWS, n_rows - start), n_features), np.float32)
            labels.append(labels_of(X, MAPPED_LABELS, rng))
            file.write(X.data)
    np.save(folder / "Y.npy", np.concatenate(labels))


# What is printed


def imdb(run: Runner) -> None:
    """Print the ratio of an epoch of imdb to its matrix products."""
    data = survey(run.sizes()) if run.quick else load_dataset("imdb")
    settings = {"embedding_dim": 512, "decoder_hidden": (512,)}
    found = epoch_over_products(data, 1 if run.quick else 4, **settings)
    print(f"epoch of imdb, one member / bare matrix products: {quartiles(found)}")


def wide_sizes(run: Runner, n_labels: int, n_samples: int) -> dict[str, float]:
    """Return the sizes of a survey of 100,000 sparse features and 19 labels per row."""
    wide = {"n_features": 100_000, "feature_density": 0.001, "cardinality": 19.0}
    return run.sizes(n_samples=n_samples, n_labels=n_labels, **wide)


def labels(run: Runner) -> None:
    """Print the time per step by the number of labels, the slope, and the share of the KL."""
    steps = []
    for n_labels in MANY_LABELS:
        found = run(
            "measure_survey",
            sizes=wide_sizes(run, n_labels, 1408),
            settings=run.network,
            epochs=2,
        )
        steps.append(found["step"])
        print(f"{run.size(n_labels):,} labels: {found['step'] * 1e3:.0f} ms per step", flush=True)
    print(f"slope of the step in the labels: {slope(MANY_LABELS, steps):.2f}")
    sizes = wide_sizes(run, MANY_LABELS[-1], KL_ROWS)
    shares = run("kl_shares", sizes=sizes, settings=run.network, epochs=2 if run.quick else 24)
    print(f"share of the KL in a step at {int(sizes['n_labels']):,} labels: {quartiles(shares)}")


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-12)), 1)[0])


def memory(run: Runner) -> None:
    """Print the peak memory of two epochs on 14,000 rows and 30,000 labels."""
    sizes = wide_sizes(run, 30_000, 14_000)
    found = run("measure_survey", sizes=sizes, settings=run.network, epochs=1)
    shape = "{n_labels:,} labels, {n_samples:,} rows × {n_features:,} features".format(**sizes)
    print(f"{shape}: {found['bytes'] / GIB:.2f} GiB, {found['step'] * 1e3:.0f} ms per step")


def growth(run: Runner) -> None:
    """Print how a step and the memory of a fit grow with each size."""
    for name, dense in itertools.product(GROWING, (False, True)):
        sizes = GROWING[name][:2] if run.quick else GROWING[name]
        found = []
        for size in sizes:
            one = run(
                "measure_survey",
                sizes=run.sizes(**{name: size}),
                settings=run.network,
                dense=dense,
                epochs=1 if run.quick else 3,
            )
            if "failed" in one:
                print(f"{name} = {size:g}, dense = {dense}: {one['failed']}")
                break
            found.append(one)
        for what, unit, factor in (("step", "ms", 1e3), ("bytes", "MiB", 1 / MIB)):
            values = [one[what] for one in found]
            shown = ", ".join(
                f"{size:g}: {value * factor:.4g}"
                for size, value in zip(sizes, values, strict=False)
            )
            line = f"{slope(sizes[: len(values)], values):.2f}" if len(values) > 1 else "–"
            way = "dense way" if dense else "cgmvae"
            print_row(name, way, f"{what} ({unit})", shown, f"slope {line}")


def fits(run: Runner) -> None:
    """Print the memory of whole fits beyond their input."""
    members = run.options.members
    for kind, (*shape, density) in FITS.items():
        with tempfile.TemporaryDirectory(dir=run.options.folder) as folder:
            write_loaded(Path(folder), [run.size(size) for size in shape], density)
            found = run("fit_loaded", folder=folder, n_members=members, settings=run.network)
        n_rows, n_features = found["shape"]
        print(
            f"{kind}, {n_rows:,} rows × {n_features:,} features (density {density}), "
            f"{members} members, 2 epochs: input {found['bytes'] / MIB:.0f} MiB, extra "
            f"{found['extra'] / MIB:.0f} MiB = {found['extra'] / found['bytes']:.2f} of it; "
            f"{found['seconds']:.0f} s"
        )


def disk(run: Runner) -> None:
    """Print how the memory of a fit grows with the number of rows on disk."""
    for n_rows in (DISK_ROWS[0] // QUICK_DIVISOR,) if run.quick else DISK_ROWS:
        with tempfile.TemporaryDirectory(dir=run.options.folder) as folder:
            write_mapped(Path(folder), n_rows, DISK_FEATURES)
            found = run("fit_mapped", folder=folder, settings=DISK_SETTINGS | run.network)
        print(
            f"on disk, {n_rows:,} rows × {DISK_FEATURES} features × {MAPPED_LABELS} labels, "
            f"{found['bytes'] / MIB:.0f} MiB, {DISK_SETTINGS}: {found['seconds']:.0f} s, peak "
            f"{found['extra'] / MIB:.0f} MiB",
            flush=True,
        )


def mapped(run: Runner) -> None:
    """Print what one epoch over a memory-mapped matrix takes."""
    n_rows = int(run.options.gibibytes * GIB) // (MAPPED_FEATURES * 4)
    with tempfile.TemporaryDirectory(dir=run.options.folder) as folder:
        write_mapped(Path(folder), 1000 if run.quick else n_rows)
        found = run("fit_mapped", folder=folder, settings=MAPPED_SETTINGS)
    n_rows, n_features = found["shape"]
    print(
        f"mapped, {n_rows:,} rows × {n_features:,} features × {MAPPED_LABELS} labels, "
        f"{found['bytes'] / GIB:.2f} GiB, {MAPPED_SETTINGS}: {found['seconds']:.0f} s, peak "
        f"RssAnon {found['extra'] / GIB:.2f} GiB above the process before; micro-F1 "
        f"{found['micro_f1']:.3f}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the measurements that were asked for."""
    works = {work.__name__: work for work in (imdb, labels, memory, growth, fits, disk, mapped)}
    parser = make_parser(__doc__)
    parser.add_argument("what", nargs="*", choices=[*works, "all"], default="all")
    parser.add_argument("--gibibytes", type=float, default=20, help="size of the mapped matrix")
    parser.add_argument("--members", type=int, default=1, help="of the whole fits")
    parser.add_argument("--folder", type=Path, help="where temporary files are written")
    parser.add_argument("--call", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.call:
        name, arguments = json.loads(options.call)
        print(json.dumps(globals()[name](**arguments)))
        return 0
    print(environment())
    for name in works if "all" in options.what else options.what:
        works[name](Runner(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
