"""The presets of the authors' model on test rows, beside what the authors' code scores there.

    python benchmarks/released.py

One member, trained on 80% of the rows, its epoch kept by 10%, means over the splits 0 to 5. The
authors' code was run on the same splits, and chooses thresholds on the test labels (test-oracle).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from measurement import (
    TINY,
    TINY_ROWS,
    fit_input,
    load_parts,
    make_parser,
    metrics_of,
    print_header,
    print_row,
)

from cgmvae.evaluation import PAPER_METRICS
from cgmvae.methods import CGMVAEClassifier, fit_together

SPLITS = (0, 1, 2, 3, 4, 5)

#: The means of the authors' code on these splits.
AUTHORS = {
    "yeast": (0.642, 0.661, 0.475, 0.795, 0.716),
    "scene": (0.762, 0.766, 0.774, 0.919, 0.775),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = make_parser(__doc__)
    parser.add_argument("--presets", nargs="+", default=["released", "paper"])
    parser.add_argument("--learning-rate", type=float, help="by default that of the preset")
    given = parser.parse_args(argv)
    settings = {} if given.learning_rate is None else {"learning_rate": given.learning_rate}
    splits, n_rows = (SPLITS[:1], TINY_ROWS) if given.quick else (SPLITS, None)
    print_header("data", "model", "thresholds", *PAPER_METRICS)
    for name in ("yeast",) if given.quick else AUTHORS:  # yeast is embedded
        authors = AUTHORS[name]
        print_row(name, "authors' code", "test-oracle", *map("{:.3f}".format, authors))
        parts = [load_parts(name, seed, n_rows) for seed in splits]
        for preset in given.presets:
            tiny = TINY if given.quick else {}
            models = [
                CGMVAEClassifier(preset, n_members=1, random_state=seed, **{**settings, **tiny})
                for seed in splits
            ]
            fit_together(models, [fit_input(each) for each in parts])
            found = [
                metrics_of(each, [model.predict_proba(rows.X) for rows in each[1:]])
                for model, each in zip(models, parts, strict=True)
            ]
            for protocol in ("test-oracle", "validation"):
                means = np.mean([each[protocol] for each in found], axis=0)
                print_row(name, preset, protocol, *map("{:.3f}".format, means))
    return 0


if __name__ == "__main__":
    sys.exit(main())
