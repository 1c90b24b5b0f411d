"""``cgmvae data list | fetch | describe | convert``: the catalog, and data files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cgmvae.cli import console
from cgmvae.cli.arguments import (
    GroupedCommand,
    JsonOption,
    OverwriteOption,
    Source,
    SourceArgument,
    check_not_input,
    check_target,
    command_line_message,
    option,
)
from cgmvae.data import catalog, readers
from cgmvae.data.files import data_name
from cgmvae.data.readers.table import UnnamedLabelsError
from cgmvae.data.streaming import TABLES, unpack

app = typer.Typer(
    help="Data sets: list them, fetch or describe one, convert a file.", no_args_is_help=True
)


@app.command("list")
def list_(json: JsonOption = False) -> None:
    """List the data sets of the catalog and their location."""
    rows = [
        {
            "name": name,
            "where": catalog.availability(name),
            "samples": entry.statistics.samples,
            "features": entry.statistics.features,
            "labels": entry.statistics.labels,
            "cardinality": float(entry.statistics.cardinality),
            "domain": entry.domain,
            "title": entry.title,
            "license": entry.license,
            "source": entry.source,
            "recipe": entry.recipe,
        }
        for name, entry in catalog.entries().items()
    ]
    if json:
        console.print_json(rows)
        return
    columns = ("name", "where", "samples", "features", "labels", "cardinality", "domain")
    console.print_table("Data sets", columns, [[row[column] for column in columns] for row in rows])


@app.command()
def fetch(name: Annotated[str, typer.Argument(help="Name in the catalog.")]) -> None:
    """Download the publisher's files of a data set, and check them."""
    with console.download_progress(f"Downloading {name}") as progress:
        files = catalog.download(name, progress=progress)
    console.print_text(f"The files of {name} are in {files[0].parent}.")


@app.command(cls=GroupedCommand)
def describe(source: SourceArgument, json: JsonOption = False) -> None:
    """Show the statistics of a data set or a file.

    Of a table whose label columns are not named, the columns are shown instead.
    """
    try:
        dataset = source.load()
    except UnnamedLabelsError as error:
        _describe_columns(source, error, json)
        return
    statistics = asdict(dataset.describe())
    entry = catalog.entries().get(dataset.name)
    printed = {}
    if entry is not None and entry.paper is not None:
        printed = {key: float(value) for key, value in asdict(entry.paper).items()}
    if json:
        console.print_json({"name": dataset.name, **statistics, "paper": printed or None})
        return
    columns = ["statistic", "here"]
    rows = [[key.replace("_", " "), value] for key, value in statistics.items()]
    if printed:
        columns.append("printed in the paper")
        rows = [[*row, printed.get(key)] for row, key in zip(rows, statistics, strict=True)]
    console.print_table(dataset.name, columns, rows)


def _describe_columns(source: Source, error: UnnamedLabelsError, json: bool) -> None:
    """Show the columns of a table, and which of them may be labels."""
    rows, advice = error.summary(), command_line_message(error)
    if json:
        name = data_name(source.name)
        record = {"name": name, "samples": error.n_rows, "columns": rows, "advice": advice}
        console.print_json(record)
        return
    title = f"{source.name}: {error.n_rows:,} rows, {len(rows):,} columns"
    columns = ("column", "type", "missing", "distinct", "values")
    console.print_table(title, columns, [[*row.values()] for row in rows], caption=advice)


@app.command(cls=GroupedCommand)
def convert(
    source: SourceArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", hidden=True)],
    target_format: Annotated[str | None, option("TEXT", "Format of the new file.")] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Write a data set to the file TARGET; a failure writes nothing.

    A TARGET that ends in .mapped is a folder whose features need not fit into memory: CSV and
    Parquet files are converted to it in blocks of rows.
    """
    to_folder = readers.choose(target, target_format).name == "mapped"
    check_not_input(Path(target), source.name)
    if not to_folder:
        check_target(target, source.name, overwrite=overwrite)
    if to_folder and not source.in_catalog and (table := source.reader().name) in TABLES:
        with console.reading_progress("Converting") as progress:
            dataset = unpack(source.name, target, format=table, progress=progress, **source.options)
    else:
        dataset = source.load()
        with console.spinner("Writing"):
            readers.write(dataset, target, format=target_format)
    console.print_text(
        f"Wrote {dataset.n_samples:,} rows, {dataset.n_features:,} features and "
        f"{dataset.n_labels:,} labels to {target}."
    )
