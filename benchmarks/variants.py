"""What settings of C-GMVAE do, on validation rows alone.

    python benchmarks/variants.py --data yeast scene --variants kl_weight=0,contrastive_weight=0
    python benchmarks/variants.py --data sider --variants dropout=.3 dropout=.5,epochs=20

A variant is a list of parameters of ``CGMVAEClassifier`` or of its ``settings``; the defaults are
always the first one. Splits 0, 1, 2 are used, and of them the training and validation rows only:
this is what defaults are chosen with. The five metrics are each at its best threshold on the same
validation rows, so they compare variants and are no estimate of what a model reaches. Beside them:
the micro-F1 that is lost when the decoder is given another row's z, the rank correlation of label
similarity with label co-occurrence, and the epoch that was kept.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from accuracy import CHOSEN_ON, DATA, load_parts

from cgmvae.evaluation import PAPER_METRICS, Scored, evaluate
from cgmvae.methods import CGMVAEClassifier, fit_together

PARAMETERS = set(inspect.signature(CGMVAEClassifier).parameters)


class Run(NamedTuple):
    """One variant on one split."""

    variant: str
    model: CGMVAEClassifier
    train: Any
    held: Any

    def plan(self) -> str:
        """Return what members of one pack must agree in."""
        n_rows, n_labels = self.train.Y.shape
        sparse = sp.issparse(self.train.X)
        preset = self.model.resolved_preset(n_rows, sparse=sparse, n_labels=n_labels)
        return repr((preset.network, sorted(preset.training.items())))


def parse(variant: str) -> dict[str, Any]:
    """Read ``name=value,name=value`` into the estimator's parameters."""
    given = dict(part.split("=", 1) for part in variant.split(",") if part)
    values = {name: literal(text) for name, text in given.items()}
    own = {name: value for name, value in values.items() if name in PARAMETERS}
    return own | {"settings": {k: v for k, v in values.items() if k not in PARAMETERS}}


def literal(text: str) -> Any:
    """Read a number, a tuple (``512+512``), or else a word."""
    if "+" in text:
        return tuple(int(part) for part in text.split("+"))
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def packs(runs: list[Run]) -> Iterator[list[Run]]:
    """Give the runs that can be trained together."""
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


def compare(name: str, variants: list[str], members: int) -> None:
    """Print one data set's table."""
    splits = [load_parts(name, seed) for seed in CHOSEN_ON]
    runs = [
        Run(variant, CGMVAEClassifier(n_members=members, random_state=s, **parse(variant)), *parts)
        for s, (*parts, _) in enumerate(splits)
        for variant in variants
    ]
    numbers: dict[str, list[list[float]]] = {}
    for pack in packs(runs):
        data = [(run.train.X, run.train.Y, (run.held.X, run.held.Y)) for run in pack]
        fit_together([run.model for run in pack], data)
        for run in pack:
            numbers.setdefault(run.variant, []).append(row(run))
    names = (*PAPER_METRICS, "mean", "lost without z", "similarity ~ co-occurrence", "epoch")
    print(f"\n### {name}\n\n| variant | " + " | ".join(names) + " |\n|---" + "|---" * 9 + "|")
    for variant in variants:
        *means, kept = np.mean(numbers[variant], axis=0)
        cells = " | ".join(f"{value:.4f}" for value in means)
        print(f"| {variant or 'defaults'} | {cells} | {kept:.0f} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--variants", nargs="*", default=[])
    parser.add_argument("--members", type=int, default=4)
    arguments = parser.parse_args()
    for name in arguments.data:
        compare(name, ["", *arguments.variants], arguments.members)


if __name__ == "__main__":
    main()
