"""``cgmvae report``: one page about a model that anybody can open."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cgmvae.cli.evaluate import load_labelled, with_labels
from cgmvae.cli.fit import check_target
from cgmvae.cli.origin import recorded_source, recorded_split, same_data
from cgmvae.cli.output import print_text
from cgmvae.cli.sources import ModelArgument, Source, feature_places, load_fitted, with_source
from cgmvae.data import MultiLabelDataset
from cgmvae.errors import InputError

Origin = Mapping[str, Any] | None


@with_source
def report(
    model: ModelArgument,
    out: Annotated[str, typer.Option(metavar="FILE", help="The page, *.html.")],
    source: Source | None = None,
    baselines: Annotated[
        str,
        typer.Option(metavar="CHOICE", help="auto (without slow ones), all or none."),
    ] = "auto",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that exists.")
    ] = False,
) -> None:
    """Write a page about a model, with its labels to explore.

    Numbers beside those of plainer methods, warnings, plots, and how to make it all again.
    MODEL is a file that 'cgmvae fit' wrote: it knows its data, and which rows test it. SOURCE is
    needed where that data has moved, and for other rows.
    """
    check_target(Path(out), Source(model), overwrite=overwrite)
    fitted, names = load_fitted(model)
    source = _source(model, fitted.origin_, source)
    dataset = load_labelled(source, fitted)
    whole = _as_fitted(dataset, fitted, names, "label_sets" in source.options)
    rows = report_rows(fitted.origin_, dataset, whole)
    make_page(fitted, rows, out, baselines=baselines)
    print_text(f"Wrote {out}, about {rows.test.n_samples:,} rows of {dataset.name}.")


def _source(model: str, origin: Origin, given: Source | None) -> Source:
    """Return the data to read: what was given, else what the model was fitted on."""
    hint = f"name the data: cgmvae report {shlex.quote(model)} SOURCE --out FILE."
    if given is not None:
        plain = not (given.options or given.format or given.in_catalog)
        stored = recorded_source(origin) if plain and origin is not None else given
        # A file that was only moved is read as before.
        return given if stored.in_catalog else replace(stored, name=given.name)
    if origin is None:
        raise InputError(f"{model} does not say which data it was fitted on; {hint}")
    stored = recorded_source(origin)
    if not stored.in_catalog and not Path(stored.name).exists():
        raise InputError(f"{stored.name}, which {model} was fitted on, is not there now; {hint}")
    return stored


def _as_fitted(
    dataset: MultiLabelDataset, fitted: Any, names: Any, absent_is_negative: bool
) -> MultiLabelDataset:
    """Return the data set with the model's features and labels, in the model's order."""
    places = feature_places(dataset.feature_names, names, fitted.n_features_in_)
    labelled = with_labels(dataset, fitted.label_names_, absent_is_negative)
    return replace(
        labelled,
        X=dataset.X[:, places],
        feature_names=tuple(dataset.feature_names[place] for place in places),
    )


def report_rows(origin: Origin, read: MultiLabelDataset, fitted: MultiLabelDataset) -> Any:
    """Return the rows to report on, and whether the model was trained on them.

    Parameters
    ----------
    origin : mapping or None
        Where the model comes from.
    read : MultiLabelDataset
        The data as it was read; the recorded split is made again on it.
    fitted : MultiLabelDataset
        The same rows with the model's features and labels.
    """
    from cgmvae.report.rows import ReportRows

    if origin is None or not same_data(origin, read):
        return ReportRows.all_of(fitted, "unknown")
    if origin["split"] is None:
        return ReportRows.all_of(fitted, "trained")
    return ReportRows.of_split(fitted, recorded_split(origin, read))


def make_page(fitted: Any, rows: Any, out: str, *, baselines: Any = "auto") -> None:
    """Compute a report and write its page."""
    try:
        from cgmvae.report.contents import collect
        from cgmvae.report.page import write_page

        contents = collect(fitted, rows, origin=fitted.origin_, baselines=baselines)
        write_page(fitted, contents, out, command=shlex.join(["cgmvae", *sys.argv[1:]]))
    except ImportError as error:
        raise InputError('A report needs more packages: pip install "cgmvae[report]"') from error
