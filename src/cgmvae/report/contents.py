"""Everything that a report says, computed before any HTML is written.

:func:`collect` goes from a fitted model and labeled rows to :class:`Contents`, which
:mod:`cgmvae.report.page` renders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae import __version__
from cgmvae.data.dataset import DatasetStatistics
from cgmvae.errors import InputError
from cgmvae.evaluation import Scored, count, evaluate, learn_rule
from cgmvae.methods import REGISTRY, method_name
from cgmvae.methods.base import LabelSimilarity
from cgmvae.preparation import ColumnSummary
from cgmvae.report.comparison import (
    CHOICES,
    Choice,
    Measured,
    Verdict,
    compare,
    fit_baselines,
    measure,
)
from cgmvae.report.explorer import Explorer, explore
from cgmvae.report.findings import Finding, find
from cgmvae.report.rows import ReportRows, on_features, prepared_rows

#: Parameters that say nothing about the model.
_HIDDEN = ("progress", "checkpoint", "device", "n_jobs")


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
    oracle: Mapping[str, float]
    """The five metrics with thresholds chosen on the test labels, to compare with the paper."""
    precision: float
    """Share of predicted labels that are true."""
    recall: float
    """Share of true labels that are predicted."""
    findings: Sequence[Finding]
    similarity: NDArray[np.floating]
    similarity_is: str
    """What the similarity measures."""
    explorer: Explorer
    settings: Mapping[str, Any]
    """The parameters of the model that are not None."""
    origin: Mapping[str, Any] | None
    """How the model was fitted, if its file says so."""
    version: str = __version__


def collect(
    model: Any,
    rows: ReportRows,
    *,
    origin: Mapping[str, Any] | None = None,
    baselines: Choice = "auto",
) -> Contents:
    """Compute everything that a report says.

    Parameters
    ----------
    model : estimator
        Fitted.
    rows : ReportRows
        With the model's features and labels; without its training rows there is no comparison
        with baselines.
    origin : mapping, optional
        How the model was fitted.
    baselines : {"auto", "all", "none"}
        See :func:`~cgmvae.report.comparison.fit_baselines`.

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
    if baselines not in CHOICES:
        raise InputError(f"There is no choice {baselines!r}; use one of {', '.join(CHOICES)}.")
    statistics = rows.reference.describe()
    preparation = getattr(model, "preparation_", None)
    columns = [] if preparation is None else preparation.describe()
    rows, model = prepared_rows(model, rows), on_features(model)
    test, name = rows.test, method_name(model)
    title = REGISTRY[name].title if name in REGISTRY else name
    own = measure(title, model.predict_proba(test.X), model.threshold_rule_, test)
    others: list[Measured] = []
    skipped: dict[str, str] = {}
    if rows.train is not None and (held := rows.validation) is not None:
        fitted, skipped = fit_baselines(rows.train, [held, test], choice=baselines)
        choice = {"rule": model.threshold_rule, "metric": model.threshold_metric}
        for baseline, (on_held, scores) in fitted.items():
            rule = learn_rule(held.Y, on_held, unknown=held.unknown, **choice)
            others.append(measure(baseline, scores, rule, test))
    verdicts = compare(own, others, test)
    counts = count(test.Y, own.predicted, test.unknown)
    correct = counts.label_both.sum()
    similarity, similarity_is = label_similarity(model, own.scores)
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
        oracle=evaluate(Scored(test.Y, own.scores, test.unknown), protocol="test-oracle").metrics,
        precision=float(correct / max(counts.label_predicted.sum(), 1)),
        recall=float(correct / max(counts.label_true.sum(), 1)),
        findings=find(model, rows, own, verdicts),
        similarity=similarity,
        similarity_is=similarity_is,
        explorer=explore(model, rows, own.scores, similarity),
        settings={
            name: value
            for name, value in model.get_params(deep=False).items()
            if value is not None and name not in _HIDDEN
        },
        origin=origin,
    )


def label_similarity(model: Any, scores: NDArray[np.floating]) -> tuple[NDArray[np.floating], str]:
    """Return the similarity of the labels, (n_labels, n_labels), and what it measures.

    For a method that learns no similarity, it is the correlation of the scores.
    """
    if isinstance(model, LabelSimilarity):
        return model.label_similarity(), model.similarity_is
    spread = scores.std(axis=0) > 0
    similarity = np.zeros((scores.shape[1],) * 2)
    if spread.sum() > 1:
        varying = np.ix_(spread, spread)
        similarity[varying] = np.corrcoef(scores[:, spread].astype(np.float64), rowvar=False)
    np.fill_diagonal(similarity, 1.0)
    return similarity, "the correlation of the labels' probabilities over the rows"
