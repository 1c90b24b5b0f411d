"""The warnings of a report: what a user of the model should know first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cgmvae.data import MultiLabelDataset
from cgmvae.errors import listed
from cgmvae.evaluation import count, sweep
from cgmvae.evaluation.thresholds import FINE_THRESHOLDS, GlobalThreshold
from cgmvae.report.comparison import Measured, Verdict
from cgmvae.report.figures.style import title_of
from cgmvae.report.rows import ReportRows

#: With fewer test rows, every metric is uncertain by several hundredths.
FEW_ROWS = 200

#: A threshold drifts if the best one on the test rows differs by this much, and is better by this
#: much of the metric.
DRIFT = 0.1
DRIFT_GAIN = 0.01

#: The latent space hardly matters if another row's z costs less micro-F1 than this.
LATENT_GAIN = 0.01


@dataclass(frozen=True)
class Finding:
    """A warning: what was found, and what it means."""

    weight: Literal["serious", "note"]
    title: str
    text: str


def find(
    model: Any, rows: ReportRows, measured: Measured, verdicts: Sequence[Verdict]
) -> list[Finding]:
    """Return the warnings that apply, the serious ones first."""
    found = [
        *_about_rows(rows),
        *_about_labels(rows, measured),
        *_about_threshold(model, rows.test, measured),
        *_about_latent_space(model, rows.test),
        *_about_rivals(model.threshold_metric, verdicts),
    ]
    return sorted(found, key=lambda finding: finding.weight != "serious")


def _about_rows(rows: ReportRows) -> Iterator[Finding]:
    if rows.standing == "trained":
        yield Finding(
            "serious",
            "The model was trained on these rows",
            "It was fitted on all rows, so that none are left for a test. The metrics show how "
            "well it fits the training data, not how well it predicts new rows.",
        )
    if rows.standing == "unknown":
        yield Finding(
            "serious",
            "The model may have been trained on these rows",
            "The training rows are not known. If they are among these, the metrics show how well "
            "it fits the training data, not how well it predicts new rows.",
        )
    if (n := rows.test.n_samples) < FEW_ROWS:
        yield Finding(
            "note",
            f"Only {n:,} test {'row' if n == 1 else 'rows'}",
            "Small differences between metrics mean nothing here; look at the intervals.",
        )
    train_groups = None if rows.train is None else rows.train.groups
    test_groups = rows.test.groups
    if train_groups is None or test_groups is None:
        return
    if shared := len(np.intersect1d(train_groups, test_groups)):
        yield Finding(
            "serious",
            f"{shared:,} groups have rows in training and in test",
            "Rows of one group are similar, so the model has seen much of what it is tested on. "
            "Fit it again with a split by group.",
        )


def _about_labels(rows: ReportRows, measured: Measured) -> Iterator[Finding]:
    test = rows.test
    counts = count(test.Y, measured.predicted, test.unknown)
    never = np.flatnonzero((counts.label_predicted == 0) & (counts.label_true > 0))
    absent = np.flatnonzero(counts.label_true == 0)
    if len(never):
        missed = int(counts.label_true[never].sum())
        yield Finding(
            "note",
            f"{_labels(len(never), test)} never predicted, although the test rows have "
            f"{'them' if len(never) > 1 else 'it'}",
            f"{_named(test, never)}. All of their {missed:,} occurrences (of "
            f"{int(counts.label_true.sum()):,} true labels) are missed; a lower threshold for "
            "them may help.",
        )
    if len(absent):
        yield Finding(
            "note",
            f"{_labels(len(absent), test)} without a test row",
            f"{_named(test, absent)}. They cannot be evaluated here; macro-F1 counts each as 0.",
        )
    if rows.train is not None:
        untrained = np.flatnonzero(np.asarray(rows.train.Y.sum(axis=0)).ravel() == 0)
        if len(untrained):
            yield Finding(
                "note",
                f"{_labels(len(untrained), test)} without a training row",
                f"{_named(test, untrained)}. The model cannot have learned them.",
            )


def _labels(n: int, test: MultiLabelDataset) -> str:
    return f"{n:,} of {test.n_labels:,} labels {'is' if n == 1 else 'are'}"


def _named(test: MultiLabelDataset, labels: Any) -> str:
    return listed([test.label_names[label] for label in labels])


def _about_threshold(model: Any, test: MultiLabelDataset, measured: Measured) -> Iterator[Finding]:
    """Compare the threshold from the validation rows with the best one on the test rows."""
    rule, metric = model.threshold_rule_, model.threshold_metric
    if not isinstance(rule, GlobalThreshold):
        return
    values = sweep(test.Y, measured.scores, FINE_THRESHOLDS, unknown=test.unknown).value(metric)
    best = int(np.argmax(values))
    own = float(count(test.Y, measured.predicted, test.unknown).value(metric))
    gain = float(values[best]) - own
    if abs(FINE_THRESHOLDS[best] - rule.threshold) >= DRIFT and gain >= DRIFT_GAIN:
        yield Finding(
            "note",
            "The threshold drifts",
            f"The validation rows chose {rule.threshold:.2f}; on the test rows, "
            f"{FINE_THRESHOLDS[best]:.2f} would have been better by {gain:.3f} "
            f"{title_of(metric)}. The two sets differ, or there are too few validation rows.",
        )


def _about_latent_space(model: Any, test: MultiLabelDataset) -> Iterator[Finding]:
    if not hasattr(model, "diagnostics") or test.n_samples == 1:  # z cannot be shuffled
        return
    numbers = model.diagnostics(test.X, test)
    lost = numbers["micro_f1"] - numbers["micro_f1_shuffled_z"]
    if numbers["active_units"] < 1 or lost < LATENT_GAIN:
        yield Finding(
            "note",
            "The latent space hardly matters",
            f"{numbers['active_units']:.1f} latent units are active, and replacing z by that of "
            f"another row costs only {lost:.3f} micro-F1: the posterior has collapsed; the model "
            "predicts from the features alone.",
        )


def _about_rivals(metric: str, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    beaten = [verdict for verdict in verdicts if verdict.sign < 0]
    if beaten:
        where = ", ".join(title_of(verdict.metric) for verdict in beaten)
        who = ", ".join(dict.fromkeys(verdict.rival for verdict in beaten))
        yield Finding(
            "serious" if metric in {verdict.metric for verdict in beaten} else "note",
            f"A simpler method is better in {where}",
            f"The difference is significant: {who}. Train longer, choose thresholds for that "
            "metric, or use the simpler method.",
        )
