"""How much a training epoch costs beyond its matrix products, and what packing saves.

    python benchmarks/epoch.py

Ratios of times taken in one run, alternately, so that a noisy machine disturbs both sides alike:

1. an epoch of yeast at E = 2048, batch 128, one member, against the bare matrix products of the
   same shapes, forward and backward: the difference between fits of 2n and of n epochs over the
   products of n epochs, and a whole fit of n epochs over the same products;
2. eight packed members at E = 512 against eight runs one after the other;
3. peak resident memory of a fit of delicious, where its data is here.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from cgmvae.data import load_dataset, make_split
from cgmvae.methods.cgmvae import CGMVAEClassifier

BATCH = 128


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fit_yeast(
    n_members: int, embedding_dim: int, epochs: int, seed: int = 0
) -> Callable[[], object]:
    """Return a fit of yeast's training rows; one validation row keeps evaluation out of it."""
    data = load_dataset("yeast")
    train = data.rows(make_split(data, seed=0).train)
    model = CGMVAEClassifier(
        n_members=n_members,
        embedding_dim=embedding_dim,
        epochs=epochs,
        settings={"decoder_hidden": (512, 512)},
        random_state=seed,
        device="cpu",
    )
    held = (train.X[:128], train.Y[:128])
    return lambda: model.fit(train.X, train.Y, validation_data=held)


def matrix_products(embedding_dim: int, n_rows: int, epochs: int) -> Callable[[], object]:
    """Return the matrix products of the same epochs: forward, and two for each backward."""
    d, n_features, n_labels = 64, 103, 14
    layers = [
        (BATCH, [n_features, 256, 512, 256, 2 * d]),
        (n_labels, [embedding_dim, 512, 256, 2 * d]),
        (BATCH, [n_features + d, 512, 512, embedding_dim, n_labels]),
    ]
    pairs = [
        (torch.randn(rows, n_in), torch.randn(n_in, n_out), torch.randn(rows, n_out))
        for rows, widths in layers
        for n_in, n_out in itertools.pairwise(widths)
    ]
    n_steps = -(-n_rows // BATCH) * epochs

    def work() -> None:
        for _ in range(n_steps):
            for x, weight, gradient in pairs:
                x @ weight
                x.T @ gradient
                gradient @ weight.T

    return work


def ratio(numerator: Callable[[], object], denominator: Callable[[], object], repeats: int) -> str:
    """Return the median of paired ratios, and their range."""
    numerator(), denominator()
    ratios = [seconds(numerator) / seconds(denominator) for _ in range(repeats)]
    return described(ratios)


def epoch_ratios(epochs: int, n_rows: int, repeats: int) -> tuple[str, str]:
    """Return the ratios of epochs, and of whole fits, to their matrix products."""
    short, long = fit_yeast(1, 2048, epochs), fit_yeast(1, 2048, 2 * epochs)
    products = matrix_products(2048, n_rows, epochs)
    short(), products()
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        # The products before, between and after: their speed drifts with the machine's.
        times = [seconds(work) for work in (products, short, products, long, products)]
        bare = (times[0] + 2 * times[2] + times[4]) / 4
        found[0].append((times[3] - times[1]) / bare)
        found[1].append(times[1] / bare)
    return described(found[0]), described(found[1])


def described(ratios: list[float]) -> str:
    """Return the median of ratios, and their range."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def delicious_memory() -> str:
    """Return the peak resident memory of a process that fits delicious for two epochs."""
    code = (
        "from cgmvae import CGMVAEClassifier, load_dataset\n"
        "import resource\n"
        "data = load_dataset('delicious')\n"
        "CGMVAEClassifier(n_members=8, epochs=2, device='cpu').fit(data.X, data.Y)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return f"{float(done.stdout):.2f} GiB" if done.returncode == 0 else "no data here"


def main() -> None:
    """Print the three measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    epochs, repeats = arguments.epochs, arguments.repeats
    n_rows = len(make_split(load_dataset("yeast"), seed=0).train)
    print(f"threads: {torch.get_num_threads()}, torch {torch.__version__}, numpy {np.__version__}")
    epoch, fit = epoch_ratios(epochs, n_rows, repeats)
    print(f"epoch of yeast, E = 2048, one member / bare matrix products: {epoch}")
    print(f"the whole fit of {epochs} such epochs / bare matrix products: {fit}")
    singles = [fit_yeast(1, 512, epochs, seed) for seed in range(8)]
    packed = ratio(fit_yeast(8, 512, epochs), lambda: [fit() for fit in singles], repeats)
    print(f"eight packed members / eight single runs, E = 512: {packed}")
    print(f"peak resident memory of a fit of delicious, 8 members: {delicious_memory()}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"(this process: {peak:.2f} GiB)")


if __name__ == "__main__":
    main()
