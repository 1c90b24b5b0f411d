"""How time and memory grow with labels, features, rows, density and members.

    python benchmarks/scale.py imdb      one epoch of imdb over its bare matrix products
    python benchmarks/scale.py labels    1,000 to 30,000 labels: seconds a step, share of the KL
    python benchmarks/scale.py memory    30,000 labels, 14,000 rows: peak anonymous memory
    python benchmarks/scale.py growth    log-log slopes, beside the dense way

Each measurement runs in a process of its own, so that none inherits the memory of another. The
dense way is the same estimator on features and labels without zeros left out, with a network that
scores every component and every label at once. ``scale_rows.py`` measures rows beyond memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from epoch import described as quartiles
from epoch import seconds
from resident import PeakAnonymous

from cgmvae.data import load_dataset, make_survey
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.methods.cgmvae import CGMVAEClassifier

BATCH = 128
GIB = 2**30

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

#: Rows of the epochs that show the share of the KL: short ones, for the machine changes its pace.
KL_ROWS = 512


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


def epoch_seconds(
    data: MultiLabelDataset,
    epochs: int,
    *,
    after: Callable[[], object] = lambda: None,
    **parameters: Any,
) -> list[float]:
    """Return the seconds of each epoch after the first, with one block of rows to validate on.

    ``after`` is called after every epoch, and its time does not count.
    """
    own: list[float] = []
    start = time.perf_counter()

    def after_epoch(*_: object) -> None:
        nonlocal start
        own.append(time.perf_counter() - start)
        after()
        start = time.perf_counter()

    model = CGMVAEClassifier(
        epochs=epochs, random_state=0, device="cpu", progress=after_epoch, **parameters
    )
    held = data.rows(np.arange(min(BATCH, data.n_samples)))
    model.fit(data.X, data.Y, validation_data=(held.X, held.Y))
    return own[1:]


def measure(
    sizes: Mapping[str, float], *, dense: bool = False, epochs: int = 4, **more: Any
) -> Any:
    """Return the median seconds of a step, and the bytes of a fit above those of the input."""
    data = survey(sizes)
    if dense:
        data = written_out(data)
    steps = -(-data.n_samples // BATCH)
    with PeakAnonymous() as memory:
        seconds = epoch_seconds(data, epochs, n_members=int(sizes["n_members"]), **more)
    return {"step": statistics.median(seconds) / steps, "bytes": memory.above}


def written_out(data: MultiLabelDataset) -> MultiLabelDataset:
    """Return the data with all zeros, and have networks score all labels at once."""
    from cgmvae.model import network

    network.MANY_LABELS = sys.maxsize
    return MultiLabelDataset(data.X.toarray(), data.Y.toarray(), name=data.name)


def apart(name: str, *arguments: Any) -> Any:
    """Call a function of this file in a process of its own."""
    code = (
        "import json, sys, scale\n"
        "name, positional, named = json.loads(sys.argv[1])\n"
        "print(json.dumps(getattr(scale, name)(*positional, **named)))"
    )
    *positional, named = arguments
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([name, positional, named])],
        capture_output=True,
        text=True,
        cwd=__file__.rpartition("/")[0] or ".",
        check=False,
    )
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1:]}
    return json.loads(done.stdout)


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def growth() -> None:
    """Print how a step and the memory of a fit grow with each size."""
    for name, dense in itertools.product(GROWING, (False, True)):
        found = []
        for size in GROWING[name]:
            one = apart("measure", BASE | {name: size}, {"dense": dense})
            if "failed" in one:
                print(f"{name} = {size:g}, dense = {dense}: {one['failed']}")
                break
            found.append(one)
        sizes = GROWING[name][: len(found)]
        way = "dense way" if dense else "cgmvae"
        for what, unit, factor in (("step", "ms", 1e3), ("bytes", "MiB", 2**-20)):
            values = [one[what] for one in found]
            shown = ", ".join(
                f"{size:g}: {value * factor:.4g}" for size, value in zip(sizes, values, strict=True)
            )
            line = f"{slope(sizes, values):.2f}" if len(values) > 1 else "–"
            print(f"{name} | {way} | {what} ({unit}) | {shown} | slope {line}", flush=True)


def wide_survey(n_labels: int, n_samples: int) -> dict[str, float]:
    """Return the sizes of a survey of 100,000 sparse features and 19 labels a row."""
    return BASE | {
        "n_samples": n_samples,
        "n_features": 100_000,
        "n_labels": n_labels,
        "feature_density": 0.001,
        "cardinality": 19.0,
    }


def labels(n_samples: int = 1408) -> None:
    """Print seconds a step by the number of labels, their slope, and the share of the KL."""
    steps = []
    for n_labels in MANY_LABELS:
        found = apart("measure", wide_survey(n_labels, n_samples), {"epochs": 3})
        steps.append(found["step"])
        print(f"{n_labels:,} labels: {found['step'] * 1e3:.0f} ms a step", flush=True)
    print(f"slope of the step in the labels: {slope(MANY_LABELS, steps):.2f}")
    shares = apart("kl_shares", wide_survey(MANY_LABELS[-1], KL_ROWS), {})
    print(f"share of the KL in a step at {MANY_LABELS[-1]:,} labels: {quartiles(shares)}")


def kl_shares(sizes: Mapping[str, float], epochs: int = 25) -> list[float]:
    """Return shares of an epoch that go when the KL does, from two fits whose epochs take turns."""
    full, without = epochs_in_turn(survey(sizes), epochs, {}, {"kl_weight": 0.0})
    return [1 - b / a for a, b in zip(full, without, strict=True)]


def epochs_in_turn(
    data: MultiLabelDataset, epochs: int, *parameters: Mapping[str, Any]
) -> list[list[float]]:
    """Return the seconds of each epoch after the first of fits that never run at the same time."""
    turn, changed = 0, threading.Condition()

    def pass_on(place: int) -> None:
        nonlocal turn
        with changed:
            turn = (place + 1) % len(parameters)
            changed.notify_all()

    def wait_for(place: int) -> None:
        with changed:
            changed.wait_for(lambda: turn == place)

    def after_epoch(place: int) -> None:
        pass_on(place)
        wait_for(place)

    def fit(place: int) -> list[float]:
        wait_for(place)
        try:
            after = partial(after_epoch, place)
            return epoch_seconds(data, epochs, after=after, n_members=1, **parameters[place])
        finally:
            pass_on(place)

    with ThreadPoolExecutor(len(parameters)) as pool:
        return list(pool.map(fit, range(len(parameters))))


def memory() -> None:
    """Print the peak memory of two epochs on 14,000 rows and 30,000 labels."""
    found = apart("measure", wide_survey(30_000, 14_000), {"epochs": 2})
    print(f"30,000 labels, 14,000 rows × 100,000 features: {found['bytes'] / GIB:.2f} GiB", end="")
    print(f", {found['step'] * 1e3:.0f} ms a step")


def imdb_ratio(epochs: int = 5) -> list[float]:
    """Return epochs of imdb over the bare matrix products of the same shapes, in turn."""
    data = load_dataset("imdb")
    products = matrix_products(data, 512)
    bare: list[float] = []
    # The clock stops while the products run: each epoch has its own beside it.
    own = epoch_seconds(data, epochs, n_members=1, after=lambda: bare.append(seconds(products)))
    return [epoch / beside for epoch, beside in zip(own, bare[1:], strict=True)]


def matrix_products(data: MultiLabelDataset, embedding_dim: int) -> Callable[[], object]:
    """Return the products of an epoch's dense layers: forward, and two for each backward."""
    d, n_features, n_labels = 64, data.n_features, data.n_labels
    layers = [
        (BATCH, [n_features, 256, 512, 256, 2 * d]),
        (n_labels, [embedding_dim, 512, 256, 2 * d]),
        (BATCH, [n_features + d, 512, embedding_dim, n_labels]),
    ]
    pairs = [
        (torch.randn(rows, n_in), torch.randn(n_in, n_out), torch.randn(rows, n_out))
        for rows, widths in layers
        for n_in, n_out in itertools.pairwise(widths)
    ]

    def work() -> None:
        for _ in range(-(-data.n_samples // BATCH)):
            for x, weight, gradient in pairs:
                x @ weight
                x.T @ gradient
                gradient @ weight.T

    return work


def imdb() -> None:
    """Print the ratio of an epoch of imdb to its matrix products."""
    print(f"epoch of imdb, one member / bare matrix products: {described(imdb_ratio())}")


def described(values: Sequence[float]) -> str:
    """Return the median of values, and their range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Print the measurements that were asked for."""
    work = {"imdb": imdb, "labels": labels, "memory": memory, "growth": growth}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", choices=[*work, []], default=list(work))
    chosen = parser.parse_args().what
    print(f"threads: {torch.get_num_threads()}, torch {torch.__version__}, numpy {np.__version__}")
    for name in chosen:
        work[name]()


if __name__ == "__main__":
    main()
