"""Memory and time of ``cgmvae predict`` on a file that is larger than memory.

    python benchmarks/predict_stream.py --gigabytes 5

A CSV file of this size is written to a temporary folder: generated rows, repeated. ``cgmvae
predict`` runs on it in a process of its own, whose anonymous memory (``RssAnon`` of
``/proc/PID/status``, which does not include the page cache) is sampled 20 times per second. A run
on a file of one row shows what the process needs anyway: Python, its packages and the model. Linux
only.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measurement import anonymous_bytes, environment, make_parser

from cgmvae.data import make_survey
from cgmvae.methods import REGISTRY

N_FEATURES, N_LABELS = 20, 10
SAMPLES_PER_SECOND = 20
MEGABYTE = 10**6


class Run(NamedTuple):
    """What one run of the command took."""

    seconds: float
    peak: int
    """The most anonymous memory of the process, in bytes."""
    printed: str


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


def make_rows(path: Path, names: list[str], n_bytes: float, n_generated: int) -> int:
    """Write generated rows at least once, and repeatedly up to a size; return their number."""
    rows = np.random.default_rng(0).normal(size=(n_generated, len(names))).astype(np.float32)
    lines = [",".join(row) + "\n" for row in rows.astype(str).tolist()]
    n_rows = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(names) + "\n")
        while n_rows == 0 or file.tell() < n_bytes:
            file.writelines(lines)
            n_rows += n_generated
    return n_rows


def memory_while_running(process: int) -> int:
    """Return the anonymous memory of a process in bytes; 0 once it has ended."""
    try:
        return anonymous_bytes(process)
    except OSError:
        return 0


def predict(model: Path, source: Path) -> Run:
    """Run the command, and sample its memory."""
    out = source.with_name("predictions.csv")
    command = [
        sys.executable,
        "-m",
        "cgmvae",
        "predict",
        model,
        source,
        "--out",
        out,
        "--overwrite",
    ]
    start, peak = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as child:
        while child.poll() is None:
            peak = max(peak, memory_while_running(child.pid))
            time.sleep(1 / SAMPLES_PER_SECOND)
        seconds, printed = time.perf_counter() - start, child.stdout.read()
    if child.returncode:
        sys.exit(f"cgmvae predict ended with {child.returncode}.")
    out.unlink()
    return Run(seconds, peak, printed)


def measure(folder: Path, gigabytes: float, n_generated: int, method: str) -> None:
    """Make the files, run the command on one row and on all, and print what it took."""
    model, one_row, source = (folder / name for name in ("m.cgmvae", "one.csv", "rows.csv"))
    names = make_model(model, method)
    make_rows(one_row, names, 0, 1)
    n_rows = make_rows(source, names, gigabytes * 1e9, n_generated)
    n_bytes = source.stat().st_size
    alone, whole = predict(model, one_row), predict(model, source)
    if f"for {n_rows:,} rows" not in whole.printed:
        sys.exit(f"{n_rows:,} rows were written, but the command printed: {whole.printed}")
    rate = n_bytes / MEGABYTE / (whole.seconds - alone.seconds)
    print(f"method                   {REGISTRY[method].title}")
    print(f"machine                  {environment()}")
    print(f"file                     {n_bytes / 1e9:.2f} GB")
    print(f"rows                     {n_rows:,} of {N_FEATURES} features and {N_LABELS} labels")
    print(f"seconds                  {whole.seconds:.1f} (one row: {alone.seconds:.1f})")
    print(f"MB/s                     {rate:.1f} beyond the time for one row")
    print(f"peak RssAnon             {whole.peak / MEGABYTE:.0f} MB")
    print(f"peak RssAnon, one row    {alone.peak / MEGABYTE:.0f} MB (Python, packages, the model)")
    print(f"added by the rows        {(whole.peak - alone.peak) / MEGABYTE:.0f} MB")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure in a temporary folder, and remove it."""
    parser = make_parser(__doc__)
    parser.add_argument("--gigabytes", type=float, default=5, help="size of the CSV file")
    parser.add_argument("--method", choices=list(REGISTRY), default="cgmvae")
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    options = parser.parse_args(argv)
    scale: tuple[float, int, str] = (options.gigabytes, 20_000, options.method)
    if options.quick:
        scale = (0, 100, "mlknn")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure(Path(folder), *scale)
    return 0


if __name__ == "__main__":
    sys.exit(main())
