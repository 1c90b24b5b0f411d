"""Bayesian networks over labels: which labels a label depends on, given or learned from label rows.

The search is pgmpy's hill climbing, which changes one edge at a time while the BIC increases. It
restarts from the best structure with some edges reversed, which by itself changes no score, and
every second time with half of the edges removed: where the first climb ends, a label with two
parents often has a spurious edge between these parents. The score is computed here, over distinct
label sets with their weights: this supports sample weights, and makes the search much faster.

Only rows whose labels are all known are used; without such rows there are no edges.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.training.pack import LabelRows

Edge = tuple[int, int]

#: Decimals of a score that count: further digits depend on the machine's logarithm, and must not
#: decide between structures that are equally good.
_DIGITS = 6

#: Fraction of the edges that every second restart removes. Of 0.2, 0.3 and 0.5 the largest led to
#: the best scores on yeast, scene and sider.
_REMOVED = 0.5


class LabelStructure(NamedTuple):
    """A directed acyclic graph over labels.

    Examples
    --------
    >>> structure = LabelStructure.from_edges([(2, 0), (1, 0)], 3)
    >>> structure.order, structure.parents
    ((1, 2, 0), ((1, 2), (), ()))
    """

    parents: tuple[tuple[int, ...], ...]
    """Parents of each label, in the order in which the labels are read."""
    order: tuple[int, ...]
    """All labels, each after its parents."""

    @classmethod
    def from_edges(cls, edges: Sequence[Edge], n_labels: int) -> LabelStructure:
        """Return the structure with these edges, pairs of a parent and a child."""
        families = _families(edges, n_labels)
        order = _topological_order(families)
        parents = tuple(tuple(sorted(family, key=order.index)) for family in families)
        return cls(parents, tuple(order))

    @property
    def edges(self) -> list[Edge]:
        """Pairs of a parent and a child, sorted."""
        pairs = ((p, child) for child, parents in enumerate(self.parents) for p in parents)
        return sorted(pairs)

    def is_ordered(self) -> bool:
        """Return whether the order names each label once, after its parents in their order."""
        position = {label: i for i, label in enumerate(self.order)}
        families = [(*parents, label) for label, parents in enumerate(self.parents)]
        positions = [[position.get(label, -1) for label in family] for family in families]
        return sorted(self.order) == list(range(len(self.parents))) and all(
            -1 < a < b for family in positions for a, b in itertools.pairwise(family)
        )

    def last_needed(self) -> list[int]:
        """Return, for each label, the position in the order of its last child, or its own."""
        position = {label: i for i, label in enumerate(self.order)}
        last = [position[label] for label in range(len(self.order))]
        for parent, child in self.edges:
            last[parent] = max(last[parent], position[child])
        return last


def _families(edges: Iterable[Edge], n_labels: int) -> list[set[int]]:
    """Return the parents of each label."""
    families: list[set[int]] = [set() for _ in range(n_labels)]
    for parent, child in edges:
        families[child].add(parent)
    return families


def _topological_order(families: Sequence[set[int]]) -> list[int]:
    """Return all labels, parents first, such that few labels wait for children at any point.

    Among the labels whose parents are placed, the next is the one after which the fewest labels
    have children to come: what is summed over in inference stays small.
    """
    reversed_edges = ((child, parent) for child, own in enumerate(families) for parent in own)
    children = _families(reversed_edges, len(families))
    order: list[int] = []
    waiting, placed = set(range(len(families))), set[int]()

    def n_open_after(label: int) -> int:
        closed = sum(children[parent] & waiting == {label} for parent in families[label])
        return bool(children[label]) - closed

    while waiting:
        ready = [label for label in sorted(waiting) if families[label] <= placed]
        if not ready:
            raise InputError("The structure has a cycle; leave out an edge of it.")
        order.append(min(ready, key=n_open_after))
        waiting.remove(order[-1])
        placed.add(order[-1])
    return order


def given_structure(structure: Any, names: Sequence[str]) -> LabelStructure:
    """Read pairs of a parent and a child, each a label's name or index."""
    try:
        pairs = [(parent, child) for parent, child in structure]
    except (TypeError, ValueError) as error:
        raise InputError(
            "structure must be a list of pairs (parent, child) of label names or indices."
        ) from error
    edges = [(_label_index(parent, names), _label_index(child, names)) for parent, child in pairs]
    return LabelStructure.from_edges(edges, len(names))


def _label_index(label: Any, names: Sequence[str]) -> int:
    if isinstance(label, str) and label in names:
        return list(names).index(label)
    # Whole numbers, also those of numpy, have an index; names and floats have not.
    if not hasattr(label, "__index__") or not 0 <= int(label) < len(names):
        raise InputError(f"The structure names a label {label!r}, which is not among the labels.")
    return int(label)


def learn_structures(
    rows: Sequence[LabelRows], max_parents: int, n_restarts: int
) -> list[LabelStructure]:
    """Learn a structure for each set of rows; equal sets are learned once."""
    learned: dict[bytes, LabelStructure] = {}
    structures = []
    for each in rows:
        label_sets, weights = distinct_label_sets(each)
        key = label_sets.tobytes() + weights.tobytes()
        if key not in learned:
            edges = learn_edges(label_sets, weights, max_parents, n_restarts)
            learned[key] = LabelStructure.from_edges(edges, each.labels.shape[1])
        structures.append(learned[key])
    return structures


def distinct_label_sets(rows: LabelRows) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the distinct label sets of the fully known rows, and their weights.

    A label set's weight is the total weight of its rows, scaled such that all weights sum to the
    effective sample size (Σ w)² / Σ w² (Kish 1965): a common factor of the weights changes nothing.
    """
    labels, weights = rows.labels, rows.row_weights()
    if rows.unknown is not None:
        known = np.asarray(rows.unknown.sum(axis=1)).ravel() == 0
        labels, weights = labels[known], weights[known]
    labels = dense(labels).astype(np.int64)
    if len(labels) == 0:
        return labels, weights
    label_sets, inverse = np.unique(labels, axis=0, return_inverse=True)
    weights = weights * weights.sum() / (weights**2).sum()
    return label_sets, np.bincount(inverse.ravel(), weights).astype(np.float64)


def learn_edges(
    label_sets: NDArray[np.int64],
    weights: NDArray[np.float64],
    max_parents: int,
    n_restarts: int = 0,
) -> list[Edge]:
    """Return the edges of the best structure that hill climbing finds, sorted.

    ``label_sets``, (n_sets, n_labels), are distinct; ``weights``, (n_sets,), count their rows.
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
            start = [edge for edge in start if generator.random() >= _REMOVED]
        best = max(best, climb(start), key=value)
    return best


def equivalent_edges(
    edges: Sequence[Edge], n_labels: int, generator: np.random.Generator
) -> list[Edge]:
    """Return the edges of a random structure with the same score, sorted.

    An edge can be reversed if its two ends have the same other parents; this changes neither the
    likelihood nor the number of parameters (Chickering 1995). Edges are reversed twice on average,
    plus once at random, because an even number of reversals reaches only half of the structures.
    """
    families = _families(edges, n_labels)
    for _ in range(2 * len(edges) + generator.integers(2)):
        reversible = [
            (parent, child)
            for child, family in enumerate(families)
            for parent in sorted(family)
            if family == families[parent] | {parent}
        ]
        if not reversible:
            break
        parent, child = reversible[generator.integers(len(reversible))]
        families[child].remove(parent)
        families[parent].add(child)
    return sorted((parent, child) for child, family in enumerate(families) for parent in family)


def local_bic(
    label_sets: NDArray[np.int64],
    weights: NDArray[np.float64],
    label: int,
    parents: Sequence[int],
) -> float:
    """Return the BIC of a label given its parents: log-likelihood − ½ log n per parameter."""
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
    """Return a function that improves a structure until no change of an edge raises the score."""
    pgmpy_base, discovery = _library("pgmpy.base"), _library("pgmpy.causal_discovery")
    score_base: Any = _library("pgmpy.structure_score").BaseStructureScore
    # Columns are integers: the search iterates over sets, whose order differs between processes
    # for strings.
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
            "Learning a label structure requires pgmpy 1.1 or newer; install it with "
            'pip install "cgmvae[rbcc]", or pass the structure.'
        ) from error
