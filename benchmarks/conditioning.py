"""What known labels of a row gain for its others: nothing, the mixture, counts, chains, learned.

    python benchmarks/conditioning.py --data yeast --splits 0 1

Of each test row 1, 3 or half of the labels, drawn at random, are given; then 1, 3 or half of the
labels that it has, as when some species were seen and nothing is known of the others. Learned is
``CGMVAEClassifier(conditional=True)``; counts are the log-odds of co-occurrence, added to those of
the model; chains are classifier chains of logistic regressions that continue from the given values.
"""

from __future__ import annotations

import sys

import numpy as np
from measurement import TINY, TINY_ROWS, make_parser
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from cgmvae.data import load_dataset, make_split
from cgmvae.data.mapped import dense
from cgmvae.evaluation.calibration import log_odds
from cgmvae.evaluation.metrics import count
from cgmvae.methods import CGMVAEClassifier
from cgmvae.preparation.scaling import FeatureScaler

#: Orders of the labels that chains are averaged over, and labels up to which they are tried.
N_CHAINS, CHAINED_LABELS = 3, 300


def co_occurrence(labels: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the change of log-odds by each present, and each absent label, (2, L, L)."""

    def of_counts(positive: NDArray[np.floating], total: NDArray[np.floating]) -> NDArray:
        return np.log(positive + 1) - np.log(total - positive + 1)

    prior = of_counts(labels.sum(0), np.array(len(labels)))
    return np.stack(
        [of_counts(own.T @ labels, own.sum(0)[:, None]) - prior for own in (labels, 1 - labels)]
    )


class Chain:
    """A classifier chain in a random order that takes known labels as they are.

    A known label informs only the labels after it, so several chains are averaged.
    """

    def __init__(self, features: NDArray, labels: NDArray, seed: int) -> None:
        self.order = np.random.default_rng(seed).permutation(labels.shape[1])
        self.models = []
        for place, label in enumerate(self.order):
            seen, own = np.hstack([features, labels[:, self.order[:place]]]), labels[:, label]
            constant = own.min() == own.max()
            model = LogisticRegression(C=0.1, max_iter=2000)
            self.models.append(float(own[0]) if constant else model.fit(seen, own))

    def predict(self, features: NDArray, known: NDArray) -> NDArray:
        """Return probabilities; ``known`` is NaN where a label is unknown."""
        found = np.empty(known.shape)
        for place, (label, model) in enumerate(zip(self.order, self.models, strict=True)):
            seen = np.hstack([features, found[:, self.order[:place]]])
            own = model if isinstance(model, float) else model.predict_proba(seen)[:, 1]
            found[:, label] = np.where(np.isnan(known[:, label]), own, known[:, label])
        return found


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
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for seed in given.splits[:1] if given.quick else given.splits:
            for key, values in measure(name, seed, given.members, quick=given.quick).items():
                found.setdefault(key, []).append(values)
        for (which, how), values in found.items():
            loss, f1 = np.mean(values, axis=0)
            print(f"| {name} | {which} | {how} | {loss:.4f} | {f1:.3f} |")
    return 0


def known_labels(labels: NDArray[np.bool_], rng: np.random.Generator) -> dict[str, NDArray]:
    """Return which labels of each row are given, by name of the choice."""
    order = rng.random(labels.shape)
    among_all = order.argsort(1).argsort(1)
    among_own = np.where(labels, order, 1.0).argsort(1).argsort(1)
    n_labels, n_own = labels.shape[1], labels.sum(1, keepdims=True)
    found = {str(n): among_all < n for n in (1, 3, n_labels // 2)}
    for name, n in (("1", 1), ("3", 3), ("half", n_own // 2)):
        found[f"{name} of its own"] = labels & (among_own < n)
    return found


def measure(
    name: str, seed: int, n_members: int, *, quick: bool
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return log-loss and micro-F1 of the other labels by what is known, and method."""
    data = load_dataset(name)
    data = data.rows(np.arange(TINY_ROWS)) if quick else data
    split = make_split(data, "random" if data.groups is None else "group", seed=seed)
    train, test = data.rows(np.concatenate([split.train, split.validation])), data.rows(split.test)
    model = CGMVAEClassifier(
        n_members=n_members, conditional=True, random_state=seed, **(TINY if quick else {})
    ).fit(train.X, train)
    labels = dense(test.Y).astype(bool)
    counted, learned = co_occurrence(dense(train.Y).astype(float)), model.label_factors_
    scaler = FeatureScaler("auto").fit(train.X)
    features, of_test = (dense(scaler.transform(rows.X)) for rows in (train, test))
    n_chains = (1 if quick else N_CHAINS) if labels.shape[1] <= CHAINED_LABELS else 0
    chains = [Chain(features, dense(train.Y), i) for i in range(n_chains)]
    rng, found = np.random.default_rng(seed), {}

    def score(p: NDArray, given: NDArray, which: str, how: str) -> None:
        right = np.clip(np.where(labels, p, 1 - p)[~given].astype(float), 1e-6, 1)
        f1 = count(labels, model.threshold_rule_.apply(p), given).value("micro_f1")
        found[which, how] = (-np.log(right).mean(), float(f1))

    for which, given in known_labels(labels, rng).items():
        known = np.where(given, labels, np.nan)
        model.label_factors_ = None
        plain = model.predict_proba(test.X)
        shown = np.stack([labels & given, ~labels & given]).astype(float)
        added = np.einsum("krl,klm->rm", shown, counted)
        score(plain, given, which, "nothing")
        score(model.predict_proba(test.X, known=known), given, which, "mixture")
        score(expit(log_odds(plain) + added), given, which, "counts")
        model.label_factors_ = learned
        score(model.predict_proba(test.X, known=known), given, which, "learned")
        if chains:
            for how, own in (("chains, nothing", np.full_like(known, np.nan)), ("chains", known)):
                score(np.mean([c.predict(of_test, own) for c in chains], 0), given, which, how)
    return found


if __name__ == "__main__":
    sys.exit(main())
