"""Accuracy of C-GMVAE compared with forests, boosted trees, linear models and other networks.

    python benchmarks/accuracy.py --out accuracy.json

All methods get the same 90% of the rows of each seeded split and are scored on the rest. C-GMVAE is
fitted with its defaults; every peer is fitted on five folds, averaged, and gets its thresholds from
its out-of-fold probabilities, as C-GMVAE does (:mod:`cgmvae.studies.peers`). Results are kept after
each data set and method; a second run computes only what is missing and prints the tables again.
Defaults were chosen on out-of-fold scores of splits 0 to 4.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from measurement import (
    TINY,
    TINY_ROWS,
    UNSEEN,
    Results,
    add_out,
    load,
    make_parser,
    paired_difference,
    print_header,
    print_row,
)

from cgmvae.data import make_split
from cgmvae.evaluation import PAPER_METRICS, PROTOCOLS, Scored, evaluate, learn_rule
from cgmvae.evaluation.thresholds import ThresholdRule
from cgmvae.methods import CGMVAEClassifier, fit_together
from cgmvae.studies import peers as peers_module
from cgmvae.studies.peers import PEERS
from cgmvae.studies.spec import why_unsupported
from cgmvae.studies.statistics import rank_methods

DATA = (
    "yeast",
    "scene",
    "sider",
    "ebird_june2019_8000",
    "reuters_tfidf",
    "delicious",
    "bbs_2003_2009",
    "mirflickr_tags",
    "tox21",
    "imdb",
)

#: Data sets with groups whose test rows are drawn at random all the same, as they were when the
#: numbers to compare with were made.
RANDOM_ROWS = ("ebird_june2019_8000",)

#: Splits of the first table; the second has those of ``UNSEEN``.
FIRST = (0, 1, 2, 3, 4)


class Effort(NamedTuple):
    """How large everything is."""

    n_rows: int | None = None
    settings: Mapping[str, Any] = MappingProxyType({})


QUICK = Effort(TINY_ROWS, TINY)


class Scores(NamedTuple):
    """Probabilities of a method on one split."""

    unseen: Scored
    """Training rows, each scored by models that did not see it."""
    test: Scored
    rule: ThresholdRule
    """Learned on the former."""

    def metrics(self) -> dict[str, list[float]]:
        """Return the five metrics by protocol, macro-F1 as in the paper."""
        return {
            protocol: evaluate(
                self.test,
                self.unseen,
                protocol=protocol,
                absent=0,
                **({"rule": self.rule} if protocol == "validation" else {}),
            ).values()
            for protocol in PROTOCOLS
        }


def load_split(name: str, seed: int, n_rows: int | None) -> tuple[Any, Any]:
    """Return the 90% of the rows that methods are fitted on, and the test rows.

    Rows without a positive label are dropped, as in the paper. Where test rows are drawn at random,
    whatever their group, no method is told the groups: its folds are drawn as the test rows are.
    """
    data = load(name)
    if n_rows is not None:
        data = data.rows(np.arange(min(n_rows, data.n_samples)))
    by_group = data.groups is not None and name not in RANDOM_ROWS
    data = data if by_group else replace(data, groups=None)
    split = make_split(data, "group" if by_group else "random", seed=seed, drop_empty=True)
    rows = np.sort(np.concatenate([split.train, split.validation]))
    return data.rows(rows), data.rows(split.test)


def peer_scores(method: str, train: Any, test: Any) -> Scores:
    """Return the out-of-fold and mean test probabilities of a bagged peer."""
    unseen, mean = PEERS[method].bagged(train, test, 0)
    rule = learn_rule(train.Y, unseen, unknown=train.unknown)
    return Scores(Scored(train.Y, unseen, train.unknown), Scored(test.Y, mean, test.unknown), rule)


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
    reason = why_unsupported(name, method)
    if reason or not missing:
        print(f"{name}, {method}: {reason or 'done before'}")
        return
    start = time.perf_counter()
    splits = [load_split(name, seed, effort.n_rows) for seed in missing]
    if method in PEERS:
        scores = [peer_scores(method, *parts) for parts in splits]
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


def mean_ranks(
    results: dict[str, Any], candidates: Sequence[str], seeds: Sequence[int], protocol: str
) -> None:
    """Print mean ranks over data sets, by the mean of the five metrics over splits.

    First of the methods that were run on all data sets, then of all methods, over the data sets
    that all of them were run on.
    """
    done = {
        name: {m for m, own in methods.items() if all(str(s) in own for s in seeds)}
        for name, methods in results.items()
    }
    methods = [m for m in candidates if any(m in own for own in done.values())]
    everywhere = [m for m in methods if all(m in own for own in done.values())]
    complete = [name for name, own in done.items() if own.issuperset(methods)]
    for chosen, data in ((everywhere, list(done)), (methods, complete)):
        if len(chosen) < 2 or not data:
            continue
        scores = [
            [np.mean([results[name][m][str(s)][protocol] for s in seeds]) for m in chosen]
            for name in data
        ]
        test = rank_methods(np.array(scores))
        ranks = sorted(zip(test.mean_ranks, chosen, strict=True))
        print(
            f"\nMean rank over {', '.join(data)} ({protocol}): "
            + ", ".join(f"{method} {rank:.2f}" for rank, method in ranks)
            + f"; critical difference {test.critical_difference:.2f}"
        )


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
    tables: tuple[tuple[int, ...], ...] = (FIRST, UNSEEN)
    if options.quick:
        tables = (FIRST[:2],)
        options.data, options.splits, options.members = ["yeast"], list(tables[0]), 2
        options.methods = ["cgmvae", "extra-trees"]
        peers_module.N_TREES = peers_module.N_BLOCKS
    results = Results(options.out)
    for name in [] if options.tables else options.data:
        for method in options.methods:
            effort = QUICK if options.quick else Effort()
            run(results, name, method, options.splits, options.members, effort)
    for seeds in tables:
        for protocol in PROTOCOLS:
            table(results.values, seeds, protocol)
            mean_ranks(results.values, ("cgmvae", *PEERS), seeds, protocol)
    return 0


if __name__ == "__main__":
    sys.exit(main())
