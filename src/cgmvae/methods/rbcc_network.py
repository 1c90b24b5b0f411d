"""The network of RBCC: a recurrent cell that reads a label's parents, and nothing else.

The features of a row become a state. For each label the cell, whose weights all labels share,
starts from that state and reads the values of the label's parents, one after the other; the state
that it ends in gives the label's log-odds. So p(y|x) is the product of p(y_l | x, parents of l).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.methods.label_structure import LabelStructure
from cgmvae.methods.rbcc_inference import marginals
from cgmvae.model.objective import cross_entropy
from cgmvae.nn.batch import Batch
from cgmvae.nn.packed import PackedLinear, PackedMLP, hold_numbers
from cgmvae.nn.rng import RandomStreams

#: States of all rows, labels and values of parents that are scored at a time; they bound memory.
_SCORED_STATES = 1 << 17


@dataclass(frozen=True)
class RBCCConfig:
    """Sizes of the network; members of one pack share them."""

    state_dim: int
    """H, length of the recurrent state."""
    hidden_dim: int
    """Width of the hidden layer between features and state."""
    n_parents: int
    """P, the most parents that a label can have."""


class RBCCNetwork(nn.Module):
    """Recurrent Bayesian classifier chains for any number of members.

    Parameters
    ----------
    config : RBCCConfig
        Sizes.
    n_features : int
        D.
    label_log_odds : array, (n_members, n_labels)
        Where the label biases start: the log-odds of each label among the member's rows.
    streams : RandomStreams
        Where first weights come from.
    dropout, input_dropout : sequence of float, (n_members,)
        Each member's own.
    """

    def __init__(
        self,
        config: RBCCConfig,
        n_features: int,
        label_log_odds: NDArray[np.float64],
        streams: RandomStreams,
        *,
        dropout: Sequence[float],
        input_dropout: Sequence[float],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        log_odds = torch.as_tensor(label_log_odds, dtype=dtype, device=streams.device)
        n_members, n_labels = log_odds.shape
        width = config.state_dim
        self.encoder = PackedMLP(
            (n_features, config.hidden_dim, width),
            streams,
            layer_norm=True,
            activation="relu",
            dtype=dtype,
        )
        bound = width**-0.5

        def vectors(*shape: int) -> nn.Parameter:
            return nn.Parameter((streams.uniform(*shape, dtype=dtype) * 2 - 1) * bound)

        self.label_embeddings = vectors(n_labels, width)
        self.value_embeddings = vectors(2, n_labels, width)
        self.input = PackedLinear(width, 3 * width, streams, dtype=dtype)
        self.recurrent = PackedLinear(width, 3 * width, streams, dtype=dtype)
        self.output = vectors(n_labels, width)
        self.label_bias = nn.Parameter(log_odds.clone())
        hold_numbers(self, log_odds, dropout=dropout, input_dropout=input_dropout)
        parents = torch.full((n_members, n_labels, config.n_parents), -1, device=streams.device)
        order = torch.arange(n_labels, device=streams.device).repeat(n_members, 1)
        self.register_buffer("parents", parents)
        self.register_buffer("order", order)

    dropout: Tensor
    input_dropout: Tensor
    parents: Tensor
    """Parents of each label in reading order, −1 where there are fewer, (M, L, P)"""
    order: Tensor
    """All labels, parents first, (M, L)"""

    def connect(self, structures: Sequence[LabelStructure]) -> None:
        """Take each member's structure, (M,)."""
        for i, structure in enumerate(structures):
            self.order[i] = torch.tensor(structure.order)
            self.parents[i] = -1
            for label, parents in enumerate(structure.parents):
                self.parents[i, label, : len(parents)] = torch.tensor(parents)

    def structures(self) -> Iterator[tuple[LabelStructure, Tensor]]:
        """Give the different structures, each with the members that have it."""
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

    def table_blocks(self, features: Tensor) -> Iterator[Tensor]:
        """Give the log-odds of :meth:`tables` for a block of rows at a time."""
        n_members, n_labels, n_parents = self.parents.shape
        n_states = n_members * n_labels << n_parents
        for block in features.split(max(1, _SCORED_STATES // n_states), dim=1):
            yield self.tables(block)

    def terms(self, batch: Batch, streams: RandomStreams | None) -> dict[str, Tensor]:
        """Return the cross-entropy of each row, (M, B), with the true values of the parents."""
        logits = self.forced_logits(batch.features, batch.positive, batch.known, streams)
        return {"cross_entropy": cross_entropy(logits, batch.positive, batch.known)}

    def forced_logits(
        self,
        features: Tensor,
        positive: Tensor,
        known: Tensor,
        streams: RandomStreams | None = None,
    ) -> Tensor:
        """Return the log-odds of each label given its parents' true values, (M, B, L).

        A parent whose value is not known is not read.
        """
        state = self._encode(features, streams)[:, :, None]
        for k, tokens in enumerate(self._tokens()):
            parents = self.parents[:, None, :, k].expand_as(positive)
            there = (parents >= 0) & known.gather(-1, parents.clamp(min=0))
            value = positive.gather(-1, parents.clamp(min=0))[..., None]
            token = torch.where(value, tokens[:, 1, None], tokens[:, 0, None])
            state = torch.where(there[..., None], self._read(state, token), state)
        return self._logits(state[:, :, :, None]).squeeze(-1)

    def tables(self, features: Tensor) -> Tensor:
        """Return the log-odds of each label for all values of its parents, (M, B, L, 2^P)."""
        state = self._encode(features, None)[:, :, None, None]  # (M, B, 1, 1, H)
        there = (self.parents >= 0)[:, None, :, None, :, None]
        for k, tokens in enumerate(self._tokens()):
            read = self._read(state[..., None, :], tokens.transpose(1, 2)[:, None, :, None])
            state = torch.where(there[..., k, :, None], read, state[..., None, :]).flatten(3, 4)
        return self._logits(state)

    def _encode(self, features: Tensor, streams: RandomStreams | None) -> Tensor:
        """Return the state that all labels start from, (M, B, H)."""
        if streams is not None:
            features = streams.dropout(features, self.input_dropout)
        return torch.tanh(self.encoder(features, streams, self.dropout))

    def _tokens(self) -> Iterator[Tensor]:
        """Give what the cell reads of each label's k-th parent, absent and present, (M, 2, L, 3H).

        It tells which label is predicted, which parent is read, and the parent's value.
        """
        for k in range(self.config.n_parents):
            index = self.parents[:, None, :, k, None].clamp(min=0)
            values = self.value_embeddings.gather(2, index.expand(-1, 2, -1, self.config.state_dim))
            token = (values + self.label_embeddings[:, None]).flatten(1, 2)
            yield self.input(token).unflatten(1, (2, -1))

    def _read(self, state: Tensor, token: Tensor) -> Tensor:
        """Return the cell's next state (a GRU), (…, H); ``token`` is (…, 3H)."""
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
