"""The authors' checkpoints: their names of the weights, into our network and back.

The released code keeps a matrix as torch's ``Linear`` does, (out, in), and has separate layers for
means and log-variances; ours is (in, out), and one layer returns both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from cgmvae.errors import InputError
from cgmvae.model.network import CGMVAENetwork

#: Our networks, and the layers of the released code that each consists of.
_LAYERS = {
    "feature_encoder": ("fx1", "fx2", "fx3", "fx_mu+fx_logvar"),
    "decoder": ("fd_x1", "fd_x2.0"),
    "label_encoder": ("fe1", "fe2", "fe_mu+fe_logvar"),
}

#: The same layers in the last revision of the released code.
_LATER_NAMES = {
    "fx1": "fx.0",
    "fx2": "fx.3",
    "fx3": "fx.6",
    "fd_x1": "fd.0",
    "fd_x2.0": "fd.2",
    "fe0": "label_lookup",
    "fe1": "fe.0",
    "fe2": "fe.3",
}


def _parts(network: CGMVAENetwork, member: int) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor of a checkpoint by name: the weights of a member as views of ours."""
    if network.label_encoder.bias is None:
        raise InputError(
            "Only the network of the preset 'released' has the weights of the released code; "
            "use preset='released'."
        )
    yield "fe0.weight", network.label_encoder.embeddings[member].mT
    yield "fe0.bias", network.label_encoder.bias[member]
    for part, names in _LAYERS.items():
        layers = getattr(network, part).network.layers
        for name, layer in zip(names, layers, strict=True):
            own = name.split("+")
            weights = layer.weight[member].mT.chunk(len(own))
            biases = layer.bias[member].chunk(len(own))
            for each, weight, bias in zip(own, weights, biases, strict=True):
                yield f"{each}.weight", weight
                yield f"{each}.bias", bias


@torch.no_grad()
def load_released(
    network: CGMVAENetwork, checkpoint: Mapping[str, Tensor], *, member: int = 0
) -> None:
    """Copy a checkpoint of the released code into a member of a network.

    Parameters
    ----------
    network : CGMVAENetwork
        With the switches of the preset ``released`` and the sizes of the checkpoint.
    checkpoint : mapping of str to Tensor
        ``fx1.weight``, ``fe0.weight`` and so on, as ``state_dict`` returns them, or the names of
        the last revision, ``fx.0.weight``, ``label_lookup.weight``. Other layers are ignored.
    member : int
        The member to replace.
    """
    parts = dict(_parts(network, member))
    for name in parts:
        layer, _, kind = name.rpartition(".")
        later = f"{_LATER_NAMES.get(layer, layer)}.{kind}"
        if later in checkpoint:
            checkpoint = {**checkpoint, name: checkpoint[later]}
    for name, part in parts.items():
        if name not in checkpoint:
            raise InputError(f"The checkpoint has no {name!r}; it is not one of the released code.")
        if checkpoint[name].shape != part.shape:
            raise InputError(
                f"{name!r} has the shape {tuple(checkpoint[name].shape)} in the checkpoint and "
                f"{tuple(part.shape)} in the network; give the network the checkpoint's sizes."
            )
    for name, part in parts.items():
        part.copy_(checkpoint[name])


@torch.no_grad()
def released_checkpoint(network: CGMVAENetwork, *, member: int = 0) -> dict[str, Tensor]:
    """Return a member's weights by the names of the released code."""
    return {name: part.clone() for name, part in _parts(network, member)}
