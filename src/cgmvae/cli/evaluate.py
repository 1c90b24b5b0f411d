"""``cgmvae evaluate``: the metrics of a model on labeled rows, with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp

from cgmvae.cli import console, models
from cgmvae.cli.arguments import JsonOption, ModelArgument, Source, flag, option, with_source
from cgmvae.data import MultiLabelDataset
from cgmvae.data.readers.table import LABELS_KEY
from cgmvae.data.splits import Split
from cgmvae.errors import InputError, listed
from cgmvae.evaluation import METRIC_TITLES, Scored, bootstrap_interval
from cgmvae.evaluation import evaluate as measure
from cgmvae.evaluation.intervals import MIN_UNITS

#: Notes about the protocols that need no separate validation rows.
_NOTES = {
    "validation": "Thresholds are the model's own.",
    "test-oracle": "Thresholds were chosen on these very labels, so the result is optimistic.",
}
PROTOCOLS = tuple(_NOTES)

_TRAINED_ON = (
    "Rows that the model was trained on make the result optimistic; --split-file excludes them."
)


@with_source
def evaluate(
    model: ModelArgument,
    source: Source,
    protocol: Annotated[str, option("NAME", f"{' or '.join(PROTOCOLS)}.")] = "validation",
    split_file: Annotated[
        str | None, option("FILE", "Use the test rows of a split that 'fit' wrote.")
    ] = None,
    all_rows: Annotated[
        bool, flag("--all-rows", "Use all rows (default without a split).")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Measure a model on labeled rows, with confidence intervals.

    MODEL is a file that 'cgmvae fit' wrote. Columns of features and labels are matched by name.
    The 95% intervals come from a bootstrap over rows (or groups of rows).
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"There is no protocol {protocol!r}; choose {' or '.join(PROTOCOLS)}.")
    if all_rows and split_file is not None:
        raise InputError("--all-rows and --split-file exclude each other; leave one out.")
    fitted, names = models.load_model(model)
    dataset = load_labelled(source, fitted, names)
    if split_file is not None:
        _, _, test = Split.load(split_file).parts(dataset)
        if test is None:
            raise InputError(f"The split {split_file} has no test rows; make one that has.")
        dataset = test
    rows = as_fitted(dataset, fitted, names, "label_sets" in source.options)
    scores, rule = fitted.predict_proba(rows.X), fitted.threshold_rule_
    found = measure(Scored(rows.Y, scores, rows.unknown), protocol=protocol, rule=rule)
    outputs = {name: chosen.apply(scores) for name, chosen in found.rules.items()}
    outputs["precision_at_1"] = scores
    given: Any = {"unknown": rows.unknown, "groups": rows.groups}
    metrics = {
        name: bootstrap_interval(name, rows.Y, outputs[name], **given) for name in METRIC_TITLES
    }
    report = {"model": model, "data": dataset.name, "rows": rows.n_samples, "protocol": protocol}
    report |= {"test_rows_only": split_file is not None, "confidence": 0.95}
    if json:
        console.print_json(
            {**report, "metrics": {n: console.without_nan(v._asdict()) for n, v in metrics.items()}}
        )
        return
    notes = [_NOTES[protocol], *([] if split_file else [_TRAINED_ON])]
    if np.isnan(metrics["micro_f1"].low):
        notes.append(f"Fewer than {MIN_UNITS} rows (or groups) are too few for intervals.")
    console.print_table(
        f"{dataset.name}: {rows.n_samples:,} rows, protocol '{protocol}'",
        ["metric", "value", "95% from", "to"],
        [
            [METRIC_TITLES[name], *map(console.metric_text, interval)]
            for name, interval in metrics.items()
        ],
        caption=" ".join(notes),
    )


def load_labelled(source: Source, fitted: Any, names: Sequence[str] | None) -> MultiLabelDataset:
    """Load data for a model and the names of its features, which it was loaded with.

    Columns are read with the types that the model was fitted with. If a table does not say which
    columns are labels, the model's labels are used.
    """
    numbers = None if names is None else dict.fromkeys(names, "number")
    defaults: dict[str, Any] = {
        "n_labels": fitted.n_labels_,
        "n_features": fitted.n_features_in_,
        "kinds": fitted.input_kinds() or numbers,
    }
    named = any(name.startswith("label") for name in source.options)
    if not source.in_catalog and not named and _is_table_without_labels(source):
        defaults["labels"] = fitted.label_names_
    return source.load(**defaults)


def _is_table_without_labels(source: Source) -> bool:
    """Return whether a file is a table without a record of which columns are labels."""
    format_ = source.reader().name
    if format_ != "parquet":
        return format_ == "csv"
    import pyarrow.parquet

    try:
        stored = pyarrow.parquet.read_schema(source.name).metadata or {}
    except (pyarrow.ArrowException, OSError):  # the reader reports what is wrong
        return True
    return LABELS_KEY not in stored


def as_fitted(
    dataset: MultiLabelDataset, fitted: Any, names: Sequence[str] | None, absent_is_negative: bool
) -> MultiLabelDataset:
    """Return the data set with the model's features and labels, in the model's order.

    Columns and labels that the model does not know are dropped with a warning. A label that the
    data never mentions is an error, unless ``absent_is_negative``, as in label sets.
    """
    columns = models.match_features(dataset.feature_names, names, fitted.n_features_in_)
    wanted = fitted.label_names_
    found = {name: index for index, name in enumerate(dataset.label_names)}
    missing = [name for name in wanted if name not in found]
    if len(missing) == len(wanted) or (missing and not absent_is_negative):
        raise InputError(
            f"The data lacks {len(missing):,} of the model's {len(wanted):,} labels: "
            f"{listed(missing)}; give rows with these labels."
        )
    if extra := [name for name in dataset.label_names if name not in wanted]:
        console.print_warning(f"Labels that the model does not know are ignored: {listed(extra)}.")
    indices = [found.get(name, len(found)) for name in wanted]  # the last is the added column
    Y = sp.csc_array(sp.hstack([dataset.Y, sp.csr_array((dataset.n_samples, 1), dtype=np.uint8)]))
    unknown = None
    if dataset.unknown is not None:
        mask = sp.csr_array(dataset.unknown)
        # An added label is unknown in a row whose labels are all unknown.
        blank = np.asarray(mask.sum(axis=1)).ravel() == len(found)
        unknown = sp.csr_array(sp.csc_array(sp.hstack([mask, blank[:, None]]))[:, indices])
    return replace(
        dataset,
        X=dataset.X[:, columns],
        Y=Y[:, indices].toarray(),
        feature_names=tuple(dataset.feature_names[column] for column in columns),
        label_names=wanted,
        unknown=unknown,
    )
