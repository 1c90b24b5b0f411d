"""The network of Figure 1: label encoder, feature encoder, decoder, inner products.

It reads from top to bottom as the paper does: label embeddings give the labels' Gaussians, a row's
features give a posterior, a draw z is decoded to an embedding, and inner products with the label
embeddings give logits. :meth:`CGMVAENetwork.outputs` returns all of that for a batch,
:data:`~cgmvae.model.objective.TERMS` scores it, and :mod:`~cgmvae.model.presets` sets the sizes.

Shapes are (M, B, …): members, rows of a batch; L labels, D features, E and d the widths of
embeddings and of the latent space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from cgmvae.errors import InputError
from cgmvae.model.correlation import LabelCovariance, LabelGraph
from cgmvae.model.objective import TERMS, Outputs, ScoredLabels, View, chosen_components
from cgmvae.nn.batch import Batch
from cgmvae.nn.encoder import EncoderStack
from cgmvae.nn.gaussian import Gaussian
from cgmvae.nn.packed import (
    ACTIVATIONS,
    PackedMLP,
    hold_numbers,
    inner_products,
    inner_products_and_cosines,
)
from cgmvae.nn.rng import RandomStreams, within
from cgmvae.nn.sparse import SparseRows

#: From this many labels on, a CPU encodes only the labels that occur in a batch.
MANY_LABELS = 1024


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes and switches of the network; members of one pack share them."""

    embedding_dim: int = 512
    """E, length of label and feature embeddings."""
    latent_dim: int = 64
    """d, dimensions of z."""
    label_hidden: tuple[int, ...] = (512, 256)
    """Hidden layers of the label encoder."""
    feature_hidden: tuple[int, ...] = (256, 512, 256)
    """Hidden layers of the feature encoder."""
    decoder_hidden: tuple[int, ...] = (512, 512)
    """Hidden layers of the decoder."""
    activation: Literal["relu", "leaky_relu"] = "relu"
    """Activation of all hidden layers."""
    layer_norm: bool = True
    """Whether hidden layers are normalized."""
    label_bias: bool = True
    """Whether logits have a bias per label, initialized to the log-odds of its frequency."""
    embedding_activation: Literal["none", "relu", "leaky_relu"] = "none"
    """Activation of the feature embedding."""
    unit_norm: bool = False
    """Whether the feature embedding of the logits has norm 1."""
    decoder_input: Literal["z", "xz"] = "xz"
    """Whether the decoder sees the features in addition to z."""
    skip_dropout: float = 0.0
    """Probability that the decoder sees z alone, without the features of a row."""
    label_relu: bool = False
    """Whether label embeddings pass a bias, a ReLU and dropout before the label encoder: they are
    then the weights of a layer for one-hot labels, and start as those of torch's linear layer."""
    label_scale: float = 1.0
    """Expected norm of the initial label embeddings; with ``label_relu`` it is √(E / 3L)."""
    decoder_dropout: bool = True
    """Whether the decoder's hidden layers have dropout too."""
    prior: Literal["mixture", "standard", "label-sum"] = "mixture"
    """Mixture of the labels' Gaussians; N(0, I); one Gaussian from the summed embeddings."""
    alignment: Literal["contrastive", "triplet", "ranking"] = "contrastive"
    """The loss that draws feature and label embeddings together."""
    correlation: Literal["none", "covariance", "graph"] = "none"
    """A module for label correlations: a multivariate probit, or messages between labels."""
    covariance_rank: int = 16
    """Rank of the probit's covariance beyond the identity."""
    covariance_draws: int = 8
    """Draws of the probit's shared noise per row and step."""
    normalize_labels: bool = True
    """Whether the contrastive term normalizes label embeddings, as Eq. 6 and the appendix do."""
    reconstruction: Literal["none", "gaussian", "bernoulli"] = "none"
    """The distribution p(x|z) of the reconstruction network."""
    n_draws: int = 1
    """Draws of z per row whose predictions are trained."""
    own_kl_draw: bool = False
    """Whether the KL is estimated from a further draw of z instead of the first of them."""
    label_branch: bool = False
    """Whether the decoder is also trained on the mean of the positive labels' means."""
    sampled_labels: int = 0
    """Number of labels that no row of a batch has and that are scored on a CPU in place of all such
    labels; 0 scores all."""


class LabelEncoder(nn.Module):
    """Learnable label embeddings w_i^l, and one network that maps each to (μ_i, σ_i²).

    A background component stands for rows without labels (section 2.2.1).

    Parameters
    ----------
    n_labels, embedding_dim, latent_dim : int
        L, E and d.
    hidden : sequence of int
        Widths of the hidden layers.
    streams : RandomStreams
        Source of the initial weights.
    scale : float
        Embeddings start normal with variance scale²/E.
    relu_first : bool
        Whether embeddings are a layer for one-hot labels, uniform in ±1/√L at first, whose bias,
        ReLU and dropout come before the network.
    """

    def __init__(
        self,
        n_labels: int,
        embedding_dim: int,
        latent_dim: int,
        hidden: Sequence[int],
        streams: RandomStreams,
        *,
        scale: float,
        relu_first: bool,
        **style: Any,
    ) -> None:
        super().__init__()
        dtype = style["dtype"]
        if relu_first:
            bound = n_labels**-0.5
            first, bias = (
                streams.uniform_weights(f"label_encoder.{name}", *shape, bound=bound, dtype=dtype)
                for name, shape in (
                    ("embeddings", (n_labels, embedding_dim)),
                    ("bias", (embedding_dim,)),
                )
            )
        else:
            deviation, bias = scale * embedding_dim**-0.5, None
            first = streams.normal_weights(
                "label_encoder.embeddings", n_labels, embedding_dim, scale=deviation, dtype=dtype
            )
        self.embeddings = nn.Parameter(first)
        self.bias = None if bias is None else nn.Parameter(bias)
        widths = (embedding_dim, *hidden, 2 * latent_dim)
        self.network = PackedMLP(widths, streams, "label_encoder", **style)
        shape = (streams.n_members, 2 * latent_dim)
        self.background = nn.Parameter(torch.zeros(shape, dtype=dtype, device=streams.device))

    def forward(
        self, streams: RandomStreams | None, rate: Tensor, embeddings: Tensor | None = None
    ) -> Gaussian:
        """Return the Gaussians of the labels and, last, of the background, (M, L + 1, d).

        ``embeddings`` are those of some labels; None for all.
        """
        embeddings = self.embeddings if embeddings is None else embeddings
        output = self._encode(embeddings, streams, rate)
        return Gaussian.from_output(torch.cat([output, self.background[:, None]], dim=1))

    def of_set(self, positive: Tensor, streams: RandomStreams | None, rate: Tensor) -> Gaussian:
        """Return one Gaussian per label set, from the sum of its embeddings.

        The unimodal prior of earlier models: ``positive`` (M, B, L) gives (M, B, d).
        """
        # Deviation D23: the paper's "uni-Gaussian" has no definition.
        summed = torch.bmm(positive.to(self.embeddings.dtype), self.embeddings)
        return Gaussian.from_output(self._encode(summed, within(streams, "sum"), rate))

    def _encode(self, embeddings: Tensor, streams: RandomStreams | None, rate: Tensor) -> Tensor:
        if self.bias is not None:
            embeddings = torch.relu(embeddings + self.bias[:, None])
            if streams is not None:
                embeddings = streams.dropout("label_encoder.embeddings", embeddings, rate)
        return self.network(embeddings, streams, rate)


class FeatureEncoder(nn.Module):
    """Maps each row's features to its posterior q(z|x) = N(μ(x), σ²(x))."""

    def __init__(
        self,
        n_features: int,
        latent_dim: int,
        hidden: Sequence[int],
        streams: RandomStreams,
        **style: Any,
    ) -> None:
        super().__init__()
        widths = (n_features, *hidden, 2 * latent_dim)
        self.network = PackedMLP(widths, streams, "feature_encoder", **style)

    def forward(
        self, features: Tensor | SparseRows, streams: RandomStreams | None, rate: Tensor
    ) -> Gaussian:
        """Map (M, B, D) to the posterior of each row, (M, B, d)."""
        return Gaussian.from_output(self.network(features, streams, rate))


class Decoder(nn.Module):
    """Maps z, or (x, z), to the feature embedding w_x^f (section 2.2.2).

    Parameters
    ----------
    n_in, embedding_dim : int
        Width of the input (d, or D + d) and E.
    hidden : sequence of int
        Widths of the hidden layers.
    output_activation : {"none", "relu", "leaky_relu"}
        Activation of the embedding.
    unit_norm : bool
        Whether embeddings are then scaled to norm 1.
    """

    def __init__(
        self,
        n_in: int,
        embedding_dim: int,
        hidden: Sequence[int],
        streams: RandomStreams,
        *,
        output_activation: str,
        unit_norm: bool,
        **style: Any,
    ) -> None:
        super().__init__()
        self.unit_norm = unit_norm
        self.output_activation = ACTIVATIONS.get(output_activation)
        self.network = PackedMLP((n_in, *hidden, embedding_dim), streams, "decoder", **style)

    def forward(
        self,
        inputs: Tensor | SparseRows,
        streams: RandomStreams | None,
        rate: Tensor,
        *,
        more: Tensor | None = None,
    ) -> Tensor:
        """Map (M, B, n_in) to embeddings, (M, B, E); ``more`` are further columns of the input."""
        embedding = self.network(inputs, streams, rate, more=more)
        if self.output_activation is not None:
            embedding = self.output_activation(embedding)
        return F.normalize(embedding, dim=-1) if self.unit_norm else embedding


class CGMVAENetwork(nn.Module):
    """C-GMVAE for any number of members.

    Parameters
    ----------
    config : NetworkConfig
        Sizes and switches.
    n_features : int
        D.
    label_log_odds : array, (n_members, n_labels)
        Initial label biases: the log-odds of each label among the member's rows.
    streams : RandomStreams
        Source of the initial weights.
    dropout, input_dropout, temperature : sequence of float, (n_members,)
        One value per member.
    terms : sequence of str
        Names of the terms to compute, see :data:`~cgmvae.model.objective.TERMS`; one without a
        weight can be left out.
    """

    classifier = ("label_encoder.embeddings", "label_bias")
    """What the second stage of a two-stage training learns on frozen feature embeddings, as in
    supervised contrastive learning (Khosla et al. 2020): the labels' side of the inner products."""

    dropout: Tensor
    input_dropout: Tensor
    temperature: Tensor
    logit_temperature: Tensor
    logit_shift: Tensor

    def __init__(
        self,
        config: NetworkConfig,
        n_features: int,
        label_log_odds: NDArray[np.float64],
        streams: RandomStreams,
        *,
        dropout: Sequence[float],
        input_dropout: Sequence[float],
        temperature: Sequence[float],
        terms: Sequence[str] = ("kl", "reconstruction", "contrastive", "cross_entropy"),
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if unknown := [name for name in terms if name not in TERMS]:
            raise InputError(f"There is no term {unknown[0]!r}; choose from {', '.join(TERMS)}.")
        self.config, self.n_features = config, n_features
        style: dict[str, Any] = {
            "layer_norm": config.layer_norm,
            "activation": config.activation,
            "dtype": dtype,
        }
        log_odds = torch.as_tensor(label_log_odds, dtype=dtype, device=streams.device)
        n_labels, latent_dim, n_out = log_odds.shape[1], config.latent_dim, config.embedding_dim
        self.label_encoder = LabelEncoder(
            n_labels,
            n_out,
            latent_dim,
            config.label_hidden,
            streams,
            scale=config.label_scale,
            relu_first=config.label_relu,
            **style,
        )
        self.feature_encoder = FeatureEncoder(
            n_features, latent_dim, config.feature_hidden, streams, **style
        )
        n_in = latent_dim + (n_features if config.decoder_input == "xz" else 0)
        self.decoder = Decoder(
            n_in,
            n_out,
            config.decoder_hidden,
            streams,
            output_activation=config.embedding_activation,
            unit_norm=config.unit_norm,
            **style,
        )
        #: Turns rows into features; None if they are features.
        self.row_encoder: EncoderStack | None = None
        self.label_bias = nn.Parameter(log_odds.clone()) if config.label_bias else None
        self.covariance: LabelCovariance | None = None
        self.graph: LabelGraph | None = None
        if config.correlation == "covariance":
            self.covariance = LabelCovariance(
                n_labels, config.covariance_rank, streams, dtype=dtype
            )
            if self.label_bias is not None:
                self.label_bias.data = torch.special.ndtri(torch.sigmoid(log_odds))
        elif config.correlation == "graph":
            self.graph = LabelGraph(n_labels, n_out, streams, dtype=dtype)
        self.reconstruction: PackedMLP | None = None
        if config.reconstruction != "none" and "reconstruction" in terms:
            # Deviation D15: in Eq. 5 the parameters are those of the decoder.
            widths = (latent_dim, *config.decoder_hidden, n_features)
            self.reconstruction = PackedMLP(widths, streams, "reconstruction", **style)
        # The weights α and β also apply to what studies put in place of the contrastive term and
        # of cross-entropy.
        likelihood = "cross_entropy" if self.covariance is None else "probit"
        replaced = {"contrastive": config.alignment, "cross_entropy": likelihood}
        self.functions = {
            name: TERMS[replaced.get(name, name)]
            for name in terms
            if name != "reconstruction" or self.reconstruction is not None
        }
        hold_numbers(
            self, log_odds, dropout=dropout, input_dropout=input_dropout, temperature=temperature
        )
        self.register_buffer("logit_temperature", log_odds.new_ones(len(log_odds)))
        self.register_buffer("logit_shift", torch.zeros_like(log_odds))

    @property
    def takes_sparse_rows(self) -> bool:
        """Whether features may be given as :class:`~cgmvae.nn.sparse.SparseRows`."""
        return self.row_encoder is None

    def represent(self, rows: Any, streams: RandomStreams | None = None) -> Any:
        """Return the features of rows, (M, B, D): what the row encoder makes of them."""
        if self.row_encoder is None:
            return rows
        return self.row_encoder(rows, streams)

    def label_gaussians(self, streams: RandomStreams | None = None) -> Gaussian:
        """Return the Gaussians of the labels and, last, of the background, (M, L + 1, d)."""
        return self.label_encoder(streams, self.dropout)

    def encode(
        self, features: Tensor | SparseRows, streams: RandomStreams | None = None
    ) -> Gaussian:
        """Return the posterior q(z|x) of each row, (M, B, d)."""
        return self.feature_encoder(features, streams, self.dropout)

    def decode(
        self, features: Tensor | SparseRows, z: Tensor, streams: RandomStreams | None = None
    ) -> Tensor:
        """Return the feature embedding w_x^f of each row, (M, B, E)."""
        inputs, more = (z, None) if self.config.decoder_input == "z" else (features, z)
        if streams is not None and more is not None and self.config.skip_dropout > 0:
            shown = streams.uniform("skip", z.shape[1], 1) >= self.config.skip_dropout
            inputs = inputs.times(shown) if isinstance(inputs, SparseRows) else inputs * shown
        rate, drawn = self.dropout, streams
        if not self.config.decoder_dropout:
            rate, drawn = torch.zeros_like(rate), None
        return self.decoder(inputs, drawn, rate, more=more)

    def label_embeddings(self) -> Tensor:
        """Return the embeddings that inner products are taken with, (M, L, E)."""
        embeddings = self.label_encoder.embeddings
        return embeddings if self.graph is None else self.graph(embeddings)

    def logits(self, embedding: Tensor) -> Tensor:
        """Return calibrated inner products with all label embeddings plus biases, (M, B, L)."""
        inner = inner_products(embedding, self.label_embeddings())
        logits = inner if self.label_bias is None else inner + self.label_bias[:, None, :]
        return logits / self.logit_temperature[:, None, None] + self.logit_shift[:, None, :]

    @property
    def can_be_calibrated(self) -> bool:
        """Whether logits are log-odds with free biases and a free scale."""
        free = self.covariance is None and not self.config.unit_norm
        return free and self.label_bias is not None

    @torch.no_grad()
    def calibrate(self, temperature: float, shifts: Tensor) -> None:
        """Divide predicted logits of all members by a number, and add one per label, (L,).

        The terms of the objective are of the logits without calibration.
        """
        self.logit_temperature.fill_(temperature)
        self.logit_shift.copy_(shifts)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probabilities of the logits: a sigmoid, or the probit's marginals."""
        if self.covariance is not None:
            return self.covariance.marginal(logits)
        return torch.sigmoid(logits)

    def forward(self, features: Tensor | SparseRows) -> Tensor:
        """Return the probabilities of all labels, (M, B, L), from the posterior's mean."""
        return self.probabilities(self.predicted_logits(self.represent(features)))

    def predicted_logits(
        self, features: Tensor | SparseRows, streams: RandomStreams | None = None
    ) -> Tensor:
        """Return the logits of all labels, (M, B, L).

        They come from the posterior's mean; with ``streams`` from a draw, and with dropout.
        """
        features = self._with_input_dropout(features, streams)
        # Deviation D12: the paper does not say that z is the posterior's mean at prediction.
        z = self.encode(features, streams).sample(streams)
        return self.logits(self.decode(features, z, streams))

    def terms(self, batch: Batch, streams: RandomStreams | None) -> dict[str, Tensor]:
        """Return the unweighted terms of the objective, Eq. 3 and more, each (M, B)."""
        out = self.outputs(batch, streams)
        return {name: function(out) for name, function in self.functions.items()}

    def outputs(self, batch: Batch, streams: RandomStreams | None) -> Outputs:
        """Return everything that the terms are computed from.

        Without ``streams`` there is no dropout, and z is the posterior's mean.
        """
        config = self.config
        given = self.represent(batch.features, streams)
        features = self._with_input_dropout(given, streams)
        posterior = self.encode(features, streams)
        draws = {f"z.{i}": posterior.sample(streams, f"z.{i}") for i in range(config.n_draws)}
        kl_draw = posterior.sample(streams, "z.kl") if config.own_kl_draw else draws["z.0"]
        prior, chosen = self._prior(batch, streams)
        target, reconstructed = self._reconstruct(given, draws["z.0"], streams)
        if config.label_branch:
            components = self.label_gaussians(streams) if chosen is None else prior
            draws["labels"] = _mean_of_positives(components, batch.positive)
        embeddings = [self.decode(features, z, within(streams, name)) for name, z in draws.items()]
        labels, label_embeddings, bias = self._scored_labels(batch, streams)
        aligns = "contrastive" in self.functions and config.alignment != "ranking"
        views = tuple(_view(each, label_embeddings, bias, aligns) for each in embeddings)
        return Outputs(
            features=target,
            reconstructed=reconstructed,
            posterior=posterior,
            z=kl_draw,
            prior=prior,
            chosen=chosen,
            views=views,
            aligned=(views[0], views[-1]) if config.label_branch else views[:1],
            label_embeddings=label_embeddings,
            labels=labels,
            temperature=self.temperature,
            cosine=config.normalize_labels,
            bernoulli=config.reconstruction == "bernoulli",
            **self._extra_draws(batch, streams),
        )

    def _with_input_dropout(
        self, features: Tensor | SparseRows, streams: RandomStreams | None
    ) -> Tensor | SparseRows:
        if streams is None:
            return features
        if isinstance(features, SparseRows):
            return features.dropout(streams, "features", self.input_dropout)
        return streams.dropout("features", features, self.input_dropout)

    def _prior(
        self, batch: Batch, streams: RandomStreams | None
    ) -> tuple[Gaussian | None, Tensor | None]:
        """Return the Gaussians of the prior, and which of them each row chooses in a mixture."""
        prior = self.config.prior
        if "kl" not in self.functions or prior == "standard":
            return None, None
        if prior == "label-sum":
            return self.label_encoder.of_set(batch.positive, streams, self.dropout), None
        few = batch.positive.shape[-1] < MANY_LABELS or batch.positive.is_cuda
        if few or self.config.label_branch:
            return self.label_gaussians(streams), chosen_components(batch.positive, batch.known)
        # Of very many labels a batch has a few hundred; the others are in no row's mixture.
        labels, real = _padded([own.nonzero().squeeze(1) for own in batch.present()])
        embeddings = _rows_of(self.label_encoder.embeddings, labels)
        background = chosen_components(batch.positive, batch.known)[..., -1:]
        chosen = torch.cat([_columns_of(batch.positive, labels) & real, background], dim=-1)
        return self.label_encoder(streams, self.dropout, embeddings), chosen

    def _reconstruct(
        self, features: Tensor | SparseRows, z: Tensor, streams: RandomStreams | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return features and their reconstruction, (M, B, D) each."""
        if self.reconstruction is None:
            return None, None
        target = features.dense() if isinstance(features, SparseRows) else features
        return target, self.reconstruction(z, streams, self.dropout)

    def _scored_labels(
        self, batch: Batch, streams: RandomStreams | None
    ) -> tuple[ScoredLabels, Tensor, Tensor | None]:
        """Return the labels that are scored, their embeddings and biases: all, or a sample."""
        embeddings, bias = self.label_embeddings(), self.label_bias
        if not self.config.sampled_labels or streams is None or batch.positive.is_cuda:
            return ScoredLabels(batch.positive, batch.known), embeddings, bias
        uniform = streams.uniform("sampled_labels", embeddings.shape[1], dtype=embeddings.dtype)
        samples = [
            sample_others(present, draws, self.config.sampled_labels)
            for present, draws in zip(batch.present(), uniform, strict=True)
        ]
        labels, real = _padded([labels for labels, _ in samples])
        counts = pad_sequence([counts for _, counts in samples], batch_first=True)
        scored = ScoredLabels(
            _columns_of(batch.positive, labels) & real,
            _columns_of(batch.known, labels) & real,
            counts,
        )
        return (
            scored,
            _rows_of(embeddings, labels),
            None if bias is None else bias.gather(1, labels),
        )

    def _extra_draws(self, batch: Batch, streams: RandomStreams | None) -> dict[str, Tensor | None]:
        """Return the random numbers of the covariance and of the triplet loss, if there are any."""
        n_rows, n_labels = batch.positive.shape[1:]
        shared = uniform = None
        if self.covariance is not None:
            shared = self.covariance.shared_noise(n_rows, streams, self.config.covariance_draws)
        if self.config.alignment == "triplet" and streams is not None:
            uniform = streams.uniform("triplet", n_rows, n_labels, dtype=self.temperature.dtype)
        return {"shared_noise": shared, "triplet_draws": uniform}


def sample_others(present: Tensor, draws: Tensor, n_others: int) -> tuple[Tensor, Tensor]:
    """Return the labels that occur in a batch with a sample of the others, and their counts.

    The sum over all labels of anything is in expectation the sum over the sample, each label
    multiplied by the number of labels that it stands for.

    Parameters
    ----------
    present : Tensor of bool, (n_labels,)
    draws : Tensor, (n_labels,)
        Uniform; they pick the others.
    n_others : int
        How many others, at most.
    """
    own = present.nonzero().squeeze(1)
    n_rest = len(present) - len(own)
    n_drawn = min(n_others, n_rest)
    others = draws.masked_fill(present, 2.0).topk(n_drawn, largest=False).indices
    counts = draws.new_ones(len(own) + n_drawn)
    counts[len(own) :] = n_rest / max(n_drawn, 1)
    return torch.cat([own, others]), counts


def _view(embedding: Tensor, labels: Tensor, bias: Tensor | None, aligns: bool) -> View:
    """Return a view, with cosines if embeddings are to be aligned, all in one precision."""
    if aligns and not torch.is_autocast_enabled(embedding.device.type):
        inner, cosines = inner_products_and_cosines(embedding, labels)
    else:
        inner, cosines = inner_products(embedding, labels), None
    return View(embedding, inner, inner if bias is None else inner + bias[:, None, :], cosines)


def _padded(labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return each member's labels, (M, n), and which of them do not just fill the shape."""
    lengths = torch.tensor([len(own) for own in labels])
    padded = pad_sequence(list(labels), batch_first=True)
    return padded, (torch.arange(padded.shape[1]) < lengths[:, None])[:, None, :]


def _rows_of(matrices: Tensor, rows: Tensor) -> Tensor:
    """Return some rows of each member's matrix: (M, L, E) and (M, n) give (M, n, E)."""
    return matrices.gather(1, rows[..., None].expand(-1, -1, matrices.shape[2]))


def _columns_of(masks: Tensor, columns: Tensor) -> Tensor:
    """Return some columns of each member's mask: (M, B, L) and (M, n) give (M, B, n)."""
    return masks.gather(2, columns[:, None].expand(-1, masks.shape[1], -1))


def _mean_of_positives(components: Gaussian | None, positive: Tensor) -> Tensor:
    """Mean of the positive labels' means, (M, B, d); the background's without any."""
    assert components is not None
    chosen = torch.cat([positive, ~positive.any(-1, keepdim=True)], dim=-1)
    weights = chosen.to(components.mean.dtype)
    return torch.bmm(weights, components.mean) / weights.sum(-1, keepdim=True)
