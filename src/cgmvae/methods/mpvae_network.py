"""The network of MPVAE: two Gaussians in one latent space, one decoder, a multivariate probit.

Labels give q(z|y) and features q(z|x); a draw of either is decoded to the means m of a multivariate
probit whose covariance Σ = I + V Vᵀ all rows share. Prediction takes the branch of the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, ndtri
from torch import Tensor, nn

from cgmvae.model import objective
from cgmvae.model.correlation import LabelCovariance
from cgmvae.model.objective import probit_likelihood
from cgmvae.nn.batch import Batch
from cgmvae.nn.gaussian import Gaussian
from cgmvae.nn.packed import PackedMLP, hold_numbers
from cgmvae.nn.rng import RandomStreams


@dataclass(frozen=True)
class MPVAEConfig:
    """Sizes and switches of the network; members of one pack share them."""

    latent_dim: int
    """d, dimensions of z."""
    hidden_dim: int
    """h: hidden layers are (2h, h) from labels, (h, 2h, h) from features, (h, 2h) to labels."""
    covariance_rank: int
    """Columns of V; 0 makes Σ the identity."""
    n_draws: int
    """Draws of the shared streams V ε for each row and step."""
    ranking_slope: float
    """What differences of probabilities are multiplied by before the exponential."""
    ranking_of: Literal["marginals", "draws"]
    """The probabilities that are ranked: the probit's marginals, or those of each draw."""
    decoder_input: Literal["z", "xz"]
    """Whether the decoder sees the features beside z."""
    layer_norm: bool
    """Whether hidden layers are normalised."""


class MPVAENetwork(nn.Module):
    """MPVAE for any number of members.

    Parameters
    ----------
    config : MPVAEConfig
        Sizes and switches.
    n_features : int
        D.
    label_log_odds : array, (n_members, n_labels)
        The log-odds of each label among the member's rows; the first means m give these marginals.
    streams : RandomStreams
        Where first weights come from.
    dropout, input_dropout : sequence of float, (n_members,)
        Each member's own.
    """

    dropout: Tensor
    input_dropout: Tensor

    def __init__(
        self,
        config: MPVAEConfig,
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
        n_labels, d, h = label_log_odds.shape[1], config.latent_dim, config.hidden_dim
        style: dict[str, Any] = {
            "layer_norm": config.layer_norm,
            "activation": "relu",
            "dtype": dtype,
        }
        self.label_encoder = PackedMLP((n_labels, 2 * h, h, 2 * d), streams, **style)
        self.feature_encoder = PackedMLP((n_features, h, 2 * h, h, 2 * d), streams, **style)
        n_in = d + (n_features if config.decoder_input == "xz" else 0)
        self.decoder = PackedMLP((n_in, h, 2 * h, n_labels), streams, **style)
        first_means = torch.as_tensor(ndtri(expit(label_log_odds)), dtype=dtype)
        self.label_bias = nn.Parameter(first_means.to(streams.device))
        # A rank beyond the number of labels adds nothing to V Vᵀ.
        rank = min(config.covariance_rank, n_labels)
        self.covariance = LabelCovariance(n_labels, rank, streams, dtype=dtype)
        hold_numbers(self, self.label_bias, dropout=dropout, input_dropout=input_dropout)

    def encode(self, features: Tensor, streams: RandomStreams | None = None) -> Gaussian:
        """Return q(z|x) of each row, (M, B, d): the prior that replaces N(0, I)."""
        return Gaussian.from_output(self.feature_encoder(features, streams, self.dropout))

    def encode_labels(
        self, positive: Tensor, known: Tensor, streams: RandomStreams | None = None
    ) -> Gaussian:
        """Return q(z|y) of each row, (M, B, d), from +1, −1 and, where unknown, 0."""
        signs = (2.0 * positive - 1.0) * known
        encoded = self.label_encoder(signs.to(self.dropout.dtype), streams, self.dropout)
        return Gaussian.from_output(encoded)

    def decode(self, features: Tensor, z: Tensor, streams: RandomStreams | None = None) -> Tensor:
        """Return the means m of the probit, (M, B, L)."""
        inputs = torch.cat([features, z], dim=-1) if self.config.decoder_input == "xz" else z
        return self.label_bias[:, None] + self.decoder(inputs, streams, self.dropout)

    def forward(self, features: Tensor) -> Tensor:
        """Return the exact marginals at the mean of q(z|x), (M, B, L)."""
        return self.covariance.marginal(self.decode(features, self.encode(features).mean))

    def terms(self, batch: Batch, streams: RandomStreams | None) -> dict[str, Tensor]:
        """Return the unweighted terms of the objective, each (M, B).

        The same draws of the shared streams serve both branches.
        """
        features = batch.features
        if streams is not None:
            features = streams.dropout(features, self.input_dropout)
        prior = self.encode(features, streams)
        posterior = self.encode_labels(batch.positive, batch.known, streams)
        shared = self.covariance.shared_noise(features.shape[1], streams, self.config.n_draws)
        divergence = objective.kl_to_gaussian(posterior, prior)
        # A row that knows no label has nothing to teach.
        terms = {"kl": torch.where(batch.known.any(-1), divergence, 0.0)}
        for prefix, gaussian in (("", prior), ("label_", posterior)):
            means = self.decode(features, gaussian.sample(streams), streams)
            shifted = means[:, None] + shared
            terms[f"{prefix}cross_entropy"] = probit_likelihood(
                shifted, batch.positive, batch.known
            )
            terms[f"{prefix}ranking"] = self._ranking(means, shifted, batch)
        return terms

    def _ranking(self, means: Tensor, shifted: Tensor, batch: Batch) -> Tensor:
        """Return the ranking loss of the probabilities, averaged over draws, (M, B)."""
        slope = self.config.ranking_slope
        if self.config.ranking_of == "marginals":
            p = self.covariance.marginal(means)[:, None]
        else:
            p = torch.special.ndtr(shifted)
        losses = objective.ranking(slope * p, batch.positive[:, None], batch.known[:, None])
        return losses.mean(1) / slope
