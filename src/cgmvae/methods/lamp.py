"""LaMP: attention-based message passing between labels (Lanchantin, Sekhon, Qi 2019).

Where the paper is silent, or has other inputs in mind:

- Its inputs are words, whose embeddings are the component nodes that labels attend to; its released
  code makes one node of a dense vector. Here an affine map of the feature vector is cut into
  ``n_components`` nodes: labels can attend to different views of the row, and the number of
  messages does not grow with the number of features. Such nodes have no graph of their own, so the
  messages between components are left out.
- Nodes are smaller than the paper's (d = 512); the weight of intermediate predictions is that of
  the released code.
- A label's output vector is its own; the released code takes the label's embedding for it.
- Logits have a bias for each label that starts at its log-odds; the paper has none.
- Unknown labels count neither in the cross-entropy nor as occurring together.
- A label without neighbours, which a given graph may have, gets no message from labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from cgmvae.errors import InputError
from cgmvae.methods.diagnostics import cooccurrence
from cgmvae.methods.inputs import Rows
from cgmvae.methods.lamp_network import LaMPConfig, LaMPNetwork
from cgmvae.methods.packed import NeuralClassifier
from cgmvae.methods.parameters import check_whole

GRAPHS = ("full", "prior", "edgeless")


@dataclass(kw_only=True, eq=False, repr=False)
class LaMP(NeuralClassifier):
    """Label message passing: labels attend to the row's features and to one another.

    Every label is a node with a learnt embedding. In each step the nodes attend to components of
    the row's features, and then to the labels that they are connected with; the inner product of a
    node's state with its label's own vector gives the probability.

    Parameters
    ----------
    graph : {"prior", "full", "edgeless"} or array, (n_labels, n_labels)
        Which labels listen to which: those that occur together in a training row, and each to
        itself; all to all; none. An array says in row i which labels label i listens to.
    n_steps : int
        T, rounds from features to labels and then from labels to labels.
    embedding_dim : int
        d, length of the nodes' states.
    hidden_dim : int, optional
        Width of the hidden layer with which a node updates itself; ``embedding_dim`` by default.
    n_heads : int
        Attention heads, which divide ``embedding_dim`` among them.
    n_components : int
        Nodes that the features of a row become.
    intermediate_weight : float
        Weight of the cross-entropy of the predictions after each round of messages but the last.
    epochs, batch_size, learning_rate, weight_decay, dropout, input_dropout, training
        See :class:`~cgmvae.methods.neural.NeuralClassifier`.
    n_members, device, checkpoint, progress
        See :class:`~cgmvae.methods.packed.PackedClassifier`.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`.

    Attributes
    ----------
    label_graph_ : array of bool, (n_labels, n_labels)
        Whether label i listens to label j.

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
    max_labels: ClassVar[int | None] = 4096
    """A training step of 128 rows then takes about 10 GiB for each member (2.5 GiB at 983)."""

    graph: Any = "prior"
    n_steps: int = 2
    embedding_dim: int = 64
    hidden_dim: int | None = None
    n_heads: int = 4
    n_components: int = 8
    epochs: int = 20
    learning_rate: float = 2e-3
    dropout: float = 0.3
    input_dropout: float = 0.1
    intermediate_weight: float = 0.2
    network_: LaMPNetwork = field(init=False)

    def _weights(self) -> Mapping[str, float]:
        return {"cross_entropy": 1.0, "intermediate": self.intermediate_weight}

    def _config(self) -> LaMPConfig:
        config = LaMPConfig(
            embedding_dim=self.embedding_dim,
            hidden_dim=self.embedding_dim if self.hidden_dim is None else self.hidden_dim,
            n_heads=self.n_heads,
            n_steps=self.n_steps,
            n_components=self.n_components,
        )
        _check_sizes(config)
        return config

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        super()._restore_fitted(arrays, description)
        _check_sizes(self.network_.config)

    def _prepare_network(self, network: Any, fits: list[tuple[LabelRows, int]]) -> None:
        graphs = [
            label_graph(self.graph, rows) for rows, n_members in fits for _ in range(n_members)
        ]
        network.connect(torch.as_tensor(np.stack(graphs)))

    def _shape(self) -> Any:
        graph = self.graph
        if not isinstance(graph, str):
            graph = _given_graph(graph, self.n_labels_).tobytes()
        return *super()._shape(), graph

    @property
    def label_graph_(self) -> NDArray[np.bool_]:
        """Whether label i listens to label j, (n_labels, n_labels)."""
        return self.network_.edges[0].cpu().numpy()


def _check_sizes(config: LaMPConfig) -> None:
    check_whole(1, **dataclasses.asdict(config))
    if config.embedding_dim % config.n_heads:
        raise InputError(
            f"{config.n_heads} heads cannot divide an embedding_dim of {config.embedding_dim}; "
            "choose a multiple of the number of heads."
        )


def label_graph(graph: Any, rows: Rows) -> NDArray[np.bool_]:
    """Return whether label i listens to label j, (n_labels, n_labels).

    Parameters
    ----------
    graph : {"prior", "full", "edgeless"} or array, (n_labels, n_labels)
    rows : Rows
        Training rows; "prior" connects the labels that one of them is known to have, and each
        label with itself.
    """
    n_labels = rows.labels.shape[1]
    if not isinstance(graph, str):
        return _given_graph(graph, n_labels)
    if graph == "prior":
        return (cooccurrence(_known_labels(rows)) > 0) | np.eye(n_labels, dtype=bool)
    if graph not in GRAPHS:
        raise InputError(
            f"There is no graph {graph!r}; choose one of {', '.join(GRAPHS)}, or give an array."
        )
    return np.full((n_labels, n_labels), graph == "full")


def _given_graph(graph: Any, n_labels: int) -> NDArray[np.bool_]:
    try:
        array = np.asarray(graph)
    except ValueError as error:
        raise InputError(f"graph is no table: {error}.") from error
    if array.shape != (n_labels, n_labels) or not np.isin(array, (0, 1)).all():
        raise InputError(
            f"graph must be a table of 0 and 1 with {n_labels} rows and columns, one for each "
            f"label; its shape is {array.shape}."
        )
    return array.astype(bool)


def _known_labels(rows: Rows) -> sp.csr_array:
    """Return the labels that rows are known to have, (n_rows, n_labels)."""
    labels = sp.csr_array(rows.labels, dtype=np.float64)
    if rows.unknown is None:
        return labels
    return labels - labels.multiply(sp.csr_array(rows.unknown))
