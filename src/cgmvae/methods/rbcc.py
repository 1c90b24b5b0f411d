"""RBCC: recurrent Bayesian classifier chains (Gerych et al. 2021).

A Bayesian network over the labels is learnt from the training labels alone; a recurrent network
then predicts each label from the features and from the values of its parents in that network.

Where the paper is silent or had to be left:

- The structure is found by hill climbing on the BIC, with at most ``max_parents`` parents a label;
  rows with an unknown label do not count there (:mod:`~cgmvae.methods.structure_search`).
- The cell reads the parents one by one, in topological order, from a state that the features give.
  It is handed no state of another label: that would carry the values of ancestors, and the product
  of the conditionals would no longer be the Bayesian network's.
- Training is teacher-forced; a parent whose value is unknown is not read.
- ``predict_proba`` returns marginals, summed over all label sets (exactly, as long as no more than
  a dozen labels have children to come; see :mod:`~cgmvae.methods.rbcc_inference`). Thresholds apply
  to these; ``mode`` returns the paper's prediction, the most probable label set.
- Several members are averaged: marginals, and the probabilities of label sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.methods.inputs import targets_of_rows
from cgmvae.methods.label_structure import LabelStructure, given_structure
from cgmvae.methods.packed import NeuralClassifier
from cgmvae.methods.parameters import check_whole
from cgmvae.methods.rbcc_inference import likely_label_sets, log_joint
from cgmvae.methods.rbcc_network import RBCCConfig, RBCCNetwork
from cgmvae.methods.structure_search import learn_structures

#: The network scores 2^P combinations of P parents' values for each row and label.
_MOST_PARENTS = 8


@dataclass(kw_only=True, eq=False, repr=False)
class RBCC(NeuralClassifier):
    """Recurrent Bayesian classifier chains, made for predicting whole label sets.

    Parameters
    ----------
    structure : list of (parent, child), optional
        Edges of a directed acyclic graph over the labels, by name or index. By default it is learnt
        from the training labels, which needs pgmpy.
    max_parents : int
        How many parents a label may have in a structure that is learnt; with 0 the labels are
        independent given the features.
    n_restarts : int
        How often the search for a structure starts again from a part of the best one.
    state_dim : int
        Length of the recurrent state.
    hidden_dim : int
        Width of the hidden layer between features and state.
    beam_width : int
        Label sets that the search for the most probable one keeps at each label; 1 is greedy.
    epochs, batch_size, learning_rate, weight_decay, dropout, input_dropout, training
        See :class:`~cgmvae.methods.neural.NeuralClassifier`.
    n_members, device, checkpoint, progress
        See :class:`~cgmvae.methods.packed.PackedClassifier`.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`.

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
    """The search for a structure looks at every pair of labels in each of its steps (two minutes
    for 90 labels), and inference goes label by label. The C-GMVAE paper has no numbers of RBCC
    beyond the 100 labels of eBird either."""

    structure: Any = None
    max_parents: int = 3
    n_restarts: int = 20
    state_dim: int = 64
    hidden_dim: int = 256
    beam_width: int = 16
    dropout: float = 0.5
    network_: RBCCNetwork = field(init=False)

    def _weights(self) -> Mapping[str, float]:
        return {"cross_entropy": 1.0}

    def _given(self) -> LabelStructure | None:
        if self.structure is None:
            return None
        return given_structure(self.structure, self.label_names_)

    def _config(self) -> RBCCConfig:
        check_whole(0, max_parents=self.max_parents, n_restarts=self.n_restarts)
        check_whole(1, state_dim=self.state_dim, hidden_dim=self.hidden_dim)
        given = self._given()
        n_parents = min(self.max_parents, self.n_labels_ - 1) if given is None else given.n_parents
        if n_parents > _MOST_PARENTS:
            raise InputError(
                f"A label would have {n_parents} parents; at most {_MOST_PARENTS} are possible."
            )
        return RBCCConfig(self.state_dim, self.hidden_dim, int(n_parents))

    def _prepare_network(self, network: Any, fits: list[tuple[LabelRows, int]]) -> None:
        given = self._given()
        if given is None:
            rows = [rows for rows, _ in fits]
            structures = learn_structures(rows, self.max_parents, self.n_restarts)
        else:
            structures = [given] * len(fits)
        sizes = [n_members for _, n_members in fits]
        network.connect([s for s, n in zip(structures, sizes, strict=True) for _ in range(n)])

    def _shape(self) -> Any:
        return *super()._shape(), self._given(), self.n_restarts

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        super()._restore_fitted(arrays, description)
        if self.network_.config.n_parents > _MOST_PARENTS:
            raise ValueError("its labels have too many parents")
        if not all(structure.is_ordered() for structure, _ in self.network_.structures()):
            raise ValueError("its structure is no order of its labels")

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

    def mode(self, X: Any) -> NDArray[np.int64]:
        """Return the most probable label set of each row, 0 and 1, (n_samples, n_labels).

        The best of all label sets that the members' beams end with, by their mean probability;
        the best of all label sets where ``beam_width`` is at least 2^n_labels.
        """
        check_whole(1, beam_width=self.beam_width)
        features = self._scaled_features(X)
        structure = self._structure

        def best(logits: Tensor, _: slice) -> Tensor:
            found = likely_label_sets(logits, structure, int(self.beam_width))
            candidates = found.transpose(0, 1).flatten(1, 2)
            scores = log_joint(logits, structure, candidates[None]).logsumexp(0)
            place = scores.argmax(-1)[:, None, None].expand(-1, 1, self.n_labels_)
            return candidates.gather(1, place).squeeze(1)

        return self._over_tables(features, best).astype(np.int64)

    def log_probability(self, X: Any, Y: Any) -> NDArray[np.floating]:
        """Return the log-probability of each row's whole label set, (n_samples,)."""
        features = self._scaled_features(X)
        targets = targets_of_rows(features, Y, self.label_names_)
        if targets.unknown is not None and targets.unknown.sum():
            raise InputError("A label set with unknown labels has no probability; fill them in.")
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
        """Apply a function to blocks of rows, given as their tables of log-odds."""
        parts, start = [], 0
        for x in self._blocks(features):
            for logits in self.network_.table_blocks(x):
                rows = slice(start, start + logits.shape[1])
                parts.append(function(logits, rows).cpu())
                start = rows.stop
        return torch.cat(parts).numpy()
