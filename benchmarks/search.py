"""What a search costs and what it brings.

    python benchmarks/search.py --out docs/results/search.json

1. The paper's grid of 180 settings on three splits of scene, with successive halving: seconds.
2. On splits 3 to 7 of yeast, scene and sider: the ensemble of the best 8 of 60 settings of the
   default space, searched on the validation rows, against the default ensemble of 8 members, both
   measured on the test rows. Splits 0 to 2 chose the defaults; 3 to 7 did not. The differences are
   paired by split, with 95% intervals (t).

Results are kept after each split; a second call computes only what is missing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy import UNSEEN, load_parts, measure
from scipy import stats

from cgmvae.data import load_dataset, make_split
from cgmvae.data.files import atomic_path
from cgmvae.evaluation import PAPER_METRICS
from cgmvae.methods import CGMVAEClassifier
from cgmvae.search import PackedSearch
from cgmvae.search.space import read_space

DATA = ("yeast", "scene", "sider")
PROTOCOLS = ("validation", "test-oracle")
N_SETTINGS, N_BEST = 60, 8


def paper_grid() -> dict[str, Any]:
    """Search the paper's grid on three splits of scene's training rows."""
    data = load_dataset("scene")
    train = data.rows(make_split(data, seed=0).train)
    search = PackedSearch(
        CGMVAEClassifier(), read_space("paper"), n_splits=3, n_best=N_BEST, random_state=0
    )
    start = time.perf_counter()
    search.fit(train.X, train.Y)
    seconds = time.perf_counter() - start
    best = search.results_[0]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "processor"
    return {"seconds": seconds, "settings": len(search.results_), "best": best, "device": device}


def compare(name: str, split: int) -> dict[str, Any]:
    """Return the metrics of the searched and of the default ensemble on one split."""
    parts = load_parts(name, split)
    train, held, _ = parts
    validation = (held.X, held.Y)
    search = PackedSearch(
        CGMVAEClassifier(),
        read_space("default"),
        n_settings=N_SETTINGS,
        n_best=N_BEST,
        random_state=split,
    ).fit(train.X, train.Y, validation_data=validation)
    default = CGMVAEClassifier(n_members=N_BEST, random_state=split)
    default.fit(train.X, train.Y, validation_data=validation)
    models = {"searched": search, "default": default}
    return {
        kind: measure(parts, [model.predict_proba(part.X) for part in parts[1:]])
        for kind, model in models.items()
    }


def table(results: dict[str, Any]) -> None:
    """Print means of both, and their difference."""
    print("| data | thresholds | ensemble | " + " | ".join(PAPER_METRICS) + " |")
    print("|---|---|---|" + "---|" * len(PAPER_METRICS))
    for name in DATA:
        splits = list(results.get(name, {}).values())
        for protocol in PROTOCOLS if len(splits) > 1 else ():
            values = {
                kind: np.array([split[kind][protocol] for split in splits])
                for kind in ("searched", "default")
            }
            for kind, each in values.items():
                cells = " | ".join(f"{mean:.4f}" for mean in each.mean(0))
                print(f"| {name} | {protocol} | {kind} | {cells} |")
            gaps = values["searched"] - values["default"]
            half = stats.sem(gaps) * stats.t.ppf(0.975, len(gaps) - 1)
            pairs = zip(gaps.mean(0), half, strict=True)
            cells = " | ".join(f"{mean:+.4f} ± {width:.4f}" for mean, width in pairs)
            print(f"| {name} | {protocol} | *searched − default* | {cells} |")


def main() -> None:
    """Run what is missing and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results, kept and continued")
    parser.add_argument("--data", nargs="*", default=list(DATA))
    arguments = parser.parse_args()
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    work = [("paper_grid", "scene", paper_grid)]
    work += [
        (name, str(split), lambda name=name, split=split: compare(name, split))
        for name in arguments.data
        for split in UNSEEN
    ]
    for name, key, run in work:
        if key in results.setdefault(name, {}):
            continue
        start = time.perf_counter()
        results[name][key] = run()
        print(f"{name}, {key}: {time.perf_counter() - start:.1f} s", flush=True)
        with atomic_path(arguments.out) as temporary:
            temporary.write_text(json.dumps(results, indent=1))
    grid = results["paper_grid"]["scene"]
    print(f"{grid['settings']} settings × 3 splits on scene: {grid['seconds']:.1f} s")
    table(results)


if __name__ == "__main__":
    main()
