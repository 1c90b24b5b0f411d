"""How C-GMVAE and the blend carry over: against every peer on many data sets.

    python benchmarks/generalize.py [--data flags yeast] [--splits 0 1] [--jobs 4] [--out FILE.json]

Every method gets the same 90% of the rows of each seeded split, thresholds from rows that it did
not learn from, and the rest as test rows; see ``benchmarks/accuracy.py``, whose protocol and peers
these are. One fit gives two rows of the table: the blend, and its network alone. *Blend without
C-GMVAE* combines the other experts in the same way, so that the difference is what C-GMVAE adds.
Results are kept after each fit; a second run computes only what is missing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from accuracy import QUICK, Scores, load_split, mean_ranks, peer_scores
from joblib import Parallel, delayed, parallel_config
from measurement import (
    Results,
    add_out,
    load,
    make_parser,
    paired_difference,
    print_header,
    print_row,
)

from cgmvae.evaluation import Scored
from cgmvae.methods import BlendClassifier, CGMVAEClassifier
from cgmvae.methods.blend import default_experts
from cgmvae.methods.inputs import Rows
from cgmvae.studies import peers as peers_module
from cgmvae.studies.peers import PEERS

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

#: Protocols of the tables, and what they are called there.
PROTOCOLS = {"validation": "one threshold", "validation-per-metric": "one per metric"}

BLEND, NETWORK, REST = "blend", "C-GMVAE", "blend without C-GMVAE"

#: Methods that a fit of the blend gives at once.
TOGETHER = (BLEND, NETWORK)

METHODS = (*TOGETHER, REST, *(peer for peer in PEERS if peer != "classifier-chains"))


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
        """Return metrics by protocol and the seconds it took, for each method."""
        peers_module.N_TREES = peers_module.N_BLOCKS if self.is_quick else peers_module.N_TREES
        train, test = load_split(self.data, self.seed, QUICK.n_rows if self.is_quick else None)
        start = time.perf_counter()
        with parallel_config(backend="sequential"):  # the cells are what runs in parallel
            if self.method in PEERS:
                found = {self.method: {"scores": peer_scores(self.method, train, test)}}
            else:
                found = self._ours(train, test)
        seconds = {"seconds": round(time.perf_counter() - start, 1)}
        return {m: own.pop("scores").metrics() | own | seconds for m, own in found.items()}

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


def is_network(model: Any) -> bool:
    """Return whether an expert is C-GMVAE."""
    return isinstance(model, CGMVAEClassifier)


def own_scores(model: Any, train: Any, test: Any, blend: Any = None) -> Scores:
    """Return out-of-fold and test probabilities; an expert gets its rows from its blend."""
    own = train.rows(model.oof_rows_)
    features = test.X if blend is None else blend.inputs(test.X)
    return Scores(
        Scored(own.Y, model.oof_proba_, own.unknown),
        Scored(test.Y, model.predict_proba(features), test.unknown),
        model.threshold_rule_,
    )


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
                continue
            for seed in seeds:
                if (name, method, str(seed)) not in results:
                    yield Cell(name, BLEND if method in TOGETHER else method, seed, quick)


def run(results: Results, cells: Sequence[Cell], jobs: int) -> None:
    """Run cells, several at the same time, and keep their results."""
    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
    for cell, found in parallel(delayed(_with_cell)(cell) for cell in cells):
        for method, own in found.items():
            results.add((cell.data, method, str(cell.seed)), own)
        seconds = next(iter(found.values()))["seconds"]
        print(f"{cell.data}, {cell.method}, split {cell.seed}: {seconds} s", flush=True)


def _with_cell(cell: Cell) -> tuple[Cell, dict[str, Any]]:
    return cell, cell.run()


def means(
    results: dict[str, Any], name: str, seeds: Sequence[int], protocol: str
) -> dict[str, float]:
    """Return the mean over metrics and splits of each method that has all splits."""
    return {
        method: float(np.mean([own[str(seed)][protocol] for seed in seeds]))
        for method, own in results.get(name, {}).items()
        if all(str(seed) in own for seed in seeds)
    }


def print_table(results: dict[str, Any], seeds: Sequence[int], protocol: str, title: str) -> None:
    """Print the mean of the five metrics, and how far the blend is from what it consists of."""
    print(f"\n### {title}: mean of the five metrics over splits {', '.join(map(str, seeds))}\n")
    shown = [m for m in METHODS if any(m in own for own in results.values())]
    differences = ("blend − C-GMVAE", "blend − blend without C-GMVAE", "blend − best peer")
    print_header("data", *shown, *differences)
    gaps: dict[str, list[list[float]]] = {}
    for kind, names in (*DATA.items(), ("others", tuple(results))):
        for name in (n for n in names if n in results and not _is_shown(n, kind)):
            own = means(results, name, seeds, protocol)
            best = max((own[m] for m in PEERS if m in own), default=np.nan)
            others = (own.get(NETWORK, np.nan), own.get(REST, np.nan), best)
            gap = [own.get(BLEND, np.nan) - other for other in others]
            gaps.setdefault(kind, []).append(gap)
            cells = [f"{own[m]:.3f}" if m in own else "–" for m in shown]
            print_row(name, *cells, *(f"{value:+.3f}" for value in gap))
    for kind, values in (*gaps.items(), ("all", list(chain.from_iterable(gaps.values())))):
        columns = [column[~np.isnan(column)] for column in np.array(values).T]
        texts = [paired_difference(c, 3, shared=0) if len(c) else "–" for c in columns]
        print_row(f"*mean over {kind}*", *[""] * len(shown), *texts)


def _is_shown(name: str, kind: str) -> bool:
    """Return whether a data set of the last kind has a row already."""
    return kind == "others" and any(name in names for names in DATA.values())


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and print the tables."""
    parser = make_parser(__doc__)
    add_out(parser)
    parser.add_argument("--data", nargs="+", default=sum(DATA.values(), ()))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="fits at the same time")
    parser.add_argument("--tables", action="store_true", help="print the tables, run nothing")
    options = parser.parse_args(argv)
    if options.quick:
        options.data, options.splits = ("yeast", "sider"), [0]
        options.methods = (*TOGETHER, REST, "extra-trees")
    results = Results(options.out)
    if not options.tables:
        cells = missing(results, options.data, options.methods, options.splits, options.quick)
        run(results, list(dict.fromkeys(cells)), options.jobs)
    for protocol, title in PROTOCOLS.items():
        print_table(results.values, options.splits, protocol, title)
        mean_ranks(results.values, METHODS, options.splits, protocol)
    return 0


if __name__ == "__main__":
    sys.exit(main())
