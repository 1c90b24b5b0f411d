"""ASL: a feed-forward network with the asymmetric loss (Ridnik et al. 2021, ICCV).

Positive and negative labels have separate focusing exponents, and the probabilities of negative
labels are shifted down by a margin, below which an easy negative label has no loss. The paper
trains image networks; here features are vectors, so an MLP replaces the backbone.

Where the paper leaves a choice open: unknown labels have no loss; the output biases are initialized
to the labels' log-odds. The loss biases probabilities upward, so 0.5 is a poor threshold:
``predict`` uses the one learned on validation rows.
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
from cgmvae.methods.neural import NeuralClassifier
from cgmvae.model.plan import DataProfile
from cgmvae.nn.batch import Batch
from cgmvae.nn.packed import PackedMLP, hold_numbers
from cgmvae.nn.rng import RandomStreams

#: Parameters of the loss that may differ between members.
_LOSS_SETTINGS = ("gamma_positive", "gamma_negative", "margin")


@dataclass(frozen=True)
class ASLConfig:
    """Sizes of the network; see :class:`ASL`."""

    n_hidden: int
    hidden_dim: int
    layer_norm: bool


class AsymmetricNetwork(nn.Module):
    """MLP with the asymmetric loss for any number of members.

    See ``NeuralClassifier.network_class`` for the parameters; each member has its own
    ``gamma_positive``, ``gamma_negative`` and ``margin``.
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
            widths, streams, "mlp", layer_norm=config.layer_norm, activation="relu", dtype=dtype
        )
        output: Any = self.mlp.layers[-1]
        output.bias.data.copy_(log_odds)
        hold_numbers(self, log_odds, **settings)

    dropout: Tensor
    input_dropout: Tensor
    gamma_positive: Tensor
    gamma_negative: Tensor
    margin: Tensor

    def logits(self, features: Tensor, streams: RandomStreams | None = None) -> Tensor:
        """Return the log-odds of all labels, (n_members, n_rows, n_labels)."""
        if streams is not None:
            features = streams.dropout("features", features, self.input_dropout)
        return self.mlp(features, streams, self.dropout)

    def forward(self, features: Tensor) -> Tensor:
        """Return the probabilities of all labels, without margin, (n_members, n_rows, n_labels)."""
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
        γ₊ and γ₋: how strongly the loss of a nearly correct label is reduced. With both 0 and
        ``margin`` 0 this is cross-entropy; with both equal, the focal loss.
    margin : float
        m, subtracted from the probability of a negative label before the loss is computed; in [0,
        1).
    n_hidden, hidden_dim : int
        Number and width of the hidden layers.
    layer_norm : bool
        Whether hidden layers are normalized.
    epochs, batch_size, learning_rate, weight_decay, dropout, input_dropout, training
        See :class:`~cgmvae.methods.neural.NeuralClassifier`, and its bases for all others.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(200, 6, 5, seed=0)
    >>> model = ASL(epochs=2, hidden_dim=16, random_state=0)
    >>> model.fit(data.X, data.Y).predict(data.X).shape
    (200, 5)
    """

    config_class: ClassVar = ASLConfig
    member_parameters: ClassVar = NeuralClassifier.member_parameters | set(_LOSS_SETTINGS)
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

    def _config(self, profile: DataProfile) -> ASLConfig:
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

    A positive label of probability p has the loss −(1 − p)^γ₊ log p, a negative one −p_m^γ₋ log(1 −
    p_m) with p_m = max(p − m, 0). Gradients flow through the focusing factors, as the paper derives
    them; its released code can treat them as constants. Where p ≤ m a negative label has neither
    loss nor gradient. γ₊, γ₋ and m broadcast to the logits, (n_members, n_rows, n_labels).
    """
    log_rest = F.logsigmoid(-logits)  # log(1 − p), finite even where p rounds to 1
    of_positive = torch.exp(gamma_positive * log_rest) * F.softplus(-logits)
    shifted = torch.sigmoid(logits) - margin
    costs = shifted > 0
    # 1 − p_m = (1 − p) + m. A power of 0 may have no gradient, so unused bases are set to 1.
    log_rest_shifted = torch.logaddexp(log_rest, torch.log(margin))
    focus = torch.where(costs, shifted, 1.0) ** gamma_negative
    of_negative = torch.where(costs, -focus * log_rest_shifted, 0.0)
    return torch.where(positive, of_positive, of_negative).masked_fill(~known, 0.0).sum(-1)
