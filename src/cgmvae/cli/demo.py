"""``cgmvae demo``: train on the embedded data set, and compare with other methods."""

from __future__ import annotations

from contextlib import suppress
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
from cgmvae.evaluation import METRIC_TITLES, Scored, evaluate, learn_rule
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
    split = make_split(data, "official", seed=0)  # the publisher's 917 test genes
    train = data.rows(np.sort(np.concatenate([split.train, split.validation])))
    model = _compare(train, data.rows(split.test), members, epochs, trees)
    console.print_text("")
    _print_pairs(model, train)
    if folder is None:
        return
    model.origin_ = models.origin_record(Source(data.name), data, split)
    page = folder / "report.html"
    make_page(model, report_rows(model.origin_, data, data), str(page))
    models.save_model(model, str(folder / f"{data.name}.cgmvae"))
    console.print_text("")
    console.print_text(f"Report: {page}")


def _compare(
    train: MultiLabelDataset,
    test: MultiLabelDataset,
    members: int | None,
    epochs: int | None,
    trees: int,
) -> Any:
    """Print the metrics of several methods, and return the blend."""
    from sklearn.ensemble import RandomForestClassifier

    from cgmvae.methods import BinaryRelevance, BlendClassifier, CGMVAEClassifier

    network = CGMVAEClassifier(epochs=epochs)
    if members is not None:
        network.set_params(n_members=members)
    model = BlendClassifier(auto_network=network, random_state=0)
    with console.training_progress("Training C-GMVAE", model.selection_title) as progress:
        network.set_params(progress=progress)
        model.fit(train.X, train)
    alone = model.models_["cgmvae"]
    scored = {
        "blend": (model.predict_proba(test.X), model.threshold_rule_),
        "C-GMVAE": (alone.predict_proba(model.inputs(test.X)), alone.threshold_rule_),
    }
    # Every label has positive and negative training rows, so each has the classes 0 and 1; the
    # forest's threshold comes from the trees that did not see a row.
    forest = RandomForestClassifier(trees, oob_score=True, n_jobs=-1, random_state=0)
    unseen = forest.fit(train.X, train.Y).oob_decision_function_[:, 1]
    found = np.stack([p[:, 1] for p in forest.predict_proba(test.X)], axis=1)
    scored["random forest"] = found, learn_rule(train.Y, np.nan_to_num(unseen))
    others = {"binary relevance": BinaryRelevance(random_state=0)}
    with suppress(ImportError):
        from lightgbm import LGBMClassifier

        # One thread: with so few rows, several mostly wait for each other.
        boosted = LGBMClassifier(n_estimators=trees // 2, n_jobs=1, verbose=-1, random_state=0)
        others["LightGBM"] = BinaryRelevance(boosted, random_state=0)
    for name, other in others.items():
        other.fit(train.X, train)
        scored[name] = other.predict_proba(test.X), other.threshold_rule_
    rows = [
        (f"{name} ({protocol})", evaluate(Scored(test.Y, p), protocol=protocol, rule=rule).values())
        for protocol in PROTOCOLS
        for name, (p, rule) in scored.items()
    ]
    # Without learning: the frequency of each label for every row.
    share = train.Y.mean(axis=0, keepdims=True)
    rule = learn_rule(train.Y, share.repeat(train.n_samples, axis=0))
    prior = Scored(test.Y, share.repeat(test.n_samples, axis=0))
    known = evaluate(prior, protocol="validation", rule=rule).values()
    rows.append(("label frequencies (validation)", known))
    printed: list[Any] = [published_value(metric, "C-GMVAE", "yeast") for metric in METRIC_TITLES]
    rows.append(("paper, C-GMVAE (test-oracle)", printed))
    console.print_table(
        f"yeast: {train.n_samples:,} training genes, {test.n_samples:,} test genes",
        ["method (thresholds)", *METRIC_TITLES.values()],
        [[name, *map(console.metric_text, values)] for name, values in rows],
        caption="'validation' is what a user gets, with thresholds from rows that a model did not "
        "see; 'test-oracle' chooses thresholds on the test labels, like the paper's tables. The "
        "blend weighs C-GMVAE, a mixed forest and votes of near rows.",
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
        "Gene functions that C-GMVAE considers most similar",
        ["pair", "similarity", "co-occurrence, relative to chance"],
        [
            [f"{names[a]} and {names[b]}", f"{similarity[a, b]:.2f}", f"{lift[a, b]:.1f} ×"]
            for a, b in pairs[:_PAIRS]
        ],
    )
