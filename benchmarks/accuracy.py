"""Accuracy of C-GMVAE compared with random forest, extra trees and logistic regression.

    python benchmarks/accuracy.py --out docs/results/accuracy.json

All methods see the same seeded splits. The splits and seeds of C-GMVAE are members of one pack.
Results are kept after each data set and method; a second run computes only what is missing and
prints the tables again. Defaults were chosen on the validation rows of splits 0, 1 and 2; splits 3
to 7 had no part in that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from measurement import (
    CHOSEN_ON,
    TINY,
    TINY_ROWS,
    UNSEEN,
    Results,
    add_out,
    fit_input,
    load_parts,
    make_parser,
    metrics_of,
    paired_difference,
    print_header,
    print_row,
)
from scipy import stats
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from cgmvae.evaluation import PAPER_METRICS, PROTOCOLS
from cgmvae.methods import BinaryRelevance, CGMVAEClassifier, fit_together

DATA = ("yeast", "scene", "sider", "reuters_tfidf", "delicious", "bbs_2003_2009")
PEERS = ("random_forest", "extra_trees", "logistic_regression")


class Effort(NamedTuple):
    """How large everything is."""

    n_rows: int | None = None
    settings: Mapping[str, Any] = MappingProxyType({})
    n_jobs: int = -1
    n_trees: int = 300
    n_blocks: int = 5
    """A forest is grown in blocks that are scored and dropped: with hundreds of labels, all trees
    of one would take tens of gigabytes."""


QUICK = Effort(TINY_ROWS, TINY, n_jobs=1, n_trees=4, n_blocks=2)


def peer_scores(method: str, parts: list[Any], effort: Effort) -> list[np.ndarray]:
    """Fit a peer and return its probabilities of the validation and of the test rows."""
    train, *others = parts
    if method == "logistic_regression":
        peer = LogisticRegression(max_iter=2000)
        model = BinaryRelevance(peer, n_jobs=effort.n_jobs, random_state=0)
        X, Y, validation = fit_input(parts)
        model.fit(X, Y, validation_data=validation)
        return [model.predict_proba(part.X) for part in others]
    kind = RandomForestClassifier if method == "random_forest" else ExtraTreesClassifier
    scores = []
    for block in range(effort.n_blocks):
        n_trees = effort.n_trees // effort.n_blocks
        forest = kind(n_trees, n_jobs=effort.n_jobs, random_state=block).fit(train.X, train.Y)
        scores.append([forest_scores(forest, part.X) for part in others])
    return [np.mean(part, axis=0) for part in zip(*scores, strict=True)]


def forest_scores(forest: Any, X: Any) -> np.ndarray:
    """Return a forest's probabilities of label 1, (n_samples, n_labels)."""
    columns = [
        column[:, list(classes).index(1)] if 1 in classes else np.zeros(len(column))
        for column, classes in zip(forest.predict_proba(X), forest.classes_, strict=True)
    ]
    return np.column_stack(columns)


def cgmvae_scores(
    splits: list[list[Any]], members: int, preset: str, effort: Effort
) -> list[list[np.ndarray]]:
    """Fit C-GMVAE on all splits as one pack; return probabilities as :func:`peer_scores` does."""
    models = [
        CGMVAEClassifier(preset, n_members=members, random_state=i, **effort.settings)
        for i in range(len(splits))
    ]
    fit_together(models, [fit_input(parts) for parts in splits])
    return [
        [model.predict_proba(part.X) for part in parts[1:]]
        for model, parts in zip(models, splits, strict=True)
    ]


def run(
    results: Results, name: str, method: str, seeds: list[int], members: int, effort: Effort
) -> None:
    """Add the missing splits of one method on one data set."""
    missing = [seed for seed in seeds if (name, method, str(seed)) not in results]
    if not missing:
        return
    start = time.perf_counter()
    splits = [load_parts(name, seed, effort.n_rows) for seed in missing]
    if method in PEERS:
        scores = [peer_scores(method, parts, effort) for parts in splits]
    else:
        preset, own_members = method.split(":")[1:] or ("tuned", members)
        scores = cgmvae_scores(splits, int(own_members), preset, effort)
    for seed, parts, score in zip(missing, splits, scores, strict=True):
        results.add((name, method, str(seed)), metrics_of(parts, score))
    print(f"{name}, {method}: {time.perf_counter() - start:.1f} s", flush=True)


def table(results: dict[str, Any], seeds: tuple[int, ...], protocol: str) -> None:
    """Print means over the splits, and the paired difference of C-GMVAE from the best peer."""
    print(f"\n### {protocol}, mean over splits {', '.join(map(str, seeds))}\n")
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
    parser.add_argument("--splits", nargs="+", type=int, default=[*CHOSEN_ON, *UNSEEN])
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--tables", action="store_true", help="print the tables, run nothing")
    options = parser.parse_args(argv)
    if options.quick:
        options.data, options.splits, options.members = ["yeast"], list(CHOSEN_ON), 1
    results = Results(options.out)
    for name in [] if options.tables else options.data:
        for method in options.methods:
            effort = QUICK if options.quick else Effort()
            run(results, name, method, options.splits, options.members, effort)
    for seeds in (CHOSEN_ON, UNSEEN):
        for protocol in PROTOCOLS:
            table(results.values, seeds, protocol)
            mean_ranks(results.values, seeds, protocol)
    return 0


if __name__ == "__main__":
    sys.exit(main())
