"""What a second process saves: an epoch of two processes against one of one.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 benchmarks/distributed.py

Ratios of times taken in one run, alternately, so that a noisy machine disturbs both sides alike;
each process has one thread. While the first process trains alone, the others wait.

1. rows: one member, whose batches are shared, against the same member in one process;
2. members: as many members as processes, each in one of them, against all in one process.

A ratio of 1 / processes is the best that can be; 1 or more means that nothing is saved.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from cgmvae.data import make_survey
from cgmvae.methods.cgmvae import CGMVAEClassifier
from cgmvae.methods.packed import Fit, Share, assemble
from cgmvae.training.distributed import ALONE, Group, current_group
from cgmvae.training.loop import train
from cgmvae.training.plan import TrainingConfig

CPU = torch.device("cpu")


class Bench:
    """A synthetic survey, and members that learn it."""

    def __init__(self, group: Group, n_rows: int, embedding_dim: int, epochs: int) -> None:
        self.group, self.epochs = group, epochs
        self.model = CGMVAEClassifier(
            n_members=group.size, embedding_dim=embedding_dim, device="cpu", random_state=0
        )
        data, _ = make_survey(n_rows + 128, 100, 60, seed=0)
        held = data.rows(np.arange(n_rows, n_rows + 128))
        rows = data.rows(np.arange(n_rows))
        self.fit = Fit(*self.model._prepare(rows.X, rows.Y, (held.X, held.Y), None, None))

    def train(self, places: NDArray[np.int64], group: Group) -> None:
        """Train the members at these places."""
        config = TrainingConfig(epochs=self.epochs, batch_size=128)
        network, members, rows = assemble([Share(self.model, self.fit, places)], CPU)
        train(network, members, rows, config, device=CPU, group=group)

    def alone(self, n_members: int) -> None:
        """Train so many members in the first process."""
        if self.group.leads:
            self.train(np.arange(n_members), ALONE)

    def seconds(self, work: Callable[[], None]) -> float:
        """Return the seconds of an epoch, until the last process is ready."""
        self.group.barrier()
        start = time.perf_counter()
        work()
        self.group.barrier()
        return (time.perf_counter() - start) / self.epochs

    def ratios(self, repeats: int) -> dict[str, list[tuple[float, float]]]:
        """Return the seconds of an epoch in one process and in all, by what is divided."""
        group, own = self.group, np.array([self.group.rank])
        works = {
            "rows": (lambda: self.alone(1), lambda: self.train(np.array([0]), group)),
            "members": (lambda: self.alone(group.size), lambda: self.train(own, ALONE)),
        }
        return {
            name: [(self.seconds(one), self.seconds(all_)) for _ in range(repeats)]
            for name, (one, all_) in works.items()
        }


def main() -> None:
    """Measure, and print from the first process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--embedding-dim", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    group = current_group()
    if group.size == 1:
        parser.error("start it by torchrun, with two processes or more")
    torch.set_num_threads(1)
    bench = Bench(group, options.rows, options.embedding_dim, options.epochs)
    for name, times in bench.ratios(options.repeats).items():
        one, all_ = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(b / a for a, b in times)
        if group.leads:
            print(
                f"{name}: {one:.3f} s an epoch in one process, {all_:.3f} s in {group.size}; "
                f"median ratio {ratio:.2f} of {options.repeats} pairs"
            )


if __name__ == "__main__":
    main()
