"""How the threshold should be chosen where there are few rows: rules compared on new rows.

    python benchmarks/small_data.py --out docs/results/small_data.json

Rows are drawn from a data set, 60, 100 or 150 of them; a tenth is held out, as ``fit`` does it, and
each rule turns the probabilities of all other rows of the data set into labels. What a rule may
look at: labels and probabilities of the held rows; the labels of the training rows; and, for the
rules out of fold, the probabilities that five more models give to the fifth of the rows that each
of them did not see. Results are kept after each draw; a second call computes only what is missing,
and prints the tables again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.model_selection import KFold

from cgmvae.data import MultiLabelDataset, load_dataset
from cgmvae.data.files import atomic_path
from cgmvae.data.splits import holdout
from cgmvae.evaluation import GlobalThreshold, ThresholdRule, count, learn_rule
from cgmvae.methods import few_rows, find_method

DATA, SIZES = ("yeast", "scene", "sider"), (60, 100, 150)
METRICS = ("micro_f1", "macro_f1")
N_FOLDS = 5

#: Held rows at which a threshold learnt on them weighs as much as the one it is drawn towards.
DRAWN_AT = 20


class Seen(NamedTuple):
    """What a rule may look at."""

    train_labels: NDArray[Any]
    held_labels: NDArray[Any]
    held_scores: NDArray[Any]
    labels: NDArray[Any]
    """Of all rows, training and held."""
    scores: NDArray[Any]
    """Of all rows, each from a model that did not see it."""


def matched(seen: Seen) -> float:
    """Return the threshold that gives held rows as many labels as training rows have."""
    share = seen.train_labels.mean()
    return float(np.quantile(seen.held_scores, 1 - share))


def held(seen: Seen) -> float:
    """Return the threshold that is best on held rows."""
    rule = learn_rule(seen.held_labels, seen.held_scores)
    assert isinstance(rule, GlobalThreshold)
    return rule.threshold


def drawn(seen: Seen, towards: float) -> GlobalThreshold:
    """Draw the threshold of held rows towards another one, the more the fewer rows there are."""
    weight = len(seen.held_labels) / (len(seen.held_labels) + DRAWN_AT)
    return GlobalThreshold(weight * held(seen) + (1 - weight) * towards)


RULES: dict[str, Callable[[Seen], ThresholdRule]] = {
    "held rows": lambda seen: GlobalThreshold(held(seen)),
    "0.5": lambda seen: GlobalThreshold(0.5),
    "as many labels": lambda seen: GlobalThreshold(matched(seen)),
    "drawn to 0.5": lambda seen: drawn(seen, 0.5),
    "drawn to as many": lambda seen: drawn(seen, matched(seen)),
    "out of fold": lambda seen: learn_rule(seen.labels, seen.scores),
    "per label, held rows": lambda seen: learn_rule(
        seen.held_labels, seen.held_scores, rule="per-label"
    ),
    "per label, out of fold": lambda seen: learn_rule(seen.labels, seen.scores, rule="per-label"),
}


def fitted(method: str, members: int, rows: MultiLabelDataset, parts: Any, seed: int) -> Any:
    """Return a model of the first part of the rows, with the second one for validation."""
    train, validation = (rows.rows(part) for part in parts)
    model = find_method(method).estimator(random_state=seed)
    if "n_members" in model.get_params():
        model.set_params(n_members=members)
    return model.fit(train.X, train, validation_data=(validation.X, validation))


def measure(method: str, members: int, name: str, size: int, seed: int) -> dict[str, list[float]]:
    """Return the metrics of each rule on the rows that were not drawn."""
    data = load_dataset(name)
    order = np.random.default_rng(seed).permutation(data.Y.shape[0])
    rows, new = data.rows(order[:size]), data.rows(order[size:])
    parts = holdout(rows.Y, 0.1, seed=seed)
    model = fitted(method, members, rows, parts, seed)
    labels = dense(rows.Y)
    scores = np.empty(labels.shape)
    for fold in KFold(N_FOLDS, shuffle=True, random_state=seed).split(labels):
        scores[fold[1]] = fitted(method, members, rows, fold, seed).predict_proba(
            rows.rows(fold[1]).X
        )
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
    """Print the mean of a metric, and for each rule its paired difference from held rows."""
    place = METRICS.index(metric)
    print(f"\n### {method}, {metric}\n")
    print(
        "| data | rows | draws | " + " | ".join(RULES) + " |\n|---|---|---|" + "---|" * len(RULES)
    )
    gaps: dict[str, list[float]] = {rule: [] for rule in RULES}
    for key in [key for key in results if key.startswith(f"{method} ")]:
        _, name, size = key.split()
        values = {r: np.array([d[r][place] for d in results[key].values()]) for r in RULES}
        cells = " | ".join(f"{value.mean():.3f}" for value in values.values())
        print(f"| {name} | {size} | {len(results[key])} | {cells} |")
        for rule, value in values.items():
            gaps[rule] += (value - values["held rows"]).tolist()
    cells = " | ".join(difference(values) for values in gaps.values())
    print(f"| *all* | | | {cells} |")


def difference(gaps: list[float]) -> str:
    """Write a mean of paired differences with its 95% interval."""
    half = stats.sem(gaps) * stats.t.ppf(0.975, len(gaps) - 1) if any(gaps) else 0.0
    return f"{np.mean(gaps):+.3f} ± {half:.3f}"


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results, kept and continued")
    parser.add_argument("--methods", nargs="+", default=["binary-relevance", "mlknn", "cgmvae"])
    parser.add_argument("--draws", type=int, default=20, help="of rows, for each data set and size")
    parser.add_argument("--members", type=int, default=4, help="of the methods that have any")
    parser.add_argument("--tables", action="store_true", help="print the tables, run nothing")
    arguments = parser.parse_args()
    few_rows.FEW_ROWS = 0  # what a fit does where rows are few is one of the rules, made here
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    cases = [(d, m, n, s) for d in range(arguments.draws) for m in arguments.methods
             for n in DATA for s in SIZES]  # fmt: skip
    for draw, method, name, size in [] if arguments.tables else cases:
        done = results.setdefault(f"{method} {name} {size}", {})
        if str(draw) not in done:
            done[str(draw)] = measure(method, arguments.members, name, size, draw)
            with atomic_path(arguments.out) as temporary:
                temporary.write_text(json.dumps(results))
    for method in arguments.methods:
        for metric in METRICS:
            table(results, method, metric)


if __name__ == "__main__":
    main()
