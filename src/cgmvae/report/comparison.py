"""The five numbers of a model and of its baselines, with intervals, and who is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data import MultiLabelDataset
from cgmvae.evaluation import (
    PAPER_METRICS,
    Interval,
    Scored,
    bootstrap_interval,
    count,
    evaluate,
    learn_rule,
    paired_difference,
)
from cgmvae.evaluation.thresholds import ThresholdRule
from cgmvae.report.baselines import Baseline


@dataclass(frozen=True, eq=False)
class Measured:
    """One method on the test rows: scores, the labels that its rule gives, and the five numbers."""

    title: str
    scores: NDArray[np.floating]
    predicted: NDArray[np.uint8]
    metrics: Mapping[str, Interval]


@dataclass(frozen=True)
class Verdict:
    """How the model's metric compares with the best baseline's."""

    metric: str
    rival: str
    difference: Interval
    """Of the model less the rival, on the same drawn rows."""

    @property
    def sign(self) -> int:
        """1 where the model is better beyond chance, −1 where worse, 0 where the rows cannot tell.

        Examples
        --------
        >>> Verdict("micro_f1", "random forest", Interval(0.02, -0.01, 0.05)).sign
        0
        """
        return int(self.difference.low > 0) - int(self.difference.high < 0)


def measure(
    title: str, scores: NDArray[np.floating], rule: ThresholdRule, test: MultiLabelDataset
) -> Measured:
    """Return the five metrics on the test rows under a learnt rule, with 95% intervals."""
    predicted = rule.apply(scores)
    outputs = dict.fromkeys(PAPER_METRICS, predicted) | {"precision_at_1": scores}
    metrics = {
        name: bootstrap_interval(name, test.Y, outputs[name], **_drawn_by(test))
        for name in PAPER_METRICS
    }
    return Measured(title, scores, predicted, metrics)


def measure_baselines(
    baselines: Sequence[Baseline],
    validation: MultiLabelDataset,
    test: MultiLabelDataset,
    *,
    rule: Any,
    metric: str,
) -> list[Measured]:
    """Measure those that were fitted, each with a rule of its own from the validation rows."""
    found = []
    for baseline in baselines:
        if not baseline.left_out:
            held, scores = baseline.scores
            learnt = learn_rule(
                validation.Y, held, rule=rule, metric=metric, unknown=validation.unknown
            )
            found.append(measure(baseline.title, scores, learnt, test))
    return found


def compare(model: Measured, others: Sequence[Measured], test: MultiLabelDataset) -> list[Verdict]:
    """Compare the model with the best of the others, metric by metric."""
    verdicts = []
    for name in PAPER_METRICS if others else ():
        best = max(others, key=lambda other: other.metrics[name].value)
        first, second = (
            each.scores if name == "precision_at_1" else each.predicted for each in (model, best)
        )
        difference = paired_difference(name, test.Y, first, second, **_drawn_by(test))
        verdicts.append(Verdict(name, best.title, difference))
    return verdicts


def flattered(model: Measured, test: MultiLabelDataset) -> dict[str, float]:
    """Return the five metrics with thresholds chosen on the test labels, as the paper does."""
    return evaluate(Scored(test.Y, model.scores, test.unknown), protocol="test-oracle").metrics


def precision_and_recall(model: Measured, test: MultiLabelDataset) -> tuple[float, float]:
    """Return how many of the predicted labels are true, and how many of the true are predicted."""
    counts = count(test.Y, model.predicted, test.unknown)
    both = counts.label_both.sum()
    return (
        float(both / max(counts.label_predicted.sum(), 1)),
        float(both / max(counts.label_true.sum(), 1)),
    )


def _drawn_by(test: MultiLabelDataset) -> dict[str, Any]:
    return {"unknown": test.unknown, "groups": test.groups}
