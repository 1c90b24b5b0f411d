"""Cost and benefit of a search over settings.

    python benchmarks/search.py --out docs/results/search.json

1. The paper's grid of 180 settings on three splits of scene, with successive halving: seconds.
2. On splits 3 to 7 of yeast, scene and sider: the ensemble of the best 8 of 60 settings of the
   default space, chosen on the validation rows, compared with the default ensemble of 8 members;
   both are measured on the test rows. Splits 0 to 2 were used to choose the defaults, 3 to 7 were
   not. The differences are paired by split, with 95% intervals (t).

Results are kept after each split; a second run computes only what is missing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from measurement import (
    TINY,
    TINY_ROWS,
    UNSEEN,
    Results,
    add_out,
    fit_input,
    load_parts,
    make_parser,
    model_metrics,
    paired_difference,
    print_header,
    print_row,
)

from cgmvae.evaluation import PAPER_METRICS
from cgmvae.methods import CGMVAEClassifier
from cgmvae.search import PackedSearch
from cgmvae.search.space import read_space

DATA = ("yeast", "scene", "sider")
PROTOCOLS = ("validation", "test-oracle")
N_SETTINGS, N_BEST = 60, 8

#: In place of the spaces of settings, which name sizes of their own.
_QUICK_SPACE = {"dropout": [0.1, 0.4], "learning_rate": [0.001, 0.01]}


def paper_grid(*, quick: bool) -> dict[str, Any]:
    """Search the paper's grid on three splits of scene's training rows."""
    train = load_parts("yeast" if quick else "scene", 0, TINY_ROWS if quick else None)[0]
    search = PackedSearch(
        CGMVAEClassifier(**(TINY if quick else {})),
        _QUICK_SPACE if quick else read_space("paper"),
        n_splits=3,
        n_best=2 if quick else N_BEST,
        random_state=0,
    )
    start = time.perf_counter()
    search.fit(train.X, train.Y)
    found = {"seconds": time.perf_counter() - start, "settings": len(search.results_)}
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return found | {"best": search.results_[0], "device": device}


def compare(name: str, split: int, *, quick: bool) -> dict[str, Any]:
    """Return the metrics of the searched and of the default ensemble on one split."""
    parts = load_parts(name, split, TINY_ROWS if quick else None)
    X, Y, validation = fit_input(parts)
    n_best, settings = (2, TINY) if quick else (N_BEST, {})
    search = PackedSearch(
        CGMVAEClassifier(**settings),
        _QUICK_SPACE if quick else read_space("default"),
        n_settings=4 if quick else N_SETTINGS,
        n_best=n_best,
        random_state=split,
    ).fit(X, Y, validation_data=validation)
    default = CGMVAEClassifier(n_members=n_best, random_state=split, **settings)
    default.fit(X, Y, validation_data=validation)
    return {
        "searched": model_metrics(parts, search),
        "default": model_metrics(parts, default),
    }


def table(results: dict[str, Any]) -> None:
    """Print means of both ensembles, and their difference."""
    print_header("data", "thresholds", "ensemble", *PAPER_METRICS)
    for name in DATA:
        splits = list(results.get(name, {}).values())
        for protocol in PROTOCOLS if len(splits) > 1 else ():
            values = {
                kind: np.array([split[kind][protocol] for split in splits])
                for kind in ("searched", "default")
            }
            for kind, each in values.items():
                print_row(name, protocol, kind, *(f"{mean:.4f}" for mean in each.mean(0)))
            gaps = values["searched"] - values["default"]
            print_row(name, protocol, "*searched − default*", *map(paired_difference, gaps.T))


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and print what was found."""
    parser = make_parser(__doc__)
    add_out(parser)
    parser.add_argument("--data", nargs="*", default=list(DATA))
    options = parser.parse_args(argv)
    quick = options.quick
    results = Results(options.out)
    results.compute(("paper_grid", "scene"), partial(paper_grid, quick=quick))
    for name in ["yeast"] if quick else options.data:
        for split in UNSEEN[:2] if quick else UNSEEN:
            results.compute((name, str(split)), partial(compare, name, split, quick=quick))
    grid = results.values["paper_grid"]["scene"]
    print(f"{grid['settings']} settings × 3 splits on scene: {grid['seconds']:.1f} s")
    table(results.values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
