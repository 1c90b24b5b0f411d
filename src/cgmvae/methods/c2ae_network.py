"""The network of C2AE: features and labels are encoded to one space, labels are decoded from it.

The terms are those of the paper, Φ (``distance`` and ``constraint``) and Γ (``ranking``), and one
that fixes the level of the scores (``calibration``); :mod:`cgmvae.methods.c2ae` weighs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.model import objective
from cgmvae.nn.batch import Batch
from cgmvae.nn.packed import PackedMLP, hold_numbers
from cgmvae.nn.rng import RandomStreams, go_to_section

#: Parts of a step with random numbers of their own.
_LABELS, _DECODER = 1, 2


@dataclass(frozen=True)
class C2AEConfig:
    """Sizes of the network; members of one pack share them."""

    latent_dim: int
    """Dimensions of a code."""
    hidden_dim: int
    """Units of every hidden layer."""
    feature_layers: int
    """Hidden layers of F_x; without any it is an affine map."""
    label_layers: int
    """Hidden layers of F_e."""
    decoder_layers: int
    """Hidden layers of F_d."""


class C2AENetwork(nn.Module):
    """F_x, F_e and F_d for any number of members.

    Parameters
    ----------
    config : C2AEConfig
        Sizes.
    n_features : int
        Width of the features.
    label_log_odds : array, (n_members, n_labels)
        Where the biases of the decoder's output start.
    streams : RandomStreams
        Where first weights come from.
    dropout, input_dropout : sequence of float, (n_members,)
        Each member's own.
    """

    def __init__(
        self,
        config: C2AEConfig,
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

        def layers(n_in: int, n_hidden: int, n_out: int) -> PackedMLP:
            widths = (n_in, *[config.hidden_dim] * n_hidden, n_out)
            return PackedMLP(
                widths, streams, layer_norm=False, activation="leaky_relu", dtype=dtype
            )

        log_odds = torch.as_tensor(label_log_odds, dtype=dtype, device=streams.device)
        n_labels, latent_dim = log_odds.shape[1], config.latent_dim
        self.feature_encoder = layers(n_features, config.feature_layers, latent_dim)
        self.label_encoder = layers(n_labels, config.label_layers, latent_dim)
        self.decoder = layers(latent_dim, config.decoder_layers, n_labels)
        output: Any = self.decoder.layers[-1]
        output.bias.data.copy_(log_odds)
        hold_numbers(self, log_odds, dropout=dropout, input_dropout=input_dropout)

    dropout: Tensor
    input_dropout: Tensor

    def encode_features(self, features: Tensor, streams: RandomStreams | None = None) -> Tensor:
        """Return the codes F_x(x) of rows, (M, B, K)."""
        return self.feature_encoder(features, streams, self.dropout)

    def encode_labels(
        self, positive: Tensor, known: Tensor, streams: RandomStreams | None = None
    ) -> Tensor:
        """Return the codes F_e(y) of label sets, (M, B, K); an unknown label enters as 0."""
        signs = torch.where(positive, 1.0, -1.0).masked_fill(~known, 0.0)
        return self.label_encoder(signs.to(self.dropout.dtype), streams, self.dropout)

    def decode(self, codes: Tensor, streams: RandomStreams | None = None) -> Tensor:
        """Return the logits of all labels, (M, B, L), whose sigmoid is F_d of the code."""
        return self.decoder(codes, streams, self.dropout)

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores F_d(F_x(x)) of all labels, (M, B, L)."""
        return torch.sigmoid(self.decode(self.encode_features(features)))

    def terms(self, batch: Batch, streams: RandomStreams | None) -> dict[str, Tensor]:
        """Return the unweighted terms, each (M, B).

        ``constraint`` belongs to the batch as a whole: every row has the same value, so that its
        weighted mean over rows is that value.
        """
        features, positive, known = batch.features, batch.positive, batch.known
        if streams is not None:
            features = streams.dropout(features, self.input_dropout)
        feature_codes = self.encode_features(features, streams)
        go_to_section(streams, _LABELS)
        label_codes = self.encode_labels(positive, known, streams)
        go_to_section(streams, _DECODER)
        logits = self.decode(label_codes, streams)
        labelled = known.any(-1)
        distance = ((feature_codes - label_codes) ** 2).sum(-1)
        weight = batch.weight * labelled
        excess = excess_covariance(feature_codes, weight) + excess_covariance(label_codes, weight)
        return {
            "distance": torch.where(labelled, distance, 0.0),
            "constraint": excess[:, None].expand_as(distance),
            "ranking": objective.ranking(torch.sigmoid(logits), positive, known),
            "calibration": objective.cross_entropy(logits, positive, known),
        }


def excess_covariance(codes: Tensor, weight: Tensor) -> Tensor:
    """Return ‖C − I‖² (Frobenius) of each member's covariance C of codes, (n_members,).

    Finite, though never 0, where a batch has fewer rows than the codes have dimensions.

    Parameters
    ----------
    codes : Tensor, (n_members, n_rows, K)
    weight : Tensor, (n_members, n_rows)
        How much each row counts; rows of weight 0 do not.
    """
    total = weight.sum(1, keepdim=True)
    share = (weight / total.masked_fill(total == 0, 1.0))[..., None]
    centred = codes - (codes * share).sum(1, keepdim=True)
    covariance = torch.bmm((centred * share).transpose(1, 2), centred)
    identity = torch.eye(codes.shape[-1], dtype=codes.dtype, device=codes.device)
    return ((covariance - identity) ** 2).sum((1, 2))
