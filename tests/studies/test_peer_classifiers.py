"""Scikit-learn's classifiers as peers: edge cases of labels, seeds, leakage, learning."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from joblib import parallel_config
from sklearn.ensemble import RandomForestClassifier

from cgmvae.data import MultiLabelDataset, make_survey
from cgmvae.evaluation import micro_average_precision
from cgmvae.studies import peers
from cgmvae.studies.peers import PEERS

N_HELD = 20

TREES = ("random-forest", "extra-trees", "lightgbm", "catboost")


def make_clear_survey(n_samples: int, n_labels: int, cardinality: float) -> MultiLabelDataset:
    """Return a survey whose labels all vary, and mostly follow from the features."""
    data, _ = make_survey(
        n_samples,
        6,
        n_labels,
        cardinality=cardinality,
        feature_strength=0.8,
        group_strength=0.1,
        seed=3,
    )
    return data


@pytest.fixture
def clear_survey() -> MultiLabelDataset:
    return make_clear_survey(160, 5, 2.0)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the models small, and run in this process: starting others would take longer."""
    monkeypatch.setattr(peers, "N_TREES", 20)
    monkeypatch.setattr(peers, "HIDDEN_UNITS", 64)
    monkeypatch.setattr(peers, "MAX_EPOCHS", 20)
    monkeypatch.setattr(peers, "PATIENCE", 4)
    monkeypatch.setattr(peers, "C_VALUES", (0.1, 1.0))
    monkeypatch.setattr(peers, "SVM_C_VALUES", (0.1, 1.0))
    monkeypatch.setattr(peers, "MAX_TREES", 60)
    monkeypatch.setattr(peers, "TABM_SIZES", {"k": 4, "n_blocks": 1, "d_block": 32})
    with parallel_config("sequential"):
        yield


def cut(data: MultiLabelDataset) -> tuple[MultiLabelDataset, list[MultiLabelDataset]]:
    """Return training rows, and the last rows for validation and test."""
    n = data.n_samples
    bounds = (0, n - 2 * N_HELD, n - N_HELD, n)
    train, *others = (data.rows(np.arange(*each)) for each in pairwise(bounds))
    return train, others


def scores_of(name: str, data: MultiLabelDataset, seed: int = 0) -> list[Any]:
    train, others = cut(data)
    return PEERS[name].scores(train, others, seed)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_learns(name: str) -> None:
    data = make_clear_survey(400, 5, 2.0)
    train, (_, test) = cut(data)
    frequencies = np.tile(train.Y.mean(axis=0), (N_HELD, 1))
    learned = micro_average_precision(test.Y, scores_of(name, data)[1])
    assert learned > micro_average_precision(test.Y, frequencies) + 0.05


@pytest.mark.parametrize("name", PEERS)
def test_constant_labels_keep_their_value_and_held_labels_may_be_unknown(name, clear_survey):
    never, always = np.zeros((clear_survey.n_samples, 1)), np.ones((clear_survey.n_samples, 1))
    labels = np.hstack([never, clear_survey.Y, always])
    unknown = np.zeros(labels.shape, bool)
    unknown[-2 * N_HELD :: 3, 1] = True
    for scores in scores_of(name, MultiLabelDataset(clear_survey.X, labels, unknown=unknown)):
        assert scores.shape == (N_HELD, 7)
        assert np.all((scores >= 0) & (scores <= 1))
        assert np.all(scores[:, 0] == 0)
        assert np.all(scores[:, -1] == 1)
        assert np.ptp(scores[:, 1:-1], axis=0).min() > 0


@pytest.mark.parametrize(
    "name",
    # Logistic regression has one C for all labels; it is tested as binary relevance.
    [name for name in PEERS if name != "logistic-regression"],
)
def test_each_label_is_learned_from_the_rows_that_know_it(name, clear_survey) -> None:
    unknown = np.zeros(clear_survey.Y.shape, bool)
    unknown[:80, 0] = unknown[-2 * N_HELD :: 2, 0] = True
    found = scores_of(name, replace(clear_survey, unknown=unknown))[1]
    known = clear_survey.rows(np.flatnonzero(~unknown[:-N_HELD, 0]))
    train, held = known.rows(np.arange(40)), known.rows(np.arange(40, 50))
    test = clear_survey.rows(np.arange(140, 160))
    first = [replace(rows, Y=rows.Y[:, :1], label_names=["first"]) for rows in (train, held, test)]
    expected = PEERS[name].scores(first[0], first[1:], 0)[1]
    np.testing.assert_allclose(found[:, 0], expected[:, 0])
    assert found.shape == (N_HELD, 5)
    assert np.ptp(found, axis=0).min() > 0


def test_a_label_that_no_row_knows_scores_0(clear_survey) -> None:
    unknown = np.zeros(clear_survey.Y.shape, bool)
    unknown[:, 2] = True
    found = scores_of("extra-trees", replace(clear_survey, unknown=unknown))[1]
    assert np.flatnonzero(np.ptp(found, axis=0) == 0).tolist() == [2]
    assert not found[:, 2].any()


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("constant", [False, True])
def test_one_label(name, constant, clear_survey) -> None:
    labels = np.ones((clear_survey.n_samples, 1)) if constant else clear_survey.Y[:, :1]
    for scores in scores_of(name, MultiLabelDataset(clear_survey.X, labels)):
        assert scores.shape == (N_HELD, 1)
        assert (np.ptp(scores) == 0) == constant


@pytest.mark.parametrize("name", PEERS)
def test_sparse_input_gives_what_dense_input_gives(name, clear_survey) -> None:
    data = replace(clear_survey, X=np.abs(clear_survey.X).clip(0, 1))
    sparse = scores_of(name, replace(data, X=sp.csr_array(data.X), Y=sp.csr_array(data.Y)))
    assert [scores.shape for scores in sparse] == [data.Y[-N_HELD:].shape] * 2
    if name in TREES:  # the others scale dense features, but not sparse ones in ±1
        for dense_scores, scores in zip(scores_of(name, data), sparse, strict=True):
            np.testing.assert_allclose(scores, dense_scores, atol=1e-6)


@pytest.mark.parametrize("name", PEERS)
def test_scores_follow_from_the_seed_and_not_from_test_labels(name, clear_survey) -> None:
    labels = clear_survey.Y.copy()
    labels[-N_HELD:] = 1 - labels[-N_HELD:]
    first, other = (scores_of(name, clear_survey, seed)[1] for seed in (3, 4))
    again = scores_of(name, replace(clear_survey, Y=labels), 3)[1]
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(first, other) is not PEERS[name].seeded


def test_forest_is_the_mean_of_its_trees(clear_survey: MultiLabelDataset) -> None:
    train, (_, test) = cut(clear_survey)
    blocks = [
        RandomForestClassifier(4, random_state=seed).fit(train.X, train.Y) for seed in range(5)
    ]
    expected = [
        np.mean([tree.predict_proba(test.X)[label][:, 1] for b in blocks for tree in b], axis=0)
        for label in range(5)
    ]
    np.testing.assert_allclose(scores_of("random-forest", clear_survey)[1], np.transpose(expected))


@pytest.mark.parametrize("name", ["extra-trees", "lightgbm"])
def test_bagged_scores_of_all_rows_are_learned(name, clear_survey):
    train, (_, test) = cut(clear_survey)
    unseen, mean = PEERS[name].bagged(train, test, 0)
    assert unseen.shape == train.Y.shape
    assert mean.shape == test.Y.shape
    assert micro_average_precision(train.Y, unseen) > train.Y.mean() + 0.05


@pytest.mark.parametrize("name", ["lightgbm", "catboost", "linear-svm"])
def test_a_label_with_one_positive_row(name: str, clear_survey: MultiLabelDataset) -> None:
    labels = clear_survey.Y.copy()
    labels[:, 0] = 0
    labels[5, 0] = 1
    assert scores_of(name, replace(clear_survey, Y=labels))[1].shape == (N_HELD, 5)


def test_perceptron_keeps_more_than_256_labels_in_their_columns(monkeypatch) -> None:
    monkeypatch.setattr(peers, "MAX_EPOCHS", 60)
    monkeypatch.setattr(peers, "PATIENCE", 60)
    data = make_clear_survey(300, 300, 60.0)
    train, (_, test) = cut(data)
    frequencies = np.tile(train.Y.mean(axis=0), (N_HELD, 1))
    learned = micro_average_precision(test.Y, scores_of("mlp", data)[1])
    assert learned > micro_average_precision(test.Y, frequencies) + 0.05
