"""``cgmvae describe`` and ``cgmvae methods``: what a model contains, and what can be fitted."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cgmvae.cli import console, models
from cgmvae.cli.arguments import JsonOption, ModelArgument
from cgmvae.evaluation import METRIC_TITLES
from cgmvae.evaluation.thresholds import describe_rule

#: Number of columns beyond which adjacent columns treated alike share a line.
_MANY_COLUMNS = 20

#: Label names that are printed; JSON contains all.
_SHOWN_LABELS = 8

_SCALED = {
    "standardise": "standardized",
    "max-abs": "divided by the largest absolute value",
    "none": "used unscaled",
}


def methods(json: JsonOption = False) -> None:
    """List the methods, their papers and their limits."""
    from cgmvae.methods import REGISTRY

    rows = [
        {"name": name, "title": m.title, "paper": m.paper, "max_labels": m.max_labels}
        for name, m in REGISTRY.items()
    ]
    if json:
        console.print_json(rows)
        return
    table = [[r["name"], r["title"], r["paper"], str(r["max_labels"] or "any")] for r in rows]
    console.print_table(
        "Methods for 'cgmvae fit --method'", ["name", "method", "paper", "labels"], table
    )


def describe(model: ModelArgument, json: JsonOption = False) -> None:
    """Show what a model is, its origin and its inputs.

    MODEL is a file that 'cgmvae fit' wrote.
    """
    from cgmvae.methods import REGISTRY
    from cgmvae.methods.serialization import summarize

    stored = summarize(model)  # without torch, whose import would take most of the time
    name = next(name for name, method in REGISTRY.items() if method is stored.method)
    settings = {k: v for k, v in stored.parameters.items() if v is not None}
    scaling = _SCALED[stored.scaler_.kind_]
    if n_columns := stored.encoding_.n_columns:
        scaling += f", with {n_columns:,} piecewise-linear columns next to them"
    if stored.components_.is_used:
        scaling += f"; of all, {stored.n_columns_:,} principal components"
    columns = models.columns_record(stored) or [
        {"column": column, "kind": "number", "done": scaling, "n_features": 1}
        for column in _feature_names(stored)
    ]
    record = {
        "model": model,
        "bytes": Path(model).stat().st_size,
        "method": name,
        "title": stored.method.title,
        "preset": settings.get("preset"),
        "members": stored.n_members,
        "numbers": stored.n_numbers,
        "settings": {k: v for k, v in settings.items() if k not in ("device", "preset", "verbose")},
        "origin": models.valid_origin(stored.origin_),
        "labels": list(stored.label_names_),
        "columns": columns,
        "scaling": scaling,
        "calibration": stored.calibration and dataclasses.asdict(stored.calibration),
        "votes": stored.votes and stored.votes._asdict(),
        "network_weight": stored.network_weight,
        "threshold": describe_rule(stored.threshold_rule_),
    }
    if json:
        console.print_json(record)
    else:
        _print(record)


def _feature_names(stored: Any) -> list[str]:
    names = getattr(stored, "feature_names_in_", None)
    return [f"feature_{i}" for i in range(stored.n_inputs_)] if names is None else names.tolist()


def _print(record: Mapping[str, Any]) -> None:
    parts = [] if record["preset"] is None else [f"preset {record['preset']}"]
    if record["members"] is not None:
        parts.append(f"{record['members']:,} member{'s' if record['members'] > 1 else ''}")
    more = f" ({', '.join(parts)})" if parts else ""
    size = f"{record['numbers']:,} numbers in {record['bytes']:,} bytes"
    console.print_text(f"{record['model']}: {record['title']}{more}, {size}.")
    for line in _provenance(record["origin"]):
        console.print_text(line)
    names = record["labels"]
    more = ", …" if len(names) > _SHOWN_LABELS else ""
    console.print_text(f"Labels: {len(names):,} ({', '.join(names[:_SHOWN_LABELS])}{more}).")
    if (found := record["calibration"]) is not None:
        low, high = min(found["shifts"]), max(found["shifts"])
        console.print_text(
            f"Calibrated out of fold: temperature {found['temperature']:.2f}, log-odds shifted by "
            f"{low:+.2f} to {high:+.2f}."
        )
    if (votes := record["votes"]) is not None:
        console.print_text(
            f"Averaged with votes of the {votes['k']:,} nearest of {votes['n_rows']:,} training "
            f"rows, which the file contains; weight {votes['weight']:.2f}."
        )
    if (weight := record["network_weight"]) is not None:
        console.print_text(
            f"A linear model is added to the log-odds, which are multiplied by {weight:.2f} before."
        )
    metric = str(record["settings"].get("threshold_metric"))
    chosen = f"chosen for {METRIC_TITLES.get(metric, metric)}"
    console.print_text(f"Threshold: {_rule_text(record['threshold'])}; {chosen}.")
    columns = record["columns"]
    console.print_text(f"Columns: {models.columns_text(columns)}")
    rows = list(_grouped(columns)) if len(columns) > _MANY_COLUMNS else columns
    prepared = any(row["kind"] != "number" for row in columns)
    console.print_table(
        "How they are prepared",
        ["column", "type", "preparation", "features"],
        [[row["column"], row["kind"], row["done"], row["n_features"]] for row in rows],
        caption=f"Then all features are {record['scaling']}." if prepared else "",
    )


def _provenance(origin: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield lines about where and when a model was fitted."""
    if origin is None:
        yield "It does not record which data it was fitted on."
        return
    data, split = origin["data"], origin["split"]
    rows = f"{data['n_samples']:,} rows of {data['source']}"
    if split is None:
        yield f"Fitted on all {rows}."
    else:
        parts = ", ".join(f"{n:,} {part}" for part, n in split["rows"].items())
        yield f"Fitted on {rows}, {split['kind']} split with seed {split['seed']}: {parts}."
    if metrics := models.recorded_metrics(origin):
        found = (f"{METRIC_TITLES[n]} {console.metric_text(metrics[n])}" for n in METRIC_TITLES)
        yield f"{'Out of fold' if split is None else 'On its test rows'}: {', '.join(found)}."
    took = "" if origin["seconds"] is None else f", in {origin['seconds']:,} s"
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    yield f"Made on {origin['date']}{took}, with {versions}."
    yield f"Command: {origin['command']}"


def _rule_text(rule: Mapping[str, Any]) -> str:
    if rule["rule"] == "global":
        return f"labels with a probability of at least {rule['threshold']:.3g} are predicted"
    if rule["rule"] == "top-k":
        return f"the {rule['k']:,} most probable labels of each row are predicted"
    low, high = min(rule["thresholds"]), max(rule["thresholds"])
    return f"one per label, between {low:.3g} and {high:.3g}"


def _grouped(columns: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Merge adjacent columns that are treated alike."""
    for _, same in itertools.groupby(columns, key=lambda row: (row["kind"], row["done"])):
        first, *others = same
        if others:
            n_features = first["n_features"] + sum(row["n_features"] for row in others)
            name = f"{first['column']} … {others[-1]['column']} ({len(others) + 1:,} columns)"
            first = first | {"column": name, "n_features": n_features}
        yield first
