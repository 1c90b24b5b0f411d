"""Members of a pack, handed back to the estimators that they belong to.

:mod:`cgmvae.methods.together` trains several estimators as one pack, or in parts where there is no
room for all; here their results are put together again, and each estimator gets a network of its
own members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cgmvae.errors import InputError
from cgmvae.nn.noise import make_noise
from cgmvae.training.device import find_device
from cgmvae.training.history import History
from cgmvae.training.loop import TrainingResult
from cgmvae.training.members import Member

if TYPE_CHECKING:
    from cgmvae.methods.packed import PackedClassifier


class Part(NamedTuple):
    """Members that were trained in one pack."""

    places: NDArray[np.int64]
    """Among all members of all estimators."""
    network: nn.Module
    members: list[Member]
    result: TrainingResult

    @property
    def finished(self) -> NDArray[np.int64]:
        """Return the places of those that were trained to the end, which the network holds."""
        return self.places[self.result.places]


def join(parts: Sequence[Part]) -> TrainingResult:
    """Put the results of all parts together, as if they had been trained in one pack."""
    n_members = sum(len(part.places) for part in parts)
    n_epochs = max(len(series) for part in parts for series in part.result.history.values.values())
    history: dict[str, NDArray[np.float64]] = {}
    best_epoch, best_value = np.zeros(n_members, np.int64), np.zeros(n_members)
    for places, _, _, result in parts:
        best_epoch[places], best_value[places] = result.best_epoch, result.best_value
        for name, series in result.history.arrays().items():
            joined = history.setdefault(name, np.full((n_epochs, n_members), np.nan))
            joined[: len(series), places] = series
    finished = np.concatenate([part.finished for part in parts])
    return TrainingResult(History.from_arrays(history), best_epoch, best_value, finished)


def hand_over(
    model: PackedClassifier,
    places: NDArray[np.int64],
    parts: Sequence[Part],
    result: TrainingResult,
) -> None:
    """Give a model its members of the pack, but those left out or without a finished epoch."""
    if not np.isin(places, result.places).any():
        return
    kept = places[(result.best_epoch[places] > 0) & np.isin(places, result.places)]
    if len(kept) == 0:
        raise InputError("No member of a model finished an epoch; lower the learning rate.")
    model.member_settings_ = [model.member_settings_[i - places[0]] for i in kept]
    model.network_ = _network_of(model, kept, parts)
    history = result.history.arrays()
    model.history_ = {name: series[:, kept] for name, series in history.items()}
    model.best_epoch_, model.best_value_ = result.best_epoch[kept], result.best_value[kept]


def _network_of(
    model: PackedClassifier, kept: NDArray[np.int64], parts: Sequence[Part]
) -> nn.Module:
    """Return a network of the members at these places, and of no other."""
    if len(parts) == 1 and len(kept) == len(parts[0].members):
        return parts[0].network.to(find_device(model.device))
    members = {
        int(place): member
        for part in parts
        for place, member in zip(part.places, part.members, strict=True)
    }
    own = [members[int(place)] for place in kept]
    noise = make_noise([member.seed for member in own], find_device(model.device))
    network = model._build_network(own, np.zeros((len(own), model.n_labels_)), noise)
    for part in parts:
        here = np.isin(kept, part.finished)
        _copy_members(part.network, np.searchsorted(part.finished, kept[here]), network, here)
    return network


def own_memory(network: nn.Module) -> None:
    """Give each parameter memory of its own: views of one buffer are pickled with all of it."""
    for parameter in network.parameters():
        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)


def _copy_members(
    source: nn.Module, members: NDArray[np.int64], target: nn.Module, here: NDArray[np.bool_]
) -> None:
    """Give ``target`` the weights of these members of ``source``, where ``here`` is true."""
    places = np.flatnonzero(here)
    with torch.no_grad():
        for name, values in source.state_dict().items():
            chosen = values[torch.from_numpy(members).to(values.device)]
            into = target.state_dict()[name]
            into[torch.from_numpy(places).to(into.device)] = chosen.to(into.device)
