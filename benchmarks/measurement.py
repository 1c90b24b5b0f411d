"""What the benchmarks share: times, memory, child processes, splits, and results kept in a file.

This file is not a benchmark. Every other one has a ``main`` that accepts ``--quick``, which runs
all of its code on tiny data within seconds; the numbers it prints then mean nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from scipy import stats

from cgmvae.data import MultiLabelDataset, load_dataset, make_split, read
from cgmvae.data.catalog import entries
from cgmvae.data.files import atomic_path
from cgmvae.methods import CGMVAEClassifier
from cgmvae.studies.runner import describe_environment

GIB, MIB = 2**30, 2**20

#: Test rows by the rows that a method is fitted on, training and validation rows.
TEST_SHARE = 1 / 9

#: Hidden layers of the network whose epochs are compared with bare matrix products.
LAYERS = {"feature_hidden": (256, 512, 256), "label_hidden": (512, 256)}

#: Settings of C-GMVAE with which a fit of a few hundred rows takes a fraction of a second.
TINY_LAYERS = {"feature_hidden": (16,), "label_hidden": (16,), "decoder_hidden": (16,)}
TINY_NETWORK = {"embedding_dim": 16, "network": {"latent_dim": 8, **TINY_LAYERS}}
TINY = {**TINY_NETWORK, "epochs": 2}

#: Rows of a data set that --quick uses.
TINY_ROWS = 320


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with ``--quick`` that describes itself by a docstring's first line."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="run all of it on tiny data")
    return parser


def add_out(parser: argparse.ArgumentParser) -> None:
    """Add the option for the file of results."""
    parser.add_argument("--out", type=Path, help="file of results, which a second run completes")


def environment() -> str:
    """Describe what a time depends on."""
    return (
        f"{os.cpu_count()} CPU cores, load average {os.getloadavg()[0]:.1f}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, numpy {np.__version__}"
    )


def made(command: str, device: str = "auto") -> dict[str, Any]:
    """Return what a file says of results: commit, date, device, versions, and the command."""
    return {**describe_environment(device), "command": command}


# Times


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes, including kernels that it launches on a GPU."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


def quartiles(values: Sequence[float]) -> str:
    """Write the median of values with their quartiles."""
    low, high = np.percentile(values, [25, 75])
    return f"{statistics.median(values):.2f} (quartiles {low:.2f} and {high:.2f})"


def epoch_seconds(
    data: MultiLabelDataset,
    epochs: int,
    *,
    after: Callable[[], object] = lambda: None,
    n_validation: int = 128,
    **parameters: Any,
) -> list[float]:
    """Fit C-GMVAE on the CPU and return the seconds of each epoch after the first.

    ``after`` is called after every epoch; its time is not counted. The first ``n_validation`` rows
    are also validated on: with a single one, validation takes next to no time.
    """
    found: list[float] = []
    start = time.perf_counter()

    def after_epoch(*_: object) -> None:
        nonlocal start
        found.append(time.perf_counter() - start)
        after()
        start = time.perf_counter()

    parameters = {"device": "cpu", "random_state": 0, **parameters}
    model = CGMVAEClassifier(epochs=epochs + 1, progress=after_epoch, **parameters)
    held = data.rows(np.arange(min(n_validation, data.n_samples)))
    model.fit(data.X, data.Y, validation_data=(held.X, held.Y))
    return found[1:]


def epoch_over_products(
    data: MultiLabelDataset, epochs: int, *, decoder_hidden: Sequence[int], **parameters: Any
) -> list[float]:
    """Return each epoch of one member over the bare matrix products, taken right after it.

    The network has the sizes of the products, whatever the defaults are.
    """
    parameters["network"] = LAYERS | {"decoder_hidden": decoder_hidden}
    parameters["encoding"] = "standard"
    products = matrix_products(data, parameters["embedding_dim"], decoder_hidden)
    products()
    bare: list[float] = []
    own = epoch_seconds(
        data, epochs, n_members=1, after=lambda: bare.append(seconds(products)), **parameters
    )
    return [epoch / floor for epoch, floor in zip(own, bare[1:], strict=True)]


def matrix_products(
    data: MultiLabelDataset, embedding_dim: int, decoder_hidden: Sequence[int], batch: int = 128
) -> Callable[[], object]:
    """Return the matrix products of an epoch's dense layers: one forward, two backward for each."""
    latent_dim, n_features, n_labels = 64, data.n_features, data.n_labels
    layers = [
        (batch, [n_features, *LAYERS["feature_hidden"], 2 * latent_dim]),
        (n_labels, [embedding_dim, *LAYERS["label_hidden"], 2 * latent_dim]),
        (batch, [n_features + latent_dim, *decoder_hidden, embedding_dim, n_labels]),
    ]
    operands = [
        (torch.randn(rows, n_in), torch.randn(n_in, n_out), torch.randn(rows, n_out))
        for rows, widths in layers
        for n_in, n_out in itertools.pairwise(widths)
    ]

    def work() -> None:
        for _ in range(-(-data.n_samples // batch)):
            for x, weight, gradient in operands:
                x @ weight
                x.T @ gradient
                gradient @ weight.T

    return work


# Memory


def anonymous_bytes(process: int | str = "self") -> int:
    """Return the anonymous resident memory of a process: without files the system can drop.

    An OSError says that the process has ended, or that this system is not Linux.
    """
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("This system does not report anonymous memory.")


def bytes_with_children() -> int:
    """Return the anonymous memory of this process and its children, shared pages counted once."""
    children: list[str] = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended by now
            children += (thread / "children").read_text().split()
    if not children:
        return anonymous_bytes()
    total = 0
    for process in ("self", *children):
        with suppress(OSError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))
    return total * 1024


class PeakMemory:
    """Samples the memory of this process and its children inside a ``with`` block.

    Attributes
    ----------
    before : int
        Bytes at the start of the block.
    peak : int
        The most bytes sampled in it.
    """

    interval = 0.005
    """Least seconds from one sample to the next."""

    share = 0.01
    """Largest share of the time that is spent with samples: the kernel walks all pages."""

    def __enter__(self) -> Self:
        """Start sampling."""
        self.before = self.peak = bytes_with_children()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take a last sample, and stop."""
        self._done.set()
        self._thread.join()
        self.peak = max(self.peak, bytes_with_children())

    @property
    def above(self) -> int:
        """Peak above the bytes at the start."""
        return self.peak - self.before

    def _sample(self) -> None:
        pause = self.interval
        while not self._done.wait(pause):
            start = time.perf_counter()
            self.peak = max(self.peak, bytes_with_children())
            pause = max(self.interval, (time.perf_counter() - start) / self.share)


# Processes


def start_child(work: Callable[[], object]) -> int:
    """Fork a process that does the work and exits with 0, or 1 after an exception; return its id.

    A SystemExit decides the exit code itself.
    """
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return child


def exit_code(child: int) -> int:
    """Wait for a child and return its exit code, negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def hypothesis_files_in(folder: Path) -> Iterator[None]:
    """Let hypothesis write its files to a folder instead of the current one."""
    from hypothesis.configuration import set_hypothesis_home_dir

    set_hypothesis_home_dir(folder)
    try:
        yield
    finally:
        set_hypothesis_home_dir(None)


# Data, splits and metrics


def load(name: str) -> MultiLabelDataset:
    """Load a data set of the catalog, or ``NAME/NAME.npz`` in the folder ``CGMVAE_DATA``."""
    path = Path(os.environ.get("CGMVAE_DATA", ".")) / name / f"{name}.npz"
    return load_dataset(name) if name in entries() or not path.exists() else read(path)


def load_parts(name: str, seed: int, n_rows: int | None = None) -> list[MultiLabelDataset]:
    """Return the training, validation and test rows of a split; by group if the data has groups.

    Rows without a positive label are dropped, as in the paper. ``n_rows`` limits the data to its
    first rows.
    """
    data = load_dataset(name)
    if n_rows is not None:
        data = data.rows(np.arange(n_rows))
    kind = "random" if data.groups is None else "group"
    split = make_split(data, kind, seed=seed, drop_empty=True)
    return [data.rows(rows) for rows in (split.train, split.validation, split.test)]


def fit_input(parts: Sequence[MultiLabelDataset]) -> tuple[Any, Any, tuple[Any, Any]]:
    """Return what ``fit_together`` takes for an estimator: X, Y and validation data."""
    train, held = parts[:2]
    return train.X, train.Y, (held.X, held.Y)


def paired_difference(
    gaps: Sequence[float] | np.ndarray, digits: int = 4, *, shared: float = TEST_SHARE
) -> str:
    """Write the mean of paired differences with its 95% interval.

    It is widened because splits of one data set share rows (Nadeau and Bengio 2003); with
    ``shared`` 0, the differences are of data sets.
    """
    mean = f"{np.mean(gaps):+.{digits}f}"
    if len(gaps) < 2:
        return mean
    error = np.std(gaps, ddof=1) * np.sqrt(1 / len(gaps) + shared)
    half = error * stats.t.ppf(0.975, len(gaps) - 1)
    return f"{mean} ± {half:.{digits}f}"


def print_header(*cells: str) -> None:
    """Print the head of a Markdown table."""
    print_row(*cells)
    print("|" + "---|" * len(cells), flush=True)


def print_row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


class Results:
    """Results by names, as nested mappings; a JSON file keeps them, so that a run can be resumed.

    Parameters
    ----------
    path : Path, optional
        The file, which may exist; without it nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        exists = path is not None and path.exists()
        self.values: dict[str, Any] = json.loads(path.read_text()) if exists else {}

    def __contains__(self, names: Sequence[str]) -> bool:
        values: Any = self.values
        for name in names:
            if not isinstance(values, Mapping) or name not in values:
                return False
            values = values[name]
        return True

    def add(self, names: Sequence[str], value: Any) -> None:
        """Set a value, and write the file."""
        *outer, last = names
        values = self.values
        for name in outer:
            values = values.setdefault(name, {})
        values[last] = value
        if self.path is not None:
            with atomic_path(self.path) as temporary:
                temporary.write_text(json.dumps(self.values, indent=1))

    def compute(self, names: Sequence[str], work: Callable[[], Any]) -> None:
        """Set a value if it is missing, and print how long it took."""
        if names in self:
            return
        start = time.perf_counter()
        value = work()
        print(f"{', '.join(names)}: {time.perf_counter() - start:.1f} s", flush=True)
        self.add(names, value)
