"""The network of Figure 1: label encoder, feature encoder, decoder, inner products.

It reads from top to bottom as the paper does: a row's features give a posterior, a draw z is
decoded to an embedding, inner products with the label embeddings give logits; the row's labels pick
the prior that the posterior is held to. ``objective`` scores it, ``presets`` sets its sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.model import by_hand, many_labels, objective
from cgmvae.model.correlation import LabelCovariance, LabelGraph
from cgmvae.model.decoder import Decoder
from cgmvae.model.feature_encoder import FeatureEncoder
from cgmvae.model.label_encoder import LabelEncoder
from cgmvae.model.label_losses import label_losses
from cgmvae.model.objective import chosen_components
from cgmvae.model.sections import Section
from cgmvae.nn.batch import Batch
from cgmvae.nn.gaussian import Gaussian
from cgmvae.nn.noise import GeneratorNoise, Noise, go_to_section
from cgmvae.nn.packed import PackedMLP, hold_numbers, inner_products
from cgmvae.nn.sparse_rows import SparseRows

TERMS = ("kl", "reconstruction", "contrastive", "cross_entropy")

#: From so many labels on, a processor computes the Gaussians of a batch's own labels alone.
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
    """Of all hidden layers."""
    layer_norm: bool = True
    """Whether hidden layers are normalised."""
    label_bias: bool = True
    """Whether logits have a bias for each label, started at the log-odds of its frequency."""
    embedding_activation: Literal["none", "relu", "leaky_relu"] = "none"
    """Of the feature embedding."""
    unit_norm: bool = False
    """Whether the feature embedding of the logits has norm 1."""
    decoder_input: Literal["z", "xz"] = "xz"
    """Whether the decoder sees the features beside z."""
    skip_dropout: float = 0.0
    """Probability that the decoder is shown no features for a row, so that z must do."""
    label_relu: bool = False
    """Whether label embeddings pass a ReLU and dropout before the label encoder."""
    label_scale: float = 1.0
    """Norm, in expectation, that label embeddings start with."""
    decoder_dropout: bool = True
    """Whether the decoder's hidden layers drop out too."""
    prior: Literal["mixture", "standard", "label-sum"] = "mixture"
    """Mixture of the labels' Gaussians; N(0, I); one Gaussian from the summed embeddings."""
    alignment: Literal["contrastive", "triplet", "ranking"] = "contrastive"
    """The loss that draws feature and label embeddings together."""
    correlation: Literal["none", "covariance", "graph"] = "none"
    """A module for label correlations: a multivariate probit, or messages between labels."""
    covariance_rank: int = 16
    """Rank of the probit's covariance beyond the identity."""
    covariance_draws: int = 8
    """Draws of the probit's shared noise for each row and step."""
    normalise_labels: bool = True
    """Whether the contrastive term normalises label embeddings, as Eq. 6 and the appendix do."""
    reconstruction: Literal["none", "gaussian", "bernoulli"] = "none"
    """The distribution p(x|z) of the reconstruction head."""
    n_draws: int = 1
    """Draws of z for each row whose predictions are trained."""
    label_branch: bool = False
    """Whether the decoder is also trained on the mean of the positive labels' means."""
    sampled_labels: int = 0
    """Labels of no row of a batch that are scored in place of all such labels; 0 scores all."""


class CGMVAENetwork(nn.Module):
    """C-GMVAE for any number of members.

    Parameters
    ----------
    config : NetworkConfig
        Sizes and switches.
    n_features : int
        D.
    label_log_odds : array, (n_members, n_labels)
        Where the label biases start: the log-odds of each label among the member's rows.
    noise : Noise
        Where first weights come from.
    dropout, input_dropout, temperature : sequence of float, (n_members,)
        Each member's own.
    terms : sequence of str
        The terms of the objective that are computed; one that no member weighs can be left out.
    """

    def __init__(
        self,
        config: NetworkConfig,
        n_features: int,
        label_log_odds: NDArray[np.float64],
        noise: Noise,
        *,
        dropout: Sequence[float],
        input_dropout: Sequence[float],
        temperature: Sequence[float],
        terms: Sequence[str] = TERMS,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config, self.term_names = config, tuple(terms)
        style: dict[str, Any] = {
            "layer_norm": config.layer_norm,
            "activation": config.activation,
            "dtype": dtype,
        }
        log_odds = torch.as_tensor(label_log_odds, dtype=dtype, device=noise.device)
        n_labels, latent_dim, n_out = log_odds.shape[1], config.latent_dim, config.embedding_dim
        self.label_encoder = LabelEncoder(
            n_labels,
            n_out,
            latent_dim,
            config.label_hidden,
            noise,
            scale=config.label_scale,
            relu_first=config.label_relu,
            **style,
        )
        self.feature_encoder = FeatureEncoder(
            n_features, latent_dim, config.feature_hidden, noise, **style
        )
        n_in = latent_dim + (n_features if config.decoder_input == "xz" else 0)
        self.decoder = Decoder(
            n_in,
            n_out,
            config.decoder_hidden,
            noise,
            output_activation=config.embedding_activation,
            unit_norm=config.unit_norm,
            **style,
        )
        self.label_bias = nn.Parameter(log_odds.clone()) if config.label_bias else None
        self.covariance: LabelCovariance | None = None
        self.graph: LabelGraph | None = None
        if config.correlation == "covariance":
            self.covariance = LabelCovariance(n_labels, config.covariance_rank, noise, dtype=dtype)
            if self.label_bias is not None:
                self.label_bias.data = torch.special.ndtri(torch.sigmoid(log_odds))
        elif config.correlation == "graph":
            self.graph = LabelGraph(n_labels, n_out, noise, dtype=dtype)
        self.reconstruction: PackedMLP | None = None
        if config.reconstruction != "none" and "reconstruction" in self.term_names:
            widths = (latent_dim, *config.decoder_hidden[:1], n_features)
            self.reconstruction = PackedMLP(widths, noise, **style)
        hold_numbers(
            self, log_odds, dropout=dropout, input_dropout=input_dropout, temperature=temperature
        )

    dropout: Tensor
    input_dropout: Tensor
    temperature: Tensor

    @property
    def takes_sparse_rows(self) -> bool:
        """Whether features may come without their zeros."""
        return self.reconstruction is None

    def encode(self, features: Tensor | SparseRows, noise: Noise | None = None) -> Gaussian:
        """Return the posterior q(z|x) of each row, (M, B, d)."""
        return self.feature_encoder(features, noise, self.dropout)

    def label_gaussians(self, noise: Noise | None = None) -> Gaussian:
        """Return the Gaussians of the labels and, last, of the background, (M, L + 1, d)."""
        return self.label_encoder(noise, self.dropout)

    def decode(
        self, features: Tensor | SparseRows, z: Tensor, noise: Noise | None = None
    ) -> Tensor:
        """Return the feature embedding w_x^f of each row, (M, B, E)."""
        rate, drawn = self.dropout, noise
        if not self.config.decoder_dropout:
            rate, drawn = torch.zeros_like(rate), None
        shown, beside = self.shown_to_decoder(features, z, noise)
        return self.decoder(shown, drawn, rate, beside=beside)

    def shown_to_decoder(
        self, features: Tensor | SparseRows, z: Tensor, noise: Noise | None
    ) -> tuple[Tensor | SparseRows, Tensor | None]:
        """Return what the decoder sees, and what it sees beside that: z, or features and z.

        In training it is shown no features for some rows.
        """
        if self.config.decoder_input == "z":
            return z, None
        if noise is None or self.config.skip_dropout == 0:
            return features, z
        shown = noise.uniform_of_rows(features.shape[1], 1) >= self.config.skip_dropout
        if isinstance(features, SparseRows):
            return features.times(shown), z
        return features * shown, z

    def with_input_dropout(
        self, features: Tensor | SparseRows, noise: Noise | None
    ) -> Tensor | SparseRows:
        """Return features with some of them dropped, in training."""
        if noise is None:
            return features
        # A part of its own: how many numbers sparse rows draw depends on the company.
        noise.section(Section.INPUT)
        if isinstance(features, SparseRows):
            dropped: Tensor | SparseRows = features.dropout(noise, self.input_dropout)
        else:
            dropped = noise.dropout(features, self.input_dropout)
        noise.section(Section.ENCODER)
        return dropped

    def label_embeddings(self) -> Tensor:
        """Return the embeddings that inner products are taken with, (M, L, E)."""
        return self._correlated(self.label_encoder.embeddings)

    def _correlated(self, embeddings: Tensor) -> Tensor:
        return embeddings if self.graph is None else self.graph(embeddings)

    def logits(self, embedding: Tensor) -> Tensor:
        """Return the inner products with the label embeddings, biases added, (M, B, L)."""
        return self._with_bias(inner_products(embedding, self.label_embeddings())[0])

    def _with_bias(self, inner: Tensor) -> Tensor:
        return inner if self.label_bias is None else inner + self.label_bias[:, None, :]

    def forward(self, features: Tensor | SparseRows) -> Tensor:
        """Return the probabilities of all labels, (M, B, L), from the posterior's mean."""
        embedding = self.decode(features, self.encode(features).mean)
        return self.probabilities(self.logits(embedding))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return what the logits mean: a sigmoid, or the probit's marginals."""
        if self.covariance is not None:
            return self.covariance.marginal(logits)
        return torch.sigmoid(logits)

    def terms(self, batch: Batch, noise: Noise | None) -> dict[str, Tensor]:
        """Return the unweighted terms of the objective, each (M, B)."""
        features = self.with_input_dropout(batch.features, noise)
        posterior = self.encode(features, noise)
        draws = [posterior.sample(noise) for _ in range(self.config.n_draws)]
        terms: dict[str, Tensor] = {}
        go_to_section(noise, Section.LABELS)
        components = None if self._has_many_labels(batch, noise) else self._components(noise)
        labels: Tensor = self.label_encoder.embeddings
        if "kl" in self.term_names:
            terms["kl"], labels = self._kl(draws[0], posterior, components, batch, noise)
        go_to_section(noise, Section.RECONSTRUCTION)
        if isinstance(batch.features, Tensor) and self.reconstruction is not None:
            terms["reconstruction"] = self._reconstruction(batch.features, draws[0], noise)
        if self.config.label_branch and components is not None:
            draws.append(_mean_of_positives(components, batch.positive))
        go_to_section(noise, Section.DECODER)
        embeddings = [self.decode(features, z, noise) for z in draws]
        return terms | self._label_terms(embeddings, self._correlated(labels), batch, noise)

    def by_hand(self, places: Mapping[nn.Parameter, Tensor]) -> by_hand.GradientsByHand | None:
        """Return what computes terms and gradients on a processor, or None where autograd must.

        ``places`` are those of the gradients.
        """
        few_labels = self.label_encoder.embeddings.shape[1] < MANY_LABELS
        if not (few_labels and by_hand.applies(self.config, self.term_names)):
            return None
        return by_hand.GradientsByHand(self, places) if self.reconstruction is None else None

    def _label_terms(
        self, embeddings: list[Tensor], labels: Tensor, batch: Batch, noise: Noise | None
    ) -> dict[str, Tensor]:
        """Return the terms that score embeddings against those of the labels, each (M, B)."""
        plain = len(embeddings) == 1 and self._has_plain_labels() and _on_processor(batch, noise)
        if plain and (self.config.sampled_labels or labels.shape[1] >= MANY_LABELS):
            return self._terms_of_many(embeddings[0], labels, batch, noise)
        terms: dict[str, Tensor] = {}
        products = [inner_products(embedding, labels) for embedding in embeddings]
        logits = [self._with_bias(inner) for inner, _ in products]
        if "contrastive" in self.term_names:
            branches = (0, -1) if self.config.label_branch else (0,)
            aligned = [
                self._alignment(products[i], embeddings[i], labels, batch, noise) for i in branches
            ]
            terms["contrastive"] = torch.stack(aligned).sum(0)
        terms["cross_entropy"] = torch.stack(
            [self._cross_entropy(each, batch, noise) for each in logits]
        ).sum(0)
        return terms

    def _terms_of_many(
        self, embedding: Tensor, labels: Tensor, batch: Batch, noise: Noise | None
    ) -> dict[str, Tensor]:
        """Return the same terms without a tensor of all rows and labels, or from a sample."""
        bias = self.label_bias
        given = (
            embedding,
            labels,
            labels.new_zeros(labels.shape[:2]) if bias is None else bias,
            batch.positive,
            batch.known,
        )
        if self.config.sampled_labels and noise is not None:
            noise.section(Section.SAMPLE)
            draws = noise.uniform(labels.shape[1], dtype=labels.dtype)
            n_others = self.config.sampled_labels
            found = many_labels.sampled_label_losses(
                *given,
                present=batch.present(),
                temperature=self.temperature,
                draws=draws,
                n_others=n_others,
            )
        else:
            place = self.label_encoder.take_place() if self.graph is None else None
            found = label_losses(*given, temperature=self.temperature, place=place)
        return found._asdict()

    def _has_many_labels(self, batch: Batch, noise: Noise | None) -> bool:
        """Return whether only the labels of the batch are encoded."""
        # A graph over the labels needs them all, and its gradients are not to be written into.
        alone = not self.config.label_branch and self.graph is None
        many = batch.positive.shape[-1] >= MANY_LABELS and alone
        return many and self.config.prior == "mixture" and _on_processor(batch, noise)

    def _has_plain_labels(self) -> bool:
        """Return whether the terms of labels are those that ``label_losses`` has."""
        config = self.config
        contrastive = config.alignment == "contrastive" and config.normalise_labels
        return contrastive and "contrastive" in self.term_names and self.covariance is None

    def _cross_entropy(self, logits: Tensor, batch: Batch, noise: Noise | None) -> Tensor:
        if self.covariance is None:
            return objective.cross_entropy(logits, batch.positive, batch.known)
        return self.covariance.negative_log_likelihood(
            logits, batch.positive, batch.known, noise, self.config.covariance_draws
        )

    def _components(self, noise: Noise | None) -> Gaussian | None:
        wanted = "kl" in self.term_names and self.config.prior == "mixture"
        return self.label_gaussians(noise) if wanted or self.config.label_branch else None

    def _kl(
        self,
        z: Tensor,
        posterior: Gaussian,
        components: Gaussian | None,
        batch: Batch,
        noise: Noise | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the term, (M, B), and the label embeddings for whatever else needs them."""
        labels = self.label_encoder.embeddings
        if self.config.prior == "standard":
            zeros = torch.zeros_like(posterior.mean)
            return objective.kl_to_gaussian(posterior, Gaussian(zeros, zeros)), labels
        if isinstance(noise, GeneratorNoise) and self._has_many_labels(batch, noise):
            return many_labels.kl_to_mixtures(
                z,
                posterior,
                self.label_encoder,
                positive=batch.positive,
                known=batch.known,
                present=batch.present(),
                noise=noise,
                rate=self.dropout,
            )
        chosen = chosen_components(batch.positive, batch.known)
        if self.config.prior == "mixture":
            assert components is not None
            return objective.kl_to_mixture(z, posterior, components, chosen), labels
        prior = self.label_encoder.of_set(batch.positive, noise, self.dropout)
        divergence = objective.kl_to_gaussian(posterior, prior)
        return torch.where(chosen.any(-1), divergence, 0.0), labels

    def _reconstruction(self, features: Tensor, z: Tensor, noise: Noise | None) -> Tensor:
        assert self.reconstruction is not None
        predicted = self.reconstruction(z, noise, self.dropout)
        if self.config.reconstruction == "gaussian":
            return objective.gaussian_reconstruction(features, predicted)
        return objective.bernoulli_reconstruction(features, predicted)

    def _alignment(
        self,
        products: tuple[Tensor, Tensor],
        embedding: Tensor,
        labels: Tensor,
        batch: Batch,
        noise: Noise | None,
    ) -> Tensor:
        positive, known, inner = batch.positive, batch.known, products[0]
        if self.config.alignment == "ranking":
            probabilities = self.probabilities(self._with_bias(inner))
            return objective.ranking(probabilities, positive, known)
        similarity = inner
        if self.config.normalise_labels or self.config.alignment == "triplet":
            similarity = objective.cosine_similarity(embedding, labels, products)
        if self.config.alignment == "triplet":
            # Without noise, which is evaluation, the first label of each kind.
            draws = (
                torch.zeros_like(similarity)
                if noise is None
                else noise.uniform_of_rows(*similarity.shape[1:], dtype=similarity.dtype)
            )
            return objective.triplet(similarity, positive, known, draws)
        return objective.contrastive(similarity / self.temperature[:, None, None], positive, known)


def _on_processor(batch: Batch, noise: Noise | None) -> bool:
    """Return whether a processor is training."""
    return isinstance(noise, GeneratorNoise) and batch.positive.device.type == "cpu"


def _mean_of_positives(components: Gaussian, positive: Tensor) -> Tensor:
    """Mean of the positive labels' means, (M, B, d); the background's where there is none."""
    chosen = torch.cat([positive, ~positive.any(-1, keepdim=True)], dim=-1)
    weights = chosen.to(components.mean.dtype)
    return torch.bmm(weights, components.mean) / weights.sum(-1, keepdim=True)
