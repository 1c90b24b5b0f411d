"""``cgmvae predict``: labels, probabilities or label sets for new rows, as a CSV file."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cgmvae.cli.output import print_text
from cgmvae.cli.sources import ModelArgument, Source, feature_places, load_fitted, with_source
from cgmvae.data import files
from cgmvae.data.dataset import Matrix
from cgmvae.data.formats.table import csv_text, parquet_file
from cgmvae.data.formats.table.arrow import first_line, load_pyarrow
from cgmvae.data.formats.table.cells import dataset_of
from cgmvae.data.formats.table.columns import ColumnRoles, TableOptions, listed
from cgmvae.errors import InputError

#: The column that label sets are written to.
SETS_COLUMN = "labels"

#: Rows that are turned into text at a time.
_BLOCK = 4096


@with_source
def predict(
    model: ModelArgument,
    source: Source,
    out: Annotated[str, typer.Option(metavar="FILE.csv", help="File of the predictions.")],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write probabilities, not 0 and 1.")
    ] = False,
    label_sets: Annotated[
        bool, typer.Option("--label-sets", help="Write one column with the names of the labels.")
    ] = False,
    separator: Annotated[
        str, typer.Option(metavar="TEXT", help="What separates the names in that column.")
    ] = ";",
) -> None:
    """Predict the labels of new rows, and write them to a CSV file.

    MODEL is a file that 'cgmvae fit' wrote. Columns are found by their names, in any order; label
    columns need not be there.
    """
    if probabilities and label_sets:
        raise InputError("--probabilities and --label-sets exclude each other; leave one out.")
    _check_target(Path(out), model, source.name)
    fitted, names = load_fitted(model)
    if label_sets:
        _check_separator(separator, fitted.label_names_)
    X = _read_features(source, fitted, names)
    scores = fitted.predict_proba(X)
    header, rows = list(fitted.label_names_), _blocks(scores)
    if label_sets:
        header, rows = [SETS_COLUMN], _joined(fitted, scores, separator)
    elif not probabilities:
        rows = _blocks(fitted.threshold_rule_.apply(scores))
    _write(out, header, rows)
    print_text(
        f"Wrote predictions for {X.shape[0]:,} rows and {fitted.n_labels_:,} labels to {out}."
    )


def _check_target(path: Path, *inputs: str) -> None:
    if files.data_suffix(path) != ".csv":
        raise InputError(f"Predictions are written as CSV, not as {path.name}; name a .csv file.")
    try:
        for name in inputs:
            if path.exists() and Path(name).exists() and path.samefile(name):
                raise InputError(f"{path} is what is read; name another file for the predictions.")
    except OSError as error:
        raise InputError(f"Cannot write {path} ({error.strerror}); choose another name.") from error


def _check_separator(separator: str, names: Sequence[str]) -> None:
    """Refuse a separator by which the sets could not be taken apart again."""
    if not separator:
        raise InputError("The separator of the label sets is empty; give one, such as ';'.")
    if unclear := [name for name in names if separator in name]:
        raise InputError(
            f"The names {listed(unclear)} hold {separator!r}, which separates the names of a set; "
            "choose another --separator."
        )


def _read_features(source: Source, fitted: Any, names: Sequence[str] | None) -> Matrix:
    """Read the model's features, in its order, from rows that need not have labels."""
    if not source.in_catalog and source.reader().name in ("csv", "parquet"):
        return _read_table(source, fitted, names)
    dataset = source.load(n_features=fitted.n_features_in_, n_labels=fitted.n_labels_)
    return dataset.X[:, feature_places(dataset.feature_names, names, fitted.n_features_in_)]


def _read_table(source: Source, fitted: Any, names: Sequence[str] | None) -> Matrix:
    """Read features from a table; columns that are no features are not looked into."""
    is_csv = source.reader().name == "csv"
    arrow = _read_csv(source) if is_csv else _read_parquet(source.name)
    own_groups = (arrow.schema.metadata or {}).get(parquet_file.GROUPS_KEY, b"").decode()
    others = {*fitted.label_names_, own_groups} - set(names or ())
    columns = [name for name in _unlabelled(arrow.column_names, source) if name not in others]
    chosen = [columns[i] for i in feature_places(columns, names, fitted.n_features_in_)]
    if repeated := [name for name, n in Counter(arrow.column_names).items() if n > 1]:
        raise InputError(f"{listed(repeated)} names more than one column; rename them.")
    return _numbers(arrow, chosen, text_is_parsed=is_csv)


def _numbers(arrow: Any, features: Sequence[str], *, text_is_parsed: bool) -> Matrix:
    """Return columns as numbers; a label column is added, for the reader knows no data without."""
    added = arrow.select(features).append_column("", [np.zeros(arrow.num_rows, np.uint8)])
    options = TableOptions(labels=[""])
    roles = ColumnRoles(tuple(features), ("",))
    return dataset_of(added, roles, options, name="", text_is_parsed=text_is_parsed).X


def _unlabelled(columns: Sequence[str], source: Source) -> list[str]:
    """Return the columns that the reading options do not name as something else."""
    options = source.options
    named = {*options.get("drop", ()), options.get("groups")}
    rest = [name for name in columns if name not in named]
    if count := options.get("label_count"):
        rest = rest[count:] if count > 0 else rest[:count]
    if prefix := options.get("label_prefix"):
        rest = [name for name in rest if not name.startswith(prefix)]
    return [name for name in rest if name not in options.get("labels", ())]


def _read_csv(source: Source) -> Any:
    delimiter = source.options.get("delimiter", ",")
    names = csv_text.read_names(source.name, delimiter)
    return csv_text.read_cells(source.name, len(names), delimiter).rename_columns(names)


def _read_parquet(path: str) -> Any:
    pa = load_pyarrow()
    files.refuse_packed(path, "Parquet")
    try:
        with pa.parquet.ParquetFile(path) as file:
            parquet_file.check_size(Path(path), file.metadata)
            arrow = file.read()
            arrow.validate(full=True)
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable Parquet file ({first_line(error)}).") from error
    if arrow.num_rows == 0:
        raise InputError(f"{path} has columns and no rows; check how it was written.")
    return arrow


def _blocks(values: Any) -> Iterator[list[Any]]:
    """Yield the rows as text, each number as short as it can be read back exactly."""
    for start in range(0, len(values), _BLOCK):
        yield from values[start : start + _BLOCK].astype(np.str_).tolist()


def _joined(fitted: Any, scores: Any, separator: str) -> Iterator[list[str]]:
    names = np.array(fitted.label_names_, dtype=object)
    for row in fitted.threshold_rule_.apply(scores).astype(bool):
        yield [separator.join(names[row])]


def _write(path: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with files.atomic_path(path) as temporary, files.create_binary(temporary) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
        text.flush()
        text.detach()
