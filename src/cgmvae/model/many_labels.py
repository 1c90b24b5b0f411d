"""Training with very many labels on a processor: only what a batch touches is computed.

Of 30,000 labels a batch has some hundreds. The KL needs the Gaussians of those alone, and of each
row the densities of its own labels alone. Contrastive term and cross-entropy score all labels, in
blocks (:mod:`cgmvae.model.label_losses`), or those of the batch and a sample of the others.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cgmvae.model import objective
from cgmvae.model.label_encoder import LabelEncoder
from cgmvae.model.label_losses import LabelLosses, label_losses
from cgmvae.nn.gaussian import Gaussian
from cgmvae.nn.noise import GeneratorNoise


class Pairs(NamedTuple):
    """The components that the rows of one member choose."""

    rows: Tensor
    """The row of each pair, ascending, int64 (n_pairs,)"""
    places: Tensor
    """Its component among those that are made, int64 (n_pairs,)"""
    labels: Tensor
    """The labels whose components are made, before the background's, int64 (n,)"""


def pairs_of(positive: Tensor, known: Tensor, present: Tensor) -> Pairs:
    """Return the pairs of ``objective.chosen_components``, for the rows of one member.

    Parameters
    ----------
    positive, known : Tensor of bool, (n_rows, n_labels)
    present : Tensor of bool, (n_labels,)
        The labels whose components are made.
    """
    rows, labels = positive.nonzero(as_tuple=True)
    made = present.nonzero().squeeze(1)
    places = torch.searchsorted(made, labels)
    without = torch.bincount(rows, minlength=len(positive)) == 0
    # A mask of rows and labels takes as long to make as all that is done with the pairs.
    empty = without.nonzero().squeeze(1)
    background = empty[known[empty].all(-1)]
    rows, order = torch.cat([rows, background]).sort(stable=True)
    places = torch.cat([places, torch.full_like(background, len(made))])[order]
    return Pairs(rows, places, made)


def kl_to_mixtures(
    z: Tensor,
    posterior: Gaussian,
    encoder: LabelEncoder,
    *,
    positive: Tensor,
    known: Tensor,
    present: Tensor,
    noise: GeneratorNoise,
    rate: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return what ``objective.kl_to_mixture`` returns, (n_members, n_rows), and the embeddings.

    Whatever else the step does with label embeddings it does with these: see
    :meth:`~cgmvae.model.label_encoder.LabelEncoder.of_labels`.

    Parameters
    ----------
    z : Tensor, (n_members, n_rows, latent_dim)
    posterior : Gaussian, (n_members, n_rows, latent_dim)
    encoder : LabelEncoder
        Asked for the components of the labels that are present, and no others.
    positive, known : Tensor of bool, (n_members, n_rows, n_labels)
    present : Tensor of bool, (n_members, n_labels)
        The labels that some row of the batch has.
    noise : GeneratorNoise
        At the part of the step that is the labels'.
    rate : Tensor, (n_members,)
        Dropout.
    """
    pairs = [pairs_of(*own) for own in zip(positive, known, present, strict=True)]
    components, embeddings = encoder.of_labels([own.labels for own in pairs], noise, rate)
    divergences = [
        objective.kl_to_mixture_of_pairs(
            z[i],
            Gaussian(posterior.mean[i], posterior.log_variance[i]),
            found,
            own.rows,
            own.places,
        )
        for i, (found, own) in enumerate(zip(components, pairs, strict=True))
    ]
    return torch.stack(divergences), embeddings


class LabelSample(NamedTuple):
    """Labels of one member that are scored in place of all."""

    labels: Tensor
    """int64 (n,)"""
    stands_for: Tensor
    """How many labels each one stands for, (n,)"""


def sample_labels(present: Tensor, draws: Tensor, n_others: int) -> LabelSample:
    """Return the labels that are present in a batch, and a sample of the others.

    The sum over all labels of anything is in expectation the sum over these, each times the number
    of labels that it stands for.

    Parameters
    ----------
    present : Tensor of bool, (n_labels,)
    draws : Tensor, (n_labels,)
        Uniform; they pick the others.
    n_others : int
        How many, at most.
    """
    own = present.nonzero().squeeze(1)
    n_rest = len(present) - len(own)
    n_drawn = min(n_others, n_rest)
    others = draws.masked_fill(present, 2.0).topk(n_drawn, largest=False).indices
    ones, many = torch.ones_like(own), torch.full_like(others, 0) + n_rest / max(n_drawn, 1)
    return LabelSample(torch.cat([own, others]), torch.cat([ones.to(draws), many.to(draws)]))


def sampled_label_losses(
    embedding: Tensor,
    labels: Tensor,
    bias: Tensor,
    positive: Tensor,
    known: Tensor,
    *,
    present: Tensor,
    temperature: Tensor,
    draws: Tensor,
    n_others: int,
) -> LabelLosses:
    """Return estimates of what ``label_losses`` returns, from a sample of the labels.

    Cross-entropy is unbiased. The contrastive term is the logarithm of an unbiased sum.

    Parameters
    ----------
    embedding, labels, bias, positive, known, temperature
        See :func:`~cgmvae.model.label_losses.label_losses`.
    present : Tensor of bool, (n_members, n_labels)
        The labels that some row of a member's batch has.
    draws : Tensor, (n_members, n_labels)
        Uniform; they pick the labels that are in no row of a member's batch.
    n_others : int
        How many of those are scored.
    """
    found = []
    for i in range(len(embedding)):
        sample = sample_labels(present[i], draws[i], n_others)
        one, chosen = slice(i, i + 1), sample.labels
        found.append(
            label_losses(
                embedding[one],
                labels[i, chosen][None],
                bias[i, chosen][None],
                positive[one][..., chosen],
                known[one][..., chosen],
                temperature=temperature[one],
                stands_for=sample.stands_for[None],
            )
        )
    return LabelLosses(*(torch.cat(parts) for parts in zip(*found, strict=True)))
