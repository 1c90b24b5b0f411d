"""Every registered method as an instance that fits quickly.

A method that is not named here gets those of the parameters in ``SHARED`` that it has, so that a
new method is checked without a change.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from cgmvae.data import make_survey
from cgmvae.methods import (
    METHODS,
    BinaryRelevance,
    CGMVAEClassifier,
    MixedForest,
    MultiLabelClassifier,
    NearestVotes,
)

#: For any method that has such a parameter.
SHARED: dict[str, Any] = {
    "n_members": 1,
    "epochs": 2,
    "batch_size": 32,
    "learning_rate": 1e-2,
    "embedding_dim": 16,
    "encoding": "standard",  # tests compare the features that a method gets
    "device": "cpu",
    "random_state": 0,
}

#: A small network.
SMALL: dict[str, Any] = {
    "feature_hidden": (16,),
    "label_hidden": (16,),
    "decoder_hidden": (16,),
    "label_scale": 1.0,  # the same for dense and for sparse features
}

#: An expert gets scaled features, and the seed of the blend.
PLAIN: dict[str, Any] = {"scaling": "none", "encoding": "standard", "random_state": None}
ALONE: dict[str, Any] = {"n_members": 4, "latent_dim": 4, "network": SMALL}

#: One expert of each kind: a network, out of bag, all other rows, and one that is fitted on folds.
EXPERTS = [
    ("network", CGMVAEClassifier(**SHARED | PLAIN | ALONE)),
    ("trees", MixedForest(n_trees=10, scaling="none")),
    ("votes", NearestVotes(**PLAIN)),
    ("logistic", BinaryRelevance(scaling="none")),
]

#: Further parameters by class name.
OWN: dict[str, dict[str, Any]] = {
    "ASL": {"hidden_dim": 32},
    "BlendClassifier": {"experts": EXPERTS},
    "CGMVAEClassifier": {"latent_dim": 4, "network": SMALL},
    "MixedForest": {"n_trees": 20},
    "C2AE": {"hidden_dim": 32},
    "HARAM": {"learning_rate": 1.0},
    # The same for dense and for sparse features.
    "LaMP": {"n_steps": 1, "n_components": 2, "n_heads": 2, "components": "affine"},
    "MLkNN": {"k": 3},
    "MPVAE": {"hidden_dim": 16, "latent_dim": 4, "n_draws": 2},
    "RBCC": {"state_dim": 8, "hidden_dim": 16, "n_restarts": 0},
    "SLEEC": {"n_learners": 2, "n_neighbors": 9},
}

#: What a method needs to learn more than the label frequencies, by class name.
LEARNING: dict[str, dict[str, Any]] = {
    "ASL": {"epochs": 4, "hidden_dim": 64},
    "CGMVAEClassifier": {"epochs": 4},
    "C2AE": {"epochs": 8, "hidden_dim": 128},
    "LaMP": {"epochs": 4},
    "MPVAE": {"epochs": 4},
    "RBCC": {"epochs": 4, "state_dim": 16, "hidden_dim": 32},
}

NAMES = list(METHODS)

#: A method that trains on batches, and one that has all rows in memory.
REPRESENTATIVES = ["CGMVAEClassifier", "BinaryRelevance"]


def base_behavior(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test of code in the base class, which need not be run for every method."""
    test.names = REPRESENTATIVES
    return test


def only(*names: str) -> Callable[..., Any]:
    """Mark a test that concerns some methods."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        test.names = names
        return test

    return mark


def quick(name: str, **changes: Any) -> MultiLabelClassifier:
    """Return a small, fast, unfitted instance of a method."""
    return METHODS[name](**quick_parameters(METHODS[name], name, **changes))


def quick_parameters(method: Any, name: str, **changes: Any) -> dict[str, Any]:
    """Return the parameters of :func:`quick`."""
    taken = inspect.signature(method).parameters
    shared = {key: value for key, value in SHARED.items() if key in taken}
    return shared | OWN.get(name, {}) | changes


def rows_of(kind: str) -> tuple[Any, Any]:
    """Return the survey, or sparse features of it and labels of which some are unknown."""
    data, _ = make_survey(120, 6, 5, seed=0)
    if kind == "survey":
        return data.X, data.Y
    Y = data.Y.astype(np.float64)
    Y[::7, 1] = np.nan
    return sp.csr_array(np.where(np.abs(data.X) < 0.5, 0, data.X)), Y


@cache
def fitted_on(name: str, kind: str) -> MultiLabelClassifier:
    """Return a fitted method, which tests must not change; ``kind`` is that of :func:`rows_of`."""
    rule = {} if kind == "survey" else {"threshold_rule": "per-label"}
    return quick(name, **rule).fit(*rows_of(kind))
