"""Peers of C-GMVAE: scikit-learn's classifiers, set up as a careful user would.

Hyperparameters are chosen on the validation rows by micro average precision. Training rows with
unknown labels are not supported. A label that is constant in the training rows keeps that value as
its score. :mod:`~cgmvae.studies.runner` runs the peers like the registered methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain
from sklearn.neural_network import MLPClassifier

from cgmvae.data import MultiLabelDataset
from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError
from cgmvae.evaluation import micro_average_precision
from cgmvae.methods.binary_relevance import BinaryRelevance
from cgmvae.preparation.scaling import FeatureScaler

#: Trees of a forest, and blocks that it is grown in. Each block is discarded after scoring: with
#: hundreds of labels, all trees at once would take tens of gigabytes.
N_TREES, N_BLOCKS = 300, 5

#: Inverse regularization strengths of logistic regression; the best on the validation rows is used.
C_VALUES = (0.01, 0.03, 0.1, 0.3, 1.0, 10.0)

#: Largest number of iterations of a logistic regression.
_MAX_ITER = 2000

#: Orders of the labels that classifier chains are averaged over (Read et al. 2011).
N_CHAINS = 5

#: Of the perceptron: hidden units, largest number of epochs, epochs without improvement before it
#: stops.
HIDDEN_UNITS, MAX_EPOCHS, PATIENCE = 512, 200, 10

Rows = MultiLabelDataset
#: Scores of the validation and of the test rows, each (n_samples, n_labels).
Scores = list[NDArray[np.floating]]


class Peer(NamedTuple):
    """One of scikit-learn's classifiers."""

    title: str
    scores: Callable[[Rows, Sequence[Rows], int], Scores]
    """Fits to training rows and scores validation and test rows; the last argument is a seed."""
    seeded: bool
    """Whether the scores depend on the seed."""
    max_cells: int | None = None
    """Rows × labels of the largest data set that it is run on; beyond, it takes hours."""


def _known_labels(train: Rows) -> NDArray[np.uint8]:
    if train.unknown is not None and train.unknown.sum():
        raise InputError("This classifier does not support unknown labels; choose another method.")
    return train.Y.toarray() if sp.issparse(train.Y) else train.Y


def _features(train: Rows, others: Sequence[Rows]) -> list[Matrix]:
    """Return the features scaled like those of the library's own estimators."""
    scaler = FeatureScaler("auto").fit(train.X)
    return [scaler.transform(rows.X) for rows in (train, *others)]


class _Task(NamedTuple):
    """The labels that vary in the training rows: only these can be learned."""

    train: Rows
    others: Sequence[Rows]
    labels: NDArray[np.uint8]
    """(n_samples, n_varying)"""
    vary: NDArray[np.int64]
    """Columns of these labels, (n_varying,)"""
    seed: int

    @property
    def target(self) -> NDArray[np.uint8]:
        """The labels in the shape that scikit-learn expects, which is 1-d for a single label."""
        return self.labels[:, 0] if len(self.vary) == 1 else self.labels


def _on_varying_labels(
    learn: Callable[[_Task], Scores],
) -> Callable[[Rows, Sequence[Rows], int], Scores]:
    """Wrap a peer that needs both values of every label in its training rows."""

    def scores(train: Rows, others: Sequence[Rows], seed: int) -> Scores:
        labels = _known_labels(train)
        vary = np.flatnonzero(labels.min(axis=0) != labels.max(axis=0))
        found = [np.tile(labels[0].astype(np.float64), (rows.n_samples, 1)) for rows in others]
        if len(vary):
            learned = learn(_Task(train, others, labels[:, vary], vary, seed))
            for all_scores, own in zip(found, learned, strict=True):
                all_scores[:, vary] = own
        return list(found)

    return scores


def _forest(kind: Any) -> Callable[[Rows, Sequence[Rows], int], Scores]:
    """Return a forest whose trees learn all labels at once."""

    def learn(task: _Task) -> Scores:
        totals = [np.zeros((rows.n_samples, len(task.vary))) for rows in task.others]
        for block in range(N_BLOCKS):
            seed = task.seed * N_BLOCKS + block
            forest = kind(N_TREES // N_BLOCKS, n_jobs=-1, random_state=seed)
            forest.fit(task.train.X, task.target)
            for total, rows in zip(totals, task.others, strict=True):
                found = forest.predict_proba(rows.X)  # of both values: a list, or for one label
                by_label = found if isinstance(found, list) else [found]
                total += np.column_stack([own[:, 1] for own in by_label]) / N_BLOCKS
        return list(totals)

    return _on_varying_labels(learn)


def _each_label(estimator: Any, train: Rows, others: Sequence[Rows], seed: int) -> Scores:
    """Fit one classifier per label, and score."""
    _known_labels(train)
    model = BinaryRelevance(estimator, n_jobs=-1, random_state=seed)
    model.fit(train.X, train, validation_data=(others[0].X, others[0]))
    return [model.predict_proba(rows.X) for rows in others]


def _boosting(train: Rows, others: Sequence[Rows], seed: int) -> Scores:
    """Boost trees per label, without early stopping, which needs two positive rows."""
    dense = [
        replace(rows, X=rows.X.toarray()) if sp.issparse(rows.X) else rows
        for rows in (train, *others)
    ]
    trees = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    return _each_label(trees, dense[0], dense[1:], seed)


def _tune_logistic(train: Rows, others: Sequence[Rows], seed: int) -> tuple[float, Scores]:
    """Return the C of logistic regression that ranks validation rows best, and its scores."""
    held = others[0]
    tried = [
        (c, _each_label(LogisticRegression(C=c, max_iter=_MAX_ITER), train, others, seed))
        for c in C_VALUES
    ]
    return max(
        tried,
        key=lambda each: micro_average_precision(held.Y, each[1][0], unknown=held.unknown),
    )


def _chains(task: _Task) -> Scores:
    """Average chains of logistic regressions over random orders of the labels.

    Their C is the one that is best without a chain: trying all would cost six times as much.
    """
    features, *rest = _features(task.train, task.others)
    best_c, _ = _tune_logistic(task.train, task.others, task.seed)

    def scores_of(order: int) -> Scores:
        base = LogisticRegression(C=best_c, max_iter=_MAX_ITER)
        seed = task.seed * N_CHAINS + order
        chain = ClassifierChain(base, order="random", random_state=seed)
        chain.fit(features, task.labels)
        return [chain.predict_proba(each) for each in rest]

    chains = Parallel(n_jobs=-1)(delayed(scores_of)(order) for order in range(N_CHAINS))
    return [np.mean(parts, axis=0) for parts in zip(*chains, strict=True)]


def _perceptron(task: _Task) -> Scores:
    """Train scikit-learn's network, and keep the epoch that ranks validation rows best.

    Its own early stopping uses subset accuracy, which is 0 with many labels.
    """
    features, *rest = _features(task.train, task.others)
    # A generator, not a number, which would shuffle the rows in the same way in every epoch.
    shuffles = np.random.RandomState(task.seed)
    model = MLPClassifier((HIDDEN_UNITS,), random_state=shuffles)
    held = task.others[0]
    unknown = None if held.unknown is None else held.unknown[:, task.vary]
    classes = np.arange(max(2, len(task.vary)))
    # In the dtype of the classes: scikit-learn casts those to the dtype of the labels, so that 256
    # would become 0.
    target = task.target.astype(classes.dtype)
    best, best_epoch, kept = np.nan, 0, []
    for epoch in range(MAX_EPOCHS):
        model.partial_fit(features, target, classes=classes)
        # With a single label there is a column for each of its values.
        scores = [model.predict_proba(each)[:, -len(task.vary) :] for each in rest]
        precision = micro_average_precision(held.Y[:, task.vary], scores[0], unknown=unknown)
        if epoch == 0 or precision > best:  # NaN where no validation row has a label
            best, best_epoch, kept = precision, epoch, scores
        if epoch - best_epoch >= PATIENCE:
            break
    return kept


PEERS: Mapping[str, Peer] = {
    "random-forest": Peer("random forest", _forest(RandomForestClassifier), True, 5_000_000),
    "extra-trees": Peer("extra trees", _forest(ExtraTreesClassifier), True, 5_000_000),
    "gradient-boosting": Peer("gradient boosting", _boosting, False, 500_000),
    "logistic-regression": Peer(
        "logistic regression", lambda *rows: _tune_logistic(*rows)[1], False
    ),
    "classifier-chains": Peer("classifier chains", _on_varying_labels(_chains), True, 1_000_000),
    "mlp": Peer("multi-layer perceptron", _on_varying_labels(_perceptron), True),
}
