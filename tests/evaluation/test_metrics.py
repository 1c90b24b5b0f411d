"""Metrics of predicted labels against scikit-learn and plain loops."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.metrics import accuracy_score, f1_score, hamming_loss

from cgmvae.errors import InputError
from cgmvae.evaluation import (
    Counts,
    count,
    example_f1,
    hamming_accuracy,
    label_table,
    macro_f1,
    micro_f1,
    subset_accuracy,
)


def _random(n_samples, n_labels, density=0.3, seed=10):
    rng = np.random.default_rng(seed)
    true = (rng.random((n_samples, n_labels)) < density).astype(int)
    wrong = rng.random(true.shape) < 0.2
    return true, true ^ wrong


RANDOM = _random(40, 7)
CASES = {
    "random": RANDOM,
    "rare labels": _random(40, 9, density=0.03, seed=11),
    "no labels": (np.zeros_like(RANDOM[0]), RANDOM[1]),
    "all labels": (np.ones_like(RANDOM[0]), RANDOM[1]),
    "empty predictions": (RANDOM[0], np.zeros_like(RANDOM[0])),
    "nothing at all": (np.zeros((3, 4), int), np.zeros((3, 4), int)),
    "perfect": (RANDOM[0], RANDOM[0]),
    "one row": _random(1, 6, seed=12),
}
ONE_LABEL = _random(12, 1, density=0.5, seed=13)


def _f1(true, guess, otherwise):
    both, total = sum(t & g for t, g in zip(true, guess, strict=True)), sum(true) + sum(guess)
    return 2 * both / total if total else otherwise


def _mean_f1(lines, otherwise):
    """Mean F1 of (true, predicted) lists; ``otherwise`` is for 0/0, None to leave it out."""
    values = [_f1(true, guess, otherwise) for true, guess in lines]
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else 0


def _lines(Y, predicted, unknown):
    """Lists of true and predicted labels of each line, with the unknown cells dropped."""
    for true, guess, mask in zip(Y.tolist(), predicted.tolist(), unknown.tolist(), strict=True):
        keep = [j for j, hidden in enumerate(mask) if not hidden]
        yield [true[j] for j in keep], [guess[j] for j in keep]


def _by_loops(Y, predicted, unknown):
    rows = [(true, guess) for true, guess in _lines(Y, predicted, unknown) if true]
    labels = list(_lines(Y.T, predicted.T, unknown.T))
    cells = [(t, g) for true, guess in rows for t, g in zip(true, guess, strict=True)]
    return {
        "example_f1": _mean_f1(rows, 1),
        "example_f1 skip": _mean_f1(rows, None),
        "example_f1 0": _mean_f1(rows, 0),
        "micro_f1": _f1([t for t, _ in cells], [g for _, g in cells], 0),
        "macro_f1": _mean_f1([line for line in labels if any(line[0])], 0),
        "macro_f1 0": _mean_f1(labels, 0),
        "hamming_accuracy": sum(t == g for t, g in cells) / len(cells) if cells else 0,
        "subset_accuracy": sum(true == guess for true, guess in rows) / max(len(rows), 1),
    }


def _ours(Y, predicted, unknown=None):
    return {
        "example_f1": example_f1(Y, predicted, unknown=unknown),
        "example_f1 0": example_f1(Y, predicted, unknown=unknown, empty=0),
        "example_f1 skip": example_f1(Y, predicted, unknown=unknown, empty="skip"),
        "micro_f1": micro_f1(Y, predicted, unknown=unknown),
        "macro_f1": macro_f1(Y, predicted, unknown=unknown),
        "macro_f1 0": macro_f1(Y, predicted, unknown=unknown, absent=0),
        "hamming_accuracy": hamming_accuracy(Y, predicted, unknown=unknown),
        "subset_accuracy": subset_accuracy(Y, predicted, unknown=unknown),
    }


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_scikit_learn(case):
    Y, predicted = CASES[case]
    expected = {
        "example_f1 0": f1_score(Y, predicted, average="samples", zero_division=0),
        "example_f1": f1_score(Y, predicted, average="samples", zero_division=1),
        "micro_f1": f1_score(Y, predicted, average="micro", zero_division=0),
        "macro_f1 0": f1_score(Y, predicted, average="macro", zero_division=0),
        "hamming_accuracy": 1 - hamming_loss(Y, predicted),
        "subset_accuracy": accuracy_score(Y, predicted),
    }
    ours = _ours(Y, predicted)
    assert {name: ours[name] for name in expected} == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("case", [*CASES, "one label"])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_agrees_with_loops_over_the_known_cells(case, share, rng):
    Y, predicted = CASES.get(case, ONE_LABEL)
    unknown = rng.random(Y.shape) < share
    expected = _by_loops(Y, predicted, unknown)
    assert _ours(Y, predicted, unknown) == pytest.approx(expected, abs=1e-12)


def test_sparse_equals_dense(rng):
    Y, predicted = RANDOM
    unknown = rng.random(Y.shape) < 0.2
    sparse = _ours(sp.csr_array(Y), sp.csr_array(predicted), sp.csr_array(unknown))
    assert sparse == _ours(Y, predicted, unknown)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_counts_of_tensors_with_leading_axes_equal_numpy(dtype, rng):
    true = rng.random((20, 5)) < 0.3
    guesses = rng.random((2, 3, 20, 5)) < 0.3
    guesses[0, 0] = False
    true[:4] = False
    t, g = torch.as_tensor(true).to(dtype), torch.as_tensor(guesses).to(dtype)
    known = torch.full((20,), 5)
    counts = Counts(
        (t * g).sum(-2), g.sum(-2), t.sum(-2), (t * g).sum(-1), g.sum(-1), t.sum(-1), known
    )
    for name in ("example_f1", "micro_f1", "macro_f1", "hamming_accuracy", "subset_accuracy"):
        for empty in ("skip", 0, 1):
            values = counts.value(name, empty)
            expected = [
                [float(count(true, g).value(name, empty)) for g in line] for line in guesses
            ]
            np.testing.assert_allclose(values.numpy(), expected, rtol=0, atol=1e-6)
    for absent in ("skip", 0):
        expected = [[float(count(true, g).macro_f1(absent)) for g in line] for line in guesses]
        np.testing.assert_allclose(counts.macro_f1(absent).numpy(), expected, rtol=0, atol=1e-6)


def test_the_number_of_known_cells_may_have_leading_axes_too():
    zeros, known = torch.zeros(2, 3), torch.tensor([[0, 0], [3, 3]])
    wrong = torch.tensor([[0, 0, 0], [1, 2, 0]])
    counts = Counts(zeros, wrong, zeros, zeros, zeros, zeros, known)
    assert counts.hamming_accuracy().tolist() == [0, 0.5]


def test_label_table_has_the_ratios_of_each_label():
    table = label_table([[1, 0, 0], [1, 1, 0]], [[1, 0, 0], [0, 0, 0]])
    assert table["true"].tolist() == [2, 1, 0]
    assert table["predicted"].tolist() == [1, 0, 0]
    np.testing.assert_array_equal(table["precision"], [1, np.nan, np.nan])
    np.testing.assert_array_equal(table["recall"], [0.5, 0, np.nan])
    np.testing.assert_array_equal(table["f1"], [2 / 3, 0, np.nan])


@pytest.mark.parametrize(
    ("Y", "predicted", "unknown", "message"),
    [
        ([[1, 0]], [[1, 0, 0]], None, "they must agree"),
        ([[1, 0]], [[1, 0]], [[True]], "mask of unknown labels has shape"),
        ([[1, 0]], [[0.7, 0.1]], None, "apply a threshold"),
        ([[1, np.nan]], [[1, 0]], None, "pass unknown labels as a mask"),
        ([1, 0], [1, 0], None, "two-dimensional"),
    ],
)
def test_bad_input_is_named(Y, predicted, unknown, message):
    with pytest.raises(InputError, match=message):
        micro_f1(Y, predicted, unknown=unknown)


def test_unknown_names_are_rejected():
    counts = count([[1]], [[1]])
    with pytest.raises(InputError, match="no metric 'accuracy'"):
        counts.value("accuracy")
    with pytest.raises(InputError, match="empty must be"):
        counts.example_f1("drop")
    with pytest.raises(InputError, match="absent must be"):
        counts.macro_f1("drop")
