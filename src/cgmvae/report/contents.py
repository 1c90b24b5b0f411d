"""Everything that a report says, computed before any HTML is written.

:func:`collect` goes from a fitted model and labeled rows to :class:`Contents`, which
:mod:`cgmvae.report.page` renders: the metrics of the model, those of plain baselines fitted on the
same training rows, with a paired bootstrap of the differences, and warnings.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone

from cgmvae import __version__
from cgmvae.data import MultiLabelDataset
from cgmvae.data.dataset import DatasetStatistics
from cgmvae.data.splits import make_split
from cgmvae.errors import InputError, listed
from cgmvae.evaluation import (
    METRIC_TITLES,
    PAPER_METRICS,
    Interval,
    LabelScores,
    Scored,
    bootstrap_interval,
    count,
    evaluate,
    label_scores,
    learn_rule,
    macro_auc,
    macro_average_precision,
    paired_difference,
    row_text,
    sweep,
    well_and_badly_predicted,
)
from cgmvae.evaluation.breakdown import (
    MIN_LABEL_ROWS,
    compared_labels,
    of_labels,
    rows_with_and_without,
)
from cgmvae.evaluation.intervals import MIN_UNITS
from cgmvae.evaluation.metrics import as_bool, known_cells
from cgmvae.evaluation.thresholds import FINE_THRESHOLDS, GlobalThreshold, ThresholdRule
from cgmvae.methods import REGISTRY, MultiLabelClassifier, method_name
from cgmvae.methods.combination import ExpertRecord
from cgmvae.preparation import ColumnSummary
from cgmvae.report.explorer import Explorer, explore
from cgmvae.report.figures.features import FeatureImportanceDisplay
from cgmvae.report.figures.responses import ResponseDisplay, response_columns
from cgmvae.report.figures.style import title_of
from cgmvae.report.rows import ReportRows, on_features, plain_columns, prepared_rows

Choice = Literal["auto", "all", "none"]

#: Maximum size, rows · nonzero features · labels, for linear models: half a minute.
LINEAR_LIMIT = 3e8

#: Maximum size, rows · labels, for the random forest: a minute on one core; one forest per label
#: takes this many times as long as one for all.
FOREST_LIMIT, FOREST_PER_LABEL = 1e6, 10

N_TREES = 100

#: Maximum seconds of a fit that is repeated with rows drawn at random.
REFIT_LIMIT = 300.0

#: Folds whose decision values calibrate the support vector machine.
N_FOLDS = 3

#: With fewer test rows, every metric is uncertain by several hundredths.
FEW_ROWS = 200

#: A threshold drifts if the best one on the test rows differs by this much, and is better by this
#: much of the metric.
DRIFT = 0.1
DRIFT_GAIN = 0.01

#: Rare labels that a warning names, of each kind.
MAX_NAMED = 30

#: The latent space hardly matters if another row's z costs less micro-F1 than this.
LATENT_GAIN = 0.01

#: Limits of the permutation importance: columns · rows · labels · repeats, columns, repeats; and
#: columns that are named for a label, if shuffling them costs this much average precision.
_MAX_SHUFFLED_CELLS, _MAX_SHUFFLED_COLUMNS, N_SHUFFLES = 5e7, 200, 3
_N_LEADING, _MATTERS = 3, 0.01

#: Labels whose response curves are drawn, and columns of each.
N_PANELS = (4, 2)

#: Means over labels that do not depend on a threshold, by title.
RANKING_METRICS = {"AUC": macro_auc, "average precision": macro_average_precision}

#: Parameters that say nothing about the model.
_HIDDEN = ("progress", "checkpoint", "device", "n_jobs", "experts", "auto_network")

#: Parameters of experts that the blend has set.
_SET_BY_BLEND = ("scaling", "random_state")

Scores = NDArray[np.floating]
Parts = Sequence[MultiLabelDataset]


# --- Baselines ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Measured:
    """A method on the test rows: its scores, its predictions, and its metrics."""

    title: str
    scores: Scores
    predicted: NDArray[np.uint8]
    metrics: Mapping[str, Interval]
    """The five metrics, with their intervals."""
    ranking: Mapping[str, float]
    """The metrics of ``RANKING_METRICS``, which need no threshold."""


@dataclass(frozen=True)
class Verdict:
    """How a metric of the model compares with the best baseline's."""

    metric: str
    rival: str
    difference: Interval
    """Of the model minus the rival, on the same bootstrap samples."""

    @property
    def sign(self) -> int:
        """1 if the model is significantly better, −1 if it is worse, 0 otherwise."""
        return int(self.difference.low > 0) - int(self.difference.high < 0)


def fit_baselines(
    train: MultiLabelDataset,
    parts: Parts,
    *,
    choice: Choice = "auto",
    step: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, tuple[Scores, ...]], dict[str, str]]:
    """Fit the baselines; return their scores and why others were skipped, by title.

    The scores are one array, (n_rows, n_labels), for each of the parts, the first of which are the
    validation rows. The choice ``auto`` skips what would take minutes, ``none`` skips all but the
    label prior. ``step`` is told what is being fitted.
    """
    scores = {"label prior": _prior_scores(train, parts)}
    skipped = {}
    n_values = train.X.nnz if sp.issparse(train.X) else train.X.size
    linear, fit_linear = "logistic regression", _logistic_scores
    if sp.issparse(train.X):  # words: there, a support vector machine is the stronger rival
        linear, fit_linear = "linear SVM", _svm_scores
    n_cells = train.n_samples * train.n_labels * (1 if train.unknown is None else FOREST_PER_LABEL)
    for title, fit, size, limit in (
        (linear, fit_linear, n_values * train.n_labels, LINEAR_LIMIT),
        ("random forest", _forest_scores, n_cells, FOREST_LIMIT),
    ):
        if choice == "none":
            skipped[title] = "not requested"
        elif choice == "auto" and size > limit:
            skipped[title] = "it would take minutes on data of this size"
        else:
            step(f"Fitting a baseline: {title}")
            scores[title] = fit(train, parts)
    return scores, skipped


def _prior_scores(train: MultiLabelDataset, parts: Parts) -> tuple[Scores, ...]:
    positive = np.asarray(train.Y.sum(axis=0, dtype=np.float64)).ravel()
    known = np.full(train.n_labels, float(train.n_samples))
    if train.unknown is not None:
        known -= np.asarray(train.unknown.sum(axis=0)).ravel()
    return tuple(np.tile(positive / known.clip(1), (part.n_samples, 1)) for part in parts)


def _logistic_scores(train: MultiLabelDataset, parts: Parts) -> tuple[Scores, ...]:
    from cgmvae.methods import BinaryRelevance
    from cgmvae.methods.out_of_fold import FewRowsWarning

    model = BinaryRelevance(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRowsWarning)  # the page has its own warning
        model.fit(train.X, train, validation_data=(parts[0].X, parts[0]))
    return tuple(model.predict_proba(part.X) for part in parts)


def _svm_scores(train: MultiLabelDataset, parts: Parts) -> tuple[Scores, ...]:
    """Return the calibrated probabilities of a linear support vector machine per label."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import LinearSVC

    # Words have weights below 1; features on other scales would dominate them.
    scale = np.maximum(abs(sp.csr_array(train.X)).max(axis=0).toarray().ravel(), 1)

    def fit(X: Any, y: NDArray[np.float64]) -> Callable[[Any], Scores]:
        svm = LinearSVC(random_state=0)
        if np.bincount(y.astype(int), minlength=2).min() < N_FOLDS:  # too rare to be calibrated
            decide = svm.fit(X / scale, y).decision_function
            return lambda rows: expit(decide(rows / scale))
        calibrated = CalibratedClassifierCV(svm, cv=N_FOLDS, ensemble=False).fit(X / scale, y)
        return lambda rows: calibrated.predict_proba(rows / scale)[:, 1]

    return _scores_by_label(fit, train, parts)


def _forest_scores(train: MultiLabelDataset, parts: Parts) -> tuple[Scores, ...]:
    """Return the scores of a random forest with the splits and probabilities of a classifier.

    For 0 and 1, the squared error splits like the Gini impurity, and a leaf's mean is the share of
    its rows with the label; unlike the classifier, the regressor accepts constant labels. Where
    labels are unknown, there is one forest per label.
    """
    from sklearn.ensemble import RandomForestRegressor

    def fit(X: Any, y: NDArray[np.float64]) -> Callable[[Any], Scores]:
        forest = RandomForestRegressor(N_TREES, max_features="sqrt", random_state=0)
        return forest.fit(X, y).predict

    if train.unknown is not None or train.n_labels == 1:
        return _scores_by_label(fit, train, parts)
    predict = fit(train.X, as_bool(train.Y).astype(np.float64))
    return tuple(predict(part.X) for part in parts)


def _scores_by_label(
    fit: Callable[[Any, NDArray[np.float64]], Callable[[Any], Scores]],
    train: MultiLabelDataset,
    parts: Parts,
) -> tuple[Scores, ...]:
    """Fit each label on the rows where it is known; a label that never varies gets its share."""
    Y = as_bool(train.Y).astype(np.float64)
    known = known_cells(Y > 0, Y, train.unknown, "labels")
    scores = tuple(np.zeros((part.n_samples, train.n_labels)) for part in parts)
    for label in range(train.n_labels):
        rows = np.flatnonzero(known[:, label])
        y = Y[rows, label]
        varies = np.ptp(y) > 0 if len(y) else False
        predict = fit(train.X[rows], y) if varies else None
        for part, filled in zip(parts, scores, strict=True):
            filled[:, label] = predict(part.X) if predict else y.sum() / max(len(y), 1)
    return scores


def measure(
    title: str,
    scores: Scores,
    rule: ThresholdRule,
    test: MultiLabelDataset,
    labels: NDArray[np.int64],
) -> Measured:
    """Return the metrics of some labels on the test rows, five of them with intervals."""
    predicted, compared = rule.apply(scores), of_labels(test, labels)
    outputs = dict.fromkeys(PAPER_METRICS, predicted) | {"precision_at_1": scores}
    given: Any = {"unknown": compared.unknown}
    metrics = {
        name: bootstrap_interval(
            name, compared.Y, outputs[name][:, labels], groups=test.groups, **given
        )
        for name in PAPER_METRICS
    }
    ranking = {
        name: metric(compared.Y, scores[:, labels], **given)
        for name, metric in RANKING_METRICS.items()
    }
    return Measured(title, scores, predicted, metrics, ranking)


def compare(
    model: Measured,
    others: Sequence[Measured],
    test: MultiLabelDataset,
    labels: NDArray[np.int64],
) -> list[Verdict]:
    """Compare the model with the best of the others on some labels, metric by metric.

    There is no verdict where the rows, or groups of rows, are too few for an interval.
    """
    verdicts, test = [], of_labels(test, labels)
    for name in PAPER_METRICS if others else ():
        best = max(others, key=lambda other: other.metrics[name].value)
        first, second = (
            (each.scores if name == "precision_at_1" else each.predicted)[:, labels]
            for each in (model, best)
        )
        difference = paired_difference(
            name, test.Y, first, second, unknown=test.unknown, groups=test.groups
        )
        if not np.isnan(difference.low):
            verdicts.append(Verdict(name, best.title, difference))
    return verdicts


def measure_between_places(
    model: Any, whole: MultiLabelDataset, title: str, labels: NDArray[np.int64]
) -> Measured:
    """Fit the model again without blocks in space, and measure it on rows drawn at random.

    These have training rows near them, so that is how good it is between known places.
    """
    again = clone(model)
    whole = replace(whole, groups=None)
    split = make_split(whole)
    train = whole.rows(np.sort(np.concatenate([split.train, split.validation])))
    test = whole.rows(split.test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # said when the model was fitted
        again.fit(train.X, train)
    return measure(title, again.predict_proba(test.X), again.threshold_rule_, test, labels)


def n_units(rows: MultiLabelDataset) -> int:
    """Return the number of independent units: of rows, or of their groups."""
    return rows.n_samples if rows.groups is None else len(np.unique(rows.groups))


# --- Warnings -------------------------------------------------------------------------------------


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
    said = getattr(model, "fit_warnings_", None) or ()
    found = [
        *(Finding("serious", "A warning of the model's fit", text) for text in said),
        *_about_rows(rows, getattr(model, "origin_", None)),
        *_about_rare_labels(rows.reference, "training " if rows.train is not None else ""),
        *_about_labels(rows, measured),
        *_about_threshold(model, rows.test, measured),
        *_about_rivals(model.threshold_metric, verdicts),
    ]
    return sorted(found, key=lambda finding: finding.weight != "serious")


def _about_rows(rows: ReportRows, origin: Mapping[str, Any] | None) -> Iterator[Finding]:
    tail = "the metrics show how well it fits the training data, not how well it predicts new rows."
    if rows.standing == "trained":
        text = f"It was fitted on all rows, so that none are left for a test: {tail}"
        if metrics := (origin or {}).get("metrics"):
            found = (f"{METRIC_TITLES[n]} {v:.3f}" for n, v in metrics.items() if v is not None)
            text += (
                f" Out of fold, each row scored by members that did not see it, it reached "
                f"{', '.join(found)}."
            )
        yield Finding("serious", "The model was trained on these rows", text)
    if rows.standing == "unknown":
        text = f"The training rows are not known. If they are among these, {tail}"
        yield Finding("serious", "The model may have been trained on these rows", text)
    units = "row" if rows.test.groups is None else "group"
    if (n := n_units(rows.test)) < MIN_UNITS:
        yield Finding(
            "serious",
            f"Only {n:,} test {units}{'' if n == 1 else 's'}",
            f"Chance decides most of what is measured on fewer than {MIN_UNITS} {units}s, so there "
            "are no intervals, and no verdict on which method is better. Test on more of them.",
        )
    elif (n := rows.test.n_samples) < FEW_ROWS:
        yield Finding(
            "note",
            f"Only {n:,} test rows",
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


def _about_rare_labels(reference: MultiLabelDataset, kind: str) -> Iterator[Finding]:
    """Name the labels that never vary, or hardly, once for the whole page."""
    having, lacking = rows_with_and_without(reference)
    few = np.minimum(having, lacking) < MIN_LABEL_ROWS
    if not few.any():
        return
    n, of = int(few.sum()), f"{reference.n_labels:,} labels"
    groups = {
        f"In every {kind}row": few & (lacking == 0) & (having > 0),
        f"In no {kind}row": few & (having == 0),
        f"In fewer than {MIN_LABEL_ROWS}": few & (having > 0) & (having < MIN_LABEL_ROWS),
        f"In all but fewer than {MIN_LABEL_ROWS}": few & (lacking > 0) & (having >= MIN_LABEL_ROWS),
    }
    texts = [
        f"{title}: {_names(reference, np.flatnonzero(mask))}."
        for title, mask in groups.items()
        if mask.any()
    ]
    left = "left out of comparisons, maps and lists" if n < reference.n_labels else "uncertain"
    yield Finding(
        "note",
        f"{n:,} of {of} {'is' if n == 1 else 'are'} {left}",
        f"With fewer than {MIN_LABEL_ROWS} {kind}rows that have a label, or that do not, what is "
        f"measured of it is mostly chance. {' '.join(texts)}",
    )


def _names(dataset: MultiLabelDataset, labels: NDArray[np.int64]) -> str:
    shown = ", ".join(dataset.label_names[label] for label in labels[:MAX_NAMED].tolist())
    more = len(labels) - MAX_NAMED
    return f"{shown} and {more:,} more" if more > 0 else shown


def _about_labels(rows: ReportRows, measured: Measured) -> Iterator[Finding]:
    labels = compared_labels(rows.reference)
    test = of_labels(rows.test, labels)
    counts = count(test.Y, measured.predicted[:, labels], test.unknown)
    never = (counts.label_predicted == 0) & (counts.label_true > 0)
    missed, n_true = int(counts.label_true[never].sum()), int(counts.label_true.sum())
    for found, title, text in (
        (
            never,
            f"never predicted, although the test rows have {'them' if never.sum() > 1 else 'it'}",
            f"All of their {missed:,} occurrences (of {n_true:,} true labels) are missed; a lower "
            "threshold for them may help.",
        ),
        (
            counts.label_true == 0,
            "without a test row",
            "They cannot be evaluated here, and macro-F1 leaves them out.",
        ),
    ):
        if n := len(chosen := np.flatnonzero(found).tolist()):
            title = f"{n:,} of {rows.test.n_labels:,} labels {'is' if n == 1 else 'are'} {title}"
            names = listed([test.label_names[label] for label in chosen])
            yield Finding("note", title, f"{names}. {text}")


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


def network_of(model: Any) -> Any:
    """Return the C-GMVAE of a blend, None if it has none; any other model is returned as it is."""
    return getattr(model, "cgmvae_", model)


def about_latent_space(model: Any, test: MultiLabelDataset) -> Iterator[Finding]:
    """Yield a warning for experts if the latent space has no use."""
    network = network_of(model)
    if not hasattr(network, "diagnostics") or test.n_samples == 1:  # z cannot be shuffled
        return
    numbers = network.diagnostics(test.X if network is model else model.inputs(test.X), test)
    lost = numbers["micro_f1"] - numbers["micro_f1_shuffled_z"]
    if numbers["active_units"] < 1:
        yield Finding(
            "note",
            "The posterior has collapsed",
            f"{numbers['active_units']:.1f} latent units are active: z says nothing about a row, "
            "and the model predicts from the features alone.",
        )
    elif lost < LATENT_GAIN:
        yield Finding(
            "note",
            "The latent space hardly matters",
            f"{numbers['active_units']:.1f} latent units are active, but exchanging z between rows "
            f"costs only {lost:.3f} micro-F1: the predictions hardly depend on it.",
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


# --- Columns --------------------------------------------------------------------------------------


def column_importance(
    model: Any, rows: ReportRows, labels: NDArray[np.int64]
) -> FeatureImportanceDisplay | None:
    """Return how much labels rely on each column without text; None if there is no such column.

    The columns of some of the ``rows`` are shuffled; these are given as they were read.
    """
    columns = plain_columns(model, rows.test.feature_names)
    if not columns:
        return None
    model, test = on_features(model), prepared_rows(model, rows).test
    n_tried = min(len(columns), _MAX_SHUFFLED_COLUMNS)
    n_rows = int(_MAX_SHUFFLED_CELLS / (n_tried * N_SHUFFLES * test.n_labels))
    return FeatureImportanceDisplay.from_estimator(
        model,
        test.X,
        test,
        feature_names=test.feature_names,
        candidates=columns,
        labels=labels,
        n_repeats=N_SHUFFLES,
        max_features=n_tried,
        max_rows=max(n_rows, 50),
    )


def leading_columns(
    importance: FeatureImportanceDisplay,
    label: str,
    n: int,
    *,
    among: Sequence[str] | None = None,
    least: float = -np.inf,
) -> dict[str, float]:
    """Return the n columns that a label relies on most, and how much it does.

    They are some of the columns ``among``, and matter at ``least`` so much. If the importances of
    the label are not defined, they are those of the mean of all labels.
    """
    drops, _ = importance.importance(label)
    if np.isnan(drops).any():
        drops, _ = importance.importance()
    found = sorted(zip(drops.tolist(), importance.feature_names, strict=True), key=lambda e: -e[0])
    chosen = [e for e in found if e[0] >= least and (among is None or e[1] in among)]
    return {name: drop for drop, name in chosen[:n]}


def label_responses(
    model: Any,
    rows: ReportRows,
    importance: FeatureImportanceDisplay | None,
    labels: Sequence[str] | None = None,
    *,
    n_columns: int,
) -> ResponseDisplay | None:
    """Return how labels respond to the columns that they rely on; None if no column can be drawn.

    The ``rows`` are given as they were read. By default, all labels are shown whose importance was
    measured.
    """
    if importance is None:
        return None
    can_be_drawn = response_columns(rows.test.X, rows.test.feature_names)
    panels = {
        (label, column): drop
        for label in labels or importance.label_names
        for column, drop in leading_columns(
            importance, label, n_columns, among=can_be_drawn
        ).items()
    }
    if not panels:
        return None
    return ResponseDisplay.from_estimator(
        model,
        rows.test.X,
        panels,
        feature_names=rows.test.feature_names,
        reference=rows.reference.X,
    )


# --- Contents -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Contents:
    """What a report says."""

    method: str
    """Title of the method."""
    paper: str
    """Its publication, or nothing."""
    data: str
    """Name of the data."""
    rows: ReportRows
    """With the features that the model prepares from the columns."""
    columns: Sequence[ColumnSummary]
    """How each column was prepared; empty if the data are numbers."""
    statistics: DatasetStatistics
    """Of the training rows, or of all rows if these are unknown."""
    measured: Sequence[Measured]
    """The model, then the fitted baselines."""
    skipped: Mapping[str, str]
    """Why baselines were skipped, by title."""
    verdicts: Sequence[Verdict]
    between_places: Measured | None
    """The model on rows drawn at random, if the test rows are in blocks in space of their own."""
    compared: NDArray[np.int64]
    """The labels that methods are compared on, and that maps and lists show, as indices."""
    all_labels: Mapping[str, float]
    """The five metrics of the model over all labels."""
    oracle: Mapping[str, float]
    """The same with thresholds chosen on the test labels, to compare with the paper."""
    precision: float
    """Share of predicted labels that are true, among those compared."""
    recall: float
    """Share of true labels that are predicted, among those compared."""
    labels: Sequence[LabelScores]
    """The metrics of each label on the test rows: first those compared, by falling skill."""
    importance: FeatureImportanceDisplay | None
    """How much labels rely on each column; None without columns that are not text."""
    relies_on: Mapping[str, Sequence[str]]
    """The columns that each label compared relies on most, by name."""
    responses: ResponseDisplay | None
    """How labels that are predicted best respond to these; None if no column can be drawn."""
    well_predicted: str
    """A sentence on the labels that are predicted well and no better than by their frequency."""
    findings: Sequence[Finding]
    for_experts: Sequence[Finding]
    """What only those want to know who know the method."""
    similarity: NDArray[np.floating]
    similarity_is: str
    """What the similarity measures."""
    explorer: Explorer
    experts: Sequence[ExpertRecord]
    """What the experts of a blend are; empty for other methods."""
    settings: Mapping[str, Any]
    """The parameters of the model that are not None, and those of its experts that were set."""
    origin: Mapping[str, Any] | None
    """How the model was fitted, if its file says so."""
    version: str = __version__


def collect(
    model: Any,
    rows: ReportRows,
    *,
    origin: Mapping[str, Any] | None = None,
    baselines: Choice = "auto",
    step: Callable[[str], None] = lambda _: None,
) -> Contents:
    """Compute everything that a report says about a fitted model.

    Without its training rows there is no comparison with baselines; ``origin`` says how the model
    was fitted, and ``baselines`` is the choice of :func:`fit_baselines`. ``step`` is told the name
    of each step.

    Examples
    --------
    >>> from cgmvae import BinaryRelevance, make_split, make_survey
    >>> data, _ = make_survey(200, 4, 6, seed=0)
    >>> split = make_split(data, seed=0)
    >>> model = BinaryRelevance(random_state=0).fit(data.X, data)
    >>> contents = collect(model, ReportRows.of_split(data, split))
    >>> [measured.title for measured in contents.measured]
    ['binary relevance', 'label prior', 'logistic regression', 'random forest']
    """
    if baselines not in get_args(Choice):
        raise InputError(f"There is no choice {baselines!r}; use auto, all or none.")
    statistics = rows.reference.describe()
    encoded = model.pipeline_.columns
    columns = [] if encoded is None else encoded.describe()
    describe_row = partial(row_text, rows.test.X, rows.test.feature_names)
    read, whole_model = rows, model
    rows, model = prepared_rows(model, rows), on_features(model)
    test, name = rows.test, method_name(model)
    title = REGISTRY[name].title if name in REGISTRY else name
    compared = compared_labels(rows.reference)
    step(f"Scoring {test.n_samples:,} rows")
    own = measure(title, model.predict_proba(test.X), model.threshold_rule_, test, compared)
    others: list[Measured] = []
    skipped: dict[str, str] = {}
    if rows.train is not None and (held := rows.validation) is not None:
        fitted, skipped = fit_baselines(rows.train, [held, test], choice=baselines, step=step)
        choice = {"rule": model.threshold_rule, "metric": model.threshold_metric}
        for baseline, (on_held, scores) in fitted.items():
            rule = learn_rule(held.Y, on_held, unknown=held.unknown, **choice)
            others.append(measure(baseline, scores, rule, test, compared))
    step("Comparing the model with the baselines")
    verdicts = compare(own, others, test, compared)
    seen = of_labels(test, compared)
    counts = count(seen.Y, own.predicted[:, compared], seen.unknown)
    correct = counts.label_both.sum()
    similarity, similarity_is = label_similarity(model, own.scores)
    scored = Scored(test.Y, own.scores, test.unknown)
    by_label = label_scores(scored, model.threshold_rule_, test.label_names, groups=test.groups)
    best_first = sorted(
        (by_label[label] for label in compared.tolist()),
        key=lambda label: (np.isnan(label.skill), -label.skill),
    )
    rest = sorted({*range(test.n_labels)} - {*compared.tolist()})
    between_places = None
    if read.whole is not None and test.coordinates is not None and test.groups is not None:
        seconds = (origin or {}).get("seconds")
        if baselines == "all" or (baselines == "auto" and (seconds or REFIT_LIMIT) < REFIT_LIMIT):
            step("Fitting the model again, with test rows between known places")
            between_places = measure_between_places(whole_model, read.whole, title, compared)
        else:
            reason = "not requested" if baselines == "none" else "it takes as long as the fit did"
            skipped["test between known places"] = reason
    step("Trying which columns matter")
    importance = column_importance(whole_model, read, compared)
    relies_on: dict[str, Sequence[str]] = {}
    if importance is not None:
        for label in importance.label_names:
            relies_on[label] = [*leading_columns(importance, label, _N_LEADING, least=_MATTERS)]
    first = [label.label for label in best_first[: N_PANELS[0]]]
    return Contents(
        method=title,
        paper=REGISTRY[name].paper if name in REGISTRY else "",
        data=test.name,
        rows=rows,
        columns=columns,
        statistics=statistics,
        measured=[own, *others],
        skipped=skipped,
        verdicts=verdicts,
        between_places=between_places,
        compared=compared,
        all_labels=evaluate(scored, rule=model.threshold_rule_).metrics,
        oracle=evaluate(scored, protocol="test-oracle").metrics,
        precision=float(correct / max(counts.label_predicted.sum(), 1)),
        recall=float(correct / max(counts.label_true.sum(), 1)),
        labels=[*best_first, *(by_label[label] for label in rest)],
        importance=importance,
        relies_on=relies_on,
        responses=label_responses(whole_model, read, importance, first, n_columns=N_PANELS[1]),
        well_predicted=well_and_badly_predicted(best_first),
        findings=find(model, rows, own, verdicts),
        for_experts=list(about_latent_space(model, test)),
        similarity=similarity,
        similarity_is=similarity_is,
        explorer=explore(
            model, rows, own.scores, similarity, labels=compared, describe_row=describe_row
        ),
        experts=getattr(model, "experts_", ()),
        settings=_settings(model),
        origin=origin,
    )


def _settings(model: Any) -> dict[str, Any]:
    own = model.get_params(deep=False).items()
    found = {name: value for name, value in own if value is not None and name not in _HIDDEN}
    for expert, fitted in getattr(model, "models_", {}).items():
        if isinstance(fitted, MultiLabelClassifier):
            default = type(fitted)().get_params(deep=False)
            found |= {
                f"{expert}__{name}": value
                for name, value in fitted.get_params(deep=False).items()
                if name not in (*_HIDDEN, *_SET_BY_BLEND) and value != default[name]
            }
    return found


def label_similarity(model: Any, scores: NDArray[np.floating]) -> tuple[NDArray[np.floating], str]:
    """Return the similarity of the labels, (n_labels, n_labels), and what it measures.

    For a method that learns no similarity, it is the correlation of the scores.
    """
    if model.similarity_is is not None:
        return model.label_similarity(), model.similarity_is
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant label correlates with none
        correlation = np.corrcoef(scores, rowvar=False, dtype=np.float64)
    similarity = np.nan_to_num(np.atleast_2d(correlation))
    np.fill_diagonal(similarity, 1.0)
    return similarity, "the correlation of the labels' probabilities over the rows"
