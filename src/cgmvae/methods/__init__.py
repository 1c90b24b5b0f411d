"""The estimators: one file per method, one contract (:mod:`cgmvae.methods.base`).

The names of this package are imported when they are first asked for: reading the registry or a
model file does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cgmvae.methods.registry import METHODS, REGISTRY, find_method, method_name

if TYPE_CHECKING:
    from cgmvae.methods.asl import ASL
    from cgmvae.methods.base import MultiLabelClassifier
    from cgmvae.methods.binary_relevance import BinaryRelevance
    from cgmvae.methods.blend import BlendClassifier
    from cgmvae.methods.c2ae import C2AE
    from cgmvae.methods.cgmvae import CGMVAEClassifier
    from cgmvae.methods.haram import HARAM
    from cgmvae.methods.lamp import LaMP
    from cgmvae.methods.linear import LinearSVM
    from cgmvae.methods.mlknn import MLkNN
    from cgmvae.methods.model_file import load
    from cgmvae.methods.mpvae import MPVAE
    from cgmvae.methods.neighbors import NearestVotes
    from cgmvae.methods.neural import fit_together
    from cgmvae.methods.own_encoder import OwnEncoder
    from cgmvae.methods.rbcc import RBCC
    from cgmvae.methods.sleec import SLEEC
    from cgmvae.methods.trees import MixedForest

__all__ = [
    "ASL",
    "C2AE",
    "HARAM",
    "METHODS",
    "MPVAE",
    "RBCC",
    "REGISTRY",
    "SLEEC",
    "BinaryRelevance",
    "BlendClassifier",
    "CGMVAEClassifier",
    "LaMP",
    "LinearSVM",
    "MLkNN",
    "MixedForest",
    "MultiLabelClassifier",
    "NearestVotes",
    "OwnEncoder",
    "find_method",
    "fit_together",
    "load",
    "method_name",
]

#: Where names live that are not estimators of the registry.
_HOMES = {
    "MultiLabelClassifier": "base",
    "OwnEncoder": "own_encoder",
    "fit_together": "neural",
    "load": "model_file",
}


def __getattr__(name: str) -> Any:
    if name in METHODS:
        return METHODS[name]
    if name not in _HOMES:
        raise AttributeError(f"module 'cgmvae.methods' has no attribute {name!r}")
    return getattr(import_module(f"cgmvae.methods.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
