"""Time until a model is there, compared with what people would use instead.

    python benchmarks/fit_time.py [--data yeast scene sider] [--repeats 3]

For each data set a random forest of 300 trees, the default fit of C-GMVAE and LightGBM (100 trees
per label, if it is installed) are fitted on the same 90% of the rows in one run: seconds, the ratio
to the forest, peak memory, micro-F1 on the rest with each method's own threshold, and the size of
C-GMVAE's file. Times are medians; a ratio compares two fits of one repetition.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measurement import (
    MIB,
    TINY,
    TINY_ROWS,
    PeakMemory,
    environment,
    make_parser,
    print_header,
    print_row,
    seconds,
)
from sklearn.ensemble import RandomForestClassifier

from cgmvae.data import load_dataset, make_split
from cgmvae.evaluation import micro_f1
from cgmvae.methods import BinaryRelevance, CGMVAEClassifier

#: Trees of the forest, and of LightGBM for each label; with --quick a few of both.
FOREST_TREES, BOOSTED_TREES, QUICK_TREES = 300, 100, 3


class Fitted(NamedTuple):
    """One measured fit."""

    seconds: float
    peak: int
    """Bytes of memory beyond those before the fit."""
    micro_f1: float
    size: int | None = None
    """Bytes of the model's file."""


def measured(model: Any, fit: Callable[[], Any], predict: Callable[[], Any], truth: Any) -> Fitted:
    """Fit a model, and measure it."""
    with PeakMemory() as memory:
        took = seconds(fit)
    size = None
    if isinstance(model, CGMVAEClassifier):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.cgmvae"
            model.save(path)
            size = path.stat().st_size
    return Fitted(took, memory.peak - memory.before, micro_f1(truth, predict()), size)


def fits(name: str, *, quick: bool) -> dict[str, Fitted]:
    """Fit all methods on one data set."""
    data = load_dataset(name)
    if quick:
        data = data.rows(np.arange(TINY_ROWS))
    settings: dict[str, Any] = TINY if quick else {}
    n_forest, n_boosted = (QUICK_TREES,) * 2 if quick else (FOREST_TREES, BOOSTED_TREES)
    n_jobs = 1 if quick else -1
    split = make_split(data, seed=0, drop_empty=True)
    train = data.rows(np.sort(np.concatenate([split.train, split.validation])))
    test = data.rows(split.test)
    forest = RandomForestClassifier(n_forest, n_jobs=n_jobs, random_state=0)
    ours = CGMVAEClassifier(random_state=0, **settings)
    found = {
        "random forest": measured(
            forest, lambda: forest.fit(train.X, train.Y), lambda: forest.predict(test.X), test.Y
        ),
        "C-GMVAE": measured(
            ours, lambda: ours.fit(train.X, train), lambda: ours.predict(test.X), test.Y
        ),
    }
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        return found
    trees = LGBMClassifier(n_estimators=n_boosted, n_jobs=n_jobs, verbose=-1, random_state=0)
    boosted = BinaryRelevance(trees)
    found["LightGBM"] = measured(
        boosted, lambda: boosted.fit(train.X, train), lambda: boosted.predict(test.X), test.Y
    )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="*", default=["yeast", "scene", "sider"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(argv)
    if options.quick:
        options.data, options.repeats = ["yeast"], 1
    print(environment())
    print_header("data", "method", "seconds", "ratio to the first", "peak MiB", "micro-F1", "file")
    for name in options.data:
        runs = [fits(name, quick=options.quick) for _ in range(options.repeats)]
        first = next(iter(runs[0]))
        for method, fitted in runs[0].items():
            times = [run[method].seconds for run in runs]
            ratio = statistics.median(run[method].seconds / run[first].seconds for run in runs)
            size = "–" if fitted.size is None else f"{fitted.size / MIB:.1f} MiB"
            print_row(
                name,
                method,
                f"{statistics.median(times):.1f}",
                f"{ratio:.2f}",
                f"{fitted.peak / MIB:.0f}",
                f"{fitted.micro_f1:.3f}",
                size,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
