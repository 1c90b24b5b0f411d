"""The effect of settings of C-GMVAE, measured on validation rows.

    python benchmarks/variants.py --data yeast scene --variants kl_weight=0,contrastive_weight=0
    python benchmarks/variants.py --data sider --variants dropout=.3 dropout=.5,epochs=20

A variant is a list of parameters of ``CGMVAEClassifier`` or of its ``settings``; the defaults
always come first. Only the training and validation rows of splits 0, 1 and 2 are used: this is how
defaults are chosen. Each of the five metrics is taken at its best threshold on the same validation
rows, so the numbers compare variants and do not estimate what a model reaches. The further columns
are the micro-F1 lost when the decoder gets the z of another row, the rank correlation of label
similarity with label co-occurrence, and the epoch that was kept.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from measurement import (
    CHOSEN_ON,
    TINY,
    TINY_ROWS,
    fit_input,
    load_parts,
    make_parser,
    print_header,
    print_row,
)

from cgmvae.evaluation import PAPER_METRICS, Scored, evaluate
from cgmvae.methods import CGMVAEClassifier, fit_together

DATA = ("yeast", "scene", "sider", "reuters_tfidf", "delicious", "bbs_2003_2009")
PARAMETERS = set(inspect.signature(CGMVAEClassifier).parameters)


class Run(NamedTuple):
    """One variant on one split."""

    variant: str
    model: CGMVAEClassifier
    train: Any
    held: Any

    def plan(self) -> str:
        """Return what the members of one pack have in common."""
        X = self.train.X
        preset = self.model.resolved_preset(
            self.train.n_samples, sparse=sp.issparse(X), n_columns=X.shape[1]
        )
        return repr((preset.network, sorted(preset.training.items())))


def parse(variant: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Read ``name=value,name=value`` into the estimator's parameters."""
    given = dict(part.split("=", 1) for part in variant.split(",") if part)
    values = {name: literal(text) for name, text in given.items()}
    own = {name: value for name, value in values.items() if name in PARAMETERS}
    settings = {name: value for name, value in values.items() if name not in PARAMETERS}
    return {**defaults, **own, "settings": {**defaults.get("settings", {}), **settings}}


def literal(text: str) -> Any:
    """Read a number, a tuple (``512+512``), or else a word."""
    if "+" in text:
        return tuple(int(part) for part in text.split("+"))
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def packs(runs: list[Run]) -> Iterator[list[Run]]:
    """Yield the runs that can be trained together."""
    ordered = sorted(runs, key=Run.plan)
    for _, pack in itertools.groupby(ordered, key=Run.plan):
        yield list(pack)


def row(run: Run) -> list[float]:
    """Return the numbers of one fitted run."""
    scored = Scored(run.held.Y, run.model.predict_proba(run.held.X), run.held.unknown)
    # The best threshold on the rows themselves: these are validation rows.
    five = evaluate(scored, protocol="test-oracle").values()
    found = run.model.diagnostics(run.held.X, run.held.Y)
    lost = found["micro_f1"] - found["micro_f1_shuffled_z"]
    kept = float(run.model.best_epoch_.mean())
    return [*five, float(np.mean(five)), lost, found["similarity_cooccurrence"], kept]


def compare(name: str, variants: list[str], members: int, *, quick: bool) -> None:
    """Print the table of one data set."""
    splits = [load_parts(name, seed, TINY_ROWS if quick else None) for seed in CHOSEN_ON]
    runs = []
    for (i, (*parts, _)), variant in itertools.product(enumerate(splits), variants):
        parameters = parse(variant, TINY if quick else {})
        model = CGMVAEClassifier(n_members=members, random_state=i, **parameters)
        runs.append(Run(variant, model, *parts))
    numbers: dict[str, list[list[float]]] = {}
    for pack in packs(runs):
        fit_together([run.model for run in pack], [fit_input((r.train, r.held)) for r in pack])
        for run in pack:
            numbers.setdefault(run.variant, []).append(row(run))
    print(f"\n### {name}\n")
    more = ("mean", "lost without z", "similarity ~ co-occurrence", "epoch")
    print_header("variant", *PAPER_METRICS, *more)
    for variant in variants:
        *means, kept = np.mean(numbers[variant], axis=0)
        print_row(variant or "defaults", *(f"{value:.4f}" for value in means), f"{kept:.0f}")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--variants", nargs="*", default=[])
    parser.add_argument("--members", type=int, default=4)
    options = parser.parse_args(argv)
    if options.quick:
        options.data, options.members = ["yeast"], 1
        options.variants = ["kl_weight=0,dropout=.3", "feature_hidden=8+8", "prior=standard"]
    for name in options.data:
        compare(name, ["", *options.variants], options.members, quick=options.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
