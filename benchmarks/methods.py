"""The methods on yeast and scene, compared with the numbers printed in the paper.

    python benchmarks/methods.py --out docs/results/methods.json [--methods mlknn lamp]

Default settings, splits 0, 1 and 2, protocol ``test-oracle`` (that of the paper's tables). Results
are kept after each method and data set; a second run computes only what is missing. The validation
metric of each epoch of the networks is kept too, to show that they have converged.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measurement import (
    TINY_ROWS,
    Results,
    add_out,
    fit_input,
    load_parts,
    make_parser,
    model_metrics,
    print_header,
    print_row,
)

from cgmvae.evaluation import PAPER_METRICS
from cgmvae.methods import REGISTRY, fit_together
from cgmvae.methods.packed import PackedClassifier
from cgmvae.studies.published import published_value

DATA = ("yeast", "scene")
SPLITS, QUICK_SPLITS = (0, 1, 2), (0,)

#: Parameters that make any method quick, for those that have them.
_QUICK = {"n_members": 1, "epochs": 2, "embedding_dim": 16, "hidden_dim": 16, "n_learners": 2}
_QUICK |= {"n_restarts": 1, "state_dim": 16}


def run(method: str, name: str, *, quick: bool) -> dict[str, Any]:
    """Fit a method on all splits; networks as one pack."""
    start = time.perf_counter()
    seeds = QUICK_SPLITS if quick else SPLITS
    splits = [load_parts(name, seed, TINY_ROWS if quick else None) for seed in seeds]
    models: list[Any] = [REGISTRY[method].estimator(random_state=seed) for seed in seeds]
    for model in models if quick else ():
        known = model.get_params()
        model.set_params(**{name: value for name, value in _QUICK.items() if name in known})
    packed = isinstance(models[0], PackedClassifier)
    data = [fit_input(parts) for parts in splits]
    if packed:
        fit_together(models, data)
    else:
        for model, (X, Y, validation) in zip(models, data, strict=True):
            model.fit(X, Y, validation_data=validation)
    found: dict[str, Any] = {
        str(seed): model_metrics(parts, model)
        for seed, model, parts in zip(seeds, models, splits, strict=True)
    }
    found["seconds"] = time.perf_counter() - start
    if packed:
        curve = np.nanmean(models[0].history_["validation"], axis=1)
        found["validation"] = [round(float(value), 4) for value in curve]
        found["best_epoch"] = models[0].best_epoch_.tolist()
    return found


def table(results: dict[str, Any], seeds: Sequence[int]) -> None:
    """Print means over the splits, the paper's rows, and the gaps in micro- and macro-F1."""
    print_header("data", "method", *PAPER_METRICS, "paper", "micro, macro − paper")
    for name, methods in results.items():
        for method in (method for method in REGISTRY if method in methods):
            means = np.mean([methods[method][str(s)]["test-oracle"] for s in seeds], axis=0)
            row = [published_value(m, REGISTRY[method].row, name) for m in PAPER_METRICS]
            gaps = " ".join(f"{means[i] - row[i]:+.3f}" for i in (1, 2) if row[i] is not None)
            paper = " ".join("–" if value is None else f"{value:.3f}" for value in row)
            cells = (f"{value:.3f}" for value in means)
            print_row(name, REGISTRY[method].title, *cells, paper, gaps)


def plot(results: dict[str, Any], path: Path) -> None:
    """Draw the validation metric of each epoch, one panel per data set."""
    from matplotlib.figure import Figure

    colors = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
    figure = Figure(figsize=(5 * len(results), 3.6), layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False)[0]
    for axes, (name, methods) in zip(panels, results.items(), strict=True):
        networks = [m for m in REGISTRY if "validation" in methods.get(m, {})]
        for color, method in zip(colors, networks, strict=False):
            curve = methods[method]["validation"]
            label = REGISTRY[method].title
            axes.plot(range(1, len(curve) + 1), curve, color=color, linewidth=1.4, label=label)
        axes.set(title=name, xlabel="epoch")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    panels[0].set_ylabel("mean of the five validation metrics,\nmean of split 0's members")
    panels[-1].legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=120)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and print the table."""
    parser = make_parser(__doc__)
    add_out(parser)
    parser.add_argument("--plot", type=Path, help="draw the validation metric of each epoch")
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--methods", nargs="+", default=list(REGISTRY), choices=list(REGISTRY))
    options = parser.parse_args(argv)
    results = Results(options.out)
    for name in ["yeast"] if options.quick else options.data:
        for method in options.methods:
            results.compute((name, method), partial(run, method, name, quick=options.quick))
    table(results.values, QUICK_SPLITS if options.quick else SPLITS)
    if options.plot is not None:
        plot(results.values, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
