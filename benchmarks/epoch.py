"""Cost of a training epoch on a CPU beyond its matrix products, and what packing saves.

    python benchmarks/epoch.py

Ratios of times taken alternately in one run, so that a noisy machine disturbs both sides alike:

1. an epoch of yeast at E = 2048, batch 128, one member, over the bare matrix products of the same
   shapes, forward and backward, which are taken after every epoch;
2. eight packed members at E = 512 over eight runs one after the other;
3. peak resident memory of a fit of delicious, if its data is available.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Sequence

from measurement import (
    LAYERS,
    MIB,
    environment,
    epoch_over_products,
    epoch_seconds,
    make_parser,
    quartiles,
    ratios,
)

from cgmvae.data import MultiLabelDataset, load_dataset, make_split

DECODER_HIDDEN = (512, 512)

#: Epochs of each fit when packed members are compared with single ones, after the first.
PACKED_EPOCHS = 4

DELICIOUS = """
import resource
from cgmvae import CGMVAEClassifier, load_dataset
data = load_dataset("delicious", download=False)
CGMVAEClassifier(n_members=8, epochs=2, device="cpu").fit(data.X, data.Y)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def training_rows(*, quick: bool) -> MultiLabelDataset:
    """Return the training rows of yeast."""
    data = load_dataset("yeast")
    rows = make_split(data, seed=0, drop_empty=True).train
    return data.rows(rows[:128] if quick else rows)


def fit(
    data: MultiLabelDataset, n_members: int, embedding_dim: int, seed: int = 0
) -> Callable[[], object]:
    """Return a fit of some members; one validation row keeps evaluation out of it."""
    return lambda: epoch_seconds(
        data,
        PACKED_EPOCHS,
        n_validation=1,
        n_members=n_members,
        embedding_dim=embedding_dim,
        encoding="standard",
        settings=LAYERS | {"decoder_hidden": DECODER_HIDDEN},
        random_state=seed,
    )


def delicious_memory() -> str:
    """Return the peak resident memory of a process that fits delicious for two epochs."""
    command = [sys.executable, "-c", DELICIOUS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return f"{float(done.stdout) / MIB:.2f} GiB"
    return f"not measured ({done.stderr.strip().splitlines()[-1]})"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the three measurements."""
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args(argv)
    wide, narrow, n_members = 2048, 512, 8
    if options.quick:
        options.repeats, options.epochs, wide, narrow, n_members = 1, 2, 32, 16, 2
    data = training_rows(quick=options.quick)
    print(environment())
    epochs = epoch_over_products(
        data,
        options.epochs,
        n_validation=1,
        embedding_dim=wide,
        decoder_hidden=DECODER_HIDDEN,
    )
    print(f"epoch of yeast, E = {wide}, one member / bare matrix products: {quartiles(epochs)}")
    singles = [fit(data, 1, narrow, seed) for seed in range(n_members)]
    packed = ratios(
        fit(data, n_members, narrow), lambda: [single() for single in singles], options.repeats
    )
    print(f"{n_members} packed members / as many single runs, E = {narrow}: {quartiles(packed)}")
    if not options.quick:
        print(f"peak resident memory of a fit of delicious, 8 members: {delicious_memory()}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB
    print(f"(this process: {peak:.2f} GiB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
