"""Small fits whose probabilities are kept, so that a change of the code is seen to change nothing.

``python tests/golden/cases.py`` prints the largest difference of each case from what is kept, and
``--write`` keeps today's values where they differ: give a reason in the commit that does. Cases on
data that is not embedded need ``CGMVAE_DATA``; those that cannot be run keep their old values.
"""

import csv
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cgmvae.data import MultiLabelDataset, load_dataset, make_survey, read
from cgmvae.methods import METHODS, CGMVAEClassifier

KEPT = Path(__file__).with_name("probabilities.npz")

#: Processors round differently, and three epochs of training amplify it.
TOLERANCE = 2e-4

#: Training rows of each data set, and rows that are predicted.
N_TRAIN, N_TEST = 500, 25

Case = Callable[[], NDArray[np.float32]]


def of_network(data: MultiLabelDataset) -> NDArray[np.float32]:
    """Return probabilities of C-GMVAE with its defaults, from two members that share two folds."""
    model = CGMVAEClassifier(
        n_members=2,
        n_folds=2,
        epochs=3,
        random_state=0,
        device="cpu",
    )
    model.fit(data.X[:N_TRAIN], data.rows(np.arange(N_TRAIN)))
    return model.predict_proba(data.X[N_TRAIN : N_TRAIN + N_TEST])


def of_data_set(name: str) -> NDArray[np.float32]:
    """Return those of the first rows of a data set, in random order."""
    data = load_dataset(name)
    order = np.random.RandomState(0).permutation(data.n_samples)[: N_TRAIN + N_TEST]
    return of_network(data.rows(order))


def of_preset(preset: str) -> NDArray[np.float32]:
    """Return those of a preset without folds, with a network of the paper's form but smaller."""
    data, _ = make_survey(150, 8, 6, seed=1)
    sizes = {"label_hidden": (16,), "feature_hidden": (16,)}
    model = CGMVAEClassifier(
        preset,
        n_members=2,
        epochs=3,
        embedding_dim=32,
        random_state=0,
        device="cpu",
        network=sizes,
    )
    model.fit(data.X[:100], data.Y[:100], validation_data=(data.X[100:125], data.Y[100:125]))
    return model.predict_proba(data.X[125:])


def of_text() -> NDArray[np.float32]:
    """Return those of a CSV file with text, categories, dates, numbers and missing values."""
    rng = np.random.RandomState(0)
    topics = [[f"{topic}{i}" for i in range(30)] for topic in ("river", "city", "wood", "sea")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "notes.csv")
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            names = ["river", "city", "wood", "sea"]
            writer.writerow(["note", "kind", "day", "depth", *(f"is_{name}" for name in names)])
            for _ in range(N_TRAIN + N_TEST):
                labels = rng.rand(4) < 0.4
                words = [rng.choice(topics[k], 5) for k in np.flatnonzero(labels)]
                words.append(rng.choice(np.concatenate(topics), 8))
                text = " ".join(rng.permutation(np.concatenate(words)))
                depth = "" if rng.rand() < 0.1 else f"{labels.sum() + rng.randn():.3f}"
                day = f"2024-{rng.randint(1, 13):02}-{rng.randint(1, 29):02}"
                row = [text, rng.choice(["a", "b", "c"]), day, depth]
                writer.writerow(row + labels.astype(int).tolist())
        return of_network(read(path, label_count=-4))


def of_method(name: str) -> NDArray[np.float32]:
    """Return those of a method, quick and small, on a made-up survey."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "contracts"))
    from quick_estimators import quick

    data, _ = make_survey(120, 6, 5, seed=0)
    model = quick(name).fit(data.X[:100], data.Y[:100])
    return np.asarray(model.predict_proba(data.X[100:]), np.float32)


CASES: dict[str, Case] = {
    **{
        name: lambda name=name: of_data_set(name)
        for name in ("yeast", "scene", "sider", "reuters_tfidf")
    },
    **{f"preset {name}": lambda name=name: of_preset(name) for name in ("paper", "released")},
    "text": of_text,
    **{f"method {name}": lambda name=name: of_method(name) for name in METHODS},
}


def embedded(name: str) -> bool:
    """Tell whether a case needs no data from outside."""
    return name not in ("scene", "sider", "reuters_tfidf")


def differences() -> Iterator[tuple[str, float, NDArray[np.float32]]]:
    """Return each case that can be run, its largest difference, and its values today."""
    kept = np.load(KEPT) if KEPT.exists() else {}
    for name, case in CASES.items():
        if embedded(name) or os.environ.get("CGMVAE_DATA"):
            values = case()
            same = name in kept and kept[name].shape == values.shape
            yield name, np.abs(values - kept[name]).max() if same else np.inf, values


def main() -> None:
    """Print the differences; write today's values if asked for."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    values = dict(np.load(KEPT)) if KEPT.exists() else {}
    values = {name: values[name] for name in values if name in CASES}
    for name, difference, own in differences():
        print(f"{name:20} {difference:.2g}")  # noqa: T201
        if difference > TOLERANCE:
            values[name] = own
    if "--write" in sys.argv:
        np.savez_compressed(KEPT, **values)


if __name__ == "__main__":
    main()
