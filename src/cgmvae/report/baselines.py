"""Plain methods to compare a model with, fitted on the model's own training rows.

The label prior gives every row the labels' shares; logistic regression and the random forest learn.
Those that would take minutes are left out, and the report says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data import MultiLabelDataset
from cgmvae.evaluation.metrics import as_bool

Choice = Literal["auto", "all", "none"]
CHOICES = ("auto", "all", "none")

#: Rows · features (that are not 0) · labels that logistic regression is fitted on: half a minute.
LOGISTIC_LIMIT = 3e8

#: Rows · labels that a forest is grown on: a minute on one core.
FOREST_LIMIT = 1e6

N_TREES = 100


@dataclass(frozen=True, eq=False)
class Baseline:
    """A method with its scores, or with the reason why it was left out.

    Attributes
    ----------
    title : str
    scores : tuple of arrays (n_rows, n_labels)
        Probabilities for each of the parts that were asked for; empty where it was left out.
    left_out : str
        Why; empty where it was fitted.
    """

    title: str
    scores: tuple[NDArray[np.floating], ...] = ()
    left_out: str = ""


def fit_baselines(
    train: MultiLabelDataset, parts: Sequence[MultiLabelDataset], *, choice: Choice = "auto"
) -> list[Baseline]:
    """Fit the baselines and score rows with them.

    Parameters
    ----------
    train : MultiLabelDataset
        The rows to learn from.
    parts : sequence of MultiLabelDataset
        The rows to score.
    choice : {"auto", "all", "none"}
        ``auto`` leaves out what would take minutes, ``none`` leaves out all but the label prior.
    """
    prior = Baseline("label prior", _prior_scores(train, parts))
    logistic, forest = "logistic regression", "random forest"
    if choice == "none":
        reason = "not asked for"
        return [prior, Baseline(logistic, left_out=reason), Baseline(forest, left_out=reason)]
    return [
        prior,
        _fit(logistic, _logistic_scores, train, parts, choice),
        _fit(forest, _forest_scores, train, parts, choice),
    ]


def _fit(title: str, score: Any, train: MultiLabelDataset, parts: Any, choice: Choice) -> Baseline:
    if reason := _obstacle(title, train, choice):
        return Baseline(title, left_out=reason)
    return Baseline(title, score(train, parts))


def _obstacle(title: str, train: MultiLabelDataset, choice: Choice) -> str:
    """Return why a method is not fitted on these rows, or nothing."""
    n_values = train.X.nnz if sp.issparse(train.X) else train.X.size
    if title == "random forest":
        if train.unknown is not None:
            return "it needs rows whose labels are all known"
        size, limit = train.n_samples * train.n_labels, FOREST_LIMIT
    else:
        size, limit = n_values * train.n_labels, LOGISTIC_LIMIT
    return "it would take minutes on so much data" if choice == "auto" and size > limit else ""


def _prior_scores(train: MultiLabelDataset, parts: Any) -> tuple[NDArray[np.floating], ...]:
    positive = np.asarray(train.Y.sum(axis=0, dtype=np.float64)).ravel()
    known = np.full(train.n_labels, float(train.n_samples))
    if train.unknown is not None:
        known -= np.asarray(train.unknown.sum(axis=0)).ravel()
    share = positive / known.clip(1)
    return tuple(np.tile(share, (part.n_samples, 1)) for part in parts)


def _logistic_scores(train: MultiLabelDataset, parts: Any) -> tuple[NDArray[np.floating], ...]:
    from cgmvae.methods import BinaryRelevance
    from cgmvae.methods.few_rows import FewRowsWarning

    model = BinaryRelevance(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRowsWarning)  # the page says so itself
        model.fit(train.X, train, validation_data=(parts[0].X, parts[0]))
    return tuple(model.predict_proba(part.X) for part in parts)


def _forest_scores(train: MultiLabelDataset, parts: Any) -> tuple[NDArray[np.floating], ...]:
    from sklearn.ensemble import RandomForestClassifier

    labels = as_bool(train.Y)
    varying = np.flatnonzero(labels.any(0) & ~labels.all(0))
    if len(varying) == 0:
        return _prior_scores(train, parts)
    columns = labels[:, varying] if len(varying) > 1 else labels[:, varying[0]]
    forest = RandomForestClassifier(N_TREES, random_state=0).fit(train.X, columns)
    return tuple(_forest_probabilities(forest, part.X, labels, varying) for part in parts)


def _forest_probabilities(
    forest: Any, X: Any, labels: NDArray[np.bool_], varying: NDArray[np.int64]
) -> NDArray[np.floating]:
    """Return probabilities, (n_rows, n_labels); a label that never varied keeps its share."""
    scores = np.tile(labels.mean(axis=0), (X.shape[0], 1))
    found = forest.predict_proba(X)
    columns = found if len(varying) > 1 else [found]
    scores[:, varying] = np.column_stack([column[:, 1] for column in columns])
    return scores
