"""A forest of all labels at once, as votes of the rows in the leaves of its trees.

One half are extra trees (Geurts et al. 2006), split at random thresholds, the other half trees of a
random forest (Breiman 2001), split at the best thresholds. Neither kind alone is the better one on
most data sets (``docs/notebook/defaults.md``). Each tree is grown on a bootstrap
sample of the rows, or of the groups of rows, until all rows of a leaf have the same labels. A row
is predicted by the training rows that share its leaves (:mod:`cgmvae.methods.votes`): each tree has
one vote, divided among the rows of the leaf. Trees whose sample left a row out score it out of bag.

A split is chosen by the variance of the labels. If there are many, it is chosen by the variance of
32 random projections of them, drawn anew for each tree, which keep the distances between label sets
(Johnson and Lindenstrauss 1984). Leaves hold rows, so predictions contain all labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.methods.expert import Expert
from cgmvae.methods.inputs import Rows
from cgmvae.methods.model_file import with_prefix
from cgmvae.methods.predictor import float64, in_blocks
from cgmvae.methods.votes import Voters
from cgmvae.model.plan import SplitName, n_trees, splits_tried

#: Projections of the labels that a tree is grown on, if there are more labels.
N_PROJECTIONS = 32

#: Rows that descend the trees at a time, and how many of their features are in memory.
_BLOCK_ROWS, _BLOCK_CELLS = 1024, 1 << 22

#: Steps that all rows take down their trees before those that have arrived are left out.
_STEPS = 4

#: Cells of sparse rows that are made dense to grow trees, unless fewer than this share are stored.
_MAX_DENSE, _FEW_STORED = 1 << 26, 0.02

#: The most votes times labels that are counted once, for all rows that reach their leaves.
_MAX_SUMS = 1 << 23

#: The most levels of trees, and leaves times labels, of which a graph is made.
_MAX_DEPTH, _MAX_TABLE = 256, 1 << 25

#: Thresholds are rounded to float16 unless more than this share of training rows changes leaves.
_MAX_MOVED = 0.01


class Splits(NamedTuple):
    """The nodes of a tree, depth first: the left child of a split is the next node."""

    feature: NDArray[np.int64]
    """(n_nodes,)"""
    threshold: NDArray[np.float32]
    """A row goes to the left if its feature is at most this, (n_nodes,)."""
    right: NDArray[np.int64]
    """How many nodes further the right child is; 0 for a leaf, (n_nodes,)"""


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as arrays: the nodes of the first tree, then those of the second, and so on.

    See :class:`Splits` for ``feature``, ``threshold`` and ``right``.
    """

    feature: NDArray[np.integer]
    threshold: NDArray[np.float32]
    right: NDArray[np.integer]
    roots: NDArray[np.integer]
    """The first node of each tree, (n_trees,)"""

    @classmethod
    def of(cls, trees: list[Splits]) -> Forest:
        """Join trees."""
        feature, threshold, right = (np.concatenate(parts) for parts in zip(*trees, strict=True))
        roots = np.cumsum([0, *(len(tree.feature) for tree in trees[:-1])])
        return cls(smallest_integers(feature), threshold, smallest_integers(right), roots)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs, without what is computed of it."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Whether a node is a leaf, (n_nodes,)."""
        return self.right == 0

    @cached_property
    def n_leaves(self) -> int:
        """Number of leaves of all trees."""
        return int(self.is_leaf.sum())

    @cached_property
    def next_nodes(self) -> NDArray[np.int64]:
        """The left and the right child of each node, (2 · n_nodes,); a leaf leads to itself."""
        own = np.arange(len(self.right))
        return np.stack([np.where(self.is_leaf, own, own + 1), own + self.right], axis=1).ravel()

    @cached_property
    def leaf_numbers(self) -> NDArray[np.int64]:
        """The number of each leaf, counted from 0, (n_nodes,); of a split, that of one before."""
        return np.cumsum(self.is_leaf) - 1

    @cached_property
    def depth(self) -> int:
        """The most splits on the way from a root to a leaf."""
        nodes, depth = self.roots, -1
        while len(nodes):
            splits, depth = nodes[~self.is_leaf[nodes]], depth + 1
            nodes = self.next_nodes.reshape(-1, 2)[splits].ravel()
        return depth

    @cached_property
    def _wide_integers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Features and roots as numpy takes them without a conversion."""
        return self.feature.astype(np.int64), self.roots.astype(np.int64)

    def leaves(self, features: Matrix) -> NDArray[np.int64]:
        """Return the number of the leaf that each row reaches in each tree, (n_rows, n_trees)."""
        size = min(_BLOCK_ROWS, _BLOCK_CELLS // max(1, features.shape[1]))
        return in_blocks(lambda block: self._descend(features[block]), features.shape[0], size)

    def _descend(self, features: Matrix) -> NDArray[np.int64]:
        """Let all rows go down all trees, one step at a time; (n_rows, n_trees)."""
        feature, roots = self._wide_integers
        n_rows, n_columns = features.shape
        cells = dense(features).astype(np.float32, copy=False).ravel()
        reached = np.tile(roots, n_rows)
        walking, node = np.arange(len(reached)), reached
        row = np.repeat(np.arange(n_rows) * n_columns, len(roots))
        while len(walking):
            for _ in range(_STEPS):
                is_right = cells.take(row + feature.take(node)) > self.threshold.take(node)
                node = self.next_nodes.take(2 * node + is_right)
            reached[walking] = node
            going = np.flatnonzero(~self.is_leaf.take(node))
            walking, node, row = walking.take(going), node.take(going), row.take(going)
        return self.leaf_numbers.take(reached).reshape(n_rows, -1)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that the trees are stored in, by name."""
        splits = ~self.is_leaf
        return {
            "feature": self.feature[splits],
            "threshold": self.threshold[splits],
            "right": self.right,
            "roots": smallest_integers(self.roots),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_features: int) -> Forest:
        """Return the forest that was stored; raise if a row would leave it on its way down."""
        right, roots = (_integers(arrays, name) for name in ("right", "roots"))
        splits, n_nodes = np.flatnonzero(right), len(right)
        feature, threshold = np.zeros(n_nodes, np.int64), np.zeros(n_nodes, np.float32)
        feature[splits], threshold[splits] = _integers(arrays, "feature"), arrays["threshold"]
        ends = np.append(roots[1:], n_nodes)
        ordered = len(roots) > 0 and roots[0] == 0 and (roots < ends).all()
        if not ordered or feature.min() < 0 or feature.max() >= n_features:
            raise ValueError("its trees do not follow one another, or split other features")
        tree = np.searchsorted(roots, splits, side="right") - 1
        if (right[splits] < 2).any() or (splits + right[splits] >= ends[tree]).any():
            raise ValueError("its splits do not lead to nodes of their own tree")
        return cls(smallest_integers(feature), threshold, smallest_integers(right), roots)


@dataclass(frozen=True, eq=False)
class LeafRows:
    """The training rows in the leaves of a forest."""

    sizes: NDArray[np.integer]
    """How many rows each leaf has, (n_leaves,)"""
    rows: NDArray[np.integer]
    """The rows of the first leaf, then those of the second, and so on; a row is repeated as often
    as the tree's sample drew it."""

    @classmethod
    def of(cls, leaves: NDArray[np.int64], drawn: NDArray[np.int64], n_leaves: int) -> LeafRows:
        """Sort rows by leaf; both arrays are (n_rows, n_trees), ``drawn`` says how often."""
        times = drawn.ravel()
        leaf = np.repeat(leaves.ravel(), times)
        row = np.repeat(np.repeat(np.arange(len(leaves)), leaves.shape[1]), times)
        sizes = np.bincount(leaf, minlength=n_leaves)
        order = np.argsort(leaf, kind="stable")
        return cls(smallest_integers(sizes), smallest_integers(row[order]))

    def shares(self, row_weights: NDArray[np.float64]) -> sp.csr_array:
        """Return the share of each training row in each leaf's vote, (n_leaves, n_rows)."""
        leaf = np.repeat(np.arange(len(self.sizes)), self.sizes)
        weights = row_weights[self.rows]
        shares = weights / np.bincount(leaf, weights, len(self.sizes))[leaf]
        ends = np.append(0, np.cumsum(self.sizes, dtype=np.int64))
        found = sp.csr_array((shares, self.rows, ends), shape=(len(self.sizes), len(row_weights)))
        found.sum_duplicates()
        return found

    def distinct_votes(
        self, row_weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], sp.csr_array]:
        """Return the vote of each leaf, (n_leaves,), as a row of the array of votes beside it.

        That is, (n_votes, n_rows): first those of single rows, which most leaves consist of.
        """
        shares, n_rows = self.shares(row_weights), len(row_weights)
        several = np.diff(shares.indptr) != 1
        place = n_rows - 1 + np.cumsum(several)
        place[~several] = shares.indices[shares.indptr[:-1][~several]]
        votes = sp.vstack([sp.eye_array(n_rows, format="csr"), shares[several]], format="csr")
        return place, votes

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], n_leaves: int, n_rows: int
    ) -> LeafRows:
        """Return what was stored; raise if it is not one list of training rows for each leaf."""
        sizes, rows = (_integers(arrays, name) for name in ("sizes", "rows"))
        if len(sizes) != n_leaves or (sizes < 0).any() or sizes.sum() != len(rows):
            raise ValueError("its leaves do not have one list of training rows each")
        if len(rows) == 0 or rows.min() < 0 or rows.max() >= n_rows:
            raise ValueError("its leaves have rows that there are not")
        return cls(smallest_integers(sizes), smallest_integers(rows))


@dataclass(kw_only=True, eq=False, repr=False)
class MixedForest(Expert):
    """Extra trees and trees of a random forest, one half each, scored out of bag.

    Parameters
    ----------
    n_trees : int or "auto"
        Number of trees. "auto" is 100, and up to 400 where rows are few, by
        :func:`cgmvae.model.plan.n_trees`.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`. The threshold rule is learned out of
        bag.

    Attributes
    ----------
    forest_ : Forest
        The trees.
    leaf_rows_ : LeafRows
        The training rows in their leaves.
    voters_ : Voters
        The labels of the training rows.
    oof_proba_, oof_rows_
        Out-of-bag probabilities; see :class:`~cgmvae.methods.expert.Expert`.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(300, 5, 6, seed=1)
    >>> MixedForest(random_state=0).fit(data.X, data.Y).predict_proba(data.X).shape
    (300, 6)
    """

    n_trees: int | Literal["auto"] = "auto"

    forest_: Forest = field(init=False)
    leaf_rows_: LeafRows = field(init=False)
    voters_: Voters = field(init=False)

    def _learn(self, train: Rows, seed: int) -> NDArray[np.floating]:
        self.voters_ = voters = Voters.of(train)
        features = _in_growing_form(train.features)
        tried = splits_tried(self.plan_.profile)
        targets, weights = voters.centered(), voters.row_weights
        count = n_trees(self.plan_.profile) if self.n_trees == "auto" else self.n_trees
        seeds = np.random.SeedSequence(seed).generate_state(count)
        drawn = np.stack(
            [draw_rows(features.shape[0], train.groups, each) for each in seeds], axis=1
        )

        def grow(tree: int) -> Splits:
            kind: SplitName = "best" if tree % 2 else "random"
            own = weights * drawn[:, tree]
            return grow_tree(features, targets, own, kind, tried[kind], seeds[tree])

        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            forest = Forest.of(list(pool.map(grow, range(count))))
        leaves, rounded = forest.leaves(features), _rounded_thresholds(forest)
        moved = rounded.leaves(features)
        if np.mean(moved != leaves) < _MAX_MOVED:
            forest, leaves = rounded, moved
        self.forest_, self.leaf_rows_ = forest, LeafRows.of(leaves, drawn, forest.n_leaves)
        return self._count(leaves, drawn == 0)

    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        return self._count(self.forest_.leaves(features))

    def _count(
        self, leaves: NDArray[np.int64], counted: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Return probabilities of rows in these leaves, from the trees that are counted for them.

        ``leaves`` and ``counted`` are (n_queries, n_trees).
        """
        place, voting = self.leaf_rows_.distinct_votes(self.voters_.row_weights)
        few = voting.shape[0] * self.n_labels_ <= _MAX_SUMS
        table = self.voters_.sums(voting) if few else voting

        def votes(block: slice) -> NDArray[np.float64]:
            reached = place[leaves[block]]
            asked = np.ones(reached.shape) if counted is None else counted[block].astype(float)
            starts = np.arange(len(reached) + 1) * reached.shape[1]
            shape = (len(reached), voting.shape[0])
            found = sp.csr_array((asked.ravel(), reached.ravel(), starts), shape=shape) @ table
            return self.voters_.probabilities(found if few else self.voters_.sums(found))

        return in_blocks(votes, len(leaves), _BLOCK_ROWS)

    def scorer(self) -> TreeVotes:
        """Return the trees as a module."""
        depth, n_cells = self.forest_.depth, self.forest_.n_leaves * self.n_labels_
        if depth > _MAX_DEPTH or n_cells > _MAX_TABLE:
            raise InputError(
                f"Trees of {depth:,} levels, and {self.forest_.n_leaves:,} leaves for "
                f"{self.n_labels_:,} labels, are too large for a graph; leave out the forest."
            )
        return TreeVotes(self)

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays = {f"forest.{name}": array for name, array in self.forest_.arrays().items()}
        arrays |= {"leaves.sizes": self.leaf_rows_.sizes, "leaves.rows": self.leaf_rows_.rows}
        return arrays | {f"voters.{name}": each for name, each in self.voters_.arrays().items()}, {}

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        self.voters_ = Voters.from_arrays(with_prefix(arrays, "voters."), self.n_labels_)
        self.forest_ = forest = Forest.from_arrays(
            with_prefix(arrays, "forest."), self.pipeline_.n_columns
        )
        n_rows = len(self.voters_.row_weights)
        own = with_prefix(arrays, "leaves.")
        self.leaf_rows_ = LeafRows.from_arrays(own, forest.n_leaves, n_rows)


class TreeVotes(nn.Module):
    """The votes as tensor operations: all rows go down all trees at once, one level at a time."""

    def __init__(self, model: MixedForest) -> None:
        super().__init__()
        forest, voters = model.forest_, model.voters_
        self.depth = forest.depth
        self.feature, self.roots = _whole(forest.feature), _whole(forest.roots)
        self.threshold = nn.Buffer(torch.as_tensor(forest.threshold))
        self.next_nodes = _whole(forest.next_nodes)
        # A leaf has no vote if no row reaches it: thresholds may have been rounded.
        votes = voters.sums(model.leaf_rows_.shares(voters.row_weights))
        # Most leaves have rows of one label set, and there are few of these.
        distinct, place = np.unique(votes, axis=0, return_inverse=True)
        self.votes = nn.Buffer(torch.as_tensor(distinct.astype(np.float32)))
        self.place = _whole(np.where(forest.is_leaf, place.ravel()[forest.leaf_numbers], 0))
        self.frequencies = float64(voters.frequencies)

    def forward(self, columns: Tensor) -> Tensor:
        """Map (n_rows, n_columns) to (n_rows, n_labels)."""
        columns = columns.float()
        node = self.roots.expand(columns.shape[0], -1)
        for _ in range(self.depth):
            is_right = columns.gather(1, self.feature[node]) > self.threshold[node]
            node = self.next_nodes[2 * node + is_right.long()]
        votes = self.votes[self.place[node]].double().sum(1)
        n_labels = len(self.frequencies)
        positive, known = votes[:, :n_labels], votes[:, n_labels:]
        return ((positive + self.frequencies) / (known + 1)).clamp(0, 1)


def _whole(values: NDArray[np.integer]) -> nn.Buffer:
    return nn.Buffer(torch.as_tensor(values.astype(np.int64)))


def _in_growing_form(features: Matrix) -> Any:
    """Return rows as trees grow on them fastest, without taking very much memory.

    With 3% of the values stored, dense rows take two thirds of the time of sparse ones; with less
    than 1%, sparse rows take half of the time of dense ones.
    """
    if sp.issparse(features):
        n_cells = features.shape[0] * features.shape[1]
        if n_cells > _MAX_DENSE or features.nnz < _FEW_STORED * n_cells:
            return sp.csc_matrix(features.astype(np.float32))
    return dense(features).astype(np.float32, copy=False)


def draw_rows(n_rows: int, groups: NDArray[Any] | None, seed: Any) -> NDArray[np.int64]:
    """Return how often each row is in a bootstrap sample, of whole groups if there are any."""
    rng = np.random.RandomState(seed)
    group = np.arange(n_rows)
    if groups is not None:
        _, group = np.unique(groups, return_inverse=True)
    n_groups = int(group.max()) + 1
    return np.bincount(rng.randint(0, n_groups, n_groups), minlength=n_groups)[group]


def grow_tree(
    features: NDArray[np.float32],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64],
    kind: SplitName,
    n_tried: int,
    seed: Any,
) -> Splits:
    """Grow a tree until the targets in a leaf are equal; rows of weight 0 are ignored."""
    from sklearn.tree import DecisionTreeRegressor  # prediction does without this package

    rng = np.random.RandomState(seed)
    if (n_labels := targets.shape[1]) > N_PROJECTIONS:
        targets = targets @ rng.normal(size=(n_labels, N_PROJECTIONS))
    model = DecisionTreeRegressor(splitter=kind, max_features=n_tried, random_state=rng)
    tree = model.fit(features, targets, sample_weight=weights).tree_
    is_split = tree.children_left >= 0
    right = np.where(is_split, tree.children_right - np.arange(tree.node_count), 0)
    feature = np.where(is_split, tree.feature, 0)
    return Splits(feature, np.where(is_split, tree.threshold, 0).astype(np.float32), right)


def _rounded_thresholds(forest: Forest) -> Forest:
    """Return the forest with thresholds rounded to float16, in which files take less space."""
    with np.errstate(over="ignore"):
        rounded = forest.threshold.astype(np.float16).astype(np.float32)
    rounded = np.where(np.isfinite(rounded), rounded, forest.threshold)
    return Forest(forest.feature, rounded, forest.right, forest.roots)


def smallest_integers(values: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return whole numbers from 0 in the smallest signed type that model files can hold."""
    most = int(values.max(initial=0))
    kinds = (np.int8, np.int16, np.int32, np.int64)
    return values.astype(next(kind for kind in kinds if most <= np.iinfo(kind).max))


def _integers(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.int64]:
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind != "i":
        raise ValueError(f"its {name!r} is not a list of whole numbers")
    return array.astype(np.int64)
