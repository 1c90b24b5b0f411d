"""What a second process saves: an epoch of two processes over an epoch of one.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 benchmarks/distributed.py

Ratios of times taken alternately in one run, so that a noisy machine disturbs both sides alike;
each process has one thread. While the first process trains alone, the others wait.

1. rows: one member, whose batches are shared by all processes, over the same member in one process;
2. members: as many members as processes, one in each, over all of them in one process.

The best possible ratio is 1 / processes; 1 or more means that nothing is saved. With ``--quick``
the program forks its two processes itself.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from measurement import TINY_NETWORK, exit_code, make_parser, quartiles, start_child
from numpy.typing import NDArray

from cgmvae.data import make_survey
from cgmvae.methods import CGMVAEClassifier
from cgmvae.methods.packed import Fit, make_pack
from cgmvae.training.distributed import ALONE, Group, current_group
from cgmvae.training.loop import train


class Bench:
    """A synthetic survey, and a pack with one member per process."""

    def __init__(
        self, group: Group, n_rows: int, embedding_dim: int, epochs: int, *, quick: bool
    ) -> None:
        self.group, self.epochs = group, epochs
        model = CGMVAEClassifier(
            n_members=group.size,
            embedding_dim=embedding_dim,
            epochs=epochs,
            batch_size=128,
            settings=TINY_NETWORK["settings"] if quick else None,
            device="cpu",
            random_state=0,
        )
        data, _ = make_survey(n_rows + 128, 100, 60, seed=0)
        held = data.rows(np.arange(n_rows, n_rows + 128))
        rows = data.rows(np.arange(n_rows))
        fit = Fit(*model._prepare(rows.X, rows.Y, (held.X, held.Y), None, None))
        self.pack = make_pack([model], [fit])

    def train(self, members: NDArray[np.int64], group: Group) -> None:
        """Train the members of these numbers."""
        network, chosen, rows = self.pack.assemble(members)
        train(network, chosen, rows, self.pack.config, device=self.pack.device, group=group)

    def alone(self, n_members: int) -> None:
        """Train this number of members in the first process."""
        if self.group.leads:
            self.train(np.arange(n_members), ALONE)

    def seconds(self, work: Callable[[], None]) -> float:
        """Return the seconds per epoch, until the last process is done."""
        self.group.barrier()
        start = time.perf_counter()
        work()
        self.group.barrier()
        return (time.perf_counter() - start) / self.epochs

    def measure(self, repeats: int) -> dict[str, list[tuple[float, float]]]:
        """Return the seconds per epoch in one process and in all, by what is divided."""
        group, own = self.group, np.array([self.group.rank])
        works = {
            "rows": (lambda: self.alone(1), lambda: self.train(np.array([0]), group)),
            "members": (lambda: self.alone(group.size), lambda: self.train(own, ALONE)),
        }
        return {
            name: [(self.seconds(one), self.seconds(all_)) for _ in range(repeats)]
            for name, (one, all_) in works.items()
        }


def fork_quick_run() -> int:
    """Run ``--quick`` in two processes that are told about each other as by torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1"}

    def work(rank: int) -> None:
        own = {**shared, "MASTER_PORT": port, "RANK": rank, "LOCAL_RANK": rank}
        os.environ.update({name: str(value) for name, value in own.items()})
        sys.exit(main(["--quick"]))

    children = [start_child(partial(work, rank)) for rank in range(2)]
    return max(abs(exit_code(child)) for child in children)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print from the first process."""
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--embedding-dim", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    if options.quick:
        options.rows, options.embedding_dim, options.epochs, options.repeats = 256, 16, 1, 1
        if "WORLD_SIZE" not in os.environ:
            return fork_quick_run()
    group = current_group()
    if group.size == 1:
        parser.error("start it with torchrun and at least two processes")
    bench = Bench(group, options.rows, options.embedding_dim, options.epochs, quick=options.quick)
    for name, times in bench.measure(options.repeats).items():
        one, all_ = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = quartiles([b / a for a, b in times])
        if group.leads:
            print(
                f"{name}: {one:.3f} s per epoch in one process, {all_:.3f} s in {group.size}; "
                f"ratio {ratio} of {options.repeats} pairs"
            )
    group.barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main())
