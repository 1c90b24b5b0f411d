"""The registered methods, as the command line, the studies and the contract tests know them.

A new method is one file and one entry here (``docs/adding_a_method.md``).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cgmvae.errors import InputError

if TYPE_CHECKING:
    from cgmvae.methods.base import MultiLabelClassifier


@dataclass(frozen=True)
class Method:
    """An entry of the registry."""

    title: str
    """Display name."""
    location: str
    """Module in this package and name of its class, which defines the default parameters."""
    paper: str
    """The publication."""
    row: str = ""
    """Its name in the tables of the C-GMVAE paper; empty if it is not in them."""
    space: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Default search space: values by parameter."""
    original: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of its authors' code, where the defaults differ from them."""
    max_labels: int | None = None
    """Largest number of labels that it supports; None for any number."""
    keeps_rows: bool = False
    """Whether a fitted model contains training rows, in full or in part."""

    @cached_property
    def estimator(self) -> type[MultiLabelClassifier]:
        """Its class; imported on first use, so that reading the registry costs nothing."""
        module, _, name = self.location.rpartition(".")
        return getattr(importlib.import_module(f"cgmvae.methods.{module}"), name)

    @property
    def class_name(self) -> str:
        """The name of its class."""
        return self.location.rpartition(".")[2]


REGISTRY: Mapping[str, Method] = MappingProxyType(
    {
        "blend": Method(
            "blend", "blend.BlendClassifier", "Wolpert 1992, Neural Networks", keeps_rows=True
        ),
        "cgmvae": Method(
            "C-GMVAE",
            "cgmvae.CGMVAEClassifier",
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
        "trees": Method(
            "mixed forest",
            "trees.MixedForest",
            "Breiman 2001; Geurts, Ernst, Wehenkel 2006, Machine Learning",
            keeps_rows=True,
        ),
        "linear": Method(
            "linear SVM", "linear.LinearSVM", "Fan, Chang, Hsieh, Wang, Lin 2008, JMLR"
        ),
        "votes": Method(
            "votes of near rows",
            "neighbors.NearestVotes",
            "Dudani 1976, IEEE Transactions on SMC",
            keeps_rows=True,
        ),
        "binary-relevance": Method(
            "binary relevance",
            "binary_relevance.BinaryRelevance",
            "Zhang et al. 2018, Frontiers of CS",
            "BR",
        ),
        "mlknn": Method(
            "ML-kNN",
            "mlknn.MLkNN",
            "Zhang and Zhou 2007, Pattern Recognition",
            "MLKNN",
            {"k": (5, 10, 20, 30), "s": (0.1, 1.0)},
            keeps_rows=True,
        ),
        "haram": Method(
            "HARAM",
            "haram.HARAM",
            "Benites and Sapozhnikova 2015, ICDM workshops",
            "HARAM",
            {
                "vigilance": (0.8, 0.85, 0.9, 0.95, 0.99),
                "vote_threshold": (0.01, 0.02, 0.03, 0.05, 0.1),
                "searched_fraction": (0.2, 1.0),
            },
            keeps_rows=True,
        ),
        "sleec": Method(
            "SLEEC",
            "sleec.SLEEC",
            "Bhatia, Jain, Kar, Varma, Jain 2015, NIPS",
            "SLEEC",
            {
                "n_neighbors_svp": (25, 100, 250),
                "n_neighbors": (5, 10, 20, 30),
                "l2_weight": (0.1, 0.3, 1.0, 3.0),
                "l1_weight": (0.0, 0.1, 0.3),
            },
            keeps_rows=True,
        ),
        "c2ae": Method(
            "C2AE",
            "c2ae.C2AE",
            "Yeh, Wu, Ko, Wang 2017, AAAI",
            "C2AE",
            {
                "learning_rate": (5e-4, 1e-3, 2e-3),
                "dropout": (0.2, 0.3, 0.5),
                "constraint_weight": (0.4, 0.5, 0.7),
                "ranking_weight": (1.0, 3.0, 10.0),
            },
        ),
        "lamp": Method(
            "LaMP",
            "lamp.LaMP",
            "Lanchantin, Sekhon, Qi 2019, ECML-PKDD",
            "LaMP",
            {
                "learning_rate": (5e-4, 1e-3, 2e-3),
                "dropout": (0.1, 0.3, 0.5),
                "n_components": (4, 8, 16),
                "graph": ("prior", "full", "edgeless"),
                "intermediate_weight": (0.0, 0.2),
            },
            # The command in its README, for reuters.
            {
                "embedding_dim": 512,
                "dropout": 0.2,
                "input_dropout": 0.0,
                "learning_rate": 2e-4,
                "weight_decay": 0.0,
                "batch_size": 32,
                "epochs": 50,
                "training": {"optimizer": "adam", "schedule": "constant"},
            },
            max_labels=4096,
        ),
        "mpvae": Method(
            "MPVAE",
            "mpvae.MPVAE",
            "Bai, Kong, Gomes 2020, IJCAI",
            "MPVAE",
            {
                "learning_rate": (5e-4, 1e-3, 2e-3),
                "dropout": (0.2, 0.4, 0.5),
                "kl_weight": (0.3, 1.1),
                "ranking_weight": (0.3, 1.0, 3.0),
            },
            # Its script for yeast, with 100 epochs instead of 800 and a constant learning rate.
            {
                "label_input": "xy",
                "layer_norm": False,
                "ranking_of": "draws",
                "n_draws": 100,
                "cross_entropy_weight": 0.1,
                "label_cross_entropy_weight": 0.1,
                "ranking_weight": 20.0,
                "label_ranking_weight": 20.0,
                "dropout": 0.5,
                "learning_rate": 6e-4,
                "weight_decay": 1e-5,
                "epochs": 100,
                "training": {"optimizer": "adam", "schedule": "constant"},
            },
        ),
        "asl": Method(
            "ASL",
            "asl.ASL",
            "Ridnik et al. 2021, ICCV",
            "ASL",
            {
                "learning_rate": (3e-4, 1e-3, 3e-3),
                "dropout": (0.2, 0.5),
                "gamma_positive": (0.0, 1.0),
                "gamma_negative": (1.0, 2.0, 4.0),
                "margin": (0.0, 0.05, 0.2),
            },
        ),
        "rbcc": Method(
            "RBCC",
            "rbcc.RBCC",
            "Gerych, Hartvigsen, Buquicchio, Agu, Rundensteiner 2021, NeurIPS",
            "RBCC",
            {
                "learning_rate": (5e-4, 1e-3, 2e-3),
                "dropout": (0.2, 0.3, 0.5),
                "max_parents": (1, 2, 3),
                "state_dim": (64, 128),
            },
            max_labels=100,
        ),
    }
)


#: The methods that the C-GMVAE paper compares.
PAPER_METHODS = tuple(name for name, method in REGISTRY.items() if method.row)


class _Estimators(Mapping[str, "type[MultiLabelClassifier]"]):
    """The classes of all methods by class name, imported when they are looked up."""

    _methods = MappingProxyType({method.class_name: method for method in REGISTRY.values()})

    def __getitem__(self, name: str) -> type[MultiLabelClassifier]:
        return self._methods[name].estimator

    def __contains__(self, name: object) -> bool:
        return name in self._methods

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)

    def __len__(self) -> int:
        return len(self._methods)


METHODS = _Estimators()


def find_method(name: str) -> Method:
    """Return the registered method with this name."""
    if name not in REGISTRY:
        raise InputError(f"There is no method {name!r}; choose one of {', '.join(REGISTRY)}.")
    return REGISTRY[name]


def method_name(model: Any) -> str:
    """Return the registered name of a model's method, or its class name if it is not registered.

    Examples
    --------
    >>> from cgmvae import CGMVAEClassifier
    >>> method_name(CGMVAEClassifier())
    'cgmvae'
    """
    location = f"{type(model).__module__}.{type(model).__name__}"
    own = (n for n, m in REGISTRY.items() if f"cgmvae.methods.{m.location}" == location)
    return next(own, type(model).__name__)
