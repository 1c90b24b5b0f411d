"""Votes of training rows, against a plain loop."""

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.methods.inputs import Rows
from cgmvae.methods.votes import Voters

N_ROWS, N_LABELS = 30, 4


@pytest.fixture
def rows(rng):
    labels = (rng.random((N_ROWS, N_LABELS)) < 0.4).astype(np.uint8)
    unknown = rng.random(labels.shape) < 0.3
    unknown[:, 3] = True
    return Rows(None, labels * ~unknown, unknown, rng.uniform(0.5, 2, N_ROWS))


@pytest.fixture
def weights(rng):
    return rng.random((7, N_ROWS)) * (rng.random((7, N_ROWS)) < 0.3)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_votes_are_counted_among_rows_that_know_the_label(rows, weights, form):
    voters = Voters.of(rows._replace(labels=form(rows.labels), unknown=form(rows.unknown)))
    found = voters.count(sp.csr_array(weights))
    for label in range(N_LABELS):
        known = np.flatnonzero(~rows.unknown[:, label])
        true = rows.labels[known, label]
        frequency = np.average(true, weights=rows.weights[known]) if len(known) else 0
        assert voters.frequencies[label] == pytest.approx(frequency)
        for query in range(len(weights)):
            own = weights[query, known]
            expected = (own @ true + frequency) / (own.sum() + 1)
            assert found[query, label] == pytest.approx(expected)


def test_centered_labels_are_0_on_average_and_where_they_are_unknown(rows):
    centered = Voters.of(rows).centered()
    np.testing.assert_allclose(rows.weights @ centered, 0, atol=1e-12)
    assert (centered[rows.unknown] == 0).all()
    assert (centered[~rows.unknown] != 0).all()


def test_they_are_stored_in_arrays(rows, weights):
    voters = Voters.of(rows._replace(labels=sp.csr_array(rows.labels)))
    again = Voters.from_arrays(voters.arrays(), N_LABELS)
    votes = sp.csr_array(weights)
    np.testing.assert_array_equal(again.count(votes), voters.count(votes))
    taken = again.take(np.arange(5))
    np.testing.assert_array_equal(taken.labels.toarray(), rows.labels[:5])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("labels", lambda a: a + 2),
        ("labels", lambda a: a[1:]),
        ("row_weights", lambda a: a * 0),
        ("row_weights", lambda a: a * np.nan),
        ("row_weights", lambda a: a[:, None]),
    ],
)
def test_damaged_arrays_are_refused(rows, name, change):
    arrays = Voters.of(rows).arrays()
    with pytest.raises(ValueError, match="its"):
        Voters.from_arrays(arrays | {name: change(arrays[name])}, N_LABELS)
