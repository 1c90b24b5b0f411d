"""How far the probabilities of C-GMVAE can be trusted, without and with calibration.

    python benchmarks/calibration.py --data survey yeast scene sider

Splits and rows are those of ``accuracy.py``; the test rows of all splits are scored together, and
their labels must all be known. ``survey`` is made up: 2,500 sites and five species, most of which
are at few sites. By chance is the calibration error that the probabilities would have if the labels
were drawn from them, and the gap is the largest between a label's mean probability and frequency.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from accuracy import load_split
from measurement import CHOSEN_ON, TINY, TINY_ROWS, make_parser
from sklearn.metrics import log_loss

from cgmvae.data import make_survey
from cgmvae.data.mapped import dense
from cgmvae.evaluation import expected_calibration_error, learn_calibration
from cgmvae.methods import CGMVAEClassifier, fit_together
from cgmvae.methods.cgmvae import TEMPERATURE_SHARE

#: Sites of the survey to train on, and to test on.
SITES = 2500, 10_000

#: Draws of labels for the error by chance.
N_DRAWS = 20


def main() -> int:
    """Print a table."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="+", default=["survey", "yeast"])
    parser.add_argument("--splits", nargs="+", type=int, default=list(CHOSEN_ON))
    given = parser.parse_args()
    print("| data | test rows | calibrated | calibration error | by chance | log-loss | gap |")
    print("|---|---|---|---|---|---|---|")
    for name in given.data:
        splits = [load(name, seed, quick=given.quick) for seed in given.splits]
        labels = np.concatenate([dense(test.Y) for _, test in splits])
        for how, p in probabilities(splits, TINY if given.quick else {}).items():
            rng = np.random.default_rng(0)
            draws = [expected_calibration_error(rng.random(p.shape) < p, p) for _ in range(N_DRAWS)]
            print(
                f"| {name} | {len(labels):,} | {how} | {expected_calibration_error(labels, p):.4f} "
                f"| {np.mean(draws):.4f} | {log_loss(labels.ravel(), p.ravel()):.4f} "
                f"| {np.abs(labels.mean(0) - p.mean(0)).max():.4f} |",
                flush=True,
            )
    return 0


def load(name: str, seed: int, *, quick: bool) -> tuple[Any, Any]:
    """Return the rows to fit on and the test rows."""
    if name != "survey":
        return load_split(name, seed, TINY_ROWS if quick else None)
    n_train, n_test = (TINY_ROWS, TINY_ROWS) if quick else SITES
    data, _ = make_survey(n_train + n_test, 8, 5, cardinality=0.45, seed=seed)
    return data.rows(slice(n_train)), data.rows(slice(n_train, None))


def probabilities(splits: list[tuple[Any, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the probabilities of all test rows, without and with calibration."""
    models = [
        CGMVAEClassifier(random_state=i, calibrate=False, **settings) for i in range(len(splits))
    ]
    fit_together(models, [(train.X, train, None) for train, _ in splits])
    pairs = list(zip(models, splits, strict=True))
    before = np.concatenate([model.predict_proba(test.X) for model, (_, test) in pairs])
    for model, (train, _) in pairs:
        rows = train.rows(model.oof_rows_)
        scores, folds = model.oof_proba_, model.oof_folds_
        found, _ = learn_calibration(
            rows.Y, scores, folds, unknown=rows.unknown, share=TEMPERATURE_SHARE
        )
        if found is not None:
            model.network_.rescale_logits(found.temperature, torch.tensor(found.shifts))
    after = np.concatenate([model.predict_proba(test.X) for model, (_, test) in pairs])
    return {"no": before, "yes": after}


if __name__ == "__main__":
    sys.exit(main())
