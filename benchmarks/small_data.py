"""How to choose the threshold when there are few rows: rules compared on new rows.

    python benchmarks/small_data.py --out docs/results/small_data.json

From a data set 60, 100 or 150 rows are drawn; a tenth of them is held out, as ``fit`` does, and
each rule turns the probabilities of all other rows of the data set into labels. A rule may use the
labels and probabilities of the held-out rows, the labels of the training rows, and, for the
out-of-fold rules, the probabilities that five more models give to the fifth of the rows that each
of them has not seen. Results are kept after each draw; a second run computes only what is missing
and prints the tables again.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from measurement import (
    TINY,
    Results,
    add_out,
    make_parser,
    paired_difference,
    print_header,
    print_row,
)
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from cgmvae.data import MultiLabelDataset, load_dataset
from cgmvae.data.splits import holdout
from cgmvae.evaluation import GlobalThreshold, ThresholdRule, count, learn_rule
from cgmvae.methods import find_method, out_of_fold

DATA, SIZES = ("yeast", "scene", "sider"), (60, 100, 150)
METRICS = ("micro_f1", "macro_f1")
N_FOLDS = 5

#: Number of held-out rows at which the threshold learned on them and the one that it is shrunk
#: towards have equal weight.
EQUAL_WEIGHT_ROWS = 20


class Seen(NamedTuple):
    """What a rule may use."""

    train_labels: NDArray[Any]
    held_labels: NDArray[Any]
    held_scores: NDArray[Any]
    labels: NDArray[Any]
    """Of all rows, training and held-out."""
    scores: NDArray[Any]
    """Of all rows, each from a model that has not seen it."""


def matched(seen: Seen) -> float:
    """Return the threshold that gives held-out rows as many labels as training rows have."""
    share = seen.train_labels.mean()
    return float(np.quantile(seen.held_scores, 1 - share))


def held(seen: Seen) -> float:
    """Return the threshold that is best on the held-out rows."""
    rule = learn_rule(seen.held_labels, seen.held_scores)
    assert isinstance(rule, GlobalThreshold)
    return rule.threshold


def shrunk(seen: Seen, towards: float) -> GlobalThreshold:
    """Shrink the threshold of held-out rows towards another, the more the fewer rows there are."""
    weight = len(seen.held_labels) / (len(seen.held_labels) + EQUAL_WEIGHT_ROWS)
    return GlobalThreshold(weight * held(seen) + (1 - weight) * towards)


RULES: dict[str, Callable[[Seen], ThresholdRule]] = {
    "held rows": lambda seen: GlobalThreshold(held(seen)),
    "0.5": lambda seen: GlobalThreshold(0.5),
    "as many labels": lambda seen: GlobalThreshold(matched(seen)),
    "drawn to 0.5": lambda seen: shrunk(seen, 0.5),
    "drawn to as many": lambda seen: shrunk(seen, matched(seen)),
    "out of fold": lambda seen: learn_rule(seen.labels, seen.scores),
    "per label, held rows": lambda seen: learn_rule(
        seen.held_labels, seen.held_scores, rule="per-label"
    ),
    "per label, out of fold": lambda seen: learn_rule(seen.labels, seen.scores, rule="per-label"),
}


def fitted(
    method: str, members: int, rows: MultiLabelDataset, parts: Any, seed: int, *, quick: bool
) -> Any:
    """Return a model of the first part of the rows, with the second one for validation."""
    train, validation = (rows.rows(part) for part in parts)
    model = find_method(method).estimator(random_state=seed)
    if "n_members" in model.get_params():
        model.set_params(n_members=members, **(TINY if quick else {}))
    return model.fit(train.X, train, validation_data=(validation.X, validation))


def measure(
    method: str, members: int, name: str, size: int, seed: int, *, quick: bool
) -> dict[str, list[float]]:
    """Return the metrics of each rule on the rows that were not drawn."""
    data = load_dataset(name)
    order = np.random.default_rng(seed).permutation(data.Y.shape[0])
    rows, new = data.rows(order[:size]), data.rows(order[size:])
    parts = holdout(rows.Y, 0.1, seed=seed)
    model = fitted(method, members, rows, parts, seed, quick=quick)
    labels = dense(rows.Y)
    scores = np.empty(labels.shape)
    for fold in KFold(N_FOLDS, shuffle=True, random_state=seed).split(labels):
        other = fitted(method, members, rows, fold, seed, quick=quick)
        scores[fold[1]] = other.predict_proba(rows.rows(fold[1]).X)
    of_held = model.predict_proba(rows.rows(parts[1]).X)
    seen = Seen(labels[parts[0]], labels[parts[1]], of_held, labels, scores)
    of_new = model.predict_proba(new.X)
    counts = {rule: count(new.Y, learn(seen).apply(of_new)) for rule, learn in RULES.items()}
    return {
        rule: [round(float(found.value(metric)), 4) for metric in METRICS]
        for rule, found in counts.items()
    }


def dense(Y: Any) -> NDArray[Any]:
    """Return labels as an array, (n_samples, n_labels)."""
    return Y.toarray() if hasattr(Y, "toarray") else Y


def table(results: dict[str, Any], method: str, metric: str) -> None:
    """Print the mean of a metric per rule, and the paired difference from "held rows"."""
    position = METRICS.index(metric)
    print(f"\n### {method}, {metric}\n")
    print_header("data", "rows", "draws", *RULES)
    gaps: dict[str, list[float]] = {rule: [] for rule in RULES}
    for key in [key for key in results if key.startswith(f"{method} ")]:
        _, name, size = key.split()
        values = {r: np.array([d[r][position] for d in results[key].values()]) for r in RULES}
        means = (f"{value.mean():.3f}" for value in values.values())
        print_row(name, size, len(results[key]), *means)
        for rule, value in values.items():
            gaps[rule] += (value - values["held rows"]).tolist()
    print_row("*all*", "", "", *(paired_difference(each, 3) for each in gaps.values()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and print the tables."""
    parser = make_parser(__doc__)
    add_out(parser)
    parser.add_argument("--methods", nargs="+", default=["binary-relevance", "mlknn", "cgmvae"])
    parser.add_argument("--draws", type=int, default=20, help="of rows, per data set and size")
    parser.add_argument("--members", type=int, default=4, help="of the methods that have any")
    parser.add_argument("--tables", action="store_true", help="print the tables, run nothing")
    options = parser.parse_args(argv)
    data, sizes = DATA, SIZES
    if options.quick:
        data, sizes, options.draws, options.members = DATA[:1], SIZES[:1], 2, 1
    results = Results(options.out)
    cases = itertools.product(range(options.draws), options.methods, data, sizes)
    before = out_of_fold.FEW_ROWS
    out_of_fold.FEW_ROWS = (
        0  # what a fit does if there are few rows is one of the rules compared here
    )
    try:
        for draw, method, name, size in [] if options.tables else cases:
            work = partial(measure, method, options.members, name, size, draw, quick=options.quick)
            results.compute((f"{method} {name} {size}", str(draw)), work)
    finally:
        out_of_fold.FEW_ROWS = before
    for method in options.methods:
        for metric in METRICS:
            table(results.values, method, metric)
    return 0


if __name__ == "__main__":
    sys.exit(main())
