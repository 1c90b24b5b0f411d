"""Multi-label classification with a contrastive Gaussian mixture VAE, and its rivals."""

from typing import Any

__version__ = "0.1.0"

__all__ = [
    "ASL",
    "C2AE",
    "HARAM",
    "MPVAE",
    "RBCC",
    "SLEEC",
    "BinaryRelevance",
    "BlendClassifier",
    "CGMVAEClassifier",
    "InputError",
    "LaMP",
    "MLkNN",
    "MultiLabelDataset",
    "OwnEncoder",
    "PackedSearch",
    "__version__",
    "compare",
    "load",
    "load_dataset",
    "make_split",
    "make_survey",
    "read",
]

#: Where the public names live; they are imported when they are first asked for.
_HOMES = {
    "ASL": "cgmvae.methods",
    "C2AE": "cgmvae.methods",
    "HARAM": "cgmvae.methods",
    "LaMP": "cgmvae.methods",
    "MLkNN": "cgmvae.methods",
    "MPVAE": "cgmvae.methods",
    "RBCC": "cgmvae.methods",
    "SLEEC": "cgmvae.methods",
    "PackedSearch": "cgmvae.search",
    "BinaryRelevance": "cgmvae.methods",
    "BlendClassifier": "cgmvae.methods",
    "CGMVAEClassifier": "cgmvae.methods",
    "InputError": "cgmvae.errors",
    "MultiLabelDataset": "cgmvae.data",
    "OwnEncoder": "cgmvae.methods",
    "compare": "cgmvae.studies.leaderboard",
    "load": "cgmvae.methods",
    "load_dataset": "cgmvae.data",
    "make_split": "cgmvae.data",
    "make_survey": "cgmvae.data",
    "read": "cgmvae.data",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cgmvae' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
