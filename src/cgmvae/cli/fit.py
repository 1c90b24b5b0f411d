"""``cgmvae fit``: from a data set to a model file."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cgmvae.cli import processes
from cgmvae.cli.columns import columns_record, columns_text
from cgmvae.cli.origin import origin_record
from cgmvae.cli.output import (
    JsonOption,
    Stopped,
    metric_text,
    print_json,
    print_table,
    print_text,
    training_progress,
    without_nan,
)
from cgmvae.cli.settings import parse_settings
from cgmvae.cli.sources import Source, with_source
from cgmvae.cli.targets import OverwriteOption, check_target
from cgmvae.data import MultiLabelDataset, make_split
from cgmvae.data.splits import Split
from cgmvae.errors import InputError
from cgmvae.evaluation import METRIC_TITLES
from cgmvae.training.checkpoint import Checkpoint


@with_source
def fit(
    source: Source,
    out: Annotated[str, typer.Option(metavar="MODEL", help="File of the model, *.cgmvae.")],
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Any of 'cgmvae methods'.")
    ] = "cgmvae",
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="tuned (default), released or paper.")
    ] = None,
    members: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Models to average (default 4).")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Passes over the training rows.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Any other setting, such as latent_dim=32."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="auto (default), cpu or cuda.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="Same seed, same model.")
    ] = 0,
    threshold_metric: Annotated[
        str, typer.Option(metavar="NAME", help="What thresholds are chosen for.")
    ] = "micro_f1",
    threshold_rule: Annotated[
        str, typer.Option(metavar="NAME", help="global, per-label or top-k.")
    ] = "global",
    split: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="random, group, stratified or official; by group where there are groups.",
        ),
    ] = None,
    save_split: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the split, for 'evaluate'.")
    ] = None,
    all_rows: Annotated[bool, typer.Option("--all-rows", help="Leave no rows for a test.")] = False,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Train a model on a data set or a file, and save it.

    Columns of a table may be numbers, categories, dates and text; the model keeps what it makes of
    them. A share of the rows chooses the thresholds and the best epoch, and another one tests the
    model.
    When it is stopped, the same command continues.
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
    model = make_model(method, parameters, setting or ())
    for target in filter(None, (out, save_split)):
        check_target(target, source.name, overwrite=overwrite)
    if all_rows and (split or save_split):
        raise InputError("--all-rows makes no split; leave out --split and --save-split.")
    dataset = load(source)
    chosen = None if all_rows else choose_split(dataset, split, seed)
    started = time.perf_counter()
    continued = _train(model, dataset, chosen, Path(f"{out}.checkpoint"))
    if not processes.finish():
        return
    seconds = None if continued else time.perf_counter() - started
    model.origin_ = origin_record(source, dataset, chosen, seconds)
    metrics = None if chosen is None else test_metrics(model, dataset.rows(chosen.test))
    if chosen is not None and save_split is not None:
        chosen.save(save_split)
    save(model, dataset, out)
    report = describe(model, dataset, chosen) | {"model": out, "method": method}
    report |= {"continued": continued, "metrics": metrics}
    if json:
        print_json(report)
    else:
        _print(report)


def make_model(method: str, parameters: Mapping[str, Any], settings: Sequence[str] = ()) -> Any:
    """Return an unfitted model; parameters that are None keep their defaults.

    Parameters
    ----------
    method : str
        A name of the registry.
    parameters : mapping
        Those of the estimator; what the method does not have is refused unless it is None.
    settings : sequence of str
        Further settings, ``NAME=VALUE``.
    """
    from cgmvae.methods import find_method
    from cgmvae.training.device import find_device

    found = find_method(method)
    given = {name: value for name, value in parameters.items() if value is not None}
    given |= parse_settings(settings, found.estimator)
    find_device(given.get("device", "auto"))
    taken = {field.name for field in dataclasses.fields(found.estimator) if field.init}
    if alien := [name for name in given if name not in taken]:
        flag = {"n_members": "members"}.get(alien[0], alien[0])
        raise InputError(f"--{flag} does not apply to {found.title}; leave it out.")
    return found.estimator(**given)


def load(source: Source) -> MultiLabelDataset:
    """Read rows to learn from."""
    dataset = source.load()
    if dataset.n_features == 0:
        raise InputError(f"{source.name} has no features to learn from; check what was read.")
    return dataset


def choose_split(dataset: MultiLabelDataset, kind: str | None, seed: int) -> Split:
    """Return a split of this kind; by default by group where there are groups."""
    return make_split(dataset, kind or ("random" if dataset.groups is None else "group"), seed=seed)


def _train(model: Any, dataset: MultiLabelDataset, split: Split | None, checkpoint: Path) -> bool:
    """Fit the model; return whether an earlier training was continued."""
    rows: dict[str, Any] = {"groups": dataset.groups}
    train = dataset
    if split is not None:
        train, held = dataset.rows(split.train), dataset.rows(split.validation)
        rows = {"validation_data": (held.X, held)}
    if "checkpoint" not in model.get_params():
        model.fit(train.X, train, **rows)
        return False
    continued = Checkpoint(checkpoint).exists()
    try:
        with training_progress("Training") as progress:
            model.set_params(checkpoint=checkpoint, progress=progress)
            model.fit(train.X, train, **rows)
    except KeyboardInterrupt:
        if not Checkpoint(checkpoint).exists():
            raise
        raise Stopped(f"Stopped; the same command continues from {checkpoint}.") from None
    return continued


def test_metrics(model: Any, test: MultiLabelDataset) -> dict[str, float | None]:
    """Return the five metrics of what ``predict`` gives on the test rows."""
    from cgmvae.evaluation import Scored, evaluate

    scored = Scored(test.Y, model.predict_proba(test.X), test.unknown)
    found = evaluate(scored, protocol="validation", rule=model.threshold_rule_)
    return without_nan(found.metrics)


def save(model: Any, dataset: MultiLabelDataset, path: str) -> None:
    """Write the model with the names of its features, and forget the state of its training.

    The model was fitted on arrays, which have no names; with names, ``predict`` matches columns.
    """
    model.feature_names_in_ = np.array(dataset.feature_names, dtype=object)
    model.save(path)
    Checkpoint(f"{path}.checkpoint").remove()


def describe(model: Any, dataset: MultiLabelDataset, split: Split | None) -> dict[str, Any]:
    """Return what was trained on what, for JSON."""
    parts = ("train", "validation", "test")
    rows = {part: len(getattr(split, part)) for part in parts} if split else None
    best = [int(epoch) for epoch in getattr(model, "best_epoch_", ())]
    return {
        "data": dataset.name,
        "n_samples": dataset.n_samples,
        "n_features": dataset.n_features,
        "n_labels": dataset.n_labels,
        "columns": columns_record(model),
        "split": {"kind": split.kind, "seed": split.seed, "rows": rows} if split else None,
        "best_epochs": best or None,
        "protocol": "validation",
    }


def _print(report: Mapping[str, Any]) -> None:
    from cgmvae.methods import find_method

    if report["continued"]:
        print_text("The training that was stopped was continued.")
    split, out = report["split"], report["model"]
    used = f"{split['rows']['train']:,}" if split else f"all {report['n_samples']:,}"
    title = find_method(report["method"]).title
    print_text(f"Wrote {out}: {title} from {used} rows of {report['data']}.")
    if report["columns"]:
        print_text(columns_text(report["columns"]))
    if split:
        print_table(
            f"{split['rows']['test']:,} test rows ({split['kind']} split, seed {split['seed']})",
            ["thresholds", *METRIC_TITLES.values()],
            [["validation", *(metric_text(report["metrics"][name]) for name in METRIC_TITLES)]],
        )
    print_text(f"To predict: cgmvae predict {shlex.quote(out)} SOURCE --out predictions.csv")
    print_text(f"To look at it: cgmvae report {shlex.quote(out)} --out report.html")
