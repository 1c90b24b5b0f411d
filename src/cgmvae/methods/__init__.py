"""The estimators: one file each, one contract (:mod:`cgmvae.methods.base`)."""

from __future__ import annotations

import os

from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.binary_relevance import BinaryRelevance
from cgmvae.methods.cgmvae import CGMVAEClassifier
from cgmvae.methods.packed import fit_together
from cgmvae.methods.persistence import load_model
from cgmvae.methods.registry import METHODS, REGISTRY, find_method

__all__ = [
    "METHODS",
    "REGISTRY",
    "BinaryRelevance",
    "CGMVAEClassifier",
    "MultiLabelClassifier",
    "find_method",
    "fit_together",
    "load",
]


def load(path: str | os.PathLike[str]) -> MultiLabelClassifier:
    """Read a model that ``save`` wrote; such a file cannot run code."""
    return load_model(path, METHODS)
