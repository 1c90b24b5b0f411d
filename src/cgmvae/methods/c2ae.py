"""C2AE: a canonical-correlated autoencoder (Yeh, Wu, Ko, Wang 2017).

Features and labels are encoded into a shared space by F_x and F_e; F_d decodes labels from it. Deep
canonical correlation analysis aligns the two codes: ‖F_x(x) − F_e(y)‖² is minimized while both
codes are constrained to the covariance I, here by the penalty λ (‖C_x − I‖² + ‖C_e − I‖²); in the
paper these are Φ, here the terms ``distance`` and ``constraint``. The output loss Γ (``ranking``),
α times the mean over pairs of a positive and a negative label of exp(−(f_p − f_q)), trains only the
label autoencoder f = F_d(F_e(y)): F_x learns from the codes alone, and F_d(F_x(x)) predicts.

Where the paper leaves a choice open, or this implementation differs:

- C_x and C_e are centered means over the rows of a batch, where the paper writes plain sums of
  products: with those a constant code would count as a direction, and λ would depend on the batch
  size. With affine encoders and the constraint met exactly this is CCA; with the penalty, a
  direction of correlation ρ gets the variance 1 − (1 − ρ) / 2λ, and vanishes if that is negative.
  With λ = 1/2, the released code's value and the best of those tried, the variance is ρ itself.
- f is the sigmoid of the decoder's output, as in the released code, which also bounds the
  exponentials. Pairs determine the level of f poorly, not at all in rows without a pair, and with a
  single label there are no pairs; with many rare labels nearly all scores would be high. Therefore
  a small cross-entropy of the same f, the term ``calibration``, is added.
- F_e receives labels as +1 and −1, unknown ones as 0; pairs and calibration use known labels only,
  and a row without known labels is ignored.
- The output biases of F_d are initialized to the labels' log-odds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.methods.neural import NeuralClassifier
from cgmvae.model import objective
from cgmvae.model.plan import DataProfile
from cgmvae.nn.batch import Batch
from cgmvae.nn.packed import PackedMLP, hold_numbers
from cgmvae.nn.rng import RandomStreams

#: Default dimension of a code per label, as in the released code.
_DIMENSIONS_PER_LABEL = 0.8


@dataclass(frozen=True)
class C2AEConfig:
    """Sizes of the network, which members of one pack share; see :class:`C2AE`."""

    latent_dim: int
    hidden_dim: int
    feature_layers: int
    label_layers: int
    decoder_layers: int


class C2AENetwork(nn.Module):
    """F_x, F_e and F_d for any number of members; see ``NeuralClassifier.network_class``."""

    def __init__(
        self,
        config: C2AEConfig,
        n_features: int,
        label_log_odds: NDArray[np.float64],
        streams: RandomStreams,
        *,
        dtype: torch.dtype = torch.float32,
        **dropouts: Sequence[float],
    ) -> None:
        super().__init__()
        self.config = config

        def layers(name: str, n_in: int, n_hidden: int, n_out: int) -> PackedMLP:
            style: Any = {"layer_norm": False, "activation": "leaky_relu", "dtype": dtype}
            widths = (n_in, *[config.hidden_dim] * n_hidden, n_out)
            return PackedMLP(widths, streams, name, **style)

        log_odds = torch.as_tensor(label_log_odds, dtype=dtype, device=streams.device)
        n_labels, latent_dim = log_odds.shape[1], config.latent_dim
        sizes = (n_features, config.feature_layers, latent_dim)
        self.feature_encoder = layers("feature_encoder", *sizes)
        self.label_encoder = layers("label_encoder", n_labels, config.label_layers, latent_dim)
        self.decoder = layers("decoder", latent_dim, config.decoder_layers, n_labels)
        output: Any = self.decoder.layers[-1]
        output.bias.data.copy_(log_odds)
        hold_numbers(self, log_odds, **dropouts)

    dropout: Tensor
    input_dropout: Tensor

    def encode_features(self, features: Tensor, streams: RandomStreams | None = None) -> Tensor:
        """Return the codes F_x(x) of rows, (M, B, K)."""
        return self.feature_encoder(features, streams, self.dropout)

    def encode_labels(
        self, positive: Tensor, known: Tensor, streams: RandomStreams | None = None
    ) -> Tensor:
        """Return the codes F_e(y) of label sets, (M, B, K); an unknown label is encoded as 0."""
        signs = torch.where(positive, 1.0, -1.0).masked_fill(~known, 0.0)
        return self.label_encoder(signs.to(self.dropout.dtype), streams, self.dropout)

    def decode(self, codes: Tensor, streams: RandomStreams | None = None) -> Tensor:
        """Return the logits of all labels, (M, B, L); their sigmoid is F_d of the code."""
        return self.decoder(codes, streams, self.dropout)

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores F_d(F_x(x)) of all labels, (M, B, L)."""
        return torch.sigmoid(self.decode(self.encode_features(features)))

    def terms(self, batch: Batch, streams: RandomStreams | None) -> dict[str, Tensor]:
        """Return the unweighted terms of the objective, each (M, B).

        ``constraint`` is a property of the whole batch: every row has the same value, so that its
        weighted mean over rows is that value.
        """
        features, positive, known = batch.features, batch.positive, batch.known
        if streams is not None:
            features = streams.dropout("features", features, self.input_dropout)
        feature_codes = self.encode_features(features, streams)
        label_codes = self.encode_labels(positive, known, streams)
        logits = self.decode(label_codes, streams)
        labeled = known.any(-1)
        distance = ((feature_codes - label_codes) ** 2).sum(-1)
        weight = batch.weight * labeled
        excess = excess_covariance(feature_codes, weight) + excess_covariance(label_codes, weight)
        return {
            "distance": torch.where(labeled, distance, 0.0),
            "constraint": excess[:, None].expand_as(distance),
            "ranking": objective.ranking(torch.sigmoid(logits), positive, known),
            "calibration": objective.cross_entropy(logits, positive, known),
        }


def excess_covariance(codes: Tensor, weight: Tensor) -> Tensor:
    """Return ‖C − I‖² (Frobenius) for the covariance C of each member's codes, (M,).

    ``codes`` are (M, B, K), the weights of the rows (M, B). Finite, but never 0, if a batch has
    fewer rows than the codes have dimensions.
    """
    total = weight.sum(1, keepdim=True)
    share = (weight / total.masked_fill(total == 0, 1.0))[..., None]
    centered = codes - (codes * share).sum(1, keepdim=True)
    covariance = torch.bmm((centered * share).transpose(1, 2), centered)
    identity = torch.eye(codes.shape[-1], dtype=codes.dtype, device=codes.device)
    return ((covariance - identity) ** 2).sum((1, 2))


@dataclass(kw_only=True, eq=False, repr=False)
class C2AE(NeuralClassifier):
    """Canonical-correlated autoencoder: features and labels share a space of uncorrelated codes.

    Parameters
    ----------
    latent_dim : int, optional
        K, the dimension of a code; by default 0.8 times the number of labels, but at most half the
        batch size, because the covariance of a batch could not approach I otherwise.
    hidden_dim : int
        Width of every hidden layer.
    feature_layers, label_layers, decoder_layers : int
        Number of hidden layers of F_x, F_e and F_d; 0 makes an affine map.
    constraint_weight : float
        λ, weight of the squared distance of both codes' covariances from I. Below 1/2, directions
        whose correlation is less than 1 − 2λ vanish.
    ranking_weight : float
        α, weight of the ranking loss of the label autoencoder.
    calibration_weight : float
        Weight of its cross-entropy, summed over known labels; with 0 a single label is not learned.
    epochs, batch_size, learning_rate, weight_decay, dropout, input_dropout, training
        See :class:`~cgmvae.methods.neural.NeuralClassifier`, and its bases for all others.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(200, 6, 5, seed=0)
    >>> model = C2AE(epochs=2, hidden_dim=16, random_state=0).fit(data.X, data.Y)
    >>> model.predict_proba(data.X).shape
    (200, 5)
    >>> model.network_.config.latent_dim
    4
    """

    config_class: ClassVar = C2AEConfig
    network_class: ClassVar = C2AENetwork

    latent_dim: int | None = None
    hidden_dim: int = 512
    feature_layers: int = 2
    label_layers: int = 1
    decoder_layers: int = 1
    constraint_weight: float = 0.5
    ranking_weight: float = 3.0
    calibration_weight: float = 0.1
    epochs: int = 30
    dropout: float = 0.3
    input_dropout: float = 0.1
    batch_size: int = 128

    def _weights(self) -> Mapping[str, float]:
        return {
            "distance": 1.0,
            "constraint": self.constraint_weight,
            "ranking": self.ranking_weight,
            "calibration": self.calibration_weight,
        }

    def _config(self, profile: DataProfile) -> C2AEConfig:
        latent_dim = self.latent_dim
        if latent_dim is None:
            wanted = min(round(_DIMENSIONS_PER_LABEL * profile.n_labels), self.batch_size // 2)
            latent_dim = max(1, wanted)
        layers = (self.feature_layers, self.label_layers, self.decoder_layers)
        return C2AEConfig(latent_dim, self.hidden_dim, *layers)
