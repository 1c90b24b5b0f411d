"""How much memory and time ``cgmvae predict`` takes for a file that is larger than the memory.

    python benchmarks/predict_stream.py --gigabytes 5

A CSV file of the wanted size is made of generated rows that are repeated, in a temporary folder.
``cgmvae predict`` runs on it in a process of its own, whose anonymous memory (``RssAnon`` of
``/proc/PID/status``: what cannot be read back from a file) is sampled 20 times a second. The same
on a file of one row tells what the process takes by itself: Python, its packages and the model.
Linux only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from resident import anonymous_bytes

from cgmvae.data import make_survey
from cgmvae.methods.registry import REGISTRY

N_FEATURES, N_LABELS, N_GENERATED = 20, 10, 20_000
SAMPLES_A_SECOND = 20
MEGABYTE = 10**6


class Run(NamedTuple):
    """What one run of the command took."""

    seconds: float
    peak: int
    """The most anonymous memory of the process, in bytes."""
    said: str


def make_model(path: Path, method: str) -> list[str]:
    """Fit a method to a few rows, save it, and return the names of its features."""
    survey, _ = make_survey(1000, N_FEATURES, N_LABELS, seed=0)
    model = REGISTRY[method].estimator(random_state=0)
    small = {"epochs": 5, "n_members": 1}
    model.set_params(**{name: small[name] for name in small if name in model.get_params()})
    model.fit(survey.X, survey)
    model.feature_names_in_ = np.array(survey.feature_names, dtype=object)
    model.save(path)
    return list(survey.feature_names)


def make_rows(path: Path, names: list[str], n_bytes: float) -> int:
    """Write generated rows again and again, up to a size; at least one. Return how many."""
    rows = np.random.default_rng(0).normal(size=(N_GENERATED, len(names))).astype(np.float32)
    lines = [",".join(row) for row in rows.astype(str).tolist()]
    n_rows = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(names) + "\n")
        while n_rows == 0 or file.tell() < n_bytes:
            wanted = lines if n_bytes else lines[:1]
            file.write("\n".join(wanted) + "\n")
            n_rows += len(wanted)
    return n_rows


def anonymous_memory(pid: int) -> int:
    """Return the anonymous memory of a process in bytes; 0 once it has ended."""
    try:
        return anonymous_bytes(pid)
    except OSError:
        return 0


def predict(model: Path, source: Path) -> Run:
    """Run the command, and watch its memory."""
    out = source.with_name("predictions.csv")
    command = [sys.executable, "-m", "cgmvae", "predict", model, source, "--out", out]
    start, peak = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as child:
        while child.poll() is None:
            peak = max(peak, anonymous_memory(child.pid))
            time.sleep(1 / SAMPLES_A_SECOND)
        seconds, said = time.perf_counter() - start, child.stdout.read()
    if child.returncode:
        sys.exit(f"cgmvae predict ended with {child.returncode}.")
    out.unlink()
    return Run(seconds, peak, said)


def measure(folder: Path, gigabytes: float, method: str) -> None:
    """Make what is needed, run the command on one row and on all, and print what it took."""
    model, one_row, source = (folder / name for name in ("m.cgmvae", "one.csv", "rows.csv"))
    names = make_model(model, method)
    make_rows(one_row, names, 0)
    n_rows = make_rows(source, names, gigabytes * 1e9)
    n_bytes = source.stat().st_size
    alone, whole = predict(model, one_row), predict(model, source)
    if f"for {n_rows:,} rows" not in whole.said:
        sys.exit(f"{n_rows:,} rows were written, but the command said: {whole.said}")
    rate = n_bytes / MEGABYTE / (whole.seconds - alone.seconds)
    print(f"method                   {REGISTRY[method].title}")
    print(f"processors               {os.cpu_count()} ({torch.get_num_threads()} threads of torch)")
    print(f"file                     {n_bytes / 1e9:.2f} GB")
    print(f"rows                     {n_rows:,} of {N_FEATURES} features and {N_LABELS} labels")
    print(f"seconds                  {whole.seconds:.1f} (one row: {alone.seconds:.1f})")
    print(f"MB/s                     {rate:.1f} beyond the time for one row")
    print(f"peak RssAnon             {whole.peak / MEGABYTE:.0f} MB")
    print(f"peak RssAnon, one row    {alone.peak / MEGABYTE:.0f} MB (Python, packages, the model)")
    print(f"what the rows add        {(whole.peak - alone.peak) / MEGABYTE:.0f} MB")


def main() -> None:
    """Measure in a temporary folder, and leave nothing of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=5, help="size of the CSV file")
    parser.add_argument("--method", choices=list(REGISTRY), default="cgmvae")
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        measure(Path(folder), arguments.gigabytes, arguments.method)


if __name__ == "__main__":
    main()
