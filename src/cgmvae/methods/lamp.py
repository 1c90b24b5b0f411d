"""LaMP: attention-based message passing between labels (Lanchantin, Sekhon, Qi 2019).

The features of a row become component nodes. In each of T steps the components attend to one
another, and every label node attends to the components and then, along the edges of the label
graph, to other label nodes; the inner product of a node's state with its label's readout vector is
the label's logit, after every round.

Where the paper leaves a choice open, or assumes other inputs:

- Its inputs are words, whose embeddings are the component nodes that labels attend to. So are the
  columns of sparse features here: the ``n_words`` largest values of a row, each column's embedding
  times the value relative to the row's largest. Words have no positions.
- Its released code turns a dense vector into a single node. Here an affine map of the feature
  vector is split into ``n_components`` nodes: labels can attend to different views of the row, and
  the number of messages does not grow with the number of features.
- By default nodes are smaller than the paper's (d = 512), which takes a GPU; its sizes and training
  are ``REGISTRY["lamp"].original``. The weight of intermediate predictions is that of the released
  code.
- Each label has its own readout vector; the released code reuses the label's embedding.
- Each logit has a bias that is initialized to the label's log-odds; the paper has none.
- Unknown labels count neither in the cross-entropy nor as co-occurring.
- A label without neighbors, which a given graph may contain, receives no message from labels.
- In training on a GPU, nodes and their products are bfloat16, a fifth of the time with 983 labels;
  weights, normalization, logits and losses are float32, and so is prediction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.errors import InputError
from cgmvae.methods.diagnostics import cooccurrence
from cgmvae.methods.inputs import check_whole
from cgmvae.methods.neural import NeuralClassifier
from cgmvae.model.objective import cross_entropy
from cgmvae.model.plan import DataProfile, Plan, given_fields
from cgmvae.nn import cuda
from cgmvae.nn.batch import Batch
from cgmvae.nn.packed import TILE, PackedLayerNorm, PackedLinear, PackedMLP, hold_numbers
from cgmvae.nn.rng import RandomStreams
from cgmvae.training.pack import LabelRows
from cgmvae.training.plan import TrainingConfig

GRAPHS = ("full", "prior", "edgeless")

#: Label nodes of all rows and members that are scored at a time, which bounds the memory.
_SCORED_NODES = 1 << 17

#: Lower bound of a row's largest value.
_MIN_SHARE = 1e-12

#: On a CPU, up to this many neighbors are faster with all attention weights in memory.
_FEW_NEIGHBORS = 64


@dataclass(frozen=True)
class LaMPConfig:
    """Sizes of the network, which members of one pack share; see :class:`LaMP`."""

    embedding_dim: int
    hidden_dim: int
    n_heads: int
    n_steps: int
    n_components: int
    n_words: int = 0
    """Word nodes in place of components that are an affine map of the features; 0 for none."""
    component_messages: bool = False

    def __post_init__(self) -> None:
        sizes = dataclasses.asdict(self)
        check_whole(0, n_words=sizes.pop("n_words"))
        del sizes["component_messages"]
        check_whole(1, **sizes)
        if self.embedding_dim % self.n_heads:
            raise InputError(
                f"embedding_dim is {self.embedding_dim}; it must be a multiple of n_heads, "
                f"{self.n_heads}."
            )


class MessagePassing(nn.Module):
    """One round: nodes attend to their neighbors, add the message, and update themselves.

    Multi-head attention and an MLP with one hidden layer, each with a residual connection followed
    by layer normalization.
    """

    def __init__(
        self, config: LaMPConfig, streams: RandomStreams, name: str, *, dtype: torch.dtype
    ) -> None:
        super().__init__()
        width, self.n_heads, self.name = config.embedding_dim, config.n_heads, name
        bound = width**-0.5
        self.query, self.key, self.value = (
            nn.Parameter(
                streams.uniform_weights(f"{name}.{own}", width, width, bound=bound, dtype=dtype)
            )
            for own in ("query", "key", "value")
        )
        self.output = PackedLinear(width, width, streams, f"{name}.output", dtype=dtype)
        style: Any = {"layer_norm": False, "activation": "relu", "dtype": dtype}
        widths = (width, config.hidden_dim, width)
        self.update = PackedMLP(widths, streams, f"{name}.update", **style)
        self.message_norm, self.update_norm = (
            PackedLayerNorm(streams.n_members, width, dtype=dtype, device=streams.device)
            for _ in range(2)
        )

    def forward(
        self,
        nodes: Tensor,
        neighbors: Tensor,
        edges: Tensor | None,
        streams: RandomStreams | None,
        rate: Tensor,
        *,
        connected: bool = False,
    ) -> Tensor:
        """Return the new states of the nodes, (M, B, N, d), from their neighbors, (M, B, K, d).

        ``edges``, bool and broadcast to (M, B, N, K), are whether a node attends to a neighbor;
        None if all attend to all. A node without neighbors receives no message, unless it is known
        that there is none (``connected``). ``rate``, (M,), is the dropout of messages and of hidden
        units; there is none without ``streams``.
        """
        query = self._heads(self.query, nodes)
        key, value = (self._heads(weight, neighbors) for weight in (self.key, self.value))
        heads = edges
        if edges is not None and edges.shape[1] > 1:
            heads = edges.repeat_interleave(self.n_heads, dim=1)
        received = attend(query, key, value, heads)
        received = received.unflatten(1, (nodes.shape[1], self.n_heads)).transpose(2, 3)
        message = self.output(received.reshape(len(nodes), -1, nodes.shape[-1]))
        if edges is not None and not connected:
            alone = ~edges.any(-1, keepdim=True)
            message = message.view(nodes.shape).masked_fill(alone, 0.0).flatten(1, 2)
        state = self.message_norm.residual(
            nodes.flatten(1, 2), message, streams, f"{self.name}.message", rate
        )
        update = self.update(state, streams, rate)
        return self.update_norm.residual(state, update, None, self.name, rate).view(nodes.shape)

    def _heads(self, weight: Tensor, states: Tensor) -> Tensor:
        """Project states, (M, B, N, d), and split them into heads, (M, B·H, N, d/H)."""
        projected = cuda.affine(states.flatten(1, 2), weight)
        parts = projected.view(*states.shape[:3], self.n_heads, -1)
        return parts.transpose(2, 3).flatten(1, 2)


def attend(query: Tensor, key: Tensor, value: Tensor, edges: Tensor | None) -> Tensor:
    """Return the scaled dot-product attention over the neighbors, (M, R, N, e).

    Queries are (M, R, N, e), keys and values (M, R, K, e), edges broadcast to (M, R, N, K). A node
    without neighbors gets the average over all nodes; the caller discards it.
    """
    if edges is not None:
        # A softmax over nothing would be NaN, also in the gradient.
        edges = edges | ~edges.any(-1, keepdim=True)
    if query.device.type != "cpu" or key.shape[2] > _FEW_NEIGHBORS:
        mask = edges if edges is None or query.dtype != torch.bfloat16 else _aligned(edges)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    scaled = query * query.shape[-1] ** -0.5
    scores = torch.matmul(key, scaled.transpose(2, 3))  # (M, R, K, N)
    if edges is not None:
        scores = scores.masked_fill(~edges.transpose(2, 3), -torch.inf)
    # The neighbor axis precedes the node axis: softmax over a short last axis is much slower.
    return torch.matmul(torch.softmax(scores, dim=2).transpose(2, 3), value)


def _aligned(edges: Tensor) -> Tensor:
    """Return what to add to scores, in bfloat16, with rows that start where a GPU reads fastest."""
    spare = -edges.shape[-1] % TILE
    scores = torch.zeros_like(edges, dtype=torch.bfloat16).masked_fill_(~edges, -torch.inf)
    return F.pad(scores, (0, spare))[..., : edges.shape[-1]]


class LaMPNetwork(nn.Module):
    """LaMP for any number of members; see ``NeuralClassifier.network_class`` for the parameters."""

    def __init__(
        self,
        config: LaMPConfig,
        n_features: int,
        label_log_odds: NDArray[np.float64],
        streams: RandomStreams,
        *,
        dtype: torch.dtype = torch.float32,
        **dropouts: Sequence[float],
    ) -> None:
        super().__init__()
        self.config = config
        width, device = config.embedding_dim, streams.device
        log_odds = torch.as_tensor(label_log_odds, dtype=dtype, device=device)
        n_members, n_labels = log_odds.shape
        self.label_embeddings = nn.Parameter(
            streams.normal("label_embeddings", n_labels, width, dtype=dtype)
        )
        self.words: nn.Parameter | None = None
        self.components: PackedLinear | None = None
        if config.n_words:
            self.words = nn.Parameter(streams.normal("words", n_features, width, dtype=dtype))
        else:
            n_out = config.n_components * width
            self.components = PackedLinear(n_features, n_out, streams, "components", dtype=dtype)

        def rounds(name: str) -> nn.ModuleList:
            return nn.ModuleList(
                MessagePassing(config, streams, f"{name}.{step}", dtype=dtype)
                for step in range(config.n_steps)
            )

        self.from_components, self.from_labels = rounds("from_components"), rounds("from_labels")
        self.between_components: nn.ModuleList | None = None
        if config.component_messages:
            self.between_components = rounds("between_components")
        self.readout = nn.Parameter(
            streams.normal_weights("readout", n_labels, width, scale=width**-0.5, dtype=dtype)
        )
        self.label_bias = nn.Parameter(log_odds.clone())
        no_edges = torch.zeros(n_members, n_labels, n_labels, dtype=torch.bool, device=device)
        self.register_buffer("edges", no_edges)
        hold_numbers(self, log_odds, **dropouts)

    edges: Tensor
    dropout: Tensor
    input_dropout: Tensor

    in_half: bool = False
    """Whether a GPU computes nodes and their products in bfloat16, as it does in training."""

    connected: bool = False
    """Whether every label is known to attend to one."""

    def connect(self, edges: Tensor) -> None:
        """Set the label graph, bool (M, L, L): whether label i attends to label j."""
        self.edges.copy_(edges)
        self.connected = bool(edges.any(-1).all())

    def states(self, features: Tensor, streams: RandomStreams | None = None) -> list[Tensor]:
        """Return the label nodes after each of the 2T rounds of messages, (M, B, L, d) each."""
        # Casts of weights that are kept from step to step would not be recorded with the step.
        with torch.autocast("cuda", torch.bfloat16, enabled=self.in_half, cache_enabled=False):
            return self._states(features, streams)

    def _states(self, features: Tensor, streams: RandomStreams | None) -> list[Tensor]:
        components, present = self._components(features)
        nodes = self.label_embeddings[:, None].expand(-1, features.shape[1], -1, -1)
        states = []
        for step in range(self.config.n_steps):
            if self.between_components is not None:
                messages = self.between_components[step]
                components = messages(components, components, present, streams, self.dropout)
            nodes = self.from_components[step](nodes, components, present, streams, self.dropout)
            states.append(nodes)
            messages, edges = self.from_labels[step], self.edges[:, None]
            nodes = messages(nodes, nodes, edges, streams, self.dropout, connected=self.connected)
            states.append(nodes)
        return states

    def _components(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the component nodes, (M, B, K, d), and which exist, (M, B, 1, K); None if all."""
        if self.components is not None:
            sizes = (self.config.n_components, self.config.embedding_dim)
            return self.components(features).unflatten(-1, sizes), None
        assert self.words is not None
        n_members, n_features, _ = self.words.shape
        values, columns = features.topk(min(self.config.n_words, n_features), dim=-1)
        first = torch.arange(n_members, device=columns.device)[:, None, None] * n_features
        embeddings = F.embedding(columns + first, self.words.flatten(0, 1))
        present = values > 0
        share = torch.where(present, values / values[..., :1].clamp(min=_MIN_SHARE), 0.0)
        return embeddings * share[..., None], present[:, :, None]

    def logits(self, nodes: Tensor) -> Tensor:
        """Return the inner products of nodes, (M, B, L, d), with the readout vectors, (M, B, L)."""
        return (nodes * self.readout[:, None]).sum(-1) + self.label_bias[:, None]

    def forward(self, features: Tensor) -> Tensor:
        """Return the probabilities of all labels, (M, B, L), computed in blocks of rows."""
        n_members, n_labels = self.label_bias.shape
        n_rows = max(1, _SCORED_NODES // (n_members * n_labels))
        blocks = [self.logits(self.states(block)[-1]) for block in features.split(n_rows, dim=1)]
        return torch.sigmoid(torch.cat(blocks, dim=1))

    def exportable(self) -> nn.Module:
        """Return the network as a graph, which scores all rows of a batch at once."""
        return _WholeBatch(self)

    def terms(self, batch: Batch, streams: RandomStreams | None) -> dict[str, Tensor]:
        """Return the unweighted terms of the objective, each (M, B).

        ``cross_entropy`` is that of the last states, ``intermediate`` the sum over all earlier
        states.
        """
        features = batch.features
        if streams is not None:
            features = streams.dropout("features", features, self.input_dropout)
        *earlier, last = (
            cross_entropy(self.logits(nodes), batch.positive, batch.known)
            for nodes in self.states(features, streams)
        )
        return {"cross_entropy": last, "intermediate": torch.stack(earlier).sum(0)}


class _WholeBatch(nn.Module):
    """The probabilities of a network without blocks of rows."""

    def __init__(self, network: LaMPNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: Tensor) -> Tensor:
        """Return the probabilities of all labels, (M, B, L)."""
        return torch.sigmoid(self.network.logits(self.network.states(features)[-1]))


@dataclass(kw_only=True, eq=False, repr=False)
class LaMP(NeuralClassifier):
    """Label message passing: labels attend to the features of a row and to one another.

    Every label is a node with a learned embedding. In each step the nodes attend to components of
    the row's features, and then to the labels that they are connected with; the inner product of a
    node's state with the label's readout vector gives the probability.

    Parameters
    ----------
    graph : {"prior", "full", "edgeless"} or array, (n_labels, n_labels)
        Which labels attend to which: those that co-occur in a training row, and each to itself; all
        to all; none. In an array, row i marks the labels that label i attends to.
    n_steps : int
        T, the number of rounds from features to labels and then from labels to labels.
    embedding_dim : int
        d, width of the node states.
    hidden_dim : int, optional
        Width of the hidden layer of the node update; ``embedding_dim`` by default.
    n_heads : int
        Number of attention heads; ``embedding_dim`` must be a multiple of it.
    components : {"auto", "affine", "words"}
        What labels attend to: nodes that an affine map of the features gives, or the words of the
        row, the columns with its largest values; "auto" takes words of sparse features.
    n_components, n_words : int
        Number of nodes of the affine map, and largest number of words per row.
    component_messages : bool
        Whether the components attend to one another too.
    intermediate_weight : float
        Weight of the cross-entropy of the predictions after each round of messages but the last.
    epochs, batch_size, learning_rate, weight_decay, dropout, input_dropout, training
        See :class:`~cgmvae.methods.neural.NeuralClassifier`, and its bases for all others. With
        ``training={"precision": "tf32"}`` a GPU computes nodes in float32.

    Attributes
    ----------
    label_graph_ : array of bool, (n_labels, n_labels)
        Whether label i attends to label j.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(200, 6, 5, seed=0)
    >>> model = LaMP(epochs=2, embedding_dim=16, n_members=2, random_state=0)
    >>> model.fit(data.X, data.Y).predict(data.X).shape
    (200, 5)
    >>> bool(model.label_graph_.diagonal().all())
    True
    """

    config_class: ClassVar = LaMPConfig
    network_class: ClassVar = LaMPNetwork
    member_parameters: ClassVar = NeuralClassifier.member_parameters | {"intermediate_weight"}
    max_labels: ClassVar[int | None] = 4096
    """With this many labels a training step of 128 rows needs about 10 GiB per member (2.5 GiB with
    983).
    """

    graph: Any = "prior"
    n_steps: int = 2
    embedding_dim: int = 64
    hidden_dim: int | None = None
    n_heads: int = 4
    components: Literal["auto", "affine", "words"] = "auto"
    n_components: int = 8
    n_words: int = 64
    component_messages: bool = True
    epochs: int = 20
    learning_rate: float = 2e-3
    dropout: float = 0.3
    input_dropout: float = 0.1
    intermediate_weight: float = 0.2

    def _weights(self) -> Mapping[str, float]:
        return {"cross_entropy": 1.0, "intermediate": self.intermediate_weight}

    def plan(self, profile: DataProfile) -> Plan:
        """Return what ``fit`` does with such data: a GPU computes nodes in bfloat16."""
        plan = super().plan(profile)
        precision = given_fields(self.training, TrainingConfig).get("precision", "bf16")
        assert plan.training is not None
        return replace(plan, training=replace(plan.training, precision=precision))

    def _config(self, profile: DataProfile) -> LaMPConfig:
        words = profile.is_sparse if self.components == "auto" else self.components == "words"
        return LaMPConfig(
            embedding_dim=self.embedding_dim,
            hidden_dim=self.embedding_dim if self.hidden_dim is None else self.hidden_dim,
            n_heads=self.n_heads,
            n_steps=self.n_steps,
            n_components=self.n_components,
            n_words=self.n_words if words else 0,
            component_messages=bool(self.component_messages),
        )

    def _show_labels(self, network: Any, labels: list[tuple[LabelRows, int]]) -> None:
        graphs = [
            label_graph(self.graph, rows) for rows, n_members in labels for _ in range(n_members)
        ]
        network.connect(torch.as_tensor(np.stack(graphs)))

    def _compatible(self) -> Any:
        if isinstance(self.graph, str):
            return self.graph
        return _given_graph(self.graph, self.n_labels_).tobytes()

    @property
    def label_graph_(self) -> NDArray[np.bool_]:
        """Whether label i attends to label j, (n_labels, n_labels)."""
        return self.network_.edges[0].cpu().numpy()


def label_graph(graph: Any, rows: LabelRows) -> NDArray[np.bool_]:
    """Return whether label i attends to label j, (n_labels, n_labels).

    "prior" connects labels that are known to co-occur in a row, and each label with itself.
    """
    n_labels = rows.labels.shape[1]
    if not isinstance(graph, str):
        return _given_graph(graph, n_labels)
    if graph == "prior":
        labels = sp.csr_array(rows.labels, dtype=np.float64)
        if rows.unknown is not None:
            labels = labels - labels.multiply(sp.csr_array(rows.unknown))
        return (cooccurrence(labels) > 0) | np.eye(n_labels, dtype=bool)
    if graph not in GRAPHS:
        raise InputError(
            f"graph is {graph!r}; choose one of {', '.join(GRAPHS)}, or pass an array."
        )
    return np.full((n_labels, n_labels), graph == "full")


def _given_graph(graph: Any, n_labels: int) -> NDArray[np.bool_]:
    try:
        array = np.asarray(graph)
    except ValueError as error:
        raise InputError(f"graph is not a matrix: {error}.") from error
    if array.shape != (n_labels, n_labels) or not np.isin(array, (0, 1)).all():
        raise InputError(
            f"graph must be a matrix of 0 and 1 of shape ({n_labels}, {n_labels}); its shape is "
            f"{array.shape}."
        )
    return array.astype(bool)
