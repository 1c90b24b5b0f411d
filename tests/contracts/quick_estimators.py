"""Every registered method as an instance that learns within a moment.

A method that is not named here gets what its signature takes of ``SHARED``, so that a new one is
checked without a change.
"""

import inspect
from typing import Any

from cgmvae.methods import METHODS, MultiLabelClassifier

#: For any method that has such a parameter.
SHARED: dict[str, Any] = {
    "n_members": 2,
    "epochs": 4,
    "batch_size": 32,
    "learning_rate": 1e-2,
    "embedding_dim": 16,
    "device": "cpu",
    "random_state": 0,
}

#: What a method needs beside that, by the name of its class.
OWN: dict[str, dict[str, Any]] = {
    "ASL": {"hidden_dim": 64},
    "CGMVAEClassifier": {
        "settings": {
            "feature_hidden": (16,),
            "label_hidden": (16,),
            "decoder_hidden": (16,),
            "latent_dim": 4,
        }
    },
    "C2AE": {"hidden_dim": 128, "epochs": 8},
    "HARAM": {"learning_rate": 1.0},
    "MLkNN": {"k": 3},
    "MPVAE": {"hidden_dim": 16, "latent_dim": 4},
    "RBCC": {"state_dim": 16, "hidden_dim": 32, "n_restarts": 1},
    "SLEEC": {"n_learners": 3, "n_neighbors": 9},
}

NAMES = list(METHODS)


def quick(name: str, **changes: Any) -> MultiLabelClassifier:
    """Return a small, fast, unfitted instance of a method."""
    return METHODS[name](**quick_parameters(METHODS[name], name, **changes))


def quick_parameters(method: Any, name: str, **changes: Any) -> dict[str, Any]:
    taken = inspect.signature(method).parameters
    shared = {key: value for key, value in SHARED.items() if key in taken}
    return shared | OWN.get(name, {}) | changes
