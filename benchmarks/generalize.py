"""How C-GMVAE and the blend carry over: against every peer on many data sets.

    python benchmarks/generalize.py [--data flags yeast] [--splits 0 1] [--methods blend tabm]
        [--jobs 4] [--limit 600] [--out FILE.json] [--merge OTHER.json]

Every method gets the same 90% of the rows of each seeded split, thresholds from rows that it did
not learn from, and the rest as test rows; peers are fitted on five folds and averaged
(:mod:`cgmvae.studies.peers`). One fit gives two rows of the table: the blend, and its network
alone. *Blend without C-GMVAE* combines the other experts in the same way, so that the difference is
what C-GMVAE adds. Results are kept after each fit, with commit, date and device; a second run
computes only what is missing. With a limit each fit is a process of its own, which is ended when
its seconds are over; the file then says so. ``--merge`` adds the results of files that were made
elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from joblib import cpu_count, parallel_config
from measurement import (
    TINY,
    TINY_ROWS,
    Results,
    add_out,
    load,
    made,
    make_parser,
    paired_difference,
    print_header,
    print_row,
)

from cgmvae.data import make_split
from cgmvae.evaluation import PROTOCOLS as ALL_PROTOCOLS
from cgmvae.evaluation import Scored, evaluate, learn_rule
from cgmvae.evaluation.thresholds import ThresholdRule
from cgmvae.methods import BlendClassifier, CGMVAEClassifier
from cgmvae.methods.blend import default_experts
from cgmvae.methods.inputs import Rows
from cgmvae.studies import peers as peers_module
from cgmvae.studies.peers import PEERS
from cgmvae.studies.statistics import RankTest, rank_methods

#: Data sets by kind; what a difference between methods is may depend on it.
DATA: dict[str, tuple[str, ...]] = {
    "measurements": ("yeast", "scene", "emotions", "flags"),
    "species": (
        "ebird_june2019_8000",
        "bbs_2003_2009",
        "foodtruck",
        "disdat_AWTb",
        "disdat_CAN",
        "disdat_NSWot",
        "disdat_NSWrt",
        "disdat_NZ",
    ),
    "bits of molecules": ("sider", "tox21"),
    "words": (
        "enron",
        "slashdot",
        "stackex_chess",
        "reuters_tfidf",
        "delicious",
        "mirflickr_tags",
        "imdb",
    ),
}

#: Data sets with groups whose test rows are drawn at random all the same, as they were when the
#: numbers to compare with were made.
RANDOM_ROWS = ("ebird_june2019_8000",)

#: Protocols of the tables, and what they are called there.
PROTOCOLS = {"validation": "one threshold", "validation-per-metric": "one per metric"}

#: Splits of a run without --splits.
SPLITS = (0, 1, 2)

BLEND, NETWORK, REST = "blend", "C-GMVAE", "blend without C-GMVAE"

#: Methods that a fit of the blend gives at once.
TOGETHER = (BLEND, NETWORK)

OURS = (*TOGETHER, REST)
METHODS = (*OURS, *(peer for peer in PEERS if peer != "classifier-chains"))

#: A method is ranked that was run on at least this share of the data sets with peers.
RANKED_SHARE = 0.75


class Effort(NamedTuple):
    """How large everything is."""

    n_rows: int | None = None
    settings: Mapping[str, Any] = MappingProxyType({})


QUICK = Effort(TINY_ROWS, TINY)


# --- A fit ----------------------------------------------------------------------------------------


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
            for protocol in ALL_PROTOCOLS
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


def own_scores(model: Any, train: Any, test: Any, blend: Any = None) -> Scores:
    """Return out-of-fold and test probabilities; an expert gets its rows from its blend."""
    own = train.rows(model.oof_rows_)
    features = test.X if blend is None else blend.inputs(test.X)
    return Scores(
        Scored(own.Y, model.oof_proba_, own.unknown),
        Scored(test.Y, model.predict_proba(features), test.unknown),
        model.threshold_rule_,
    )


class Cell(NamedTuple):
    """A fit on a split."""

    data: str
    method: str
    """``BLEND`` stands for all of ``TOGETHER``."""
    seed: int
    is_quick: bool

    @property
    def gives(self) -> tuple[str, ...]:
        """The methods that it gives scores of."""
        return TOGETHER if self.method == BLEND else (self.method,)

    def run(self) -> dict[str, Any]:
        """Return metrics by protocol, seconds and origin for each method."""
        peers_module.N_TREES = peers_module.N_BLOCKS if self.is_quick else peers_module.N_TREES
        train, test = load_split(self.data, self.seed, QUICK.n_rows if self.is_quick else None)
        start = time.perf_counter()
        with parallel_config(backend="sequential"):  # the cells are what runs in parallel
            if self.method in PEERS:
                found = {self.method: {"scores": peer_scores(self.method, train, test)}}
            else:
                found = self._ours(train, test)
        more = {"seconds": round(time.perf_counter() - start, 1), "made": origin(self.method)}
        return {m: own.pop("scores").metrics() | own | more for m, own in found.items()}

    def _ours(self, train: Any, test: Any) -> dict[str, dict[str, Any]]:
        """Fit the blend, or the experts beside the network; return scores and weights."""
        experts: Any = default_experts(Rows(train.X, train.Y), CGMVAEClassifier(scaling="none"))
        if self.is_quick:
            experts = [
                (name, model.set_params(**QUICK.settings) if is_network(model) else model)
                for name, model in experts
            ]
        if self.method == REST:
            experts = [(name, model) for name, model in experts if not is_network(model)]
        model = BlendClassifier(experts, random_state=self.seed).fit(train.X, train)
        weights = {expert.name: round(expert.weight, 3) for expert in model.experts_}
        found = {self.method: {"scores": own_scores(model, train, test), "weights": weights}}
        if self.method == BLEND:
            found[NETWORK] = {"scores": own_scores(model.cgmvae_, train, test, model)}
        return found

    def run_apart(self, limit: float, n_threads: int) -> dict[str, Any]:
        """Run in a process that is ended after ``limit`` seconds; return results or the reason."""
        command = [sys.executable, __file__, "--cell", self.data, self.method, str(self.seed)]
        own = {"OMP_NUM_THREADS": str(n_threads), "CGMVAE_COMMIT": made("")["commit"] or ""}
        try:
            done = subprocess.run(
                [*command, *(["--quick"] if self.is_quick else [])],
                env={**os.environ, **own},
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            reason = f"more than {limit:g} s"
        else:
            if done.returncode == 0:
                return dict(json.loads(done.stdout.splitlines()[-1]))
            reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return {m: {"not_run": reason, "made": origin(self.method)} for m in self.gives}


def origin(method: str) -> str:
    """Return where and when a result was made; of the peers, TabM alone uses a GPU."""
    own = made("", "cpu" if method in PEERS and method != "tabm" else "auto")
    return f"{own['device']}, {own['date']}, commit {own['commit']}"


def is_network(model: Any) -> bool:
    """Return whether an expert is C-GMVAE."""
    return isinstance(model, CGMVAEClassifier)


def missing(
    results: Results, data: Sequence[str], methods: Sequence[str], seeds: Sequence[int], quick: bool
) -> Iterator[Cell]:
    """Yield what is to be run."""
    for name in data:
        whole = load(name)
        for method in methods:
            if method in PEERS and (
                reason := PEERS[method].why_left_out(whole.n_samples * whole.n_labels)
            ):
                print(f"{name}, {method}: {reason}")
                if PEERS[method].is_installed:
                    for seed in seeds:
                        results.add((name, method, str(seed)), {"not_run": reason})
                continue
            for seed in seeds:
                if (name, method, str(seed)) not in results:
                    yield Cell(name, BLEND if method in TOGETHER else method, seed, quick)


def run(results: Results, cells: Sequence[Cell], jobs: int, limit: float | None) -> None:
    """Run cells, several at the same time with a limit, and keep their results."""
    n_threads = max(1, cpu_count() // jobs)

    def start(cell: Cell) -> tuple[Cell, dict[str, Any]]:
        return cell, cell.run() if limit is None else cell.run_apart(limit, n_threads)

    with ThreadPool(jobs) as pool:
        for cell, found in pool.imap_unordered(start, cells) if limit else map(start, cells):
            for method, own in found.items():
                results.add((cell.data, method, str(cell.seed)), own)
            own = next(iter(found.values()))
            text = own.get("not_run") or f"{own['seconds']} s"
            print(f"{cell.data}, {cell.method}, split {cell.seed}: {text}", flush=True)


def merge(results: Results, path: Path) -> None:
    """Add the results of another file; numbers replace those of the same fit, reasons do not."""
    for name, methods in Results(path).values.items():
        for method, splits in methods.items():
            for seed, own in splits.items():
                if "not_run" not in own or (name, method, seed) not in results:
                    results.add((name, method, seed), own)


# --- What follows from the results ----------------------------------------------------------------


def compared_splits(methods: Mapping[str, Any]) -> list[str]:
    """Return the splits of a data set that methods are compared on: the blend's, or else all."""
    of_blend = [seed for seed, own in methods.get(BLEND, {}).items() if "not_run" not in own]
    return sorted(of_blend or set().union(*methods.values()), key=int)


def means(results: Mapping[str, Any], protocol: str) -> dict[str, Any]:
    """Return the mean over metrics and splits by data set and method, the best first.

    A method must have all splits that are compared.
    """
    found = {}
    for data, methods in results.items():
        seeds = compared_splits(methods)
        own = {
            method: float(np.mean([splits[seed][protocol] for seed in seeds]))
            for method, splits in methods.items()
            if all(protocol in splits.get(seed, {}) for seed in seeds)
        }
        found[data] = dict(sorted(own.items(), key=lambda each: -each[1]))
    return found


def best_peer(own: Mapping[str, float]) -> float:
    """Return the highest mean of a peer on a data set, NaN without one."""
    return max((own[method] for method in own if method not in OURS), default=np.nan)


def gaps(found: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return how far the blend is above what it consists of and the best peer, by data set."""
    names = {"C-GMVAE": NETWORK, "blend without C-GMVAE": REST, "best peer": None}
    return {
        title: {
            data: own[BLEND] - (best_peer(own) if name is None else own.get(name, np.nan))
            for data, own in found.items()
            if BLEND in own
        }
        for title, name in names.items()
    }


def ranks(
    found: Mapping[str, Mapping[str, float]], candidates: Sequence[str]
) -> tuple[RankTest, list[str]]:
    """Rank candidates over the data sets that have all of them.

    Candidates are left out that were run on few of the data sets where all kinds were: where no
    peer was run, peers are not compared.
    """
    with_peers = [own for own in found.values() if not own.keys() <= set(OURS)]
    compared = list(found.values()) if set(candidates) <= set(OURS) else with_peers
    chosen = [
        method
        for method in candidates
        if sum(method in own for own in compared) >= RANKED_SHARE * len(compared)
    ]
    complete = [own for own in compared if own.keys() >= set(chosen)]
    scores = np.array([[own[method] for method in chosen] for own in complete])
    return rank_methods(scores.reshape(len(complete), len(chosen))), chosen


def ranks_in_words(found: Mapping[str, Mapping[str, float]], candidates: Sequence[str]) -> str:
    """Return mean ranks as a sentence; nothing with fewer than two methods."""
    test, chosen = ranks(found, candidates)
    if len(chosen) < 2 or not test.n_data:
        return ""
    order = sorted(zip(test.mean_ranks, chosen, strict=True))
    named = ", ".join(f"{method} {rank:.2f}" for rank, method in order)
    reach = f"critical difference {test.critical_difference:.2f}"
    return (
        f"Mean ranks over the {test.n_data} sets that all of these were run on: {named}; {reach}."
    )


def print_table(results: Mapping[str, Any], protocol: str, title: str) -> None:
    """Print the mean of the five metrics, and how far the blend is from what it consists of."""
    print(f"\n### {title}: mean of the five metrics over the splits of the blend\n")
    found = means(results, protocol)
    shown = [method for method in METHODS if any(method in own for own in found.values())]
    differences = gaps(found)
    print_header("data", *shown, *(f"blend − {other}" for other in differences))
    for data, own in found.items():
        cells = [f"{own[m]:.3f}" if m in own else "–" for m in shown]
        print_row(
            data, *cells, *(f"{each.get(data, np.nan):+.3f}" for each in differences.values())
        )
    columns = [[v for v in each.values() if not np.isnan(v)] for each in differences.values()]
    texts = [paired_difference(column, 3, shared=0) if column else "–" for column in columns]
    print_row("*mean*", *[""] * len(shown), *texts)
    for candidates in (OURS, METHODS):
        print(f"\n{ranks_in_words(found, candidates)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and print the tables."""
    parser = make_parser(__doc__)
    add_out(parser)
    parser.add_argument("--data", nargs="+", default=sum(DATA.values(), ()))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--splits", nargs="+", type=int, default=list(SPLITS))
    parser.add_argument("--jobs", type=int, default=1, help="fits at the same time, with --limit")
    parser.add_argument("--limit", type=float, help="seconds of a fit, in a process of its own")
    parser.add_argument("--merge", nargs="+", type=Path, default=[], help="files to add to --out")
    parser.add_argument("--tables", action="store_true", help="print the tables, run nothing")
    parser.add_argument("--cell", nargs=3, help="data, method and split: print one fit as JSON")
    options = parser.parse_args(argv)
    if options.cell:
        name, method, seed = options.cell
        print(json.dumps(Cell(name, method, int(seed), options.quick).run()))
        return 0
    if options.jobs > 1 and options.limit is None:
        parser.error("several fits at the same time need a --limit")
    if options.quick:
        options.data, options.splits = ("yeast",), [0]
        options.methods = (*OURS, "extra-trees")
    results = Results(options.out)
    for path in options.merge:
        merge(results, path)
    if not options.tables:
        cells = missing(results, options.data, options.methods, options.splits, options.quick)
        run(results, list(dict.fromkeys(cells)), options.jobs, options.limit)
    for protocol, title in PROTOCOLS.items():
        print_table(results.values, protocol, title)
    return 0


if __name__ == "__main__":
    sys.exit(main())
