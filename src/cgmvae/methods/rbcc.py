"""RBCC: recurrent Bayesian classifier chains, after the abstract of Gerych et al. 2021.

This is our reading of the abstract and of the method's description in the C-GMVAE paper; the
equations of the paper were not at hand, so it is not a reproduction of them.

A Bayesian network over the labels is learned from the training labels alone
(:mod:`cgmvae.methods.label_structure`); a recurrent network then predicts each label from the
features and from the values of its parents in the Bayesian network. The features of a row become a
state. For each label a GRU cell, whose weights all labels share, starts from that state and reads
the values of the label's parents one by one; the final state gives the label's log-odds. So p(y|x)
is the product of p(y_l | x, parents of l).

Our choices:

- The structure is found by hill climbing on the BIC, with at most ``max_parents`` parents per
  label; rows with an unknown label are ignored there.
- The cell reads the parents in topological order, starting from the state of the features. It does
  not receive the state of another label: that would contain the values of ancestors, and the
  product of the conditionals would no longer be that of the Bayesian network.
- Training uses teacher forcing; a parent whose value is unknown is skipped.
- ``predict_proba`` returns marginals, summed over all label sets (exactly, as long as no more than
  a dozen labels have pending children; see :func:`marginals`). Thresholds apply to these. A chain
  is made for whole label sets: with ``prediction="most probable set"``, ``predict`` returns
  ``mode``.
- Members are averaged: their marginals, and their probabilities of label sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.methods.inputs import check_whole, targets_of_rows
from cgmvae.methods.label_structure import LabelStructure, given_structure, learn_structures
from cgmvae.methods.neural import NeuralClassifier, member_blocks
from cgmvae.model.objective import cross_entropy
from cgmvae.model.plan import DataProfile
from cgmvae.nn.batch import Batch
from cgmvae.nn.packed import PackedLinear, PackedMLP, hold_numbers
from cgmvae.nn.rng import RandomStreams
from cgmvae.training.pack import LabelRows

#: Number of labels with pending children in an exact sum, which needs 2^12 values per row.
WIDEST = 12

#: States of all rows, labels and parent values that are scored at a time, which bounds the memory.
_SCORED_STATES = 1 << 17

_MOST_PROBABLE = "most probable set"

#: The network computes 2^P combinations of P parents' values per row and label.
_MAX_PARENTS = 8


def marginals(logits: Tensor, structure: LabelStructure, *, widest: int = WIDEST) -> Tensor:
    """Return the probability of each label, (n_members, n_rows, n_labels).

    Labels are processed in topological order together with the joint distribution of the labels
    that still have children to come, so that the sum over all label sets is exact. If there are
    more than ``widest`` such labels, the first of them is treated as independent of the others from
    then on.

    ``logits``, (n_members, n_rows, n_labels, 2^P), are the log-odds of each label for all 2^P
    combinations of its parents' values. The first parent is the highest bit; the bits of parents
    that a label does not have are 0.
    """
    last = structure.last_needed()
    joint = torch.ones_like(logits[..., 0, 0])  # plus one axis per pending label
    pending: list[int] = []
    found: dict[int, Tensor] = {}
    for position, label in enumerate(structure.order):
        positive = _given_pending(logits[..., label, :], structure.parents[label], pending, found)
        joint = torch.stack([joint * (1 - positive), joint * positive], dim=-1)
        found[label] = joint[..., 1].flatten(2).sum(-1) if pending else joint[..., 1]
        pending = [*pending, label]
        kept = [each for each in pending if last[each] > position][-widest:] if widest else []
        gone = [2 + axis for axis, each in enumerate(pending) if each not in kept]
        joint = joint.sum(gone) if gone else joint
        pending = kept
    return torch.stack([found[label] for label in range(len(found))], dim=-1).clamp(0, 1)


def _given_pending(
    logits: Tensor, parents: tuple[int, ...], pending: list[int], found: dict[int, Tensor]
) -> Tensor:
    """Return a label's probability given the pending labels: one axis of size 2 or 1 for each."""
    n = len(parents)
    positive = torch.sigmoid(logits).unflatten(-1, (*[2] * n, -1))[..., 0]
    for axis, parent in reversed(list(enumerate(parents, start=2))):
        if parent not in pending:
            share = found[parent].reshape(*positive.shape[:2], *[1] * (positive.dim() - 3))
            absent, present = positive.unbind(axis)
            positive = absent * (1 - share) + present * share
    # Parents and pending labels are in the same order.
    return positive.reshape(*positive.shape[:2], *(2 if w in parents else 1 for w in pending))


def log_joint(logits: Tensor, structure: LabelStructure, label_sets: Tensor) -> Tensor:
    """Return log p(y|x) of label sets, (n_members, n_rows, n_sets).

    ``logits`` is as for :func:`marginals`; ``label_sets`` is bool, (n_members or 1, n_rows, n_sets,
    n_labels).
    """
    parts = []
    for label in structure.order:
        chosen = _log_odds(logits, structure, label_sets, label)
        parts.append(F.logsigmoid(torch.where(label_sets[..., label], chosen, -chosen)))
    return torch.stack(parts).sum(0)


def likely_label_sets(logits: Tensor, structure: LabelStructure, beam_width: int) -> Tensor:
    """Return label sets of high probability, bool (n_members, n_rows, n_sets, n_labels).

    A beam search along the topological order keeps the ``beam_width`` most probable partial label
    sets; with 2^L of them the search is exhaustive, with 1 it is greedy.
    """
    *shape, n_labels, _ = logits.shape
    label_sets = torch.zeros(*shape, 1, n_labels, dtype=torch.bool, device=logits.device)
    score = torch.zeros(*shape, 1, dtype=logits.dtype, device=logits.device)
    for label in structure.order:
        log_odds = _log_odds(logits, structure, label_sets, label)
        both = torch.cat([score + F.logsigmoid(-log_odds), score + F.logsigmoid(log_odds)], -1)
        score, chosen = both.topk(min(beam_width, both.shape[-1]), dim=-1)
        n = log_odds.shape[-1]
        extended = (chosen % n)[..., None].expand(*shape, -1, n_labels)
        label_sets = label_sets.gather(-2, extended)
        label_sets[..., label] = chosen >= n
    return label_sets


def _log_odds(logits: Tensor, structure: LabelStructure, label_sets: Tensor, label: int) -> Tensor:
    """Return the log-odds of a label given its parents in each label set, (M, B, n_sets)."""
    highest = logits.shape[-1] // 2
    shape = (*logits.shape[:2], label_sets.shape[2])
    code = torch.zeros(shape, dtype=torch.int64, device=logits.device)
    for k, parent in enumerate(structure.parents[label]):
        code = code + label_sets[..., parent] * (highest >> k)
    return logits[..., label, :].gather(-1, code)


@dataclass(frozen=True)
class RBCCConfig:
    """Sizes of the network, which members of one pack share; see :class:`RBCC`."""

    state_dim: int
    hidden_dim: int
    n_parents: int
    """P, largest number of parents of a label."""

    def __post_init__(self) -> None:
        if self.n_parents > _MAX_PARENTS:
            raise InputError(
                f"A label may have {self.n_parents} parents, but at most {_MAX_PARENTS} are "
                "supported; reduce max_parents or the given structure."
            )


class RBCCNetwork(nn.Module):
    """The recurrent network for any number of members; see ``NeuralClassifier.network_class``."""

    def __init__(
        self,
        config: RBCCConfig,
        n_features: int,
        label_log_odds: NDArray[np.float64],
        streams: RandomStreams,
        *,
        dtype: torch.dtype = torch.float32,
        **dropouts: Sequence[float],
    ) -> None:
        super().__init__()
        self.config = config
        log_odds = torch.as_tensor(label_log_odds, dtype=dtype, device=streams.device)
        n_members, n_labels = log_odds.shape
        width = config.state_dim
        style: Any = {"layer_norm": True, "activation": "relu", "dtype": dtype}
        widths = (n_features, config.hidden_dim, width)
        self.encoder = PackedMLP(widths, streams, "encoder", **style)
        bound = width**-0.5

        def vectors(name: str, *shape: int) -> nn.Parameter:
            return nn.Parameter(streams.uniform_weights(name, *shape, bound=bound, dtype=dtype))

        self.label_embeddings = vectors("label_embeddings", n_labels, width)
        self.value_embeddings = vectors("value_embeddings", 2, n_labels, width)
        self.input = PackedLinear(width, 3 * width, streams, "input", dtype=dtype)
        self.recurrent = PackedLinear(width, 3 * width, streams, "recurrent", dtype=dtype)
        self.output = vectors("output", n_labels, width)
        self.label_bias = nn.Parameter(log_odds.clone())
        hold_numbers(self, log_odds, **dropouts)
        parents = torch.full((n_members, n_labels, config.n_parents), -1, device=streams.device)
        order = torch.arange(n_labels, device=streams.device).repeat(n_members, 1)
        self.register_buffer("parents", parents)
        self.register_buffer("order", order)

    dropout: Tensor
    input_dropout: Tensor
    parents: Tensor
    """Parents of each label in reading order, padded with −1, (M, L, P)"""
    order: Tensor
    """All labels, parents first, (M, L)"""

    def connect(self, structures: Sequence[LabelStructure]) -> None:
        """Set the structure of each member, (M,)."""
        for i, structure in enumerate(structures):
            self.order[i] = torch.tensor(structure.order)
            self.parents[i] = -1
            for label, parents in enumerate(structure.parents):
                self.parents[i, label, : len(parents)] = torch.tensor(parents)

    def structures(self) -> Iterator[tuple[LabelStructure, Tensor]]:
        """Yield the distinct structures, each with the members that have it."""
        tables = torch.cat([self.order, self.parents.flatten(1)], dim=1)
        distinct, kind = torch.unique(tables, dim=0, return_inverse=True)
        for i in range(len(distinct)):
            members = (kind == i).nonzero().squeeze(1)
            table = self.parents[members[0]].tolist()
            parents = tuple(tuple(p for p in row if p >= 0) for row in table)
            yield LabelStructure(parents, tuple(self.order[members[0]].tolist())), members

    def forward(self, features: Tensor) -> Tensor:
        """Return the marginal probabilities of all labels, (M, B, L)."""
        structures = list(self.structures())
        blocks = []
        for logits in self.table_blocks(features):
            p = torch.empty_like(logits[..., 0])
            for structure, members in structures:
                p[members] = marginals(logits[members], structure)
            blocks.append(p)
        return torch.cat(blocks, dim=1)

    def exportable(self) -> nn.Module:
        """Return the network as a graph, which scores all rows of a batch at once."""
        return _WholeBatch(self)

    def table_blocks(self, features: Tensor) -> Iterator[Tensor]:
        """Yield the log-odds of :meth:`tables` for one block of rows at a time."""
        n_members, n_labels, n_parents = self.parents.shape
        n_states = n_members * n_labels << n_parents
        for block in features.split(max(1, _SCORED_STATES // n_states), dim=1):
            yield self.tables(block)

    def terms(self, batch: Batch, streams: RandomStreams | None) -> dict[str, Tensor]:
        """Return the cross-entropy of each row given the true values of the parents, (M, B)."""
        logits = self.forced_logits(batch.features, batch.positive, batch.known, streams)
        return {"cross_entropy": cross_entropy(logits, batch.positive, batch.known)}

    def forced_logits(
        self,
        features: Tensor,
        positive: Tensor,
        known: Tensor,
        streams: RandomStreams | None = None,
    ) -> Tensor:
        """Return the log-odds of each label given the true values of its parents, (M, B, L).

        A parent whose value is unknown is skipped.
        """
        state = self._encode(features, streams)[:, :, None]
        for k, tokens in enumerate(self._tokens()):
            parents = self.parents[:, None, :, k].expand_as(positive)
            present = (parents >= 0) & known.gather(-1, parents.clamp(min=0))
            value = positive.gather(-1, parents.clamp(min=0))[..., None]
            token = torch.where(value, tokens[:, 1, None], tokens[:, 0, None])
            state = torch.where(present[..., None], self._read(state, token), state)
        return self._logits(state[:, :, :, None]).squeeze(-1)

    def tables(self, features: Tensor) -> Tensor:
        """Return the log-odds of each label for all values of its parents, (M, B, L, 2^P)."""
        state = self._encode(features, None)[:, :, None, None]  # (M, B, 1, 1, H)
        exists = (self.parents >= 0)[:, None, :, None, :, None]
        for k, tokens in enumerate(self._tokens()):
            read = self._read(state[..., None, :], tokens.transpose(1, 2)[:, None, :, None])
            state = torch.where(exists[..., k, :, None], read, state[..., None, :]).flatten(3, 4)
        return self._logits(state)

    def _encode(self, features: Tensor, streams: RandomStreams | None) -> Tensor:
        """Return the initial state of all labels, (M, B, H)."""
        if streams is not None:
            features = streams.dropout("features", features, self.input_dropout)
        return torch.tanh(self.encoder(features, streams, self.dropout))

    def _tokens(self) -> Iterator[Tensor]:
        """Yield the input of the cell for the k-th parent of each label, (M, 2, L, 3H).

        It encodes the label to predict, the parent, and the value of the parent, absent or present.
        """
        for k in range(self.config.n_parents):
            index = self.parents[:, None, :, k, None].clamp(min=0)
            values = self.value_embeddings.gather(2, index.expand(-1, 2, -1, self.config.state_dim))
            token = (values + self.label_embeddings[:, None]).flatten(1, 2)
            yield self.input(token).unflatten(1, (2, -1))

    def _read(self, state: Tensor, token: Tensor) -> Tensor:
        """Return the next state of the GRU cell, (…, H); ``token`` is (…, 3H)."""
        width = self.config.state_dim
        own = self.recurrent(state.flatten(1, -2)).unflatten(1, state.shape[1:-1])
        gates = torch.sigmoid(token[..., : 2 * width] + own[..., : 2 * width])
        reset, keep = gates.chunk(2, dim=-1)
        proposal = torch.tanh(token[..., 2 * width :] + reset * own[..., 2 * width :])
        return torch.lerp(proposal, state, keep)

    def _logits(self, state: Tensor) -> Tensor:
        """Return log-odds, (M, B, L, C), from states, (M, B, L or 1, C, H)."""
        state = state.expand(-1, -1, self.output.shape[1], -1, -1)
        scores = torch.einsum("mblch,mlh->mblc", state, self.output)
        return scores + self.label_bias[:, None, :, None]


class _WholeBatch(nn.Module):
    """The marginals of a network whose structures are known; members are grouped by structure."""

    def __init__(self, network: RBCCNetwork) -> None:
        super().__init__()
        self.network, self.structures = network, list(network.structures())

    def forward(self, features: Tensor) -> Tensor:
        """Return the marginal probabilities of all labels, (M, B, L)."""
        tables = self.network.tables(features)
        return torch.cat([marginals(tables[own], structure) for structure, own in self.structures])


@dataclass(kw_only=True, eq=False, repr=False)
class RBCC(NeuralClassifier):
    """Recurrent Bayesian classifier chains, designed for predicting whole label sets.

    Parameters
    ----------
    structure : list of (parent, child), optional
        Edges of a directed acyclic graph over the labels, by name or index. By default it is
        learned from the training labels, which requires pgmpy.
    max_parents : int
        Largest number of parents of a label in a learned structure; with 0 the labels are
        independent given the features.
    n_restarts : int
        Number of times the structure search restarts from a part of the best structure.
    state_dim : int
        Size of the recurrent state.
    hidden_dim : int
        Width of the hidden layer between features and state.
    prediction : {"thresholds", "most probable set"}
        What ``predict`` returns: the labels whose probability is above the learned threshold, or
        the label set of :meth:`mode`.
    beam_width : int
        Beam width of the search for the most probable label set; 1 is greedy.
    epochs, batch_size, learning_rate, weight_decay, dropout, input_dropout, training
        See :class:`~cgmvae.methods.neural.NeuralClassifier`, and its bases for all others.

    Attributes
    ----------
    edges_ : list of (str, str)
        Parent and child of each edge of the structure.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(200, 6, 5, seed=0)
    >>> edges = [("label_0", "label_1"), ("label_0", "label_2")]
    >>> model = RBCC(structure=edges, epochs=2, state_dim=16, n_members=2, random_state=0)
    >>> model.fit(data.X, data.Y).predict(data.X).shape
    (200, 5)
    >>> most_probable = model.mode(data.X)
    >>> bool((model.log_probability(data.X, most_probable) < 0).all())
    True
    """

    config_class: ClassVar = RBCCConfig
    network_class: ClassVar = RBCCNetwork
    max_labels: ClassVar[int | None] = 100
    """The structure search evaluates every pair of labels in each step (two minutes for 90 labels),
    and inference proceeds label by label. The C-GMVAE paper reports no results of RBCC beyond the
    100 labels of eBird either.
    """

    structure: Any = None
    max_parents: int = 3
    n_restarts: int = 20
    state_dim: int = 64
    hidden_dim: int = 256
    prediction: Literal["thresholds", "most probable set"] = "thresholds"
    beam_width: int = 16
    dropout: float = 0.5

    def _weights(self) -> Mapping[str, float]:
        return {"cross_entropy": 1.0}

    def _given(self) -> LabelStructure | None:
        if self.structure is None:
            return None
        return given_structure(self.structure, self.label_names_)

    def _config(self, profile: DataProfile) -> RBCCConfig:
        given = self._given()
        n_parents = min(self.max_parents, profile.n_labels - 1)
        if given is not None:
            n_parents = max(map(len, given.parents))
        return RBCCConfig(self.state_dim, self.hidden_dim, int(n_parents))

    def _show_labels(self, network: Any, labels: list[tuple[LabelRows, int]]) -> None:
        rows, sizes = zip(*labels, strict=True)
        structures: Any = [self._given()] * len(labels)
        if self.structure is None:
            structures = learn_structures(rows, self.max_parents, self.n_restarts)
        network.connect([s for s, n in zip(structures, sizes, strict=True) for _ in range(n)])

    def _compatible(self) -> Any:
        return self._given(), self.n_restarts

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        super()._restore_fitted(arrays, description)
        if not all(structure.is_ordered() for structure, _ in self.network_.structures()):
            raise ValueError("its structure is not a topological order of its labels")

    @property
    def edges_(self) -> list[tuple[str, str]]:
        """Parent and child of each edge of the structure, by name."""
        names = self.label_names_
        return [(names[parent], names[child]) for parent, child in self._structure.edges]

    @property
    def _structure(self) -> LabelStructure:
        # The members of one estimator learn from the same rows.
        structure, _ = next(self.network_.structures())
        return structure

    def predict(self, X: Any, *, as_frame: bool = False) -> Any:
        """Return the labels that the rule ``prediction`` selects, (n_samples, n_labels)."""
        if self.prediction != _MOST_PROBABLE:
            return super().predict(X, as_frame=as_frame)
        return self._framed(self.mode(X), X, as_frame=as_frame)

    def mode(self, X: Any) -> NDArray[np.int64]:
        """Return the most probable label set of each row, 0 and 1, (n_samples, n_labels).

        The best, by mean probability over members, of all label sets that the members' beams end
        with; the best of all label sets if ``beam_width`` is at least 2^n_labels.
        """
        check_whole(1, beam_width=self.beam_width)
        features = self.inputs(X)
        structure = self._structure

        def best(logits: Tensor, _: slice) -> Tensor:
            found = likely_label_sets(logits, structure, int(self.beam_width))
            candidates = found.transpose(0, 1).flatten(1, 2)
            scores = log_joint(logits, structure, candidates[None]).logsumexp(0)
            winner = scores.argmax(-1)[:, None, None].expand(-1, 1, self.n_labels_)
            return candidates.gather(1, winner).squeeze(1)

        return self._over_tables(features, best).astype(np.int64)

    def log_probability(self, X: Any, Y: Any) -> NDArray[np.floating]:
        """Return the log-probability of each row's whole label set, (n_samples,)."""
        features = self.inputs(X)
        targets = targets_of_rows(features, Y, self.label_names_)
        if targets.unknown is not None and targets.unknown.sum():
            raise InputError(
                "A label set with unknown labels has no probability; pass known labels."
            )
        structure = self._structure

        def joint(logits: Tensor, rows: slice) -> Tensor:
            labels = torch.as_tensor(dense(targets.labels[rows]), device=logits.device)
            label_sets = labels.bool()[None, :, None]
            members = log_joint(logits, structure, label_sets).squeeze(-1)
            return members.logsumexp(0) - math.log(len(logits))

        return self._over_tables(features, joint)

    @torch.no_grad()
    def _over_tables(
        self, features: Any, function: Callable[[Tensor, slice], Tensor]
    ) -> NDArray[Any]:
        """Apply a function to the log-odds tables of one block of rows at a time."""
        parts, start = [], 0
        for x in member_blocks(self.network_, features):
            for logits in self.network_.table_blocks(x):
                rows = slice(start, start + logits.shape[1])
                parts.append(function(logits, rows).cpu())
                start = rows.stop
        return torch.cat(parts).numpy()
