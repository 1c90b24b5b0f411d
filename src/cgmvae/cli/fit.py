"""``cgmvae fit``: train a model on a data set and save it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from cgmvae.cli import arguments, console, models
from cgmvae.cli.arguments import Panel, Source, SourceArgument, flag, option
from cgmvae.data import MultiLabelDataset, make_split
from cgmvae.data.splits import Split, check_kind, find_coordinates
from cgmvae.errors import InputError
from cgmvae.evaluation import METRIC_TITLES, Scored, evaluate
from cgmvae.evaluation.breakdown import names_in_every_row
from cgmvae.evaluation.thresholds import check_choice


def fit(
    source: SourceArgument,
    out: arguments.ModelFileOption = None,
    method: Annotated[
        str, option("NAME", "A method listed by 'cgmvae methods'.", panel=Panel.TRAINING)
    ] = "blend",
    preset: Annotated[
        str | None,
        option("NAME", "tuned (default), released or paper, of C-GMVAE.", panel=Panel.TRAINING),
    ] = None,
    members: Annotated[
        int | None, option("N", "Members of a network (default 8).", panel=Panel.TRAINING, min=1)
    ] = None,
    epochs: arguments.EpochsOption = None,
    setting: Annotated[
        list[str] | None,
        option("NAME=VALUE", "Any other setting, such as latent_dim=32.", panel=Panel.TRAINING),
    ] = None,
    no_training_rows: Annotated[
        bool,
        flag("--no-training-rows", "Store no training rows in the model file.", Panel.TRAINING),
    ] = False,
    device: arguments.DeviceOption = None,
    seed: arguments.SeedOption = 0,
    threshold_metric: Annotated[
        str, option("NAME", "Metric that the thresholds maximize.", panel=Panel.TEST)
    ] = "micro_f1",
    threshold_rule: Annotated[
        str, option("NAME", "global, per-label or top-k.", panel=Panel.TEST)
    ] = "global",
    split: Annotated[
        str | None,
        option(
            "KIND",
            "random, group, stratified or official; group if there are groups.",
            panel=Panel.TEST,
        ),
    ] = None,
    drop_empty: arguments.DropEmptyOption = False,
    no_test: Annotated[
        bool, flag("--no-test", "Train on all rows, without a test.", Panel.TEST)
    ] = False,
    overwrite: arguments.OverwriteOption = False,
    json: arguments.JsonOption = False,
) -> None:
    """Train a model on a data set or a file, and save it.

    The columns of a table may be numbers, categories, dates and text; the model stores how it
    prepares them. Part of the rows is used to choose the thresholds and the best epoch, and another
    part to test the model. If training is interrupted, the same command resumes it.
    """
    parameters = {
        "preset": preset,
        "n_members": members,
        "epochs": epochs,
        "device": device,
        "threshold_metric": threshold_metric,
        "threshold_rule": threshold_rule,
        "random_state": seed,
    }
    out = out or arguments.target_for(source.name, ".cgmvae")
    arguments.check_target(out, source.name, overwrite=overwrite)
    if no_test and (split or drop_empty):
        raise InputError("--no-test excludes --split and --drop-empty; leave them out.")
    if split is not None:
        check_kind(split)
    source.check()
    check_choice(threshold_rule, threshold_metric)
    model = models.make_model(
        method, parameters, setting or (), keep_training_rows=not no_training_rows
    )
    with console.kept_warnings() as said:
        dataset = load_training_data(source)
        chosen = None if no_test else choose_split(dataset, split, seed, drop_empty=drop_empty)
        warn_of_optimism(dataset, chosen)
        started = time.perf_counter()
        resumed = _train(model, dataset, chosen, f"{out}.checkpoint")
    model.fit_warnings_ = said
    seconds = None if resumed else time.perf_counter() - started
    model.origin_ = models.origin_record(source, dataset, chosen, seconds, drop_empty=drop_empty)
    report = test_model(model, dataset, chosen, out)
    report |= {"method": method, "continued": resumed}
    if json:
        console.print_json(report)
    else:
        _print(report)
    # Last: whoever stops the command earlier can give it again, and no result is lost later.
    models.save_model(model, out)
    if not json:
        _print_next_steps(report, model.origin_["n_fitted"])


def load_training_data(source: Source) -> MultiLabelDataset:
    """Load a data set to train on."""
    dataset = source.load()
    if dataset.n_features == 0:
        raise InputError(f"{source.name} has no features to train on; check how it is read.")
    return dataset


def choose_split(
    dataset: MultiLabelDataset, kind: str | None, seed: int, *, drop_empty: bool = False
) -> Split:
    """Return a split of this kind; by default by group if there are groups."""
    kind = kind or ("random" if dataset.groups is None else "group")
    return make_split(dataset, kind, seed=seed, drop_empty=drop_empty)


def warn_of_optimism(dataset: MultiLabelDataset, split: Split | None) -> None:
    """Warn if training and test have the same rows, or rows near each other in space."""
    if split is None:
        return
    train = np.concatenate([split.train, split.validation])
    if n_copies := dataset.count_copies(split.test, train):
        be, what = ("is", "a training row") if n_copies == 1 else ("are", "training rows")
        console.print_warning(
            f"{n_copies:,} of the {len(split.test):,} test rows {be} also {what}, with the same "
            "features and labels, which makes the test optimistic; remove the copies, or name "
            "the column of rows that belong together (--groups)."
        )
    place = find_coordinates(dataset.feature_names)
    if split.kind in ("random", "stratified") and dataset.groups is None and place is not None:
        console.print_warning(
            f"The columns {place[0]!r} and {place[1]!r} look like coordinates; rows near each "
            "other are alike, so for a test in new places give --coordinates "
            f"{shlex.quote(','.join(place))}."
        )


def _train(model: Any, dataset: MultiLabelDataset, split: Split | None, path: str) -> bool:
    """Fit the model; return whether an interrupted training was resumed."""
    from cgmvae.training.checkpoint import Checkpoint

    rows: dict[str, Any] = {"groups": dataset.groups}
    train = dataset
    if split is not None:
        train = dataset.rows(np.sort(np.concatenate([split.train, split.validation])))
        rows = {"groups": train.groups}
    part = models.trained_in_epochs(model)
    if part is None:
        model.fit(train.X, train, **rows)
        return False
    checkpoint = Checkpoint(path)  # kept until the model is saved
    resumed = checkpoint.exists()
    try:
        with console.training_progress("Training", model.selection_title) as progress:
            part.set_params(checkpoint=checkpoint, progress=progress)
            model.fit(train.X, train, **rows)
    except KeyboardInterrupt:
        if not checkpoint.exists():
            raise
        raise console.Stopped(f"Stopped; the same command resumes from {path}.") from None
    return resumed


def test_model(
    model: Any, dataset: MultiLabelDataset, split: Split | None, out: str
) -> dict[str, Any]:
    """Test a model; return its metrics and what it was trained on, for JSON.

    Without test rows, the metrics are those of the training rows out of fold, if the method has
    these. Single members made them, so the whole model is a little better.
    """
    from cgmvae.methods.model_file import kept_rows

    scores, metrics, n_occurring, in_every_row = None, None, None, list[str]()
    if split is not None:
        rows = dataset.rows(split.test)
        scores = model.predict_proba(rows.X)
    elif hasattr(model, "oof_proba_"):
        rows, scores = dataset.rows(model.oof_rows_), model.oof_proba_
    if scores is not None:
        scored = Scored(rows.Y, scores, rows.unknown)
        found = evaluate(scored, protocol="validation", rule=model.threshold_rule_)
        model.origin_["metrics"] = metrics = console.without_nan(found.metrics)
        n_occurring, in_every_row = found.n_occurring, names_in_every_row(rows)
    origin = model.origin_["split"]
    network, experts = getattr(model, "cgmvae_", model), getattr(model, "experts_", None)
    best = [int(epoch) for epoch in getattr(network, "best_epoch_", ())]
    return {
        "model": out,
        "data": dataset.name,
        "n_samples": dataset.n_samples,
        "n_features": dataset.n_features,
        "n_labels": dataset.n_labels,
        "columns": models.columns_record(model),
        "split": origin and {name: origin[name] for name in ("kind", "seed", "rows")},
        "best_epochs": best or None,
        "training_rows": kept_rows(model),
        "experts": experts
        and [
            models.expert_record(
                each, 0 if (fitted := model.models_.get(each.name)) is None else kept_rows(fitted)
            )
            for each in experts
        ],
        "protocol": "validation",
        "metrics": metrics,
        "labels_that_occur": n_occurring,
        "labels_in_every_row": in_every_row,
    }


def _print(report: Mapping[str, Any]) -> None:
    if report["continued"]:
        console.print_text("Resumed the interrupted training.")
    split = report["split"]
    if split and (n_dropped := report["n_samples"] - sum(split["rows"].values())):
        console.print_text(f"{n_dropped:,} rows without a positive label were left out.")
    if report["columns"]:
        console.print_text(models.columns_text(report["columns"]))
    if split:
        rows = f"{split['rows']['test']:,} test rows"
        print_metrics(f"{rows} ({split['kind']} split, seed {split['seed']})", report["metrics"])
    elif report["metrics"]:
        print_metrics("Out of fold: each row by models that did not see it", report["metrics"])
    if report["metrics"]:
        occurring = console.occurring_note(report["labels_that_occur"], report["n_labels"])
        for note in filter(
            None, [occurring, console.in_every_row_note(report["labels_in_every_row"])]
        ):
            console.print_text(note)
    if report["experts"]:
        models.print_experts(report["experts"])


def _print_next_steps(report: Mapping[str, Any], n_fitted: int) -> None:
    from cgmvae.methods import find_method

    out, title = report["model"], find_method(report["method"]).title
    used = f"{'all ' * (n_fitted == report['n_samples'])}{n_fitted:,}"
    console.print_text(f"Wrote {out}: {title} from {used} rows of {report['data']}.")
    model = shlex.quote(out)
    console.print_text(f"To predict: cgmvae predict {model} SOURCE --out predictions.csv")
    console.print_text(f"To inspect it: cgmvae report {model}")
    text = models.training_rows_text(report["training_rows"], report["experts"])
    if report["training_rows"] and report["experts"]:
        text += " To store none: --no-training-rows."
    console.print_text(text)


def print_metrics(title: str, metrics: Mapping[str, float | None]) -> None:
    """Print the five metrics of a model with its own thresholds."""
    texts = [console.metric_text(metrics[name]) for name in METRIC_TITLES]
    console.print_table(title, ["thresholds", *METRIC_TITLES.values()], [["validation", *texts]])
