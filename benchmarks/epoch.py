"""How much a training epoch costs beyond its matrix products, and what packing saves.

    python benchmarks/epoch.py

Ratios of times taken in one run, alternately, so that a noisy machine disturbs both sides alike:

1. an epoch of yeast at E = 2048, batch 128, one member, against the bare matrix products of the
   same shapes, forward and backward, which are taken after every epoch;
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

#: Epochs of each fit where packed members are compared with single ones.
PACKED_EPOCHS = 5


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fit_yeast(
    n_members: int, embedding_dim: int, epochs: int, seed: int = 0, progress: object = None
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
        progress=progress,
    )
    held = (train.X[:1], train.Y[:1])
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
    """Return the median of paired ratios, and their quartiles."""
    numerator(), denominator()
    ratios = [seconds(numerator) / seconds(denominator) for _ in range(repeats)]
    return described(ratios)


def epoch_ratios(epochs: int, embedding_dim: int = 2048) -> list[float]:
    """Return each epoch but the first over the bare matrix products taken just after it."""
    data = load_dataset("yeast")
    train = data.rows(make_split(data, seed=0).train)
    products = matrix_products(embedding_dim, train.n_samples, 1)
    products()
    ratios: list[float] = []
    start = time.perf_counter()

    def after_epoch(*_: object) -> None:
        nonlocal start
        own = time.perf_counter() - start
        ratios.append(own / seconds(products))
        start = time.perf_counter()

    fit_yeast(1, embedding_dim, epochs + 1, progress=after_epoch)()
    return ratios[1:]


def described(ratios: list[float]) -> str:
    """Return the median of ratios, and their quartiles."""
    low, median, high = statistics.quantiles(ratios, n=4)
    return f"{median:.2f} (quartiles {low:.2f} and {high:.2f})"


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
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=60)
    arguments = parser.parse_args()
    repeats = arguments.repeats
    print(f"threads: {torch.get_num_threads()}, torch {torch.__version__}, numpy {np.__version__}")
    epoch = described(epoch_ratios(arguments.epochs))
    print(f"epoch of yeast, E = 2048, one member / bare matrix products: {epoch}")
    singles = [fit_yeast(1, 512, PACKED_EPOCHS, seed) for seed in range(8)]
    packed = ratio(fit_yeast(8, 512, PACKED_EPOCHS), lambda: [fit() for fit in singles], repeats)
    print(f"eight packed members / eight single runs, E = 512: {packed}")
    print(f"peak resident memory of a fit of delicious, 8 members: {delicious_memory()}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"(this process: {peak:.2f} GiB)")


if __name__ == "__main__":
    main()
