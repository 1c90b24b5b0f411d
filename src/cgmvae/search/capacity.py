"""How many members a device can train at once, by measuring a few."""

from __future__ import annotations

import os

import numpy as np
import torch

from cgmvae.methods.packed import PackedClassifier
from cgmvae.methods.together import Fit, Share, assemble
from cgmvae.training.device import find_device
from cgmvae.training.loop import train
from cgmvae.training.memory import free_memory
from cgmvae.training.plan import TrainingConfig

#: The share of a device's memory that a pack may take.
_SHARE = 0.6

#: Copies of its weights that a member has in training: weights, gradients, two moments, the best
#: weights, and one more for all else.
_COPIES = 6

#: The packs that are measured.
_FEW, _MANY = 4, 12

#: Beyond this many, packing saves a processor nothing more.
_ENOUGH_ON_PROCESSOR = 32


def members_that_fit(model: PackedClassifier, fit: Fit) -> int:
    """Return how many members like the model's can be trained in one pack, at least 1."""
    device = find_device(model.device)
    if device.type == "cuda":
        free_memory()
        free, _ = torch.cuda.mem_get_info(device)
        return max(1, int(free * _SHARE / _measured_bytes(model, fit, device)))
    network, _, _ = assemble([_share(model, fit, 1)], device)
    weights = sum(parameter.nbytes for parameter in network.parameters())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(_ENOUGH_ON_PROCESSOR, int(memory * _SHARE / (_COPIES * weights))))


def _share(model: PackedClassifier, fit: Fit, n_members: int) -> Share:
    return Share(model._with({"n_members": n_members}), fit, np.arange(n_members))


def _measured_bytes(model: PackedClassifier, fit: Fit, device: torch.device) -> float:
    """Return the bytes that one more member takes, from packs of two sizes.

    Infinite where there is no room for the larger one.
    """
    config = TrainingConfig(epochs=1, batch_size=model._training_config(fit.train).batch_size)
    peaks = []
    try:
        for n_members in (_FEW, _MANY):
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            network, members, rows = assemble([_share(model, fit, n_members)], device)
            train(network, members, rows, config, device=device)
            peaks.append(torch.cuda.max_memory_allocated(device) - before)
            del network, rows
    except torch.cuda.OutOfMemoryError:
        return np.inf
    return max(1.0, (peaks[1] - peaks[0]) / (_MANY - _FEW))
