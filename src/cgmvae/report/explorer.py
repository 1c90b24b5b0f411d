"""What the label explorer of a page needs, as compact arrays.

The page's scripts (``templates/scripts``) unpack them into typed arrays. A score becomes the number
of thresholds of ``GRID`` that it reaches, so that comparing with such a threshold in the page gives
what :mod:`cgmvae.evaluation.thresholds` gives: the numbers shown are the library's own.
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
from cgmvae.report.figures.association import association, pair_counts
from cgmvae.report.figures.label_map import label_frequency
from cgmvae.report.figures.planes import scaled_plane
from cgmvae.report.figures.similarity import LabelSimilarityDisplay, label_distances
from cgmvae.report.rows import ReportRows

#: Steps between 0 and 1 that a threshold can take in the page.
STEPS = 10_000
GRID = np.arange(1, STEPS + 1) / STEPS

#: The code of a cell whose label nobody knows, above every threshold's.
UNKNOWN = 2**16 - 1

#: The code of a pair of labels that cannot be measured.
NOT_MEASURED = -(2**15)

#: Steps of a stored correlation or similarity, and of the logarithm of a lift.
_PAIR_STEPS, _LIFT_STEPS = 10_000, 1_000

#: The most rows and labels that a page carries.
MAX_ROWS, MAX_LABELS = 2_000, 1_500

_N_CLUSTERS = 7


@dataclass(frozen=True, eq=False)
class Explorer:
    """Labels, pairs of labels and test rows, ready to be packed.

    Attributes
    ----------
    names : tuple of str
        Labels that the page carries, (n_labels,): all of them or the commonest.
    labels : array of int, (n_labels,)
        Their places among the model's labels.
    rows : array of int, (n_rows,)
        Their places among the test rows: all of them or a seeded sample.
    arrays : dict of str to array
        See :func:`explore`.
    facts : dict
        What is no array, as JSON can hold it.
    """

    names: tuple[str, ...]
    labels: NDArray[np.int64]
    rows: NDArray[np.int64]
    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]

    def packed(self) -> dict[str, Any]:
        """Return a record for JSON; arrays are base64 text, little-endian."""
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
    """Collect what the page needs.

    Parameters
    ----------
    model : estimator
        Fitted; its rule and its label names are taken.
    rows : ReportRows
    scores : array, (n_test, n_labels)
        The model's probabilities for the test rows.
    similarity : array, (n_labels, n_labels)
    max_rows, max_labels : int
        Beyond these, a seeded sample of the rows and the commonest labels are taken.
    """
    frequency = label_frequency(rows.reference, model.label_names_)
    labels = np.sort(np.argsort(-frequency, kind="stable")[:max_labels])
    kept = _sampled(rows.test.n_samples, max_rows)
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
    facts = {
        "rule": rule,
        "precision_at_1": _number(precision_at_k(true, given, 1, unknown=~known)),
        "n_known": int(known.sum()),
        "reference": "rows" if rows.train is None else "training rows",
    }
    names = tuple(model.label_names_[i] for i in labels)
    return Explorer(names, labels, kept, arrays, facts)


def _cells(
    rows: ReportRows, kept: NDArray[np.int64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which cells are known to be true, and which are known, (n_rows, n_labels) each."""
    places = np.ix_(kept, labels)
    true = as_bool(rows.test.Y)[places]
    if rows.test.unknown is None:
        return true, np.ones(true.shape, bool)
    known = ~as_bool(rows.test.unknown)[places]
    return true & known, known


def _sampled(n_rows: int, most: int) -> NDArray[np.int64]:
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))


def _coded(
    scores: NDArray[np.floating],
    rule: ThresholdRule,
    labels: NDArray[np.int64],
    all_scores: NDArray[np.floating],
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Return the code of each score, (n_rows, n_labels), and the rule in terms of codes."""
    codes = np.searchsorted(GRID.astype(scores.dtype), scores, side="right")
    if isinstance(rule, TopK):
        given = np.packbits(rule.apply(all_scores)[:, labels].astype(bool), bitorder="little")
        start = {"threshold": STEPS // 2}
        return codes, {"kind": "top-k", "k": rule.k, **start, "arrays": {"own": given}}
    if isinstance(rule, GlobalThreshold):
        own = np.full(len(labels), rule.threshold)
    else:
        own = rule.thresholds[labels]
    # A threshold between two of the grid becomes the upper one, and so do the scores between it
    # and that: the labels it gives stay the same.
    places = np.searchsorted(GRID, own, side="left") + 1
    passed = scores >= own.astype(scores.dtype)
    codes = np.where(passed, np.maximum(codes, places), np.minimum(codes, places - 1))
    kind = "global" if isinstance(rule, GlobalThreshold) else "per-label"
    start = {"threshold": int(np.median(places))}
    return codes, {"kind": kind, **start, "arrays": {"thresholds": places.astype(np.uint16)}}


def _surprise(
    true: NDArray[np.bool_], scores: NDArray[np.floating], known: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Return the mean cross-entropy of each row's known cells, (n_rows,)."""
    smallest = 1 / STEPS
    p = np.clip(np.where(true, scores, 1 - scores), smallest, 1)
    return (np.where(known, -np.log(p), 0).sum(1) / known.sum(1).clip(1)).astype(np.float32)


def _label_arrays(similarity: NDArray[np.floating]) -> dict[str, NDArray[Any]]:
    """Return order, cluster and place in the map of each label, (n_labels,), last (n_labels, 2)."""
    order = LabelSimilarityDisplay.from_similarity(similarity).order
    return {
        "order": order.astype(np.uint16),
        "cluster": _clusters(similarity).astype(np.uint8),
        "map": scaled_plane(similarity).coordinates.astype(np.float32),
    }


def _clusters(similarity: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the cluster of each label, the largest first, (n_labels,)."""
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
    """Return what is known of each pair of labels, i < j in order, (n_pairs,) each."""
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
    """Return numbers as whole steps; what is not finite becomes ``NOT_MEASURED``."""
    whole = np.round(values * steps)
    whole = np.clip(np.nan_to_num(whole, nan=NOT_MEASURED), -(2**15) + 1, 2**15 - 1)
    return np.where(np.isfinite(values), whole, NOT_MEASURED).astype(np.int16)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value


def _packed(array: NDArray[Any]) -> dict[str, str]:
    plain = np.ascontiguousarray(array)
    little = plain.astype(plain.dtype.newbyteorder("<"))
    return {"type": plain.dtype.name, "data": base64.b64encode(little.tobytes()).decode("ascii")}
