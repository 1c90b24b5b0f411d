"""ASL: a feed-forward network with the asymmetric loss (Ridnik et al. 2021, ICCV).

Positive and negative labels have focusing exponents of their own, and the probabilities of negative
labels are shifted down by a margin, below which an easy negative label costs nothing. The article
trains image networks; here features are vectors, so hidden layers take the backbone's place.

Where the article is silent: unknown labels cost nothing; the output's biases start at the labels'
log-odds. The loss draws probabilities upwards, so a threshold of 0.5 says little: ``predict`` takes
the one that was learnt on validation rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.errors import InputError
from cgmvae.methods.packed import NeuralClassifier
from cgmvae.methods.parameters import check_whole
from cgmvae.nn.batch import Batch
from cgmvae.nn.packed import PackedMLP, hold_numbers
from cgmvae.nn.rng import RandomStreams

#: Numbers of the loss, each member's own.
_LOSS_SETTINGS = ("gamma_positive", "gamma_negative", "margin")


@dataclass(frozen=True)
class ASLConfig:
    """Sizes of the network."""

    n_hidden: int
    """Hidden layers."""
    hidden_dim: int
    """Their width."""
    layer_norm: bool
    """Whether they are normalised."""


class AsymmetricNetwork(nn.Module):
    """Hidden layers and the asymmetric loss, for any number of members.

    Parameters
    ----------
    config : ASLConfig
        Sizes of the hidden layers.
    n_features : int
    label_log_odds : array, (n_members, n_labels)
        Where the biases of the output start.
    streams : RandomStreams
        Where first weights come from.
    dropout, input_dropout, gamma_positive, gamma_negative, margin : sequence of float, (n_members,)
        Each member's own.
    """

    def __init__(
        self,
        config: ASLConfig,
        n_features: int,
        label_log_odds: NDArray[np.float64],
        streams: RandomStreams,
        *,
        dtype: torch.dtype = torch.float32,
        **settings: Sequence[float],
    ) -> None:
        super().__init__()
        self.config = config
        log_odds = torch.as_tensor(label_log_odds, dtype=dtype, device=streams.device)
        widths = (n_features, *[config.hidden_dim] * config.n_hidden, log_odds.shape[1])
        self.mlp = PackedMLP(
            widths, streams, layer_norm=config.layer_norm, activation="relu", dtype=dtype
        )
        output: Any = self.mlp.layers[-1]
        output.bias.data.copy_(log_odds)
        names = ("dropout", "input_dropout", *_LOSS_SETTINGS)
        hold_numbers(self, log_odds, **{name: settings[name] for name in names})

    dropout: Tensor
    input_dropout: Tensor
    gamma_positive: Tensor
    gamma_negative: Tensor
    margin: Tensor

    def logits(self, features: Tensor, streams: RandomStreams | None = None) -> Tensor:
        """Return the log-odds of all labels, (n_members, n_rows, n_labels)."""
        if streams is not None:
            features = streams.dropout(features, self.input_dropout)
        return self.mlp(features, streams, self.dropout)

    def forward(self, features: Tensor) -> Tensor:
        """Return the probabilities of all labels, unshifted, (n_members, n_rows, n_labels)."""
        return torch.sigmoid(self.logits(features))

    def terms(self, batch: Batch, streams: RandomStreams | None) -> dict[str, Tensor]:
        """Return the loss of each row, (n_members, n_rows)."""
        settings = {name: getattr(self, name)[:, None, None] for name in _LOSS_SETTINGS}
        logits = self.logits(batch.features, streams)
        return {"asymmetric": asymmetric_loss(logits, batch.positive, batch.known, **settings)}


@dataclass(kw_only=True, eq=False, repr=False)
class ASL(NeuralClassifier):
    """Feed-forward network trained with the asymmetric loss.

    Parameters
    ----------
    gamma_positive, gamma_negative : float
        γ₊ and γ₋: how much less a label costs that is already nearly right. Both 0, with
        ``margin`` 0, is cross-entropy; both alike is the focal loss.
    margin : float
        m: what is taken from the probability of a negative label before it is scored; from 0 to
        below 1.
    n_hidden, hidden_dim : int
        Hidden layers and their width.
    layer_norm : bool
        Whether hidden layers are normalised.
    epochs, batch_size, learning_rate, weight_decay, dropout, input_dropout, training
        See :class:`~cgmvae.methods.neural.NeuralClassifier`.
    n_members, device, checkpoint, progress
        See :class:`~cgmvae.methods.packed.PackedClassifier`.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`.

    Attributes
    ----------
    network_ : AsymmetricNetwork
        All members.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(200, 6, 5, seed=0)
    >>> model = ASL(epochs=2, hidden_dim=16, random_state=0)
    >>> model.fit(data.X, data.Y).predict(data.X).shape
    (200, 5)
    """

    config_class: ClassVar = ASLConfig
    network_class: ClassVar = AsymmetricNetwork

    gamma_positive: float = 0.0
    gamma_negative: float = 4.0
    margin: float = 0.05
    n_hidden: int = 3
    hidden_dim: int = 256
    layer_norm: bool = True

    def _weights(self) -> Mapping[str, float]:
        return {"asymmetric": 1.0}

    def _network_settings(self) -> Mapping[str, Any]:
        for name in ("gamma_positive", "gamma_negative"):
            if not 0 <= getattr(self, name) < np.inf:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 0.")
        if not 0 <= self.margin < 1:
            raise InputError(f"margin is {self.margin}; it must be at least 0 and below 1.")
        return {name: float(getattr(self, name)) for name in _LOSS_SETTINGS}

    def _config(self) -> ASLConfig:
        check_whole(1, n_hidden=self.n_hidden, hidden_dim=self.hidden_dim)
        return ASLConfig(self.n_hidden, self.hidden_dim, self.layer_norm)


def asymmetric_loss(
    logits: Tensor,
    positive: Tensor,
    known: Tensor,
    *,
    gamma_positive: Tensor,
    gamma_negative: Tensor,
    margin: Tensor,
) -> Tensor:
    """Asymmetric loss summed over the known labels, (n_members, n_rows).

    A positive label of probability p costs −(1 − p)^γ₊ log p, a negative one −p_m^γ₋ log(1 − p_m)
    with p_m = max(p − m, 0). Gradients flow through the focusing factors too, as the article
    derives them; its released code can hold them constant. Where p ≤ m a negative label has
    neither loss nor gradient.

    Parameters
    ----------
    logits : Tensor, (n_members, n_rows, n_labels)
    positive, known : Tensor of bool, (n_members, n_rows, n_labels)
    gamma_positive, gamma_negative, margin : Tensor
        γ₊, γ₋ and m; of a shape that spreads over the logits.
    """
    log_rest = F.logsigmoid(-logits)  # log(1 − p), which stays finite where p rounds to 1
    of_positive = torch.exp(gamma_positive * log_rest) * F.softplus(-logits)
    shifted = torch.sigmoid(logits) - margin
    costs = shifted > 0
    # 1 − p_m = (1 − p) + m. A power of 0 may have no gradient: where it is not wanted, it is of 1.
    log_rest_shifted = torch.logaddexp(log_rest, torch.log(margin))
    focus = torch.where(costs, shifted, 1.0) ** gamma_negative
    of_negative = torch.where(costs, -focus * log_rest_shifted, 0.0)
    return torch.where(positive, of_positive, of_negative).masked_fill(~known, 0.0).sum(-1)
