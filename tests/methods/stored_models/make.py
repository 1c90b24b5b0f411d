"""Write a small model of the current format, with rows and their probabilities as its origin.

python tests/methods/stored_models/make.py

Run it when ``FORMAT_VERSION`` has changed. The files of released formats are never written again:
they show that what people have saved can still be read.
"""

from pathlib import Path
from typing import Any

import numpy as np

from cgmvae import CGMVAEClassifier
from cgmvae.methods.model_file import FORMAT_VERSION


def table(X: Any) -> dict[str, Any]:
    """Return features as a table of numbers, categories and text."""
    birds = ["an owl" if x > 0 else "a small hawk" for x in X[:, 1]]
    trees = ["an old oak" if x > 0 else "some reeds" for x in X.sum(1)]
    days = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    notes = zip(birds, trees, strict=True)
    return {
        "depth": X[:, 0].tolist(),
        "habitat": ["bog" if x > 0 else "fen" for x in X[:, 0]],
        "notes": [
            f"on {days[i % 7]} there was {bird} near {tree}, seen {i % 29} times from afar"
            for i, (bird, tree) in enumerate(notes)
        ],
    }


if __name__ == "__main__":
    features = np.random.default_rng(0).normal(size=(100, 2))
    labels = np.column_stack([features > 0, features.sum(1) > 0]).astype(int)
    model = CGMVAEClassifier(
        n_members=2,
        epochs=30,
        learning_rate=0.03,
        embedding_dim=4,
        device="cpu",
        random_state=0,
        latent_dim=2,
        network={
            "feature_hidden": (4,),
            "label_hidden": (4,),
            "decoder_hidden": (4,),
        },
    ).fit(table(features), labels)
    rows = table(features[:5])
    model.origin_ = {"X": rows, "probabilities": model.predict_proba(rows)}
    model.save(Path(__file__).with_name(f"format_{FORMAT_VERSION}.cgmvae"))
