"""``cgmvae demo``: train on the embedded data set, and compare with other methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from cgmvae.cli import console, models
from cgmvae.cli.arguments import Source, option
from cgmvae.cli.report import make_page, report_rows
from cgmvae.data import MultiLabelDataset, load_dataset, make_split
from cgmvae.data.files import make_folder
from cgmvae.data.splits import Split
from cgmvae.evaluation import METRIC_TITLES
from cgmvae.studies.published import published_value

PROTOCOLS = ("validation", "test-oracle")

Parts = tuple[MultiLabelDataset, MultiLabelDataset, MultiLabelDataset]


def _hidden() -> Any:
    return typer.Option(hidden=True, min=1)


def demo(
    out: Annotated[str | None, option("FOLDER", "Save the model and a report there.")] = None,
    members: Annotated[int | None, _hidden()] = None,
    epochs: Annotated[int | None, _hidden()] = None,
    trees: Annotated[int, _hidden()] = 300,
) -> None:
    """Train on yeast genes, and compare with other methods."""
    folder = None if out is None else make_folder(out)
    data = load_dataset("yeast")
    split = make_split(data, seed=0)
    train, validation, test = (data.rows(r) for r in (split.train, split.validation, split.test))
    parts = train, validation, test
    model = _fit_cgmvae(parts, members, epochs)
    scores = {
        "C-GMVAE": [model.predict_proba(part.X) for part in (validation, test)],
        "binary relevance": _binary_relevance_scores(parts),
        "random forest": _forest_scores(parts, trees),
    }
    _print_metrics(parts, scores)
    console.print_text("")
    _print_pairs(model, train)
    if folder is not None:
        _save(model, data, split, folder)


def _save(model: Any, data: MultiLabelDataset, split: Split, folder: Path) -> None:
    """Write the model and its report into a folder."""
    model.origin_ = models.origin_record(Source(data.name), data, split)
    make_page(model, report_rows(model.origin_, data, data), str(folder / "report.html"))
    models.save_model(model, data, str(folder / f"{data.name}.cgmvae"))
    console.print_text("")
    console.print_text(f"Report: {folder / 'report.html'}")


def _print_metrics(parts: Parts, scores: Mapping[str, list[NDArray[Any]]]) -> None:
    rows = [
        [f"{method} ({protocol})", *map(console.metric_text, _measure(parts, found, protocol))]
        for protocol in PROTOCOLS
        for method, found in scores.items()
    ]
    printed = (published_value(metric, "C-GMVAE", "yeast") for metric in METRIC_TITLES)
    rows.append(["paper, C-GMVAE (test-oracle)", *map(console.metric_text, printed)])
    train, _, test = parts
    console.print_table(
        f"yeast: {train.n_samples:,} training genes, {test.n_samples:,} test genes",
        ["method (thresholds)", *METRIC_TITLES.values()],
        rows,
        caption="'validation' is what a user gets; 'test-oracle' chooses thresholds on the test "
        "labels, like the paper's tables.",
    )


def _print_pairs(model: Any, train: MultiLabelDataset) -> None:
    console.print_table(
        "Gene functions that the model considers most similar",
        ["pair", "similarity", "co-occurrence, relative to chance"],
        [
            [f"{first} and {second}", f"{similarity:.2f}", f"{lift:.1f} ×"]
            for first, second, similarity, lift in _pairs(model, train)
        ],
    )


def _fit_cgmvae(parts: Parts, members: int | None, epochs: int | None) -> Any:
    from cgmvae.methods import CGMVAEClassifier

    train, validation, _ = parts
    model = CGMVAEClassifier(epochs=epochs, random_state=0)
    if members is not None:
        model.set_params(n_members=members)
    with console.training_progress("Training C-GMVAE") as progress:
        model.set_params(progress=progress)
        model.fit(train.X, train, validation_data=(validation.X, validation))
    return model


def _binary_relevance_scores(parts: Parts) -> list[NDArray[Any]]:
    from cgmvae.methods import BinaryRelevance

    train, *others = parts
    model = BinaryRelevance(random_state=0)
    model.fit(train.X, train, validation_data=(others[0].X, others[0]))
    return [model.predict_proba(part.X) for part in others]


def _forest_scores(parts: Parts, trees: int) -> list[NDArray[Any]]:
    """Return a random forest's probabilities for validation and test rows.

    Every label of yeast has positive and negative training rows, so each has the classes 0 and 1.
    """
    from sklearn.ensemble import RandomForestClassifier

    train, *others = parts
    forest = RandomForestClassifier(trees, n_jobs=-1, random_state=0).fit(train.X, train.Y)
    return [np.stack([p[:, 1] for p in forest.predict_proba(part.X)], axis=1) for part in others]


def _measure(parts: Parts, scores: list[NDArray[Any]], protocol: str) -> list[float]:
    from cgmvae.evaluation import Scored, evaluate

    validation, test = (Scored(p.Y, s) for p, s in zip(parts[1:], scores, strict=True))
    return evaluate(test, validation, protocol=protocol).values()


def _pairs(
    model: Any, train: MultiLabelDataset, n: int = 3
) -> Iterator[tuple[str, str, float, float]]:
    """Yield the label pairs of the highest similarity, with their lift.

    The lift is P(both) / (P(first) · P(second)) among the training rows.
    """
    similarity, names = model.label_similarity(), train.label_names
    pairs = sorted(combinations(range(len(names)), 2), key=lambda pair: -similarity[pair])
    labels = train.Y.astype(np.float64)
    together, share = labels.T @ labels / len(labels), labels.mean(axis=0)
    for a, b in pairs[:n]:
        lift = together[a, b] / (share[a] * share[b])
        yield names[a], names[b], float(similarity[a, b]), float(lift)
