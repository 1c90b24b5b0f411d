"""Accuracy of C-GMVAE compared with random forest, extra trees and logistic regression.

    python benchmarks/accuracy.py --out docs/results/accuracy.json

All methods get the same 90% of the rows of each seeded split and are scored on the rest. C-GMVAE is
fitted with its defaults; every peer is fitted on five folds, averaged, and gets its thresholds from
its out-of-fold probabilities, as C-GMVAE does. Results are kept after each data set and method; a
second run computes only what is missing and prints the tables again. Defaults were chosen on
out-of-fold scores of splits 0 to 4.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from measurement import (
    TINY,
    TINY_ROWS,
    UNSEEN,
    Results,
    add_out,
    make_parser,
    paired_difference,
    print_header,
    print_row,
)
from scipy import stats
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold

from cgmvae.data import load_dataset, make_split
from cgmvae.evaluation import PAPER_METRICS, PROTOCOLS, Scored, evaluate, learn_rule
from cgmvae.evaluation.thresholds import ThresholdRule
from cgmvae.methods import BinaryRelevance, CGMVAEClassifier, fit_together

DATA = (
    "yeast",
    "scene",
    "sider",
    "ebird_june2019_8000",
    "reuters_tfidf",
    "delicious",
    "bbs_2003_2009",
)
N_FOLDS = 5

#: Splits of the first table; the second has those of ``UNSEEN``.
FIRST = (0, 1, 2, 3, 4)
PEERS = ("random_forest", "extra_trees", "logistic_regression")


class Effort(NamedTuple):
    """How large everything is."""

    n_rows: int | None = None
    settings: Mapping[str, Any] = MappingProxyType({})
    n_jobs: int = -1
    n_trees: int = 300


QUICK = Effort(TINY_ROWS, TINY, n_jobs=1, n_trees=4)


class Scores(NamedTuple):
    """Probabilities of a method on one split."""

    unseen: Scored
    """Training rows, each scored by models that did not see it."""
    test: Scored
    rule: ThresholdRule
    """Learned on the former."""

    def metrics(self) -> dict[str, list[float]]:
        """Return the five metrics by protocol."""
        return {
            protocol: evaluate(
                self.test,
                self.unseen,
                protocol=protocol,
                **({"rule": self.rule} if protocol == "validation" else {}),
            ).values()
            for protocol in PROTOCOLS
        }


def load_split(name: str, seed: int, n_rows: int | None) -> tuple[Any, Any]:
    """Return the 90% of the rows that methods are fitted on, and the test rows.

    Rows without a positive label are dropped, as in the paper.
    """
    data = load_dataset(name)
    if n_rows is not None:
        data = data.rows(np.arange(n_rows))
    by_group = data.groups is not None and not name.startswith("ebird")
    split = make_split(data, "group" if by_group else "random", seed=seed, drop_empty=True)
    rows = np.sort(np.concatenate([split.train, split.validation]))
    return data.rows(rows), data.rows(split.test)


def peer_scores(method: str, train: Any, test: Any, effort: Effort) -> Scores:
    """Fit a peer on five folds; return its out-of-fold and mean test probabilities."""
    unseen, found = np.zeros(train.Y.shape), []
    splitter = KFold(N_FOLDS, shuffle=True, random_state=0)
    groups = train.groups
    if groups is not None:
        splitter = GroupKFold(N_FOLDS, shuffle=True, random_state=0)
    for inside, held in splitter.split(np.zeros(train.n_samples), groups=groups):
        predict = fitted_peer(method, train.rows(inside), effort)
        unseen[held] = predict(train.X[held])
        found.append(predict(test.X))
    rule = learn_rule(train.Y, unseen, unknown=train.unknown)
    mean = np.mean(found, axis=0)
    return Scores(Scored(train.Y, unseen, train.unknown), Scored(test.Y, mean, test.unknown), rule)


def fitted_peer(method: str, train: Any, effort: Effort) -> Callable[[Any], np.ndarray]:
    """Fit a peer and return the function that predicts probabilities."""
    if method == "logistic_regression":
        peer = LogisticRegression(max_iter=2000)
        return (
            BinaryRelevance(peer, n_jobs=effort.n_jobs, random_state=0)
            .fit(train.X, train)
            .predict_proba
        )
    kind = RandomForestClassifier if method == "random_forest" else ExtraTreesClassifier
    forest = kind(effort.n_trees, n_jobs=effort.n_jobs, random_state=0).fit(train.X, train.Y)
    return partial(forest_scores, forest)


def forest_scores(forest: Any, X: Any) -> np.ndarray:
    """Return a forest's probabilities of label 1, (n_samples, n_labels)."""
    columns = [
        column[:, list(classes).index(1)] if 1 in classes else np.zeros(len(column))
        for column, classes in zip(forest.predict_proba(X), forest.classes_, strict=True)
    ]
    return np.column_stack(columns)


def cgmvae_scores(
    splits: list[tuple[Any, Any]], members: int | None, preset: str, effort: Effort
) -> list[Scores]:
    """Fit C-GMVAE on all splits as one pack; return its out-of-fold and test probabilities."""
    models = [
        CGMVAEClassifier(preset, random_state=i, **effort.settings) for i in range(len(splits))
    ]
    if members is not None:
        models = [model.set_params(n_members=members) for model in models]
    fit_together(models, [(train.X, train, None) for train, _ in splits])
    found = []
    for model, (train, test) in zip(models, splits, strict=True):
        own = train.rows(model.oof_rows_)
        unseen = Scored(own.Y, model.oof_proba_, own.unknown)
        scored = Scored(test.Y, model.predict_proba(test.X), test.unknown)
        found.append(Scores(unseen, scored, model.threshold_rule_))
    return found


def run(
    results: Results, name: str, method: str, seeds: list[int], members: int | None, effort: Effort
) -> None:
    """Add the missing splits of one method on one data set."""
    missing = [seed for seed in seeds if (name, method, str(seed)) not in results]
    if not missing:
        return
    start = time.perf_counter()
    splits = [load_split(name, seed, effort.n_rows) for seed in missing]
    if method in PEERS:
        scores = [peer_scores(method, *parts, effort) for parts in splits]
    else:
        preset, own_members = method.split(":")[1:] or ("tuned", members)
        scores = cgmvae_scores(splits, own_members and int(own_members), preset, effort)
    for seed, score in zip(missing, scores, strict=True):
        results.add((name, method, str(seed)), score.metrics())
    print(f"{name}, {method}: {time.perf_counter() - start:.1f} s", flush=True)


def table(results: dict[str, Any], seeds: tuple[int, ...], protocol: str) -> None:
    """Print means over the splits, and the paired difference of C-GMVAE from the best peer."""
    print(f"\n### {protocol}, mean over splits {', '.join(map(str, seeds))}\n")
    print("Rows without a positive label are left out, as in the paper.\n")
    print_header("data", "method", *PAPER_METRICS)
    for name, methods in results.items():
        values = {
            method: np.array([done[str(seed)][protocol] for seed in seeds])
            for method, done in methods.items()
            if all(str(seed) in done for seed in seeds)
        }
        for method, own in values.items():
            print_row(name, method, *(f"{mean:.4f}" for mean in own.mean(0)))
        peers = [own for method, own in values.items() if method in PEERS]
        if "cgmvae" in values and peers:
            best = [max(peers, key=lambda own, i=i: own[:, i].mean())[:, i] for i in range(5)]
            gaps = values["cgmvae"] - np.column_stack(best)
            print_row(name, "*C-GMVAE − best peer*", *map(paired_difference, gaps.T))


def mean_ranks(results: dict[str, Any], seeds: tuple[int, ...], protocol: str) -> None:
    """Print the mean rank of each method over the data sets and metrics that all were run on."""
    methods = ("cgmvae", *PEERS)
    rows = []
    for done in results.values():
        if all(str(s) in done.get(m, {}) for m in methods for s in seeds):
            means = [np.mean([done[m][str(s)][protocol] for s in seeds], 0) for m in methods]
            rows.append(stats.rankdata(-np.array(means), axis=0).T)
    if rows:
        ranks = np.concatenate(rows).mean(0)
        listed = ", ".join(f"{m} {r:.2f}" for m, r in zip(methods, ranks, strict=True))
        print(f"\nMean rank over {len(rows)} data sets × 5 metrics ({protocol}): {listed}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and print the tables."""
    parser = make_parser(__doc__)
    add_out(parser)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["cgmvae", *PEERS],
        help="cgmvae, cgmvae:PRESET:MEMBERS, or a peer",
    )
    parser.add_argument(
        "--splits", nargs="+", type=int, default=[*dict.fromkeys((*FIRST, *UNSEEN))]
    )
    parser.add_argument("--members", type=int, help="by default those of the estimator")
    parser.add_argument("--tables", action="store_true", help="print the tables, run nothing")
    options = parser.parse_args(argv)
    if options.quick:
        options.data, options.splits, options.members = ["yeast"], list(FIRST), 2
    results = Results(options.out)
    for name in [] if options.tables else options.data:
        for method in options.methods:
            effort = QUICK if options.quick else Effort()
            run(results, name, method, options.splits, options.members, effort)
    for seeds in (FIRST, UNSEEN):
        for protocol in PROTOCOLS:
            table(results.values, seeds, protocol)
            mean_ranks(results.values, seeds, protocol)
    return 0


if __name__ == "__main__":
    sys.exit(main())
