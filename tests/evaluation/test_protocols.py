"""The three protocols: which rows choose the thresholds, and what that gives."""

import numpy as np
import pytest

from cgmvae.errors import InputError
from cgmvae.evaluation import (
    PAPER_METRICS,
    PROTOCOLS,
    GlobalThreshold,
    Scored,
    TopK,
    count,
    evaluate,
    precision_at_k,
)
from cgmvae.evaluation.metrics import THRESHOLDED_METRICS
from cgmvae.evaluation.thresholds import NINE_THRESHOLDS


def _rows(seed, n_samples=60, n_labels=6):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n_samples, n_labels)) < 0.3).astype(int)
    scores = np.clip(0.3 * rng.standard_normal(Y.shape) + 0.3 + 0.3 * Y, 0, 1)
    return Scored(Y, scores, rng.random(Y.shape) < 0.1)


def _settings(evaluation):
    return {name: repr(rule) for name, rule in evaluation.rules.items()}


@pytest.mark.parametrize("protocol", ["validation", "validation-per-metric"])
@pytest.mark.parametrize("rule", ["global", "per-label", "top-k"])
def test_no_test_label_reaches_the_rules(protocol, rule):
    test, validation = _rows(0), _rows(1)
    altered = test._replace(labels=1 - test.labels)
    before, after = (
        evaluate(rows, validation, protocol=protocol, rule=rule) for rows in (test, altered)
    )
    assert _settings(before) == _settings(after)
    assert before.metrics != after.metrics


def test_the_oracle_does_look_at_the_test_labels():
    test = _rows(0)
    altered = test._replace(labels=1 - test.labels)
    before, after = (evaluate(rows, protocol="test-oracle") for rows in (test, altered))
    assert _settings(before) != _settings(after)


@pytest.mark.parametrize("empty", ["skip", 0, 1])
@pytest.mark.parametrize("seed", range(2))
def test_the_oracle_is_at_least_as_good_as_any_of_the_nine_thresholds(seed, empty):
    test, validation = _rows(seed), _rows(seed + 100)
    given = {"empty": empty, "absent": 0}
    oracle = evaluate(test, protocol="test-oracle", empty=empty).metrics
    chosen = evaluate(test, validation, protocol="validation-per-metric", **given).metrics
    fixed = [
        evaluate(test, rule=GlobalThreshold(float(t)), **given).metrics for t in NINE_THRESHOLDS
    ]
    for name in THRESHOLDED_METRICS:
        assert oracle[name] >= chosen[name]
        assert oracle[name] == max(metrics[name] for metrics in fixed)


def test_one_rule_serves_all_metrics_under_validation():
    test, validation = _rows(0), _rows(1)
    result = evaluate(test, validation, metric="example_f1")
    assert len(set(_settings(result).values())) == 1
    predicted = result.rules["micro_f1"].apply(test.scores)
    counts = count(test.labels, predicted, test.unknown)
    for name in THRESHOLDED_METRICS:
        assert result.metrics[name] == counts.value(name)


def test_only_a_rule_of_its_own_is_finer_than_the_nine_thresholds():
    rows = Scored(np.array([[1], [0]]), np.array([[0.558], [0.542]]))
    assert evaluate(rows, rows).metrics["micro_f1"] == 1
    for protocol in ("validation-per-metric", "test-oracle"):
        assert evaluate(rows, rows, protocol=protocol).metrics["micro_f1"] < 1


def test_a_learned_rule_needs_no_validation_rows():
    test = _rows(0)
    result = evaluate(test, rule=TopK(2))
    expected = count(test.labels, TopK(2).apply(test.scores), test.unknown).micro_f1()
    assert result.metrics["micro_f1"] == expected
    assert result.rules == dict.fromkeys(THRESHOLDED_METRICS, TopK(2))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_result_says_how_it_was_made(protocol):
    test = _rows(0)
    result = evaluate(test, _rows(1), protocol=protocol, empty=1)
    assert (result.protocol, result.empty) == (protocol, 1)
    assert tuple(result.metrics) == PAPER_METRICS
    assert result.values() == list(result.metrics.values())
    expected = precision_at_k(test.labels, test.scores, 1, unknown=test.unknown)
    assert result.metrics["precision_at_1"] == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cells_under_the_mask_of_unknown_labels_change_nothing(protocol):
    test, validation = _rows(0), _rows(1)
    flipped = [
        rows._replace(
            labels=np.where(rows.unknown, 1 - rows.labels, rows.labels),
            scores=np.where(rows.unknown, 1 - rows.scores, rows.scores),
        )
        for rows in (test, validation)
    ]
    before = evaluate(test, validation, protocol=protocol)
    after = evaluate(*flipped, protocol=protocol)
    assert before.metrics == after.metrics
    assert _settings(before) == _settings(after)


def test_the_rule_is_learned_with_rows_without_labels_counted_as_asked():
    rows = Scored(np.array([[1], [0], [0]]), np.array([[0.3], [0.5], [0.5]]))
    given = {"validation": rows, "metric": "example_f1"}
    assert evaluate(rows, **given, empty="skip").metrics["example_f1"] == pytest.approx(1 / 3)
    assert evaluate(rows, **given, empty=1).metrics["example_f1"] == pytest.approx(2 / 3)


def test_macro_f1_is_over_labels_that_occur_but_in_the_papers_protocol():
    Y = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]])
    found = {
        p: evaluate(Scored(Y, Y.astype(float)), protocol=p, rule=TopK(2))
        for p in ("validation", "test-oracle")
    }
    assert {p: each.n_occurring for p, each in found.items()} == dict.fromkeys(found, 2)
    by_label = [4 / 5, 4 / 5]
    assert found["validation"].metrics["macro_f1"] == pytest.approx(np.mean(by_label))
    assert found["test-oracle"].metrics["macro_f1"] == pytest.approx(2 / 3)
    papers = evaluate(Scored(Y, Y.astype(float)), rule=TopK(2), absent=0)
    assert papers.metrics["macro_f1"] == pytest.approx(sum(by_label) / 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "test"}, "no protocol 'test'"),
        ({"rule": "best"}, "no rule 'best'"),
        ({"metric": "accuracy"}, "no metric 'accuracy'"),
        ({"validation": None}, "needs validation rows"),
        ({"validation": None, "protocol": "validation-per-metric"}, "needs validation rows"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        evaluate(_rows(0), **({"validation": _rows(1)} | options))
