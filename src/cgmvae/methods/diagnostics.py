"""Is it really a mixture VAE? What the latent space of a fitted C-GMVAE does, in five numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import dense
from cgmvae.evaluation import micro_f1
from cgmvae.methods.inputs import Targets
from cgmvae.model.objective import chosen_components, kl_to_mixture
from cgmvae.nn.gaussian import Gaussian

#: A latent unit is active where its posterior mean varies more than this over the rows.
ACTIVE_VARIANCE = 0.01


def diagnose(
    model: Any, features: Matrix, targets: Targets, rng: np.random.Generator
) -> dict[str, float]:
    """Return what the latent space of a fitted model does on labeled rows.

    Returns
    -------
    dict
        ``active_units``: latent units whose mean varies over the rows, mean over members;
        ``kl_nats``: mean one-sample KL to the rows' mixtures;
        ``micro_f1`` and ``micro_f1_shuffled_z``: with each row's own z, and with another row's;
        ``similarity_cooccurrence``: rank correlation between label similarity and the correlation
        of the labels' columns.
    """
    shuffled = rng.permutation(features.shape[0])
    own, other, kl = [], [], []
    start = 0
    with torch.no_grad():
        components = model.network_.label_gaussians()
        encoded = [model.network_.encode(x) for x in model._feature_blocks(features)]
        posterior = Gaussian(*(torch.cat(parts, dim=1) for parts in zip(*encoded, strict=True)))
        for x in model._feature_blocks(features):
            rows = np.arange(start, start + x.shape[1])
            start += x.shape[1]
            here = Gaussian(posterior.mean[:, rows], posterior.log_variance[:, rows])
            epsilon = torch.as_tensor(rng.standard_normal(here.mean.shape)).to(here.mean)
            z = here.mean + torch.exp(0.5 * here.log_variance) * epsilon
            kl.append(
                kl_to_mixture(z, here, components, _chosen(targets, rows, here.mean)).mean(0).cpu()
            )
            own.append(model._probabilities(x, here.mean).mean(0).cpu().numpy())
            exchanged = posterior.mean[:, shuffled[rows]]
            other.append(model._probabilities(x, exchanged).mean(0).cpu().numpy())
        units = (posterior.mean.var(1) > ACTIVE_VARIANCE).sum(-1).double()
    f1, f1_shuffled = (
        micro_f1(
            targets.labels,
            model.threshold_rule_.apply(np.concatenate(scores)),
            unknown=targets.unknown,
        )
        for scores in (own, other)
    )
    return {
        "active_units": float(units.mean()),
        "kl_nats": float(torch.cat(kl).mean()),
        "micro_f1": f1,
        "micro_f1_shuffled_z": f1_shuffled,
        "similarity_cooccurrence": similarity_cooccurrence(
            model.label_similarity(), targets.labels
        ),
    }


def similarity_cooccurrence(similarity: NDArray[np.floating], labels: Matrix) -> float:
    """Rank correlation, over pairs of labels, of similarity and of the labels' correlation.

    NaN with fewer than three pairs, or where all pairs are the same in one of the two.
    """
    together = cooccurrence(labels) / labels.shape[0]
    share = np.diag(together)
    covariance = together - np.outer(share, share)
    spread = np.sqrt(np.maximum(share * (1 - share), 1e-12))
    pairs = np.triu_indices(len(share), 1)
    if len(pairs[0]) < 3:
        return float("nan")
    correlation = (covariance / np.outer(spread, spread))[pairs]
    if np.ptp(correlation) == 0 or np.ptp(similarity[pairs]) == 0:
        return float("nan")
    return float(spearmanr(similarity[pairs], correlation).statistic)


def cooccurrence(labels: Matrix) -> NDArray[np.float64]:
    """Return how many rows have both labels, (n_labels, n_labels)."""
    counts = sp.csr_array(labels, dtype=np.float64)
    return (counts.T @ counts).toarray()


def _chosen(targets: Targets, rows: NDArray[np.int64], like: torch.Tensor) -> torch.Tensor:
    def taken(matrix: Matrix) -> torch.Tensor:
        return torch.as_tensor(dense(matrix[rows]).astype(bool), device=like.device)[None]

    positive = taken(targets.labels)
    known = torch.ones_like(positive) if targets.unknown is None else ~taken(targets.unknown)
    return chosen_components(positive, known).expand(like.shape[0], -1, -1)
