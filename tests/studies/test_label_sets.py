"""How likely label sets are, on made-up rows whose distribution is known."""

from types import SimpleNamespace

import numpy as np
import pytest

from cgmvae import CGMVAEClassifier
from cgmvae.data import MultiLabelDataset, readers
from cgmvae.studies.label_sets import Likelihoods, chain_log_likelihood, run, table


@pytest.fixture(scope="module")
def pairs():
    """Return rows of two labels that are always alike, and one that is not, whatever the features.

    The entropy of their label sets is log 4.
    """
    rng = np.random.default_rng(0)
    first, third = rng.random((2, 600)) < 0.5
    Y = np.stack([first, first, third], axis=1).astype(np.uint8)
    return MultiLabelDataset(rng.normal(size=(600, 2)).astype(np.float32), Y)


def test_a_chain_learns_that_labels_are_alike(pairs):
    train, held = np.arange(400), np.arange(400, 500)
    found = chain_log_likelihood(pairs, train, held, pairs.rows(np.arange(500, 600)))
    assert found.mean() == pytest.approx(-np.log(4), abs=0.1)


def test_a_label_that_never_varies_counts_as_if_one_more_row_of_each_kind_were_known(pairs):
    Y = np.zeros((600, 1), np.uint8)
    never = MultiLabelDataset(pairs.X, Y)
    found = chain_log_likelihood(never, np.arange(8), np.arange(8, 9), never.rows(range(500, 600)))
    np.testing.assert_allclose(found, np.log(10 / 11))


def test_a_model_with_factors_beside_independence_and_chains(pairs, tmp_path, monkeypatch):
    readers.write(pairs, tmp_path / "pairs.npz")

    class Quick(CGMVAEClassifier):
        def __init__(self, random_state=None, device="cpu"):
            super().__init__(n_members=2, epochs=5, random_state=random_state, device=device)

    method = SimpleNamespace(title="C-GMVAE", estimator=Quick)
    monkeypatch.setattr("cgmvae.studies.label_sets.find_method", lambda name: method)
    (result,) = run(["cgmvae"], [str(tmp_path / "pairs.npz")], device="cpu")
    assert (result.data, result.n_train, result.n_test) == ("pairs", 540, 60)
    assert result.independent == pytest.approx(-np.log(8), abs=0.1)
    assert result.joint > result.independent + 0.3
    assert result.chains == pytest.approx(-np.log(4), abs=0.15)
    assert 0 < result.gain_error < 0.1


def test_a_row_for_each_result():
    result = Likelihoods("yeast", 90, 10, 14, "C-GMVAE", 7, -6.0, -5.5, 0.1, None)
    (row,) = table([result]).rows
    assert row[5:] == ["7", "-6.000", "-5.500", "0.500", "0.200", "–"]
