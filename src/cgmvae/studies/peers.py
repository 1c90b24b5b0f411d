"""Peers of C-GMVAE: common classifiers, set up as a careful user would.

Every peer is bagged as C-GMVAE is: fitted once without each fold of the rows, which gives
out-of-fold scores of all of them, and averaged. Hyperparameters and the best epoch are chosen on
the fold that is left out, by micro average precision. If training labels are unknown, each label is
learned by itself from the rows that know it. A label that is constant in the training rows keeps
that value as its score.

LightGBM, CatBoost and TabM come with the extra ``peers``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC

from cgmvae.data import MultiLabelDataset
from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense
from cgmvae.evaluation import micro_average_precision
from cgmvae.methods.binary_relevance import BinaryRelevance
from cgmvae.methods.inputs import Rows as FoldRows
from cgmvae.methods.out_of_fold import assign_folds
from cgmvae.preparation.scaling import FeatureScaler
from cgmvae.training.device import find_device

#: Trees of a forest, and blocks that it is grown in. Each block is discarded after scoring: with
#: hundreds of labels, all trees at once would take tens of gigabytes.
N_TREES, N_BLOCKS = 300, 5

#: Inverse regularization strengths of logistic regression; the best on the validation rows is used.
C_VALUES = (0.01, 0.03, 0.1, 0.3, 1.0, 10.0)

#: Largest number of iterations of a logistic regression.
_MAX_ITER = 2000

#: Orders of the labels that classifier chains are averaged over (Read et al. 2011).
N_CHAINS = 5

#: Inverse regularization strengths of the support vector machine.
SVM_C_VALUES = (0.03, 0.1, 0.3, 1.0, 3.0)

#: Of boosted trees: largest number, and how many without improvement before boosting stops.
MAX_TREES, TREE_PATIENCE = 1000, 30

#: Of the networks: hidden units, largest number of epochs, epochs without improvement before they
#: stop.
HIDDEN_UNITS, MAX_EPOCHS, PATIENCE = 512, 200, 10

#: Sizes of TabM that are not those of its package.
TABM_SIZES: Mapping[str, int] = {}

#: Folds that a peer is bagged over.
N_FOLDS = 5

#: Features up to which TabM has piecewise-linear embeddings of each.
_EMBEDDED_FEATURES = 512

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
    package: str | None = None
    """The package of the extra ``peers`` that it needs."""

    @property
    def is_installed(self) -> bool:
        """Whether its package can be imported."""
        return self.package is None or find_spec(self.package) is not None

    def why_left_out(self, n_cells: int) -> str | None:
        """Return why it is not run on this many rows × labels, or None if it is."""
        if not self.is_installed:
            return f"not installed: {self.package}"
        if self.max_cells is None or n_cells <= self.max_cells:
            return None
        return f"left out: {n_cells:,} rows × labels, more than {self.max_cells:,}"

    def bagged(self, train: Rows, test: Rows, seed: int) -> Scores:
        """Return out-of-fold scores of the training rows, and mean scores of the test rows."""
        rows = FoldRows(train.X, train.Y, train.unknown, None, train.groups)
        fold = assign_folds(rows, N_FOLDS, seed)
        unseen, found = np.empty(train.Y.shape), []
        for k in range(fold.max() + 1):
            held, inside = np.flatnonzero(fold == k), np.flatnonzero(fold != k)
            unseen[held], of_test = self.scores(
                train.rows(inside), (train.rows(held), test), seed * N_FOLDS + k
            )
            found.append(of_test)
        return [unseen, np.mean(found, axis=0)]


def _by_label(score: Callable[[Any], Scores], labels: Iterable[Any]) -> Scores:
    """Return the scores of all labels from a function of one, (n_samples,) each, in parallel."""
    found = Parallel(n_jobs=-1)(delayed(score)(label) for label in labels)
    return [np.column_stack(columns) for columns in zip(*found, strict=True)]


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
    """Wrap a peer that needs both values of every label, and to know them in all rows."""

    def scores(train: Rows, others: Sequence[Rows], seed: int) -> Scores:
        if train.unknown is not None and train.unknown.sum():
            return _label_by_label(scores, train, others, seed)
        labels = dense(train.Y)
        vary = np.flatnonzero(labels.min(axis=0) != labels.max(axis=0))
        found = [np.tile(labels[0].astype(np.float64), (rows.n_samples, 1)) for rows in others]
        if len(vary):
            learned = learn(_Task(train, others, labels[:, vary], vary, seed))
            for all_scores, own in zip(found, learned, strict=True):
                all_scores[:, vary] = own
        return list(found)

    return scores


def _label_by_label(
    scores: Callable[[Rows, Sequence[Rows], int], Scores],
    train: Rows,
    others: Sequence[Rows],
    seed: int,
) -> Scores:
    """Learn each label from the rows that know it; the held-out rows that do choose settings.

    A label that no training row knows scores 0.
    """

    def of_label(rows: Rows, label: int, *, known: bool) -> Rows:
        if known and rows.unknown is not None:
            chosen = np.flatnonzero(~dense(rows.unknown[:, [label]]).ravel())
            rows = rows.rows(chosen) if len(chosen) else rows  # unknown labels are 0 in Y
        names = [rows.label_names[label]]
        return replace(rows, Y=rows.Y[:, [label]], unknown=None, label_names=names)

    columns = []
    for label in range(train.n_labels):
        own, held = (of_label(rows, label, known=True) for rows in (train, others[0]))
        scored = [of_label(rows, label, known=False) for rows in others]
        columns.append(scores(own, (held, *scored), seed)[1:])
    return [np.hstack(parts) for parts in zip(*columns, strict=True)]


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
    model = BinaryRelevance(estimator, n_jobs=-1, random_state=seed)
    model.fit(train.X, train, validation_data=(others[0].X, others[0]))
    return [model.predict_proba(rows.X) for rows in others]


def _spmatrix(X: Matrix) -> Any:
    """Return the features as LightGBM and CatBoost take them, which know no sparse arrays."""
    return sp.csr_matrix(X) if sp.issparse(X) else X


def _lightgbm(task: _Task) -> Scores:
    """Boost trees per label; the held-out rows say when to stop."""
    import lightgbm

    features, *rest = (_spmatrix(rows.X) for rows in (task.train, *task.others))
    held_labels = dense(task.others[0].Y)[:, task.vary]

    settings = {"objective": "binary", "learning_rate": 0.05, "num_threads": 1, "verbosity": -1}

    def scores_of(i: int) -> Scores:
        own = lightgbm.Dataset(features, task.labels[:, i])
        trees = lightgbm.train(
            settings,
            own,
            MAX_TREES,
            valid_sets=[own.create_valid(rest[0], held_labels[:, i])],
            callbacks=[lightgbm.early_stopping(TREE_PATIENCE, verbose=False)],
        )
        return [np.asarray(trees.predict(each)) for each in rest]

    return _by_label(scores_of, range(len(task.vary)))


def _catboost(task: _Task) -> Scores:
    """Boost trees of all labels at once; the held-out rows say when to stop."""
    from catboost import CatBoostClassifier

    features, *rest = (_spmatrix(rows.X) for rows in (task.train, *task.others))
    one = len(task.vary) == 1
    model = CatBoostClassifier(
        iterations=MAX_TREES,
        loss_function="Logloss" if one else "MultiLogloss",
        early_stopping_rounds=TREE_PATIENCE,
        random_seed=task.seed,
        thread_count=torch.get_num_threads(),
        allow_writing_files=False,
        verbose=False,
    )
    held_labels = dense(task.others[0].Y)[:, task.vary]
    model.fit(features, task.target, eval_set=(rest[0], held_labels[:, 0] if one else held_labels))
    return [model.predict_proba(each)[:, -len(task.vary) :] for each in rest]


def _linear_svm(task: _Task) -> Scores:
    """Fit one linear support vector machine per label; C is the one that ranks held-out rows best.

    Margins become probabilities by a sigmoid that is fitted to all cells of the held-out rows.
    """
    features, *rest = _features(task.train, task.others)
    held = task.others[0]
    held_labels = dense(held.Y)[:, task.vary]
    known = np.ones(held_labels.shape, bool)
    if held.unknown is not None:
        known = ~dense(held.unknown)[:, task.vary]

    def margins(c: float) -> Scores:
        def of_label(i: int) -> Scores:
            model = LinearSVC(C=c, random_state=task.seed).fit(features, task.labels[:, i])
            return [model.decision_function(each) for each in rest]

        return _by_label(of_label, range(len(task.vary)))

    best = max(
        map(margins, SVM_C_VALUES),
        key=lambda each: micro_average_precision(held_labels, each[0], unknown=~known),
    )
    if np.ptp(held_labels[known]) == 0:
        return [expit(each) for each in best]
    platt = LogisticRegression(C=1e6).fit(best[0][known][:, None], held_labels[known])
    return [expit(each * platt.coef_[0, 0] + platt.intercept_[0]) for each in best]


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


def _of_best_epoch(train: Callable[[_Task], Iterator[Scores]]) -> Callable[[_Task], Scores]:
    """Wrap a network that yields its scores after each epoch; the best at ranking is kept."""

    def learn(task: _Task) -> Scores:
        held = task.others[0]
        unknown = None if held.unknown is None else held.unknown[:, task.vary]
        best, best_epoch, kept = np.nan, 0, []
        for epoch, scores in zip(range(MAX_EPOCHS), train(task), strict=False):
            precision = micro_average_precision(held.Y[:, task.vary], scores[0], unknown=unknown)
            if epoch == 0 or precision > best:  # NaN where no validation row has a label
                best, best_epoch, kept = precision, epoch, scores
            if epoch - best_epoch >= PATIENCE:
                break
        return kept

    return learn


def _perceptron(task: _Task) -> Iterator[Scores]:
    """Train scikit-learn's network, whose own early stopping uses subset accuracy.

    That is 0 with many labels.
    """
    features, *rest = _features(task.train, task.others)
    # A generator, not a number, which would shuffle the rows in the same way in every epoch.
    shuffles = np.random.RandomState(task.seed)
    model = MLPClassifier((HIDDEN_UNITS,), random_state=shuffles)
    classes = np.arange(max(2, len(task.vary)))
    # In the dtype of the classes: scikit-learn casts those to the dtype of the labels, so that 256
    # would become 0.
    target = task.target.astype(classes.dtype)
    while True:
        model.partial_fit(features, target, classes=classes)
        # With a single label there is a column for each of its values.
        yield [model.predict_proba(each)[:, -len(task.vary) :] for each in rest]


def _tabm(task: _Task) -> Iterator[Scores]:
    """Train TabM, with piecewise-linear embeddings."""
    from rtdl_num_embeddings import PiecewiseLinearEmbeddings, compute_bins
    from tabm import TabM

    device = find_device("auto")
    torch.manual_seed(task.seed)
    arrays = [dense(each).astype(np.float32) for each in _features(task.train, task.others)]
    vary = np.ptp(arrays[0], axis=0) > 0
    features, *rest = (torch.from_numpy(each[:, vary]).to(device) for each in arrays)
    labels = torch.from_numpy(task.labels).to(device, torch.float32)
    embeddings = None
    if features.shape[1] <= _EMBEDDED_FEATURES:
        bins = compute_bins(features.cpu(), n_bins=min(48, len(features) - 1))
        embeddings = PiecewiseLinearEmbeddings(bins, 16, activation=False, version="B")
    model = TabM.make(
        n_num_features=features.shape[1],
        d_out=len(task.vary),
        num_embeddings=embeddings,
        **TABM_SIZES,
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=3e-4)
    while True:
        model.train()
        for batch in torch.randperm(len(features), device=device).split(256):
            logits = model(features[batch])  # (n_rows, k, n_labels)
            target = labels[batch][:, None].expand_as(logits)
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(logits, target).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            scores = [
                torch.cat([torch.sigmoid(model(part)).mean(1) for part in each.split(1024)])
                for each in rest
            ]
        yield [each.double().cpu().numpy() for each in scores]


PEERS: Mapping[str, Peer] = {
    "random-forest": Peer("random forest", _forest(RandomForestClassifier), True, 5_000_000),
    "extra-trees": Peer("extra trees", _forest(ExtraTreesClassifier), True, 5_000_000),
    "lightgbm": Peer("LightGBM", _on_varying_labels(_lightgbm), False, 5_000_000, "lightgbm"),
    "catboost": Peer("CatBoost", _on_varying_labels(_catboost), True, 500_000, "catboost"),
    "logistic-regression": Peer(
        "logistic regression", lambda *rows: _tune_logistic(*rows)[1], False
    ),
    "linear-svm": Peer("linear SVM", _on_varying_labels(_linear_svm), False),
    "classifier-chains": Peer("classifier chains", _on_varying_labels(_chains), True, 1_000_000),
    "mlp": Peer("multi-layer perceptron", _on_varying_labels(_of_best_epoch(_perceptron)), True),
    "tabm": Peer("TabM", _on_varying_labels(_of_best_epoch(_tabm)), True, 5_000_000, "tabm"),
}
