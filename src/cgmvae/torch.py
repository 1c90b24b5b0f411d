"""C-GMVAE as an ordinary PyTorch module, for training loops of one's own.

:class:`CGMVAE` is one member of :class:`~cgmvae.methods.CGMVAEClassifier`: the same network and the
same terms, without the member axis and with torch's own random numbers. It goes on top of any
encoder that returns one vector per row, and is trained with the encoder by any optimizer.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logit
from torch import Tensor, nn
from torch.func import functional_call

from cgmvae.declared import declared_types
from cgmvae.errors import InputError
from cgmvae.methods import CGMVAEClassifier
from cgmvae.methods.inputs import check_whole
from cgmvae.model.network import CGMVAENetwork
from cgmvae.model.plan import DataProfile, configured, preset_for
from cgmvae.nn.batch import Batch
from cgmvae.nn.gaussian import Gaussian
from cgmvae.nn.rng import RandomStreams, TorchStreams
from cgmvae.training.plan import TrainingConfig

__all__ = ["CGMVAE", "Loss"]

#: The least share of rows that a label is taken to have.
_RAREST = 1e-4


class Loss(NamedTuple):
    """The objective of a batch."""

    total: Tensor
    """Weighted sum of the terms, Eq. 8, ()"""
    terms: dict[str, Tensor]
    """Each term by name, unweighted, the mean over the rows, ()"""


class CGMVAE(nn.Module):
    """Contrastive Gaussian mixture variational autoencoder, as a module.

    In training mode, hidden units are dropped and z is drawn from its posterior; in evaluation mode
    z is the posterior's mean. B is the number of rows of a batch, E and d are the widths of
    embeddings and of the latent space.

    Parameters
    ----------
    n_features, n_labels : int
        Width of the features, which may be the output of an encoder, and number of labels.
    preset : {"tuned", "released", "paper"}
        Where all settings come from that are not given here.
    n_rows : int
        Number of training rows; from 3,000 on ``tuned`` has a larger network.
    label_frequency : sequence of float, (n_labels,), optional
        Share of the training rows that have each label; its log-odds are the initial biases.
    **settings
        Any field of ``NetworkConfig`` or of ``Preset`` by name, such as ``latent_dim=16`` or
        ``kl_weight=0.1``, or the weight of a further term of ``objective.TERMS``.

    Attributes
    ----------
    weights : dict of str to float
        Weights of the terms. They may be changed between steps, for example to let the KL rise.
    preset : Preset
        All settings; ``learning_rate`` and ``weight_decay`` are those that suit AdamW.

    Examples
    --------
    >>> import torch
    >>> model = CGMVAE(n_features=20, n_labels=4, latent_dim=8)
    >>> features, labels = torch.randn(16, 20), torch.rand(16, 4).round()
    >>> loss = model.loss(features, labels)
    >>> sorted(loss.terms)
    ['contrastive', 'cross_entropy', 'kl']
    >>> loss.total.backward()
    >>> model.predict_proba(features).shape
    torch.Size([16, 4])
    """

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        preset: str = "tuned",
        n_rows: int = 0,
        label_frequency: Sequence[float] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        check_whole(1, n_features=n_features, n_labels=n_labels)
        if planned := sorted(set(settings) & declared_types(TrainingConfig).keys()):
            raise InputError(f"{planned[0]} is of a training, and this module does not train.")
        profile = DataProfile(n_rows, n_features, n_labels, "dense")
        self.preset = own = configured(preset_for(preset, profile), settings)
        self.n_features, self.n_labels = n_features, n_labels
        self.weights = {name: float(weight) for name, weight in own.weights().items() if weight}
        if own.network.reconstruction == "none":
            self.weights.pop("reconstruction", None)
        if not self.weights:
            raise InputError("Every term has weight 0; give at least one of them a weight.")
        self.network = _OneMember(
            own.network,
            n_features,
            _log_odds(label_frequency, n_labels),
            TorchStreams(torch.get_default_device()),
            dropout=[own.dropout],
            input_dropout=[own.input_dropout],
            temperature=[own.temperature],
            terms=list(self.weights),
        )
        # Weights and stored buffers lose the member axis, and get it back while they are used.
        stored = self.network.state_dict(keep_vars=True)
        self._stored = tuple(stored)
        for tensor in stored.values():
            tensor.data = tensor.data[0]

    def forward(
        self, features: Tensor, labels: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor | Loss:
        """Return the logits of all labels, (B, n_labels); given labels, :meth:`loss`.

        Wrappers such as ``DistributedDataParallel`` and ``torch.compile`` act on calls of the
        module, so under them call it with labels in place of :meth:`loss`.
        """
        if labels is not None:
            return self.loss(features, labels, known)
        x, streams = self._checked(features), self._streams(features)
        return self._with_members(lambda network: network.predicted_logits(x, streams))[0]

    def loss(self, features: Tensor, labels: Tensor, known: Tensor | None = None) -> Loss:
        """Return the terms of the objective and their weighted sum.

        Parameters
        ----------
        features : Tensor, (B, n_features)
        labels : Tensor, (B, n_labels)
            1 or 0; NaN for an unknown label.
        known : Tensor of bool, (B, n_labels), optional
            False for an unknown label, in place of NaN.
        """
        x, streams = self._checked(features), self._streams(features)
        expected = (len(features), self.n_labels)
        if labels.shape != expected or (known is not None and known.shape != expected):
            raise InputError(f"labels and known must have the shape {expected}, one row per row.")
        known = ~labels.isnan() if known is None else known.bool()
        batch = Batch(x, ((labels > 0) & known)[None], known[None], x.new_ones(1, len(features)))
        terms = self._with_members(lambda network: network.terms(batch, streams))
        means = {name: term.mean() for name, term in terms.items()}
        total = torch.stack([self.weights[name] * mean for name, mean in means.items()]).sum()
        return Loss(total, means)

    def encode(self, features: Tensor) -> Gaussian:
        """Return mean and log-variance of the posterior q(z|x), (B, d) each."""
        x, streams = self._checked(features), self._streams(features)
        return _first(self._with_members(lambda network: network.encode(x, streams)))

    def label_gaussians(self) -> Gaussian:
        """Return mean and log-variance of the labels' Gaussians, (n_labels + 1, d) each.

        The last is the background, the prior of rows without labels.
        """
        return _first(self._with_members(lambda network: network.label_gaussians()))

    def label_embeddings(self) -> Tensor:
        """Return the embeddings of the labels, (n_labels, E)."""
        return self._with_members(lambda network: network.label_embeddings())[0]

    @torch.no_grad()
    def predict_proba(self, features: Tensor) -> Tensor:
        """Return the probability of every label, (B, n_labels), whatever the mode."""
        x = self._checked(features)
        return self._with_members(
            lambda network: network.probabilities(network.predicted_logits(x))
        )[0]

    @classmethod
    def from_classifier(cls, model: CGMVAEClassifier, member: int = 0) -> Self:
        """Return one member of a fitted estimator, with its settings and a copy of its weights.

        Its features are those that the estimator's networks see: ``model.inputs(X)``. A
        calibration is part of its logits, not of its loss.
        """
        network, own = model.network_, model.member_settings_[member]
        settings = dataclasses.asdict(network.config)
        settings |= {name: own[name] for name in ("dropout", "input_dropout")}
        settings |= own["settings"]
        settings |= {f"{name}_weight": weight for name, weight in own["weights"].items()}
        module = cls(network.n_features, model.n_labels_, preset=model.preset, **settings)
        theirs, ours = network.state_dict(), module.network.state_dict()
        module.network.load_state_dict({name: theirs[name][member] for name in ours})
        return module.to(network.temperature.device)

    @torch.no_grad()
    def to_classifier(self, model: CGMVAEClassifier, member: int = 0) -> None:
        """Copy the weights into one member of a fitted estimator with a network of this form."""
        theirs, ours = model.network_.state_dict(), self.network.state_dict()
        if any(name not in theirs or theirs[name].shape[1:] != ours[name].shape for name in ours):
            raise InputError("The estimator's network has other sizes or switches than the module.")
        for name, tensor in ours.items():
            theirs[name][member].copy_(tensor)

    def _checked(self, features: Tensor) -> Tensor:
        """Return features with a member axis, (1, B, n_features)."""
        if features.dim() != 2 or features.shape[1] != self.n_features:
            raise InputError(
                f"features must have the shape (n_rows, {self.n_features}), not "
                f"{tuple(features.shape)}."
            )
        return features[None]

    def _streams(self, features: Tensor) -> RandomStreams | None:
        return TorchStreams(features.device) if self.training else None

    def _with_members(self, function: Callable[[CGMVAENetwork], Any]) -> Any:
        """Call a function of the network while its weights have a member axis."""
        # By name: a replica of DataParallel has tensors, but no parameters.
        first: Any = self.network
        tensors = {name: functools.reduce(getattr, name.split("."), first) for name in self._stored}
        packed = {name: tensor[None] for name, tensor in tensors.items()}
        return functional_call(self.network, packed, (function,))


class _OneMember(CGMVAENetwork):
    """A network whose call is any function of it, which is what ``functional_call`` can call."""

    def forward(self, function: Callable[[CGMVAENetwork], Any]) -> Any:  # type: ignore[override]
        """Return the function of this network."""
        return function(self)


def _first(gaussians: Gaussian) -> Gaussian:
    """Return Gaussians without the member axis."""
    return Gaussian(gaussians.mean[0], gaussians.log_variance[0])


def _log_odds(frequency: Sequence[float] | None, n_labels: int) -> NDArray[np.float64]:
    """Return the log-odds of the labels, (1, n_labels); 0 if nothing is known about them."""
    shares = np.full(n_labels, 0.5) if frequency is None else np.asarray(frequency, np.float64)
    if shares.shape != (n_labels,) or not ((shares >= 0) & (shares <= 1)).all():
        raise InputError(f"label_frequency must be {n_labels} numbers between 0 and 1.")
    return logit(shares.clip(_RAREST, 1 - _RAREST))[None]
