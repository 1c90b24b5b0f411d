"""The terms of the objective, Eq. 4 to 7: pure functions of tensors, one number a member and row.

Nothing here is weighted or averaged over rows (Eq. 8 is the training loop's): KL, reconstruction
and cross-entropy are sums over latent dimensions, features and known labels. Labels come as two
masks, ``positive`` and ``known``, (n_members, n_rows, n_labels); what lies under an unknown label
changes nothing.

With P the known positives and U the unknown labels of a row: cross-entropy skips U; the denominator
of the contrastive term leaves U out; the mixture uses P, the background component where P and U are
empty; where P is empty and U is not, KL and contrastive are 0.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cgmvae.nn.gaussian import (
    Gaussian,
    log_density,
    mixture_log_density,
    mixture_log_density_of_pairs,
)
from cgmvae.nn.packed import inner_products

#: Norms are at least this, as in torch's own normalisation.
_TINY = 1e-12


def chosen_components(positive: Tensor, known: Tensor) -> Tensor:
    """Return which components form each row's prior, (M, B, L + 1).

    The positive labels; the background (last) where a row is known to have no label; nothing where
    it has no known positive but some label is unknown.
    """
    # Deviation D10: the paper does not say what prior a row without labels has.
    background = ~positive.any(-1, keepdim=True) & known.all(-1, keepdim=True)
    return torch.cat([positive, background], dim=-1)


def kl_to_mixture(z: Tensor, posterior: Gaussian, components: Gaussian, chosen: Tensor) -> Tensor:
    """One-sample estimate of KL(q(z|x) ‖ p(z|y)), Eq. 4; it may be negative.

    Parameters
    ----------
    z : Tensor, (n_members, n_rows, latent_dim)
        Drawn from the posterior.
    posterior : Gaussian, (n_members, n_rows, latent_dim)
    components : Gaussian, (n_members, n_components, latent_dim)
        The labels' Gaussians, and the background's.
    chosen : Tensor of bool, (n_members, n_rows, n_components)
        The components of each row's prior; a row without any scores 0.
    """
    divergence = log_density(z, posterior) - mixture_log_density(z, components, chosen)
    return torch.where(chosen.any(-1), divergence, 0.0).to(z.dtype)


def kl_to_mixture_of_pairs(
    z: Tensor, posterior: Gaussian, components: Gaussian, rows: Tensor, places: Tensor
) -> Tensor:
    """Return what :func:`kl_to_mixture` returns for one member, from the chosen pairs alone.

    Parameters
    ----------
    z : Tensor, (n_rows, latent_dim)
    posterior : Gaussian, (n_rows, latent_dim)
    components : Gaussian, (n_components, latent_dim)
        Those that some row chooses.
    rows, places : Tensor of int64, (n_pairs,)
        Each row and a component of its prior, sorted by row.
    """
    prior = mixture_log_density_of_pairs(z, components, rows, places)
    n_chosen = torch.bincount(rows, minlength=len(z))
    return torch.where(n_chosen > 0, log_density(z, posterior) - prior, 0.0).to(z.dtype)


def kl_to_gaussian(posterior: Gaussian, prior: Gaussian) -> Tensor:
    """KL between diagonal Gaussians, summed over dimensions, for the priors that are no mixture."""
    gap = posterior.log_variance - prior.log_variance
    distance = (posterior.mean - prior.mean) ** 2 * torch.exp(-prior.log_variance)
    return 0.5 * (torch.exp(gap) - 1 - gap + distance).sum(-1)


def gaussian_reconstruction(features: Tensor, predicted: Tensor) -> Tensor:
    """−log p(x|z) for real features with unit variance, up to its constant, Eq. 5."""
    return 0.5 * ((features - predicted) ** 2).sum(-1)


def bernoulli_reconstruction(features: Tensor, logits: Tensor) -> Tensor:
    """−log p(x|z) for features between 0 and 1, Eq. 5."""
    return F.binary_cross_entropy_with_logits(logits, features, reduction="none").sum(-1)


def cosine_similarity(
    features: Tensor, labels: Tensor, products: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Return cosines between rows' and labels' embeddings, (n_members, n_rows, n_labels).

    0 where a norm is 0. ``products`` is what ``inner_products`` gives for the two, where that is
    there already.
    """
    inner, rows = inner_products(features, labels) if products is None else products
    columns = torch.linalg.vector_norm(labels, dim=-1)
    return inner / rows.clamp(min=_TINY)[:, :, None] / columns.clamp(min=_TINY)[:, None, :]


def contrastive(similarity: Tensor, positive: Tensor, known: Tensor) -> Tensor:
    """Mean over the positive labels of −log softmax(similarity), Eq. 6; 0 without positives.

    ``similarity`` is already divided by the temperature.
    """
    n_positive = positive.sum(-1)
    anchored = n_positive > 0
    # A row without positives may know no label: −inf, and no gradient. Its logits become 0.
    logits = similarity.masked_fill(~known, -torch.inf).masked_fill(~anchored[..., None], 0.0)
    attraction = similarity.masked_fill(~positive, 0.0).sum(-1) / n_positive.clamp(min=1)
    return torch.where(anchored, torch.logsumexp(logits, dim=-1) - attraction, 0.0)


def triplet(
    similarity: Tensor, positive: Tensor, known: Tensor, draws: Tensor, *, gap: float = 1.0
) -> Tensor:
    """Hinge on one positive and one negative label of each row (appendix A.1).

    Embeddings have unit norm, so a squared distance is 2 − 2·cosine; ``similarity`` is the cosine.
    ``draws``, uniform of its shape, pick the two labels. 0 where the row has not both.
    """
    negative = known & ~positive
    pick_positive = torch.where(positive, draws, -1.0).argmax(-1, keepdim=True)
    pick_negative = torch.where(negative, draws, -1.0).argmax(-1, keepdim=True)
    closer = similarity.gather(-1, pick_negative) - similarity.gather(-1, pick_positive)
    both = positive.any(-1) & negative.any(-1)
    # Deviation D11: the appendix prints the sum of both distances.
    return torch.where(both, F.relu(gap + 2 * closer.squeeze(-1)), 0.0)


def ranking(scores: Tensor, positive: Tensor, known: Tensor) -> Tensor:
    """Mean over pairs of exp(negative's score − positive's score); 0 where the row has no pair.

    The mean of the products is the product of the means, so no tensor of pairs is made.
    """
    negative = known & ~positive
    # Masked before the exponential: a product with 0 would turn what overflows into NaN.
    rise = torch.exp(scores.masked_fill(~negative, -torch.inf)).sum(-1)
    fall = torch.exp(-scores.masked_fill(~positive, torch.inf)).sum(-1)
    return rise * fall / (negative.sum(-1) * positive.sum(-1)).clamp(min=1)


def cross_entropy(logits: Tensor, positive: Tensor, known: Tensor) -> Tensor:
    """Binary cross-entropy summed over the known labels, Eq. 7 with the sign of a loss."""
    # −log σ(l) = softplus(−l) for positives, −log(1 − σ(l)) = softplus(l) for negatives.
    losses = F.softplus(torch.where(positive, -logits, logits))
    return losses.masked_fill(~known, 0.0).sum(-1)
