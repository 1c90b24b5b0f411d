"""The estimators: one file per method, one contract (:mod:`cgmvae.methods.base`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import nn

from cgmvae.methods.asl import ASL
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.binary_relevance import BinaryRelevance
from cgmvae.methods.c2ae import C2AE
from cgmvae.methods.cgmvae import CGMVAEClassifier
from cgmvae.methods.haram import HARAM
from cgmvae.methods.lamp import LaMP
from cgmvae.methods.mlknn import MLkNN
from cgmvae.methods.mpvae import MPVAE
from cgmvae.methods.packed import fit_together
from cgmvae.methods.rbcc import RBCC
from cgmvae.methods.registry import REGISTRY, find_method, method_name
from cgmvae.methods.serialization import load_model
from cgmvae.methods.sleec import SLEEC

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
    "CGMVAEClassifier",
    "LaMP",
    "MLkNN",
    "MultiLabelClassifier",
    "find_method",
    "fit_together",
    "load",
    "method_name",
]

#: All estimators by class name.
METHODS: Mapping[str, type[MultiLabelClassifier]] = MappingProxyType(
    {method.estimator.__name__: method.estimator for method in REGISTRY.values()}
)


def load(
    path: str | os.PathLike[str],
    *,
    encoder: nn.Module | Callable[[], nn.Module] | None = None,
    collate: Callable[[Sequence[Any]], Any] | None = None,
) -> MultiLabelClassifier:
    """Load a model that was saved with ``save``; such a file cannot execute code.

    Parameters
    ----------
    path : path
    encoder : nn.Module or callable, optional
        For a model that was fitted with an encoder: a module of the same form, or a function that
        returns one. Its weights are replaced by those in the file.
    collate : callable, optional
        The function that the model was fitted with, if any.
    """
    code = {"encoder": encoder, "collate": collate}
    return load_model(
        path, METHODS, {name: each for name, each in code.items() if each is not None}
    )
