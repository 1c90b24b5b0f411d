"""Structures over labels: which labels a label depends on, and their order.

:mod:`~cgmvae.methods.structure_search` learns such structures from label rows.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from cgmvae.errors import InputError

Edge = tuple[int, int]


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
        families: list[set[int]] = [set() for _ in range(n_labels)]
        for parent, child in edges:
            families[child].add(parent)
        order = _topological_order(families)
        place = {label: i for i, label in enumerate(order)}
        parents = tuple(tuple(sorted(family, key=place.__getitem__)) for family in families)
        return cls(parents, tuple(order))

    @property
    def edges(self) -> list[Edge]:
        """Pairs of a parent and a child, sorted."""
        pairs = ((p, child) for child, parents in enumerate(self.parents) for p in parents)
        return sorted(pairs)

    @property
    def n_parents(self) -> int:
        """The most parents that a label has."""
        return max(map(len, self.parents))

    def is_ordered(self) -> bool:
        """Return whether the order names each label once, after its parents in their order."""
        if sorted(self.order) != list(range(len(self.parents))):
            return False
        place = {label: i for i, label in enumerate(self.order)}
        families = [(*parents, label) for label, parents in enumerate(self.parents)]
        places = [[place.get(label, -1) for label in family] for family in families]
        return all(-1 < a < b for family in places for a, b in itertools.pairwise(family))

    def last_needed(self) -> list[int]:
        """Return, for each label, the place in the order of its last child, or its own."""
        place = {label: i for i, label in enumerate(self.order)}
        last = [place[label] for label in range(len(self.order))]
        for parent, child in self.edges:
            last[parent] = max(last[parent], place[child])
        return last


def _topological_order(families: Sequence[set[int]]) -> list[int]:
    """Return all labels, parents first, such that few labels wait for children at any place.

    Among the labels whose parents are placed, the next is the one after which the fewest labels
    have children to come: what is summed over in inference stays small.
    """
    children: list[set[int]] = [set() for _ in families]
    for child, family in enumerate(families):
        for parent in family:
            children[parent].add(child)
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
    try:
        index = operator.index(label)
    except TypeError:
        index = -1
    if not 0 <= index < len(names):
        raise InputError(f"The structure names a label {label!r}, which is not among the labels.")
    return index
