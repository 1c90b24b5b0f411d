"""``cgmvae demo``: train on the embedded data set, and compare with other methods."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Any

import numpy as np
import typer

from cgmvae.cli import console, models
from cgmvae.cli.arguments import Source, option
from cgmvae.cli.evaluate import PROTOCOLS
from cgmvae.cli.report import make_page, report_rows
from cgmvae.data import MultiLabelDataset, load_dataset, make_split
from cgmvae.data.files import make_folder
from cgmvae.evaluation import METRIC_TITLES, Scored, evaluate
from cgmvae.studies.published import published_value

#: Label pairs that are printed.
_PAIRS = 3

_Hidden = typer.Option(hidden=True, min=1)


def demo(
    out: Annotated[str | None, option("FOLDER", "Save the model and a report there.")] = None,
    members: Annotated[int | None, _Hidden] = None,
    epochs: Annotated[int | None, _Hidden] = None,
    trees: Annotated[int, _Hidden] = 300,
) -> None:
    """Train on yeast genes, and compare with other methods."""
    folder = None if out is None else make_folder(out)
    data = load_dataset("yeast")
    split = make_split(data, seed=0)
    parts = [data.rows(rows) for rows in (split.train, split.validation, split.test)]
    model = _compare(parts, members, epochs, trees)
    console.print_text("")
    _print_pairs(model, parts[0])
    if folder is None:
        return
    model.origin_ = models.origin_record(Source(data.name), data, split)
    page = folder / "report.html"
    make_page(model, report_rows(model.origin_, data, data), str(page))
    models.save_model(model, data, str(folder / f"{data.name}.cgmvae"))
    console.print_text("")
    console.print_text(f"Report: {page}")


def _compare(
    parts: list[MultiLabelDataset], members: int | None, epochs: int | None, trees: int
) -> Any:
    """Print the metrics of three methods, and return the C-GMVAE model."""
    from sklearn.ensemble import RandomForestClassifier

    from cgmvae.methods import BinaryRelevance, CGMVAEClassifier

    train, *others = parts
    validation, test = others
    held_out = (validation.X, validation)
    model = CGMVAEClassifier(epochs=epochs, random_state=0)
    if members is not None:
        model.set_params(n_members=members)
    with console.training_progress("Training C-GMVAE") as progress:
        model.set_params(progress=progress)
        model.fit(train.X, train, validation_data=held_out)
    linear = BinaryRelevance(random_state=0).fit(train.X, train, validation_data=held_out)
    forest = RandomForestClassifier(trees, n_jobs=-1, random_state=0).fit(train.X, train.Y)

    def forest_scores(X: Any) -> Any:
        # Every label has positive and negative training rows, so each has the classes 0 and 1.
        return np.stack([p[:, 1] for p in forest.predict_proba(X)], axis=1)

    scored = {
        name: [Scored(part.Y, scores(part.X)) for part in others]
        for name, scores in {
            "C-GMVAE": model.predict_proba,
            "binary relevance": linear.predict_proba,
            "random forest": forest_scores,
        }.items()
    }
    rows = [
        (f"{name} ({protocol})", evaluate(on_test, on_validation, protocol=protocol).values())
        for protocol in PROTOCOLS
        for name, (on_validation, on_test) in scored.items()
    ]
    printed: list[Any] = [published_value(metric, "C-GMVAE", "yeast") for metric in METRIC_TITLES]
    rows.append(("paper, C-GMVAE (test-oracle)", printed))
    console.print_table(
        f"yeast: {train.n_samples:,} training genes, {test.n_samples:,} test genes",
        ["method (thresholds)", *METRIC_TITLES.values()],
        [[name, *map(console.metric_text, values)] for name, values in rows],
        caption="'validation' is what a user gets; 'test-oracle' chooses thresholds on the test "
        "labels, like the paper's tables.",
    )
    return model


def _print_pairs(model: Any, train: MultiLabelDataset) -> None:
    """Print the most similar labels and their lift, P(both) / (P(first) · P(second))."""
    similarity, names = model.label_similarity(), train.label_names
    pairs = sorted(combinations(range(len(names)), 2), key=lambda pair: -similarity[pair])
    labels = train.Y.astype(np.float64)
    share = labels.mean(axis=0)
    lift = labels.T @ labels / len(labels) / np.outer(share, share)
    console.print_table(
        "Gene functions that the model considers most similar",
        ["pair", "similarity", "co-occurrence, relative to chance"],
        [
            [f"{names[a]} and {names[b]}", f"{similarity[a, b]:.2f}", f"{lift[a, b]:.1f} ×"]
            for a, b in pairs[:_PAIRS]
        ],
    )
