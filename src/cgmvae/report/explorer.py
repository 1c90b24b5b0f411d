"""The data of a page's label explorer, as compact arrays.

The page's scripts (``templates/scripts``) decode them into typed arrays. A score is stored as the
number of thresholds in ``GRID`` that it reaches, so that comparing it with such a threshold in the
page gives the same labels as :mod:`cgmvae.evaluation.thresholds`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.evaluation import precision_at_k
from cgmvae.evaluation.metrics import as_bool
from cgmvae.evaluation.thresholds import GlobalThreshold, ThresholdRule, TopK
from cgmvae.report.figures.maps import label_frequency, scaled_plane
from cgmvae.report.figures.similarity import (
    LabelSimilarityDisplay,
    association,
    label_distances,
    pair_counts,
)
from cgmvae.report.rows import ReportRows

#: Number of steps between 0 and 1 that a threshold can take in the page.
STEPS = 10_000
GRID = np.arange(1, STEPS + 1) / STEPS

#: The code of an unknown cell, above that of every threshold.
UNKNOWN = 2**16 - 1

#: The code of an undefined value of a pair of labels.
UNDEFINED = -(2**15)

#: Resolution of a stored correlation or similarity, and of the logarithm of a lift.
_PAIR_STEPS, _LIFT_STEPS = 10_000, 1_000

#: Maximum number of rows and labels in a page.
MAX_ROWS, MAX_LABELS = 2_000, 1_500

_N_CLUSTERS = 7


@dataclass(frozen=True, eq=False)
class Explorer:
    """Labels, pairs of labels and test rows in compact form.

    Attributes
    ----------
    names : tuple of str
        The labels in the page, (n_labels,): all of them or the most frequent.
    labels : array of int, (n_labels,)
        Their indices among the model's labels.
    rows : array of int, (n_rows,)
        Indices of the test rows in the page: all of them or a seeded sample.
    arrays : dict of str to array
        See :func:`explore`.
    facts : dict
        Everything but arrays, as JSON values.
    """

    names: tuple[str, ...]
    labels: NDArray[np.int64]
    rows: NDArray[np.int64]
    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]

    def packed(self) -> dict[str, Any]:
        """Return a record for JSON, with arrays as little-endian base64."""
        return {
            "names": list(self.names),
            **self.facts,
            "arrays": {name: _packed(array) for name, array in self.arrays.items()},
        }


def explore(
    model: Any,
    rows: ReportRows,
    scores: NDArray[np.floating],
    similarity: NDArray[np.floating],
    *,
    max_rows: int = MAX_ROWS,
    max_labels: int = MAX_LABELS,
) -> Explorer:
    """Collect the data of the explorer.

    Parameters
    ----------
    model : estimator
        Fitted; only its threshold rule and its label names are used.
    rows : ReportRows
    scores : array, (n_test, n_labels)
        The model's probabilities for the test rows.
    similarity : array, (n_labels, n_labels)
    max_rows, max_labels : int
        Larger data is reduced to a seeded sample of the rows and to the most frequent labels.
    """
    frequency = label_frequency(rows.reference, model.label_names_)
    labels = np.sort(np.argsort(-frequency, kind="stable")[:max_labels])
    kept = np.arange(n_rows := rows.test.n_samples)
    if n_rows > max_rows:
        kept = np.sort(np.random.default_rng(0).choice(n_rows, max_rows, replace=False))
    true, known = _cells(rows, kept, labels)
    given = scores[np.ix_(kept, labels)]
    codes, rule = _coded(given, model.threshold_rule_, labels, scores[kept])
    pairs = similarity[np.ix_(labels, labels)]
    arrays = {
        "scores": np.where(known, codes, UNKNOWN).astype(np.uint16),  # (n_rows, n_labels)
        "truth": np.packbits(true, bitorder="little"),  # (n_rows · n_labels / 8,)
        "numbers": rows.numbers[kept].astype(np.uint32),  # (n_rows,)
        "surprise": _surprise(true, given, known),  # (n_rows,)
        "frequency": frequency[labels].astype(np.uint32),  # (n_labels,)
        **_label_arrays(pairs),
        **_pair_arrays(rows, labels, pairs),
        **rule.pop("arrays"),
    }
    precision = precision_at_k(true, given, 1, unknown=~known)
    facts = {
        "rule": rule,
        "precision_at_1": None if np.isnan(precision) else precision,
        "n_known": int(known.sum()),
        "reference": "rows" if rows.train is None else "training rows",
    }
    names = tuple(model.label_names_[i] for i in labels)
    return Explorer(names, labels, kept, arrays, facts)


def _cells(
    rows: ReportRows, kept: NDArray[np.int64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which cells are known to be true, and which are known, (n_rows, n_labels) each."""
    cells = np.ix_(kept, labels)
    true = as_bool(rows.test.Y)[cells]
    if rows.test.unknown is None:
        return true, np.ones(true.shape, bool)
    known = ~as_bool(rows.test.unknown)[cells]
    return true & known, known


def _coded(
    scores: NDArray[np.floating],
    rule: ThresholdRule,
    labels: NDArray[np.int64],
    all_scores: NDArray[np.floating],
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Return the code of each score, (n_rows, n_labels), and the threshold rule as codes."""
    codes = np.searchsorted(GRID.astype(scores.dtype), scores, side="right")
    if isinstance(rule, TopK):
        given = np.packbits(rule.apply(all_scores)[:, labels].astype(bool), bitorder="little")
        start = {"threshold": STEPS // 2}
        return codes, {"kind": "top-k", "k": rule.k, **start, "arrays": {"own": given}}
    if isinstance(rule, GlobalThreshold):
        own = np.full(len(labels), rule.threshold)
    else:
        own = rule.thresholds[labels]
    # A threshold between two of the grid is rounded up, and so are the scores between it and the
    # upper one: the predicted labels do not change.
    steps = np.searchsorted(GRID, own, side="left") + 1
    passed = scores >= own.astype(scores.dtype)
    codes = np.where(passed, np.maximum(codes, steps), np.minimum(codes, steps - 1))
    kind = "global" if isinstance(rule, GlobalThreshold) else "per-label"
    start = {"threshold": int(np.median(steps))}
    return codes, {"kind": kind, **start, "arrays": {"thresholds": steps.astype(np.uint16)}}


def _surprise(
    true: NDArray[np.bool_], scores: NDArray[np.floating], known: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Return the mean cross-entropy over the known cells of each row, (n_rows,)."""
    smallest = 1 / STEPS
    p = np.clip(np.where(true, scores, 1 - scores), smallest, 1)
    return (np.where(known, -np.log(p), 0).sum(1) / known.sum(1).clip(1)).astype(np.float32)


def _label_arrays(similarity: NDArray[np.floating]) -> dict[str, NDArray[Any]]:
    """Return order and cluster of each label, (n_labels,), and its map, (n_labels, 2)."""
    order = LabelSimilarityDisplay.from_similarity(similarity).order
    return {
        "order": order.astype(np.uint16),
        "cluster": _clusters(similarity).astype(np.uint8),
        "map": scaled_plane(similarity).coordinates.astype(np.float32),
    }


def _clusters(similarity: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the cluster of each label, numbered by decreasing size, (n_labels,)."""
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(similarity) < 3:
        return np.zeros(len(similarity), np.int64)
    tree = linkage(label_distances(similarity), "ward")
    found = fcluster(tree, _N_CLUSTERS, "maxclust") - 1
    rank = np.empty(_N_CLUSTERS, np.int64)
    rank[np.argsort(-np.bincount(found, minlength=_N_CLUSTERS), kind="stable")] = range(_N_CLUSTERS)
    return rank[found]


def _pair_arrays(
    rows: ReportRows, labels: NDArray[np.int64], similarity: NDArray[np.floating]
) -> dict[str, NDArray[Any]]:
    """Return the values of each pair of labels i < j, (n_pairs,) each."""
    pairs = np.triu_indices(len(labels), 1)
    unknown = rows.reference.unknown
    counts = pair_counts(
        rows.reference.Y[:, labels], None if unknown is None else unknown[:, labels]
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        log_lift = np.log2(counts.both * counts.known / (counts.first * counts.second))
    together = counts.both[pairs]
    small = together.max(initial=0) < 2**16
    return {
        "similarity": _steps(similarity[pairs], _PAIR_STEPS),
        "correlation": _steps(association(counts)[pairs], _PAIR_STEPS),
        "log_lift": _steps(log_lift[pairs], _LIFT_STEPS),
        "together": together.astype(np.uint16 if small else np.uint32),
    }


def _steps(values: NDArray[np.floating], steps: int) -> NDArray[np.int16]:
    """Quantize values; what is not finite becomes ``UNDEFINED``."""
    whole = np.round(values * steps)
    whole = np.clip(np.nan_to_num(whole, nan=UNDEFINED), -(2**15) + 1, 2**15 - 1)
    return np.where(np.isfinite(values), whole, UNDEFINED).astype(np.int16)


def _packed(array: NDArray[Any]) -> dict[str, str]:
    plain = np.ascontiguousarray(array)
    little = plain.astype(plain.dtype.newbyteorder("<"))
    return {"type": plain.dtype.name, "data": base64.b64encode(little.tobytes()).decode("ascii")}
