"""The model compared with plain baselines that are fitted on its own training rows.

The label prior gives every row the frequencies of the labels; logistic regression and the random
forest learn from the features. Baselines that would take minutes are skipped, and the report says
so. Differences are tested with a paired bootstrap of the test rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data import MultiLabelDataset
from cgmvae.evaluation import (
    PAPER_METRICS,
    Interval,
    bootstrap_interval,
    paired_difference,
)
from cgmvae.evaluation.metrics import as_bool
from cgmvae.evaluation.thresholds import ThresholdRule

Choice = Literal["auto", "all", "none"]
CHOICES = ("auto", "all", "none")

#: Maximum size, rows · nonzero features · labels, for logistic regression: half a minute.
LOGISTIC_LIMIT = 3e8

#: Maximum size, rows · labels, for the random forest: a minute on one core.
FOREST_LIMIT = 1e6

N_TREES = 100

Scores = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Measured:
    """A method on the test rows: its scores, its predictions, and the five metrics."""

    title: str
    scores: Scores
    predicted: NDArray[np.uint8]
    metrics: Mapping[str, Interval]


@dataclass(frozen=True)
class Verdict:
    """How a metric of the model compares with the best baseline's."""

    metric: str
    rival: str
    difference: Interval
    """Of the model minus the rival, on the same bootstrap samples."""

    @property
    def sign(self) -> int:
        """1 if the model is significantly better, −1 if it is worse, 0 otherwise.

        Examples
        --------
        >>> Verdict("micro_f1", "random forest", Interval(0.02, -0.01, 0.05)).sign
        0
        """
        return int(self.difference.low > 0) - int(self.difference.high < 0)


def fit_baselines(
    train: MultiLabelDataset, parts: Sequence[MultiLabelDataset], *, choice: Choice = "auto"
) -> tuple[dict[str, tuple[Scores, ...]], dict[str, str]]:
    """Fit the baselines and score rows with them.

    The first of the parts to score are the validation rows. The choice ``auto`` skips what would
    take minutes, ``none`` skips all but the label prior.

    Returns
    -------
    scores : dict of str to tuple of arrays (n_rows, n_labels)
        Probabilities for each of the parts, by the title of the baseline.
    skipped : dict of str to str
        Why each of the other baselines was skipped.
    """
    scores = {"label prior": _prior_scores(train, parts)}
    skipped = {}
    n_values = train.X.nnz if sp.issparse(train.X) else train.X.size
    for title, fit, size, limit in (
        ("logistic regression", _logistic_scores, n_values * train.n_labels, LOGISTIC_LIMIT),
        ("random forest", _forest_scores, train.n_samples * train.n_labels, FOREST_LIMIT),
    ):
        if choice == "none":
            skipped[title] = "not requested"
        elif fit is _forest_scores and train.unknown is not None:
            skipped[title] = "it needs rows whose labels are all known"
        elif choice == "auto" and size > limit:
            skipped[title] = "it would take minutes on data of this size"
        else:
            scores[title] = fit(train, parts)
    return scores, skipped


def _prior_scores(
    train: MultiLabelDataset, parts: Sequence[MultiLabelDataset]
) -> tuple[Scores, ...]:
    positive = np.asarray(train.Y.sum(axis=0, dtype=np.float64)).ravel()
    known = np.full(train.n_labels, float(train.n_samples))
    if train.unknown is not None:
        known -= np.asarray(train.unknown.sum(axis=0)).ravel()
    return tuple(np.tile(positive / known.clip(1), (part.n_samples, 1)) for part in parts)


def _logistic_scores(
    train: MultiLabelDataset, parts: Sequence[MultiLabelDataset]
) -> tuple[Scores, ...]:
    from cgmvae.methods import BinaryRelevance
    from cgmvae.methods.few_rows import FewRowsWarning

    model = BinaryRelevance(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRowsWarning)  # the page has its own warning
        model.fit(train.X, train, validation_data=(parts[0].X, parts[0]))
    return tuple(model.predict_proba(part.X) for part in parts)


def _forest_scores(
    train: MultiLabelDataset, parts: Sequence[MultiLabelDataset]
) -> tuple[Scores, ...]:
    """Return probabilities of a random forest; a constant label keeps its frequency."""
    from sklearn.ensemble import RandomForestClassifier

    labels = as_bool(train.Y)
    varying = np.flatnonzero(labels.any(0) & ~labels.all(0))
    if len(varying) == 0:
        return _prior_scores(train, parts)
    targets = labels[:, varying] if len(varying) > 1 else labels[:, varying[0]]
    forest = RandomForestClassifier(N_TREES, random_state=0).fit(train.X, targets)
    found = []
    for part in parts:
        scores = np.tile(labels.mean(axis=0), (part.n_samples, 1))
        predicted = forest.predict_proba(part.X)
        per_label = predicted if len(varying) > 1 else [predicted]
        scores[:, varying] = np.column_stack([column[:, 1] for column in per_label])
        found.append(scores)
    return tuple(found)


def measure(title: str, scores: Scores, rule: ThresholdRule, test: MultiLabelDataset) -> Measured:
    """Return the five metrics on the test rows under a learned rule, with 95% intervals."""
    predicted = rule.apply(scores)
    outputs = dict.fromkeys(PAPER_METRICS, predicted) | {"precision_at_1": scores}
    metrics = {
        name: bootstrap_interval(
            name, test.Y, outputs[name], unknown=test.unknown, groups=test.groups
        )
        for name in PAPER_METRICS
    }
    return Measured(title, scores, predicted, metrics)


def compare(model: Measured, others: Sequence[Measured], test: MultiLabelDataset) -> list[Verdict]:
    """Compare the model with the best of the others, metric by metric."""
    verdicts = []
    for name in PAPER_METRICS if others else ():
        best = max(others, key=lambda other: other.metrics[name].value)
        first, second = (
            each.scores if name == "precision_at_1" else each.predicted for each in (model, best)
        )
        difference = paired_difference(
            name, test.Y, first, second, unknown=test.unknown, groups=test.groups
        )
        verdicts.append(Verdict(name, best.title, difference))
    return verdicts
