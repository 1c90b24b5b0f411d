"""The methods by name: what the command line, the studies and the contract tests know of them.

A new method is one file and one line here (``docs/adding_a_method.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cgmvae.errors import InputError
from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.binary_relevance import BinaryRelevance
from cgmvae.methods.cgmvae import CGMVAEClassifier


@dataclass(frozen=True)
class Method:
    """One line of the registry."""

    title: str
    """What people call it."""
    estimator: type[MultiLabelClassifier]
    """Its class; the defaults are the class's own."""
    paper: str
    """Where it was published."""
    row: str
    """Its name in the tables of the C-GMVAE paper."""
    space: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """What a search tries: values by parameter."""

    @property
    def max_labels(self) -> int | None:
        """How many labels it takes at most, or None."""
        return self.estimator.max_labels


REGISTRY: Mapping[str, Method] = MappingProxyType(
    {
        "cgmvae": Method(
            "C-GMVAE",
            CGMVAEClassifier,
            "Bai, Kong, Gomes 2022, ICML",
            "C-GMVAE",
            {
                "learning_rate": (3e-4, 5e-4, 1e-3, 2e-3),
                "dropout": (0.1, 0.2, 0.3, 0.5),
                "weight_decay": (1e-3, 1e-2, 1e-1),
                "contrastive_weight": (0.1, 0.3, 1.0),
                "kl_weight": (1 / 256, 1 / 64),
            },
        ),
        "binary-relevance": Method(
            "binary relevance", BinaryRelevance, "Zhang et al. 2018, Frontiers of CS", "BR"
        ),
    }
)

#: All estimators by the name of their class.
METHODS: Mapping[str, type[MultiLabelClassifier]] = MappingProxyType(
    {method.estimator.__name__: method.estimator for method in REGISTRY.values()}
)


def find_method(name: str) -> Method:
    """Return the method of this name."""
    if name not in REGISTRY:
        raise InputError(f"There is no method {name!r}; choose one of {', '.join(REGISTRY)}.")
    return REGISTRY[name]
