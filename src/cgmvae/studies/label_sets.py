"""How likely whole label sets of test rows are, by each method.

By the factors of a model, by the same probabilities if labels were independent, and by classifier
chains, which are a distribution of label sets too: of each label given the features and the labels
before it, averaged over random orders of the labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, logsumexp
from sklearn.linear_model import LogisticRegression

from cgmvae.data.catalog import entries, load_dataset
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.mapped import dense
from cgmvae.data.readers import read
from cgmvae.data.splits import group_numbers, make_split
from cgmvae.errors import InputError
from cgmvae.methods.communities import loadings_of
from cgmvae.methods.conditioning import label_set_log_likelihood
from cgmvae.methods.registry import find_method
from cgmvae.preparation.scaling import FeatureScaler
from cgmvae.studies.tables import Table, number

#: Draws of the factors, by which likelihoods are estimated.
N_DRAWS = 200

#: Orders of the labels that chains are averaged over, and inverse regularization strengths that are
#: tried on validation rows.
N_CHAINS, C_VALUES = 5, (0.01, 0.1, 1.0)

#: Maximum number of rows · labels for chains.
CHAIN_LIMIT = 1_000_000


@dataclass(frozen=True)
class Likelihoods:
    """Mean log-likelihood of the label sets of test rows by one method, in nats a row."""

    data: str
    n_train: int
    n_test: int
    n_labels: int
    method: str
    n_factors: int
    independent: float
    """By the probabilities of the method, if labels were independent"""
    joint: float
    """With the factors"""
    gain_error: float
    """Standard error of joint − independent over rows, or over groups of rows"""
    chains: float | None
    """By classifier chains; None if they would take long"""


def run(
    methods: Sequence[str], data: Sequence[str], *, seed: int = 0, device: str = "auto"
) -> Iterator[Likelihoods]:
    """Fit methods on nine tenths of each data set, and measure them on the rest.

    ``data`` are names of the catalog and paths of files.
    """
    found = [find_method(name) for name in methods]
    for method in found:
        if not hasattr(method.estimator, "conditional"):
            raise InputError(f"{method.title} learns no label sets; choose cgmvae or blend.")
    for name in data:
        rows = load_dataset(name) if name in entries() else read(name)
        split = make_split(rows, "random" if rows.groups is None else "group", seed=seed)
        learned = np.sort(np.concatenate([split.train, split.validation]))
        train, test = rows.rows(learned), rows.rows(split.test)
        chains = None
        if rows.Y.shape[0] * rows.n_labels <= CHAIN_LIMIT and rows.unknown is None:
            chains = float(chain_log_likelihood(rows, split.train, split.validation, test).mean())
        for method in found:
            model = method.estimator(random_state=seed)
            if "device" in model.get_params(deep=False):
                model.set_params(device=device)
            model.fit(train.X, train, groups=train.groups)
            labels = dense(test.Y).astype(bool)
            known = np.ones_like(labels)
            if test.unknown is not None:
                known = ~dense(test.unknown).astype(bool)
            scores, loadings = model.predict_proba(test.X), loadings_of(model)
            joint, alone = (
                label_set_log_likelihood(scores, labels, known, b, n_draws=N_DRAWS, seed=seed).value
                for b in (loadings, loadings[:, :0])
            )
            n_factors = loadings.shape[1]
            yield Likelihoods(
                rows.name,
                *(train.n_samples, test.n_samples, test.n_labels),
                *(method.title, n_factors),
                *(float(alone.mean()), float(joint.mean())),
                _error_of_mean(joint - alone, test.groups),
                chains,
            )


def _error_of_mean(values: NDArray[np.float64], groups: NDArray[np.generic] | None) -> float:
    n_units, unit = len(values), np.arange(len(values))
    if groups is not None:
        n_units, unit = group_numbers(groups)
    sums = np.bincount(unit, values - values.mean(), minlength=n_units)
    return float(np.linalg.norm(sums) / len(values))


def chain_log_likelihood(
    rows: MultiLabelDataset,
    train: NDArray[np.int64],
    validation: NDArray[np.int64],
    test: MultiLabelDataset,
) -> NDArray[np.float64]:
    """Return the log-likelihood of each test row's label set by classifier chains, (n_test,).

    Validation rows choose the regularization; then the chains learn from them too.
    """
    fitted, held = rows.rows(train), rows.rows(validation)
    rng = np.random.default_rng(0)
    orders = [rng.permutation(rows.n_labels) for _ in range(N_CHAINS)]
    tried = [_of_chain(fitted, held, orders[0], c).mean() for c in C_VALUES]
    best = C_VALUES[int(np.argmax(tried))]
    everything = rows.rows(np.concatenate([train, validation]))
    found = [_of_chain(everything, test, order, best) for order in orders]
    return np.asarray(logsumexp(found, axis=0) - np.log(N_CHAINS))


def _of_chain(
    train: MultiLabelDataset, test: MultiLabelDataset, order: NDArray[np.int64], c: float
) -> NDArray[np.float64]:
    """Return the log-likelihood of each test row's label set by one chain, (n_test,)."""
    scaler = FeatureScaler().fit(train.X)
    parts = [(scaler.transform(each.X), dense(each.Y).astype(float)) for each in (train, test)]
    found = np.zeros(test.n_samples)
    for i, label in enumerate(order):
        inputs = [
            sp.hstack([X, before], "csr") if sp.issparse(X) else np.hstack([X, before])
            for X, before in ((X, Y[:, order[:i]]) for X, Y in parts)
        ]
        y, observed = (Y[:, label] for _, Y in parts)
        if np.ptp(y):
            model = LogisticRegression(C=c, max_iter=500).fit(inputs[0], y)
            log_odds = model.decision_function(inputs[1])
        else:  # never, or always: as if one more row of each kind had been seen
            log_odds = np.full(len(observed), np.log((y.sum() + 1) / (len(y) - y.sum() + 1)))
        found += np.log(np.maximum(expit(np.where(observed > 0, 1, -1) * log_odds), 1e-6))
    return found


def table(results: Sequence[Likelihoods]) -> Table:
    """Return a row for each data set and method."""
    columns = ["data", "rows", "test rows", "labels", "method", "factors"]
    columns += ["independent", "together", "gain", "± (2 se)", "chains"]
    rows = [
        [
            *(r.data, str(r.n_train), str(r.n_test), str(r.n_labels), r.method, str(r.n_factors)),
            *(number(r.independent), number(r.joint), number(r.joint - r.independent)),
            *(number(2 * r.gain_error), number(r.chains)),
        ]
        for r in results
    ]
    notes = [
        "Mean log-likelihood of the label sets of test rows, in nats a row; more is better. "
        "Without factors, labels that the method draws are independent."
    ]
    return Table("Log-likelihood of label sets", columns, rows, notes)
