"""The estimators: one file each, one contract (:mod:`cgmvae.methods.base`)."""

from __future__ import annotations

import os

from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.binary_relevance import BinaryRelevance
from cgmvae.methods.cgmvae import CGMVAEClassifier
from cgmvae.methods.packed import fit_together
from cgmvae.methods.persistence import load_model

__all__ = ["BinaryRelevance", "CGMVAEClassifier", "MultiLabelClassifier", "fit_together", "load"]

#: All methods by the name of their class.
METHODS = {method.__name__: method for method in (CGMVAEClassifier, BinaryRelevance)}


def load(path: str | os.PathLike[str]) -> MultiLabelClassifier:
    """Read a model that ``save`` wrote; such a file cannot run code."""
    return load_model(path, METHODS)
