"""The network of LaMP: labels are nodes that attend to the input and to one another.

A row's features become a few component nodes. In each of T steps every label node attends to the
components and then, along the edges of the label graph, to other label nodes; the inner product of
a node's state with its label's own vector is the label's logit, after every round of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.model.objective import cross_entropy
from cgmvae.nn.batch import Batch
from cgmvae.nn.packed import PackedLayerNorm, PackedLinear, PackedMLP, hold_numbers
from cgmvae.nn.rng import RandomStreams

#: Label nodes of all rows and members that are scored at a time; their states bound the memory.
_SCORED_NODES = 1 << 17

#: Up to so many neighbours a processor is faster with all attention weights in memory.
_FEW_NEIGHBOURS = 64


@dataclass(frozen=True)
class LaMPConfig:
    """Sizes of the network; members of one pack share them."""

    embedding_dim: int
    """d, length of the nodes' states."""
    hidden_dim: int
    """Width of the hidden layer with which a node updates itself."""
    n_heads: int
    """Attention heads; they divide d among them."""
    n_steps: int
    """T, each from components to labels and then from labels to labels."""
    n_components: int
    """Nodes that a row's features become."""


class MessagePassing(nn.Module):
    """One round: nodes attend to their neighbours, add the message, and update themselves.

    Multi-head attention and a network with one hidden layer, each added to the node's state and
    followed by layer normalisation.
    """

    def __init__(self, config: LaMPConfig, streams: RandomStreams, *, dtype: torch.dtype) -> None:
        super().__init__()
        width, self.n_heads = config.embedding_dim, config.n_heads
        self.query, self.key, self.value = (
            nn.Parameter((streams.uniform(width, width, dtype=dtype) * 2 - 1) * width**-0.5)
            for _ in range(3)
        )
        self.output = PackedLinear(width, width, streams, dtype=dtype)
        self.update = PackedMLP(
            (width, config.hidden_dim, width),
            streams,
            layer_norm=False,
            activation="relu",
            dtype=dtype,
        )
        self.message_norm, self.update_norm = (
            PackedLayerNorm(streams.n_members, width, dtype=dtype, device=streams.device)
            for _ in range(2)
        )

    def forward(
        self,
        nodes: Tensor,
        neighbours: Tensor,
        edges: Tensor | None,
        streams: RandomStreams | None,
        rate: Tensor,
    ) -> Tensor:
        """Return the new states of the nodes, (M, B, N, d).

        Parameters
        ----------
        nodes : Tensor, (M, B, N, d)
        neighbours : Tensor, (M, B, K, d)
        edges : Tensor of bool, (M, N, K), or None
            Whether a node listens to a neighbour; None where all listen to all. A node that listens
            to nobody gets no message.
        streams, rate
            Dropout of messages and of hidden units, (M,); without ``streams`` there is none.
        """
        message = self._message(nodes, neighbours, edges).flatten(1, 2)
        if streams is not None:
            message = streams.dropout(message, rate)
        state = self.message_norm(nodes.flatten(1, 2) + message)
        return self.update_norm(state + self.update(state, streams, rate)).view(nodes.shape)

    def _message(self, nodes: Tensor, neighbours: Tensor, edges: Tensor | None) -> Tensor:
        n_rows = nodes.shape[1]
        heard = attend(
            self._heads(self.query, nodes),
            self._heads(self.key, neighbours),
            self._heads(self.value, neighbours),
            edges,
        )
        heard = heard.unflatten(1, (n_rows, self.n_heads)).transpose(2, 3)
        message = self.output(heard.reshape(len(nodes), -1, nodes.shape[-1])).view(nodes.shape)
        if edges is None:
            return message
        return message.masked_fill(~edges.any(-1)[:, None, :, None], 0.0)

    def _heads(self, weight: Tensor, states: Tensor) -> Tensor:
        """Project states, (M, B, N, d), and deal them out to the heads, (M, B·H, N, d/H)."""
        projected = torch.bmm(states.flatten(1, 2), weight)
        parts = projected.view(*states.shape[:3], self.n_heads, -1)
        return parts.transpose(2, 3).flatten(1, 2)


def attend(query: Tensor, key: Tensor, value: Tensor, edges: Tensor | None) -> Tensor:
    """Return the values of the neighbours, averaged by scaled dot-product attention, (M, R, N, e).

    Parameters
    ----------
    query : Tensor, (M, R, N, e)
    key, value : Tensor, (M, R, K, e)
    edges : Tensor of bool, (M, N, K), or None
        A node that listens to nobody gets the average over all; the caller drops it.
    """
    if edges is not None:
        # Nothing to normalise over would be NaN, in the gradient too.
        edges = edges | ~edges.any(-1, keepdim=True)
    if query.device.type == "cpu" and key.shape[2] <= _FEW_NEIGHBOURS:
        return _attend_in_memory(query, key, value, edges)
    mask = None if edges is None else edges[:, None]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def _attend_in_memory(query: Tensor, key: Tensor, value: Tensor, edges: Tensor | None) -> Tensor:
    scaled = query * query.shape[-1] ** -0.5
    scores = torch.matmul(key, scaled.transpose(2, 3))  # (M, R, K, N)
    if edges is not None:
        scores = scores.masked_fill(~edges.transpose(1, 2)[:, None], -torch.inf)
    # Neighbours come before nodes: softmax over a short last axis is many times slower.
    return torch.matmul(torch.softmax(scores, dim=2).transpose(2, 3), value)


class LaMPNetwork(nn.Module):
    """LaMP for any number of members.

    Parameters
    ----------
    config : LaMPConfig
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
        config: LaMPConfig,
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
        width, device = config.embedding_dim, streams.device
        log_odds = torch.as_tensor(label_log_odds, dtype=dtype, device=device)
        n_members, n_labels = log_odds.shape
        self.label_embeddings = nn.Parameter(streams.normal(n_labels, width, dtype=dtype))
        self.components = PackedLinear(
            n_features, config.n_components * width, streams, dtype=dtype
        )
        self.from_components, self.from_labels = (
            nn.ModuleList(
                MessagePassing(config, streams, dtype=dtype) for _ in range(config.n_steps)
            )
            for _ in range(2)
        )
        readout = streams.normal(n_labels, width, dtype=dtype) * width**-0.5
        self.readout = nn.Parameter(readout)
        self.label_bias = nn.Parameter(log_odds.clone())
        nobody = torch.zeros(n_members, n_labels, n_labels, dtype=torch.bool, device=device)
        self.register_buffer("edges", nobody)
        hold_numbers(self, log_odds, dropout=dropout, input_dropout=input_dropout)

    edges: Tensor
    dropout: Tensor
    input_dropout: Tensor

    def connect(self, edges: Tensor) -> None:
        """Set the label graph, bool (M, L, L): whether label i listens to label j."""
        self.edges.copy_(edges)

    def states(self, features: Tensor, streams: RandomStreams | None = None) -> list[Tensor]:
        """Return the label nodes after each of the 2 T rounds of messages, (M, B, L, d) each."""
        sizes = (self.config.n_components, self.config.embedding_dim)
        components = self.components(features).unflatten(-1, sizes)
        nodes = self.label_embeddings[:, None].expand(-1, features.shape[1], -1, -1)
        states = []
        for hear_input, hear_labels in zip(self.from_components, self.from_labels, strict=True):
            nodes = hear_input(nodes, components, None, streams, self.dropout)
            states.append(nodes)
            nodes = hear_labels(nodes, nodes, self.edges, streams, self.dropout)
            states.append(nodes)
        return states

    def logits(self, nodes: Tensor) -> Tensor:
        """Return the inner products of nodes, (M, B, L, d), with their labels' vectors."""
        return (nodes * self.readout[:, None]).sum(-1) + self.label_bias[:, None]

    def forward(self, features: Tensor) -> Tensor:
        """Return the probabilities of all labels, (M, B, L), a block of rows at a time."""
        n_members, n_labels = self.label_bias.shape
        n_rows = max(1, _SCORED_NODES // (n_members * n_labels))
        blocks = [self.logits(self.states(block)[-1]) for block in features.split(n_rows, dim=1)]
        return torch.sigmoid(torch.cat(blocks, dim=1))

    def terms(self, batch: Batch, streams: RandomStreams | None) -> dict[str, Tensor]:
        """Return the unweighted terms of the objective, each (M, B).

        ``cross_entropy`` is that of the last states, ``intermediate`` the sum of all others'.
        """
        features = batch.features
        if streams is not None:
            features = streams.dropout(features, self.input_dropout)
        *earlier, last = (
            cross_entropy(self.logits(nodes), batch.positive, batch.known)
            for nodes in self.states(features, streams)
        )
        return {"cross_entropy": last, "intermediate": torch.stack(earlier).sum(0)}
