"""The estimators: one file each, one contract (:mod:`cgmvae.methods.base`)."""

from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.binary_relevance import BinaryRelevance
from cgmvae.methods.cgmvae import CGMVAEClassifier

__all__ = ["BinaryRelevance", "CGMVAEClassifier", "MultiLabelClassifier"]
