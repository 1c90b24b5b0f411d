"""What carries the accuracy: the default network taken apart, and the blend put together.

    python benchmarks/ablation.py [--data flags yeast] [--splits 0 1] [--out FILE.json]

On each split one fit gives the network without KL and contrastive term, with them, and calibrated.
Its probabilities are then blended with those of each other expert and with all of them, and the
others are blended without it. Every arm gets the same 90% of the rows, learns its threshold on
out-of-fold rows and is scored on the rest, as in ``benchmarks/generalize.py``. What a step adds is
paired over splits. Results are kept after each split; a second run computes only what is missing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from generalize import QUICK, Effort, Scores, load_split
from measurement import (
    Results,
    add_out,
    make_parser,
    paired_difference,
    print_header,
    print_row,
)
from numpy.typing import NDArray

from cgmvae.data import MultiLabelDataset
from cgmvae.evaluation import PAPER_METRICS, Scored, learn_calibration, learn_rule
from cgmvae.methods import CGMVAEClassifier, fit_together
from cgmvae.methods.blend import default_experts
from cgmvae.methods.cgmvae import TEMPERATURE_SHARE
from cgmvae.methods.combination import weigh_experts
from cgmvae.methods.inputs import Rows
from cgmvae.model.plan import stored_by_values
from cgmvae.preparation.scaling import FeatureScaler
from cgmvae.studies.runner import describe_environment

DATA = (
    "flags",
    "foodtruck",
    "disdat_AWTb",
    "emotions",
    "disdat_NSWrt",
    "disdat_NSWot",
    "yeast",
    "scene",
    "sider",
    "enron",
    "tox21",
    "slashdot",
)
SPLITS = (0, 1, 2)

#: How thresholds are chosen: one for all metrics, and one for each.
PROTOCOLS = ("validation", "validation-per-metric")

PLAIN, TERMS, NETWORK = "network, cross-entropy alone", "network, both terms", "calibrated network"
BLEND, REST = "blend", "blend without the network"

#: Trees of the forest with ``--quick``.
QUICK_TREES = 10


def added(expert: str) -> str:
    """Return the arm in which an expert is added to the calibrated network."""
    return f"network and {expert}"


#: What is added at each step, and the arms before and after it.
STEPS: dict[str, tuple[str, str]] = {
    "KL and contrastive term": (PLAIN, TERMS),
    "calibration": (TERMS, NETWORK),
    "trees": (NETWORK, added("trees")),
    "votes": (NETWORK, added("votes")),
    "linear": (NETWORK, added("linear")),
    "all other experts": (NETWORK, BLEND),
    "the network, to the others": (REST, BLEND),
}


class Probabilities(NamedTuple):
    """Probabilities of an expert."""

    unseen: NDArray[np.floating]
    """Of training rows, by models that did not learn from them, (n_rows, n_labels)."""
    test: NDArray[np.floating]


def ordered(model: Any, scores: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return out-of-fold scores in the order of the training rows."""
    return scores[np.argsort(model.oof_rows_)]


def network_arms(train: Any, test: Any, seed: int, effort: Effort) -> dict[str, Probabilities]:
    """Return the probabilities of the network without both terms, with them, and calibrated."""
    same = {"scaling": "none", "calibrate": False, "conditional": False, "random_state": seed}
    plain = CGMVAEClassifier(kl_weight=0.0, contrastive_weight=0.0, **same, **effort.settings)
    terms = CGMVAEClassifier(**same, **effort.settings)
    fit_together([plain, terms], [(train.X, train, None)] * 2)
    found = {
        arm: Probabilities(ordered(model, model.oof_proba_), model.predict_proba(test.X))
        for arm, model in ((PLAIN, plain), (TERMS, terms))
    }
    own = train.rows(terms.oof_rows_)
    calibration, scores = learn_calibration(
        own.Y, terms.oof_proba_, terms.oof_folds_, unknown=own.unknown, share=TEMPERATURE_SHARE
    )
    if calibration is not None:
        terms.network_.calibrate(calibration.temperature, torch.as_tensor(calibration.shifts))
    found[NETWORK] = Probabilities(ordered(terms, scores), terms.predict_proba(test.X))
    return found


def expert_arms(
    train: Any, test: Any, seed: int, network: Probabilities, effort: Effort
) -> dict[str, Probabilities]:
    """Return the blends of the calibrated network with other experts, and of these alone."""
    rows = Rows(train.X, train.Y, train.unknown, groups=train.groups)
    experts = {"network": network}
    for name, model in default_experts(rows, CGMVAEClassifier()):
        if name == "cgmvae":
            continue
        if name == "trees" and effort.settings:
            model.set_params(n_trees=QUICK_TREES)
        model.set_params(random_state=seed).fit(train.X, train)
        experts[name] = Probabilities(ordered(model, model.oof_proba_), model.predict_proba(test.X))

    def blended(*names: str) -> Probabilities:
        unseen = {name: experts[name].unseen for name in names}
        weighed = weigh_experts(rows, unseen, keep={"network"}, seed=seed)
        of_test = [experts[name].test for name in weighed.names]
        return Probabilities(weighed.scores, weighed.combination.apply(of_test))

    others = [name for name in experts if name != "network"]
    found = {added(name): blended("network", name) for name in others}
    return found | {BLEND: blended(*experts), REST: blended(*others)}


def scaled(train: MultiLabelDataset, test: MultiLabelDataset) -> list[Any]:
    """Return both with the features that a blend gives its experts."""
    wide = stored_by_values(train.X) if isinstance(train.X, np.ndarray) else train.X
    scaler = FeatureScaler("auto").fit(wide)
    found = []
    for rows in (train, test):
        own = type(wide)(rows.X) if not isinstance(wide, np.ndarray) else rows.X
        features = scaler.transform(own)
        found.append(MultiLabelDataset(features, rows.Y, unknown=rows.unknown, groups=rows.groups))
    return found


def run_split(name: str, seed: int, effort: Effort) -> dict[str, Any]:
    """Return metrics by protocol of every arm on one split, and the seconds of all."""
    start = time.perf_counter()
    train, test = scaled(*load_split(name, seed, effort.n_rows))
    arms = network_arms(train, test, seed, effort)
    arms |= expert_arms(train, test, seed, arms[NETWORK], effort)
    found: dict[str, Any] = {}
    for arm, own in arms.items():
        rule = learn_rule(train.Y, own.unseen, unknown=train.unknown)
        unseen = Scored(train.Y, own.unseen, train.unknown)
        metrics = Scores(unseen, Scored(test.Y, own.test, test.unknown), rule).metrics()
        found[arm] = {
            protocol: [round(float(value), 5) for value in values]
            for protocol, values in metrics.items()
            if protocol in PROTOCOLS
        }
    return {"arms": found, "seconds": round(time.perf_counter() - start, 1)}


def gaps(
    results: Mapping[str, Any], name: str, step: str, protocol: str = "validation"
) -> NDArray[np.float64]:
    """Return what a step adds to each metric on each split, (n_splits, 5); empty if it was not run.

    An expert that a data set does not have adds nothing that could be counted.
    """
    before, after = STEPS[step]
    found = [
        np.subtract(own["arms"][after][protocol], own["arms"][before][protocol])
        for own in results[name].values()
        if after in own["arms"]
    ]
    return np.array(found).reshape(-1, len(PAPER_METRICS))


def print_tables(results: Mapping[str, Any], protocol: str) -> None:
    """Print what each step adds to the mean of the five metrics, by data set and in the mean."""
    print(f"\n### {protocol}: what each step adds to the mean of the five metrics\n")
    print_header("data", "splits", *STEPS)
    means: dict[str, list[float]] = {step: [] for step in STEPS}
    for name, own in results.items():
        cells = []
        for step, found in means.items():
            values = gaps(results, name, step, protocol)
            cells.append(paired_difference(values.mean(axis=1), 3) if len(values) else "–")
            found += [float(values.mean())] if len(values) else []
        print_row(name, len(own), *cells)
    texts = [paired_difference(own, 3, shared=0) if own else "–" for own in means.values()]
    print_row("*mean over data sets*", "", *texts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and print the tables."""
    parser = make_parser(__doc__)
    add_out(parser)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--splits", nargs="+", type=int, default=list(SPLITS))
    options = parser.parse_args(argv)
    effort = Effort()
    if options.quick:
        options.data, options.splits, effort = ["yeast"], [0, 1], QUICK
    results = Results(options.out)
    if ("made",) not in results:
        results.add(("made",), describe_environment("cpu"))
    for name in options.data:
        for seed in options.splits:
            results.compute(
                ("results", name, str(seed)), lambda n=name, s=seed: run_split(n, s, effort)
            )
    for protocol in PROTOCOLS:
        print_tables(results.values["results"], protocol)
    return 0


if __name__ == "__main__":
    sys.exit(main())
