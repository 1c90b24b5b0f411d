"""The three ways of choosing thresholds, so that every number says where it comes from.

``validation``
    One rule is learnt on validation rows for one named metric, and all metrics are those of that
    one classifier: what ``predict`` gives a user.
``validation-per-metric``
    For each metric the threshold of 0.1 … 0.9 that is best for it on the validation rows.
``test-oracle``
    What the released code of the paper does: for each metric the threshold of 0.1 … 0.9 that is
    best on the *test labels*. It flatters every method and is kept only to compare with the
    paper's tables. Never the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import PAPER_METRICS, THRESHOLDED_METRICS, Empty, count
from cgmvae.evaluation.ranking import precision_at_k
from cgmvae.evaluation.thresholds import (
    FINE_THRESHOLDS,
    NINE_THRESHOLDS,
    RuleName,
    ThresholdRule,
    learn_rule,
)

PROTOCOLS = ("validation", "validation-per-metric", "test-oracle")


class Scored(NamedTuple):
    """Labels of some rows and the scores that a model gave them, all (n_samples, n_labels)."""

    labels: Matrix
    scores: NDArray[np.floating]
    unknown: Matrix | None = None


@dataclass(frozen=True)
class Evaluation:
    """The paper's five metrics under one protocol, and the rules that they were taken with."""

    protocol: str
    metrics: dict[str, float]
    """By the names of ``PAPER_METRICS``, in that order."""
    rules: dict[str, ThresholdRule]
    """The rule that each thresholded metric was taken with."""
    empty: Empty
    """What 0/0 rows score in ``example_f1``."""

    def values(self) -> list[float]:
        """Return the five numbers in the order of ``PAPER_METRICS``."""
        return [self.metrics[name] for name in PAPER_METRICS]


def evaluate(
    test: Scored,
    validation: Scored | None = None,
    *,
    protocol: str = "validation",
    rule: RuleName | ThresholdRule = "global",
    metric: str = "micro_f1",
    empty: Empty = "skip",
) -> Evaluation:
    """Score test rows under one of the protocols.

    Parameters
    ----------
    test : Scored
        The rows to report on.
    validation : Scored, optional
        The rows to choose thresholds on; the two validation protocols need it unless a learnt
        rule is given.
    protocol : {"validation", "validation-per-metric", "test-oracle"}
        See the module's text.
    rule : {"global", "per-label", "top-k"} or ThresholdRule
        Under ``validation``, the kind of rule to learn, or one that was learnt already.
    metric : str
        Under ``validation``, the metric that the rule is learnt for.
    empty : {"skip", 0, 1}
        What 0/0 rows score in ``example_f1``; ``skip`` is the paper's protocol.

    Examples
    --------
    >>> rows = Scored(np.array([[1, 0], [1, 1]]), np.array([[0.8, 0.3], [0.9, 0.6]]))
    >>> evaluate(rows, rows).values()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    if protocol == "validation":
        learnt = rule
        if isinstance(rule, str):
            learnt = _learn(_needed(validation, protocol), rule, metric, FINE_THRESHOLDS, empty)
        rules: dict[str, Any] = dict.fromkeys(THRESHOLDED_METRICS, learnt)
    elif protocol in PROTOCOLS:
        # Deviation D3: the released code has no other choice than the test rows.
        rows = test if protocol == "test-oracle" else _needed(validation, protocol)
        rules = {
            name: _learn(rows, "global", name, NINE_THRESHOLDS, empty)
            for name in THRESHOLDED_METRICS
        }
    else:
        raise InputError(
            f"There is no protocol {protocol!r}; choose one of {', '.join(PROTOCOLS)}."
        )
    metrics = {name: _value(test, rules[name], name, empty) for name in THRESHOLDED_METRICS}
    metrics["precision_at_1"] = precision_at_k(test.labels, test.scores, 1, unknown=test.unknown)
    return Evaluation(protocol, metrics, rules, empty)


def _needed(validation: Scored | None, protocol: str) -> Scored:
    if validation is None:
        raise InputError(f"The protocol {protocol!r} needs validation rows; give them.")
    return validation


def _learn(
    rows: Scored, rule: RuleName, metric: str, grid: NDArray[np.float64], empty: Empty
) -> ThresholdRule:
    return learn_rule(
        rows.labels,
        rows.scores,
        rule=rule,
        metric=metric,
        thresholds=grid,
        unknown=rows.unknown,
        empty=empty,
    )


def _value(rows: Scored, rule: ThresholdRule, metric: str, empty: Empty) -> float:
    predicted = rule.apply(rows.scores)
    return float(count(rows.labels, predicted, rows.unknown).value(metric, empty))
