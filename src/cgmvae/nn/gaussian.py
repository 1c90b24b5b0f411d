"""Diagonal Gaussians, and the mixture that a label set picks from the labels' Gaussians.

Densities of all pairs of rows and components are computed in float64 whatever the precision of the
network: the matrix products below cancel large terms, and they are a small part of the work. The
kernel of a GPU for the KL (:func:`cgmvae.nn.cuda.kl_to_mixture`) has no such products, and computes
in float32. The densities that a training step needs have gradients of their own, in fewer
operations than autograd's.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cgmvae.nn import cuda
from cgmvae.nn.rng import RandomStreams

#: Bounds of every log-variance: standard deviations from 0.018 to 55.
# Deviation D14: the paper and the released code have none.
LOG_VARIANCE_RANGE = (-8.0, 8.0)


class Gaussian(NamedTuple):
    """Means and log-variances of diagonal Gaussians, (n_members, n, latent_dim)."""

    mean: Tensor
    log_variance: Tensor

    @classmethod
    def from_output(cls, output: Tensor) -> Gaussian:
        """Read a network's output, the means and then the log-variances, and clamp the latter."""
        mean, log_variance = output.chunk(2, dim=-1)
        return cls(mean, log_variance.clamp(*LOG_VARIANCE_RANGE))

    def sample(self, streams: RandomStreams | None, name: str = "z") -> Tensor:
        """Draw one z for each Gaussian; the mean without random streams."""
        if streams is None:
            return self.mean
        if streams.fuses(self.mean):
            return cuda.sample(*self, streams.draw(name))
        epsilon = streams.normal(name, *self.mean.shape[1:], dtype=self.mean.dtype)
        return torch.addcmul(self.mean, torch.exp(0.5 * self.log_variance), epsilon)


def log_density(z: Tensor, gaussian: Gaussian) -> Tensor:
    """Return log N(z | mean, variance) of each row's own Gaussian, (n_members, n_rows), float64."""
    return _LogDensity.apply(z, *gaussian)


class _LogDensity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        inverse = torch.exp(-0.5 * log_variance)
        standard = (z - mean).mul_(inverse)
        squares = standard * standard
        ctx.save_for_backward(inverse, standard, squares)
        total = (squares + log_variance).sum(-1, dtype=torch.float64)
        return -0.5 * (total + z.shape[-1] * math.log(2 * math.pi))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inverse, standard, squares = ctx.saved_tensors
        gradient = gradient[..., None].to(inverse.dtype)
        dmean = (standard * inverse).mul_(gradient)
        return -dmean, dmean, (squares - 1).mul_(0.5 * gradient)


def pairwise_log_density(z: Tensor, components: Gaussian) -> Tensor:
    """Return log N(z | mean_i, variance_i) of all rows and components, (M, B, C), float64.

    Σ (z − μ)² / σ² is written as z²·(1/σ²) − 2 z·(μ/σ²) + Σ μ²/σ²: two matrix products, and no
    tensor of rows × components × dimensions.
    """
    z, mean, log_variance = z.double(), components.mean.double(), components.log_variance.double()
    precision = torch.exp(-log_variance)
    scaled = mean * precision
    constant = (mean * scaled + log_variance).sum(-1) + z.shape[-1] * math.log(2 * math.pi)
    squared = torch.baddbmm(constant[:, None, :], z * z, precision.transpose(1, 2))
    return -0.5 * torch.baddbmm(squared, z, scaled.transpose(1, 2), alpha=-2)


def mixture_log_density(z: Tensor, components: Gaussian, chosen: Tensor) -> Tensor:
    """Return log p(z | y), Eq. 1: the equally weighted mixture of the chosen components.

    ``z`` is (M, B, d), ``chosen`` bool (M, B, C). The result, float64 (M, B), is 0 for a row that
    chooses nothing.
    """
    return _MixtureLogDensity.apply(z, *components, chosen)


class _MixtureLogDensity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, mean: Tensor, log_variance: Tensor, chosen: Tensor) -> Tensor:
        log_densities = pairwise_log_density(z, Gaussian(mean, log_variance))
        log_densities.masked_fill_(~chosen, -torch.inf)
        n_chosen = chosen.sum(-1, keepdim=True)
        any_chosen = n_chosen > 0
        # Without components the sum is −inf; its shares must be 0, not undefined.
        total = torch.logsumexp(log_densities, dim=-1, keepdim=True).masked_fill_(~any_chosen, 0.0)
        shares = log_densities.sub_(total).exp_()  # of each component in the mixture's density
        ctx.save_for_backward(z, mean, log_variance, shares)
        return torch.where(any_chosen, total - n_chosen.clamp(min=1).double().log(), 0.0)[..., 0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        given = ctx.saved_tensors
        z, mean, log_variance, shares = (each.double() for each in given)
        # The derivatives of log N, (μ − z) / σ² by z, (z − μ) / σ² by μ, ((z − μ)² / σ² − 1) / 2 by
        # log σ², are weighed by the shares, and added up over components or over rows.
        shares = shares * gradient[..., None]
        precision = torch.exp(-log_variance)
        dz = torch.bmm(shares, precision).mul_(-z).baddbmm_(shares, mean * precision)
        by_component = shares.transpose(1, 2)
        total = shares.sum(1)[..., None]  # (M, C, 1)
        first, second = torch.bmm(by_component, z), torch.bmm(by_component, z * z)
        dmean = (first - mean * total) * precision
        squares = (second - 2 * mean * first + mean**2 * total) * precision
        found = dz, dmean, 0.5 * (squares - total)
        return *(part.to(own.dtype) for part, own in zip(found, given, strict=False)), None
