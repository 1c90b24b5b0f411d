"""Ranking metrics against scikit-learn and plain loops."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import (
    coverage_error,
    label_ranking_average_precision_score,
    label_ranking_loss,
)

from cgmvae import evaluation
from cgmvae.errors import InputError
from cgmvae.evaluation import precision_at_k, score_report

KS = (1, 2, 3, 50)


def _case(n_samples, n_labels, levels=None, density=0.3, seed=10):
    """Labels, and scores that know something about them; few ``levels`` make ties."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n_samples, n_labels)) < density).astype(int)
    scores = rng.random(Y.shape) + 0.3 * Y
    return Y, scores if levels is None else np.floor(scores * levels) / levels


Y, SCORES = _case(60, 8)
CASES = {
    "distinct": (Y, SCORES),
    "ties": _case(60, 8, levels=4, seed=11),
    "ties among many labels": _case(6, 200, levels=3, seed=15),
    "rare labels": _case(50, 9, density=0.04, seed=12),
    "constant": (Y, np.full(Y.shape, 0.5)),
    "no labels": (np.zeros_like(Y), SCORES),
    "all labels": (np.ones_like(Y), SCORES),
    "one row": _case(1, 6, seed=13),
    "one label": _case(20, 1, seed=14),
    "infinite": (Y, np.where(SCORES < 0.5, -np.inf, np.where(SCORES > 1, np.inf, 0.7))),
}
every_case = pytest.mark.parametrize("case", CASES)


def _mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else math.nan


def _average_precision(true, scores):
    """Mean over true cells of the fraction of true cells with at least the same score."""
    reach = [[t for t, s in zip(true, scores, strict=True) if s >= own] for own in scores]
    return _mean([sum(r) / len(r) for r, t in zip(reach, true, strict=True) if t])


def _auc(true, scores):
    high = [s for t, s in zip(true, scores, strict=True) if t]
    low = [s for t, s in zip(true, scores, strict=True) if not t]
    return _mean([(h > f) + 0.5 * (h == f) for h in high for f in low])


def _row_by_loops(true, scores):
    """Return the value of one row in each metric, None where it is skipped."""
    if not true:
        return {}
    order = sorted(range(len(true)), key=lambda j: (-scores[j], j))
    ranked, n_true = [true[j] for j in order], sum(true)
    low = [s for t, s in zip(true, scores, strict=True) if t]
    bad = [f >= own for f, t in zip(scores, true, strict=True) if not t for own in low]
    row = {
        "coverage": sum(s >= min(low) for s in scores) if low else 0,
        "ranking_loss": sum(bad) / len(bad) if bad else 0,
        "label_ranking_average_precision": _average_precision(true, scores) if low else 1,
        "one_error": 1 - ranked[0],
    }
    for k in KS:
        row[f"precision_at_{k}"] = sum(ranked[:k]) / min(k, len(true))
        row[f"recall_at_{k}"] = sum(ranked[:k]) / n_true if n_true else None
        gain = sum(t / math.log2(i + 2) for i, t in enumerate(ranked[:k]))
        best = sum(1 / math.log2(i + 2) for i in range(min(n_true, k)))
        row[f"ndcg_at_{k}"] = gain / best if n_true else None
    return row


def _by_loops(Y, scores, unknown):
    def lines(Y, scores, unknown):
        for true, score, mask in zip(Y.tolist(), scores.tolist(), unknown.tolist(), strict=True):
            keep = [j for j, hidden in enumerate(mask) if not hidden]
            yield [true[j] for j in keep], [score[j] for j in keep]

    rows = [_row_by_loops(*line) for line in lines(Y, scores, unknown)]
    flat = (x.reshape(1, -1) for x in (Y, scores, unknown))
    mixed = [line for line in lines(Y.T, scores.T, unknown.T) if 0 < sum(line[0]) < len(line[0])]
    cells = [line for line in lines(*flat) if 0 < sum(line[0]) < len(line[0])]
    names = _row_by_loops([1], [0.0])
    return {name: _mean([row.get(name) for row in rows]) for name in names} | {
        "macro_auc": _mean([_auc(*line) for line in mixed]),
        "micro_auc": _mean([_auc(*line) for line in cells]),
        "macro_average_precision": _mean([_average_precision(*line) for line in mixed]),
        "micro_average_precision": _mean([_average_precision(*line) for line in cells]),
    }


@every_case
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_agrees_with_loops_over_the_known_cells(case, share, rng):
    Y, scores = CASES[case]
    unknown = rng.random(Y.shape) < share
    report = score_report(Y, scores, unknown=unknown, ks=KS)
    expected = _by_loops(Y, scores, unknown)
    assert report == pytest.approx(expected, abs=1e-12, nan_ok=True)


@every_case
def test_the_report_is_made_of_the_functions(case, rng):
    Y, scores = CASES[case]
    unknown = rng.random(Y.shape) < 0.2
    for name, value in score_report(Y, scores, unknown=unknown, ks=(1, 2)).items():
        stem, _, k = name.rpartition("_")
        if stem.endswith("_at"):
            single = getattr(evaluation, f"{stem}_k")(Y, scores, int(k), unknown=unknown)
        else:
            single = getattr(evaluation, name)(Y, scores, unknown=unknown)
        assert single == pytest.approx(value, abs=0, nan_ok=True), name


@pytest.mark.parametrize(
    "case", ["distinct", "ties", "constant", "no labels", "all labels", "one row"]
)
def test_rows_agree_with_scikit_learn(case):
    Y, scores = CASES[case]
    report = score_report(Y, scores)
    expected = {
        "coverage": coverage_error(Y, scores),
        "ranking_loss": label_ranking_loss(Y, scores),
        "label_ranking_average_precision": label_ranking_average_precision_score(Y, scores),
    }
    assert {name: report[name] for name in expected} == pytest.approx(expected, abs=1e-12)


def test_sparse_equals_dense(rng):
    Y, scores = CASES["ties"]
    unknown = rng.random(Y.shape) < 0.2
    sparse = score_report(sp.csr_array(Y), scores, unknown=sp.csr_array(unknown))
    assert sparse == pytest.approx(score_report(Y, scores, unknown=unknown), abs=0, nan_ok=True)


def test_of_equal_scores_the_lower_column_comes_first():
    scores = [[0.5, 0.5, 0.5]]
    for k in (1, 2):
        assert precision_at_k([[1, 0, 0]], scores, k) == 1 / k
        assert precision_at_k([[0, 0, 1]], scores, k) == 0
    assert evaluation.ndcg_at_k([[0, 1, 0]], scores, 3) == pytest.approx(1 / math.log2(3))


def test_an_unknown_label_is_never_ranked_even_when_known_scores_are_minus_infinity():
    unknown = np.array([[True, False, False]])
    assert precision_at_k([[0, 1, 0]], [[9.0, -np.inf, -np.inf]], 1, unknown=unknown) == 1
    assert precision_at_k([[0, 1, 1]], [[9.0, -np.inf, -np.inf]], 2, unknown=unknown) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 0]], [[0.1, np.nan]]), "The scores contain NaN"),
        (([[1, 0]], [[0.1]]), "they must agree"),
        (([[1, 0]], [0.1, 0.2]), "two-dimensional"),
        (([[1, 0]], [[0.1, 0.2]], 0), "k must be an integer"),
        (([[1, 0]], [[0.1, 0.2]], 1.5), "k must be an integer"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        precision_at_k(*arguments)
