"""Everything that a report says, computed before a word of HTML is written.

:func:`collect` goes from a fitted model and labelled rows to a :class:`Contents`;
:mod:`cgmvae.report.page` turns that into a page.
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
from cgmvae.methods import REGISTRY, method_name
from cgmvae.methods.base import LabelSimilarity
from cgmvae.preparation import ColumnSummary
from cgmvae.report.baselines import CHOICES, Baseline, Choice, fit_baselines
from cgmvae.report.comparison import (
    Measured,
    Verdict,
    compare,
    flattered,
    measure,
    measure_baselines,
    precision_and_recall,
)
from cgmvae.report.explorer import Explorer, explore
from cgmvae.report.findings import Finding, find
from cgmvae.report.prepared import on_features, prepared_rows
from cgmvae.report.rows import ReportRows


@dataclass(frozen=True, eq=False)
class Contents:
    """What a report says."""

    method: str
    """What people call the method."""
    data: str
    """Name of the data."""
    rows: ReportRows
    """With the features that the model makes of the columns."""
    columns: Sequence[ColumnSummary]
    """What was made of each column; nothing where the data was numbers."""
    statistics: DatasetStatistics
    """Of the rows that were learnt from, or of all where these are not known."""
    measured: Sequence[Measured]
    """The model, then the baselines that were fitted."""
    left_out: Sequence[Baseline]
    """The baselines that were not."""
    verdicts: Sequence[Verdict]
    oracle: Mapping[str, float]
    """The five numbers with thresholds chosen on the test labels, to compare with the paper."""
    precision: float
    """Share of the predicted labels that are true."""
    recall: float
    """Share of the true labels that are predicted."""
    findings: Sequence[Finding]
    similarity: NDArray[np.floating]
    similarity_is: str
    """What the similarity of two labels is."""
    explorer: Explorer
    settings: Mapping[str, Any]
    """The model's parameters that are not None."""
    origin: Mapping[str, Any] | None
    """Where the model comes from, where its file says so."""
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
        With the model's features and labels; where its training rows are not among them, it is
        compared with nothing.
    origin : mapping, optional
        Where the model comes from.
    baselines : {"auto", "all", "none"}
        See :func:`~cgmvae.report.baselines.fit_baselines`.

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
        raise InputError(f"There is no choice {baselines!r}; use {', '.join(CHOICES)}.")
    read, columns = rows, _columns(model)
    rows, model = prepared_rows(model, rows), on_features(model)
    test, title = rows.test, method_title(model)
    own = measure(title, model.predict_proba(test.X), model.threshold_rule_, test)
    others, left_out = _compared(model, rows, baselines)
    verdicts = compare(own, others, test)
    precision, recall = precision_and_recall(own, test)
    similarity, similarity_is = label_similarity(model, own.scores)
    return Contents(
        method=title,
        data=test.name,
        rows=rows,
        columns=columns,
        statistics=read.reference.describe(),
        measured=[own, *others],
        left_out=left_out,
        verdicts=verdicts,
        oracle=flattered(own, test),
        precision=precision,
        recall=recall,
        findings=find(model, rows, own, verdicts),
        similarity=similarity,
        similarity_is=similarity_is,
        explorer=explore(model, rows, own.scores, similarity),
        settings=_settings(model),
        origin=origin,
    )


def method_title(model: Any) -> str:
    """Return what people call a model's method."""
    name = method_name(model)
    return REGISTRY[name].title if name in REGISTRY else name


def label_similarity(model: Any, scores: NDArray[np.floating]) -> tuple[NDArray[np.floating], str]:
    """Return how alike the labels are to the model, (n_labels, n_labels), and what that means.

    A method that learns no similarity of labels gets the correlation of its scores.
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


def _compared(
    model: Any, rows: ReportRows, choice: Choice
) -> tuple[list[Measured], list[Baseline]]:
    if rows.train is None or rows.validation is None:
        return [], []
    fitted = fit_baselines(rows.train, [rows.validation, rows.test], choice=choice)
    measured = measure_baselines(
        fitted,
        rows.validation,
        rows.test,
        rule=model.threshold_rule,
        metric=model.threshold_metric,
    )
    return measured, [baseline for baseline in fitted if baseline.left_out]


def _columns(model: Any) -> list[ColumnSummary]:
    preparation = getattr(model, "preparation_", None)
    return [] if preparation is None else preparation.describe()


def _settings(model: Any) -> dict[str, Any]:
    parameters = model.get_params(deep=False).items()
    hidden = ("progress", "checkpoint", "device", "n_jobs")
    return {name: value for name, value in parameters if value is not None and name not in hidden}
