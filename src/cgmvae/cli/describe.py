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
    "standardize": "standardized",
    "max-abs": "divided by the largest absolute value",
    "none": "used unscaled",
}


def methods(json: JsonOption = False) -> None:
    """List the methods, their papers and their limits."""
    from cgmvae.methods import REGISTRY

    rows = [
        {
            "name": name,
            "title": m.title,
            "paper": m.paper,
            "max_labels": m.max_labels,
            "training_rows": m.keeps_rows,
        }
        for name, m in REGISTRY.items()
    ]
    if json:
        console.print_json(rows)
        return
    columns = ("name", "title", "paper")
    table = [
        [
            *(row[name] for name in columns),
            str(row["max_labels"] or "any"),
            "stored" if row["training_rows"] else "",
        ]
        for row in rows
    ]
    console.print_table(
        "Methods for 'cgmvae fit --method'",
        ["name", "method", "paper", "labels", "training rows"],
        table,
    )


def describe(model: ModelArgument, json: JsonOption = False) -> None:
    """Show what a model is, its origin and its inputs.

    MODEL is a file that 'cgmvae fit' wrote.
    """
    from cgmvae.methods import REGISTRY
    from cgmvae.methods.model_file import summarize

    stored = summarize(model)  # without torch, whose import would take most of the time
    name = next(name for name, method in REGISTRY.items() if method is stored.method)
    settings = {k: v for k, v in stored.parameters.items() if v is not None}
    pipeline = stored.pipeline_
    scaling = _SCALED[pipeline.scaler.kind_]
    if n_columns := pipeline.bins.n_columns:
        scaling += f", with {n_columns:,} piecewise-linear columns next to them"
    if pipeline.components.is_used:
        scaling += f"; of all, {pipeline.n_columns:,} principal components"
    columns = models.columns_record(stored) or [
        {"column": column, "kind": "number", "done": scaling, "n_features": 1}
        for column in pipeline.feature_names(stored.input_names_)
    ]
    record = {
        "model": model,
        "bytes": Path(model).stat().st_size,
        "method": name,
        "title": stored.method.title,
        "preset": settings.get("preset"),
        "members": stored.n_members,
        "numbers": stored.n_numbers,
        "training_rows": stored.kept_rows,
        "settings": {k: v for k, v in settings.items() if k not in ("device", "preset")},
        "origin": models.valid_origin(stored.origin_),
        "labels": list(stored.label_names_),
        "columns": columns,
        "scaling": scaling,
        "calibration": stored.calibration and dataclasses.asdict(stored.calibration),
        "plan": stored.plan,
        "experts": stored.experts and [_expert(each) for each in stored.experts],
        "threshold": describe_rule(stored.threshold_rule_),
        "warnings": stored.fit_warnings_,
    }
    if json:
        console.print_json(record)
    else:
        _print(record)


def _expert(stored: Any) -> dict[str, Any]:
    """Return what is known of an expert of a blend, for JSON."""
    return models.expert_record(stored.record, stored.kept_rows) | {
        "preset": stored.parameters.get("preset"),
        "members": stored.n_members,
        "calibration": stored.calibration and dataclasses.asdict(stored.calibration),
        "plan": stored.plan,
    }


def _print(record: Mapping[str, Any]) -> None:
    experts = record["experts"]
    console.print_text(models.training_rows_text(record["training_rows"], experts))
    size = f"{record['numbers']:,} numbers in {record['bytes']:,} bytes"
    console.print_text(f"{record['model']}: {record['title']}{_members_text(record)}, {size}.")
    for line in _provenance(record["origin"]):
        console.print_text(line)
    for text in record["warnings"]:
        console.print_text(f"Warning of its fit: {text}")
    names = record["labels"]
    more = ", …" if len(names) > _SHOWN_LABELS else ""
    console.print_text(f"Labels: {len(names):,} ({', '.join(names[:_SHOWN_LABELS])}{more}).")
    data = record["plan"]["profile"]
    console.print_text(
        f"Planned for {data['n_rows']:,} training rows of {data['n_columns']:,} "
        f"{data['features']} features and {data['n_labels']:,} labels."
    )
    for line in _network_lines(record):
        console.print_text(line)
    if experts is not None:
        models.print_experts(experts)
        for expert in experts:
            if lines := [*_network_lines(expert)]:
                console.print_text(f"{expert['name']}: {expert['kind']}{_members_text(expert)}.")
                for line in lines:
                    console.print_text(line)
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
    data, split, n_fitted = origin["data"], origin["split"], origin["n_fitted"]
    n_rows, n_test = data["n_samples"], 0
    text = f"all {n_rows:,}" if n_fitted == n_rows else f"{n_fitted:,} of the {n_rows:,}"
    text = f"Fitted on {text} rows of {data['source']}"
    if split is not None:
        n_test = split["rows"]["test"]
        text += f"; {n_test:,} are test rows ({split['kind']} split, seed {split['seed']})"
    if n_left_out := n_rows - n_fitted - n_test:
        text += f"; {n_left_out:,} are left out"
    yield f"{text}."
    if metrics := models.recorded_metrics(origin):
        found = (f"{METRIC_TITLES[n]} {console.metric_text(metrics[n])}" for n in METRIC_TITLES)
        yield f"{'Out of fold' if split is None else 'On its test rows'}: {', '.join(found)}."
    took = "" if origin["seconds"] is None else f", in {origin['seconds']:,} s"
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    yield f"Made on {origin['date']}{took}, with {versions}."
    yield f"Command: {origin['command']}"


def _members_text(record: Mapping[str, Any]) -> str:
    """Return the preset and the number of members of a network, in brackets."""
    parts = [] if record["preset"] is None else [f"preset {record['preset']}"]
    if record["members"] is not None:
        parts.append(f"{record['members']:,} member{'s' if record['members'] > 1 else ''}")
    return f" ({', '.join(parts)})" if parts else ""


def _network_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about a network: its calibration, and what was decided before training."""
    if (found := record["calibration"]) is not None:
        low, high = min(found["shifts"]), max(found["shifts"])
        yield (
            f"Calibrated out of fold: temperature {found['temperature']:.2f}, log-odds shifted by "
            f"{low:+.2f} to {high:+.2f}."
        )
    plan = record["plan"]
    if plan is not None and plan["network"] is not None:
        yield f"Network: {_settings_text(plan['network'])}."
        yield f"Training: {_settings_text(plan['training'])}."
        member = plan["member"]
        own = {k: v for k, v in member.items() if k not in ("weights", "settings")}
        own |= {f"{term}_weight": weight for term, weight in member["weights"].items()}
        yield f"Each member: {_settings_text({**own, **(member['settings'] or {})})}."


def _settings_text(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
        if value is not None
    )


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
