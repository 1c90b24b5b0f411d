"""The data of a page's label explorer, as compact arrays.

The page's scripts (``templates/scripts``) decode them into typed arrays. A score is stored as the
number of thresholds in ``GRID`` that it reaches, so that comparing it with such a threshold in the
page gives the same labels as :mod:`cgmvae.evaluation.thresholds`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.evaluation import precision_at_k
from cgmvae.evaluation.metrics import as_bool
from cgmvae.evaluation.thresholds import GlobalThreshold, ThresholdRule, TopK
from cgmvae.methods.communities import factors_of
from cgmvae.methods.conditioning import LabelFactors, observed_by_labels, probits
from cgmvae.report.figures.maps import label_frequency, scaled_plane
from cgmvae.report.figures.similarity import (
    LabelSimilarityDisplay,
    association,
    label_distances,
    pair_counts,
)
from cgmvae.report.rows import ReportRows

#: Smallest correlation, and similarity, that a list of labels mentions: a rank alone would make
#: noise the first of each list.
FLOOR = 0.1

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

#: Maximum number of clusters, the colors that can be told apart; few labels have fewer.
_MAX_CLUSTERS = 7

#: Radius of a rare label's dot on the map, at most, and when it has to leave room for many others;
#: the most frequent label's dot is this many times as large. A map has a side of 1.
_MAX_RADIUS, _RADIUS_SHARE, _MAX_DOT = 0.008, 0.16, 2.5

#: Share of the map's side that the labels take before they are moved apart, and rounds to do so.
_MAP_SHARE, _MAX_ROUNDS = 0.86, 200


@dataclass(frozen=True, eq=False)
class Explorer:
    """Labels, pairs of labels and test rows in compact form."""

    names: tuple[str, ...]
    """The labels in the page, (n_labels,): all of them or the most frequent."""
    labels: NDArray[np.int64]
    """Their indices among the model's labels, (n_labels,)."""
    rows: NDArray[np.int64]
    """Indices of the test rows in the page, (n_rows,): all of them or a seeded sample."""
    arrays: dict[str, NDArray[Any]]
    """See :func:`explore`."""
    facts: dict[str, Any]
    """Everything but arrays, as JSON values."""

    def packed(self) -> dict[str, Any]:
        """Return a record for JSON, with arrays as little-endian base64."""
        arrays = {}
        for name, array in self.arrays.items():
            little = array.astype(array.dtype.newbyteorder("<")).tobytes()
            data = base64.b64encode(little).decode("ascii")
            arrays[name] = {"type": array.dtype.name, "data": data}
        return {"names": list(self.names), **self.facts, "arrays": arrays}


def explore(
    model: Any,
    rows: ReportRows,
    scores: NDArray[np.floating],
    similarity: NDArray[np.floating],
    *,
    labels: NDArray[np.int64] | None = None,
    describe_row: Callable[[int], str] = lambda _: "",
) -> Explorer:
    """Collect the data of the explorer, for all labels or for those with these indices.

    Larger data is reduced to a seeded sample of the rows and to the most frequent labels.

    Of the model, only its threshold rule, its label names and what it learned about labels beyond
    the features are used; ``scores``, (n_test, n_labels), are its probabilities for the test rows;
    ``describe_row`` returns a few words about a test row, by its index.
    """
    frequency = label_frequency(rows.reference, model.label_names_)
    labels = np.arange(len(frequency)) if labels is None else labels
    labels = np.sort(labels[np.argsort(-frequency[labels], kind="stable")[:MAX_LABELS]])
    kept = np.arange(n_rows := rows.test.n_samples)
    if n_rows > MAX_ROWS:
        kept = np.sort(np.random.default_rng(0).choice(n_rows, MAX_ROWS, replace=False))
    cells = np.ix_(kept, labels)
    given, unknown = scores[cells], rows.test.unknown
    known = np.ones(given.shape, bool) if unknown is None else ~as_bool(unknown)[cells]
    true = as_bool(rows.test.Y)[cells] & known
    codes, rule = _coded(given, model.threshold_rule_, labels, scores[kept])
    pairs = similarity[np.ix_(labels, labels)]
    # The mean cross-entropy over the known cells of each row.
    loss = -np.log(np.clip(np.where(true, given, 1 - given), 1 / STEPS, 1))
    entropy = np.where(known, loss, 0).sum(1) / known.sum(1).clip(1)
    arrays = {
        "scores": np.where(known, codes, UNKNOWN).astype(np.uint16),  # (n_rows, n_labels)
        "truth": np.packbits(true, bitorder="little"),  # (n_rows · n_labels / 8,)
        "numbers": rows.numbers[kept].astype(np.uint32),  # (n_rows,)
        "surprise": entropy.astype(np.float32),  # (n_rows,)
        "frequency": frequency[labels].astype(np.uint32),  # (n_labels,)
        "order": LabelSimilarityDisplay.from_similarity(pairs).order.astype(np.uint16),
        "cluster": _clusters(pairs),  # (n_labels,)
        **_label_map(scaled_plane(pairs).coordinates, frequency[labels]),
        **_pair_arrays(rows, labels, pairs),
        **_residual_arrays(model, labels),
        **rule.pop("arrays"),
    }
    given_facts: dict[str, Any] = {}
    if (factors := factors_of(model)) is not None:
        typical = scores.mean(0, dtype=np.float64)
        arrays |= _factor_arrays(factors, typical, labels)
        given_facts = {"strengths": factors.strengths.tolist(), "expected": typical.sum()}
    ids = rows.test.ids
    precision = precision_at_k(true, given, 1, unknown=~known)
    facts = {
        "rule": rule,
        "precision_at_1": None if np.isnan(precision) else precision,
        "n_known": int(known.sum()),
        "row_texts": [describe_row(row) for row in kept.tolist()],
        "row_ids": None if ids is None else [str(ids[row]) for row in kept],
        "reference": "rows" if rows.train is None else "training rows",
        "floor": FLOOR,
        **given_facts,
    }
    names = tuple(model.label_names_[i] for i in labels)
    return Explorer(names, labels, kept, arrays, facts)


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
        facts = {"kind": "top-k", "k": rule.k, "threshold": STEPS // 2}
        return codes, {**facts, "arrays": {"own": given}}
    if isinstance(rule, GlobalThreshold):
        kind, own = "global", np.full(len(labels), rule.threshold)
    else:
        kind, own = "per-label", rule.thresholds[labels]
    # A threshold between two of the grid is rounded up, and so are the scores between it and the
    # upper one: the predicted labels do not change.
    steps = np.searchsorted(GRID, own, side="left") + 1
    passed = scores >= own.astype(scores.dtype)
    codes = np.where(passed, np.maximum(codes, steps), np.minimum(codes, steps - 1))
    facts = {"kind": kind, "threshold": int(np.median(steps))}
    return codes, {**facts, "arrays": {"thresholds": steps.astype(np.uint16)}}


def _clusters(similarity: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return the cluster of each label, numbered by decreasing size, (n_labels,)."""
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(similarity) < 3:
        return np.zeros(len(similarity), np.uint8)
    n_clusters = min(_MAX_CLUSTERS, round(np.sqrt(len(similarity))))
    tree = linkage(label_distances(similarity), "ward")
    found = fcluster(tree, n_clusters, "maxclust") - 1
    rank = np.empty(n_clusters, np.uint8)
    rank[np.argsort(-np.bincount(found, minlength=n_clusters), kind="stable")] = range(n_clusters)
    return rank[found]


def _label_map(
    coordinates: NDArray[np.floating], frequency: NDArray[np.floating]
) -> dict[str, NDArray[np.float32]]:
    """Return centers, (n_labels, 2), and radii of the dots on a map, so that none overlap.

    The map is the unit square, its second axis downwards.
    """
    low, high = coordinates.min(0), coordinates.max(0)
    scale = _MAP_SHARE / ((high - low).max() or 1.0)
    centers = 0.5 + (coordinates - (low + high) / 2) * scale * [1, -1]
    smallest = min(_MAX_RADIUS, _RADIUS_SHARE / np.sqrt(len(centers)))
    share = np.sqrt(frequency / frequency.max().clip(1))
    radii = smallest * (1 + (_MAX_DOT - 1) * share)
    while not _move_apart(centers, radii):
        radii *= 0.8
    return {"map": centers.astype(np.float32), "radius": radii.astype(np.float32)}


def _move_apart(centers: NDArray[np.float64], radii: NDArray[np.float64]) -> bool:
    """Move dots in place until none overlap, each as little as it must; return whether it worked.

    Every round moves the dots of each overlapping pair apart along the line between them.
    """
    from scipy.spatial import cKDTree

    golden = np.pi * (3 - np.sqrt(5)) * np.arange(len(centers))  # where two dots coincide
    sideways = np.column_stack([np.cos(golden), np.sin(golden)])
    for _ in range(_MAX_ROUNDS):
        pairs = cKDTree(centers).query_pairs(2.2 * radii.max(), output_type="ndarray")
        first, second = pairs.T
        apart = centers[first] - centers[second]
        distance = np.hypot(*apart.T)
        room = 1.1 * (radii[first] + radii[second])  # a tenth of the dots' size between them
        if (distance > 0.95 * room).all():
            return True
        near = distance < room
        first, second, apart, distance = first[near], second[near], apart[near], distance[near]
        apart = np.where(distance[:, None] > 0, apart, sideways[first])
        step = apart / np.hypot(*apart.T)[:, None] * ((room[near] - distance) / 2)[:, None]
        np.add.at(centers, first, step)
        np.add.at(centers, second, -step)
        np.clip(centers, radii[:, None], 1 - radii[:, None], out=centers)
    return False


def _pair_arrays(
    rows: ReportRows, labels: NDArray[np.int64], similarity: NDArray[np.floating]
) -> dict[str, NDArray[Any]]:
    """Return the values of each pair of labels i < j, (n_pairs,) each."""
    pairs = np.triu_indices(len(labels), 1)
    Y, unknown = rows.reference.Y, rows.reference.unknown
    counts = pair_counts(Y[:, labels], None if unknown is None else unknown[:, labels])
    with np.errstate(invalid="ignore", divide="ignore"):
        log_lift = np.log2(counts.both * counts.known / (counts.first * counts.first.T))
    together = counts.both[pairs]
    small = together.max(initial=0) < 2**16
    return {
        "similarity": _steps(similarity[pairs], _PAIR_STEPS),
        "correlation": _steps(association(counts)[pairs], _PAIR_STEPS),
        "log_lift": _steps(log_lift[pairs], _LIFT_STEPS),
        "together": together.astype(np.uint16 if small else np.uint32),
    }


def _residual_arrays(model: Any, labels: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return the correlation of each pair beyond the features, and whether it is certain."""
    if getattr(model, "label_pairs_", None) is None or factors_of(model) is None:
        return {}
    found = model.label_correlation("residual")
    value, lower, upper = (each[np.ix_(labels, labels)] for each in found)
    certain = (np.abs(value) >= FLOOR) & ((lower > 0) | (upper < 0))
    pairs = np.triu_indices(len(labels), 1)
    return {
        "residual": _steps(value[pairs], _PAIR_STEPS),
        "certain": np.packbits(certain[pairs], bitorder="little"),
    }


def _factor_arrays(
    factors: LabelFactors, typical: NDArray[np.float64], labels: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Return what the page needs to predict labels from others, at these probabilities."""
    return {
        "loadings": factors.loadings[labels],  # (n_labels, n_factors)
        "typical": probits(typical[labels]).numpy().astype(np.float32),  # (n_labels,)
        "observed": observed_by_labels(typical[labels]),  # (4, n_labels)
    }


def _steps(values: NDArray[np.floating], steps: int) -> NDArray[np.int16]:
    """Quantize values; what is not finite becomes ``UNDEFINED``."""
    whole = np.round(values * steps)
    whole = np.clip(np.nan_to_num(whole, nan=UNDEFINED), -(2**15) + 1, 2**15 - 1)
    return np.where(np.isfinite(values), whole, UNDEFINED).astype(np.int16)
