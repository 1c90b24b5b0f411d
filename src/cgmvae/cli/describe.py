"""``cgmvae describe``: what a model file holds, without the data that it was fitted on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cgmvae.cli.columns import columns_record, columns_text
from cgmvae.cli.origin import known_origin
from cgmvae.cli.output import JsonOption, print_json, print_table, print_text
from cgmvae.cli.sources import ModelArgument
from cgmvae.evaluation import METRIC_TITLES
from cgmvae.evaluation.thresholds import describe_rule

#: Columns beyond which neighbours of one kind share a line.
_MANY_COLUMNS = 20

#: Names of labels that are printed; JSON has all.
_SHOWN_LABELS = 8

_SCALED = {
    "standardise": "standardised",
    "max-abs": "divided by the largest absolute value",
    "none": "kept",
}


def describe(model: ModelArgument, json: JsonOption = False) -> None:
    """Show what a model is, where it comes from and what it takes.

    MODEL is a file that 'cgmvae fit' wrote.
    """
    from cgmvae.methods import load

    record = describe_model(load(model), Path(model))
    if json:
        print_json(record)
    else:
        _print(record)


def describe_model(model: Any, path: Path) -> dict[str, Any]:
    """Return what a fitted model is, for JSON."""
    from cgmvae.methods import REGISTRY, method_name
    from cgmvae.methods.serialization import count_numbers

    name = method_name(model)
    settings = {k: v for k, v in model.get_params(deep=False).items() if v is not None}
    return {
        "model": str(path),
        "bytes": path.stat().st_size,
        "method": name,
        "title": REGISTRY[name].title,
        "preset": settings.get("preset"),
        "members": len(getattr(model, "member_settings_", ())) or None,
        "numbers": count_numbers(model),
        "settings": {k: v for k, v in settings.items() if k not in ("device", "preset")},
        "origin": known_origin(model.origin_),
        "labels": list(model.label_names_),
        "columns": _columns(model),
        "scaling": _SCALED[model.scaler_.kind_],
        "threshold": describe_rule(model.threshold_rule_),
    }


def _columns(model: Any) -> list[dict[str, Any]]:
    """Return each column that the model takes, and what is done to it."""
    if (prepared := columns_record(model)) is not None:
        return prepared
    done = _SCALED[model.scaler_.kind_]
    return [
        {"column": name, "kind": "number", "done": done, "n_features": 1}
        for name in model.prepared_names()
    ]


def _print(record: Mapping[str, Any]) -> None:
    for line in (_what(record), *_whence(record["origin"]), _labels(record), _rule(record)):
        print_text(line)
    columns = record["columns"]
    print_text(f"Columns: {columns_text(columns)}")
    rows = list(_grouped(columns)) if len(columns) > _MANY_COLUMNS else columns
    print_table(
        "What is done to them",
        ["column", "kind", "done", "features"],
        [[row["column"], row["kind"], row["done"], row["n_features"]] for row in rows],
        caption=f"Then all features are {record['scaling']}." if _prepared(columns) else "",
    )


def _prepared(columns: list[dict[str, Any]]) -> bool:
    return any(row["kind"] != "number" for row in columns)


def _what(record: Mapping[str, Any]) -> str:
    parts = []
    if record["preset"] is not None:
        parts.append(f"preset {record['preset']}")
    if record["members"] is not None:
        parts.append(f"{record['members']:,} member{'s' if record['members'] > 1 else ''}")
    more = f" ({', '.join(parts)})" if parts else ""
    size = f"{record['numbers']:,} numbers in {record['bytes']:,} bytes"
    return f"{record['model']}: {record['title']}{more}, {size}."


def _whence(origin: Mapping[str, Any] | None) -> Iterator[str]:
    """Give where and when a model was fitted."""
    if origin is None:
        yield "It does not say which data it was fitted on."
        return
    data, split = origin["data"], origin["split"]
    rows = f"{data['n_samples']:,} rows of {data['source']}"
    if split is None:
        yield f"Fitted on all {rows}."
    else:
        parts = ", ".join(f"{n:,} {part}" for part, n in split["rows"].items())
        yield f"Fitted on {rows}, {split['kind']} split with seed {split['seed']}: {parts}."
    took = "" if origin["seconds"] is None else f", in {origin['seconds']:,} s"
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    yield f"Made on {origin['date']}{took}, with {versions}."
    yield f"Command: {origin['command']}"


def _labels(record: Mapping[str, Any]) -> str:
    names = record["labels"]
    more = ", …" if len(names) > _SHOWN_LABELS else ""
    return f"Labels: {len(names):,} ({', '.join(names[:_SHOWN_LABELS])}{more})."


def _rule(record: Mapping[str, Any]) -> str:
    rule = record["threshold"]
    metric = record["settings"]["threshold_metric"]
    if rule["rule"] == "global":
        text = f"a label is predicted from probability {rule['threshold']:.3g} on"
    elif rule["rule"] == "top-k":
        text = f"the {rule['k']:,} most probable labels of each row are predicted"
    else:
        low, high = min(rule["thresholds"]), max(rule["thresholds"])
        text = f"each label has its own, from {low:.3g} to {high:.3g}"
    return f"Threshold: {text}; chosen for {METRIC_TITLES.get(metric, metric)}."


def _grouped(columns: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Give neighbours that are treated alike as one line."""
    for _, same in itertools.groupby(columns, key=lambda row: (row["kind"], row["done"])):
        first, *others = same
        if others:
            n_features = first["n_features"] + sum(row["n_features"] for row in others)
            name = f"{first['column']} … {others[-1]['column']} ({len(others) + 1:,} columns)"
            first = first | {"column": name, "n_features": n_features}
        yield first
