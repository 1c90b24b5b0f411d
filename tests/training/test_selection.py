import numpy as np
import pytest
import torch

from cgmvae.errors import InputError
from cgmvae.evaluation.ranking import precision_at_k
from cgmvae.evaluation.thresholds import sweep
from cgmvae.training.selection import MEAN_OF_FIVE, SELECTIONS, selection_value

N_ROWS = (11, 7, 1)
N_LABELS = 5


def expected_value(name: str, scores, positive, known) -> float:
    """One member's value from the public metrics; its rows are real and have a known label."""
    unknown = ~known
    if name == "precision_at_1":
        return precision_at_k(positive, scores, 1, unknown=unknown)
    if name == MEAN_OF_FIVE:
        names = ("example_f1", "micro_f1", "macro_f1", "hamming_accuracy", "precision_at_1")
        return float(np.mean([expected_value(each, scores, positive, known) for each in names]))
    return float(sweep(positive, scores, unknown=unknown).value(name, absent=0).max())


def members(rng, dtype, unknown_share):
    """Return scores, positive and known of three members, padded to the same shape."""
    shape = (len(N_ROWS), max(N_ROWS), N_LABELS)
    # Scores on a grid: ties, and many that lie exactly on a threshold.
    scores = (rng.integers(0, 21, shape) / 20).astype(dtype)
    known = rng.random(shape) >= unknown_share
    known[..., 0] = True
    positive = (rng.random(shape) < 0.2 + 0.5 * scores) & known
    positive[0, :2] = False
    for member, n_rows in enumerate(N_ROWS):
        known[member, n_rows:] = False
        positive[member, n_rows:] = False
    return scores, positive, known


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unknown_share", [0.0, 0.4])
def test_equals_the_public_metrics(rng, name, dtype, unknown_share):
    scores, positive, known = members(rng, dtype, unknown_share)
    found = selection_value(name, *map(torch.as_tensor, (scores, positive, known)))
    assert found.dtype == torch.float64
    expected = [
        expected_value(name, scores[i, :n], positive[i, :n], known[i, :n])
        for i, n in enumerate(N_ROWS)
    ]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", SELECTIONS)
def test_nothing_known_is_zero(name):
    nothing = torch.zeros(2, 3, 4, dtype=torch.bool)
    assert selection_value(name, torch.rand(2, 3, 4), nothing, nothing).tolist() == [0.0, 0.0]


def test_an_unknown_metric_is_rejected():
    known = torch.ones(1, 2, 3, dtype=torch.bool)
    with pytest.raises(InputError, match=r"no metric 'accuracy'.*micro_f1"):
        selection_value("accuracy", torch.rand(1, 2, 3), known, known)
