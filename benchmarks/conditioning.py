"""What known labels of a row gain for its other labels: nothing, the mixture, counts, learned.

    python benchmarks/conditioning.py --data yeast --splits 0 1

Of each test row 1, 3 or half of the labels, drawn at random, are given. Counts are the log-odds of
co-occurrence, added up as naive Bayes does; learned is ``CGMVAEClassifier(conditional=True)``.
"""

from __future__ import annotations

import sys

import numpy as np
from measurement import TINY, TINY_ROWS, make_parser
from numpy.typing import NDArray

from cgmvae.data import load_dataset, make_split
from cgmvae.data.mapped import dense
from cgmvae.evaluation.metrics import count
from cgmvae.methods import CGMVAEClassifier


def co_occurrence(labels: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the change of log-odds by each present, and each absent label, (2, L, L)."""

    def log_odds(positive: NDArray[np.floating], total: NDArray[np.floating]) -> NDArray:
        return np.log(positive + 1) - np.log(total - positive + 1)

    prior = log_odds(labels.sum(0), np.array(len(labels)))
    return np.stack(
        [log_odds(own.T @ labels, own.sum(0)[:, None]) - prior for own in (labels, 1 - labels)]
    )


def main() -> int:
    """Print a table."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="+", default=["yeast"])
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--members", type=int, default=4)
    given = parser.parse_args()
    print("| data | labels known | how | log-loss of the others | micro-F1 of the others |")
    print("|---|---|---|---|---|")
    for name in given.data:
        found: dict[tuple[int, str], list[tuple[float, float]]] = {}
        for seed in given.splits[:1] if given.quick else given.splits:
            for key, values in measure(name, seed, given.members, quick=given.quick).items():
                found.setdefault(key, []).append(values)
        for (n_known, how), values in found.items():
            loss, f1 = np.mean(values, axis=0)
            print(f"| {name} | {n_known} | {how} | {loss:.4f} | {f1:.3f} |")
    return 0


def measure(
    name: str, seed: int, n_members: int, *, quick: bool
) -> dict[tuple[int, str], tuple[float, float]]:
    """Return log-loss and micro-F1 of the other labels by number of known ones and method."""
    data = load_dataset(name)
    data = data.rows(np.arange(TINY_ROWS)) if quick else data
    split = make_split(data, "random" if data.groups is None else "group", seed=seed)
    train, test = data.rows(np.concatenate([split.train, split.validation])), data.rows(split.test)
    model = CGMVAEClassifier(
        n_members=n_members, conditional=True, random_state=seed, **(TINY if quick else {})
    ).fit(train.X, train)
    labels = dense(test.Y).astype(bool)
    counted, learned = co_occurrence(dense(train.Y).astype(float)), model.label_effects_
    rng, found = np.random.default_rng(seed), {}
    for n_known in (1, 3, labels.shape[1] // 2):
        given = rng.random(labels.shape).argsort(1).argsort(1) < n_known
        known = np.where(given, labels, np.nan)
        ways = {"nothing": None, "mixture": None, "counts": counted, "learned": learned}
        for how, effects in ways.items():
            model.label_effects_ = effects
            p = model.predict_proba(test.X, known=None if how == "nothing" else known)
            right = np.clip(np.where(labels, p, 1 - p)[~given].astype(float), 1e-6, 1)
            f1 = count(labels, model.threshold_rule_.apply(p), given).value("micro_f1")
            found[n_known, how] = (-np.log(right).mean(), float(f1))
    return found


if __name__ == "__main__":
    sys.exit(main())
