"""``cgmvae data list | describe | convert``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cgmvae.cli.output import (
    JsonOption,
    print_json,
    print_table,
    print_text,
    reading_progress,
    working,
)
from cgmvae.cli.sources import Source, with_dataset, with_source
from cgmvae.cli.targets import refuse_inputs
from cgmvae.data import MultiLabelDataset, catalog, readers
from cgmvae.data.streaming import TABLES, unpack

TargetFormatOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Format of the new file.")
]

app = typer.Typer(help="Data sets: list them, describe one, convert a file.", no_args_is_help=True)


@app.command("list")
def list_(json: JsonOption = False) -> None:
    """List the data sets of the catalog and where each one is."""
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
            "licence": entry.licence,
            "source": entry.source,
            "recipe": entry.recipe,
        }
        for name, entry in catalog.entries().items()
    ]
    if json:
        print_json(rows)
        return
    columns = ("name", "where", "samples", "features", "labels", "cardinality", "domain")
    print_table("Data sets", columns, [[row[column] for column in columns] for row in rows])


@app.command()
@with_dataset
def describe(dataset: MultiLabelDataset, json: JsonOption = False) -> None:
    """Show the statistics of a data set or a file."""
    statistics = dataset.describe().to_dict()
    printed = _printed_in_paper(dataset.name)
    if json:
        print_json({"name": dataset.name, **statistics, "paper": printed or None})
        return
    columns = ["statistic", "here"]
    rows = [[key.replace("_", " "), value] for key, value in statistics.items()]
    if printed:
        columns.append("printed in the paper")
        rows = [[*row, printed.get(key)] for row, key in zip(rows, statistics, strict=True)]
    print_table(dataset.name, columns, rows)


def _printed_in_paper(name: str) -> dict[str, float]:
    entry = catalog.entries().get(name)
    if entry is None or entry.paper is None:
        return {}
    return {key: float(value) for key, value in asdict(entry.paper).items()}


@app.command()
@with_source
def convert(
    source: Source,
    target: Annotated[str, typer.Argument(metavar="TARGET", hidden=True)],
    target_format: TargetFormatOption = None,
) -> None:
    """Write a data set to the file TARGET; a failure writes nothing.

    A TARGET that ends in .mapped is a folder, whose features need not fit into memory: CSV and
    Parquet are unpacked into it a block of rows at a time.
    """
    dataset = _written(source, target, target_format)
    print_text(
        f"Wrote {dataset.n_samples:,} rows, {dataset.n_features:,} features and "
        f"{dataset.n_labels:,} labels to {target}."
    )


def _written(source: Source, target: str, target_format: str | None) -> MultiLabelDataset:
    """Write what the source holds, and return it."""
    to_folder = readers.choose(target, target_format).name == "mapped"
    refuse_inputs(Path(target), source.name)
    if to_folder and not source.in_catalog and (table := source.reader().name) in TABLES:
        with reading_progress("Unpacking") as tell:
            return unpack(source.name, target, format=table, progress=tell, **source.options)
    dataset = source.load()
    with working("Writing"):
        readers.write(dataset, target, format=target_format)
    return dataset
