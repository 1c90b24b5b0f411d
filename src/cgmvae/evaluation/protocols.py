"""The three protocols for choosing thresholds; every reported number names its protocol.

``validation``
    One rule is learned on validation rows for one metric, and all metrics are those of this one
    classifier: what ``predict`` returns to a user.
``validation-per-metric``
    For each metric, the best threshold of 0.1 … 0.9 on the validation rows.
``test-oracle``
    The protocol of the paper's released code: for each metric, the best threshold of 0.1 … 0.9 on
    the *test labels*. It is optimistic for every method and is kept only for comparison with the
    paper's tables. Never the default. In macro-F1, labels without a true row count 0, as there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import PAPER_METRICS, THRESHOLDED_METRICS, Absent, Empty, count
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
    """True labels of some rows and the scores of a model, all (n_samples, n_labels)."""

    labels: Matrix
    scores: NDArray[np.floating]
    unknown: Matrix | None = None


@dataclass(frozen=True)
class Evaluation:
    """The paper's five metrics under one protocol, and the threshold rules used."""

    protocol: str
    metrics: dict[str, float]
    """By the names of ``PAPER_METRICS``, in that order."""
    rules: dict[str, ThresholdRule]
    """The threshold rule of each thresholded metric."""
    empty: Empty
    """Score of 0/0 rows in ``example_f1``."""
    absent: Absent
    """Score in ``macro_f1`` of labels without a true row."""
    n_occurring: int
    """Number of labels with a true row."""

    def values(self) -> list[float]:
        """Return the five metrics in the order of ``PAPER_METRICS``."""
        return [self.metrics[name] for name in PAPER_METRICS]


def evaluate(
    test: Scored,
    validation: Scored | None = None,
    *,
    protocol: str = "validation",
    rule: RuleName | ThresholdRule = "global",
    metric: str = "micro_f1",
    empty: Empty = 1,
    absent: Absent = "skip",
) -> Evaluation:
    """Evaluate test rows under one of the protocols.

    Parameters
    ----------
    test : Scored
        The rows to report on.
    validation : Scored, optional
        The rows to choose thresholds on; required by the two validation protocols unless a learned
        rule is given.
    protocol : {"validation", "validation-per-metric", "test-oracle"}
        See the module docstring.
    rule : {"global", "per-label", "top-k"} or ThresholdRule
        Under ``validation``, the kind of rule to learn, or a rule already learned.
    metric : str
        Under ``validation``, the metric that the rule maximizes.
    empty : {"skip", 0, 1}
        Score of 0/0 rows in ``example_f1``; "skip" is the paper's protocol.
    absent : {"skip", 0}
        Score in ``macro_f1`` of labels without a true row; 0 is the paper's protocol, and always
        that of ``test-oracle``.

    Examples
    --------
    >>> rows = Scored(np.array([[1, 0], [1, 1]]), np.array([[0.8, 0.3], [0.9, 0.6]]))
    >>> evaluate(rows, rows).values()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    if protocol not in PROTOCOLS:
        raise InputError(
            f"There is no protocol {protocol!r}; choose one of {', '.join(PROTOCOLS)}."
        )
    # Deviation D3: the released code always uses the test rows.
    rows = test if protocol == "test-oracle" else validation
    absent = 0 if protocol == "test-oracle" else absent

    def learn(kind: RuleName, metric: str, thresholds: NDArray[np.float64]) -> ThresholdRule:
        if rows is None:
            raise InputError(f"The protocol {protocol!r} needs validation rows; pass them.")
        given: Any = {"thresholds": thresholds, "unknown": rows.unknown, "empty": empty}
        return learn_rule(rows.labels, rows.scores, rule=kind, metric=metric, **given)

    if protocol == "validation":
        learned = learn(rule, metric, FINE_THRESHOLDS) if isinstance(rule, str) else rule
        rules = dict.fromkeys(THRESHOLDED_METRICS, learned)
    else:
        rules = {name: learn("global", name, NINE_THRESHOLDS) for name in THRESHOLDED_METRICS}
    metrics = {}
    for name, chosen in rules.items():
        counts = count(test.labels, chosen.apply(test.scores), test.unknown)
        metrics[name] = float(counts.value(name, empty, absent))
    metrics["precision_at_1"] = precision_at_k(test.labels, test.scores, 1, unknown=test.unknown)
    return Evaluation(protocol, metrics, rules, empty, absent, int(counts.n_occurring()))
