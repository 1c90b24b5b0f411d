"""Which labels are weak, and which rows are wrong: metrics per label, and a list of errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cgmvae.data.columns import Columns
from cgmvae.data.dataset import Features, MultiLabelDataset
from cgmvae.evaluation.intervals import gains_over_always, label_skills
from cgmvae.evaluation.metrics import as_bool, count, known_cells, label_table
from cgmvae.evaluation.protocols import Scored
from cgmvae.evaluation.ranking import rank
from cgmvae.evaluation.thresholds import GlobalThreshold, LabelThresholds, ThresholdRule

#: Probabilities are kept this far from 0 and 1 in a row's cross-entropy.
_TINY = 1e-12

#: Characters of a text, and number of values, that :func:`row_text` shows.
_TEXT_LENGTH, _N_VALUES = 80, 3


#: Labels that a sentence names.
_MAX_NAMED = 6

#: A label with at least this skill, above 0 with its whole interval, is predicted well.
GOOD_SKILL = 0.2


#: With fewer rows that have a label, or fewer that do not, what is measured of it is mostly
#: chance: a share of 20 rows has a standard error of up to 0.11.
MIN_LABEL_ROWS = 20


class LabelScores(NamedTuple):
    """Metrics of one label; NaN where a ratio is 0/0."""

    label: str
    rows: int
    """Rows with the label."""
    predicted: int
    """Rows for which it is predicted."""
    skill: float
    """How much better its probabilities are than its frequency; see
    :func:`~cgmvae.evaluation.label_skills`."""
    skill_low: float
    skill_high: float
    """Bounds of the 95% interval."""
    precision: float
    recall: float
    f1: float
    gain: float
    """F1 minus the F1 of predicting the label for every row."""
    gain_low: float
    gain_high: float
    """Bounds of the 95% interval."""
    average_precision: float
    auc: float
    threshold: float
    """Smallest score for which the label is predicted; NaN if the rule has no thresholds."""


class RowErrors(NamedTuple):
    """The labels of one row, each with its score, highest first."""

    row: int
    """Index of the row among those that were scored."""
    missed: list[tuple[str, float]]
    """True, not predicted."""
    extra: list[tuple[str, float]]
    """Predicted, not true."""
    found: list[tuple[str, float]]
    surprise: float
    """Mean cross-entropy of the known labels: how confident the model was of wrong ones."""


def label_scores(
    scored: Scored,
    rule: ThresholdRule,
    label_names: Sequence[str],
    *,
    groups: ArrayLike | None = None,
) -> list[LabelScores]:
    """Return the metrics of each label, in the order of the labels.

    Rows of the same group are resampled together for the intervals.

    Examples
    --------
    >>> scored = Scored(np.array([[1, 0], [0, 1]]), np.array([[0.9, 0.2], [0.6, 0.7]]))
    >>> owl, hawk = label_scores(scored, GlobalThreshold(0.5), ["owl", "hawk"])
    >>> owl.rows, owl.predicted, owl.precision, owl.auc, hawk.f1
    (1, 2, 0.5, 1.0, 1.0)
    """
    predicted = rule.apply(scored.scores)
    table = label_table(scored.labels, predicted, unknown=scored.unknown)
    given: Any = {"unknown": scored.unknown, "groups": groups}
    skills = label_skills(scored.labels, scored.scores, **given)
    gains = gains_over_always(scored.labels, predicted, **given)
    ranking = rank(*scored).by_label()
    thresholds = np.full(len(label_names), np.nan)
    if isinstance(rule, GlobalThreshold):
        thresholds[:] = rule.threshold
    elif isinstance(rule, LabelThresholds):
        thresholds[:] = rule.thresholds
    ratios = [*np.transpose(skills), table["precision"], table["recall"], table["f1"]]
    ratios += [*np.transpose(gains), ranking.average_precision(), ranking.auc(), thresholds]
    return [
        LabelScores(name, int(true), int(predicted), *map(float, values))
        for name, true, predicted, *values in zip(
            label_names, table["true"], table["predicted"], *ratios, strict=True
        )
    ]


def well_and_badly_predicted(labels: Sequence[LabelScores]) -> str:
    """Return one sentence on which labels are predicted well, and which no better than by chance.

    Best first, and worst first. A label that does not vary on these rows is in neither list.

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 1], [1, 1], [0, 0]] * 5)
    >>> scored = Scored(Y, np.column_stack([0.8 * Y[:, 0] + 0.1, np.full(20, 0.5)]))
    >>> well_and_badly_predicted(label_scores(scored, GlobalThreshold(0.5), ["owl", "hawk"]))
    'Predicted well: owl; no better than their frequency: hawk.'
    """
    best = sorted(labels, key=lambda label: -label.skill)
    well = [each.label for each in best if each.skill >= GOOD_SKILL and each.skill_low > 0]
    no_better = [each.label for each in reversed(best) if each.skill_low <= 0]
    first, second = (_shortened(names) or "none" for names in (well, no_better))
    return f"Predicted well: {first}; no better than their frequency: {second}."


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def rows_with_and_without(dataset: MultiLabelDataset) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return how many rows have each label, and how many are known not to, (n_labels,) each."""
    counts = count(dataset.Y, dataset.Y, dataset.unknown)
    known = np.full(dataset.n_labels, dataset.n_samples)
    if dataset.unknown is not None:
        known = known - np.asarray(dataset.unknown.sum(axis=0)).ravel()
    return counts.label_true, known - counts.label_true


def names_in_every_row(dataset: MultiLabelDataset) -> list[str]:
    """Return the labels that every row has whose labels are known."""
    having, lacking = rows_with_and_without(dataset)
    always = np.flatnonzero((having > 0) & (lacking == 0))
    return [dataset.label_names[label] for label in always.tolist()]


def compared_labels(reference: MultiLabelDataset) -> NDArray[np.int64]:
    """Return the labels with enough rows for comparisons, maps and lists, as indices.

    If none has, they are those that vary, and if none does, all.
    """
    fewest = np.minimum(*rows_with_and_without(reference))
    enough = next((least for least in (MIN_LABEL_ROWS, 1) if (fewest >= least).any()), 0)
    return np.flatnonzero(fewest >= enough)


def of_labels(dataset: MultiLabelDataset, labels: NDArray[np.int64]) -> MultiLabelDataset:
    """Return the data set with some of its labels."""
    names = tuple(dataset.label_names[label] for label in labels.tolist())
    Y = dataset.Y[:, labels]
    unknown = None if dataset.unknown is None else dataset.unknown[:, labels]
    return replace(dataset, Y=Y, unknown=unknown, label_names=names)


def row_errors(
    scored: Scored, rule: ThresholdRule, label_names: Sequence[str], *, limit: int | None = None
) -> list[RowErrors]:
    """Return the rows with a wrong label: most wrong labels first, then the most surprising.

    ``limit`` is the largest number of rows to return; by default all.

    Examples
    --------
    >>> scored = Scored(np.array([[1, 0], [0, 1]]), np.array([[0.9, 0.2], [0.6, 0.7]]))
    >>> [worst] = row_errors(scored, GlobalThreshold(0.5), ["owl", "hawk"])
    >>> worst.row, worst.extra, worst.found
    (1, [('owl', 0.6)], [('hawk', 0.7)])
    """
    true, scores = as_bool(scored.labels), np.asarray(scored.scores)
    known = known_cells(true, scores, scored.unknown, "scores")
    true, predicted = true & known, rule.apply(scores).astype(bool) & known
    surprise = _cross_entropy(true, scores, known)
    n_wrong = (true != predicted).sum(1)
    order = np.lexsort((-surprise, -n_wrong))[: np.count_nonzero(n_wrong)]

    def named(row: int, cells: NDArray[np.bool_]) -> list[tuple[str, float]]:
        labels = np.flatnonzero(cells[row])
        labels = labels[np.argsort(-scores[row, labels], kind="stable")]
        return [(label_names[i], float(scores[row, i])) for i in labels.tolist()]

    return [
        RowErrors(
            int(row),
            named(row, true & ~predicted),
            named(row, predicted & ~true),
            named(row, true & predicted),
            float(surprise[row]),
        )
        for row in order[:limit]
    ]


def _cross_entropy(
    true: NDArray[np.bool_], scores: NDArray[np.floating], known: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the mean over the known labels of each row, (n_rows,); 0 if none is known."""
    right = np.where(true, scores, 1 - scores).astype(np.float64).clip(_TINY, 1)
    return np.where(known, -np.log(right), 0).sum(1) / known.sum(1).clip(1)


def row_text(X: Features, feature_names: Sequence[str], row: int) -> str:
    """Describe a row in a few words: its text, or else its first values.

    Of sparse rows, the values with the largest magnitude are shown.

    Examples
    --------
    >>> row_text(np.array([[0.25, 3.0]]), ["height", "depth"], 0)
    'height 0.25, depth 3'
    """
    if isinstance(X, Columns):
        cells = {name: values[row] for name, values in zip(X.names, X.values, strict=True)}
        texts = [cells[name] for name, kind in X.by_name().items() if kind == "text"]
        if text := " ".join(" ".join(text.split()) for text in texts if text):
            return text if len(text) <= _TEXT_LENGTH else text[: _TEXT_LENGTH - 1] + "…"
        shown = list(cells.items())
    elif sp.issparse(X):
        line = sp.csr_array(X[[row]])
        largest = np.argsort(-np.abs(line.data), kind="stable")
        shown = [(feature_names[line.indices[i]], line.data[i]) for i in largest]
    else:
        values = np.asarray(X[[row]])[0, :_N_VALUES]
        shown = list(zip(feature_names[:_N_VALUES], values, strict=True))
    return ", ".join(f"{name} {_value_text(value)}" for name, value in shown[:_N_VALUES])


def _value_text(value: Any) -> str:
    if isinstance(value, np.datetime64):
        return str(value).removesuffix("T00:00:00")
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return "–" if value is None else str(value)
