"""How many members a device can train at once, by measuring a few."""

from __future__ import annotations

import os

import numpy as np
import torch

from cgmvae.methods.packed import Fit, PackedClassifier, _training_rows, label_log_odds
from cgmvae.nn.noise import make_noise
from cgmvae.training.device import find_device
from cgmvae.training.loop import train
from cgmvae.training.plan import TrainingConfig

#: The share of a device's memory that a pack may take.
_SHARE = 0.6

#: Copies of its weights that a member has in training, beside activations: weights, gradients, two
#: moments, the best weights.
_COPIES = 6

#: Beyond this many, packing saves a processor nothing more.
_ENOUGH_ON_PROCESSOR = 32


def members_that_fit(model: PackedClassifier, fit: Fit) -> int:
    """Return how many members like the model's can be trained in one pack, at least 1."""
    device = find_device(model.device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return max(1, int(free * _SHARE / _measured_bytes(model, fit, device)))
    network = _network(model, fit, 1, device)
    weights = sum(parameter.nbytes for parameter in network.parameters())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(_ENOUGH_ON_PROCESSOR, int(memory * _SHARE / (_COPIES * weights))))


def _network(
    model: PackedClassifier, fit: Fit, n_members: int, device: torch.device
) -> torch.nn.Module:
    members = model._with({"n_members": n_members})._make_members(*fit, first_row=0)
    noise = make_noise([member.seed for member in members], device)
    log_odds = np.stack([label_log_odds(fit.train)] * n_members)
    network = model._build_network(members, log_odds, noise)
    model._prepare_network(network, [(fit.train, n_members)])
    return network


def _measured_bytes(model: PackedClassifier, fit: Fit, device: torch.device) -> float:
    """Return the bytes that one more member takes, from packs of two sizes."""
    few, many, peaks = 4, 12, []
    for n_members in (few, many):
        own = model._with({"n_members": n_members})
        members = own._make_members(*fit, first_row=0)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        network = _network(model, fit, n_members, device)
        config = TrainingConfig(epochs=1, batch_size=own._training_config(fit.train).batch_size)
        train(network, members, _training_rows([fit], device), config, device=device)
        peaks.append(torch.cuda.max_memory_allocated(device) - before)
        del network
    return max(1.0, (peaks[1] - peaks[0]) / (many - few))
