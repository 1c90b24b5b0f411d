"""The default network's terms and all their gradients on a processor, without autograd.

A step of a small network is some hundred small operations, and autograd takes as long to note them
and to go back as they take. Written out, the step also goes back through the label encoder while
its weights are still at hand, and leaves out what nobody asks for. From the same random numbers it
computes what :meth:`~cgmvae.model.network.CGMVAENetwork.terms` and autograd compute, and which is
the way of every network that this does not apply to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cgmvae.model import analytic
from cgmvae.model.objective import chosen_components
from cgmvae.model.sections import Section
from cgmvae.nn.batch import Batch
from cgmvae.nn.gaussian import Gaussian, output_gradient
from cgmvae.nn.noise import Noise
from cgmvae.nn.perceptron import TrainedPerceptron

if TYPE_CHECKING:
    from cgmvae.model.network import CGMVAENetwork, NetworkConfig

TERMS = ("kl", "contrastive", "cross_entropy")

#: Settings of a network whose gradients are written out here.
_SETTINGS = {
    "prior": "mixture",
    "alignment": "contrastive",
    "correlation": "none",
    "embedding_activation": "none",
    "unit_norm": False,
    "label_relu": False,
    "label_branch": False,
    "decoder_dropout": True,
    "normalise_labels": True,
    "n_draws": 1,
    "sampled_labels": 0,
}


def applies(config: NetworkConfig, terms: Sequence[str]) -> bool:
    """Return whether this network has the terms that are written out here, and no others."""
    plain = all(getattr(config, name) == value for name, value in _SETTINGS.items())
    return plain and set(terms) - {"reconstruction"} == set(TERMS)


class GradientsByHand:
    """Terms and gradients of a batch.

    Parameters
    ----------
    network : CGMVAENetwork
        One that this applies to, with fewer than ``MANY_LABELS`` labels and no reconstruction.
    places : mapping of Parameter to Tensor
        Where the gradients go.

    Attributes
    ----------
    terms : tuple of str
        Their names.
    """

    terms = TERMS

    def __init__(self, network: CGMVAENetwork, places: Mapping[nn.Parameter, Tensor]) -> None:
        self._network, encoder = network, network.label_encoder
        self._feature_encoder = network.feature_encoder.network.by_hand(places)
        self._label_encoder = encoder.network.by_hand(places)
        self._decoder = network.decoder.network.by_hand(places)
        self._labels, self._d_labels = encoder.embeddings.detach(), places[encoder.embeddings]
        self._background = encoder.background.detach()[:, None]
        self._d_background = places[encoder.background][:, None]
        bias = network.label_bias
        self._bias = None if bias is None else bias.detach()
        self._d_bias = None if bias is None else places[bias]

    @torch.no_grad()
    def __call__(
        self, batch: Batch, noise: Noise, weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the terms, each (n_members, n_rows), and write the gradient of their sum.

        ``weights`` say how much each term of each row counts, (n_members, n_rows).
        """
        network, n_rows = self._network, batch.positive.shape[1]
        features = network.with_input_dropout(batch.features, noise)
        encoded = self._feature_encoder(features, self._masks(self._feature_encoder, n_rows, noise))
        posterior = Gaussian.from_output(encoded.output)
        epsilon = noise.normal_of_rows(*posterior.mean.shape[1:], dtype=posterior.mean.dtype)
        drift = torch.exp(0.5 * posterior.log_variance).mul_(epsilon)
        z = posterior.mean + drift
        kl, d_z, d_log_variance, d_labels = self._divergence(
            z, epsilon, posterior.log_variance, batch, noise, weights["kl"]
        )
        noise.section(Section.DECODER)
        shown, beside = network.shown_to_decoder(features, z, noise)
        masks = self._masks(self._decoder, n_rows, noise)
        decoded = self._decoder(shown, masks, beside=beside)
        scored = analytic.contrastive_and_cross_entropy(
            decoded.output,
            self._labels,
            self._bias,
            network.temperature,
            positive=batch.positive,
            known=batch.known,
            weights=(weights["contrastive"], weights["cross_entropy"]),
            place=self._d_labels,
        )
        self._d_labels += d_labels
        if self._d_bias is not None:
            self._d_bias.copy_(scored.d_bias)
        decoded.back(scored.d_embedding)
        d_z += decoded.input_gradient(0 if beside is None else shown.shape[-1])
        # z = μ + σ ε, and σ changes by σ/2 where log σ² changes by 1.
        d_log_variance = torch.addcmul(d_log_variance, d_z, drift, value=0.5)
        encoded.back(output_gradient(encoded.output, Gaussian(d_z, d_log_variance)))
        return dict(zip(TERMS, (kl, scored.contrastive, scored.cross_entropy), strict=True))

    def _masks(self, network: TrainedPerceptron, n_rows: int, noise: Noise) -> tuple[Tensor, ...]:
        dtype = self._labels.dtype
        return noise.masks(n_rows, *network.widths, rate=self._network.dropout, dtype=dtype)

    def _divergence(
        self,
        z: Tensor,
        epsilon: Tensor,
        log_variance: Tensor,
        batch: Batch,
        noise: Noise,
        weight: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the KL, and its gradients by z, by log σ² beside that and by the labels."""
        noise.section(Section.LABELS)
        with noise.undivided():
            masks = self._masks(self._label_encoder, self._labels.shape[1], noise)
        encoded = self._label_encoder(self._labels, masks)
        output = torch.cat([encoded.output, self._background], dim=1)
        kl, d_z, d_log_variance, d_components = analytic.kl_to_mixture(
            z,
            epsilon,
            log_variance,
            Gaussian.from_output(output),
            chosen_components(batch.positive, batch.known),
            weight,
        )
        d_output = output_gradient(output, d_components)
        n_labels = self._labels.shape[1]
        self._d_background.copy_(d_output[:, n_labels:])
        encoded.back(d_output[:, :n_labels])
        return kl, d_z, d_log_variance, encoded.input_gradient()
