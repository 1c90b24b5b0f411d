"""The comparison methods on yeast and scene, beside the paper's rows.

    python benchmarks/methods.py --out docs/results/methods.json [--methods mlknn lamp]

Default settings, splits 0, 1, 2, protocol ``test-oracle`` (what the paper's tables are). Results
are kept after each method and data set; a second call computes only what is missing. The validation
metric of each epoch of the networks is kept too, to see that they have converged.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import load_parts, measure

from cgmvae.data.files import atomic_path
from cgmvae.evaluation import PAPER_METRICS
from cgmvae.methods import REGISTRY, fit_together
from cgmvae.methods.packed import PackedClassifier
from cgmvae.studies.published import published_value

DATA = ("yeast", "scene")
SPLITS = (0, 1, 2)


def run(method: str, name: str) -> dict[str, Any]:
    """Fit a method on all splits; networks as one pack."""
    start = time.perf_counter()
    splits = [load_parts(name, seed) for seed in SPLITS]
    models: list[Any] = [REGISTRY[method].estimator(random_state=seed) for seed in SPLITS]
    data = [(train.X, train.Y, (held.X, held.Y)) for train, held, _ in splits]
    if isinstance(models[0], PackedClassifier):
        fit_together(models, data)
    else:
        for model, (X, Y, held) in zip(models, data, strict=True):
            model.fit(X, Y, validation_data=held)
    found: dict[str, Any] = {
        str(seed): measure(parts, [model.predict_proba(part.X) for part in parts[1:]])
        for seed, model, parts in zip(SPLITS, models, splits, strict=True)
    }
    found["seconds"] = time.perf_counter() - start
    if isinstance(models[0], PackedClassifier):
        curve = np.nanmean(models[0].history_["validation"], axis=1)
        found["validation"] = [round(float(value), 4) for value in curve]
        found["best_epoch"] = models[0].best_epoch_.tolist()
    return found


def table(results: dict[str, Any]) -> None:
    """Print means over the splits beside the paper's rows, and how far micro- and macro-F1 are."""
    print("| data | method | " + " | ".join(PAPER_METRICS) + " | paper | micro, macro − paper |")
    print("|---|---|" + "---|" * 7)
    for name, methods in results.items():
        for method in (method for method in REGISTRY if method in methods):
            means = np.mean([methods[method][str(s)]["test-oracle"] for s in SPLITS], axis=0)
            row = [published_value(m, REGISTRY[method].row, name) for m in PAPER_METRICS]
            gaps = " ".join(f"{means[i] - row[i]:+.3f}" for i in (1, 2) if row[i] is not None)
            cells = " | ".join(f"{value:.3f}" for value in means)
            paper = " ".join("–" if value is None else f"{value:.3f}" for value in row)
            print(f"| {name} | {REGISTRY[method].title} | {cells} | {paper} | {gaps} |")


def plot(results: dict[str, Any], path: Path) -> None:
    """Draw the validation metric of each epoch, a panel for each data set."""
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


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results, kept and continued")
    parser.add_argument("--plot", type=Path, help="draw the curves of training")
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--methods", nargs="+", default=list(REGISTRY))
    arguments = parser.parse_args()
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    for name in arguments.data:
        for method in arguments.methods:
            done = results.setdefault(name, {})
            if method not in done:
                done[method] = run(method, name)
                print(f"{name}, {method}: {done[method]['seconds']:.0f} s", flush=True)
                with atomic_path(arguments.out) as temporary:
                    temporary.write_text(json.dumps(results, indent=1))
    table(results)
    if arguments.plot is not None:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
