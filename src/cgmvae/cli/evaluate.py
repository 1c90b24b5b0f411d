"""``cgmvae evaluate``: the metrics of a model on labeled rows, with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.cli import console, models
from cgmvae.cli.arguments import (
    JsonOption,
    ModelArgument,
    OptionalSourceArgument,
    Source,
    flag,
    option,
)
from cgmvae.data import MultiLabelDataset
from cgmvae.data.readers.options import LABEL_OPTIONS
from cgmvae.data.readers.table import LABELS_KEY
from cgmvae.data.splits import nonempty_rows
from cgmvae.errors import InputError, listed
from cgmvae.evaluation import (
    METRIC_TITLES,
    LabelScores,
    RowErrors,
    Scored,
    bootstrap_interval,
    label_scores,
    row_errors,
    row_text,
    well_and_badly_predicted,
)
from cgmvae.evaluation import evaluate as measure
from cgmvae.evaluation.breakdown import names_in_every_row
from cgmvae.evaluation.intervals import MIN_UNITS

#: Notes about the protocols that need no separate validation rows.
_NOTES = {
    "validation": "Thresholds are the model's own.",
    "test-oracle": "For each metric, the best of nine thresholds was chosen on these very labels, "
    "which is optimistic; it is lower than with the model's own threshold where that is none of "
    "the nine. Macro-F1 counts labels without a row as 0. All this is for comparison with the "
    "paper's tables.",
}
PROTOCOLS = tuple(_NOTES)

_TRAINED_ON = "Rows that the model was trained on make the result optimistic."


def evaluate(
    model: ModelArgument,
    source: OptionalSourceArgument = None,
    protocol: Annotated[str, option("NAME", f"{' or '.join(PROTOCOLS)}.")] = "validation",
    all_rows: Annotated[
        bool, flag("--all-rows", "Use the rows that the model was trained on, too.")
    ] = False,
    drop_empty: Annotated[
        bool, flag("--drop-empty", "Leave out rows without a positive label, as the paper does.")
    ] = False,
    per_label: Annotated[
        bool, flag("--per-label", "Show skill, precision, recall, F1, … of each label, too.")
    ] = False,
    errors: Annotated[
        int | None, option("N", "Show the N rows with the most wrong labels, too.", min=1)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure a model on labeled rows, with confidence intervals.

    MODEL is a file that 'cgmvae fit' wrote; it records its data, how it was read, and its test
    rows. Without SOURCE, or with that data as SOURCE, the test rows are used; of any other data all
    rows. Columns of features and labels are matched by name. The 95% intervals come from a
    bootstrap over rows (or groups of rows).
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"There is no protocol {protocol!r}; choose {' or '.join(PROTOCOLS)}.")
    fitted, names = models.load_model(model)
    origin = models.valid_origin(fitted.origin_)
    source = models.source_to_read(model, origin, source)
    dataset = load_labeled(source, fitted, names)
    test_rows = None if all_rows else models.recorded_test_rows(origin, dataset)
    is_test = test_rows is not None
    rows = as_fitted(dataset, fitted, names, source.names_present_labels).in_memory()
    indices = np.arange(rows.n_samples) if test_rows is None else test_rows
    if drop_empty:
        indices = indices[np.isin(indices, nonempty_rows(rows.Y))]
        if len(indices) == 0:
            raise InputError("None of the rows has a positive label; leave out --drop-empty.")
    rows = rows.rows(indices)
    scores, rule = fitted.predict_proba(rows.X), fitted.threshold_rule_
    scored = Scored(rows.Y, scores, rows.unknown)
    found = measure(scored, protocol=protocol, rule=rule)
    outputs = {name: chosen.apply(scores) for name, chosen in found.rules.items()}
    outputs["precision_at_1"] = scores
    given: Any = {"unknown": rows.unknown, "groups": rows.groups, "absent": found.absent}
    metrics = {
        name: bootstrap_interval(name, rows.Y, outputs[name], **given) for name in METRIC_TITLES
    }
    rule = found.rules["micro_f1"]
    labels = label_scores(scored, rule, rows.label_names, groups=rows.groups) if per_label else []
    wrong = row_errors(scored, rule, rows.label_names, limit=errors) if errors else []
    listed_errors = [_error_record(error, rows, indices) for error in wrong]
    report = {"model": model, "data": dataset.name, "rows": rows.n_samples, "protocol": protocol}
    report |= {"test_rows_only": is_test, "confidence": 0.95}
    in_every_row = names_in_every_row(rows)
    report |= {"labels_that_occur": found.n_occurring, "labels_in_every_row": in_every_row}
    report |= {"fit_warnings": fitted.fit_warnings_}
    if json:
        report["metrics"] = {n: console.without_nan(v._asdict()) for n, v in metrics.items()}
        if per_label:
            report["labels"] = [console.without_nan(label._asdict()) for label in labels]
        if errors:
            report["errors"] = listed_errors
        console.print_json(report)
        return
    notes = [_NOTES[protocol], *([] if is_test else [_TRAINED_ON])]
    if found.absent == "skip":
        notes.append(console.occurring_note(found.n_occurring, rows.n_labels))
    notes.append(console.in_every_row_note(in_every_row))
    if np.isnan(metrics["micro_f1"].low):
        notes.append(f"Fewer than {MIN_UNITS} rows (or groups) are too few for intervals.")
    console.print_table(
        f"{dataset.name}: {_counted(rows.n_samples, 'test row' if is_test else 'row')}, "
        f"protocol '{protocol}'",
        ["metric", "value", "95% from", "to"],
        [
            [METRIC_TITLES[name], *map(console.metric_text, interval)]
            for name, interval in metrics.items()
        ],
        caption=" ".join(filter(None, notes)),
    )
    for text in fitted.fit_warnings_:
        console.print_warning(f"When the model was fitted: {text}")
    if per_label:
        _print_labels(labels)
    if errors:
        _print_errors(listed_errors, source.name)


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _error_record(
    error: RowErrors, rows: MultiLabelDataset, indices: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the wrong labels of a row and what the row is, for JSON."""
    return {
        "row": int(indices[error.row]) + 1,
        "id": None if rows.ids is None else str(rows.ids[error.row]),
        "missed": dict(error.missed),
        "extra": dict(error.extra),
        "values": row_text(rows.X, rows.feature_names, error.row),
    }


def _print_labels(labels: Sequence[LabelScores]) -> None:
    titles = ["label", "rows", "predicted", "skill", "95% from", "to", "precision", "recall", "F1"]
    titles += ["above always", "95% from", "to", "avg. precision", "AUC", "threshold"]
    console.print_table(
        "Each label",
        titles,
        [[*label[:3], *map(console.metric_text, label[3:])] for label in labels],
        caption="Skill is how much better the probabilities are than the frequency of the label (1 "
        "is perfect, 0 no better); above always is F1 minus the F1 of always predicting it. "
        f"{well_and_badly_predicted(labels)}",
    )


def _print_errors(errors: Sequence[dict[str, Any]], source: str) -> None:
    def names(scores: dict[str, float]) -> str:
        return ", ".join(f"{name} {score:.2f}" for name, score in scores.items()) or "–"

    def row_name(error: dict[str, Any]) -> str:
        return f"{error['row']} ({error['id']})" if error["id"] else str(error["row"])

    console.print_table(
        f"The {_counted(len(errors), 'row')} with the most wrong labels, with probabilities",
        ["row", "missed", "extra", "values"],
        [[row_name(e), names(e["missed"]), names(e["extra"]), e["values"]] for e in errors],
        caption=f"Rows of {source} are counted from 1, without a header and blank rows.",
    )


def load_labeled(source: Source, fitted: Any, names: Sequence[str] | None) -> MultiLabelDataset:
    """Load data for a model and the names of its features, which it was loaded with.

    Columns are read with the types that the model was fitted with. If a table does not say which
    columns are labels, the model's labels are used.
    """
    numbers = None if names is None else dict.fromkeys(names, "number")
    defaults: dict[str, Any] = {
        "n_features": fitted.n_features_in_,
        "kinds": fitted.input_kinds() or numbers,
    }
    if not source.names_present_labels:
        defaults["n_labels"] = fitted.n_labels_
    table = None if {*LABEL_OPTIONS} & {*source.options} else source.table()
    if table is not None and LABELS_KEY not in table.stored:
        if not {*fitted.label_names_} & {*table.all_names}:
            raise InputError(
                f"{source.name} has no column for any of the model's labels, "
                f"{listed(fitted.label_names_)}. Labels are needed to measure a model; for new "
                "rows without labels use 'cgmvae predict'."
            )
        defaults["labels"] = fitted.label_names_
    return source.load(**defaults)


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
    X = dataset.X[:, columns]
    novelties = models.Novelties(fitted)
    novelties.count(X)
    novelties.warn()
    return replace(
        dataset,
        X=X,
        Y=Y[:, indices].toarray(),
        feature_names=tuple(dataset.feature_names[column] for column in columns),
        label_names=wanted,
        unknown=unknown,
    )
