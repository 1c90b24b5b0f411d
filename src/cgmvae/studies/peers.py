"""What people use instead: scikit-learn's classifiers, set up as a careful user would.

Whatever they leave open is chosen on the validation rows by micro average precision. They know no
unknown labels; training rows that have some are refused. A label that all training rows agree on is
scored as they have it. :mod:`~cgmvae.studies.runner` runs them beside the registered methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
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
from cgmvae.methods import BinaryRelevance
from cgmvae.preparation.scaling import FeatureScaler

#: Trees of a forest, and blocks that it is grown in: a block scores and is forgotten, since with
#: hundreds of labels all trees of one would take tens of gigabytes.
N_TREES, N_BLOCKS = 300, 5

#: Strengths that logistic regression is tried with; the best on the validation rows is taken.
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 10.0)

#: Steps of a logistic regression at most.
_LOGISTIC_STEPS = 2000

#: Orders of the labels that classifier chains are averaged over (Read et al. 2011).
N_CHAINS = 5

#: Of the perceptron: hidden units, epochs at most, and epochs without gain after which it stops.
HIDDEN_UNITS, MOST_EPOCHS, PATIENCE = 512, 200, 10

Rows = MultiLabelDataset
#: Of the validation and of the test rows, each (n_samples, n_labels).
Scores = list[NDArray[np.floating]]


class Peer(NamedTuple):
    """One of them."""

    title: str
    scores: Callable[[Rows, Sequence[Rows], int], Scores]
    """Learns from training rows, and scores validation and test rows; takes a seed too."""
    seeded: bool
    """Whether another seed gives other scores."""
    most_cells: int | None = None
    """Rows times labels of a data set beyond which it takes hours."""


def _known_labels(train: Rows) -> NDArray[np.uint8]:
    if train.unknown is not None and train.unknown.sum():
        raise InputError("This classifier cannot learn from unknown labels; choose another one.")
    return train.Y.toarray() if sp.issparse(train.Y) else train.Y


def _features(train: Rows, others: Sequence[Rows]) -> list[Matrix]:
    """Return features scaled as the library's own estimators scale them."""
    scaler = FeatureScaler("auto").fit(train.X)
    return [scaler.transform(rows.X) for rows in (train, *others)]


class _Task(NamedTuple):
    """The labels that vary in the training rows, which is what there is to learn."""

    train: Rows
    others: Sequence[Rows]
    labels: NDArray[np.uint8]
    """(n_samples, n_varying)"""
    vary: NDArray[np.int64]
    """Their columns, (n_varying,)"""
    seed: int

    @property
    def target(self) -> NDArray[np.uint8]:
        """The labels in the shape that scikit-learn wants, which is flat for a single one."""
        return self.labels[:, 0] if len(self.vary) == 1 else self.labels

    def precision(self, scores: NDArray[np.floating]) -> float:
        """Return how well scores of the validation rows rank, (n_samples, n_varying)."""
        held = self.others[0]
        unknown = None if held.unknown is None else held.unknown[:, self.vary]
        return micro_average_precision(held.Y[:, self.vary], scores, unknown=unknown)


def _on_varying_labels(
    learn: Callable[[_Task], Scores],
) -> Callable[[Rows, Sequence[Rows], int], Scores]:
    """Return how a peer scores that can only learn labels of which there are both kinds."""

    def scores(train: Rows, others: Sequence[Rows], seed: int) -> Scores:
        labels = _known_labels(train)
        vary = np.flatnonzero(labels.min(axis=0) != labels.max(axis=0))
        found = [np.tile(labels[0].astype(np.float64), (rows.n_samples, 1)) for rows in others]
        if len(vary):
            learnt = learn(_Task(train, others, labels[:, vary], vary, seed))
            for all_scores, own in zip(found, learnt, strict=True):
                all_scores[:, vary] = own
        return list(found)

    return scores


def _positive(probabilities: Any) -> NDArray[np.floating]:
    """Return scikit-learn's probabilities of label 1, (n_samples, n_labels), in all its forms."""
    if isinstance(probabilities, list):
        return np.column_stack([column[:, 1] for column in probabilities])
    return probabilities[:, 1:]


def _forest(kind: Any) -> Callable[[Rows, Sequence[Rows], int], Scores]:
    """Return how a forest whose trees see all labels scores."""

    def learn(task: _Task) -> Scores:
        totals = [np.zeros((rows.n_samples, len(task.vary))) for rows in task.others]
        for block in range(N_BLOCKS):
            seed = task.seed * N_BLOCKS + block
            forest = kind(N_TREES // N_BLOCKS, n_jobs=-1, random_state=seed)
            forest.fit(task.train.X, task.target)
            for total, rows in zip(totals, task.others, strict=True):
                total += _positive(forest.predict_proba(rows.X)) / N_BLOCKS
        return list(totals)

    return _on_varying_labels(learn)


def _each_label(estimator: Any, train: Rows, others: Sequence[Rows], seed: int) -> Scores:
    """Fit one classifier a label, and score."""
    _known_labels(train)
    model = BinaryRelevance(estimator, n_jobs=-1, random_state=seed)
    model.fit(train.X, train, validation_data=(others[0].X, others[0]))
    return [model.predict_proba(rows.X) for rows in others]


def _boosting(train: Rows, others: Sequence[Rows], seed: int) -> Scores:
    """Boost trees label by label; without early stopping, which needs two positive rows."""
    dense = [
        replace(rows, X=rows.X.toarray()) if sp.issparse(rows.X) else rows
        for rows in (train, *others)
    ]
    trees = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    return _each_label(trees, dense[0], dense[1:], seed)


def _try_strengths(train: Rows, others: Sequence[Rows], seed: int) -> tuple[float, Scores]:
    """Return the strength of logistic regression that ranks validation rows best, and scores."""
    held = others[0]
    tried = [
        (c, _each_label(LogisticRegression(C=c, max_iter=_LOGISTIC_STEPS), train, others, seed))
        for c in STRENGTHS
    ]
    return max(
        tried,
        key=lambda each: micro_average_precision(held.Y, each[1][0], unknown=held.unknown),
    )


def _logistic(train: Rows, others: Sequence[Rows], seed: int) -> Scores:
    return _try_strengths(train, others, seed)[1]


def _chains(task: _Task) -> Scores:
    """Average chains of logistic regressions over random orders of the labels.

    Their strength is the one that is best without a chain: to try all would cost six times more.
    """
    features, *rest = _features(task.train, task.others)
    strength, _ = _try_strengths(task.train, task.others, task.seed)

    def scores_of(order: int) -> Scores:
        base = LogisticRegression(C=strength, max_iter=_LOGISTIC_STEPS)
        seed = task.seed * N_CHAINS + order
        chain = ClassifierChain(base, order="random", random_state=seed)
        chain.fit(features, task.labels)
        return [chain.predict_proba(each) for each in rest]

    chains = Parallel(n_jobs=-1)(delayed(scores_of)(order) for order in range(N_CHAINS))
    return [np.mean(parts, axis=0) for parts in zip(*chains, strict=True)]


def _perceptron(task: _Task) -> Scores:
    """Train scikit-learn's network, and keep the epoch that ranks validation rows best.

    Its own early stopping counts rows with all labels right: with many labels there are none.
    """
    features, *rest = _features(task.train, task.others)
    # A generator, not a number: a number would shuffle the rows alike in every epoch.
    shuffles = np.random.RandomState(task.seed)
    model = MLPClassifier((HIDDEN_UNITS,), random_state=shuffles)
    classes = np.arange(max(2, len(task.vary)))
    # In the type of the classes: scikit-learn casts these to the labels' type, where 256 is 0.
    target = task.target.astype(classes.dtype)
    best, best_epoch, kept = np.nan, 0, []
    for epoch in range(MOST_EPOCHS):
        model.partial_fit(features, target, classes=classes)
        scores = [_network_scores(model, task, each) for each in rest]
        precision = task.precision(scores[0])
        if epoch == 0 or precision > best:  # NaN where no validation row has a label
            best, best_epoch, kept = precision, epoch, scores
        if epoch - best_epoch >= PATIENCE:
            break
    return kept


def _network_scores(model: MLPClassifier, task: _Task, features: Matrix) -> NDArray[np.floating]:
    probabilities = model.predict_proba(features)
    return probabilities[:, 1:] if len(task.vary) == 1 else probabilities


PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        "random-forest": Peer("random forest", _forest(RandomForestClassifier), True, 5_000_000),
        "extra-trees": Peer("extra trees", _forest(ExtraTreesClassifier), True, 5_000_000),
        "gradient-boosting": Peer("gradient boosting", _boosting, False, 500_000),
        "logistic-regression": Peer("logistic regression", _logistic, False),
        "classifier-chains": Peer(
            "classifier chains", _on_varying_labels(_chains), True, 1_000_000
        ),
        "mlp": Peer("multi-layer perceptron", _on_varying_labels(_perceptron), True),
    }
)
