"""Learning a Bayesian network over labels (:mod:`~cgmvae.methods.label_structure`) from label rows.

The search is pgmpy's hill climbing, which changes one edge at a time as long as the BIC rises. It
starts again from the best structure with edges turned, which alone changes no score, and every
second time with half of them taken out: where the first climb ends, a label with two parents often
has an edge between these that does not belong there. The score is counted here, over distinct label
sets with their weights: that makes weighted rows possible, and the search many times faster.

Only rows whose labels are all known are counted; there are no edges where none is left.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.methods.inputs import Rows
from cgmvae.methods.label_structure import Edge, LabelStructure

#: Digits of a score that count: what the last ones are depends on the machine's logarithm, and must
#: not decide between structures that are equally good.
_DIGITS = 6

#: Share of the edges that every second restart takes out. Of .2, .3 and .5 the largest led to the
#: best scores on yeast, scene and sider.
_TAKEN_OUT = 0.5


def learn_structures(
    rows: Sequence[Rows], max_parents: int, n_restarts: int
) -> list[LabelStructure]:
    """Learn a structure for each set of rows; one that was learnt already is not learnt again."""
    learnt: dict[bytes, LabelStructure] = {}
    structures = []
    for each in rows:
        label_sets, weights = distinct_label_sets(each)
        key = label_sets.tobytes() + weights.tobytes()
        if key not in learnt:
            edges = learn_edges(label_sets, weights, max_parents, n_restarts)
            learnt[key] = LabelStructure.from_edges(edges, each.labels.shape[1])
        structures.append(learnt[key])
    return structures


def distinct_label_sets(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the label sets among the fully known rows, and how many rows have each.

    Rows count by their weight, scaled such that all together are as many rows as say the same
    without weights, (Σ w)² / Σ w² (Kish 1965): a factor in the weights changes nothing.
    """
    labels, weights = rows.labels, rows.row_weights()
    if rows.unknown is not None:
        known = np.asarray(rows.unknown.sum(axis=1)).ravel() == 0
        labels, weights = labels[known], weights[known]
    labels = dense(labels).astype(np.int64)
    if len(labels) == 0:
        return labels, weights
    label_sets, places = np.unique(labels, axis=0, return_inverse=True)
    weights = weights * weights.sum() / (weights**2).sum()
    return label_sets, np.bincount(places.ravel(), weights).astype(np.float64)


def learn_edges(
    label_sets: NDArray[np.int64],
    weights: NDArray[np.float64],
    max_parents: int,
    n_restarts: int = 0,
) -> list[Edge]:
    """Return the edges of the best structure that hill climbing finds, sorted.

    Parameters
    ----------
    label_sets : array of 0 and 1, (n_sets, n_labels)
        Distinct label sets.
    weights : array, (n_sets,)
        How many rows have each.
    max_parents : int
        How many parents a label may have.
    n_restarts : int
        How often the search starts again.
    """
    n_labels = label_sets.shape[1]
    if len(label_sets) < 2 or n_labels < 2 or max_parents == 0:
        return []
    score = functools.cache(functools.partial(local_bic, label_sets, weights))
    climb = _climber(label_sets, score, max_parents)

    def value(edges: list[Edge]) -> float:
        families = LabelStructure.from_edges(edges, n_labels).parents
        return sum(score(label, parents) for label, parents in enumerate(families))

    generator = np.random.default_rng(0)
    best = climb([])
    for number in range(n_restarts):
        start = equivalent_edges(best, n_labels, generator)
        if number % 2:
            start = [edge for edge in start if generator.random() >= _TAKEN_OUT]
        best = max(best, climb(start), key=value)
    return best


def equivalent_edges(
    edges: Sequence[Edge], n_labels: int, generator: np.random.Generator
) -> list[Edge]:
    """Return edges of another structure with the same score, sorted.

    An edge is turned where all other parents of its two ends are the same; that changes neither
    likelihood nor number of parameters (Chickering 1995). Each is turned twice on average, and one
    more or not: an even number of turns leads to half of the others only.
    """
    families: list[set[int]] = [set() for _ in range(n_labels)]
    for parent, child in edges:
        families[child].add(parent)
    for _ in range(2 * len(edges) + generator.integers(2)):
        turnable = [
            (parent, child)
            for child, family in enumerate(families)
            for parent in sorted(family)
            if family == families[parent] | {parent}
        ]
        if not turnable:
            break
        parent, child = turnable[generator.integers(len(turnable))]
        families[child].remove(parent)
        families[parent].add(child)
    return sorted((parent, child) for child, family in enumerate(families) for parent in family)


def local_bic(
    label_sets: NDArray[np.int64],
    weights: NDArray[np.float64],
    label: int,
    parents: Sequence[int],
) -> float:
    """Return the BIC of one label given its parents: log-likelihood less ½ log n a parameter."""
    code = label_sets[:, label]
    for k, parent in enumerate(parents, start=1):
        code = code + (label_sets[:, parent] << k)
    counts = np.bincount(code, weights, 2 << len(parents)).reshape(-1, 2)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    likelihood = (counts * np.log(np.where(counts > 0, share, 1.0))).sum()
    return round(float(likelihood - 0.5 * np.log(weights.sum()) * len(counts)), _DIGITS)


def _climber(
    label_sets: NDArray[np.int64], local_score: Callable[..., float], max_parents: int
) -> Callable[[list[Edge]], list[Edge]]:
    """Return a function that climbs from a structure to one that no change of an edge improves."""
    pgmpy_base, discovery = _library("pgmpy.base"), _library("pgmpy.causal_discovery")
    score_base: Any = _library("pgmpy.structure_score").BaseStructureScore
    # Columns are numbers: the search goes through sets, whose order depends, for names, on the
    # process.
    table = _library("pandas").DataFrame(label_sets)

    class WeightedBIC(score_base):
        def local_score(self, variable: int, parents: tuple[int, ...]) -> float:
            return local_score(variable, parents)

    score = WeightedBIC(table)

    def climb(start: list[Edge]) -> list[Edge]:
        graph = pgmpy_base.DAG()
        graph.add_nodes_from(table.columns)
        graph.add_edges_from(start)
        search = discovery.HillClimbSearch(
            scoring_method=score,
            start_dag=graph,
            max_indegree=max_parents,
            return_type="dag",
            show_progress=False,
        )
        return sorted((int(a), int(b)) for a, b in search.fit(table).causal_graph_.edges())

    return climb


def _library(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            "Learning a structure over labels needs pgmpy 1.1 or newer: "
            'pip install "cgmvae[rbcc]"; or give the structure.'
        ) from error
